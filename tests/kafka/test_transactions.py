"""Tests the transaction coordinator: ids and epochs, registration, fencing, KIP-360.

How transactions end is in test_end_txn.py, what time does in test_transactions_in_time.py, what a restart
leaves in test_transactions_recovery.py.
"""

from typing import Any

import pytest
from coordinator_kit import CLIENT, Coordinator, G, P

from planstep.coordinator.kafka.states import (
    CAME_FROM,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    END_TXN_1,
    END_TXN_2,
    EPOCH_MAX,
    FENCE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATE_NAMES,
    check_move,
)
from planstep.proto.ids import TRANSACTIONS, tablet_id
from planstep.proto.kafka.messages import InitProducer, Register, Registered
from planstep.proto.kafka.settings import ERRORS
from planstep.proto.shell import Answer

CONCURRENT, FENCED = ("CONCURRENT_TRANSACTIONS", None), ("PRODUCER_FENCED", None)
UNMAPPED, INVALID = ("INVALID_PRODUCER_ID_MAPPING", None), ("INVALID_TXN_STATE", None)
OK = ("", None)
LAST = EPOCH_MAX - 1  # the highest epoch that a client is given


def register(c: Coordinator, producer: int, epoch: int) -> str:
    c.tablet.handle(Register(P[0], "a", producer, epoch))
    (answer,) = c.drain(Registered, P[0])
    assert (answer.tablet, answer.name) == (c.tablet.id, "a")
    assert (answer.producer, answer.epoch) == (producer, epoch)
    return answer.error


# the tables ------------------------------------------------------------------------------


def test_every_state_has_its_row_in_every_table() -> None:
    assert set(CAME_FROM) == set(range(len(STATE_NAMES)))
    live = set(CAME_FROM) - {DEAD, FENCE}
    assert set(END_TXN_1) == set(END_TXN_2) == live
    outcomes = {cell for table in (END_TXN_1, END_TXN_2) for row in table.values() for cell in row}
    assert outcomes <= {"", "END", *ERRORS}


@pytest.mark.parametrize(
    "before, after",
    [
        (EMPTY, PREPARE_COMMIT),
        (PREPARE_COMMIT, ONGOING),
        (DEAD, EMPTY),
        (PREPARE_ABORT, COMPLETE_COMMIT),
    ],
)
def test_a_move_that_is_not_in_the_table_is_a_bug(before: int, after: int) -> None:
    with pytest.raises(AssertionError, match=STATE_NAMES[after]):
        check_move(before, after)


# InitProducer ------------------------------------------------------------------------------


def test_without_a_transactional_id_each_gets_a_fresh_producer(c: Coordinator) -> None:
    assert [c.init(None) for _ in range(3)] == [("", (n, 0)) for n in range(3)]
    assert not c.keys.scan(b"t", b"u") and not c.keys.scan(b"l", b"m"), "nothing is logged"


def test_producer_ids_come_in_blocks_and_name_their_host() -> None:
    c = Coordinator()
    for _ in range(1_001):
        _, (last, _) = c.init(None)
    assert last == 1_000 and c.keys.rows[b"i"] == 2_000
    c.restart()
    assert c.init(None) == ("", (2_000, 0)), "the rest of a block is lost"
    other = Coordinator()
    other.tablet = other.kind(tablet_id(TRANSACTIONS, 3, 0), other.keys, other.shell)
    assert other.init(None) == ("", (3 << 40, 0))


@pytest.mark.parametrize("name", ["", "é" * 201])
def test_an_empty_or_endless_id_is_invalid(c: Coordinator, name: str) -> None:
    invalid = ("INVALID_REQUEST", None)
    assert c.init(name) == c.add(0, 0, name=name) == c.end(0, 0, name=name) == invalid
    assert c.init("é" * 200) == ("", (0, 0))


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_time_outs_beyond_the_limit(c: Coordinator, timeout_ms: int) -> None:
    assert c.init(timeout_ms=timeout_ms) == ("INVALID_TRANSACTION_TIMEOUT", None)
    assert c.init(timeout_ms=900_000)[0] == ""


def test_each_init_raises_the_epoch(c: Coordinator) -> None:
    assert [c.init() for _ in range(3)] == [("", (0, n)) for n in range(3)]
    assert c.init("b") == ("", (1, 0))


def test_init_while_ongoing_fences_aborts_and_answers_once_asked_again(c: Coordinator) -> None:
    c.init()
    c.add(0, 0)
    assert c.init() == CONCURRENT
    assert c.add(0, 0) == CONCURRENT and c.end(0, 0) == FENCED
    (marker,) = c.markers()
    assert (marker.epoch, marker.commit) == (1, False)
    assert c.init() == CONCURRENT, "while markers are on their way"
    c.mark(marker, P[0])
    assert c.init() == ("", (0, 2)), "the epoch of the fence is given to nobody"
    assert c.add(0, 0) == FENCED


def test_init_while_ongoing_raises_the_epoch_once_in_version_2() -> None:
    c = Coordinator(protocol_version=2)
    c.init()
    register(c, 0, 0)
    assert c.init() == CONCURRENT
    (marker,) = c.markers()
    assert (marker.epoch, marker.version) == (1, 2), "not twice (KAFKA-19367)"
    c.mark(marker, P[0])
    assert c.init() == ("", (0, 2))


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_init_while_ending_waits(c: Coordinator, state: int) -> None:
    c.init()
    c.add(0, 0)
    c.end(0, 0, commit=state == PREPARE_COMMIT)
    assert c.row().state == state and c.init() == CONCURRENT
    c.mark_all()
    assert c.init() == ("", (0, 1))


# KIP-360 -----------------------------------------------------------------------------------


