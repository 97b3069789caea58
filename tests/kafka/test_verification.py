"""Tests version 2: a partition asks the coordinator before a transaction's first batch, and other events
intervene."""

from typing import Any

import pytest
from partition_kit import CLIENT, COORDINATOR, EPOCH, ORDER, STATE, TABLET, Log

from planstep.proto.kafka.messages import DropPartition, Register
from planstep.proto.shell import Answer


@pytest.fixture
def log() -> Log:
    """A partition whose requests are of version 2."""
    return Log(2)


def held(log: Log, sequence: int, epoch: int = 0, **more: Any) -> int:
    """Sends a batch that is held while the coordinator is asked; returns the request's number."""
    request = log.request(1, sequence, epoch=epoch, **more)
    assert log.tell(request) == [Register(TABLET, "t", 1, epoch)]
    assert log.shell.sent[-1].target == COORDINATOR
    return request.request


def answers(sent: list[Any]) -> list[tuple[int, str | int]]:
    assert all(type(item) is Answer and item.tablet == TABLET for item in sent)
    return [(item.request, item.error or item.value) for item in sent]


def test_the_first_batch_is_held_until_its_coordinator_has_answered(log: Log) -> None:
    first = held(log, 0)
    assert log.bounds == (0, 0, 0) and not log.space.rows, "in memory only"
    assert answers(log.tell(log.registered(1))) == [(first, 0)]
    assert log.bounds == (0, 1, 0)


def test_inside_the_transaction_nothing_is_asked(log: Log) -> None:
    log.produce(1, 0)
    request = log.request(1, 1)
    assert answers(log.tell(request)) == [(request.request, 1)]


def test_the_next_transaction_is_asked_about_again(log: Log) -> None:
    log.produce(1, 0)
    log.commit(1, epoch=1)
    held(log, 0, epoch=1)


def test_another_epoch_is_asked_about_inside_a_transaction(log: Log) -> None:
    log.produce(1, 0)
    held(log, 0, epoch=1)


def test_data_outside_transactions_is_never_held() -> None:
    assert Log(2).plain(1, 0) == 0


def test_version_1_asks_nobody() -> None:
    log = Log(1)
    assert log.produce(1, 0) == 0
    assert all(type(sent.message) is Answer for sent in log.shell.sent)


def test_several_that_are_held_are_appended_in_the_order_of_their_sequences(log: Log) -> None:
    late, first, last = held(log, 1), held(log, 0), held(log, 2)
    assert answers(log.tell(log.registered(1))) == [(first, 0), (late, 1), (last, 2)]


def test_a_batch_that_is_held_twice_is_written_once(log: Log) -> None:
    once, again = held(log, 0), held(log, 0)
    assert answers(log.tell(log.registered(1))) == [(once, 0), (again, 0)]
    assert log.tell(log.registered(1)) == [], "the second question's answer finds nobody"
    assert log.bounds == (0, 1, 0)


def test_a_held_batch_that_is_not_the_first_is_out_of_order(log: Log) -> None:
    request = held(log, 3)
    assert answers(log.tell(log.registered(1))) == [(request, ORDER)]
    assert log.bounds == (0, 0, 0), "and opens nothing"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
        ("INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_ID_MAPPING"),
        ("TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE"),
        ("NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_ENOUGH_REPLICAS"),
    ],
)
def test_an_error_goes_to_all_that_are_held(log: Log, error: str, expected: str) -> None:
    first, second = held(log, 0), held(log, 1)
    assert answers(log.tell(log.registered(1, error=error))) == [
        (first, expected),
        (second, expected),
    ]
    assert log.bounds == (0, 0, 0)
    held(log, 0)


def concurrent(log: Log) -> list[Any]:
    return log.tell(log.registered(1, error="CONCURRENT_TRANSACTIONS"))


def test_the_coordinator_is_asked_again_while_the_transaction_before_ends(log: Log) -> None:
    """add.partitions.to.txn.retry.backoff.ms and .max.ms: the broker retries, in place of the client."""
    requests = [held(log, 0), held(log, 1)]
    for _ in range(5):
        assert concurrent(log) == []
        assert concurrent(log) == [], "the answer to the second question"
        assert log.woken() == (20, [Register(TABLET, "t", 1, 0)])
    refusals = [(request, "CONCURRENT_TRANSACTIONS") for request in requests]
    assert answers(concurrent(log)) == refusals, "100 ms are over: the client asks again"
    assert log.bounds == (0, 0, 0)
    again = held(log, 0)
    assert concurrent(log) == []
    log.woken()
    assert answers(log.tell(log.registered(1))) == [(again, 0)]


def test_who_asks_again_may_have_been_let_go(log: Log) -> None:
    request = held(log, 0)
    assert concurrent(log) == []
    assert answers(log.tell(log.registered(1))) == [(request, 0)], (
        "a late answer to another question"
    )
    assert log.woken() == (20, [])
    log.commit(1, epoch=1)
    held(log, 0, epoch=1)
    log.tell(log.registered(1, 1, error="CONCURRENT_TRANSACTIONS"))
    log.restart()
    assert log.woken() == (20, [])


