"""Tests torn tails, and a flip of each byte of a small log: nothing is invented, nothing silently lost.

One loss looks like a torn write: that of the very last acknowledged turn of a store that was not closed, since
nothing after it proves that it existed. So a flip in the last record may end in the turn before it. Payloads
after the checkpoint are not read at opening; batches carry their own crc.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from storekit import FIRST, LAST, TABLETS, Contents, FastFiles, contents, crash, write

from planstep.errors import Corruption, FormatError, IoError
from planstep.store import DiskStore
from planstep.store.log.records import TURN, Record, read_record
from planstep.store.readers.readonly import ReadOnlyStore
from planstep.store.readers.released_mark import read_mark
from planstep.store.recovery import read_segment, segment_files, segment_parts
from planstep.store.tables.checksums import seal, unseal
from planstep.store.verify import Problem, verify

SMALL = 4 << 10
TURNS = 7
A, B = TABLETS


class Sample:
    """A small store, as bytes; `states` holds its contents after each turn."""

    def __init__(self, folder: Path, checkpoint_at: int | None, closed: bool) -> None:
        self.folder = folder
        store = self.open()
        self.states: list[Contents] = [{}]
        self.rows = [store.scan(FIRST, LAST)]
        for n in range(TURNS):
            name = B + bytes([n])
            write(store, {A + bytes([n % 3]): (n, b"v" * 20)}, {name: bytes([n]) * (30 + n)})
            if n == 3:
                write(store, {A + b"\0": None, A + b"long": b"l" * 20})
                self.states.append(contents(store))
                self.rows.append(store.scan(FIRST, LAST))
            self.states.append(contents(store))
            self.rows.append(store.scan(FIRST, LAST))
            if n == checkpoint_at:
                store.checkpoint()
        self.store_id = store.store_id
        store.close() if closed else crash(store)
        (segment,) = segment_files(folder)
        self.segment = segment.name
        self.used = read_segment(FastFiles(), segment)
        self.records: list[Record] = []
        generation, _ = segment_parts(self.segment)
        record = read_record(self.used, 0, self.store_id, generation, None)
        while record is not None:
            self.records.append(record)
            after = record.offset + record.size
            record = read_record(self.used, after, self.store_id, generation, record.crc)
        self.used = self.used[:after]
        self.meta = (folder / "meta.pb").read_bytes()
        self.table = (folder / "table" / "data.mdb").read_bytes()

    def open(self) -> DiskStore:
        return DiskStore.open(self.folder, files=FastFiles(), segment_bytes=SMALL)

    def with_log(self, data: bytes) -> None:
        """Restores the folder with another log."""
        shutil.rmtree(self.folder)
        (self.folder / "table").mkdir(parents=True)
        (self.folder / "meta.pb").write_bytes(self.meta)
        (self.folder / "table" / "data.mdb").write_bytes(self.table)
        (self.folder / self.segment).write_bytes(data.ljust(SMALL, b"\0"))

    def flipped(self, at: int) -> bytes:
        data = bytearray(self.used)
        data[at] ^= 1 << at % 8
        return bytes(data)


@pytest.mark.parametrize("zeroed", [True, False])
def test_torn_tails(quick_path: Path, zeroed: bool) -> None:
    """The last record is torn at each of its bytes; the rest is zeros or cut off."""
    sample = Sample(quick_path / "s", None, False)
    last = sample.records[-1]
    for at in range(last.offset, last.offset + last.size):
        sample.with_log(sample.used[:at])
        if not zeroed:
            with open(sample.folder / sample.segment, "r+b") as file:
                file.truncate(at)
        store = sample.open()
        assert contents(store) == sample.states[-2], at
        assert store.last_turn == len(sample.states) - 2
        crash(store)
        store = sample.open()
        assert contents(store) == sample.states[-2], at
        crash(store)


@pytest.mark.parametrize(
    ("checkpoint_at", "closed"),
    [(None, False), (3, False), (TURNS - 2, False), (TURNS - 1, False), (None, True), (3, True)],
)
def test_flipped_bytes(quick_path: Path, checkpoint_at: int | None, closed: bool) -> None:
    sample = Sample(quick_path / "s", checkpoint_at, closed)
    last = max((r for r in sample.records if r.kind == TURN), key=lambda r: r.turn)
    detected = 0
    for at in range(len(sample.used)):
        sample.with_log(sample.flipped(at))
        try:
            store = sample.open()
        except (Corruption, FormatError) as error:
            assert sample.segment in str(error), at
            detected += 1
            continue
        rows = store.scan(FIRST, LAST)
        if rows != sample.rows[-1]:
            in_last = last.offset <= at < last.offset + last.size
            assert in_last and not closed and rows == sample.rows[-2], at
        elif checkpoint_at is None and not closed:
            assert contents(store) == sample.states[-1], at
        crash(store)
    if checkpoint_at is None and not closed:
        assert detected == len(sample.used) - last.size
    if closed:  # the checkpoint has all but the closing record
        assert detected == sample.records[-1].size


@pytest.mark.parametrize("closed", [True, False])
def test_opening_takes_nothing_from_behind_a_flip(quick_path: Path, closed: bool) -> None:
    """Data that the checkpoint refers to stays, even after a damaged record that the checkpoint covers."""
    sample = Sample(quick_path / "s", TURNS - 1, closed)
    held = sample.states[-1]
    for at in range(0, len(sample.used), 5):
        sample.with_log(sample.flipped(at))
        try:
            store = sample.open()
        except Corruption:
            assert closed and at >= sample.records[-1].offset  # no other flip damages history
            continue
        for _ in range(2):
            found = contents(store)
            differing = [key for key in held if found[key] != held[key]]
            assert found.keys() == held.keys() and len(differing) <= 1, at
            assert all(key.startswith(B) for key in differing), at  # the flip is in this payload
            crash(store)
            store = sample.open()
        crash(store)


def test_a_lost_segment_is_missed(quick_path: Path) -> None:
    store = DiskStore.open(quick_path / "s", files=FastFiles(), segment_bytes=SMALL)
    for n in range(12):
        write(store, {A + bytes([n]): bytes(1_000)})
    crash(store)
    segments = segment_files(quick_path / "s")
    assert len(segments) >= 3
    segments[1].unlink()
    with pytest.raises(Corruption, match=segments[2].name):
        DiskStore.open(quick_path / "s", files=FastFiles(), segment_bytes=SMALL)


@pytest.mark.parametrize("checkpoint_at", [0, 3])
@pytest.mark.parametrize("left", ["nothing", "zeros", "the first record"])
def test_the_segment_of_the_checkpoint_is_missed(
    quick_path: Path, checkpoint_at: int, left: str
) -> None:
    """It is missed even if the turns after the checkpoint are missing too."""
    sample = Sample(quick_path / "s", checkpoint_at, False)
    sample.with_log(sample.used[: sample.records[0].size] if left == "the first record" else b"")
    if left == "nothing":
        (sample.folder / sample.segment).unlink()
    with pytest.raises(Corruption, match=sample.segment):
        sample.open()
    assert any(sample.segment in problem.what for problem in verified(sample))


@pytest.mark.parametrize("rebooted", [False, True])
@pytest.mark.parametrize("left", ["flipped", "zeros", "cut off"])
def test_a_synced_tail_that_is_gone_is_missed(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, rebooted: bool
) -> None:
    """The owner's mark proves that it existed; without the mark it is a torn tail."""
    sample = Sample(quick_path / "s", None, False)
    if rebooted:
        monkeypatch.setattr("planstep.store.readers.released_mark._boot", lambda: b"another!")
    path, last = sample.folder / sample.segment, sample.records[-1]
    data = bytearray(path.read_bytes())
    if left == "flipped":
        data[last.offset + 70] ^= 1
    elif left == "zeros":
        data[last.offset : last.offset + last.size] = bytes(last.size)
    else:
        del data[last.offset + 9 :]
    path.write_bytes(data)
    for opened in (sample.open, lambda: ReadOnlyStore.open(sample.folder)):
        with pytest.raises(Corruption, match=f"turn {last.turn} is not there"):
            opened()
    assert any("is not there" in problem.what for problem in verified(sample))
    (sample.folder / "released").unlink()
    store = sample.open()
    assert contents(store) == sample.states[-2]
    crash(store)


