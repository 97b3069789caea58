"""Tests a client's transactions against scripted hosts; numbers are scenarios'. See client_kit.py."""

import pytest
from client_kit import client, in_transaction, partition, talk, with_batch

from planstep.proto.pulsar.messages import NO_TXN, TxnID
from planstep.proxy.pulsar.states import TRANSITIONS, State, moved

# the course of a transaction ---------------------------------------------------------------------


def test_1_a_transaction_registers_sends_acknowledges_and_ends() -> None:
    hosts = in_transaction("""
        send t p0x3 p1x1
        -> AddPartition (0,0) p0
        -> AddPartition (0,0) p1
        ack t p2/s 0-5 7-9
        -> AddSubscription (0,0) p2/s
        ok AddPartition (0,0) p0
        -> Send p0 (0,0) w:2 x3
        ok AddSubscription
        -> Ack p2/s (0,0) 0-5 7-9
        commit t
        ok AddPartition (0,0) p1
        -> Send p1 (0,0) w:0 x1
        ok Send p1
        ok Send p0
        ok Ack
        -> EndTxn (0,0) commit
        ok EndTxn
        == ok p1 0-1 p0 0-3
    """)
    assert hosts.client.requests_of(b"t") == hosts.client.requests == 2 + 2 * 2 + 2 * 1
    assert hosts.client.state(b"t") is State.COMMITTED
    assert not hosts.awaited


@pytest.mark.parametrize(("k", "s"), [(0, 0), (1, 0), (0, 1), (1, 1), (3, 1), (2, 4)])
def test_a_transaction_costs_2_and_2_requests_a_participant(k: int, s: int) -> None:
    sends = "".join(f"-> AddPartition (0,0) p{n}\n" for n in range(k))
    script = f"send t {' '.join(f'p{n}x1' for n in range(k))}\n{sends}"
    for n in range(s):
        script += f"ack t p{n}/s 0-1\n-> AddSubscription (0,0) p{n}/s\n"
    for n in range(k):
        script += f"ok AddPartition (0,0) p{n}\n-> Send p{n} (0,0) w:0 x1\nok Send p{n}\n"
    for n in range(s):
        script += f"ok AddSubscription\n-> Ack p{n}/s (0,0) 0-1\nok Ack\n"
    written = " ".join(f"p{n} 0-1" for n in range(k))
    script += f"commit t\n-> EndTxn (0,0) commit\nok End\n== ok {written}".rstrip()
    hosts = in_transaction(script)
    assert hosts.client.requests_of(b"t") == 2 + 2 * k + 2 * s


def test_a_participant_is_registered_once() -> None:
    in_transaction("""
        send t p0x1
        -> AddPartition (0,0) p0
        send t p0x1
        ack t p0/s 0-1
        -> AddSubscription (0,0) p0/s
        ack t p0/s 1-2
        ack t p0/r 0-1
        -> AddSubscription (0,0) p0/r
        ok AddSubscription (0,0) p0/s
        -> Ack p0/s (0,0) 0-1
        -> Ack p0/s (0,0) 1-2
        ok AddPartition
        -> Send p0 (0,0) w:0 x1
        ok Send
        -> Send p0 (0,0) w:1 x1
        ok Send
        send t p0x1
        -> Send p0 (0,0) w:2 x1
        ack t p0/s 5-6
        -> Ack p0/s (0,0) 5-6
    """)


def test_of_cumulative_acknowledgements_one_is_on_the_way() -> None:
    in_transaction("""
        ack t p0/s ..5
        -> AddSubscription (0,0) p0/s
        ack t p0/s ..9
        ok Add
        -> Ack p0/s (0,0) ..5
        ack t p0/s ..12
        late Ack
        -> Ack p0/s (0,0) ..5
        ok last Ack
        -> Ack p0/s (0,0) ..9
        commit t
        ok last Ack
        -> Ack p0/s (0,0) ..12
        ok last Ack
        -> EndTxn (0,0) commit
    """)


def test_operations_may_precede_the_id() -> None:
    hosts = talk("""
        begin t 5000
        -> NewTxn c0 5000 ms
        send t p0x1
        ack t p0/s 0-1
        commit t
        send t p0x1
        == InvalidTxnStatus
        abort t
        == InvalidTxnStatus
        ok NewTxn
        -> AddPartition (0,0) p0
        -> AddSubscription (0,0) p0/s
        ok AddSub
        -> Ack p0/s (0,0) 0-1
        ok AddPar
        -> Send p0 (0,0) w:0 x1
        ok Ack
        ok Send
        -> EndTxn (0,0) commit
        ok End
        == ok p0 0-1
    """)
    assert hosts.client.id(b"t") == TxnID(0, 0)


