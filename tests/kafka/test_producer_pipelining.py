"""Tests batches under way: their number, their order, their grouping into requests. See conversation.py."""

from typing import Any

import pytest
from conversation import in_transaction, partition, talk, with_batch

from planstep.proto.kafka.messages import Produce
from planstep.proto.shell import Answer
from planstep.proxy.sender import Sender


def test_one_request_a_host_and_dispatch_whatever_its_partitions() -> None:
    broker = in_transaction("""
        send t p0x1 q0x1 p1x2 q1x1
        -> AddPartitions 7/0 p0 q0 p1 q1
        ok Add
        -> Produce p0 7/0 seq 0 x1
        -> Produce p1 7/0 seq 0 x2
        -> Produce q0 7/0 seq 0 x1
        -> Produce q1 7/0 seq 0 x1
        ok Produce p0
        ok Produce p1
        ok Produce q0
        ok Produce q1
        commit t
        -> EndTxn 7/0 commit
        ok End
        == ok epoch 0 p0 0-1 p1 0-2 q0 0-1 q1 0-1
    """)
    assert broker.client.requests_of(b"t") == 4


def test_five_requests_are_on_the_way_to_a_host() -> None:
    broker = in_transaction("""
        with protocol_version=2
        send t p0x1+1+1+1+1+1+1 q0x1
        -> Produce p0 7/0 seq 0 x1
        -> Produce q0 7/0 seq 0 x1
        -> Produce p0 7/0 seq 1 x1
        -> Produce p0 7/0 seq 2 x1
        -> Produce p0 7/0 seq 3 x1
        -> Produce p0 7/0 seq 4 x1
        send t p1x1 q1x1
        -> Produce q1 7/0 seq 0 x1
        ok Produce p0 7/0 seq 1
        -> Produce p0 7/0 seq 5 x1
        -> Produce p1 7/0 seq 0 x1
        ok Produce p0 7/0 seq 5
        ok Produce p1
        -> Produce p0 7/0 seq 6 x1
    """)
    assert broker.client.requests_of(b"t") == 9


def test_one_in_flight_if_the_setting_says_so_and_a_late_one_gives_its_place_free() -> None:
    in_transaction("""
        with max_in_flight=1 protocol_version=2
        send t p0x1+1 p1x1
        -> Produce p0 7/0 seq 0 x1
        -> Produce p1 7/0 seq 0 x1
        ok Produce p0
        ok Produce p1
        -> Produce p0 7/0 seq 1 x1
        send t p1x1
        late Produce p0
        -> Produce p0 7/0 seq 1 x1
        -> Produce p1 7/0 seq 1 x1
    """)


def test_what_is_sent_again_goes_first_and_alone() -> None:
    in_transaction("""
        with protocol_version=2
        send t p0x1+2
        -> Produce p0 7/0 seq 0 x1
        -> Produce p0 7/0 seq 1 x2
        NOT_ENOUGH_REPLICAS Produce p0 7/0 seq 0
        send t p0x1 p1x1
        -> Produce p1 7/0 seq 0 x1
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce p0 7/0 seq 1
        wait 100
        -> Produce p0 7/0 seq 0 x1
        ok Produce p0 7/0 seq 0
        -> Produce p0 7/0 seq 1 x2
        -> Produce p0 7/0 seq 3 x1
        ok Produce p0 7/0 seq 1
        commit t
        ok Produce p0
        ok Produce p1
        -> EndTxn 7/0 commit
        ok End
        == ok epoch 0 p0 0-4 p1 0-1
    """)


def test_a_batch_that_is_next_and_out_of_order_is_an_error_and_version_2_needs_no_init() -> None:
    in_transaction("""
        with protocol_version=2
        send t p0x1+2
        -> Produce p0 7/0 seq 0 x1
        -> Produce p0 7/0 seq 1 x2
        ok Produce p0 7/0 seq 0
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce
        commit t
        -> EndTxn 7/0 abort
        ok End
        == OUT_OF_ORDER_SEQUENCE_NUMBER
        begin u
        send u p0x1
        -> Produce p0 7/1 seq 0 x1
    """)


def test_what_follows_a_batch_that_failed_is_not_tried_for_ever() -> None:
    in_transaction("""
        with protocol_version=2
        send t p0x1+2+3
        -> Produce p0 7/0 seq 0 x1
        -> Produce p0 7/0 seq 1 x2
        -> Produce p0 7/0 seq 3 x3
        MESSAGE_TOO_LARGE Produce p0 7/0 seq 0
        commit t
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce p0 7/0 seq 3
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce p0 7/0 seq 1
        -> EndTxn 7/0 abort
        ok End
        == MESSAGE_TOO_LARGE
    """)


def test_a_late_answer_to_a_former_number_counts_for_its_batch() -> None:
    broker = with_batch("""
        late Produce
        -> Produce p0 7/0 seq 0 x1
        OUT_OF_ORDER_SEQUENCE_NUMBER first Produce
    """)
    broker = with_batch("""
        late Produce
        -> Produce p0 7/0 seq 0 x1
        ok first Produce
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce
        commit t
        -> EndTxn 7/0 commit
        ok End
        == ok epoch 0 p0 0-1
    """)
    assert not [token for _, token in broker.timers if broker.client.awaits(token)]


