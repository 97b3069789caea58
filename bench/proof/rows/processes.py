"""Row `processes`: eight processes have one store open; its owner and the others are killed, again and again.

    process 0   owns ─── kill -9     opens again: attaches ──────── stopped ─ goes on ────
    process 1   attached ──┴─ owns ───────────────── kill -9    …
    process 2   attached ──── attached, hands in again ─┴─ owns ──
       ⋮              tapes of all lives, with times of one clock
                               ▼
    one history: strictly serializable, in real time too, over all processes and owners

What was acknowledged is there, once: positions, counts and lists say so. Whoever was killed asks in its next life
how its transactions ended. A change of owner begins one generation. At the end nothing is left of anybody.

Negative controls: readers that trust a mark that was read a while ago; owners that do once more what is handed in
once more.

Left out: modes kafka and pulsar, which have no places to judge by.

Next: ../histories/sharing.py, a life; ../histories/tapes.py.
"""

import itertools
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ....store.owner_lock import read_holder
from ....store.verify import verify
from ...judges.python.findings import REAL_TIME, REPEATED
from ..disks.forked import Child, Silent
from ..histories.schema import World
from ..histories.sharing import Begun, Owns, State, Stopped, given, live, resolve
from ..histories.tapes import Plan, Tapes, add_looks, new_history, read_back
from ..histories.writer import LifeSpec
from ..parallel import gather
from .history import judge_history
from .registry import RowOptions, RowResult

KILLS = 1_000
PROCESSES = 8
_KILLS_A_STORE = 125
_WORLD = World(accounts=400, ring=200, lists=100)
_STOPS = 0.05
_OWNERS = 0.55
"""The share of strikes at an owner, where there is one."""
_AT_ONCE = 0.2
"""The share of strikes that follow the one before within milliseconds: they meet an owner that is about to be."""
_PAUSE_SECONDS, _AT_ONCE_SECONDS = (0.05, 0.45), (0.0, 0.01)
_STOPPED_SECONDS = (0.05, 1.5)
_CONTROL_KILLS = 25


class Work(NamedTuple):
    number: int
    folder: Path
    memory: Path
    kills: int
    seed: int
    planted: str = ""


