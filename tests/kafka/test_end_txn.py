"""Tests the ends of transactions: EndTxn in every state, the answer at Prepare, pending ones. Then:
test_markers.py."""

from typing import Any

import pytest
from coordinator_kit import Coordinator, G, P, failing

from planstep.coordinator.kafka.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_MAX,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from planstep.proto.kafka.messages import Register

LAST = EPOCH_MAX - 1
C, F = "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED"
W, M = "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING"


@pytest.fixture
def c(c: Coordinator) -> Coordinator:
    c.init()
    return c


def version_1(state: int, epoch: int = 5) -> Coordinator:
    c = Coordinator()
    c.init()
    c.force(state=state, epoch=epoch, partitions=(P[0],), start_ms=0)
    return c


ENDED = "ended"

VERSION_1 = [
    # state, commit, abort
    (EMPTY, W, W),
    (ONGOING, ENDED, ENDED),
    (PREPARE_COMMIT, C, W),
    (PREPARE_ABORT, W, C),
    (COMPLETE_COMMIT, "", W),
    (COMPLETE_ABORT, W, ""),
]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state, on_commit, on_abort", VERSION_1)
def test_version_1_table(state: int, on_commit: str, on_abort: str, commit: bool) -> None:
    expected = on_commit if commit else on_abort
    c = version_1(state)
    error, value = c.end(0, 5, commit)
    assert error == ("" if expected == ENDED else expected)
    assert value == (None if error else (0, 5)), "the epoch stays"
    if expected == ENDED:
        state = PREPARE_COMMIT if commit else PREPARE_ABORT
    assert c.row().state == state


@pytest.mark.parametrize("state", [row[0] for row in VERSION_1])
def test_version_1_takes_the_very_epoch_only(state: int) -> None:
    c = version_1(state)
    assert c.end(0, 4)[0] == c.end(0, 6)[0] == F
    assert c.end(1, 5)[0] == M and c.end(0, 5, name="nobody")[0] == M


VERSION_2 = [
    # state, commit again, commit, abort again, abort: "again" with the epoch before the stored one
    (EMPTY, F, W, F, ENDED),
    (ONGOING, F, ENDED, F, ENDED),
    (PREPARE_COMMIT, C, C, W, C),
    (PREPARE_ABORT, F, C, C, C),
    (COMPLETE_COMMIT, "", W, W, ENDED),
    (COMPLETE_ABORT, F, W, "", ENDED),
]


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("row", VERSION_2)
def test_version_2_table(row: Any, commit: bool, again: bool) -> None:
    state, commit_again, commit_now, abort_again, abort_now = row
    expected = (commit_again, commit_now, abort_again, abort_now)[2 * (not commit) + (not again)]
    c = version_1(state)
    error, value = c.end(0, 4 if again else 5, commit, version=2)
    assert error == ("" if expected == ENDED else expected)
    if expected == ENDED:
        assert value == (0, 6) and (c.row().epoch, c.row().last_epoch) == (6, 5)
        assert c.row().state == (PREPARE_COMMIT if commit else PREPARE_ABORT)
    else:
        assert value == (None if error else (0, 5)) and c.row().state == state


@pytest.mark.parametrize("state", [row[0] for row in VERSION_2])
def test_version_2_takes_the_epoch_and_the_one_before(state: int) -> None:
    c = version_1(state)
    assert c.end(0, 3, version=2)[0] == c.end(0, 6, version=2)[0] == F
    assert c.end(1, 5, version=2)[0] == M


def test_the_answer_comes_at_prepare_and_the_markers_after_it_is_durable(c: Coordinator) -> None:
    c.add(0, 0, P[0], P[1])
    c.add_offsets(0, 0)
    assert c.end(0, 0) == ("", (0, 0)) and c.row().state == PREPARE_COMMIT
    markers = c.markers()
    assert sorted(c.targets) == sorted((P[0], P[1], G))
    marker = markers[0]
    assert (marker.source, marker.name, marker.commit) == (c.tablet.id, "a", True)
    assert (marker.producer, marker.epoch, marker.coordinator_epoch) == (0, 0, c.shell.epoch)
    assert c.add(0, 0) == (C, None), "until all is complete"
    c.mark(marker, P[0])
    c.mark(marker, P[1])
    assert c.row().state == PREPARE_COMMIT and c.unacknowledged() == (G,)
    c.mark(marker, G)
    assert (c.row().state, c.row().partitions) == (COMPLETE_COMMIT, ())
    assert c.add(0, 0) == ("", None)