def test_without_a_longest_time_the_client_asks_again() -> None:
    log = Log(2, add_partitions_backoff_max_ms=0)
    request = held(log, 0)
    assert answers(concurrent(log)) == [(request, "CONCURRENT_TRANSACTIONS")]


def test_the_last_wait_is_what_is_left() -> None:
    log = Log(2, add_partitions_backoff_max_ms=30)
    held(log, 0)
    waits = []
    while not concurrent(log):
        waits.append(log.woken()[0])
    assert waits == [20, 10]


def test_a_marker_in_between_lets_go_what_is_held(log: Log) -> None:
    request = log.request(1, 0)
    log.tell(request)
    assert log.abort(1, epoch=1) == ""
    assert answers([log.shell.sent[0].message]) == [(request.request, STATE)]
    assert log.tell(log.registered(1)) == []
    assert log.bounds == (0, 1, 1)


def test_held_again_behind_the_marker_the_old_answer_helps_nobody(log: Log) -> None:
    held(log, 0)
    log.abort(1, epoch=1)
    again = held(log, 0)
    assert answers(log.tell(log.registered(1))) == [(again, EPOCH)]
    assert log.bounds == (0, 1, 1)


def test_a_repeated_marker_of_the_transaction_before_leaves_what_is_held(log: Log) -> None:
    log.produce(1, 0)
    log.commit(1, epoch=1)
    request = held(log, 0, epoch=1)
    assert log.commit(1, epoch=1) == ""
    assert answers(log.tell(log.registered(1, 1))) == [(request, 2)]


def test_the_marker_of_the_transaction_before_leaves_what_is_held(log: Log) -> None:
    """Its producer was allowed to go on at Prepare, and was faster than the marker."""
    log.produce(1, 0)
    request = held(log, 0, epoch=1)
    assert log.commit(1, epoch=1) == ""
    assert answers(log.tell(log.registered(1, 1))) == [(request, 2)]
    assert log.bounds == (0, 3, 2)


def test_a_refused_marker_leaves_what_is_held(log: Log) -> None:
    log.produce(1, 0, epoch=4)
    log.commit(1, epoch=5)
    request = held(log, 0, epoch=5)
    assert log.abort(1, epoch=3) == EPOCH
    assert answers(log.tell(log.registered(1, 5))) == [(request, 2)]


def test_another_producers_marker_leaves_what_is_held(log: Log) -> None:
    request = held(log, 0)
    log.abort(2, epoch=1)
    assert answers(log.tell(log.registered(1))) == [(request, 1)]


def test_a_later_epoch_takes_the_place_of_what_is_held(log: Log) -> None:
    old = held(log, 0)
    new = log.request(1, 0, epoch=1)
    assert log.tell(new) == [Answer(old, TABLET, EPOCH), Register(TABLET, "t", 1, 1)]
    assert log.tell(log.registered(1, 0)) == []
    assert answers(log.tell(log.registered(1, 1))) == [(new.request, 0)]


def test_an_earlier_epoch_is_refused_beside_what_is_held(log: Log) -> None:
    held(log, 0, epoch=1)
    late = log.request(1, 0)
    assert answers(log.tell(late)) == [(late.request, EPOCH)]


def test_a_restart_forgets_what_is_held_and_the_client_asks_again(log: Log) -> None:
    held(log, 0)
    log.restart()
    assert log.tell(log.registered(1)) == []
    assert log.produce(1, 0) == 0


def test_a_turn_that_is_undone_takes_back_what_is_held(log: Log) -> None:
    first = held(log, 0)
    mark = log.tablet.mark()
    held(log, 1)
    log.tablet.undo(mark)
    assert answers(log.tell(log.registered(1))) == [(first, 0)]
    log.tablet.undo(mark)
    assert answers(log.tell(log.registered(1))) == [(first, 0)], "held again, and a duplicate now"


def test_dropping_lets_go_what_is_held(log: Log) -> None:
    request = held(log, 0)
    assert answers(log.tell(DropPartition())) == [(request, "UNKNOWN_TOPIC_OR_PARTITION")]
    assert log.tell(log.registered(1)) == []


def test_what_is_held_too_long_is_let_go(log: Log) -> None:
    request = held(log, 0, ms=1_000)
    assert log.expire(1_000) == []
    assert answers(log.expire(1_001)) == [(request, "REQUEST_TIMED_OUT")]
    assert log.tell(log.registered(1)) == []


def test_what_goes_on_does_so_for_its_own_sake(log: Log) -> None:
    for cause, sequence in ((b"second", 1), (b"first", 0)):
        log.shell.cause = cause
        log.tell(log.request(1, sequence))
    log.shell.cause = b"answer"
    log.tell(log.registered(1))
    assert [(sent.target, sent.cause) for sent in log.shell.sent] == [
        (CLIENT, b"first"),
        (CLIENT, b"second"),
    ]
    log.commit(1, epoch=1)
    log.shell.cause = b"held"
    log.tell(log.request(1, 0, epoch=1))
    log.shell.cause = b"marker"
    log.abort(1, epoch=2)
    assert [(sent.target, sent.cause) for sent in log.shell.sent] == [
        (CLIENT, b"held"),
        (COORDINATOR, b"marker"),
    ]
