"""Strikes the processes that share one store: kills and stops them, its owner among them, and begins new lives.

    begin ─▶ process 0, then the others ─▶ strike, strike, … ─▶ finish: clients end ─▶ one owner, nothing is left
                    kill -9 ─▶ the next life      stop ─▶ goes on        ─▶ they close, one after the other

What a life does, and how it is judged, is a subclass's: struck_history.py, struck_copies.py.

Next: ../disks/forked.py, whose children it strikes.
"""

import os
import random
import re
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ....store.owner_lock import read_holder
from ....store.verify import verify
from ..disks.forked import Child, Say
from ..disks.sharers import Begun, Owns, SharedStore, State, Stopped
from .registry import RowResult

_SETTLED_SECONDS = 120.0, 3.0
"""The longest wait for an end; the second where a bug is planted, which may prevent it."""
_STOPS = 0.05
_OWNERS = 0.55
"""The share of strikes at an owner, where there is one."""
_AT_ONCE = 0.2
"""The share of strikes that follow the one before within milliseconds: they meet an owner that is about to be."""
_PAUSE_SECONDS, _AT_ONCE_SECONDS = (0.05, 0.45), (0.0, 0.01)
_STOPPED_SECONDS = (0.05, 1.5)


class Work(NamedTuple):
    """The strikes at one store. `name`: of the variant."""

    name: str
    folder: Path
    memory: Path
    strikes: int
    seed: int
    planted: str = ""

    @property
    def label(self) -> str:
        """A part of files' names."""
        return re.sub("[, ]+", "-", f"{self.name} {self.planted}".strip())