def test_an_end_while_the_former_is_torn_down_is_no_empty_success(c: Coordinator) -> None:
    c.add(0, 0)
    c.end(0, 0)
    assert c.end(0, 0)[0] == C
    c.mark_all()
    assert c.end(0, 0) == ("", (0, 0))


def test_a_late_end_commits_a_later_transaction_in_version_1(c: Coordinator) -> None:
    """Version 1 allows this, so it is asserted: the torn transaction that Jepsen found."""
    c.add(0, 0)
    c.end(0, 0)
    c.mark_all()
    c.add(0, 0, P[1])  # the next transaction, under the same epoch
    assert c.end(0, 0) == ("", (0, 0)), "the first one's repeat"
    (marker,) = c.markers()
    assert c.targets == [P[1]] and marker.commit


def test_a_late_end_harms_no_later_transaction_in_version_2() -> None:
    c = Coordinator(protocol_version=2)
    c.init()
    c.tablet.handle(Register(P[0], "a", 0, 0))
    assert c.end(0, 0, version=2) == ("", (0, 1))
    c.mark_all()
    c.tablet.handle(Register(P[1], "a", 0, 1))
    assert c.end(0, 0, version=2) == (F, None) and c.row().state == ONGOING


def test_version_2_ends_what_has_no_partition_at_once(c: Coordinator) -> None:
    assert c.end(0, 0, commit=False, version=2) == ("", (0, 1))
    assert not c.markers() and c.row().state == COMPLETE_ABORT
    assert c.row().start_ms == c.shell.now_ms
    assert c.end(0, 1, commit=False, version=2) == ("", (0, 2))
    assert not c.tablet.markers.ending


def test_version_2_markers_carry_the_raised_epoch(c: Coordinator) -> None:
    c.add(0, 0)
    c.end(0, 0, version=2)
    (marker,) = c.markers()
    assert (marker.epoch, marker.version) == (1, 2)


def test_versions_up_and_down_between_transactions(c: Coordinator) -> None:
    epoch = 0
    for version in (1, 2, 2, 1, 2, 1):
        assert c.add(0, epoch) == ("", None)
        assert c.end(0, epoch, version=version) == ("", (0, epoch + version - 1))
        c.mark_all()
        epoch += version - 1
        assert c.row().state == COMPLETE_COMMIT and c.row().version == version


def test_version_2_out_of_epochs_gives_the_next_producer_with_the_answer(c: Coordinator) -> None:
    c.force(epoch=LAST)
    c.add(0, LAST)
    assert c.end(0, LAST, version=2) == ("", (1, 0))
    assert c.end(0, LAST, version=2)[0] == C, "the same again"
    assert c.end(1, 0, commit=False, version=2)[0] == C, "not fenced by itself (KAFKA-18660)"
    assert c.add(1, 0)[0] == C
    (marker,) = c.markers()
    assert (marker.producer, marker.epoch) == (0, EPOCH_MAX)
    c.mark(marker, P[0])
    row = c.row()
    assert (row.state, row.producer, row.epoch, row.previous) == (COMPLETE_COMMIT, 1, 0, 0)
    assert c.end(0, LAST, version=2) == ("", (1, 0)), "the same again, once complete"
    assert c.end(0, LAST, commit=False, version=2)[0] == W
    assert c.add(1, 0) == ("", None)
    assert c.end(0, LAST, version=2)[0] == F, "too late: the next transaction is open"


