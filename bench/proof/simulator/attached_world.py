"""Simulates processes that share one store: one owns it, the others are attached; any may end at any moment.

    client ─▶ a process's runtime ─▶ its own turns, or its link ─▶ the owner's turns ─▶ answers ─▶ the client
    fate: killed · closed · link ended · opened again            lines: no room · late · cut at any byte
    disk: a turn fails, the disk is full                         opening of the next owner fails

The processes run the real runtime (process.py). Clients call it as the face does: some wait, others are called
back. A client dies with its process.

Left out: more than one host, placement "separate", time-outs of commits. Next: ../worlds/attached/seed.py.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ....errors import Dropped, EngineClosed, PlanstepError, Undetermined
from ....host.inputs import Deliver, StageInput
from ....proto.batch import encode_batch
from ....proto.ids import COORDINATOR_ID, host_of, tablet_prefix
from ....proto.messages import PartitionPart
from ....proto.reasons import TabletDropped, kept_as
from ....proxy.deterministic import Result
from ....runtime.outcome import Commit
from ....store import Turn
from ....tablets.participant import DROPPED
from .fiber import current
from .one_folder import MOMENTS, Folder
from .process import CLOSING, GONE, UP, Process, ProcessFiber
from .streams import QUIET, Lines, Stream
from .timeline import Timeline, TurnRecord
from .waits import Gate

_WEATHER_MS = 5, 40
_OUTCOME = tablet_prefix(COORDINATOR_ID) + b"o"


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


class Client:
    """Takes a commit's answer (group_commit.ReplySink)."""

    def __init__(self, told: Callable[[Any], None]) -> None:
        self._told = told

    def set_result(self, result: Commit) -> None:
        self._told(result)

    def set_exception(self, error: BaseException) -> None:
        self._told(error)


