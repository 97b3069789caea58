"""Simulates processes that share one store: one owns it, the others are attached; any may end at any moment.

    client ─▶ a process's runtime ─▶ its own turns, or its link ─▶ the owner's turns ─▶ answers ─▶ the client
    fate: killed · closed · link ended · opened again            lines: no room · late · cut at any byte
    disk: a turn fails, the disk is full                         opening of the next owner fails

The processes run the real runtime (process.py), and clients call it (attached_clients.py).

Left out: more than one host, placement "separate", time-outs of commits. Next: ../worlds/attached/seed.py.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....errors import EngineClosed
from ....host.inputs import Deliver
from ....proto.ids import host_of, tablet_prefix
from ....store import Turn
from .attached_clients import Clients
from .fiber import current
from .one_folder import MOMENTS, Folder
from .process import GONE, UP, Process
from .streams import QUIET, Lines, Stream
from .timeline import TurnRecord
from .waits import Gate

_WEATHER_MS = 5, 40


@dataclass(frozen=True)
class Fates:
    """Holds the odds of what befalls processes at each look, every 5 to 40 ms.

    The last five are of each turn of the owner's, and of each change of the owner. All zero spares them.
    """

    kill_owner: float = 0.08
    kill_other: float = 0.05
    close_owner: float = 0.04
    close_other: float = 0.03
    link_ends: float = 0.12
    kill_in_turn: float = 0.02
    disk_slow: float = 0.06
    turn_fails: float = 0.01
    disk_full: float = 0.01
    opening_fails: float = 0.1


SPARED = Fates(*[0.0] * 10)
CLASSES = (
    "owner killed",
    *[f"owner killed in a turn, {moment}" for moment in MOMENTS],
    "attached process killed",
    "owner closed",
    "attached process closed",
    "link ended",
    "link full",
    "frames late",
    "turn failed",
    "disk full",
    "disk slow",
    "opening fails",
)
"""The names under which faults are counted."""


class AttachedWorld(Clients):
    """Invariant: at most one process has the folder's lock. `watch` is called with every durable turn."""

    hosts = 1

    def __init__(self, seed: int, count: int, lanes: Any) -> None:
        """`count`: the processes that are there at a time; `lanes`: Consumers, for the owner."""
        super().__init__(seed)
        self.count = count
        self.lanes = lanes
        self.net = random.Random(f"{seed}/net")
        self.fate = random.Random(f"{seed}/fate")
        self.disk = random.Random(f"{seed}/disk")
        self.lines, self.fates = QUIET, SPARED
        self.folder = Folder(self)
        self.processes: dict[int, Process] = {}
        self.recorded = []
        self.nodes = []
        self.watch: Callable[[int, Turn], None] = lambda number, turn: None
        self.echoed: Callable[[int, Turn], None] = lambda number, turn: None
        self._numbers = 0
        self.after(0.0, self._look)

    @property
    def stores(self) -> list[Any]:  # type: ignore[override]
        return [self.folder.store]

    def number(self, step: int = 2) -> int:
        """Returns a number that was not given before: of a process, or of an end of a connection and the next."""
        self._numbers += step
        return self._numbers

    def rest(self, ms: float) -> None:
        """Lets time pass in a fiber; the world itself takes none."""
        if current() is not None:
            Gate(self).wait(ms)

    def doomed(self) -> str:
        """Draws whether a turn's owner is killed in it, and when."""
        return self.fate.choice(MOMENTS) if self.fate.random() < self.fates.kill_in_turn else ""

    def moment(self, name: str, doomed: str, ms: float) -> None:
        """Lets a moment of a turn pass; its owner is killed in it if it is the doomed one."""
        if name == doomed and (process := self.here()) is not None:
            self.faulted[f"owner killed in a turn, {name}"] += 1
            self.after(self.fate.uniform(0.0, ms), self._kill, process, True)
        self.rest(ms)

    def durable(self, turn: Turn) -> None:
        """Notes a turn that is in the log."""
        owner = self.owner()
        assert owner is not None, "a process owns the store that it writes to"
        generation = self.folder.store.generation
        self.nodes = [owner.runtime.nodes[0].host]
        record = TurnRecord(0, generation, [], int(self.now), turn.reserve, 0)
        record.changes, record.failed = turn.changes(), False
        self.recorded.append(record)
        self.last.append((self.now, owner.number, "turn", [f"{len(turn.overlay)} changes"]))
        self.note_lost(generation, turn.overlay)
        self.watch(0, turn)

    # processes -----------------------------------------------------------------------------

    def alive(self) -> list[Process]:
        """Returns the processes whose engines are open, oldest first."""
        return [process for process in self.processes.values() if process.status == UP]

    def owner(self) -> Process | None:
        """Returns the process that has the lock."""
        lock = self.folder.lock
        return None if lock is None else self.processes[lock.pid]

    def begin_process(self) -> Process:
        number = self.number()
        process = self.processes[number] = Process(self, number)
        process.spawn(process.open)
        return process

    def client(self, process: Process, call: Callable[..., object], *args: Any) -> None:
        """Runs a client's call in a process."""
        process.spawn(call, *args)

    def _look(self) -> None:
        """Looks what befalls the processes now."""
        self.after(self.fate.uniform(*_WEATHER_MS), self._look)
        fates = self.fates
        there = [one for one in self.processes.values() if one.status != GONE]
        if len(there) < self.count:
            self.begin_process()
        for process in there:
            owns = self.owner() is process
            draw = self.fate.random()
            kill, close = (
                (fates.kill_owner, fates.close_owner)
                if owns
                else (fates.kill_other, fates.close_other)
            )
            if draw < kill:
                self._kill(process, owns)
            elif draw < kill + close and process.status == UP:
                self.faulted["owner closed" if owns else "attached process closed"] += 1
                self._note(process, "closes")
                process.spawn(process.close)
            elif draw < kill + close + fates.link_ends and not owns and process.linked:
                self._cut(process)

    def _cut(self, process: Process) -> None:
        self.faulted["link ended"] += 1
        self._note(process, "link ends")
        process.streams[-1].cut()

    def _note(self, process: Process, what: str) -> None:
        self.last.append((self.now, process.number, what, []))

    def _kill(self, process: Process, owns: bool) -> None:
        self.faulted["owner killed" if owns else "attached process killed"] += 1
        self._note(process, "killed")
        process.kill()

    def deliver(self, tablet: int, message: Any) -> None:
        """Sends a message of maintenance, if there is an owner."""
        owner = self.owner()
        if owner is not None and owner.status == UP:
            node = owner.runtime.nodes[host_of(tablet)]
            owner.runtime.turns.put(node, Deliver(tablet, message))

    def run(self, events: int) -> None:
        """Lets some time pass for the calling client."""
        if current() is None:
            super().run(events)
        else:
            self.rest(events * 0.2)

    def read(self, tablet: int, key: bytes) -> Any:
        """Reads a row as the process does whose code runs, else the newest that is released."""
        process = self.here()
        if process is None:
            return super().read(tablet, key)
        try:
            process.runtime.look()
            return process.runtime.nodes[0].host.store.get(tablet_prefix(tablet) + key)
        except EngineClosed:  # it becomes the owner, or closes
            return super().read(tablet, key)

    # the end -------------------------------------------------------------------------------

    def heal(self) -> None:
        """Stops all faults."""
        self.lines, self.fates = QUIET, SPARED
        self.folder.failing = self.folder.full = self.folder.slow = 0.0

    def strike(self, lines: Lines, fates: Fates) -> None:
        """Turns faults on."""
        self.lines, self.fates = lines, fates
        self.folder.failing, self.folder.full = fates.turn_fails, fates.disk_full
        self.folder.slow = fates.disk_slow

    def last_strike(self) -> None:
        """Ends the owner, or links, and spares the processes from then on; the lines get better a little later."""
        self.fates = SPARED
        owner = self.owner()
        if owner is not None and self.fate.random() < 0.3:
            self._kill(owner, True)
        for process in self.alive():
            if process is not owner and process.linked and self.fate.random() < 0.5:
                self._cut(process)
        self.pass_ms(30.0)

    def settle(self, within_ms: float = 60_000.0) -> float:
        """Heals the world and runs until nothing is under way; returns the virtual time taken, ms."""
        self.heal()
        began = self.now
        while rest := self.under_way():
            self.pass_ms(50.0)
            assert self.now - began < within_ms, f"after {within_ms:.0f} ms there is still {rest}"
        return self.now - began

    def under_way(self) -> str:
        """Names something still under way; returns "" if there is nothing."""
        if any(isinstance(getattr(call, "__self__", None), Stream) for call in self.scheduled()):
            return "bytes on their way"
        if any(one.status not in (UP, GONE) for one in self.processes.values()):
            return "a process that opens or closes"
        if len(self.alive()) < self.count:
            return "a process to open"
        owner = self.owner()
        if owner is None or not owner.owns:
            return "no owner"
        for process in self.alive():
            runtime = process.runtime
            if process is not owner and not process.linked:
                return f"process {process.number}, which has no link"
            if runtime.replies.waiting or runtime.nodes[0].inbox:
                return f"an input of process {process.number}"
        self.nodes = [owner.runtime.nodes[0].host]
        return "an unanswered commit" if self.unanswered() else self.unfinished()
