"""Tests the partition's log, rule by rule: offsets, the last stable one, markers, the index."""

from typing import Any

import pytest
from partition_kit import EPOCH, FENCED, ORDER, STATE, Log

from planstep.proto.kafka.messages import ABORT, COMMIT

# data --------------------------------------------------------------------------------------


def test_data_lies_in_the_order_of_its_arrival_and_is_answered_with_its_offset(log: Log) -> None:
    assert [log.plain(1, 0, 3), log.produce(2, 0, 2), log.plain(1, 3)] == [0, 3, 5]
    assert log.bounds == (0, 6, 3)
    at, row = log.entries(3, 4)[0]
    assert at == 3 and row[2:] == (2, 2, 0, 0, 1)
    assert list(log.space.rows)[-1] == b"m", "what readers read first is put last"


def test_five_batches_are_known_again_and_the_sixth_is_not(log: Log) -> None:
    offsets = [log.plain(1, 2 * n, 2) for n in range(6)]
    assert [log.plain(1, 2 * n, 2) for n in range(1, 6)] == offsets[1:]
    assert log.plain(1, 0, 2) == ORDER
    assert log.bounds == (0, 12, 12)


def test_a_duplicate_is_known_again_after_a_restart(log: Log) -> None:
    log.produce(1, 0, 2)
    log.produce(1, 2, 2)
    log.restart()
    assert [log.produce(1, 0, 2), log.produce(1, 2, 2), log.produce(1, 4)] == [0, 2, 4]


def test_a_new_epoch_begins_at_0_and_shuts_the_old_one_out(log: Log) -> None:
    log.plain(1, 0, 2)
    assert log.plain(1, 2, epoch=1) == ORDER
    assert log.plain(1, 0, epoch=1) == 2
    assert log.plain(1, 2) == EPOCH
    assert log.plain(1, 0, 2) == EPOCH, "the window went with its epoch"


def test_sequences_go_on_across_transactions_of_one_epoch(log: Log) -> None:
    log.produce(1, 0, 2)
    log.commit(1)
    assert log.produce(1, 0, 2) == 0
    assert log.produce(1, 2) == 3


def test_plain_data_inside_a_transaction_is_refused(log: Log) -> None:
    log.produce(1, 0)
    assert log.plain(1, 1) == STATE
    log.commit(1)
    assert log.plain(1, 1) == 2


# the last stable offset --------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_the_earliest_open_transaction_fixes_the_last_stable_offset(log: Log, commit: bool) -> None:
    log.plain(9, 0)
    log.produce(1, 0)
    log.produce(2, 0)
    log.plain(9, 1)
    assert log.bounds == (0, 4, 1)
    log.marker(2, commit)
    assert log.bounds == (0, 5, 1), "it ended, behind one that is open"
    log.marker(1, commit)
    assert log.bounds == (0, 6, 6)


def test_the_last_stable_offset_goes_to_the_next_open_transaction(log: Log) -> None:
    for producer in (1, 2, 3):
        log.produce(producer, 0, 2)
    log.commit(2)
    log.commit(1)
    assert log.stable == 4
    log.abort(3)
    assert log.stable == 9


def test_a_repeated_batch_moves_nothing(log: Log) -> None:
    log.produce(1, 0)
    before = dict(log.space.rows)
    log.produce(1, 0)
    assert log.space.rows == before


def test_an_open_transaction_goes_on_after_a_restart(log: Log) -> None:
    log.plain(9, 0)
    log.produce(1, 0)
    log.restart()
    assert log.produce(1, 1) == 2
    assert log.stable == 1
    log.abort(1)
    assert log.bounds == (0, 4, 4) and log.index() == [(1, 1, 3, 4)]
    assert log.values() == ["9/0/0"]


# markers -----------------------------------------------------------------------------------


def test_a_marker_takes_an_offset_and_names_its_coordinators_epoch(log: Log) -> None:
    log.produce(1, 0)
    assert log.marker(1, True, coordinator_epoch=4) == ""
    assert log.entries(1, 2) == [(1, (0, 0, 1, 1, 0, -1, COMMIT, 4))]
    assert log.produce(1, 1) == 2
    assert log.marker(1, False, coordinator_epoch=4) == ""
    assert log.entries(3, 4) == [(3, (0, 0, 1, 1, 0, -1, ABORT, 4))]


def test_a_marker_of_an_older_epoch_is_refused(log: Log) -> None:
    log.produce(1, 0, epoch=2)
    assert log.commit(1, epoch=1) == EPOCH
    assert log.bounds == (0, 1, 0)


@pytest.mark.parametrize("with_data", [True, False], ids=["open", "empty"])
def test_a_former_coordinator_is_fenced_after_a_restart_too(log: Log, with_data: bool) -> None:
    assert log.marker(1, True, coordinator_epoch=5) == ""
    if with_data:
        log.produce(1, 0)
    log.restart()
    before = log.bounds
    assert log.marker(1, True, coordinator_epoch=4) == FENCED
    assert log.bounds == before
    assert log.marker(1, True, coordinator_epoch=5) == ""


def test_a_marker_with_a_new_epoch_makes_the_producer_begin_again(log: Log) -> None:
    log.produce(1, 0, 2)
    log.abort(1, epoch=1)
    assert log.produce(1, 2) == EPOCH
    assert log.produce(1, 2, epoch=1) == ORDER
    assert log.produce(1, 0, epoch=1) == 3


