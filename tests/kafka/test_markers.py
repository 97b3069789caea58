"""Tests that markers of ended transactions are sent until every partition has acknowledged them or is gone."""

from typing import Any

import pytest
from coordinator_kit import CLIENT, Coordinator, P, T, failing

from planstep.coordinator.kafka.states import COMPLETE_COMMIT, PREPARE_COMMIT
from planstep.host.host import Host
from planstep.host.inputs import Deliver
from planstep.proto.kafka.messages import AddPartitions, EndTxn, InitProducer, Marker
from planstep.proto.shell import Wake
from planstep.store import MemoryStore


@pytest.fixture
def c(c: Coordinator) -> Coordinator:
    c.init()
    return c


def prepared(c: Coordinator, *partitions: int) -> None:
    c.add(0, 0, *partitions)
    c.end(0, 0)


def test_markers_are_sent_again_until_they_are_acknowledged(c: Coordinator) -> None:
    prepared(c, P[0], P[1])
    (marker, _) = c.markers()
    c.mark(marker, P[1])
    for _ in range(3):
        c.wait(100)
        assert c.markers() == [marker] and c.targets == [P[0]]
    c.mark(marker, P[0])
    c.wait(1_000)
    assert not c.markers() and not c.shell.timers, "a coordinator at rest wakes nobody"


def test_what_is_sent_again_counts_for_the_transaction_that_it_ends(c: Coordinator) -> None:
    c.shell.cause = "a"
    prepared(c)
    c.init("b")
    c.shell.cause = "b"
    c.add(1, 0, name="b")
    c.end(1, 0, name="b")
    c.markers()
    c.shell.cause = "the timer"
    c.wait(100)
    sent = [(s.message.name, s.cause) for s in c.shell.sent if isinstance(s.message, Marker)]
    assert sent == [("a", "a"), ("b", "b")] and c.shell.cause == "the timer"


def test_one_timer_serves_all(c: Coordinator) -> None:
    prepared(c)
    c.init("b")
    c.shell.now_ms += 60
    c.add(1, 0, name="b")
    c.end(1, 0, name="b")
    c.markers()
    assert len(c.shell.timers) == 1
    c.wait(40)
    assert [m.name for m in c.markers()] == ["a"], "the other was sent 40 ms ago only"
    c.wait(60)
    assert [m.name for m in c.markers()] == ["b"]


@pytest.mark.parametrize(
    "error", ["COORDINATOR_LOAD_IN_PROGRESS", "KAFKA_STORAGE_ERROR", "NOT_COORDINATOR"]
)
def test_other_errors_are_tried_again(c: Coordinator, error: str) -> None:
    prepared(c)
    (marker,) = c.markers()
    c.mark(marker, P[0], error)
    assert c.unacknowledged() == (P[0],)
    c.wait(100)
    assert c.markers() == [marker]


def test_a_dropped_partition_is_not_waited_for(c: Coordinator) -> None:
    prepared(c, P[0], P[1])
    marker = c.markers()[0]
    c.mark(marker, P[0])
    c.mark(marker, P[1], "UNKNOWN_TOPIC_OR_PARTITION")
    assert c.row().state == COMPLETE_COMMIT


@pytest.mark.parametrize("error", ["INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED"])
def test_fenced_markers_are_cancelled_until_the_next_start(c: Coordinator, error: str) -> None:
    prepared(c)
    (marker,) = c.markers()
    c.mark(marker, P[0], error)
    c.wait(1_000)
    assert not c.markers() and c.row().state == PREPARE_COMMIT
    c.restart()
    assert [m.coordinator_epoch for m in c.markers()] == [2]


def test_acknowledgements_twice_late_or_foreign_do_nothing(c: Coordinator) -> None:
    prepared(c)
    (marker,) = c.markers()
    c.mark(marker, P[3])
    marker.epoch += 1
    c.mark(marker, P[0])
    assert c.row().state == PREPARE_COMMIT
    marker.epoch -= 1
    c.mark(marker, P[0])
    entries = c.keys.rows[b"L"]
    c.mark(marker, P[0])
    marker.name = "nobody"
    c.mark(marker, P[0])
    assert c.keys.rows[b"L"] == entries, "complete is written once"


def test_a_repeated_acknowledgement_does_not_count_for_the_next_transaction(
    c: Coordinator,
) -> None:
    prepared(c)
    (first,) = c.markers()
    c.mark(first, P[0])
    prepared(c)
    (second,) = c.markers()
    assert (first.producer, first.epoch) == (second.producer, second.epoch)
    c.mark(first, P[0])
    assert c.row().state == PREPARE_COMMIT, "the partition may not have seen this one's marker"
    c.restart()
    assert c.markers()[0].number == second.number
    c.mark(second, P[0])
    assert c.row().state == COMPLETE_COMMIT


def test_a_complete_that_cannot_be_logged_is_tried_again(c: Coordinator) -> None:
    prepared(c)
    failing(c, "NOT_ENOUGH_REPLICAS")
    c.mark_all()
    assert c.row().state == PREPARE_COMMIT and c.unacknowledged() == ()
    c.wait(100)
    assert c.row().state == COMPLETE_COMMIT and not c.markers()


@pytest.mark.parametrize("rtt_ms", [0.0, 300.0])
def test_markers_are_not_sent_again_before_an_answer_can_be_there(rtt_ms: float) -> None:
    host = Host(0, MemoryStore(), mode="kafka", separate=True, rtt_ms=rtt_ms)
    requests: list[Any] = [
        InitProducer(CLIENT, 1, "a", 60_000),
        AddPartitions(CLIENT, 2, "a", 0, 0, (P[0],)),
        EndTxn(CLIENT, 3, "a", 0, 0, True),
    ]
    put_off = [
        later for one in requests for later in host.run([Deliver(T, one)], 1_000_000).delayed
    ]
    waits = [later.delay_ms for later in put_off if later.deliver.message == Wake("markers")]
    assert waits == [100 + rtt_ms]
