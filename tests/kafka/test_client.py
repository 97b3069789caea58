"""Tests the client around its producers: single requests, timers, the table of states. See conversation.py."""

import pytest
from conversation import COORDINATOR, client, in_transaction, partition, with_batch

from planstep.proto.kafka.messages import Join
from planstep.proto.shell import Answer
from planstep.proxy.kafka.states import TRANSITIONS, State, moved


def test_one_request_with_retries() -> None:
    c = client()
    c.ask(b"call", COORDINATOR, lambda address, n: Join(address, n, "g", "m"))
    ((target, message, tx),), _, _ = c.take()
    assert (target, message, tx) == (COORDINATOR, Join(1, message.request, "g", "m"), None)
    c.handle(Answer(message.request, target, "NOT_COORDINATOR"))
    for delay, token in list(c.timers):
        if delay == 100:
            c.wake(token)
    ((_, again, _),), timers, ended = c.take()
    assert again.request != message.request and not ended
    c.handle(Answer(message.request, target, ""))
    c.handle(Answer(again.request, target, "", (1, ("m",))))
    assert [(end.call, end.error, end.value) for end in c.take()[2]] == [(b"call", "", (1, ("m",)))]
    assert not [token for _, token in timers if c.awaits(token)]


def test_one_request_that_nobody_answers_ends() -> None:
    c = client()
    c.ask(b"call", COORDINATOR, lambda address, n: Join(address, n, "g", "m"))
    for delay, token in list(c.timers):
        if delay == 60_000:
            c.wake(token)
    assert [end.error for end in c.ended] == ["REQUEST_TIMED_OUT"]
    assert not [token for _, token in c.timers if c.awaits(token)]


def test_the_table_refuses_what_it_does_not_list() -> None:
    for old in State:
        for new in State:
            if new in TRANSITIONS[old]:
                assert moved(old, new) is new
            else:
                with pytest.raises(AssertionError, match=old.value):
                    moved(old, new)
    assert not TRANSITIONS[State.FATAL_ERROR]


def test_the_dead_are_told_apart() -> None:
    broker = with_batch("")
    assert broker.client.dead(1) is None
    broker.answer("PRODUCER_FENCED", "Produce")
    reason = broker.client.dead(1)
    assert reason is not None and reason[0] == "PRODUCER_FENCED" and "partition 0" in reason[1]


def test_plain_requests_are_counted_for_whom_they_are() -> None:
    c = client()
    c.plain(b"call", {partition("p0"): [(b"d", 1)], partition("p1"): [(b"d", 1)]}, b"one")
    ((_, init, _),), *_ = c.take()
    c.plain(b"other", {partition("p0"): [(b"e", 1)]}, b"two")
    c.handle(Answer(init.request, COORDINATOR, "", (7, 0)))
    assert [tx for _, _, tx in c.out] == [b"one", b"one", b"two"]
    assert (c.requests, c.requests_of(b"one"), c.requests_of(b"two")) == (3, 1, 1)


def test_what_is_not_open_is_told_so() -> None:
    in_transaction("""
        commit u
        == INVALID_TXN_STATE
        begin t
        == INVALID_TXN_STATE
    """)


def test_send_says_what_is_buffered() -> None:
    broker = with_batch("")
    assert broker.client.send(1, b"t", {5: [(b"abc", 1)]}) == 13
    broker.answer("", "Produce")
    assert broker.client.send(1, b"t", {}) == 3
    broker.client.abort(b"a", 1, b"t")
    assert not broker.client.ended  # its registration is under way