class Processes(ABC):
    """The processes of one store. Invariants: `end` ends all of them; each of `children` runs, or is stopped."""

    def __init__(self, work: Work, store: SharedStore, number: int) -> None:
        self.work = work
        self.store = store
        self.result = RowResult()
        self.wrongs: list[str] = []
        self.kills = self.stops = 0
        self.lives = [0] * number
        self.children: dict[int, Child] = {}
        self.owners: dict[int, tuple[int, int]] = {}  # generation → (process, life)
        self._number = number
        self._stopped: dict[int, float] = {}  # process → when it goes on
        self._ends_of_owners = 0

    # a subclass's ---------------------------------------------------------------------------

    @abstractmethod
    def life(self, number: int) -> Callable[[Say, int], None]:
        """Returns what the next life of a process does. Letters that it hears: s stops its clients, g asks for its
        state, c closes.
        """

    def life_ended(self, number: int) -> None:
        """Reads what a life that has ended has left: nothing, with most kinds."""
        return

    def take(self, number: int, said: Any) -> None:
        """Takes what a life says, for what only this kind makes of it."""
        return

    def unsettled(self, states: dict[int, State]) -> str:
        """Returns what is not yet as it must be in the end: there is one owner, whom all others have found."""
        owners = [state for state in states.values() if state.owns]
        if len(owners) == 1 and owners[0].attached == len(states) - 1:
            return ""
        return "there is not one owner with all others"

    @abstractmethod
    def judge(self) -> RowResult:
        """Returns what this kind of life has done, with the violations; `wrongs` are among them."""

    # lives ----------------------------------------------------------------------------------

    def wrong(self, text: str) -> None:
        self.wrongs.append(text)

    def begin(self) -> None:
        """Begins the first process, which makes topics and tables, then the others."""
        self._begin_life(0)
        while not isinstance(self._hear(0), Begun) and not self.wrongs:
            pass
        for number in range(1, self._number):
            self._begin_life(number)

    def _begin_life(self, number: int) -> None:
        self.children[number] = Child(self.life(number))

    def _end_life(self, number: int) -> None:
        self.life_ended(number)
        self.lives[number] += 1

    def _hear(self, number: int) -> Any:
        """Returns what a process says next, None once it has ended."""
        said = next(self.children[number].lines(), None)
        self._take(number, said)
        return said

    def _take(self, number: int, said: Any) -> None:
        match said:
            case Owns(generation):
                before = self.owners.setdefault(generation, (number, self.lives[number]))
                if before != (number, self.lives[number]):
                    self.wrong(f"generation {generation} has two owners: {before} and {number}")
            case None:
                self.wrong(f"process {number} has ended by itself")
            case str():
                self.wrong(f"process {number}: {said}")
            case _:
                self.take(number, said)

    def _hear_all(self) -> None:
        for number, child in self.children.items():
            while child.has_spoken(0) and self._hear(number) is not None:
                pass

    def run_apart(self, number: int, body: Callable[[Say, int], None]) -> None:
        """Runs a life that nobody strikes, after the others."""
        for said in Child(body).wait():
            self._take(number, said)

    # strikes --------------------------------------------------------------------------------

    def strike(self, draw: random.Random) -> None:
        close = draw.random() < _AT_ONCE
        self._rest(draw.uniform(*(_AT_ONCE_SECONDS if close else _PAUSE_SECONDS)))
        while len(self._stopped) == self._number:
            self._rest(_AT_ONCE_SECONDS[1])
        running = [number for number in self.children if number not in self._stopped]
        number = draw.choice(running)
        owner = self._owner()
        if draw.random() < _OWNERS and owner in running:
            number = owner
        elif number == owner and len(running) > 1:
            number = draw.choice([other for other in running if other != owner])
        pid = self.children[number].pid
        # Who owns the store cannot change while it is stopped.
        os.kill(pid, signal.SIGSTOP)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            for said in self.children[number].kill():
                self._take(number, said)
            self.wrong(f"process {number} has ended by itself, with status {status}")
            return
        whose = "of the owner" if self._owner() == number else "of another process"
        if draw.random() < _STOPS:
            self._stopped[number] = time.monotonic() + draw.uniform(*_STOPPED_SECONDS)
            self.result.faults[f"stop {whose}"] += 1
            self.stops += 1
        else:
            self._ends_of_owners += whose == "of the owner"
            for said in self.children[number].kill():
                self._take(number, said)
            self._end_life(number)
            self._begin_life(number)
            self.result.faults[f"kill {whose}"] += 1
            self.kills += 1
        self._hear_all()

    def _owner(self) -> int:
        """Returns the process that holds the store's lock, or held it last; -1 if it is gone."""
        pid = read_holder(self.store.folder / "host-0" / "lock").pid
        return next((n for n, child in self.children.items() if child.pid == pid), -1)

    def _rest(self, seconds: float) -> None:
        """Waits; those whose time has come go on."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            for number in [n for n, due in self._stopped.items() if due <= now]:
                self._go_on(number)
            time.sleep(min(0.02, until - now))

    def _go_on(self, number: int) -> None:
        del self._stopped[number]
        os.kill(self.children[number].pid, signal.SIGCONT)

    # the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Has all clients end, and the processes close one after the other, owners among them."""
        for number in list(self._stopped):
            self._go_on(number)
        for number in self.children:
            self.children[number].tell(b"s")
        for number in self.children:
            while not isinstance(said := self._hear(number), Stopped) and said is not None:
                pass
        if self.wrongs:
            return
        for left in range(self._number, 0, -1):
            owner = self._nothing_is_left()
            if owner is None:
                return
            # Owners are the first, the fourth and the last to close.
            others = [number for number in self.children if number != owner]
            number = owner if left in (self._number, self._number - 3, 1) else others[0]
            child = self.children.pop(number)
            child.tell(b"c")
            for said in child.wait():
                self._take(number, said)
            if child.code != 0:
                self.wrong(f"process {number} closed with exit code {child.code}")
            self._ends_of_owners += number == owner and left > 1
            self._end_life(number)

    def _nothing_is_left(self) -> int | None:
        """Waits until all processes that are there know one owner, and nothing else; returns the owner."""
        deadline = time.monotonic() + _SETTLED_SECONDS[bool(self.work.planted)]
        states: dict[int, State] = {}
        why = ""
        while time.monotonic() < deadline and not self.wrongs:
            for number, child in self.children.items():
                child.tell()
                while not isinstance(said := self._hear(number), State) and said is not None:
                    pass
                if said is not None:
                    states[number] = said
            if self.wrongs:
                return None
            why = self.unsettled(states)
            if not why:
                break
            time.sleep(0.01)
        else:
            self.wrong(f"at the end {why}: {states}")
            return None
        for number, state in states.items():
            if state.has_more:
                self.wrong(f"process {number} still has {state}")
        return next(number for number, state in states.items() if state.owns)

    def judged(self) -> RowResult:
        self.result.add(self.judge())
        self.result.runs = self.kills + self.stops
        self.result.figures["owners"] = len(self.owners)
        return self.result

    def judge_store(self) -> None:
        """Verifies the files, and counts generations."""
        for host in range(self.store.hosts):
            for problem in verify(self.store.folder / f"host-{host}"):
                self.wrong(f"host {host}: {problem}")
        generations = sorted(self.owners)
        if generations and generations[-1] > 1 + self._ends_of_owners:
            ends = self._ends_of_owners
            self.wrong(f"generation {generations[-1]}, after {ends} owners have ended")

    def end(self) -> None:
        """Ends all processes, whatever happened before, and removes what they have made."""
        for child in self.children.values():
            child.kill()
        shutil.rmtree(self.store.place, ignore_errors=True)