def test_what_was_never_synced_may_be_gone(quick_path: Path) -> None:
    """With durability "os" the mark knows which turns its syncs have covered."""
    folder = quick_path / "s"

    def opened() -> DiskStore:
        return DiskStore.open(folder, files=FastFiles(), durability="os")

    store = opened()
    for n in range(4):
        write(store, {A: n})
        if n == 1:
            store.checkpoint()
    write(store, {A: 4})
    crash(store)
    path = segment_files(folder)[-1]
    meta = path.read_bytes()
    generation, _ = segment_parts(path.name)
    record, records = read_record(meta, 0, store.store_id, generation, None), []
    while record is not None:
        records.append(record)
        after = record.offset + record.size
        record = read_record(meta, after, store.store_id, generation, record.crc)
    path.write_bytes(meta[: records[-1].offset].ljust(len(meta), b"\0"))
    store = opened()
    assert contents(store) == {A: 3}
    crash(store)


def test_a_mark_of_another_store_says_nothing(quick_path: Path) -> None:
    sample, other = Sample(quick_path / "s", None, False), Sample(quick_path / "o", None, False)
    path, own = sample.folder / "released", sample.store_id
    assert read_mark(path, own) == (1, TURNS + 1, True, TURNS + 1)
    path.write_bytes((other.folder / "released").read_bytes())
    assert read_mark(path, own) is None
    look = ReadOnlyStore.open(sample.folder)
    assert contents(look) == sample.states[-1]
    look.close()