def test_transactions_go_to_the_coordinators_in_turn() -> None:
    talk("""
        with coordinators=3
        begin a
        -> NewTxn c0 60000 ms
        begin b
        -> NewTxn c1 60000 ms
        begin c
        -> NewTxn c2 60000 ms
        begin d
        -> NewTxn c0 60000 ms
        ok NewTxn c1
        ok NewTxn c0
        ok NewTxn c0
        commit b
        -> EndTxn (1,0) commit
        commit d
        -> EndTxn (0,1) commit
    """)


def test_a_lost_answer_to_newtxn_leaves_a_transaction_open() -> None:
    """The first one stays open at its coordinator, until its time-out."""
    hosts = talk("""
        begin t
        -> NewTxn c0 60000 ms
        late NewTxn
        -> NewTxn c0 60000 ms
        ok first NewTxn
        ok NewTxn
        commit t
        -> EndTxn (0,1) commit
    """)
    assert hosts.client.id(b"t") == TxnID(0, 1)


def test_flush_waits_for_what_was_sent() -> None:
    with_batch("""
        flush t
        ack t p0/s 0-1
        -> AddSubscription (0,0) p0/s
        ok Send
        ok Add
        -> Ack p0/s (0,0) 0-1
        ok Ack
        == ok p0 0-1
        flush t
        == ok p0 0-1
        send t p0x2
        -> Send p0 (0,0) w:2 x2
        flush t
        TransactionConflict Send
        == TransactionConflict p0 0-1
    """)


# failed operations -------------------------------------------------------------------------------


def test_38_commit_with_a_failed_send_aborts() -> None:
    hosts = with_batch("""
        send t p0x1 p1x1
        -> AddPartition (0,0) p1
        commit t
        commit t
        TopicNotFound Send
        -> EndTxn (0,0) abort
        commit t
        ok End
        == TransactionHasOperationFailed by TopicNotFound
        == TransactionHasOperationFailed by TopicNotFound
        == TransactionHasOperationFailed by TopicNotFound
        abort t
        == InvalidTxnStatus by TopicNotFound
    """)
    assert hosts.client.state(b"t") is State.ABORTED
    assert hosts.client.outstanding(b"t") == 0 and not hosts.awaited


def test_38_a_failed_acknowledgement_aborts_behind_what_is_on_the_way() -> None:
    hosts = with_batch("""
        ack t p1/s 0-1
        -> AddSubscription (0,0) p1/s
        ok Add
        -> Ack p1/s (0,0) 0-1
        TransactionConflict Ack
        send t p0x1
        commit t
        ok Send
        -> EndTxn (0,0) abort
        TransactionNotFound End
        == TransactionHasOperationFailed by TransactionConflict
    """)
    error, detail = hosts.client.failure(b"t") or ("", "")
    assert error == "TransactionConflict" and "partition 1 on host 0 refused" in detail


def test_38_a_refused_registration_is_a_failed_operation() -> None:
    in_transaction("""
        send t p0x1
        -> AddPartition (0,0) p0
        send t p0x1
        commit t
        InvalidTxnStatus Add
        -> EndTxn (0,0) abort
        ok End
        == TransactionHasOperationFailed by InvalidTxnStatus
    """)


def test_abort_drops_what_was_not_sent_and_awaits_the_rest() -> None:
    hosts = with_batch("""
        send t p0x1 p1x1
        -> AddPartition (0,0) p1
        ack t p0/s ..5
        -> AddSubscription (0,0) p0/s
        ok AddSub
        -> Ack p0/s (0,0) ..5
        ack t p0/s ..6
        flush t
        abort t
        == InvalidTxnStatus
        commit t
        == InvalidTxnStatus
        ok AddPar
        ok Ack
        late Send
        -> Send p0 (0,0) w:0 x1
        ok last Send
        -> EndTxn (0,0) abort
        abort t
        ok End
        == ok
        == ok
    """)
    assert not hosts.awaited


# after the end -----------------------------------------------------------------------------------


