"""Judges what processes of one store did as one history: strictly serializable, in real time, over all owners.

    tapes of all lives ─┐
    their looks ────────┼─▶ a history ─▶ the judges of row `history`
    the store at last ──┘

Next: ../histories/sharing.py, a life; ../histories/tapes.py.
"""

import itertools
import os
import random
import shutil
import time
from collections.abc import Callable
from functools import partial

from ..disks.forked import Say
from ..disks.sharers import SharedStore, State
from ..histories.schema import World
from ..histories.sharing import given, live, resolve
from ..histories.tapes import Plan, Tapes, add_looks, new_history, read_back
from ..histories.writer import LifeSpec
from .history import judge_history
from .registry import RowResult
from .struck_processes import Processes, Work

_LONG = 50
"""The strikes of a history in which everything comes up."""
_WORLD = World(accounts=400, ring=200, lists=100)


class Histories(Processes):
    """Processes whose transactions conflict, on rows and topics."""

    def __init__(self, work: Work, store: SharedStore, number: int) -> None:
        super().__init__(work, store, number)
        plan = Plan(work.label, store.hosts, 0, work.strikes, _WORLD, work.planted)
        self.history = new_history(plan)
        self.wrongs = self.history.wrong
        self._tapes = work.memory / f"tapes-{work.label}"
        self._tapes.mkdir(parents=True)
        self._numbers = os.open(self._tapes / "numbers", os.O_RDWR | os.O_CREAT, 0o600)
        self._gathered = [Tapes(self.history) for _ in self.lives]
        self._ids: list[list[tuple[int, str]]] = [[] for _ in self.lives]
        self._began = time.monotonic()

    def life(self, number: int) -> Callable[[Say, int], None]:
        return partial(live, self._spec(number), self.store, number)

    def _spec(self, number: int) -> LifeSpec:
        life, work = self.lives[number], self.work
        folder = self._tapes / f"process-{number}-{life}"
        folder.mkdir()
        of = str(self.store.folder), str(folder), self.store.hosts, _WORLD, work.seed
        return LifeSpec(*of, life, 0, 0, self._ids[number], work.planted)

    def life_ended(self, number: int) -> None:
        """Reads the tapes of a life that has ended."""
        folder = self._tapes / f"process-{number}-{self.lives[number]}"
        looks = folder / "looks"
        if looks.exists():
            looks.rename(self._tapes / folder.with_suffix(".looks").name)
        self._ids[number] = self._gathered[number].read(folder)
        self._gathered[number].decode()

    def unsettled(self, states: dict[int, State]) -> str:
        """Returns what is not yet as it must be. Proposals of a dead owner's hosts end by time-outs."""
        if self.store.hosts > 1 and any(state.under_way for state in states.values()):
            return "transactions are under way"
        return super().unsettled(states)

    def judge(self) -> RowResult:
        history = self.history
        history.kills, history.frozen = self.kills, self.stops
        history.writing_s = time.monotonic() - self._began
        self._resolve()
        for tapes in self._gathered:
            tapes.settle()
        numbers = itertools.count(given(self._numbers))
        for path in sorted(self._tapes.glob("*.looks")):
            draw = random.Random(f"{self.work.seed}-{path.name}")
            add_looks(history, path.stem, path, draw, numbers)
        folder, way = self.store.to_read
        read_back(history, folder, **way)
        self.judge_store()
        judged = judge_history(history, short=self.work.strikes < _LONG)
        judged.figures |= {"transactions": judged.runs}
        judged.runs = 0
        return judged

    def _resolve(self) -> None:
        """Asks for the outcomes that the last lives have not learned."""
        for number, ids in enumerate(self._ids):
            if ids:
                self.run_apart(number, partial(resolve, self._spec(number), self.store))
                self.life_ended(number)
                self.lives[number] += 1

    def end(self) -> None:
        super().end()
        os.close(self._numbers)
        shutil.rmtree(self._tapes, ignore_errors=True)
