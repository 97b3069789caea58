"""Tests subscriptions whose log fails or waits, and what comes twice or late."""

import pytest
from buffer_kit import CLIENT, COORDINATOR, TABLET
from test_subscriptions import OK, REFUSED, Shared, T, U, filled

from planstep.proto.batched_log import BatchedLog
from planstep.proto.pulsar.messages import (
    DropPartition,
    Ended,
    EndTxnOnSubscription,
    SwitchLog,
)
from planstep.proto.shell import Answer, Wake


def test_a_log_that_fails_leaves_nothing_pending_and_later_ones_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled()
    with monkeypatch.context() as patch:
        patch.setattr(
            BatchedLog, "append", lambda self, record, done: done("PersistenceError", None)
        )
        assert log.ack((0, 1), txn=T) == "PersistenceError"
    assert log.pending() == {} and log.ack((0, 1), txn=T) == OK


def test_an_end_that_the_log_refuses_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled()
    log.ack((0, 1), txn=T)
    with monkeypatch.context() as patch:
        patch.setattr(
            BatchedLog, "append", lambda self, record, done: done("PersistenceError", None)
        )
        assert log.finish(T) == 0
    assert log.pending() == {0: T}
    assert log.finish(T) == 1 and log.cursor().position == 1


def test_an_end_that_comes_twice_while_it_waits_is_acknowledged_twice() -> None:
    log = filled(ack_log_batching=True)
    log.ack((0, 1), txn=T)
    assert log.finish(T) == 0 and log.finish(T) == 0
    assert log.pass_time(1).count(Ended(TABLET, *T, "s", "")) == 2
    assert log.cursor().position == 1


@pytest.mark.parametrize("commit", [True, False])
def test_an_acknowledgement_behind_an_end_that_waits_is_refused(commit: bool) -> None:
    """Else it would be pending until the mark passes it, although its transaction is over."""
    log = filled(ack_log_batching=True)
    log.ack((0, 1), txn=T)
    assert log.finish(T, commit) == 0
    assert log.ack((3, 4), txn=T) == REFUSED
    log.pass_time(1)
    assert log.pending() == {} and log.cursor().position == commit
    log.restart()
    assert log.ack((3, 4), txn=T) == REFUSED


def test_a_mark_that_passes_an_end_which_waits_does_not_end_it_otherwise() -> None:
    log = filled(ack_log_batching=True)
    log.ack((0, 1), txn=T)
    log.ack((1, 2), txn=U)
    log.pass_time(1)
    log.finish(T)
    log.finish((0, 9), mark=8)
    log.pass_time(1)
    assert log.cursor()[1:4] == (1, 0, ()) and log.pending() == {}


def test_a_switch_is_answered_to_a_client() -> None:
    log = filled()
    assert log.tell(SwitchLog(True, CLIENT, 70)) == [Answer(70, TABLET, "")]


def test_a_subscription_beyond_the_trimmed_start_stays_where_it_is() -> None:
    log = filled()
    log.ack_to(15, name="c")
    log.trim(10)
    assert log.cursor("c").position == 15 and log.cursor("s")[1:3] == (10, 10)


def test_what_was_aborted_since_is_passed_with_the_next_acknowledgement() -> None:
    log = Shared()
    log.subscribe()
    log.send("m")
    log.send("x y z", txn=T)
    log.ack((0, 1))
    log.abort(T)
    at = log.send("m")
    log.ack((at, at + 1))
    assert log.cursor()[1:4] == (at + 1, 0, ())


def test_a_position_within_an_aborted_batch() -> None:
    log = Shared()
    log.send("x y z", txn=T)
    log.abort(T)
    at = log.send("m")
    log.subscribe(position=1)
    assert log.tablet.buffer.next_shown(1) == at
    log.ack((at, at + 1))
    assert log.cursor().position == at + 1


def test_a_dropped_topic_does_no_delayed_work() -> None:
    log = filled(ack_log_batching=True)
    log.ack((0, 1), txn=T)
    log.tell(DropPartition())
    assert log.tell(Wake("flush", (b"ls\0", 0))) == []
    end = EndTxnOnSubscription(COORDINATOR, *T, True, -1, "s")
    assert log.tell(end) == [Ended(TABLET, *T, "s", "TopicNotFound")]
