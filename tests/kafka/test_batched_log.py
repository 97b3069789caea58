"""Tests the coordinators' buffered log writer: triggers, order, framing, and its failures."""

from typing import Any

import msgpack
import pytest
from coordinator_kit import FakeShell, Keys
from hypothesis import given
from hypothesis import strategies as st

from planstep.errors import FormatError
from planstep.proto.batched_log import ENTRIES_KEPT, BatchedLog, decode_entry
from planstep.proto.kafka.settings import KafkaSettings
from planstep.proto.records_pb2 import LogBatch


class Writer:
    """A log, with the results of its callbacks in order."""

    def __init__(self, **settings: Any) -> None:
        self.keys = Keys()
        self.shell = FakeShell(KafkaSettings(**{"log_batching": True, **settings}))
        self.log = BatchedLog(self.keys, self.shell, self.shell.settings.log)
        self.done: list[tuple[Any, str, Any]] = []

    def append(self, *record: Any, refused: str = "") -> None:
        done = lambda error, at: self.done.append((record, error, at))  # noqa: E731
        self.log.append(record, done, refused)

    def entries(self) -> list[bytes]:
        return [value for _, value in self.keys.scan(b"l", b"m")]

    def records(self) -> list[Any]:
        return [record for entry in self.entries() for record in decode_entry(entry)]

    def wake(self) -> None:
        timers, self.shell.timers = self.shell.timers, []
        for at, wake in timers:
            self.shell.now_ms = max(self.shell.now_ms, int(at))
            self.log.wake(wake.detail)


@pytest.fixture
def w() -> Writer:
    return Writer()


def test_off_each_record_is_an_entry_of_its_own_bytes() -> None:
    w = Writer(log_batching=False)
    w.append("a", 1)
    w.append("b", 2)
    assert w.entries() == [msgpack.packb(("a", 1)), msgpack.packb(("b", 2))]
    assert [at for _, _, at in w.done] == [(0, 1, 0), (1, 1, 0)]
    assert not w.shell.timers and w.log.buffered == 0 and w.keys.rows[b"L"] == 2


def test_on_nothing_is_written_or_told_before_the_flush(w: Writer) -> None:
    w.append("a")
    assert (w.keys.rows, w.done, w.log.buffered) == ({}, [], 1)
    w.append("b")
    w.log.flush()
    assert w.done == [(("a",), "", (0, 2, 0)), (("b",), "", (0, 2, 1))]
    assert w.records() == [("a",), ("b",)]


def test_a_batch_of_one_is_framed_too(w: Writer) -> None:
    w.append("a")
    w.log.flush()
    framed = b"\x0e\x01\x00\x02" + LogBatch(records=[msgpack.packb(("a",))]).SerializeToString()
    assert w.entries() == [framed] and w.done[0][2] == (0, 1, 0)


def test_flush_by_number_of_records() -> None:
    w = Writer(log_batch_records=3)
    for n in range(7):
        w.append(n)
    assert [len(decode_entry(entry)) for entry in w.entries()] == [3, 3] and w.log.buffered == 1
    assert w.log.counters()["max_records"] == 2


def test_flush_before_a_record_that_would_overflow() -> None:
    w = Writer(log_batch_bytes=300)
    for n in range(9):
        w.append(n, b"x" * 60)
    assert w.log.counters()["max_bytes"] == 2
    assert all(len(entry) <= 300 for entry in w.entries())
    w.log.flush()
    assert [record[0] for record in w.records()] == list(range(9))


def test_a_record_too_large_goes_alone_plain_behind_what_waits() -> None:
    w = Writer(log_batch_bytes=100)
    w.append("small")
    w.append(b"x" * 100)
    assert [entry[:2] == b"\x0e\x01" for entry in w.entries()] == [True, False]
    assert [at for _, _, at in w.done] == [(0, 1, 0), (1, 1, 0)]
    assert w.log.counters()["large_data"] == 1 and w.log.buffered == 0


