"""Tests a transactional producer's reactions to errors: retried, abortable, fatal. See conversation.py."""

import pytest
from conversation import COORDINATOR, in_transaction, talk, with_batch

from planstep.proto.kafka.settings import ERRORS
from planstep.proto.shell import Answer

FATAL = sorted(name for name, kind in ERRORS.items() if not kind.retriable and not kind.abortable)
RETRIABLE = sorted(name for name, kind in ERRORS.items() if kind.retriable)


@pytest.mark.parametrize(
    "error",
    sorted({"OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", *FATAL} - {"PRODUCER_FENCED"}),
)
def test_after_a_produce_error_the_same_producer_goes_on_under_the_next_epoch(error: str) -> None:
    """Java does the same, whatever the error's kind is for other requests."""
    with_batch(f"""
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
    with_batch("""
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
    with_batch(f"""
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
    with_batch("""
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
    for version, request in (1, "AddOffsets 7/0 g"), (2, "TxnOffsetCommit 7/0 g p5@8 by m1 of 4"):
        in_transaction(f"""
            with protocol_version={version}
            commit t g:p5@8
            -> {request}
            INVALID_PRODUCER_ID_MAPPING {request}
            -> InitProducer n 7/0
            ok Init
            == INVALID_PRODUCER_ID_MAPPING
            begin u
        """)


def test_an_end_that_is_refused_as_abortable_is_aborted() -> None:
    with_batch("""
        commit t
        ok Produce
        -> EndTxn 7/0 commit
        TRANSACTION_ABORTABLE End
        -> EndTxn 7/0 abort
        ok End
        == TRANSACTION_ABORTABLE
    """)


def test_an_abort_that_is_refused_as_abortable_ends_by_init() -> None:
    with_batch("""
        abort t
        ok Produce
        -> EndTxn 7/0 abort
        UNKNOWN_PRODUCER_ID End
        -> InitProducer n 7/0
        ok Init
        == ok
    """)


def test_an_error_that_is_known_is_told_when_the_abort_times_out() -> None:
    with_batch("""
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


@pytest.mark.parametrize(
    ("at", "error"),
    [(at, error) for at in ("register", "offsets", "end") for error in FATAL]
    + [("send", "PRODUCER_FENCED")],
)
def test_after_a_fatal_error_every_call_ends_with_it_and_nothing_is_sent(
    at: str, error: str
) -> None:
    in_transaction(
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
    in_transaction(f"""
        send t p0x1
        -> AddPartitions 7/0 p0
        commit t{before}
        INVALID_PRODUCER_EPOCH {name}
        == PRODUCER_FENCED
    """)


@pytest.mark.parametrize("first", ["late", *RETRIABLE])
@pytest.mark.parametrize("error", ["PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"])
def test_a_commit_that_was_asked_twice_and_then_refused_says_that_it_may_be_committed(
    error: str, first: str
) -> None:
    """Its coordinator may have forgotten the id since, or given it another producer id. A postponed commit is in
    doubt too: the answer may be to a copy of the request, while the request itself was executed."""
    broker = with_batch(f"""
        commit t
        ok Produce
        -> EndTxn 7/0 commit
        {first} End
        {"" if first == "late" else "wait 100"}
        -> EndTxn 7/0 commit
    """)
    broker.client.handle(Answer(broker.find("last End")[2].request, COORDINATOR, error))
    (end,) = broker.client.ended
    assert end.error == error and "not known" in end.detail


@pytest.mark.parametrize("error", RETRIABLE)
def test_what_can_be_retried_is(error: str) -> None:
    with_batch(f"""
        with retry_backoff_ms=50
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
    """)


def test_init_that_is_refused_gives_no_handle() -> None:
    talk("""
        init n
        -> InitProducer n
        INVALID_TRANSACTION_TIMEOUT Init
        == INVALID_TRANSACTION_TIMEOUT
    """)


def test_a_producer_whose_owner_is_gone_says_nothing_more() -> None:
    broker = with_batch("""
        commit t
        drop
        == REQUEST_TIMED_OUT
    """)
    assert not [token for _, token in broker.timers if broker.client.awaits(token)]
    broker.do("ok Produce")
    assert not broker.client.out
    assert not [token for _, token in broker.timers if broker.client.awaits(token)]


def test_two_incarnations_live_side_by_side_until_the_broker_fences_the_first() -> None:
    with_batch("""
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
