"""Tests runs beneath the rules of owners: machines that take over, sleep, trim and restore, on bad days.

Each history is judged in full: a turn has one content, whichever folder has it, and none that was acknowledged is
lost. Planted bugs of runs are found by the same judge.
"""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from shared_kit import STORE, BadDay, FaultyObjects, InMemory

from planstep.errors import Corruption, Diverged, Fenced, IoError, LogUnreachable, NoSpace, Trimmed
from planstep.shared.entry import TURN, Entry
from planstep.shared.objects_log import ObjectsLog
from planstep.shared.owner import OwnerRow, Ownership
from planstep.shared.runs import encode_run, run_name

pytestmark = pytest.mark.usefixtures("short_runs")


class World:
    """Keeps what is true: the content of each turn, and the snapshots, which are histories."""

    def __init__(self, seed: int) -> None:
        self.day = BadDay(seed, 0.2)
        self.backing = InMemory()
        self.truth: dict[int, bytes] = {}
        self.snapshots: list[list[Entry]] = []
        self.trimmed = self.restored = self.taken = 0


class Machine:
    """A machine with a folder, which is an owner, a follower, or asleep. It is a store to its Ownership."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.entries: list[Entry] = []
        self.owner: Ownership | None = None
        objects = FaultyObjects(world.backing.objects(), world.day)
        self.log = ObjectsLog(objects, name, 0.0, pause=0.0)
        self._openings = 0

    @property
    def last_turn(self) -> int:
        return len(self.entries)

    def owner_row(self) -> OwnerRow | None:
        return (
            OwnerRow(*self.entries[-1].owner, self.entries[-1].before, b"")
            if self.entries
            else None
        )

    def take(self, entry: Entry) -> None:
        assert entry.turn == self.last_turn + 1
        known = self.world.truth.setdefault(entry.turn, entry.data)
        assert known == entry.data, f"turn {entry.turn} has two contents"
        self.entries.append(entry)
        self.world.taken += 1

    # what it does ----------------------------------------------------------------------------

    def step(self, draw: random.Random) -> None:
        try:
            if self.owner is None:
                self._open(begin=draw.random() < 0.5)
            elif draw.random() < 0.1:
                self._trim(draw)
            else:
                entry = self.owner.append(self.last_turn + 1, 0, b"", b"", [draw.randbytes(8)])
                self.take(entry)
        except Trimmed:
            self._restore()
        except (Fenced, IoError, LogUnreachable, NoSpace):
            self.owner = None

    def _open(self, begin: bool) -> None:
        self._openings += 1
        nonce = f"{self.name} {self._openings}".encode().ljust(16, b"-")
        owner = Ownership(self.log, STORE, nonce)
        owner.catch_up(self)
        if begin:
            owner.begin()
            self.take(owner.append(self.last_turn + 1, 0, b"begin", b"", []))
            self.owner = owner

    def _trim(self, draw: random.Random) -> None:
        """Makes a snapshot of its last turn, and trims below it."""
        self.world.snapshots.append(list(self.entries))
        oldest = (
            self.world.snapshots[-draw.choice((1, 1, 2))]
            if self.world.snapshots[1:]
            else self.entries
        )
        self.log.trim(len(oldest))
        self.world.trimmed += 1

    def _restore(self) -> None:
        self.owner = None
        newest = max(self.world.snapshots, key=len)
        if len(newest) > len(self.entries):
            self.entries = list(newest)
            self.world.restored += 1


def play(seed: int, steps: int = 250) -> World:
    """Lets four machines work; then a fresh one must find all that any folder has."""
    world, draw = World(seed), random.Random(seed)
    machines = [Machine(world, name) for name in "abcd"]
    awake = machines[0]
    for _ in range(steps):
        if draw.random() < 0.08:
            awake = draw.choice(machines)
        if draw.random() < 0.05:
            awake.owner = None  # it was killed, and starts again
        awake.step(draw)
    world.day.end()
    fresh = Machine(world, "fresh")
    for _ in range(3):
        if fresh.owner is None:
            try:
                fresh._open(begin=True)
            except Trimmed:
                fresh._restore()
    assert fresh.owner is not None
    assert fresh.last_turn == max(world.truth), "turns are lost"
    return world


def test_runs_change_nothing_whatever_goes_wrong() -> None:
    worlds = [play(seed) for seed in range(150)]
    assert sum(world.trimmed for world in worlds) > 300
    assert sum(world.restored for world in worlds) > 100
    assert sum(len(world.truth) for world in worlds) > 5_000
    with_runs = [w for w in worlds if w.backing.shared.names("run/")]
    assert len(with_runs) > 100


# planted bugs ----------------------------------------------------------------------------------


def caught(seeds: range) -> int:
    """Returns how many of these histories are found to be wrong."""
    found = 0
    for seed in seeds:
        try:
            play(seed)
        except (AssertionError, Corruption, Diverged):
            found += 1
    return found


def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants the bug: a run has the turn that is about to be appended."""
    really = ObjectsLog.append
    waiting: dict[int, Entry] = {}

    def append(log: ObjectsLog, entry: Entry) -> bytes:
        last = waiting.get(id(log))
        if (
            last is not None
            and (last.kind, last.turn + 1) == (TURN, entry.turn)
            and last.owner == entry.owner
        ):
            with suppress(IoError):
                name = run_name(last.turn, entry.turn)
                log._runs._objects.create(name, encode_run([last, entry]))
        waiting[id(log)] = entry
        return really(log, entry)

    monkeypatch.setattr(ObjectsLog, "append", append)


def _believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants the bug: a run counts beyond the slots that are there. It is caught with the one before."""
    _early(monkeypatch)
    really = ObjectsLog._look_ahead

    def look_ahead(log: ObjectsLog, turn: int) -> None:
        really(log, turn)
        runs = [name for name in log._patient.names("run/")]
        last = max((int(name[-20:]) for name in runs), default=0)
        assert log._known is not None
        if last > log._known:
            log._known = last
            log._ahead.begin(last, sorted((int(n[4:24]), int(n[-20:])) for n in runs))

    monkeypatch.setattr(ObjectsLog, "_look_ahead", look_ahead)


@pytest.mark.parametrize("plant", [_early, _believed])
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert caught(range(100)) > 0