def test_a_large_record_with_nothing_waiting_counts_no_batch() -> None:
    w = Writer(log_batch_bytes=100)
    w.append(b"x" * 100)
    counters = w.log.counters()
    assert counters["large_data"] == 0 and counters["batch_records_sum"] == 0
    assert len(w.entries()) == 1


def test_the_first_record_arms_the_delay_and_only_it() -> None:
    w = Writer(log_batch_delay_ms=1.5)
    assert not w.shell.timers, "an idle writer wakes nobody"
    w.append("a")
    w.append("b")
    assert [at - w.shell.now_ms for at, _ in w.shell.timers] == [1.5]
    w.wake()
    assert w.log.counters()["max_delay"] == 1 and len(w.done) == 2
    assert not w.shell.timers
    w.append("c")
    assert len(w.shell.timers) == 1, "the next buffer has a timer of its own"


def test_a_stale_wake_leaves_the_next_buffer_alone(w: Writer) -> None:
    w.append("a")
    w.log.flush()
    w.append("b")
    stale, own = (wake for _, wake in w.shell.timers)
    w.log.wake(stale.detail)
    assert w.log.buffered == 1
    w.log.wake(own.detail)
    assert w.log.buffered == 0
    w.log.wake(own.detail)
    assert len(w.entries()) == 2, "nothing is written for nothing"


def test_one_record_that_cannot_be_packed_harms_no_other(w: Writer) -> None:
    w.append("a")
    w.append(object())
    w.append(1 << 70)
    w.append("b")
    w.log.flush()
    assert [error for _, error, _ in w.done] == ["", "INVALID_REQUEST", "INVALID_REQUEST", ""]
    assert w.records() == [("a",), ("b",)]


def test_switched_while_running(w: Writer) -> None:
    w.append("a")
    w.log.switch(False)
    w.append("b")
    w.log.switch(True)
    w.append("c")
    w.log.flush()
    assert [entry[:2] == b"\x0e\x01" for entry in w.entries()] == [True, False, True]
    assert w.records() == [("a",), ("b",), ("c",)]


def test_a_callback_may_append() -> None:
    w = Writer(log_batch_records=2)
    w.log.append(("a",), lambda error, at: w.append("from a's callback"))
    w.append("b")
    assert w.log.buffered == 1 and len(w.shell.timers) == 2
    w.wake()
    assert w.records() == [("a",), ("b",), ("from a's callback",)]


def test_each_record_keeps_its_cause_and_counts_its_share_of_the_append(w: Writer) -> None:
    causes: list[Any] = []
    for cause in ("tx 1", "tx 2"):
        w.shell.cause = cause
        w.log.append((cause,), lambda error, at: causes.append(w.shell.cause))
    w.shell.cause = "the flush"
    assert not w.shell.appends
    w.log.flush()
    assert causes == ["tx 1", "tx 2"] and w.shell.cause == "the flush"
    assert w.shell.appends == [("tx 1", 0.5), ("tx 2", 0.5)]
    w.log.switch(False)
    w.append("alone")
    assert w.shell.appends[2:] == [("the flush", 1.0)]


def test_on_a_full_disk_a_batch_is_written_without_what_takes_space(w: Writer) -> None:
    for record, refused in (("new", "NO_SPACE"), ("end", ""), ("added", "NO_SPACE")):
        w.append(record, refused=refused)
    w.shell.on_reserve = True
    w.log.flush()
    assert w.records() == [("end",)] and w.log.buffered == 0
    assert [(record, error) for record, error, _ in w.done] == [
        (("new",), "NO_SPACE"),
        (("added",), "NO_SPACE"),
        (("end",), ""),
    ]
    w.append("new", refused="NO_SPACE")
    w.log.flush()
    assert len(w.entries()) == 1 and w.done[-1][1] == "NO_SPACE"


def test_the_newest_entries_are_kept() -> None:
    w = Writer(log_batching=False)
    for n in range(ENTRIES_KEPT + 5):
        w.append(n)
    assert w.records() == [(n,) for n in range(5, ENTRIES_KEPT + 5)]
    assert w.keys.rows[b"L"] == ENTRIES_KEPT + 5


