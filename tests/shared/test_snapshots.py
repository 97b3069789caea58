"""Tests the snapshots in an object store: which are whole, what is collected, and takers that race collectors."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from shared_kit import STORE, Backing

from planstep.errors import Corruption
from planstep.shared.manifest import Manifest, encode_manifest, stem_of
from planstep.shared.memory_log import MemoryShared
from planstep.shared.shared_log import Objects
from planstep.shared.snapshots import Snapshots

OLD_FLOOR = 1


def snapshots_in(objects: Objects, store_id: bytes = STORE) -> Snapshots:
    return Snapshots(objects, "a place", store_id, 0.0)


def make(
    snapshots: Snapshots,
    turn: int,
    before: Manifest | None = None,
    floor: Callable[[], int] = lambda: OLD_FLOOR,
    finish: bool = True,
) -> Manifest:
    """Makes a snapshot with two parts of tables and one new pack, which takes over all packs of one before."""
    writer = begin(snapshots, turn, before, floor)
    manifest = finish_with(writer, turn)
    return writer.finish(manifest) if finish else manifest


def begin(
    snapshots: Snapshots, turn: int, before: Manifest | None, floor: Callable[[], int]
) -> Any:
    nonce = b"%08d" % turn
    return snapshots.begin(
        stem_of(turn, nonce), before, list(before.packs) if before else [], floor
    )


def finish_with(writer: Any, turn: int) -> Manifest:
    writer.add_pack([(10 * turn, 4)], [b"%04d" % turn])
    writer.add_tables(b"tables %d" % turn)
    writer.add_tables(b"more")
    fields = writer.stem, STORE, STORE, turn, 10 * turn + 4, 1, b"", 0, False
    return Manifest(*fields, (), (), ())


def turns(snapshots: Snapshots) -> list[int]:
    return [manifest.turn for manifest in snapshots.newest_first()]


def read(snapshots: Snapshots, manifest: Manifest) -> None:
    """Reads all parts."""
    for number, data in enumerate(snapshots.tables(manifest)):
        assert data == (b"more" if number else b"tables %d" % manifest.turn)
    for pack in manifest.packs:
        assert snapshots.pack(pack).get(pack.begin, 4) == b"%04d" % (pack.begin // 10)


def test_the_newest_whole_one_comes_first(backing: Backing) -> None:
    snapshots = snapshots_in(backing.objects())
    assert turns(snapshots) == []
    first = make(snapshots, 5)
    second = make(snapshots, 12, first)
    assert [pack.name for pack in second.packs[:1]] == [pack.name for pack in first.packs]
    make(snapshots, 20, second, finish=False)
    assert turns(snapshots) == [12, 5]
    assert [manifest.turn for manifest in snapshots.newest_first(11)] == [5]
    for manifest in snapshots.newest_first():
        read(snapshots, manifest)
    assert [snapshots.oldest(keep) for keep in (1, 2, 3)] == [second, first, None]


def test_a_snapshot_that_lacks_a_part_is_passed_over(
    backing: Backing, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 22."""
    snapshots = snapshots_in(backing.objects())
    first = make(snapshots, 5)
    for name in make(snapshots, 12, first).names:
        data = backing.objects().get(name)
        assert data is not None
        backing.remove(name)
        found = turns(snapshots)
        assert found == ([5] if name not in first.names else [])
        (*_, record) = caplog.records
        assert record.levelno == logging.ERROR and name in record.getMessage()
        backing.objects().create(name, data)
    assert turns(snapshots) == [12, 5]


def test_a_damaged_part_is_noticed_as_it_is_read(backing: Backing) -> None:
    snapshots = snapshots_in(backing.objects())
    manifest = make(snapshots, 5)
    for name in manifest.names:
        data = backing.objects().get(name)
        assert data is not None
        for damaged in (data[:-1], bytes([data[0] ^ 1]) + data[1:], b""):
            backing.remove(name)
            backing.objects().create(name, damaged)
            with pytest.raises(Corruption, match=name):
                read(snapshots, manifest)
        backing.remove(name)
        with pytest.raises(Corruption, match=f"{name} is missing"):
            read(snapshots, manifest)
        backing.objects().create(name, data)
    read(snapshots, manifest)


def test_snapshots_of_another_store_are_not_taken(backing: Backing) -> None:
    make(snapshots_in(backing.objects()), 5)
    assert turns(snapshots_in(backing.objects(), b"another store id")) == []


def test_what_is_older_than_the_floor_goes_unless_it_is_named(backing: Backing) -> None:
    snapshots = snapshots_in(backing.objects())
    backing.objects().create("snap/notes.txt", b"not ours")
    backing.objects().create("pack/notes.txt", b"not ours")
    first = make(snapshots, 5)
    make(snapshots, 8, finish=False)  # its maker was killed
    second = make(snapshots, 12, first)
    third = make(snapshots, 20)
    make(snapshots, 30, second, finish=False)  # it is being made
    snapshots.collect(12)
    assert turns(snapshots) == [20, 12]
    read(snapshots, second)
    assert first.packs[0] in second.packs
    left = [*backing.objects().names("snap/"), *backing.objects().names("pack/")]
    assert not [name for name in left if f"{5:020d}" in name and "pack/" not in name]
    assert not [name for name in left if f"{8:020d}" in name]
    assert [name for name in left if f"{30:020d}" in name]
    assert {"snap/notes.txt", "pack/notes.txt"} <= set(left)
    snapshots.collect(20)
    # The one that is being made has taken over both packs of the second one.
    draft = backing.objects().get(f"snap/{stem_of(30, b'%08d' % 30)}/draft")
    assert draft is not None and turns(snapshots) == [20]
    assert {f"pack/{pack.name}" for pack in second.packs} <= set(backing.objects().names("pack/"))
    snapshots.collect(31)
    assert backing.objects().names("snap/") == ["snap/notes.txt"]
    assert backing.objects().names("pack/") == ["pack/notes.txt"]
    read_nothing = turns(snapshots)
    assert read_nothing == [] and third.turn == 20


