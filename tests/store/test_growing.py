"""Tests that segments grow with the log: a small file system can hold a store, and a large log has few files."""

from pathlib import Path

import pytest
from storekit import TABLETS, FastFiles, after_close, after_crash, contents, crash, held_in, write

from planstep.bench.proof.disks.failing import SmallDisk
from planstep.errors import NoSpace
from planstep.store import DiskStore
from planstep.store.log.segments import segment_files
from planstep.store.verify import verify

MB = 1 << 20
A, B = TABLETS
TURN = 60_000


def grown(folder: Path) -> list[int]:
    """Returns the sizes of the segments, in KiB."""
    return [path.stat().st_size >> 10 for path in segment_files(folder)]


def fill(store: DiskStore, keys: range, size: int = TURN) -> None:
    for n in keys:
        write(store, {}, {B + n.to_bytes(2, "big"): bytes([n % 251]) * size})


def test_a_segment_is_as_large_as_those_before_it_together(quick_path: Path) -> None:
    store = DiskStore.open(quick_path / "s", files=FastFiles(), segment_bytes=MB)
    fill(store, range(60))
    assert grown(store.folder)[:7] == [64, 64, 128, 256, 512, 1024, 1024]
    held = contents(store)
    crash(store)
    store = DiskStore.open(quick_path / "s", files=FastFiles(), segment_bytes=MB)
    assert contents(store) == held and grown(store.folder)[-1] == 1024  # the log is large already
    store.close()
    assert verify(quick_path / "s") == []


def test_a_new_store_begins_small(quick_path: Path) -> None:
    store = DiskStore.open(quick_path / "s", files=FastFiles())
    assert grown(store.folder) == [4 << 10]
    aside = {name: (store.folder / name).stat().st_size for name in ("reserve", "cushion")}
    assert aside == {"reserve": 2 * MB, "cushion": 2 * MB}
    fill(store, range(1), 3 * MB)
    store.checkpoint()
    assert (store.folder / "spare").stat().st_size == 4 * MB
    fill(store, range(1, 5), 3 * MB)
    store.checkpoint()
    assert grown(store.folder) == [4 << 10, 4 << 10, 8 << 10, 16 << 10]
    assert (store.folder / "reserve").stat().st_size == 2 * MB
    fill(store, range(5, 17), 3 * MB)
    store.checkpoint()
    assert (store.folder / "spare").stat().st_size == 64 * MB
    store.checkpoint()
    assert (store.folder / "reserve").stat().st_size == 4 * MB
    store.close()


def test_a_turn_larger_than_segments_has_its_own(quick_path: Path) -> None:
    store = DiskStore.open(quick_path / "s", files=FastFiles(), segment_bytes=MB)
    fill(store, range(1), 3 * MB)
    fill(store, range(1, 3))
    sizes = grown(store.folder)
    assert sizes[0] == 64 and 3 << 10 <= sizes[1] <= (3 << 10) + 1 and sizes[2:] == [1024]
    held = contents(store)
    assert after_close(store) == held


def test_where_a_grown_segment_has_no_room_a_small_one_may(quick_path: Path) -> None:
    files = SmallDisk()
    store = DiskStore.open(quick_path / "s", files=files, segment_bytes=MB)
    fill(store, range(20))
    sizes = grown(store.folder)
    files.room = files.used() + 3 * (64 << 10)
    with pytest.raises(NoSpace):
        fill(store, range(20, 60))
    assert grown(store.folder)[len(sizes) :] == [64, 64, 64]
    held = contents(store)
    assert after_close(store) == held


def test_what_is_put_aside_is_smaller_where_there_is_less_room(quick_path: Path) -> None:
    files = SmallDisk()
    store = DiskStore.open(quick_path / "s", files=files, segment_bytes=MB)
    fill(store, range(15))
    files.room = files.used() + (64 << 10)
    before = store.counters.failed_chores
    assert store.checkpoint_due(0.0)
    store.checkpoint()
    assert store.counters.failed_chores == before
    assert (store.folder / "spare").stat().st_size == 64 << 10
    assert not store._checkpointer._lacks_spare()
    store.close()


def test_no_room_says_for_how_much(tmp_path: Path) -> None:
    files = SmallDisk()
    store = DiskStore.open(tmp_path / "s", files=files, segment_bytes=MB)
    files.room = files.used()
    with pytest.raises(NoSpace, match=r"log-\d{8}-\d{8}: .* no room for 1,200,2\d\d bytes"):
        fill(store, range(1), 1_200_000)
    with pytest.raises(NoSpace, match=r"s: .* no room for 1,200,2\d\d bytes.* reserve"):
        write(store, {}, {B + bytes(2): bytes(1_200_000)}, frees=True)
    assert contents(store) == {}
    store.close()


