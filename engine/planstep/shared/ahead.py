"""Fetches what a reader comes to next, if it is far behind: runs, and slots, many at once.

    the reader's turn                             the last turn of a list
      ▼                                                   ▼
      | slot | slot | run of 1,000 turns | slot | slot …  |  slots, one by one
      └ a window of these is fetched by threads ┘

The reader gets the turns in order, and decides on each one. A slot that was not fetched, for whatever reason, is
None here: the reader asks for it once more, and goes by that answer.

Next: objects_log.py.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ..errors import Corruption, PlanstepError
from ..logs import run_damaged
from .entry import Entry
from .runs import read_run, run_name
from .shared_log import Objects, Position

FAR = 64
"""A reader that is so many turns behind fetches ahead."""
AT_ONCE = 16
_RUN_COST = 8
"""How many slots a run stands for in the window: two runs are fetched at once."""


def slot_name(turn: int) -> str:
    return f"log/{turn:020d}"


class _Fetch(NamedTuple):
    """A slot that is fetched, or a run in place of the slots from `turn` on."""

    turn: int
    name: str
    is_run: bool
    data: Future[bytes | None]


class Ahead:
    """The window of one reader. Invariant: its fetches are of turns in a row, up to `_known` at most."""

    def __init__(self, objects: Objects, where: str) -> None:
        self._objects = objects
        self._where = where
        self._pool: ThreadPoolExecutor | None = None
        self._window: deque[_Fetch] = deque()
        self._run: deque[Entry] = deque()
        self._runs: deque[tuple[int, int]] = deque()
        self._next = 1  # the first turn that is not in the window
        self._known = 0

    def begin(self, known: int, runs: list[tuple[int, int]]) -> None:
        """Fetches up to turn `known` from now on, and runs where there are any: first and last turns, in order."""
        self.end()
        self._known, self._runs = known, deque(run for run in runs if run[1] <= known)
        self._pool = ThreadPoolExecutor(AT_ONCE, "planstep-ahead")

    def end(self) -> None:
        """Stops fetching, and waits for what is under way."""
        self._known = 0
        self._window.clear()
        self._run.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def take(self, turn: int, last: Entry | Position) -> Entry | bytes | None:
        """Returns a turn out of a run, or a slot's bytes; None: it was not fetched. `last`: the turn before."""
        while True:
            if self._run and self._run[0].turn == turn:
                return self._run.popleft()
            if turn > self._known:
                if self._pool is not None:
                    self.end()
                return None
            self._fill(turn)
            fetch = self._window.popleft()
            try:
                data = fetch.data.result()
            except PlanstepError:
                data = None
            if not fetch.is_run:
                return data
            self._take_run(fetch, data, last)

    def _take_run(self, fetch: _Fetch, data: bytes | None, last: Entry | Position) -> None:
        """Takes a run that was fetched, from the turn behind `last` on; or plans its slots in its place."""
        if data is not None:
            where = f"{self._where}/{fetch.name}"
            try:
                entries = read_run(data, fetch.name, where)
                entries = entries[fetch.turn - entries[0].turn :]
                if entries[0].before != last.chain:
                    raise Corruption(f"{where} does not follow turn {last.turn}")
            except Corruption as error:
                run_damaged(where, error)
            else:
                self._run = deque(entries)
                return
        self._window.clear()
        self._next = fetch.turn
        self._runs = deque(run for run in self._runs if run_name(*run) != fetch.name)

    def _fill(self, turn: int) -> None:
        """Fills the window, whose first fetch is of `turn` then."""
        if not self._window or self._window[0].turn != turn:
            self._window.clear()
            self._next = turn
        assert self._pool is not None
        room = AT_ONCE - sum(_RUN_COST if fetch.is_run else 1 for fetch in self._window)
        while self._next <= self._known and room > 0:
            while self._runs and self._runs[0][1] < self._next:
                self._runs.popleft()
            run = self._runs[0] if self._runs and self._runs[0][0] <= self._next else None
            name = slot_name(self._next) if run is None else run_name(*run)
            data = self._pool.submit(self._objects.get, name)
            self._window.append(_Fetch(self._next, name, run is not None, data))
            self._next = self._next + 1 if run is None else run[1] + 1
            room -= 1 if run is None else _RUN_COST