def test_a_delayed_end_behind_a_fence_out_of_epochs() -> None:
    """KAFKA-20090: late messages must not leave the id Ongoing."""
    c = Coordinator(protocol_version=2)
    c.init()
    c.force(epoch=LAST)
    c.tablet.handle(Register(P[0], "a", 0, LAST))
    assert c.init()[0] == C
    assert c.end(0, LAST, version=2) == (F, None)
    c.mark_all()
    assert (c.row().producer, c.row().epoch, c.row().state) == (1, 0, COMPLETE_ABORT)
    assert c.end(0, LAST, version=2) == (F, None)
    assert c.end(0, LAST, commit=False, version=2) == ("", (1, 0))


def test_an_epoch_at_its_maximum_can_still_be_aborted() -> None:
    c = Coordinator(protocol_version=2)
    c.init()
    c.force(state=ONGOING, epoch=EPOCH_MAX, partitions=(P[0],), start_ms=0)
    c.shell.now_ms += 100_000
    c.scan()
    (marker,) = c.markers()
    assert marker.epoch == EPOCH_MAX
    c.mark(marker, P[0])
    assert (c.row().epoch, c.row().state) == (0, COMPLETE_ABORT)


# pending transactions ------------------------------------------------------------------------


def test_what_is_pending_blocks_everything_else() -> None:
    c = Coordinator(log_batching=True)
    log = c.tablet.rows.log
    assert c.init() is None
    assert c.init()[0] == C and c.add(0, 0)[0] == C and c.end(0, 0)[0] == C
    log.flush()
    assert c.answer(1).value == (0, 0)
    assert c.add(0, 0) is None
    assert c.add(0, 0)[0] == C and c.init()[0] == C and c.end(0, 0)[0] == C
    assert c.end(0, 0, version=2)[0] == C
    log.flush()
    assert c.row().state == ONGOING
    assert c.end(0, 0) is None and not c.markers(), "nobody hears of what is not in the log"
    assert c.end(0, 0, commit=False)[0] == C and c.row().state == ONGOING
    log.flush()
    assert c.row().state == PREPARE_COMMIT
    c.mark_all()
    assert c.row().state == PREPARE_COMMIT and c.init()[0] == C
    log.flush()
    assert c.row().state == COMPLETE_COMMIT and not c.tablet.rows.pending


def test_many_ids_share_an_append_and_each_has_its_answer() -> None:
    c = Coordinator(log_batching=True)
    for n in range(20):
        c.shell.cause = n
        assert c.init(f"id {n}") is None
    c.shell.cause = None
    c.wait(1, only="flush")
    assert c.keys.rows[b"L"] == 1
    assert [s.cause for s in c.shell.sent] == list(range(20))
    assert [s.message.value for s in c.shell.sent] == [(n, 0) for n in range(20)]


@pytest.mark.parametrize(
    "error, expected",
    [
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE"),
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
        ("REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "MESSAGE_TOO_LARGE"),
    ],
)
def test_an_append_that_fails_changes_nothing_and_blocks_nobody(
    c: Coordinator, error: str, expected: str
) -> None:
    c.add(0, 0)
    before = c.row()
    for ask in (lambda: c.init("b"), lambda: c.add(0, 0, P[1]), lambda: c.end(0, 0)):
        failing(c, error)
        assert ask() == (expected, None)
        assert c.row() == before and c.row("b") is None and not c.tablet.rows.pending
    assert not c.markers()
    assert c.end(0, 0)[0] == ""


def test_another_coordinator_meanwhile() -> None:
    c = Coordinator(log_batching=True)
    c.init()
    c.shell.epoch += 1  # before the callback
    c.tablet.rows.log.flush()
    assert c.answer(1).error == "NOT_COORDINATOR" and c.row() is None


def test_a_turn_that_is_taken_back(c: Coordinator) -> None:
    c.add(0, 0)
    rows, mark = dict(c.keys.rows), c.tablet.mark()
    c.end(0, 0)
    c.init("b")
    failing(c, "NOT_ENOUGH_REPLICAS")
    c.init("c")
    c.keys.rows, c.shell.sent, c.shell.timers = rows, [], []
    c.tablet.undo(mark)
    assert not c.tablet.markers.ending and not c.tablet.rows.pending
    assert c.init("b")[1] == (1, 0), "the producer id was given to nobody"
    assert c.end(0, 0)[0] == "" and len(c.shell.timers) == 1
