"""Tests what a partition removes: trimmed records, forgotten producers, all of it when dropped."""

import pytest
from partition_kit import CLIENT, EPOCH, GONE, ORDER, TABLET, Log

from planstep.proto.kafka.messages import DropPartition, Marked, TrimTo
from planstep.proto.messages import Clean
from planstep.proto.shell import Answer
from planstep.tablets.kafka import partition

# trimming ----------------------------------------------------------------------------------


def test_trimming_gives_back_what_is_before_and_keeps_the_entry_that_holds_the_start() -> None:
    log = Log()
    for n in range(3):
        log.plain(1, 4 * n, 4)
    assert log.trim(6) == 6
    assert [at for at, _ in log.entries(0, 99)] == [4, 8]
    assert log.values() == [f"1/0/{n}" for n in range(6, 12)]
    assert log.trim(2) == 6, "never back"


@pytest.mark.parametrize(("offset", "start"), [(3, 3), (4, 4), (5, 4), (1 << 40, 4)])
def test_trimming_stops_at_the_last_stable_offset(log: Log, offset: int, start: int) -> None:
    log.plain(1, 0, 4)
    log.produce(2, 0, 4)
    assert log.trim(offset) == start
    assert log.bounds == (start, 8, 4)


def test_trimming_takes_the_index_along_up_to_the_marker(log: Log) -> None:
    log.produce(1, 0, 2)
    log.abort(1)
    log.produce(1, 2, 2)
    log.abort(1)
    assert log.trim(2) == 2 and len(log.index()) == 2, "its marker is still there"
    assert log.trim(3) == 3 and log.index() == [(1, 3, 5, 6)]
    assert log.trim(6) == 6 and log.index() == []
    assert log.bounds == (6, 6, 6) and not log.space.payloads


def test_trimming_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "TRIM_SLICES_MAX", 3)
    log = Log()
    for n in range(8):
        log.plain(1, 2 * n, 2)
    assert [log.trim(11), log.trim(11), log.trim(11)] == [6, 11, 11]


def test_a_trimmed_producer_is_still_known(log: Log) -> None:
    log.plain(1, 0, 2)
    log.trim(2)
    assert [log.plain(1, 0, 2), log.plain(1, 3), log.plain(1, 2)] == [0, ORDER, 2]


# forgetting producers ----------------------------------------------------------------------


def test_idle_producers_are_forgotten(log: Log) -> None:
    log.plain(1, 0, ms=1_000)
    log.plain(2, 0, ms=2_000)
    log.expire(2_000)
    assert log.state(1) is None and log.state(2) is not None
    assert log.plain(1, 7) == 2, "version 1 takes up where it is"
    assert log.plain(2, 7) == ORDER


def test_a_producer_with_an_open_transaction_is_never_forgotten(log: Log) -> None:
    log.produce(1, 0, ms=1_000)
    log.expire(9_000)
    assert log.state(1) is not None
    log.commit(1)
    log.expire(9_000)
    assert log.state(1) is None


def test_a_forgotten_producer_begins_at_0_in_version_2() -> None:
    log = Log(2)
    log.produce(1, 0, ms=1_000)
    log.commit(1, epoch=1)
    log.expire(9_000)
    assert log.produce(1, 3, epoch=1) == ORDER
    assert log.produce(1, 0, epoch=1) == 2


def test_a_producer_known_by_markers_alone_is_remembered_from_the_last_one_on(log: Log) -> None:
    """Its coordinator ended a transaction whose batch never arrived: if that arrives late, it must not open one
    again."""
    log.shell.now_ms = 5_000
    log.abort(1, epoch=1)
    log.expire(4_900)
    log.expire(5_000)
    assert log.produce(1, 0, epoch=0) == EPOCH
    log.expire(5_001)
    assert log.state(1) is None


def test_a_marker_keeps_a_producer_as_a_batch_does(log: Log) -> None:
    log.produce(1, 0, ms=1_000)
    log.shell.now_ms = 3_000
    log.commit(1)
    log.expire(3_000)
    assert log.state(1) is not None
    log.shell.now_ms = 2_000  # the clock was set back, which is no reason to forget sooner
    log.commit(1)
    log.expire(3_000)
    assert log.state(1) is not None


# the end -----------------------------------------------------------------------------------


def test_a_dropped_partition_takes_nothing(log: Log) -> None:
    log.produce(1, 0)
    log.tell(DropPartition())
    assert log.produce(1, 1) == GONE
    assert log.commit(1) == GONE
    assert log.tell(TrimTo(CLIENT, 3, 1)) == [Answer(3, TABLET, GONE)]
    assert log.bounds == (0, 1, 0)


def test_a_marker_for_a_dropped_partition_is_answered(log: Log) -> None:
    log.tell(DropPartition())
    assert log.commit(4, epoch=2) == GONE
    assert log.shell.sent[-1].message == Marked(TABLET, "t", 4, 2, GONE)


def test_cleaning_takes_all_away_piece_by_piece(log: Log) -> None:
    log.tablet.handle(Clean(10))
    for n in range(5):
        log.produce(1, n)
        log.abort(1)
    log.produce(1, 5)
    log.tablet.handle(Clean(10))
    assert log.bounds[1] == 11, "not dropped: nothing is cleaned"
    log.tell(DropPartition())
    turns = 0
    while len(log.space.rows) > 1:
        before = len(log.space.rows)
        log.tablet.handle(Clean(4))
        assert before - 4 <= len(log.space.rows) < before
        turns += 1
    assert not log.space.payloads and turns > 3
    assert log.produce(1, 6) == GONE, "for ever: its number is never given again"


def test_cleaning_by_single_keys_keeps_the_drop(log: Log) -> None:
    log.plain(1, 0)
    log.tell(DropPartition())
    sizes = []
    for _ in range(6):
        sizes.append(len(log.space.rows))
        log.tablet.handle(Clean(1))
        assert b"x" in log.space.rows
    assert sizes == [4, 3, 2, 1, 1, 1]