def test_an_undone_turn_gives_the_buffer_back() -> None:
    w = Writer(log_batch_records=4)
    w.append("a")
    w.append("b")
    rows, mark, before = dict(w.keys.rows), w.log.mark(), w.log.counters()
    w.append("c")
    inner = w.log.mark()
    w.append("d")  # flushes
    w.append("e")
    w.log.undo(inner)
    assert w.log.buffered == 3
    w.keys.rows = dict(rows)
    w.log.undo(mark)
    assert w.log.buffered == 2 and w.log.counters() == before
    w.done.clear()
    w.append("f")
    w.wake()
    assert w.records() == [("a",), ("b",), ("f",)] and len(w.done) == 3


def test_counters_of_a_batch(w: Writer) -> None:
    w.append("a")
    w.shell.now_ms += 7
    w.append("b")
    w.log.flush()
    counters = w.log.counters()
    assert counters["asked"] == 1 and counters["batch_records_sum"] == 2
    assert counters["batch_records"] == [0, 1, 0, 0, 0, 0, 0, 0]
    assert counters["batch_bytes_sum"] == len(w.entries()[0])
    assert counters["batch_oldest_delay_ms_sum"] == 7
    assert counters["batch_oldest_delay_ms"] == [0, 0, 0, 0, 1, 0, 0, 0]


def test_an_unknown_version_says_what_to_do() -> None:
    with pytest.raises(FormatError, match=r"version 3.*newer version"):
        decode_entry(b"\x0e\x01\x00\x03" + msgpack.packb([]))


def test_a_batch_of_version_1_is_read_still() -> None:
    packed = [msgpack.packb(("a", 1)), msgpack.packb(("b", 2))]
    assert decode_entry(b"\x0e\x01\x00\x01" + msgpack.packb(packed)) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0e\x01",
        b"\x0e\x01\x00\x01\xc1",
        b"\x0e\x01\x00\x02\xff",
        b"\xc1",
        b"\x05",
        b"\xa1a",
    ],
)
def test_damaged_entries_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_entry(data)


ACTIONS = st.one_of(
    st.binary(max_size=90).map(lambda data: ("append", data)),
    st.booleans().map(lambda on: ("switch", on)),
    st.just(("flush", None)),
    st.just(("wake", None)),
)


@given(st.lists(ACTIONS, max_size=60), st.booleans(), st.integers(2, 9), st.integers(20, 200))
def test_any_mix_decodes_to_the_records_in_order(
    actions: list[tuple[str, Any]], on: bool, records: int, size: int
) -> None:
    w = Writer(log_batching=on, log_batch_records=records, log_batch_bytes=size)
    appended = []
    for n, (what, detail) in enumerate(actions):
        if what == "append":
            appended.append((n, detail))
            w.append(n, detail)
        elif what == "switch":
            w.log.switch(detail)
        elif what == "flush":
            w.log.flush()
        else:
            w.wake()
    w.log.flush()
    assert w.records() == appended
    assert [(record, error) for record, error, _ in w.done] == [(r, "") for r in appended]
    positions = [at for _, _, at in w.done]
    assert positions == sorted(positions)
    for entry in w.entries():
        assert entry[:2] != b"\x0e\x01" or len(entry) <= size
    assert w.log.counters()["max_records"] <= len(appended) // records


def test_a_log_with_a_prefix_stands_beside_others(w: Writer) -> None:
    settings = w.shell.settings.log._replace(batching=False)
    for prefix in (b"", b"x", b"y"):
        BatchedLog(w.keys, w.shell, settings, prefix).append((prefix,), lambda error, at: None)
    for prefix in (b"", b"x", b"y"):
        assert decode_entry(w.keys.get(prefix + b"l" + bytes(8))) == [(prefix,)]
        assert w.keys.get(prefix + b"L") == 1
