"""The partition's log, rule by rule: offsets, the last stable one, markers, the index, trimming, the end."""

import pytest
from partition_kit import CLIENT, TABLET, Log

from planstep.proto.kafka import ABORT, COMMIT, Answer, DropPartition, Marked, TrimTo
from planstep.proto.messages import Clean
from planstep.tablets import kafka

ORDER, EPOCH, STATE = "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"
FENCED, GONE = "TRANSACTION_COORDINATOR_FENCED", "UNKNOWN_TOPIC_OR_PARTITION"


# data --------------------------------------------------------------------------------------


def test_data_lies_in_the_order_of_its_arrival_and_is_answered_with_its_offset() -> None:
    log = Log()
    assert [log.plain(1, 0, 3), log.produce(2, 0, 2), log.plain(1, 3)] == [0, 3, 5]
    assert log.bounds == (0, 6, 3)
    at, row = log.entries(3, 4)[0]
    assert at == 3 and row[2:] == (2, 2, 0, 0, 1)
    assert list(log.space.rows)[-1] == b"m", "what readers read first is put last"


def test_five_batches_are_known_again_and_the_sixth_is_not() -> None:
    log = Log()
    offsets = [log.plain(1, 2 * n, 2) for n in range(6)]
    assert [log.plain(1, 2 * n, 2) for n in range(1, 6)] == offsets[1:]
    assert log.plain(1, 0, 2) == ORDER
    assert log.bounds == (0, 12, 12)


def test_a_duplicate_is_known_again_after_a_restart() -> None:
    log = Log()
    log.produce(1, 0, 2)
    log.produce(1, 2, 2)
    log.restart()
    assert [log.produce(1, 0, 2), log.produce(1, 2, 2), log.produce(1, 4)] == [0, 2, 4]


def test_a_new_epoch_begins_at_0_and_shuts_the_old_one_out() -> None:
    log = Log()
    log.plain(1, 0, 2)
    assert log.plain(1, 2, epoch=1) == ORDER
    assert log.plain(1, 0, epoch=1) == 2
    assert log.plain(1, 2) == EPOCH
    assert log.plain(1, 0, 2) == EPOCH, "the window went with its epoch"


def test_sequences_go_on_across_transactions_of_one_epoch() -> None:
    log = Log()
    log.produce(1, 0, 2)
    log.commit(1)
    assert log.produce(1, 0, 2) == 0
    assert log.produce(1, 2) == 3


def test_plain_data_inside_a_transaction_is_refused() -> None:
    log = Log()
    log.produce(1, 0)
    assert log.plain(1, 1) == STATE
    log.commit(1)
    assert log.plain(1, 1) == 2


# the last stable offset --------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_the_earliest_open_transaction_fixes_the_last_stable_offset(commit: bool) -> None:
    log = Log()
    log.plain(9, 0)
    log.produce(1, 0)
    log.produce(2, 0)
    log.plain(9, 1)
    assert log.bounds == (0, 4, 1)
    log.marker(2, commit)
    assert log.bounds == (0, 5, 1), "it ended, behind one that is open"
    log.marker(1, commit)
    assert log.bounds == (0, 6, 6)


def test_the_last_stable_offset_goes_to_the_next_open_transaction() -> None:
    log = Log()
    for producer in (1, 2, 3):
        log.produce(producer, 0, 2)
    log.commit(2)
    log.commit(1)
    assert log.stable == 4
    log.abort(3)
    assert log.stable == 9


def test_a_repeated_batch_moves_nothing() -> None:
    log = Log()
    log.produce(1, 0)
    before = dict(log.space.rows)
    log.produce(1, 0)
    assert log.space.rows == before


def test_an_open_transaction_goes_on_after_a_restart() -> None:
    log = Log()
    log.plain(9, 0)
    log.produce(1, 0)
    log.restart()
    assert log.produce(1, 1) == 2
    assert log.stable == 1
    log.abort(1)
    assert log.bounds == (0, 4, 4) and log.index() == [(1, 1, 3, 4)]
    assert log.values() == ["9/0/0"]


# markers -----------------------------------------------------------------------------------


def test_a_marker_takes_an_offset_and_names_its_coordinators_epoch() -> None:
    log = Log()
    log.produce(1, 0)
    assert log.marker(1, True, coordinator_epoch=4) == ""
    assert log.entries(1, 2) == [(1, (0, 0, 1, 1, 0, -1, COMMIT, 4))]
    assert log.produce(1, 1) == 2
    assert log.marker(1, False, coordinator_epoch=4) == ""
    assert log.entries(3, 4) == [(3, (0, 0, 1, 1, 0, -1, ABORT, 4))]


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    log = Log()
    log.produce(1, 0, epoch=2)
    assert log.commit(1, epoch=1) == EPOCH
    assert log.bounds == (0, 1, 0)


@pytest.mark.parametrize("with_data", [True, False], ids=["open", "empty"])
def test_a_former_coordinator_is_fenced_after_a_restart_too(with_data: bool) -> None:
    log = Log()
    assert log.marker(1, True, coordinator_epoch=5) == ""
    if with_data:
        log.produce(1, 0)
    log.restart()
    before = log.bounds
    assert log.marker(1, True, coordinator_epoch=4) == FENCED
    assert log.bounds == before
    assert log.marker(1, True, coordinator_epoch=5) == ""


