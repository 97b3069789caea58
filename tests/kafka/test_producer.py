"""What a transactional producer says, and when: after Java's TransactionManager. See conversation.py."""

import pytest
from conversation import COORDINATOR, added, client, opened, talk

from planstep.proto.kafka import ERRORS, Answer, Join
from planstep.proxy.kafka_states import TRANSITIONS, State, moved

FATAL = sorted(name for name, kind in ERRORS.items() if not kind.retriable and not kind.abortable)
RETRIABLE = sorted(name for name, kind in ERRORS.items() if kind.retriable)


# version 1 ---------------------------------------------------------------------------------------


def test_a_transaction_registers_produces_and_ends_at_the_answer_of_end() -> None:
    broker = opened("""
        send t p0x3 p1x1
        -> AddPartitions 7/0 p0 p1
        ok Add
        -> Produce p0 7/0 seq 0 x3
        -> Produce p1 7/0 seq 0 x1
        commit t
        ok Produce p1
        ok Produce p0
        -> EndTxn 7/0 commit
        ok End
        == ok epoch 0 p1 0-1 p0 0-3
        begin u
        send u p0x2
        -> AddPartitions 7/0 p0
        ok Add
        -> Produce p0 7/0 seq 3 x2
        commit u
        ok Produce
        -> EndTxn 7/0 commit
        ok End
        == ok epoch 0 p0 3-5
    """)
    assert broker.client.requests_of(b"t") == broker.client.requests_of(b"u") == 3
    assert broker.client.requests_of(b"t") == 0
    assert broker.client.requests == 7
    assert not [token for _, token in broker.timers if broker.client.awaits(token)]


def test_registrations_are_batched_while_one_is_on_the_way() -> None:
    opened("""
        send t p0x1
        -> AddPartitions 7/0 p0
        send t p1x1
        send t p2x1 p0x1
        ok Add
        -> Produce p0 7/0 seq 0 x1
        -> Produce p0 7/0 seq 1 x1
        -> AddPartitions 7/0 p1 p2
        ok Add
        -> Produce p1 7/0 seq 0 x1
        -> Produce p2 7/0 seq 0 x1
    """)


def test_the_first_registration_of_a_transaction_waits_shortly_the_next_longer() -> None:
    opened("""
        send t p0x1
        -> AddPartitions 7/0 p0
        CONCURRENT_TRANSACTIONS Add
        wait 20
        -> AddPartitions 7/0 p0
        COORDINATOR_LOAD_IN_PROGRESS Add
        wait 100
        -> AddPartitions 7/0 p0
        ok Add
        -> Produce p0 7/0 seq 0 x1
        send t p1x1
        -> AddPartitions 7/0 p1
        CONCURRENT_TRANSACTIONS Add
        wait 100
        -> AddPartitions 7/0 p1
    """)


def test_nothing_is_sent_for_a_transaction_that_did_nothing() -> None:
    for version in (1, 2):
        broker = opened(
            """
            commit t
            == ok epoch 0
            begin u
            abort u
            == ok
            """,
            protocol_version=version,
        )
        assert broker.client.requests == 1


def test_offsets_go_group_by_group_beside_produces_and_before_the_end() -> None:
    added("""
        commit t g:p5@8 h:p6@9
        -> AddOffsets 7/0 g
        ok AddOffsets
        -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
        ok Txn
        -> AddOffsets 7/0 h
        ok AddOffsets
        -> TxnOffsetCommit 7/0 h p6@9 by m1 of 4
        ok Txn
        ok Produce
        -> EndTxn 7/0 commit
        ok End
        == ok epoch 0 p0 0-1
    """)


def test_abort_waits_for_what_was_sent_and_drops_the_rest() -> None:
    added("""
        send t p1x1
        -> AddPartitions 7/0 p1
        send t p2x1
        abort t
        ok Add
        ok Produce
        -> EndTxn 7/0 abort
        CONCURRENT_TRANSACTIONS End
        wait 100
        -> EndTxn 7/0 abort
        ok End
        == ok
        abort t
        == ok
        commit t
        == INVALID_TXN_STATE
    """)


def test_abort_without_a_registration_that_succeeded_is_local() -> None:
    opened("""
        send t p0x1
        -> AddPartitions 7/0 p0
        abort t
        TRANSACTION_ABORTABLE Add
        == ok
    """)


# version 2 ---------------------------------------------------------------------------------------