def test_39_use_after_the_end() -> None:
    for end, name in (("commit", "committed"), ("abort", "aborted")):
        hosts = in_transaction(f"""
            {end} t
            -> EndTxn (0,0) {end}
            ok End
            == ok
            send t p0x1
            == InvalidTxnStatus
            ack t p0/s 0-1
            == InvalidTxnStatus
            flush t
            == InvalidTxnStatus
            commit t
            == InvalidTxnStatus
            abort t
            == InvalidTxnStatus
        """)
        assert hosts.client.state(b"t").value == name


def test_39_use_after_the_own_time_out() -> None:
    hosts = with_batch("""
        wait 60000
        send t p0x1
        == InvalidTxnStatus
        ack t p0/s 0-1
        == InvalidTxnStatus
        commit t
        == InvalidTxnStatus by TransactionTimeout
        abort t
        == InvalidTxnStatus by TransactionTimeout
    """)
    assert hosts.client.state(b"t") is State.TIME_OUT
    assert hosts.client.outstanding(b"t") == 0


@pytest.mark.parametrize("call", ["commit", "flush"])
def test_39_a_call_that_waits_for_a_send_ends_with_the_time_out(call: str) -> None:
    hosts = with_batch(f"""
        send t p0x1
        {call} t
        wait 60000
        == TransactionTimeout
        ok Send
    """)
    assert hosts.client.failure(b"t") is not None and not hosts.awaited


def test_39_an_abort_that_waits_for_a_send_ends_with_the_time_out() -> None:
    """Nothing was committed, and the coordinator aborts by itself."""
    with_batch("""
        abort t
        wait 60000
        == ok
    """)


def test_the_time_out_does_not_end_a_commit_that_was_asked_for() -> None:
    hosts = in_transaction("""
        commit t
        -> EndTxn (0,0) commit
    """)
    assert 60_000 not in hosts.awaited


def test_a_dropped_transaction_says_nothing_more() -> None:
    hosts = with_batch("""
        send t p0x1
        ack t p0/s 0-1
        -> AddSubscription (0,0) p0/s
        commit t
        drop t
        drop t
        ok Send
        ok AddSub
    """)
    assert not hosts.awaited


# not known ---------------------------------------------------------------------------------------


def test_10_a_commit_waits_for_a_participant_that_is_down() -> None:
    """The coordinator answers once all have the end; requests meanwhile are repeats of one commit."""
    in_transaction("""
        commit t
        -> EndTxn (0,0) commit
        wait 10000
        -> EndTxn (0,0) commit
        wait 10000
        -> EndTxn (0,0) commit
        ok first EndTxn
        == ok
        ok EndTxn
        TransactionNotFound EndTxn
    """)


def test_a5_a_commit_whose_answer_is_lost_is_not_known() -> None:
    """Pulsar's client reports a failure here, although the transaction is committed (19629, 20356)."""
    hosts = in_transaction("""
        commit t
        -> EndTxn (0,0) commit
        late EndTxn
        -> EndTxn (0,0) commit
        TransactionNotFound last EndTxn
        == Undetermined
        commit t
        == Undetermined
        abort t
        == InvalidTxnStatus by Undetermined
    """)
    assert hosts.client.state(b"t") is State.ERROR
    assert "TransactionNotFound" in (hosts.client.failure(b"t") or ("", ""))[1]


def test_a5_also_a_first_answer_that_nobody_knows_it() -> None:
    in_transaction("""
        commit t
        -> EndTxn (0,0) commit
        TransactionNotFound EndTxn
        == Undetermined
    """)


def test_42_a_commit_asked_for_three_times_is_answered_three_times() -> None:
    """The coordinator keeps ended transactions; the client has given up twice in between."""
    in_transaction("""
        commit t
        -> EndTxn (0,0) commit
        wait 30000
        == Undetermined
        abort t
        == InvalidTxnStatus
        commit t
        -> EndTxn (0,0) commit
        wait 30000
        == Undetermined
        commit t
        -> EndTxn (0,0) commit
        ok last EndTxn
        == ok
    """)


@pytest.mark.parametrize("error", ["AlreadyTimedOut", "AlreadyAborted", "InvalidTxnStatus"])
def test_42_an_answer_that_excludes_the_commit_is_no_doubt(error: str) -> None:
    in_transaction(f"""
        commit t
        -> EndTxn (0,0) commit
        {error} EndTxn
        == {error}
        commit t
        == {error}
    """)


@pytest.mark.parametrize("error", ["", "TransactionNotFound", "AlreadyAborted", "AlreadyTimedOut"])
def test_an_abort_of_what_is_gone_is_done(error: str) -> None:
    in_transaction(f"""
        abort t
        -> EndTxn (0,0) abort
        {error or "ok"} EndTxn
        == ok
    """)