def test_going_on_under_the_next_epoch(c: Coordinator) -> None:
    c.init()
    assert c.init(producer=0, epoch=0) == ("", (0, 1))
    assert c.init(producer=0, epoch=0) == ("", (0, 1)), "the same again: its answer was lost"
    assert c.init(producer=0, epoch=1) == ("", (0, 2))
    assert c.init(producer=0, epoch=0) == FENCED


def test_a_new_producer_in_between_fences_who_would_go_on(c: Coordinator) -> None:
    c.init()
    c.init(producer=0, epoch=0)
    assert c.init() == ("", (0, 2))
    assert c.init(producer=0, epoch=1) == FENCED and c.init(producer=0, epoch=0) == FENCED


def test_a_foreign_producer_id_is_fenced(c: Coordinator) -> None:
    c.init()
    assert c.init(producer=9, epoch=0) == FENCED


def test_an_id_that_nobody_knows_any_more_starts_anew(c: Coordinator) -> None:
    assert c.init(producer=77, epoch=5) == ("", (0, 0))


def test_the_last_epoch_is_forgotten_with_the_host(c: Coordinator) -> None:
    c.init()
    c.init(producer=0, epoch=0)
    c.restart()
    assert c.init(producer=0, epoch=0) == FENCED, "as in Kafka, where it is in no log"
    assert c.init(producer=0, epoch=1) == ("", (0, 2))


# epochs run out ----------------------------------------------------------------------------


def test_epochs_exhausted_give_a_new_producer(c: Coordinator) -> None:
    c.init()
    c.force(epoch=LAST - 1)
    assert c.init() == ("", (0, LAST))
    assert c.init() == ("", (1, 0))
    assert c.row().previous == 0


def test_the_answer_with_the_new_producer_may_be_asked_again(c: Coordinator) -> None:
    c.init()
    c.force(epoch=LAST)
    assert c.init(producer=0, epoch=LAST) == ("", (1, 0))
    assert c.init(producer=0, epoch=LAST) == ("", (1, 0))
    assert c.init(producer=0, epoch=LAST - 1) == FENCED
    assert c.init(producer=1, epoch=0) == ("", (1, 1))
    assert c.init(producer=0, epoch=LAST) == FENCED


def test_who_goes_on_from_an_old_epoch_gets_no_new_producer(c: Coordinator) -> None:
    c.init()
    c.force(epoch=LAST)
    assert c.init(producer=0, epoch=3) == FENCED


@pytest.mark.parametrize("version", [1, 2])
def test_a_fence_at_the_last_epoch(version: int) -> None:
    c = Coordinator(protocol_version=version)
    c.init()
    c.add(0, 0)
    c.force(epoch=LAST)
    assert c.init() == CONCURRENT
    (marker,) = c.markers()
    assert (marker.producer, marker.epoch) == (0, EPOCH_MAX)
    c.mark(marker, P[0])
    # Version 2 has rotated at the end (KAFKA-20090), version 1 does on request; both give a fresh id.
    assert c.init() == ("", (1, 1) if version == 2 else (1, 0))


# AddPartitions, AddOffsets, Register -----------------------------------------------------


def test_partitions_are_registered_once(c: Coordinator) -> None:
    c.init()
    assert c.add(0, 0, P[1], P[0]) == OK
    entries = c.keys.rows[b"L"]
    assert c.add(0, 0, P[0]) == OK and c.keys.rows[b"L"] == entries, "a subset is not written"
    assert c.add(0, 0, P[1], P[2]) == OK and c.keys.rows[b"L"] == entries + 1
    assert c.add_offsets(0, 0) == OK
    assert c.row().partitions == tuple(sorted((*P[:3], G)))


STATES = [
    (EMPTY, OK),
    (ONGOING, OK),
    (PREPARE_COMMIT, CONCURRENT),
    (PREPARE_ABORT, CONCURRENT),
    (COMPLETE_COMMIT, OK),
    (COMPLETE_ABORT, OK),
]


@pytest.mark.parametrize("state, expected", STATES)
def test_add_in_every_state(c: Coordinator, state: int, expected: Any) -> None:
    c.init()
    c.force(state=state)
    assert c.add(0, 0) == expected
    assert c.row().state == (ONGOING if expected == OK else state)


@pytest.mark.parametrize("state, expected", STATES)
def test_register_in_every_state(c: Coordinator, state: int, expected: Any) -> None:
    c.init()
    c.force(state=state)
    assert register(c, 0, 0) == expected[0]


def test_add_checks_who_asks(c: Coordinator) -> None:
    assert c.add(0, 0) == UNMAPPED
    c.init()
    c.init()
    assert c.add(5, 1) == UNMAPPED
    assert c.add(0, 0) == FENCED and c.add(0, 2) == FENCED
    assert c.add_offsets(0, 0) == FENCED and register(c, 0, 0) == "PRODUCER_FENCED"


def test_answers_go_to_the_client_that_asked(c: Coordinator) -> None:
    c.tablet.handle(InitProducer(CLIENT, 44, "a", 60_000))
    (sent,) = c.shell.sent
    assert (sent.target, sent.durable) == (CLIENT, False)
    assert sent.message == Answer(44, c.tablet.id, "", (0, 0))


def test_partitions_that_register_together_share_an_append() -> None:
    c = Coordinator(protocol_version=2)
    c.init()
    before = len(c.shell.appends)
    c.shell.gather = True
    for tablet in P[:2]:
        c.tablet.handle(Register(tablet, "a", 0, 0))
    assert not c.drain(Registered), "they wait for those that come with them"
    (wake,) = c.shell.gathered
    c.tablet.handle(wake)
    assert [registered.error for registered in c.drain(Registered)] == ["", ""]
    assert len(c.shell.appends) == before + 1
    assert c.row().partitions == tuple(sorted(P[:2]))