def test_a_marker_of_a_producer_that_is_not_known_makes_it_known(log: Log) -> None:
    assert log.abort(1, epoch=3) == ""
    assert log.bounds == (0, 1, 1) and log.index() == []
    assert log.produce(1, 0, epoch=2) == EPOCH
    assert log.produce(1, 1, epoch=3) == ORDER
    assert log.produce(1, 0, epoch=3) == 1


def test_only_aborts_with_data_are_in_the_index(log: Log) -> None:
    log.produce(1, 0)
    log.commit(1)
    log.abort(1)
    assert log.index() == []
    log.produce(1, 1, 2)
    log.abort(1)
    assert log.index() == [(1, 3, 5, 6)]


def test_the_index_holds_the_last_stable_offset_at_the_abort(log: Log) -> None:
    log.produce(1, 0)
    log.produce(2, 0)
    log.abort(2)
    log.abort(1)
    assert log.index() == [(2, 1, 2, 0), (1, 0, 3, 4)]


def test_version_1_writes_a_repeated_marker_again(log: Log) -> None:
    log.produce(1, 0)
    assert [log.abort(1), log.abort(1)] == ["", ""]
    assert log.bounds == (0, 3, 3)
    assert log.index() == [(1, 0, 1, 2)]


@pytest.mark.parametrize("version", [1, 2])
def test_a_numbered_marker_is_written_once_and_ends_no_later_transaction(version: int) -> None:
    log = Log(version)
    raised = version - 1
    log.produce(1, 0)
    assert log.marker(1, True, epoch=raised, number=1) == ""
    log.produce(1, 2 - version, epoch=raised)
    assert log.marker(1, True, epoch=raised, number=1) == ""
    assert log.bounds == (0, 3, 2)
    assert log.marker(1, False, epoch=2 * raised, number=2) == ""
    assert log.values() == ["1/0/0"]


def test_a_former_coordinators_marker_is_answered_if_it_is_written(log: Log) -> None:
    """It was sent before its coordinator restarted, and overtaken by the restarted coordinator's copy."""
    log.produce(1, 0)
    assert log.marker(1, True, coordinator_epoch=2, number=1) == ""
    assert log.marker(1, True, coordinator_epoch=1, number=1) == ""
    assert log.marker(1, True, coordinator_epoch=1, number=2) == FENCED
    assert log.bounds == (0, 2, 2)


def test_version_2_answers_a_repeated_marker_and_writes_nothing() -> None:
    log = Log(2)
    log.produce(1, 0)
    assert [log.abort(1, epoch=1), log.abort(1, epoch=1)] == ["", ""]
    assert log.bounds == (0, 2, 2)
    assert log.marker(1, False, epoch=1, coordinator_epoch=3) == ""
    assert log.bounds == (0, 2, 2)
    assert log.marker(1, False, epoch=1, coordinator_epoch=2) == FENCED, "it was seen none the less"


def test_a_late_batch_after_an_abort_hangs_the_partition_in_version_1(log: Log) -> None:
    log.produce(1, 0)
    log.abort(1)
    assert log.produce(1, 1) == 2, "nobody will end what this begins"
    log.plain(2, 0, 3)
    assert log.bounds == (0, 6, 2)
    assert log.values() == []
    assert log.abort(1) == "", "but a marker that an administrator forges"
    assert log.values() == ["2/0/0", "2/0/1", "2/0/2"]


def test_a_late_batch_after_an_abort_is_refused_in_version_2() -> None:
    log = Log(2)
    log.produce(1, 0)
    log.abort(1, epoch=1)
    assert log.produce(1, 1) == EPOCH
    assert log.bounds == (0, 2, 2)


def test_a_late_marker_ends_the_next_transaction_in_version_1(log: Log) -> None:
    log.produce(1, 0)
    log.commit(1)
    log.produce(1, 1)
    assert log.commit(1) == "", "the first transaction's, repeated"
    log.produce(1, 2)
    log.abort(1)
    assert log.values() == ["1/0/0", "1/0/1"], "the second one is torn"


def test_a_late_marker_ends_nothing_in_version_2() -> None:
    log = Log(2)
    log.produce(1, 0)
    log.commit(1, epoch=1)
    log.produce(1, 0, epoch=1)
    assert log.commit(1, epoch=1) == EPOCH, "the open transaction's own epoch ends nothing"
    assert log.stable == 2
    log.produce(1, 1, epoch=1)
    assert log.abort(1, epoch=2) == ""
    assert log.values() == ["1/0/0"]


def test_an_end_looks_at_no_row_of_an_earlier_transaction(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted rows stay in the store's memory until its next checkpoint: an end that passed them all would take
    longer with each transaction."""
    scan, begins = log.space.scan, []

    def noted(begin: bytes, end: bytes, **more: Any) -> list[tuple[bytes, Any]]:
        begins.append(begin)
        return scan(begin, end, **more)

    monkeypatch.setattr(log.space, "scan", noted)
    for n in range(3):
        stable = log.stable
        log.produce(1, n)
        log.commit(1)
        opened = [begin for begin in begins if begin[:1] == b"o"]
        assert opened[n:] == [b"o" + (stable + 1).to_bytes(8, "big")]