def test_an_abort_that_nobody_answers_is_asked_for_again() -> None:
    in_transaction("""
        abort t
        -> EndTxn (0,0) abort
        wait 30000
        == Timeout
        abort t
        -> EndTxn (0,0) abort
        NotAllowedError last EndTxn
        == NotAllowedError
        commit t
        == NotAllowedError
    """)
    with_batch("""
        commit t
        TransactionConflict Send
        -> EndTxn (0,0) abort
        wait 30000
        == TransactionHasOperationFailed by TransactionConflict
    """)


# coordinators ------------------------------------------------------------------------------------


def test_a_coordinator_that_is_not_there_is_asked_again() -> None:
    in_transaction("""
        send t p0x1
        -> AddPartition (0,0) p0
        TransactionCoordinatorNotFound Add
        wait 100
        -> AddPartition (0,0) p0
        ok Add
        -> Send p0 (0,0) w:0 x1
        ServiceNotReady Send
        wait 100
        -> Send p0 (0,0) w:0 x1
        ok Send
        commit t
        -> EndTxn (0,0) commit
        TransactionCoordinatorNotFound End
        wait 100
        -> EndTxn (0,0) commit
        ok End
        == ok p0 0-1
    """)


@pytest.mark.parametrize("error", ["ReachMaxActiveTxn", "NoSpace"])
def test_a_refused_transaction_fails_what_waits_for_it(error: str) -> None:
    hosts = talk(f"""
        begin t
        -> NewTxn c0 60000 ms
        send t p0x1
        flush t
        {error} NewTxn
        == {error}
        commit t
        == {error}
    """)
    assert hosts.client.id(b"t") == NO_TXN and not hosts.awaited


def test_a_transaction_that_nobody_opens_ends() -> None:
    for call, end in (("commit", "TransactionTimeout"), ("abort", "ok")):
        hosts = talk(f"""
            begin t
            -> NewTxn c0 60000 ms
            {call} t
            wait 30000
            == {end}
        """)
        assert not hosts.awaited


def test_an_abort_before_the_id_ends_the_transaction() -> None:
    talk("""
        begin t
        -> NewTxn c0 60000 ms
        send t p0x1
        abort t
        commit t
        == InvalidTxnStatus
        ok NewTxn
        -> AddPartition (0,0) p0
        -> EndTxn (0,0) abort
        ok End
        == ok
    """)


def test_a_coordinator_has_so_many_requests_at_a_time() -> None:
    hosts = talk("""
        with coordinators=2 max_requests=2
        begin a
        -> NewTxn c0 60000 ms
        begin b
        -> NewTxn c1 60000 ms
        begin c
        -> NewTxn c0 60000 ms
        begin d
        -> NewTxn c1 60000 ms
        begin e
        begin f
        begin g
        TransactionCoordinatorNotFound NewTxn c0
        drop e
        wait 100
        -> NewTxn c0 60000 ms
        ok NewTxn c0
        -> NewTxn c0 60000 ms
        send a p0x1
        ok NewTxn c0
        -> AddPartition (0,1) p0
        commit c
        ok Add
        -> EndTxn (0,0) commit
        -> Send p0 (0,1) w:0 x1
    """)
    for tx in b"acg":
        hosts.client.drop(bytes([tx]))
    assert hosts.client._coordinators._on_the_way == [0, 2]
    assert all(len(queue) <= 1 for queue in hosts.client._coordinators._queues)


def test_1000_requests_is_the_limit_of_pulsar() -> None:
    c = client()
    for n in range(1_200):
        c.begin(b"%d" % n)
    assert len(c.out) == 1_000
    for n in range(1_000):
        c.drop(b"%d" % n)
    assert len(c.out) == 1_200


# the table ---------------------------------------------------------------------------------------


def test_the_table_refuses_what_it_does_not_list() -> None:
    for old in State:
        for new in State:
            if new in TRANSITIONS[old]:
                assert moved(old, new) is new
            else:
                with pytest.raises(AssertionError, match=old.value):
                    moved(old, new)


def test_outstanding_counts_bytes_without_an_answer() -> None:
    hosts = with_batch("")
    assert hosts.client.outstanding(b"t") == 10
    hosts.client.send(b"t", "w", {partition("p1"): [(b"abc", 1)]})
    assert hosts.client.outstanding(b"t") == 13
    hosts.answer("", "Send")
    assert hosts.client.outstanding(b"t") == 3
