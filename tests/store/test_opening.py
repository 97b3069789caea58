"""Tests opening: who may open a store, what opening finds, and full disks."""

import errno
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from kit import python
from storekit import (
    TABLETS,
    FastFiles,
    FaultyFiles,
    after_close,
    after_crash,
    contents,
    crash,
    held_in,
    write,
)

from planstep.bench.proof.disks.engines import open_engine
from planstep.errors import FormatError, NoSpace, StoreClosed, StoreInUse, WrongMode
from planstep.proto.records_pb2 import StoreMeta
from planstep.runtime import open_stores
from planstep.store import DiskStore
from planstep.store.meta import REPLICATED
from planstep.store.recovery import segment_files
from planstep.store.unsaved import Unsaved

A, B = TABLETS
SMALL = 64 << 10


def opened(folder: Path, **settings: object) -> DiskStore:
    return DiskStore.open(folder, **{"segment_bytes": SMALL, **settings})


def test_a_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    with pytest.raises(StoreInUse) as refused:
        opened(tmp_path / "s")
    assert refused.value.pid == os.getpid() and refused.value.since
    code = (
        "import sys; from pathlib import Path; from planstep.store import DiskStore\n"
        "from planstep.errors import StoreInUse\n"
        "try: DiskStore.open(Path(sys.argv[1]))\n"
        "except StoreInUse as error: print(error.pid)\n"
    )
    assert python(code, tmp_path / "s").stdout.strip() == str(os.getpid())
    store.close()
    opened(tmp_path / "s").close()


def test_wait_waits_for_the_owner_and_no_longer(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    with pytest.raises(StoreInUse):
        opened(tmp_path / "s", wait=0.03)
    closing = threading.Timer(0.05, store.close)
    closing.start()
    opened(tmp_path / "s", wait=10).close()
    closing.join()


def test_a_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from planstep.store import DiskStore\n"
        "store = DiskStore.open(Path(sys.argv[1]), segment_bytes=65536)\n"
        "turn = store.begin(); turn.put(bytes.fromhex(sys.argv[2]), 1); store.commit(turn)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    key = A + b"k"
    python(code, tmp_path / "s", key.hex(), status=-9)
    store = opened(tmp_path / "s")
    assert store.get(key) == 1
    store.close()


@pytest.mark.parametrize("setting", [{"hosts": 2}, {"host": 1}, {"mode": "kafka"}])
def test_other_settings_than_the_stores_are_refused(
    tmp_path: Path, setting: dict[str, object]
) -> None:
    opened(tmp_path / "s").close()
    (name,) = setting
    with pytest.raises(WrongMode, match=name):
        opened(tmp_path / "s", **setting)
    opened(tmp_path / "s").close()  # the refused one has released the lock


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "s").close()
    path = tmp_path / "s" / "meta.pb"
    meta = StoreMeta.FromString(path.read_bytes())
    meta.format = REPLICATED + 1
    path.write_bytes(meta.SerializeToString())
    with pytest.raises(FormatError, match=f"format {REPLICATED + 1}"):
        opened(tmp_path / "s")


@pytest.mark.parametrize("garbage", [b"", b"\0" * 60, b"\xff" * 60, b"\x0a\x02ab", b"garbage"])
def test_a_damaged_meta_is_refused(tmp_path: Path, garbage: bytes) -> None:
    opened(tmp_path / "s").close()
    (tmp_path / "s" / "meta.pb").write_bytes(garbage)
    with pytest.raises(FormatError, match=r"meta\.pb"):
        opened(tmp_path / "s")


def test_a_folder_that_is_no_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        opened(tmp_path / "s", create=False)
    assert not (tmp_path / "s").exists()


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.begin()