class Killed(BaseException):
    """The machine stops."""


class Struck:
    """Objects that call a function before each change and each answer, with the number of the call."""

    def __init__(self, objects: Any, strike: Callable[[int], object]) -> None:
        self._objects = objects
        self._strike = strike
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._objects, name)

        def struck(*args: Any) -> Any:
            self.calls += 1
            self._strike(self.calls)
            return call(*args)

        return struck


def killed_at(number: int) -> Callable[[int], object]:
    def strike(call: int) -> None:
        if call >= number:
            raise Killed

    return strike


def test_a_collection_that_is_cut_short_anywhere_harms_no_later_snapshot() -> None:
    for number in range(1, 60):
        shared = MemoryShared()
        snapshots = snapshots_in(shared)
        first = make(snapshots, 5)
        second = make(snapshots, 12, first)
        make(snapshots, 20, second)
        struck = Struck(shared, killed_at(number))
        try:
            snapshots_in(struck).collect(12)
            break
        except Killed:
            pass
        assert turns(snapshots)[:2] == [20, 12]
        for manifest in snapshots.newest_first():
            read(snapshots, manifest)
        snapshots.collect(12)
        assert turns(snapshots) == [20, 12]
        kept = set(shared.objects)
        snapshots.collect(12)
        assert set(shared.objects) == kept
    else:
        pytest.fail("it never came to its end")
    assert number > 8


def test_a_snapshot_that_is_killed_anywhere_counts_for_nothing() -> None:
    for number in range(1, 60):
        shared = MemoryShared()
        snapshots = snapshots_in(shared)
        first = make(snapshots, 5)
        struck = Struck(shared, killed_at(number))
        try:
            make(snapshots_in(struck), 12, first)
            break
        except Killed:
            pass
        assert turns(snapshots) == [5]
        second = make(snapshots, 13, first)
        snapshots.collect(13)
        assert turns(snapshots) == [13]
        read(snapshots, second)
        assert set(shared.objects) >= set(second.names)
        assert not [name for name in shared.objects if f"{12:020d}" in name]
    else:
        pytest.fail("it never came to its end")
    assert number > 5


# a taker and a collector ------------------------------------------------------------------------


class Stop(Exception):
    """A maker has written its draft, and looks at the floor later."""


class Maker:
    """An owner that makes a snapshot of turn 20 in three steps, on one whose pack it takes over."""

    def __init__(self, snapshots: Snapshots, base: Manifest, floor: Callable[[], int]) -> None:
        self.snapshots = snapshots
        self._base = base
        self._floor = floor
        self.made: list[Manifest] = []
        self.steps: list[Callable[[], object]] = [self.draft, self.look, self.finish]

    def draft(self) -> None:
        def stop() -> int:
            raise Stop

        with suppress(Stop):
            begin(self.snapshots, 20, self._base, stop)

    def look(self) -> None:
        # Its draft is there, with the same bytes.
        self.writer = begin(self.snapshots, 20, self._base, self._floor)

    def finish(self) -> None:
        self.made.append(self.writer.finish(finish_with(self.writer, 20)))

    def step(self) -> None:
        if self.steps:
            self.steps.pop(0)()


class HastyMaker(Maker):
    """A maker that looks at the floor before it says what it takes over."""

    def draft(self) -> None:
        floor = self._floor()
        self._floor = lambda: floor


def race(at: tuple[int, int, int], kind: type[Maker]) -> bool:
    """Lets a zombie collect while an owner makes a snapshot on the one that the zombie makes needless.

    The maker's steps come before these calls of the zombie. Returns whether its snapshot can be read in the end.
    """
    shared = MemoryShared()
    zombie = snapshots_in(shared)
    floors = [OLD_FLOOR]
    maker = kind(snapshots_in(shared), make(zombie, 5), lambda: max(floors))
    make(zombie, 12)

    def strike(call: int) -> None:
        for _ in range(at.count(call)):
            maker.step()

    strike(0)
    floors.append(12)  # the zombie's floor
    snapshots_in(Struck(shared, strike)).collect(12)
    while maker.steps:
        maker.step()
    try:
        read(maker.snapshots, maker.made[0])
    except Corruption:
        return False
    return True


CALLS = range(14)


def interleavings() -> list[tuple[int, int, int]]:
    return [(a, b, c) for a in CALLS for b in CALLS for c in CALLS if a <= b <= c]


def test_no_pack_that_a_snapshot_takes_over_is_collected() -> None:
    assert all(race(at, Maker) for at in interleavings())


def test_a_draft_that_comes_after_the_look_at_the_floor_is_noticed() -> None:
    assert not all(race(at, HastyMaker) for at in interleavings())


def test_a_manifest_that_cannot_be_read_ends_a_collection() -> None:
    shared = MemoryShared()
    snapshots = snapshots_in(shared)
    first = make(snapshots, 5)
    second = make(snapshots, 12, first)
    name = f"snap/{second.stem}/manifest"
    shared.objects[name] = shared.objects[name][:-1]
    before = set(shared.objects)
    with pytest.raises(Corruption, match=name):
        snapshots.collect(12)
    assert set(shared.objects) == before
    shared.objects[name] = encode_manifest(second)
    snapshots.collect(12)
    read(snapshots, second)