def test_sequences_go_round() -> None:
    in_transaction("""
        with protocol_version=2
        send t p0x2147483647+2
        -> Produce p0 7/0 seq 0 x2147483647
        -> Produce p0 7/0 seq 2147483647 x2
        ok Produce
        send t p0x1
        -> Produce p0 7/0 seq 1 x1
    """)


# without transactions ----------------------------------------------------------------------------


def test_plain_writes_take_a_producer_id_at_first_use() -> None:
    talk("""
        plain p0x2 p1x1+1
        -> InitProducer plain
        plain p0x1
        ok Init
        -> Produce p0 7/0 seq 0 x2
        -> Produce p1 7/0 seq 0 x1
        -> Produce p0 7/0 seq 2 x1
        -> Produce p1 7/0 seq 1 x1
        ok Produce p1 7/0 seq 0
        ok Produce p0 7/0 seq 0
        ok Produce p0 7/0 seq 2
        == ok p0 2-3
        ok Produce p1 7/0 seq 1
        == ok p1 0-2 p0 0-2
        plain init
        == ok handle 0
    """)


def test_a_plain_write_tells_which_partitions_have_it_and_the_rest_goes_on() -> None:
    broker = talk("""
        plain init
        -> InitProducer plain
        ok Init
        == ok handle 0
        plain p0x1 p1x1
        -> Produce p0 7/0 seq 0 x1
        -> Produce p1 7/0 seq 0 x1
        plain p0x1
        -> Produce p0 7/0 seq 1 x1
        MESSAGE_TOO_LARGE Produce p0 7/0 seq 0
        plain p1x1
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce p0 7/0 seq 1
        ok Produce p1
        -> Produce p1 7/1 seq 0 x1
        -> Produce p0 7/1 seq 0 x1
        == MESSAGE_TOO_LARGE p1 0-1
        ok Produce p0
        == ok p0 0-1
        ok Produce p1
        == ok p1 1-2
    """)
    broker.client.plain(b"none", {partition("p0"): []})
    assert [(end.error, end.value) for end in broker.client.ended] == [("", {})]


def test_a_plain_write_that_nobody_answers_ends_and_the_next_has_another_epoch() -> None:
    broker = talk("""
        plain init
        -> InitProducer plain
        ok Init
        == ok handle 0
        plain p0x1
        -> Produce p0 7/0 seq 0 x1
        wait 60000
        == REQUEST_TIMED_OUT
        plain p0x1
        -> Produce p0 7/1 seq 0 x1
        ok last Produce
        == ok p0 0-1
    """)
    assert not [token for _, token in broker.timers if broker.client.awaits(token)]


def test_behind_a_plain_batch_of_unknown_fate_nothing_is_numbered_anew() -> None:
    """Both may still arrive late and be written: sent again under another epoch, the second would be written
    twice."""
    talk("""
        with delivery_timeout_ms=30000
        plain init
        -> InitProducer plain
        ok Init
        == ok handle 0
        plain p0x1
        -> Produce p0 7/0 seq 0 x1
        plain p0x1
        -> Produce p0 7/0 seq 1 x1
        late Produce p0 7/0 seq 0
        == REQUEST_TIMED_OUT
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce p0 7/0 seq 1
        == OUT_OF_ORDER_SEQUENCE_NUMBER
        plain p0x1
        -> Produce p0 7/1 seq 0 x1
    """)


def test_a_plain_producer_at_its_end_takes_another_id() -> None:
    talk("""
        plain p0x1 p1x1
        -> InitProducer plain
        ok Init
        -> Produce p0 7/0 seq 0 x1
        -> Produce p1 7/0 seq 0 x1
        INVALID_TXN_STATE Produce p0
        plain p0x1
        NOT_ENOUGH_REPLICAS Produce p1
        wait 100
        -> Produce p1 7/0 seq 0 x1
        ok Produce p1
        -> InitProducer plain
        == INVALID_TXN_STATE p1 0-1
        ok Init
        -> Produce p0 7/1 seq 0 x1
    """)


def test_a_plain_write_without_a_producer_id_ends() -> None:
    talk("""
        plain p0x1
        -> InitProducer plain
        wait 60000
        == REQUEST_TIMED_OUT
        plain p0x1
        -> InitProducer plain
        INVALID_REQUEST last Init
        == INVALID_REQUEST
    """)


def test_an_answer_of_many_partitions_is_no_work_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise answering a transaction over 10,000 partitions takes 10,000 x 10,000 looks."""
    looks = 0
    whole = Sender._next

    def counted(self: Sender, *args: Any) -> Any:
        nonlocal looks
        looks += 1
        return whole(self, *args)

    monkeypatch.setattr(Sender, "_next", counted)
    broker = in_transaction("")
    client = broker.client
    client.send(broker.handle, b"t", {partition(f"p{n}"): [(b"d", 1)] for n in range(300)})
    (registered,) = client.take()[0]
    client.handle(Answer(registered[1].request, registered[0], ""))
    sent = client.take()[0]
    assert len(sent) == 300 and all(type(message) is Produce for _, message, _ in sent)
    before = looks
    for target, message, _ in sent:
        client.handle(Answer(message.request, target, "", 0))
    assert looks == before