def test_only_turns_behind_the_checkpoint_are_replayed(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    for n in range(7):
        write(store, {A + bytes([n]): n})
    store.checkpoint()
    for n in range(7, 10):
        write(store, {A + bytes([n]): n})
    crash(store)
    store = opened(tmp_path / "s")
    assert store.counters.replayed_turns == 3
    assert contents(store) == {A + bytes([n]): n for n in range(10)}
    store.close()
    store = opened(tmp_path / "s")
    assert store.counters.replayed_turns == 0 and store.last_turn == 10
    store.close()


def test_generations_grow(tmp_path: Path) -> None:
    generations = []
    for n in range(6):
        store = opened(tmp_path / "s")
        generations.append(store.generation)
        if n % 2:
            write(store, {A: n})
            store.checkpoint()
        if n % 3:
            store.close()
        else:
            crash(store)
    assert generations == sorted(set(generations))


def test_an_empty_turn_writes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    before = store.counters.log_bytes
    store.commit(store.begin())
    turn = store.begin()
    turn.put(A, 1)
    turn.delete(A)
    store.commit(turn)
    assert (store.last_turn, store.counters.turns, store.counters.log_bytes) == (0, 0, before)
    store.close()


def test_a_turn_larger_than_a_segment(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    data = os.urandom(3 * SMALL)
    write(store, {B: 1}, {A: data})
    write(store, {B: 2})
    assert after_crash(store) == {A: data, B: 2}


def test_dead_segments_are_removed(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    data = bytes(20_000)
    for n in range(12):
        write(store, {}, {A + bytes([n]): data})
    store.checkpoint()
    held = len(segment_files(store.folder))
    assert held >= 4  # live payloads keep them
    for n in range(11):
        turn = store.begin()
        _, address, length = turn.get(A + bytes([n]))
        turn.drop_payload(address, length)
        turn.delete(A + bytes([n]))
        store.commit(turn)
    store.checkpoint()
    left = segment_files(store.folder)
    assert len(left) <= 2
    assert contents(store) == {A + bytes([11]): data}
    assert after_close(store) == {A + bytes([11]): data}


def test_segments_without_payloads_go_with_the_checkpoint(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    for n in range(30):
        write(store, {A: bytes(9_000 + n)})
    assert len(segment_files(store.folder)) > 3
    store.checkpoint()
    assert len(segment_files(store.folder)) == 1
    store.close()


def test_a_full_disk_is_met_before_any_effect(tmp_path: Path) -> None:
    files = FaultyFiles("allocate", code=errno.ENOSPC, times=0)
    store = opened(tmp_path / "s", files=files)
    data = bytes(30_000)
    write(store, {}, {A + b"0": data})
    write(store, {}, {A + b"1": data})
    files.nth, files.times = 0, None
    held = contents(store)
    names = [path.name for path in segment_files(store.folder)]
    for n in range(3):
        with pytest.raises(NoSpace):
            write(store, {B: n}, {A + b"2": data})
        assert contents(store) == held and store.last_turn == 2
        assert [path.name for path in segment_files(store.folder)] == names
    write(store, {B: "small turns still fit"})
    files.times = 0
    write(store, {}, {A + b"2": data})
    held |= {B: "small turns still fit", A + b"2": data}
    assert contents(store) == held and store.last_turn == 4
    assert after_crash(store) == held


def test_the_tables_folder_is_synced(tmp_path: Path) -> None:
    """LMDB creates its file and does not sync the folder; without a sync a checkpoint could vanish with the
    file."""
    synced = []

    class Listening(FaultyFiles):
        def sync_folder(self, path: Path) -> None:
            synced.append((path, (path / "data.mdb").exists()))
            super().sync_folder(path)

    opened(tmp_path / "s", files=Listening()).close()
    assert (tmp_path / "s" / "table", True) in synced


def test_payloads_are_read_while_a_checkpoint_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader never combines the extents of after a checkpoint with the addresses of before."""
    told: list[object] = []
    readers: list[threading.Thread] = []

    class Watched(Unsaved):
        @property
        def run_starts(self) -> list[int]:
            return self._starts

        @run_starts.setter
        def run_starts(self, starts: list[int]) -> None:
            if readers == [] and hasattr(self, "_starts") and store.last_turn == 3:
                readers.append(threading.Thread(target=read))
                readers[0].start()
                readers[0].join(0.05)  # may have to wait for this thread
            self._starts = starts

    def read() -> None:
        try:
            told.append(store.read_payload(7, 3))
        except Exception as error:
            told.append(error)

    monkeypatch.setattr("planstep.store.disk_store.Unsaved", Watched)
    store = DiskStore.open(tmp_path / "s", segment_bytes=SMALL)
    write(store, {}, {A + b"0": b"zero"})
    write(store, {}, {A + b"1": b"one"})
    commit = store._table.checkpoint

    def slow(*args: Any) -> Any:
        write(store, {}, {A + b"2": b"two"})
        return commit(*args)

    store._table.checkpoint = slow
    store.checkpoint()
    readers[0].join()
    assert told == [b"two"]
    store._table.checkpoint = commit
    store.close()


def test_the_tables_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power loss before the first checkpoint may leave pages of zeros, which LMDB refuses."""
    synced: list[tuple[int, int]] = []
    before = os.fdatasync

    def fdatasync(fd: int) -> None:
        before(fd)
        status = os.fstat(fd)
        synced.append((status.st_ino, status.st_size))

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    store = opened(tmp_path / "s", files=FastFiles())
    status = (tmp_path / "s" / "table" / "data.mdb").stat()
    assert (status.st_ino, status.st_size) in synced
    assert not (tmp_path / "s" / "table" / "data.new").exists()
    crash(store)


def test_what_is_left_of_making_the_tables_file_is_in_nobodys_way(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    write(store, {A: 1})
    crash(store)
    table = tmp_path / "s" / "table"
    (table / "data.mdb").write_bytes(b"")
    (table / "data.new").write_bytes(bytes(8192))
    assert held_in(tmp_path / "s") == {A: 1}


def test_the_names_of_all_folders_that_were_made_are_synced(tmp_path: Path) -> None:
    synced: list[Path] = []

    class Noting(FastFiles):
        def sync_folder(self, path: Path) -> None:
            synced.append(path)

    opened(tmp_path / "a" / "b" / "host-0", files=Noting()).close()
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def test_an_opening_that_fails_lets_go_of_every_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if closing the first of them fails as well."""

    class NoRuntime:
        def __init__(self, *args: object, **settings: object) -> None:
            files.times = None
            raise NoSpace("made to fail")

    files = FaultyFiles("write", 0, times=0)
    monkeypatch.setattr(open_stores, "Runtime", NoRuntime)
    with pytest.raises(NoSpace, match="made to fail"):
        open_engine(tmp_path / "s", files, hosts=3)
    monkeypatch.undo()
    open_engine(tmp_path / "s", FastFiles(), hosts=3).close()


def test_tables_are_of_one_format_whatever_the_environment_says(tmp_path: Path) -> None:
    """LMDB's own default is a variable of the environment; a store made under it could not be read elsewhere."""
    program = (
        "import sys; from pathlib import Path; from planstep.store import DiskStore; "
        "DiskStore.open(Path(sys.argv[1])).close()"
    )
    environment = {**os.environ, "LMDB_DEFAULT_LIB_VERSION": "1"}
    for _ in range(2):  # created, and opened again
        python(program, tmp_path / "s", env=environment)
    head = (tmp_path / "s" / "table" / "data.mdb").read_bytes()[:24]
    assert int.from_bytes(head[16:20], sys.byteorder) == 0xBEEFC0DE
    assert int.from_bytes(head[20:24], sys.byteorder) == 1