def test_version_2_registers_nothing_and_goes_on_under_the_next_epoch() -> None:
    broker = opened(
        """
        send t p0x2 p1x1
        -> Produce p0 7/0 seq 0 x2
        -> Produce p1 7/0 seq 0 x1
        commit t g:p5@8
        -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
        ok Txn
        ok Produce p0
        CONCURRENT_TRANSACTIONS Produce p1
        wait 100
        -> Produce p1 7/0 seq 0 x1
        ok Produce p1
        -> EndTxn 7/0 commit
        ok End
        == ok epoch 0 p0 0-2 p1 0-1
        begin u
        send u p0x1
        -> Produce p0 7/1 seq 0 x1
        abort u
        ok Produce
        -> EndTxn 7/1 abort
        ok End
        == ok
        begin v
        send v p0x1
        -> Produce p0 7/2 seq 0 x1
        """,
        protocol_version=2,
    )
    out = [message for _, _, message in broker.asked]
    assert [(message.name, message.version) for message in out] == [("n", 2)]


def test_version_2_needs_no_init_after_an_error_that_left_sequences_unknown() -> None:
    opened(
        """
        send t p0x1
        -> Produce p0 7/0 seq 0 x1
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce
        commit t
        -> EndTxn 7/0 abort
        ok End
        == OUT_OF_ORDER_SEQUENCE_NUMBER
        begin u
        send u p0x1
        -> Produce p0 7/1 seq 0 x1
        """,
        protocol_version=2,
    )


# times -------------------------------------------------------------------------------------------


def test_a_request_without_an_answer_is_sent_again_and_its_old_number_is_ignored() -> None:
    broker = opened("""
        send t p0x1
        -> AddPartitions 7/0 p0
        late Add
        -> AddPartitions 7/0 p0
        INVALID_TXN_STATE first Add
        ok Add
        -> Produce p0 7/0 seq 0 x1
    """)
    assert broker.client.requests_of(b"t") == 3


def test_an_end_that_was_given_up_is_still_under_way_in_version_1() -> None:
    """KAFKA-17754: the first EndTxn, arriving now, would commit half of u under the same epoch."""
    broker = added("""
        commit t
        ok Produce
        -> EndTxn 7/0 commit
        late End
        -> EndTxn 7/0 commit
        ok last End
        == ok epoch 0 p0 0-1
        begin u
        send u p0x1
        -> AddPartitions 7/0 p0
        ok Add
        -> Produce p0 7/0 seq 1 x1
    """)
    assert [what for what, _, _ in broker.asked] == [
        "EndTxn 7/0 commit",
        "Produce p0 7/0 seq 1 x1",
    ]


def test_in_version_2_the_late_end_carries_an_epoch_that_is_over() -> None:
    broker = opened(
        """
        send t p0x1
        -> Produce p0 7/0 seq 0 x1
        commit t
        ok Produce
        -> EndTxn 7/0 commit
        late End
        -> EndTxn 7/0 commit
        ok last End
        == ok epoch 0 p0 0-1
        begin u
        send u p0x1
        -> Produce p0 7/1 seq 0 x1
        """,
        protocol_version=2,
    )
    assert [what for what, _, _ in broker.asked] == [
        "EndTxn 7/0 commit",
        "Produce p0 7/1 seq 0 x1",
    ]


def test_a_commit_that_timed_out_goes_on_and_the_same_call_again_waits_for_it() -> None:
    added("""
        commit t
        ok Produce
        -> EndTxn 7/0 commit
        wait 60000
        == REQUEST_TIMED_OUT
        begin u
        == CONCURRENT_TRANSACTIONS
        abort t
        == INVALID_TXN_STATE
        commit t
        ok End
        == ok epoch 0 p0 0-1
        commit t
        == ok epoch 0 p0 0-1
        abort t
        == INVALID_TXN_STATE
        begin u
    """)


def test_an_end_decided_between_two_calls_is_told_to_the_second() -> None:
    added("""
        commit t
        ok Produce
        -> EndTxn 7/0 commit
        wait 60000
        == REQUEST_TIMED_OUT
        ok End
        commit t
        == ok epoch 0 p0 0-1
    """)


def test_an_abort_that_timed_out_goes_on() -> None:
    added("""
        abort t
        wait 60000
        == REQUEST_TIMED_OUT
        abort t
        ok Produce
        -> EndTxn 7/0 abort
        ok End
        == ok
    """)


def test_offsets_that_timed_out_go_on() -> None:
    opened("""
        commit t g:p5@8
        -> AddOffsets 7/0 g
        ok Add
        -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
        wait 60000
        == REQUEST_TIMED_OUT
        commit t
        ok Txn
        -> EndTxn 7/0 commit
        ok End
        == ok epoch 0
    """)


