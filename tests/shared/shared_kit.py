"""Shares helpers between the tests of shared logs: entries, logs in memory and in a folder, machines, bad days."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from s3_kit import InBucket

from planstep.bench.proof.disks.failing import FastFiles, FaultyFiles
from planstep.errors import Fenced, IoError, LogUnreachable, NoSpace
from planstep.shared.entry import BEGIN, NO_CHAIN, TURN, Entry, Owner, seal
from planstep.shared.files_log import FileObjects, LinkedFiles, open_files_log
from planstep.shared.memory_log import MemoryShared
from planstep.shared.objects_log import ObjectsLog
from planstep.shared.shared_log import Objects, Position, Root

STORE = b"the store's id.."
ROOT = Root(STORE, "deterministic", 1)


def nonce(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


def turn_behind(
    before: Entry | None, owner: Owner, payload: bytes = b"", kind: int = TURN
) -> Entry:
    """Seals the entry of the turn behind another one; None: the first."""
    turn, chain = (before.turn + 1, before.chain) if before else (1, NO_CHAIN)
    return seal(kind, STORE, owner, turn, chain, 7, changes=b"changes", payloads=[payload])


def begin_behind(before: Entry | None, owner: Owner) -> Entry:
    return turn_behind(before, owner, kind=BEGIN)


def history(turns: int, owner: Owner | None = None) -> list[Entry]:
    """Seals a BEGIN and the turns of its owner, so many in all."""
    owner = owner or Owner(1, nonce("first"))
    entries = [begin_behind(None, owner)]
    while len(entries) < turns:
        entries.append(turn_behind(entries[-1], owner, b"%d" % len(entries)))
    return entries


def at(entry: Entry | None) -> Position:
    return Position(entry.turn, entry.chain, entry.mark) if entry else Position()


def slot(turn: int) -> str:
    return f"log/{turn:020d}"


# logs ------------------------------------------------------------------------------------------


class QuickFiles(FastFiles, LinkedFiles):
    """A folder's files that do not wait for the disk."""

    def link(self, source: Path, target: Path) -> bool:
        self.check("link")
        return super().link(source, target)


class FailingFiles(QuickFiles, FaultyFiles):
    """Files of which some calls fail, as those of a FaultyFiles."""


class InMemory:
    """A log in memory, and ways around its rules."""

    def __init__(self) -> None:
        self.shared = MemoryShared()
        self.open()

    def open(self, timeout: float = 0.0) -> ObjectsLog:
        return self.shared.open_as("a test", ROOT, timeout)[0]

    def objects(self) -> Objects:
        return self.shared

    def write(self, name: str, data: bytes) -> None:
        self.shared.objects[name] = data

    def remove(self, name: str) -> None:
        del self.shared.objects[name]


