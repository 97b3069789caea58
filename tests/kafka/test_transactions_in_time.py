"""Tests transactions and ids that are too old: aborted and fenced, or forgotten."""

import pytest
from coordinator_kit import Coordinator, P, failing

from planstep.coordinator.kafka.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATE_NAMES,
)

CONCURRENT, FENCED = ("CONCURRENT_TRANSACTIONS", None), ("PRODUCER_FENCED", None)
UNMAPPED = ("INVALID_PRODUCER_ID_MAPPING", None)


# time-outs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_is_too_old_is_aborted_and_fenced(version: int) -> None:
    c = Coordinator(protocol_version=version)
    c.tablet.begin()
    c.init(timeout_ms=15_000)
    c.add(0, 0)
    c.wait(15_000)
    assert c.row().state == ONGOING
    c.wait(5_001)
    (marker, *_) = c.markers()
    assert (marker.commit, marker.epoch, marker.version) == (False, 1, version)
    assert c.end(0, 0, version=version) == FENCED
    c.mark(marker, P[0])
    assert c.row().state == COMPLETE_ABORT and c.row().epoch == 1
    assert c.end(0, 0, version=version) == FENCED, "a commit that comes too late (KAFKA-20785)"


def test_in_version_2_the_aborted_producer_may_go_on(c: Coordinator) -> None:
    c = Coordinator(protocol_version=2)
    c.init(timeout_ms=1)
    c.add(0, 0)
    c.shell.now_ms += 10
    c.scan()
    c.mark_all()
    assert c.end(0, 0, commit=False, version=2) == ("", (0, 1))


def test_only_ongoing_transactions_time_out(c: Coordinator) -> None:
    for state in (EMPTY, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT):
        c.init(STATE_NAMES[state], timeout_ms=1)
        c.force(STATE_NAMES[state], state=state, start_ms=0)
    rows = dict(c.keys.rows)
    c.shell.now_ms += 1_000_000
    c.scan()
    assert c.keys.rows == rows


def test_the_scan_skips_what_is_pending() -> None:
    c = Coordinator(log_batching=True)
    c.init(timeout_ms=1)
    c.tablet.rows.log.flush()
    c.add(0, 0)
    c.tablet.rows.log.flush()
    c.shell.now_ms += 10
    assert c.end(0, 0) is None
    c.scan()
    c.tablet.rows.log.flush()
    assert c.row().state == PREPARE_COMMIT and c.row().epoch == 0


def test_a_fence_that_cannot_be_logged_raises_the_epoch_only_once(c: Coordinator) -> None:
    c.init(timeout_ms=1)
    c.add(0, 0)
    c.shell.now_ms += 10
    for _ in range(3):
        failing(c, "NOT_ENOUGH_REPLICAS")
        c.scan()
        assert (c.row().state, c.row().epoch) == (ONGOING, 1)
    assert c.end(0, 0) == FENCED
    c.scan()
    assert (c.row().state, c.row().epoch) == (PREPARE_ABORT, 1)
    c.mark_all()
    assert c.init() == ("", (0, 2)) and not c.tablet.rows.failed


def test_an_init_whose_fence_fails_tells_the_error(c: Coordinator) -> None:
    c.init()
    c.add(0, 0)
    failing(c, "NOT_ENOUGH_REPLICAS")
    assert c.init() == ("COORDINATOR_NOT_AVAILABLE", None)
    assert c.init() == CONCURRENT and c.row().epoch == 1


# expiry ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_ids_expire_when_nothing_is_open(state: int) -> None:
    c = Coordinator(transactional_id_expiration_ms=7_200_000)
    c.tablet.begin()
    c.init()
    c.force(state=state)
    c.wait(3_700_000)
    assert c.row() is not None
    c.wait(3_600_000)
    assert c.row() is None, "forgotten within an hour of its time"
    assert c.add(0, 0) == UNMAPPED
    assert c.init() == ("", (1, 0)), "a new producer id"


@pytest.mark.parametrize("state", [ONGOING, PREPARE_COMMIT, PREPARE_ABORT])
def test_ids_with_an_open_transaction_do_not_expire(state: int) -> None:
    c = Coordinator(transactional_id_expiration_ms=1, protocol_version=2)
    c.init(timeout_ms=900_000)
    c.force(state=state)
    c.shell.now_ms += 100
    c.tablet._expire()
    assert c.row().state == state


def test_an_expiry_that_is_buffered_blocks_who_comes_meanwhile() -> None:
    c = Coordinator(transactional_id_expiration_ms=1, log_batching=True)
    c.init()
    c.tablet.rows.log.flush()
    c.shell.now_ms += 100
    c.tablet._expire()
    assert c.init() == CONCURRENT
    c.tablet.rows.log.flush()
    assert c.row() is None