# verify -------------------------------------------------------------------------------------


def verified(sample: Sample) -> list[Problem]:
    problems = verify(sample.folder)
    assert all(isinstance(problem, Problem) for problem in problems)
    return problems


@pytest.mark.parametrize("closed", [True, False])
def test_nothing_is_wrong_with_a_whole_store(quick_path: Path, closed: bool) -> None:
    sample = Sample(quick_path / "s", 3, closed)
    assert verified(sample) == []
    store = sample.open()
    crash(store)
    assert verified(sample) == []


def test_nothing_is_wrong_with_an_interrupted_recovery(quick_path: Path) -> None:
    """Turns were copied, but the first record before them was not written."""

    class Stopped(FastFiles):
        def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
            if not offset:
                raise SystemExit("a signal's handler")
            super().write(fd, buffers, offset, sync)

    sample = Sample(quick_path / "s", None, False)
    with pytest.raises(SystemExit):
        DiskStore.open(sample.folder, files=Stopped(), segment_bytes=SMALL)
    assert len(segment_files(sample.folder)) == 2
    assert verified(sample) == []
    store = sample.open()
    assert contents(store) == sample.states[-1]
    crash(store)
    assert verified(sample) == []


@pytest.mark.parametrize("closed", [True, False])
def test_verify_names_flips_in_the_log(quick_path: Path, closed: bool) -> None:
    """It also names flips after the checkpoint, which opening does not look at."""
    sample = Sample(quick_path / "s", TURNS - 1, closed)
    end = sample.records[-1 if closed else -2]
    for at in range(0, end.offset, 3):
        sample.with_log(sample.flipped(at))
        problems = verified(sample)
        assert any(sample.segment in f"{p.tablet} {p.what}" for p in problems), at


def test_verify_names_flips_in_the_last_record_of_a_segment(quick_path: Path) -> None:
    """No later record of its segment proves that it existed, but the tables refer to its contents."""
    folder = quick_path / "s"
    store = DiskStore.open(folder, files=FastFiles(), segment_bytes=SMALL)
    for n in range(12):
        write(store, {}, {B + bytes([n]): b"%02d" % n * 450})
    store.checkpoint()
    crash(store)
    covered = segment_files(folder)[:-1]
    assert len(covered) >= 2 and verify(folder) == []
    for path in covered:
        whole = path.read_bytes()
        end = len(whole.rstrip(b"\0"))
        for at in (end - 1, end - 400, end - 910, end - 960):  # sum, payload, key, head
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert [problem.tablet for problem in verify(folder)] == [path.name], at
        path.write_bytes(whole)