def test_init_waits_while_the_last_transaction_ends_and_gives_up_in_the_end() -> None:
    talk("""
        init n
        -> InitProducer n
        CONCURRENT_TRANSACTIONS Init
        wait 100
        -> InitProducer n
        late Init
        -> InitProducer n
        NOT_COORDINATOR last Init
        wait 60000
        == REQUEST_TIMED_OUT
        init n
        -> InitProducer n
        ok last Init
        == ok handle 2
    """)


def test_a_batch_that_nobody_answers_for_fails_and_the_next_epoch_makes_it_harmless() -> None:
    added(
        """
        wait 30000
        -> Produce p0 7/0 seq 0 x1
        commit t
        wait 30000
        -> EndTxn 7/0 abort
        ok End
        -> InitProducer n 7/0
        ok Init
        == TRANSACTION_ABORTABLE
        """,
        delivery_timeout_ms=60_000,
    )


# errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "INVALID_PRODUCER_EPOCH",
        "MESSAGE_TOO_LARGE",
    ],
)
def test_after_a_produce_error_the_same_producer_goes_on_under_the_next_epoch(error: str) -> None:
    added(f"""
        {error} Produce
        send t p0x1
        commit t
        -> EndTxn 7/0 abort
        ok End
        -> InitProducer n 7/0
        CONCURRENT_TRANSACTIONS Init
        wait 100
        -> InitProducer n 7/0
        ok Init
        == {error}
        abort t
        == ok
        commit t
        == {error}
        begin u
        send u p0x1
        -> AddPartitions 7/1 p0
        ok Add
        -> Produce p0 7/1 seq 0 x1
    """)


def test_a_produce_error_while_committing_aborts() -> None:
    added("""
        commit t g:p5@8
        -> AddOffsets 7/0 g
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce
        ok AddOffsets
        -> EndTxn 7/0 abort
        ok End
        -> InitProducer n 7/0
        ok Init
        == OUT_OF_ORDER_SEQUENCE_NUMBER
    """)