class AttachedWorld(Timeline):
    """Invariants: at most one process has the folder's lock; a transaction is answered once, while its process
    lives.

    `watch` is called with every durable turn, `answered` with every answer, as in world.py.
    """

    hosts = 1

    def __init__(self, seed: int, count: int, lanes: Any) -> None:
        """`count`: the processes that are there at a time; `lanes`: Consumers, for the owner."""
        super().__init__(seed)
        self.count = count
        self.lanes = lanes
        self.net = random.Random(f"{seed}/net")
        self.fate = random.Random(f"{seed}/fate")
        self.disk = random.Random(f"{seed}/disk")
        self._calls = random.Random(f"{seed}/calls")
        self.lines, self.fates = QUIET, SPARED
        self.folder = Folder(self)
        self.processes: dict[int, Process] = {}
        self.recorded = []
        self.nodes = []
        self.violations: list[str] = []
        self.results: dict[bytes, Result] = {}
        self.asked_at: dict[bytes, float] = {}
        self.told_at: dict[bytes, float] = {}
        self.process_of: dict[bytes, Process] = {}
        self.given_up: dict[bytes, None] = {}
        self.ahead: dict[bytes, tuple[list[Any], dict[int, Any]]] = {}
        self._staged_at: dict[
            bytes, tuple[int, int]
        ] = {}  # the owner's generation, the process's link
        self._staged_lost: dict[bytes, None] = {}
        self.watch: Callable[[int, Turn], None] = lambda number, turn: None
        self.answered: Callable[[Result], None] = lambda result: None
        self.echoed: Callable[[int, Turn], None] = lambda number, turn: None
        self.opened: Callable[[Process], None] = lambda process: None
        self.closes: Callable[[Process], None] = lambda process: None
        self._numbers = 0
        self.after(0.0, self._look)

    @property
    def stores(self) -> list[Any]:  # type: ignore[override]
        return [self.folder.store]

    def number(self, step: int = 2) -> int:
        """Returns a number that was not given before: of a process, or of an end of a connection and the next."""
        self._numbers += step
        return self._numbers

    def wrong(self, text: str) -> None:
        if len(self.violations) < 20:
            self.violations.append(f"{text} (at {self.now:.1f} ms)")

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
        for tx, staged_at in self._staged_at.items():
            now = generation, self.process_of[tx].links
            if staged_at != now and _OUTCOME + tx in turn.overlay:
                self._staged_lost[tx] = None
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

    def here(self) -> Process | None:
        """Returns the process whose code runs now, None for the world's."""
        fiber = current()
        return fiber.process if isinstance(fiber, ProcessFiber) else None

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
                self.faulted["link ended"] += 1
                self._note(process, "link ends")
                process.streams[-1].cut()

    def _note(self, process: Process, what: str) -> None:
        self.last.append((self.now, process.number, what, []))

    def _kill(self, process: Process, owns: bool) -> None:
        self.faulted["owner killed" if owns else "attached process killed"] += 1
        self._note(process, "killed")
        process.kill()

    # clients -------------------------------------------------------------------------------

    def _begin(self) -> tuple[Process, bytes]:
        process = self.here()
        assert process is not None, "a client calls from its process"
        tx = process.runtime.new_tx()
        if tx in self.asked_at:
            self.wrong(f"B2: the id {tx.hex()} is given out twice")
        self.asked_at[tx] = self.now
        self.process_of[tx] = process
        return process, tx

    def commit(self, parts: dict[int, Any]) -> bytes:
        """Commits a transaction of the process whose code runs; its result comes to `results`."""
        process, tx = self._begin()
        parts = {tablet: _with_batches(part) for tablet, part in parts.items()}
        if self._calls.random() < 0.5:
            process.spawn(self._wait, process, tx, parts)
        else:
            self._send(process, tx, parts)
        return tx

    def _wait(self, process: Process, tx: bytes, parts: dict[int, Any]) -> None:
        """Commits, and waits: this fiber may run the owner's turns, or receive for the others."""
        try:
            self._told(tx, process.runtime.transactions.commit(tx, parts))
        except PlanstepError as error:
            self._told(tx, error)

    def _send(self, process: Process, tx: bytes, parts: dict[int, Any]) -> None:
        try:
            sink = Client(partial(self._told, tx))
            process.runtime.transactions.send(tx, parts, sink)
        except PlanstepError as error:
            self._told(tx, error)

    def commit_ahead(self, ahead: list[Any], parts: dict[int, Any]) -> bytes:
        """Stages the pieces of `ahead` one by one, then commits; rolls back if a piece is not staged."""
        process, tx = self._begin()
        ahead = [{t: (n, _batches(slices)) for t, (n, slices) in one.items()} for one in ahead]
        self._staged_at[tx] = self.folder.store.generation, process.links
        self.ahead[tx] = ahead[1:], {t: _with_batches(part) for t, part in parts.items()}
        self._stage(process, tx, ahead[0])
        return tx

    def _stage(self, process: Process, tx: bytes, piece: Any) -> None:
        turns = process.runtime.turns
        try:
            turns.enqueue(StageInput(tx, piece), Client(partial(self._staged, tx)), 0.0)
            turns.poke(process.runtime.nodes[0])
        except PlanstepError as error:
            self._staged(tx, error)

    def _staged(self, tx: bytes, answer: Any) -> None:
        process = self.process_of[tx]
        more, parts = self.ahead.pop(tx, ([], None))
        if process.status == GONE or parts is None:
            return
        if isinstance(answer, BaseException):
            self._told(tx, answer)
            process.runtime.transactions.rollback(tx)
        elif more:
            self.ahead[tx] = more[1:], parts
            self._stage(process, tx, more[0])
        else:
            pause_ms = self._calls.uniform(0, self._calls.choice((0, 0, 50)))
            self.after(pause_ms, self._commit_staged, process, tx, parts)

    def _commit_staged(self, process: Process, tx: bytes, parts: dict[int, Any]) -> None:
        if process.status != GONE:
            self._send(process, tx, parts)

    def rollback(self, tx: bytes) -> None:
        """Gives up a transaction whose staging is under way."""
        if self.ahead.pop(tx, None) is not None:
            self.given_up[tx] = None
            self.process_of[tx].runtime.transactions.rollback(tx)

    def _told(self, tx: bytes, answer: Any) -> None:
        process = self.process_of[tx]
        if process.status == GONE:
            return
        if tx in self.results:
            self.wrong(f"B12: {tx.hex()} is answered twice")
        match answer:
            case Commit():
                result = Result(tx, answer.place.step, answer.place.n or 0)
                result.details = answer.details
            case Undetermined():
                if process.status != CLOSING:
                    self.wrong(f"B37: {tx.hex()} of a process that goes on has no end: {answer}")
                self.given_up[tx] = None
                return
            case Dropped():
                result = Result(tx, reason=kept_as(0, TabletDropped()))
            case _:
                result = Result(tx, reason=(0, "failed"))
        self.results[tx] = result
        self.told_at[tx] = self.now
        self.answered(result)

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

    def may_abort(self, tx: bytes) -> bool:
        """Returns whether what a transaction had sent ahead was gone by its decision, with an owner or a link."""
        return tx in self._staged_lost

    def forgets(self, tablet: int, end: int) -> bool:
        """Returns whether records up to an offset are gone: then nobody can tell the offsets of a commit that was
        handed in again."""
        row = super().read(tablet, b"m")
        return super().read(tablet, DROPPED) is not None or row is None or row[2] >= end

    # the end -------------------------------------------------------------------------------

    def unanswered(self) -> list[bytes]:
        """Returns transactions whose client waits, in a process that goes on."""
        known = {**self.results, **self.given_up}
        return [
            tx
            for tx in self.asked_at
            if tx not in known and self.process_of[tx].status not in (GONE, CLOSING)
        ]

    def heal(self) -> None:
        """Stops all faults."""
        self.lines, self.fates = QUIET, SPARED
        self.folder.failing = self.folder.full = self.folder.slow = 0.0

    def strike(self, lines: Lines, fates: Fates) -> None:
        """Turns faults on."""
        self.lines, self.fates = lines, fates
        self.folder.failing, self.folder.full = fates.turn_fails, fates.disk_full
        self.folder.slow = fates.disk_slow

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


def _batches(slices: Iterable[tuple[bytes, int]]) -> tuple[tuple[bytes, int], ...]:
    """Makes each payload of a workload a batch, as frames carry no other; Disk.read_payload takes it out again."""
    return tuple((encode_batch([data] * count), count) for data, count in slices)


def _with_batches(part: Any) -> Any:
    is_published = isinstance(part, PartitionPart) and part.slices
    return part._replace(slices=_batches(part.slices)) if is_published else part