def test_verify_names_flips_in_the_tables(quick_path: Path) -> None:
    sample = Sample(quick_path / "s", None, True)
    table = sample.table
    for value in (b"v" * 20, b"l" * 20):
        at, named = table.find(value), 0
        while at > 0:
            damaged = bytearray(table)
            damaged[at + 3] ^= 4
            sample.table = bytes(damaged)
            sample.with_log(sample.used)
            problems = verified(sample)
            if problems:  # otherwise the flip hit an older copy of the page, which is unreferenced
                assert [p.tablet for p in problems] == ["table"], problems
                assert "not what was written" in problems[0].what
                named += 1
            at = table.find(value, at + len(value))
        assert named


def test_a_flip_in_the_tables_is_never_read_as_a_value(quick_path: Path) -> None:
    """It is read by key and by scan, by the owner and by a read-only opener."""
    sample = Sample(quick_path / "s", None, True)
    table, refused = sample.table, 0
    at = table.find(b"v" * 20)
    while at > 0:
        damaged = bytearray(table)
        damaged[at + 3] ^= 4
        sample.table = bytes(damaged)
        sample.with_log(sample.used)
        if verified(sample):
            look = ReadOnlyStore.open(sample.folder)
            with pytest.raises(Corruption, match="not what was written"):
                list(look.scan(FIRST, LAST))
            look.close()
            refused += 1
        at = table.find(b"v" * 20, at + 20)
    assert refused


def test_a_value_under_another_key_is_noticed() -> None:
    sealed = seal(b"k\x20\0\0\x01a", (1, 2, b"value"))
    assert unseal(b"k\x20\0\0\x01a", sealed) == (1, 2, b"value")
    with pytest.raises(Corruption, match="not what was written"):
        unseal(b"k\x20\0\0\x01b", sealed)
    for short in (b"", sealed[:3], sealed[4:]):
        with pytest.raises(Corruption, match="not what was written"):
            unseal(b"k\x20\0\0\x01a", short)


def test_verify_names_payloads_that_no_segment_holds(quick_path: Path) -> None:
    sample = Sample(quick_path / "s", None, True)
    sample.with_log(sample.used)
    with open(sample.folder / sample.segment, "r+b") as file:
        file.truncate(sample.records[-2].offset)
    problems = verified(sample)
    assert any("payload address" in p.key and sample.segment in p.what for p in problems)


def test_tables_that_cannot_be_read_are_an_error_of_the_library_s(tmp_path: Path) -> None:
    """The error has the system's message and names the file; `verify` names it like damage."""
    with_tables(tmp_path / "s")
    path = tmp_path / "s" / "table" / "data.mdb"
    path.unlink()
    path.mkdir()
    for opened in (DiskStore.open, ReadOnlyStore.open):
        with pytest.raises(IoError, match=r"data\.mdb: Is a directory"):
            opened(tmp_path / "s")
    (problem,) = verify(tmp_path / "s")
    assert problem.what == f"{path}: Is a directory"


def test_so_are_tables_that_open_and_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_tables(tmp_path / "s")
    tables = (tmp_path / "s" / "table" / "data.mdb").stat()
    pread = os.pread

    def failing(fd: int, *args: int) -> bytes:
        if os.path.samestat(os.fstat(fd), tables):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, *args)

    monkeypatch.setattr(os, "pread", failing)
    for opened in (DiskStore.open, ReadOnlyStore.open):
        with pytest.raises(IoError, match=r"data\.mdb: Input/output error"):
            opened(tmp_path / "s")
    assert len(verify(tmp_path / "s")) == 1


def with_tables(folder: Path) -> None:
    store = DiskStore.open(folder, files=FastFiles())
    write(store, {A: 1})
    store.close()
