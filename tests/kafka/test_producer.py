"""Tests a transactional producer's requests and their timing, after Java's TransactionManager. See
conversation.py."""

from conversation import in_transaction, talk, with_batch

# version 1 ---------------------------------------------------------------------------------------


def test_a_transaction_registers_produces_and_ends_at_the_answer_of_end() -> None:
    broker = in_transaction("""
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
    in_transaction("""
        send t p0x1
        -> AddPartitions 7/0 p0
        send t p1x1
        send t p2x1 p0x1
        ok Add
        -> AddPartitions 7/0 p1 p2
        ok Add
        -> Produce p0 7/0 seq 0 x1
        -> Produce p1 7/0 seq 0 x1
        -> Produce p2 7/0 seq 0 x1
        -> Produce p0 7/0 seq 1 x1
    """)


def test_nothing_is_produced_while_a_transactional_request_is_on_the_way() -> None:
    """Sender.runOnce: it waits for the request and its retry; batches sent before do not delay the request."""
    in_transaction("""
        send t p0x1
        -> AddPartitions 7/0 p0
        ok Add
        -> Produce p0 7/0 seq 0 x1
        send t p1x1
        -> AddPartitions 7/0 p1
        send t p0x1
        REQUEST_TIMED_OUT Produce
        wait 100
        CONCURRENT_TRANSACTIONS Add
        wait 100
        -> AddPartitions 7/0 p1
        ok Add
        -> Produce p0 7/0 seq 0 x1
        -> Produce p1 7/0 seq 0 x1
        -> Produce p0 7/0 seq 1 x1
    """)
    in_transaction("""
        with max_in_flight=1 protocol_version=2
        send t p0x1
        -> Produce p0 7/0 seq 0 x1
        send t p0x1
        commit t g:p5@8
        -> TxnOffsetCommit 7/0 g p5@8 by m1 of 4
        ok Produce
        ok Txn
        -> Produce p0 7/0 seq 1 x1
    """)


def test_the_first_registration_of_a_transaction_waits_shortly_the_next_longer() -> None:
    in_transaction("""
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
        broker = in_transaction(
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
    with_batch("""
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
    with_batch("""
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
    in_transaction("""
        send t p0x1
        -> AddPartitions 7/0 p0
        abort t
        TRANSACTION_ABORTABLE Add
        == ok
    """)


# version 2 ---------------------------------------------------------------------------------------


def test_version_2_registers_nothing_and_goes_on_under_the_next_epoch() -> None:
    broker = in_transaction("""
        with protocol_version=2
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
    """)
    out = [message for _, _, message in broker.requests]
    assert [(message.name, message.version) for message in out] == [("n", 2)]


# times -------------------------------------------------------------------------------------------


def test_a_request_without_an_answer_is_sent_again_and_its_old_number_is_ignored() -> None:
    broker = in_transaction("""
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
    """KAFKA-17754: the first EndTxn, if it arrived now, would commit half of u under the same epoch."""
    broker = with_batch("""
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
    assert [what for what, _, _ in broker.requests] == [
        "EndTxn 7/0 commit",
        "Produce p0 7/0 seq 1 x1",
    ]


def test_in_version_2_the_late_end_carries_an_epoch_that_is_over() -> None:
    broker = in_transaction("""
        with protocol_version=2
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
    """)
    assert [what for what, _, _ in broker.requests] == [
        "EndTxn 7/0 commit",
        "Produce p0 7/1 seq 0 x1",
    ]


def test_a_commit_that_timed_out_goes_on_and_the_same_call_again_waits_for_it() -> None:
    with_batch("""
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
    with_batch("""
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
    with_batch("""
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
    in_transaction("""
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
    with_batch("""
        with delivery_timeout_ms=60000
        wait 30000
        -> Produce p0 7/0 seq 0 x1
        commit t
        wait 30000
        -> EndTxn 7/0 abort
        ok End
        -> InitProducer n 7/0
        ok Init
        == TRANSACTION_ABORTABLE
    """)