class Quota(SmallDisk):
    """A disk with a quota, which reports more free space than there is."""

    def free(self, folder: Path) -> int:
        return 1 << 40


def fill_up(store: DiskStore, size: int, trims: bool, held: list[tuple[int, int]]) -> None:
    """Appends until it is refused, and then drops all that is `held`; if it `trims`, drops it every five turns.

    There is no checkpoint meanwhile, so dropped data does not free space yet.
    """
    full = False
    for n in range(1, 1000):
        try:
            held.append(append(store, size))
        except NoSpace:
            full = True
        if full or (trims and not n % 5):
            turn = store.begin()
            turn.reserve = True
            turn.put(A + b"dropped", n)
            for address, length in held:
                turn.drop_payload(address, length)
            store.commit(turn)
            held.clear()
        if full:
            return
    raise AssertionError("it was never full")


def append(store: DiskStore, size: int) -> tuple[int, int]:
    turn = store.begin()
    turn.put(A + b"written", turn.payload_bytes)
    address = turn.append_payload(bytes(size))
    store.commit(turn)
    return address, size


@pytest.mark.parametrize("disk", [SmallDisk, Quota])
@pytest.mark.parametrize("megabytes", [14, 33, 40, 60])
def test_what_is_dropped_makes_room_every_time(
    quick_path: Path, disk: type[SmallDisk], megabytes: int
) -> None:
    files = disk(megabytes * MB - (300 << 10))  # taken by the tables
    store = DiskStore.open(quick_path / "s", files=files)
    held: list[tuple[int, int]] = []
    for cycle in range(8):
        fill_up(store, (100_000, 200_000, 900_000)[-cycle % 3], cycle % 2 == 1, held)
        for _ in range(2):
            store.checkpoint()
        held.append(append(store, (200_000, 3_000_000)[cycle % 2]))
        if cycle % 3 == 0:
            store.close()
            store = DiskStore.open(quick_path / "s", files=files)
    shown = contents(store)
    assert after_crash(store) == shown


def test_what_little_is_live_goes_with_the_log(quick_path: Path) -> None:
    """The only segment takes all the space."""
    files = Quota(24 * MB)
    store = DiskStore.open(quick_path / "s", files=files)
    write(store, {}, {B + bytes(2): b"k" * 100_000})
    fill_up(store, 100_000, False, [])
    files.room = files.used()
    before = store._log.segment
    store.checkpoint()
    assert store._log.segment != before and files.used() < files.room
    append(store, 100_000)
    assert contents(store)[B + bytes(2)] == b"k" * 100_000
    store.close()


def test_what_a_full_disk_left_goes_after_opening(quick_path: Path) -> None:
    """Nothing has been written since."""
    files = SmallDisk()
    store = DiskStore.open(quick_path / "s", files=files)
    held = [append(store, 1_000_000) for _ in range(15)]
    turn = store.begin()
    turn.reserve = True
    for address, length in held:
        turn.drop_payload(address, length)
    store.commit(turn)
    store._checkpointer.write()
    crash(store)
    files.room = files.used()
    store = DiskStore.open(quick_path / "s", files=files)
    assert store._log.on_reserve and store.checkpoint_due(0.0)
    store.checkpoint()
    assert len(segment_files(store.folder)) == 1
    append(store, 1_000_000)
    store.close()


def test_a_spare_that_is_too_small_makes_room(quick_path: Path) -> None:
    files = SmallDisk()
    store = DiskStore.open(quick_path / "s", files=files)
    append(store, 3 * MB)
    store.checkpoint()
    assert (store.folder / "spare").stat().st_size == 4 * MB
    files.room = files.used() + 2 * MB
    append(store, 5 * MB)
    assert not (store.folder / "spare").exists()
    store.close()


def test_closing_a_full_disk_keeps_all_in_the_log(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore.open(quick_path / "s", files=FastFiles(), durability="os")
    fill(store, range(5))
    held = contents(store)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise NoSpace("the checkpoint found no space")

        patch.setattr(store._table, "checkpoint", full)
        store.close()
    assert held_in(quick_path / "s") == held


def test_no_segment_is_begun_while_a_checkpoint_has_the_cushion(quick_path: Path) -> None:
    files = SmallDisk()
    store = DiskStore.open(quick_path / "s", files=files)
    append(store, 3 * MB)
    files.room = files.used() + 5 * MB
    assert store._folder.give_back_cushion()
    with pytest.raises(NoSpace, match="a checkpoint uses the space put aside"):
        append(store, 2 * MB)
    assert store.checkpoint_due(0.0)
    store.checkpoint()
    append(store, 2 * MB)
    store.close()