class InFolder:
    """A log in a folder, and ways around its rules."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: list[Any] = []
        self.open()

    def open(self, timeout: float = 0.0, files: LinkedFiles | None = None) -> ObjectsLog:
        log, _ = open_files_log(self.path.as_uri(), ROOT, timeout, files or QuickFiles())
        self._opened.append(log)
        assert isinstance(log, ObjectsLog)
        return log

    def objects(self) -> Objects:
        objects = FileObjects(self.path, QuickFiles())
        self._opened.append(objects)
        return objects

    def write(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def close(self) -> None:
        for opened in self._opened:
            opened.close()


def opened(folder: InFolder, files: LinkedFiles, timeout: float = 60.0) -> ObjectsLog:
    """Opens a log in a folder through other files, behind its first turn."""
    log = folder.open(timeout, files)
    log.open(Position(1))
    return log


Backing = InMemory | InFolder | InBucket


def filled(backing: Any, turns: int) -> list[Entry]:
    """Appends a history of so many turns to a log, and returns it."""
    log = backing.open()
    return [entry._replace(mark=log.append(entry)) for entry in history(turns)]


def data_of(entries: list[Entry]) -> list[bytes]:
    return [entry.data for entry in entries]


def read_all(log: Any, behind: Entry | None = None) -> list[Entry]:
    """Reads a log behind an entry to its end."""
    log.open(at(behind))
    found: list[Entry] = []
    while entries := log.read(1 << 20, 0):
        found += entries
    return found


# bad days --------------------------------------------------------------------------------------


class BadDay:
    """Draws what goes wrong, for all machines; puts that are on their way arrive when it says so."""

    def __init__(self, seed: int, badness: float = 0.5) -> None:
        self.random = random.Random(seed)
        self.badness = badness
        self.on_their_way: list[Callable[[], object]] = []
        self.seen: dict[str, int] = {}
        self._lock = threading.Lock()

    def draw(self, *kinds: str) -> str:
        """Returns one of these kinds of trouble, or "" for none. Puts have many kinds, and most of the trouble."""
        while self.on_their_way and self.random.random() < 0.3:
            self.deliver(self.random.randrange(1 << 30))
        badness = self.badness if len(kinds) > 2 else self.badness / 5
        kind = self.random.choice(kinds) if self.random.random() < badness else ""
        self.seen[kind] = self.seen.get(kind, 0) + 1
        return kind

    def deliver(self, index: int) -> None:
        with self._lock:
            waiting = self.on_their_way
            put = waiting.pop(index % len(waiting)) if waiting else None
        with suppress(IoError):
            if put:
                put()

    def end(self) -> None:
        """Delivers what is on its way; from now on nothing goes wrong."""
        self.badness = 0.0
        while self.on_their_way:
            self.deliver(0)


class FaultyObjects:
    """An object store on a bad day: answers are lost or wrong, puts come late or twice, lists are cut short."""

    def __init__(self, objects: Objects, day: BadDay) -> None:
        self._objects = objects
        self._day = day

    def create(self, name: str, data: bytes) -> bool:
        put = partial(self._objects.create, name, data)
        kind = self._day.draw(
            "full", "refused", "late", "late exists", "exists", "lost", "twice", "again later"
        )
        if kind == "full":
            raise NoSpace("the disk is full")
        if kind in ("late", "late exists", "again later"):
            self._day.on_their_way.append(put)
        if kind in ("lost", "twice"):
            put()
        if kind in ("refused", "late", "lost"):
            raise IoError(f"no answer: {kind}")
        if kind in ("late exists", "exists"):
            return False
        return put()

    def get(self, name: str) -> bytes | None:
        if self._day.draw("refused"):
            raise IoError("no answer to a get")
        return self._objects.get(name)

    def sync(self, name: str) -> None:
        if self._day.draw("refused"):
            raise IoError("no answer to a sync")
        self._objects.sync(name)

    def names(self, prefix: str, start: str = "") -> list[str]:
        if self._day.draw("cut"):
            raise IoError("the list was cut short")
        return self._objects.names(prefix, start)

    def remove(self, name: str) -> None:
        kind = self._day.draw("refused", "lost")
        if kind != "refused":
            self._objects.remove(name)
        if kind:
            raise IoError("no answer to a removal")

    def tidy(self) -> None:
        self._objects.tidy()

    def close(self) -> None:
        self._objects.close()


class Machine:
    """An owner that keeps to the rules, and notes what it was told; it has no folder.

    `acknowledged`, `refused`: entries that it may, and may never, find in the log.
    """

    def __init__(self, log: Any, name: str) -> None:
        self.log = log
        self.name = name
        self.last: Entry | None = None
        self.acknowledged: list[Entry] = []
        self.refused: list[Entry] = []
        self._openings = 0
        self._doubtful: Entry | None = None
        self._numbers: Iterator[int] = iter(range(1 << 30))
        self.restart()

    def restart(self) -> None:
        """Forgets all, as a new process of this machine."""
        self._openings += 1
        self.owner = Owner(0, nonce(f"{self.name} {self._openings}"))
        self.last = self._doubtful = None
        self._behind = True
        self.log.open(Position())

    def step(self) -> None:
        """Does what comes next: reads to the end, begins a term, sends a turn, or sends again what is in doubt."""
        with suppress(LogUnreachable):
            if self._behind:
                self._read()
                return
            entry = self._doubtful or self._next()
            self._append(entry)

    def _read(self) -> None:
        entries = self.log.read(1, 0)
        for entry in entries:
            assert entry.before == at(self.last).chain
            self.last = entry
        self._behind = bool(entries)

    def _next(self) -> Entry:
        if self.owner.term:
            return turn_behind(
                self.last, self.owner, b"%s %d" % (self.owner.nonce, next(self._numbers))
            )
        term = self.last.owner.term if self.last else 0
        return begin_behind(self.last, self.owner._replace(term=term + 1))

    def _append(self, entry: Entry) -> None:
        self._doubtful = entry
        try:
            self.log.append(entry)
        except Fenced:
            self.refused.append(entry)
            self.restart()
        except NoSpace:
            self.refused.append(entry)
            self._doubtful = None
            if not self.owner.term:
                self.restart()  # else it would begin with the very bytes that were refused
        else:
            self._doubtful = None
            self.acknowledged.append(entry)
            self.last, self.owner = entry, entry.owner


def judge(backing: Any, machines: list[Machine]) -> list[Entry]:
    """Checks what the machines were told against the log, and returns the log's turns."""
    entries = read_all(backing.open())
    logged = {entry.data for entry in entries}
    for machine in machines:
        for entry in machine.acknowledged:
            assert entry.data in logged
        for entry in machine.refused:
            assert entry.data not in logged
    before: Entry | None = None
    for entry in entries:
        assert entry.before == at(before).chain
        if entry.kind == BEGIN:
            assert entry.owner.term == (before.owner.term if before else 0) + 1
        else:
            assert before is not None and entry.owner == before.owner
        before = entry
    return entries


def take_over(backing: Any) -> None:
    """Checks that a machine that comes on a good day becomes the owner, and can write."""
    machine = Machine(backing.open(), "the last one")
    while not machine.acknowledged:
        machine.step()
        assert not machine.refused
    machine.step()
    assert len(machine.acknowledged) == 2


def play_bad_day(
    backing: Any, open_faulty: Callable[[BadDay], Any], seed: int, steps: int
) -> tuple[list[Entry], list[Machine], BadDay]:
    """Lets three machines work on a bad day, each call of theirs with one attempt, and judges them."""
    day = BadDay(seed)
    machines = [Machine(open_faulty(day), name) for name in "abc"]
    draw = random.Random(seed)
    awake = machines[0]
    for _ in range(steps):
        if draw.random() < 0.1:
            awake = draw.choice(machines)
        if draw.random() < 0.02:
            awake.restart()
        awake.step()
    day.end()
    entries = judge(backing, machines)
    take_over(backing)
    judge(backing, machines)
    return entries, machines, day