def run(options: RowOptions) -> RowResult:
    kills = options.of(KILLS)
    stores = max(2, kills // _KILLS_A_STORE)
    works = []
    for number in range(min(stores, kills)):
        share = kills // stores + (number < kills % stores)
        works.append(Work(number, options.folder, options.memory, share, options.seed))
    result = gather(options, strike_again, works)
    result.figures["checker_seconds"] = round(result.figures["checker_seconds"], 1)
    result.reaches([("strikes", result.runs, kills)])
    if options.runs is None:
        owners = result.faults["kill of the owner"]
        result.reaches([("kills of owners", owners, kills // 4)])
    return result


def control(options: RowOptions) -> RowResult:
    """Plants readers that trust an old mark, and owners that do again what they have done."""
    result = RowResult(seeds=(options.seed, options.seed))
    for bug, expected in (("old mark", REAL_TIME), ("again", REPEATED)):
        kills = options.runs or _CONTROL_KILLS
        work = Work(0, options.folder, options.memory, kills, options.seed, bug)
        one = strike_again(work).planted(f": {expected}: ")
        if not one.violations:
            return one
        result.add(one)
    return result


class Processes:
    """The processes of one store. Invariants: `end` ends all of them; each of `_children` runs, or is stopped."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.result = RowResult()
        name = f"processes-{work.number}" + f"-{work.planted.replace(' ', '-')}" * bool(
            work.planted
        )
        self.history = new_history(Plan(name, 1, 0, work.kills, _WORLD, work.planted))
        self._folder, self._tapes = work.folder / name, work.memory / f"tapes-{name}"
        self._tapes.mkdir(parents=True)
        self._numbers = os.open(self._tapes / "numbers", os.O_RDWR | os.O_CREAT, 0o600)
        self._gathered = [Tapes(self.history) for _ in range(PROCESSES)]
        self._ids: list[list[tuple[int, str]]] = [[] for _ in range(PROCESSES)]
        self._lives = [0] * PROCESSES
        self._children: dict[int, Child] = {}
        self._stopped: dict[int, float] = {}  # process → when it goes on
        self._owners: dict[int, tuple[int, int]] = {}  # generation → (process, life)
        self._ends_of_owners = 0

    def wrong(self, text: str) -> None:
        self.history.wrong.append(text)

    # lives ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins the first process, which makes the tables, then the others."""
        self._begin_life(0)
        while not isinstance(self._hear(0), Begun) and not self.history.wrong:
            pass
        for number in range(1, PROCESSES):
            self._begin_life(number)

    def _life(self, number: int) -> LifeSpec:
        life = self._lives[number]
        folder = self._tapes / f"process-{number}-{life}"
        folder.mkdir()
        seed = 1_000 * self.work.seed + self.work.number
        ids = self._ids[number]
        return LifeSpec(
            str(self._folder), str(folder), 1, _WORLD, seed, life, 0, 0, ids, self.work.planted
        )

    def _begin_life(self, number: int) -> None:
        self._children[number] = Child(partial(live, self._life(number), number))

    def _end_life(self, number: int) -> None:
        """Reads the tapes of a life that has ended, and counts it."""
        folder = self._tapes / f"process-{number}-{self._lives[number]}"
        looks = folder / "looks"
        if looks.exists():
            looks.rename(self._tapes / folder.with_suffix(".looks").name)
        self._ids[number] = self._gathered[number].read(folder)
        self._gathered[number].decode()
        self._lives[number] += 1

    def _hear(self, number: int) -> Any:
        """Returns what a process says next, None once it has ended."""
        said = next(self._children[number].lines(), None)
        self._take(number, said)
        return said

    def _take(self, number: int, said: Any) -> None:
        match said:
            case Owns(generation):
                before = self._owners.setdefault(generation, (number, self._lives[number]))
                if before != (number, self._lives[number]):
                    self.wrong(f"generation {generation} has two owners: {before} and {number}")
            case None:
                self.wrong(f"process {number} has ended by itself")
            case str():
                self.wrong(f"process {number}: {said}")

    def _hear_all(self) -> None:
        for number, child in self._children.items():
            while child.has_spoken(0) and self._hear(number) is not None:
                pass

    # strikes --------------------------------------------------------------------------------

    def strike(self, draw: random.Random) -> None:
        close = draw.random() < _AT_ONCE
        self._rest(draw.uniform(*(_AT_ONCE_SECONDS if close else _PAUSE_SECONDS)))
        running = [number for number in self._children if number not in self._stopped]
        number = draw.choice(running)
        owner = self._owner()
        if draw.random() < _OWNERS and owner in running:
            number = owner
        elif number == owner and len(running) > 1:
            number = draw.choice([other for other in running if other != owner])
        pid = self._children[number].pid
        # Who owns the store cannot change while it is stopped.
        os.kill(pid, signal.SIGSTOP)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.wrong(f"process {number} has ended by itself, with status {status}")
            return
        whose = "of the owner" if self._owner() == number else "of another process"
        if draw.random() < _STOPS:
            self._stopped[number] = time.monotonic() + draw.uniform(*_STOPPED_SECONDS)
            self.result.faults[f"stop {whose}"] += 1
            self.history.frozen += 1
        else:
            self._ends_of_owners += whose == "of the owner"
            for said in self._children[number].kill():
                self._take(number, said)
            self._end_life(number)
            self._begin_life(number)
            self.result.faults[f"kill {whose}"] += 1
            self.history.kills += 1
        self._hear_all()

    def _owner(self) -> int:
        """Returns the process that holds the store's lock, or held it last; -1 if it is gone."""
        pid = read_holder(self._folder / "host-0" / "lock").pid
        return next((n for n, child in self._children.items() if child.pid == pid), -1)

    def _rest(self, seconds: float) -> None:
        """Waits; those whose time has come go on."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            for number in [n for n, due in self._stopped.items() if due <= now]:
                self._go_on(number)
            time.sleep(min(0.02, until - now))

    def _go_on(self, number: int) -> None:
        del self._stopped[number]
        os.kill(self._children[number].pid, signal.SIGCONT)

    # the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Has all clients end, and the processes close one after the other, owners among them."""
        for number in list(self._stopped):
            self._go_on(number)
        for number in self._children:
            self._children[number].tell(b"s")
        for number in self._children:
            while not isinstance(said := self._hear(number), Stopped) and said is not None:
                pass
        if self.history.wrong:
            return
        for left in range(PROCESSES, 0, -1):
            owner = self._nothing_is_left()
            if owner is None:
                return
            # Owners are the first, the fourth and the last to close.
            others = [number for number in self._children if number != owner]
            number = owner if left in (PROCESSES, PROCESSES - 3, 1) else others[0]
            child = self._children.pop(number)
            child.tell(b"c")
            for said in child.wait():
                self._take(number, said)
            if child.code != 0:
                self.wrong(f"process {number} closed with exit code {child.code}")
            self._ends_of_owners += number == owner and left > 1
            self._end_life(number)

    def _nothing_is_left(self) -> int | None:
        """Waits until all processes that are there know one owner, and nothing else; returns the owner."""
        deadline = time.monotonic() + 60
        states: dict[int, State] = {}
        while time.monotonic() < deadline and not self.history.wrong:
            for number, child in self._children.items():
                child.tell()
                while not isinstance(said := self._hear(number), State) and said is not None:
                    pass
                if said is not None:
                    states[number] = said
            if self.history.wrong:
                return None
            owners = [number for number, state in states.items() if state.owns]
            if len(owners) == 1 and states[owners[0]].attached == len(states) - 1:
                break
            time.sleep(0.01)
        else:
            self.wrong(f"at the end there is not one owner with all others: {states}")
            return None
        for number, state in states.items():
            left = state._replace(generation=0, owns=False, attached=0)
            if any(left):
                self.wrong(f"process {number} still has {state}")
        return owners[0]

    def judge(self) -> RowResult:
        self._resolve()
        for tapes in self._gathered:
            tapes.settle()
        numbers = itertools.count(given(self._numbers))
        for path in sorted(self._tapes.glob("*.looks")):
            draw = random.Random(f"{self.work.seed}-{path.name}")
            add_looks(self.history, path.stem, path, draw, numbers)
        read_back(self.history, self._folder, read_only=True)
        for problem in verify(self._folder / "host-0"):
            self.wrong(str(problem))
        generations = sorted(self._owners)
        if generations and generations[-1] > 1 + self._ends_of_owners:
            ends = self._ends_of_owners
            self.wrong(f"generation {generations[-1]}, after {ends} owners have ended")
        judged = judge_history(self.history)
        judged.figures |= {"transactions": judged.runs, "owners": len(generations)}
        judged.runs = self.history.kills + self.history.frozen
        self.result.add(judged)
        return self.result

    def _resolve(self) -> None:
        """Asks for the outcomes that the last lives have not learned."""
        for number, ids in enumerate(self._ids):
            if ids:
                child = Child(partial(resolve, self._life(number)))
                for said in child.wait():
                    self._take(number, said)
                self._end_life(number)

    def end(self) -> None:
        """Ends all processes, whatever happened before, and removes what they have made."""
        for child in self._children.values():
            child.kill()
        os.close(self._numbers)
        for folder in (self._tapes, self._folder):
            shutil.rmtree(folder, ignore_errors=True)


def strike_again(work: Work) -> RowResult:
    """Strikes the processes of one store again and again, and judges what they have done."""
    processes = Processes(work)
    try:
        processes.begin()
        began = time.monotonic()
        for number in range(work.kills):
            processes.strike(random.Random(f"{work.seed}/{work.number}/{number}"))
            if processes.history.wrong:
                break
        else:
            processes.finish()
        processes.history.writing_s = time.monotonic() - began
        if processes.history.wrong and not work.planted:
            return replace(processes.result, violations=processes.history.wrong)
        return processes.judge()
    except Silent:
        return RowResult(
            violations=[f"{processes.history.plan.name}: a process has said nothing for a minute"]
        )
    finally:
        processes.end()