@pytest.mark.parametrize("error", ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"])
def test_a_group_that_fences_aborts_and_leaves_the_epoch(error: str) -> None:
    added(f"""
        commit t g:p5@8
        -> AddOffsets 7/0 g
        ok AddOffsets
        -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
        ok Produce
        {error} Txn
        -> EndTxn 7/0 abort
        ok End
        == {error}
        begin u
        send u p0x1
        -> AddPartitions 7/0 p0
        ok Add
        -> Produce p0 7/0 seq 1 x1
    """)


def test_an_error_is_kept_until_abort_too() -> None:
    added("""
        OUT_OF_ORDER_SEQUENCE_NUMBER Produce
        begin u
        == INVALID_TXN_STATE
        abort t
        -> EndTxn 7/0 abort
        ok End
        -> InitProducer n 7/0
        ok Init
        == ok
    """)


def test_a_transactional_id_that_expired_is_taken_again_without_an_end() -> None:
    for version in (1, 2):
        opened(
            """
            commit t g:p5@8
            -> AddOffsets 7/0 g
            INVALID_PRODUCER_ID_MAPPING Add
            -> InitProducer n 7/0
            ok Init
            == INVALID_PRODUCER_ID_MAPPING
            begin u
            """
            if version == 1
            else """
            commit t g:p5@8
            -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
            INVALID_PRODUCER_ID_MAPPING Txn
            -> InitProducer n 7/0
            ok Init
            == INVALID_PRODUCER_ID_MAPPING
            begin u
            """,
            protocol_version=version,
        )


def test_an_end_that_is_refused_as_abortable_is_aborted() -> None:
    added("""
        commit t
        ok Produce
        -> EndTxn 7/0 commit
        TRANSACTION_ABORTABLE End
        -> EndTxn 7/0 abort
        ok End
        == TRANSACTION_ABORTABLE
    """)


def test_an_abort_that_is_refused_as_abortable_ends_by_init() -> None:
    added("""
        abort t
        ok Produce
        -> EndTxn 7/0 abort
        UNKNOWN_PRODUCER_ID End
        -> InitProducer n 7/0
        ok Init
        == ok
    """)


def test_an_error_that_is_known_is_told_when_the_abort_times_out() -> None:
    added("""
        MESSAGE_TOO_LARGE Produce
        commit t
        -> EndTxn 7/0 abort
        wait 60000
        == MESSAGE_TOO_LARGE
        begin u
        == CONCURRENT_TRANSACTIONS
        abort t
        commit t
        ok End
        -> InitProducer n 7/0
        ok Init
        == ok
        == MESSAGE_TOO_LARGE
        begin u
    """)


@pytest.mark.parametrize("error", FATAL)
@pytest.mark.parametrize("at", ["send", "register", "offsets", "end"])
def test_after_a_fatal_error_every_call_ends_with_it_and_nothing_is_sent(
    at: str, error: str
) -> None:
    opened(
        {
            "send": f"""
                send t p0x1 q0x1
                -> AddPartitions 7/0 p0 q0
                ok Add
                -> Produce p0 7/0 seq 0 x1
                -> Produce q0 7/0 seq 0 x1
                commit t
                {error} Produce
                == {error}
                """,
            "register": f"""
                send t p0x1
                -> AddPartitions 7/0 p0
                commit t
                {error} Add
                == {error}
                """,
            "offsets": f"""
                commit t g:p5@8
                -> AddOffsets 7/0 g
                ok Add
                -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
                {error} Txn
                == {error}
                """,
            "end": f"""
                commit t g:p5@8
                -> AddOffsets 7/0 g
                ok Add
                -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
                ok Txn
                -> EndTxn 7/0 commit
                {error} End
                == {error}
                """,
        }[at].rstrip()
        + f"""
                commit t
                == {error}
                abort t
                == {error}
                begin u
                == {error}
                send u p0x1
        """
    )


@pytest.mark.parametrize("name", ["Add", "End"])
def test_a_fenced_producer_is_told_so_whatever_the_requests_version_says(name: str) -> None:
    before = {
        "Add": "",
        "End": """
        ok Add
        -> Produce p0 7/0 seq 0 x1
        ok Produce
        -> EndTxn 7/0 commit
        """.rstrip(),
    }[name]
    opened(f"""
        send t p0x1
        -> AddPartitions 7/0 p0
        commit t{before}
        INVALID_PRODUCER_EPOCH {name}
        == PRODUCER_FENCED
    """)


def test_a_commit_that_was_asked_twice_and_then_refused_says_that_it_may_be_committed() -> None:
    broker = added("""
        commit t
        ok Produce
        -> EndTxn 7/0 commit
        late End
        -> EndTxn 7/0 commit
    """)
    broker.client.handle(Answer(broker.find("last End")[2].request, COORDINATOR, "PRODUCER_FENCED"))
    (end,) = broker.client.ended
    assert end.error == "PRODUCER_FENCED" and "not known" in end.detail


@pytest.mark.parametrize("error", RETRIABLE)
def test_what_can_be_retried_is(error: str) -> None:
    added(
        f"""
        {error} Produce
        wait 50
        -> Produce p0 7/0 seq 0 x1
        commit t g:p5@8
        -> AddOffsets 7/0 g
        {error} AddOffsets
        wait 50
        -> AddOffsets 7/0 g
        ok AddOffsets
        -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
        {error} Txn
        wait 50
        -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
        ok Txn
        ok Produce
        -> EndTxn 7/0 commit
        {error} End
        wait 50
        -> EndTxn 7/0 commit
        ok End
        == ok epoch 0 p0 0-1
        """,
        retry_backoff_ms=50,
    )


def test_init_that_is_refused_gives_no_handle() -> None:
    talk("""
        init n
        -> InitProducer n
        INVALID_TRANSACTION_TIMEOUT Init
        == INVALID_TRANSACTION_TIMEOUT
    """)


def test_a_producer_whose_owner_is_gone_says_nothing_more() -> None:
    broker = added("""
        commit t
        drop
        == REQUEST_TIMED_OUT
    """)
    assert not [token for _, token in broker.timers if broker.client.awaits(token)]
    broker.do("ok Produce")
    assert not broker.client.out
    assert not [token for _, token in broker.timers if broker.client.awaits(token)]


def test_two_incarnations_live_side_by_side_until_the_broker_fences_the_first() -> None:
    added("""
        commit t
        init n
        -> InitProducer n
        ok Init
        == ok handle 2
        INVALID_PRODUCER_EPOCH Produce
        -> EndTxn 7/0 abort
        INVALID_PRODUCER_EPOCH End
        == PRODUCER_FENCED
        begin u
        send u p0x1
        -> AddPartitions 7/1 p0
    """)


# the rest ----------------------------------------------------------------------------------------


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


def test_what_is_not_open_is_told_so() -> None:
    opened("""
        commit u
        == INVALID_TXN_STATE
        begin t
        == INVALID_TXN_STATE
    """)


def test_send_says_what_is_buffered() -> None:
    broker = added("")
    assert broker.client.send(1, b"t", {5: [(b"abc", 1)]}) == 13
    broker.answer("", "Produce")
    assert broker.client.send(1, b"t", {}) == 3
    broker.client.abort(b"a", 1, b"t")
    assert not broker.client.ended  # its registration is on the way
