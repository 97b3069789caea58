"""Tests a transaction coordinator's recovery from every state when its host starts again."""

import pytest
from coordinator_kit import Coordinator, P

from planstep.coordinator.kafka.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from planstep.proto.kafka.messages import Marked


def stopped_in(state: int, version: int = 1, batching: bool = False) -> Coordinator:
    """Returns a coordinator whose id `a` reached this state normally before its host ended."""
    c = Coordinator(protocol_version=version, log_batching=batching)
    log = c.tablet.rows.log
    c.init()
    log.flush()
    if state != EMPTY:
        c.add(0, 0, P[0], P[1])
        log.flush()
    if state not in (EMPTY, ONGOING):
        c.end(0, 0, state in (PREPARE_COMMIT, COMPLETE_COMMIT), version)
        log.flush()
    if state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        c.mark_all()
        log.flush()
    assert c.row().state == state
    c.restart()
    return c


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_states_without_a_decision_are_left_alone(state: int, version: int, batching: bool) -> None:
    c = stopped_in(state, version, batching)
    assert not c.markers() and c.row().state == state
    assert sorted(wake.what for _, wake in c.shell.timers) == ["expire", "scan"]


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_a_decision_is_brought_to_its_end(state: int, version: int, batching: bool) -> None:
    c = stopped_in(state, version, batching)
    markers = c.markers()
    assert c.targets == [P[0], P[1]]
    assert {m.commit for m in markers} == {state == PREPARE_COMMIT}
    assert {(m.epoch, m.version) for m in markers} == {(version - 1, version)}
    assert {m.coordinator_epoch for m in markers} == {2}, "higher: a former coordinator is fenced"
    for marker, tablet in zip(markers, c.targets, strict=True):
        c.mark(marker, tablet)
    c.tablet.rows.log.flush()
    assert c.row().state == (COMPLETE_COMMIT if state == PREPARE_COMMIT else COMPLETE_ABORT)


def test_markers_acknowledged_before_are_sent_again() -> None:
    c = Coordinator()
    c.init()
    c.add(0, 0, P[0], P[1])
    c.end(0, 0)
    marker = c.markers()[0]
    c.mark(marker, P[0])
    c.restart()
    c.markers()
    assert c.targets == [P[0], P[1]], "who acknowledged is known in memory only"
    c.mark(marker, P[0])  # late, and to the former host: the same answer
    assert c.unacknowledged() == (P[1],)


def test_all_acknowledged_but_complete_not_logged() -> None:
    c = Coordinator(log_batching=True)
    for ask in (c.init, lambda: c.add(0, 0), lambda: c.end(0, 0)):
        ask()
        c.tablet.rows.log.flush()
    c.mark_all()
    assert c.tablet.rows.log.buffered == 1
    c.restart()
    assert c.row().state == PREPARE_COMMIT and len(c.markers()) == 1


def test_an_ongoing_transaction_goes_on_after_the_restart() -> None:
    c = stopped_in(ONGOING)
    assert c.add(0, 0, P[2]) == ("", None)
    assert c.end(0, 0) == ("", (0, 0))
    c.mark_all()
    assert c.row().state == COMPLETE_COMMIT


def test_an_ongoing_transaction_times_out_after_the_restart() -> None:
    c = stopped_in(ONGOING)
    c.wait(70_001)
    assert c.row().state == PREPARE_ABORT and c.row().epoch == 1


def test_what_was_buffered_never_happened_and_blocks_nobody() -> None:
    c = Coordinator(log_batching=True)
    c.init()
    c.tablet.rows.log.flush()
    c.add(0, 0)
    c.restart()
    assert c.row().state == EMPTY and not c.tablet.rows.pending
    assert c.add(0, 0) is None
    c.tablet.rows.log.flush()
    assert c.row().state == ONGOING


def test_the_end_of_version_2_is_answered_again_after_the_restart() -> None:
    c = stopped_in(COMPLETE_COMMIT, version=2)
    assert c.end(0, 0, version=2) == ("", (0, 1))


def test_many_restarts_raise_the_coordinator_epoch_each_time() -> None:
    c = stopped_in(PREPARE_ABORT)
    for epoch in (3, 4, 5):
        c.restart()
        assert {m.coordinator_epoch for m in c.markers()} == {epoch}


def test_an_abort_of_nothing_found_half_done_is_completed() -> None:
    c = Coordinator()
    c.init()
    c.force(state=PREPARE_ABORT, version=2, epoch=1)
    c.restart()
    assert c.row().state == COMPLETE_ABORT


def test_a_late_acknowledgement_ends_no_open_transaction() -> None:
    c = stopped_in(ONGOING)
    c.tablet.handle(Marked(P[0], "a", 0, 0, ""))
    c.tablet.handle(Marked(P[1], "a", 0, 0, ""))
    assert c.row().state == ONGOING and c.row().partitions == (P[0], P[1])