def test_a_marker_with_a_new_epoch_makes_the_producer_begin_again() -> None:
    log = Log()
    log.produce(1, 0, 2)
    log.abort(1, epoch=1)
    assert log.produce(1, 2) == EPOCH
    assert log.produce(1, 2, epoch=1) == ORDER
    assert log.produce(1, 0, epoch=1) == 3


def test_a_marker_of_a_producer_that_is_not_known_makes_it_known() -> None:
    log = Log()
    assert log.abort(1, epoch=3) == ""
    assert log.bounds == (0, 1, 1) and log.index() == []
    assert log.produce(1, 0, epoch=2) == EPOCH
    assert log.produce(1, 1, epoch=3) == ORDER
    assert log.produce(1, 0, epoch=3) == 1


def test_only_aborts_with_data_are_in_the_index() -> None:
    log = Log()
    log.produce(1, 0)
    log.commit(1)
    log.abort(1)
    assert log.index() == []
    log.produce(1, 1, 2)
    log.abort(1)
    assert log.index() == [(1, 3, 5, 6)]


def test_the_index_holds_the_last_stable_offset_at_the_abort() -> None:
    log = Log()
    log.produce(1, 0)
    log.produce(2, 0)
    log.abort(2)
    log.abort(1)
    assert log.index() == [(2, 1, 2, 0), (1, 0, 3, 4)]


def test_version_1_writes_a_repeated_marker_again() -> None:
    log = Log()
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


def test_a_former_coordinators_marker_is_answered_if_it_is_written() -> None:
    """Sent before its coordinator started again, and overtaken by the same from the new start."""
    log = Log()
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


def test_version_2_refuses_a_marker_of_the_open_transactions_own_epoch() -> None:
    log = Log(2)
    log.produce(1, 0)
    log.commit(1, epoch=1)
    log.produce(1, 0, epoch=1)
    assert log.commit(1, epoch=1) == EPOCH
    assert log.stable == 2
    assert log.commit(1, epoch=2) == ""


def test_a_late_batch_after_an_abort_hangs_the_partition_in_version_1() -> None:
    log = Log()
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


def test_a_late_marker_ends_the_next_transaction_in_version_1() -> None:
    log = Log()
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
    assert log.commit(1, epoch=1) == EPOCH
    log.produce(1, 1, epoch=1)
    log.abort(1, epoch=2)
    assert log.values() == ["1/0/0"]


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
def test_trimming_stops_at_the_last_stable_offset(offset: int, start: int) -> None:
    log = Log()
    log.plain(1, 0, 4)
    log.produce(2, 0, 4)
    assert log.trim(offset) == start
    assert log.bounds == (start, 8, 4)


def test_trimming_takes_the_index_along_up_to_the_marker() -> None:
    log = Log()
    log.produce(1, 0, 2)
    log.abort(1)
    log.produce(1, 2, 2)
    log.abort(1)
    assert log.trim(2) == 2 and len(log.index()) == 2, "its marker is still there"
    assert log.trim(3) == 3 and log.index() == [(1, 3, 5, 6)]
    assert log.trim(6) == 6 and log.index() == []
    assert log.bounds == (6, 6, 6) and not log.space.payloads


def test_trimming_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "TRIM_SLICES_MAX", 3)
    log = Log()
    for n in range(8):
        log.plain(1, 2 * n, 2)
    assert [log.trim(11), log.trim(11), log.trim(11)] == [6, 11, 11]


def test_a_trimmed_producer_is_still_known() -> None:
    log = Log()
    log.plain(1, 0, 2)
    log.trim(2)
    assert [log.plain(1, 0, 2), log.plain(1, 3), log.plain(1, 2)] == [0, ORDER, 2]


# forgetting producers ----------------------------------------------------------------------


def test_idle_producers_are_forgotten() -> None:
    log = Log()
    log.plain(1, 0, ms=1_000)
    log.plain(2, 0, ms=2_000)
    log.expire(2_000)
    assert log.state(1) is None and log.state(2) is not None
    assert log.plain(1, 7) == 2, "version 1 takes up where it is"
    assert log.plain(2, 7) == ORDER


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    log = Log()
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


def test_a_producer_known_by_markers_alone_is_forgotten_a_sweep_later() -> None:
    log = Log()
    log.abort(1)
    log.expire(5_000)
    assert log.state(1) is not None
    log.expire(5_000)
    assert log.state(1) is not None
    log.expire(5_001)
    assert log.state(1) is None


# the end -----------------------------------------------------------------------------------


def test_a_dropped_partition_takes_nothing() -> None:
    log = Log()
    log.produce(1, 0)
    log.tell(DropPartition())
    assert log.produce(1, 1) == GONE
    assert log.commit(1) == GONE
    assert log.tell(TrimTo(CLIENT, 3, 1)) == [Answer(3, TABLET, GONE)]
    assert log.bounds == (0, 1, 0)


def test_a_marker_for_a_dropped_partition_is_answered() -> None:
    log = Log()
    log.tell(DropPartition())
    assert log.commit(4, epoch=2) == GONE
    assert log.shell.sent[-1][1] == Marked(TABLET, "t", 4, 2, GONE)


def test_cleaning_takes_all_away_piece_by_piece() -> None:
    log = Log()
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


def test_cleaning_by_single_keys_keeps_the_drop() -> None:
    log = Log()
    log.plain(1, 0)
    log.tell(DropPartition())
    left = []
    for _ in range(6):
        left.append(len(log.space.rows))
        log.tablet.handle(Clean(1))
        assert b"x" in log.space.rows
    assert left == [4, 3, 2, 1, 1, 1]
