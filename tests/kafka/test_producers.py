"""Tests the rules by which a partition accepts batches, as tables: they are Kafka's."""

from typing import Any

import pytest
from partition_kit import EPOCH, FENCED, ORDER, STATE

from planstep.tablets.kafka.producer_state import (
    SEQUENCE_MAX,
    UNKNOWN,
    ProducerState,
    check,
    check_marker,
    ended,
    last_sequence,
    marked_already,
)

TAKEN = "taken"
AT = 900  # the offset that a batch would get

SIX = ((10, 19, 100), (20, 29, 110), (30, 30, 120), (31, 40, 121), (41, 41, 131))
KNOWN = ProducerState(3, 1, None, 7, SIX)
OPEN = KNOWN._replace(opened=100)
MARKED = ProducerState(3, 1)  # only a marker came
LAST = ProducerState(3, 1, None, 7, ((SEQUENCE_MAX - 1, SEQUENCE_MAX, 100),))


def batch(
    state: ProducerState, epoch: int, sequence: int, records: int = 1, at: int = AT, **more: Any
) -> ProducerState | str | int:
    """Checks a batch, by default one of version 1 outside of transactions."""
    more = {"transactional": False, "version": 1, **more}
    return check(state, epoch, sequence, records, at, timestamp_ms=8, **more)


@pytest.mark.parametrize(
    "case",
    [
        # state, epoch, sequence, records, transactional, expected: in sequence, and not
        (KNOWN, 3, 42, 5, False, TAKEN),
        (KNOWN, 3, 43, 1, False, ORDER),
        (KNOWN, 3, 40, 1, False, ORDER),
        (KNOWN, 3, 0, 1, False, ORDER),
        # the window: exactly one of the five
        (KNOWN, 3, 10, 10, False, 100),
        (KNOWN, 3, 30, 1, False, 120),
        (KNOWN, 3, 41, 1, True, 131),
        (KNOWN, 3, 41, 2, False, ORDER),
        (KNOWN, 3, 10, 9, False, ORDER),
        (KNOWN, 3, 0, 10, False, ORDER),  # older than the window
        # epochs
        (KNOWN, 2, 42, 1, False, EPOCH),
        (KNOWN, 2, 41, 1, False, EPOCH),
        (KNOWN, 4, 0, 1, False, TAKEN),
        (KNOWN, 4, 42, 1, False, ORDER),
        (KNOWN, 4, 41, 1, False, ORDER),  # the same numbers under another epoch are no duplicate
        # a marker made the state: sequences begin at 0
        (MARKED, 3, 0, 1, True, TAKEN),
        (MARKED, 3, 1, 1, True, ORDER),
        # the wrap
        (LAST, 3, 0, 1, False, TAKEN),
        (LAST, 3, 1, 1, False, ORDER),
        (LAST, 3, SEQUENCE_MAX - 1, 2, False, 100),
        # inside a transaction
        (OPEN, 3, 42, 1, True, TAKEN),
        (OPEN, 3, 42, 1, False, STATE),
        (OPEN, 4, 0, 1, False, STATE),
        (OPEN, 3, 43, 1, False, ORDER),  # Kafka checks the sequence first
        (OPEN, 3, 41, 1, False, 131),  # and duplicates before everything else
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_what_becomes_of_a_batch(case: Any, version: int) -> None:
    state, epoch, sequence, records, transactional, expected = case
    result = batch(state, epoch, sequence, records, transactional=transactional, version=version)
    if expected == TAKEN:
        assert isinstance(result, ProducerState) and result.epoch == epoch
        assert result.batches[-1] == (sequence, last_sequence(sequence, records), AT)
        assert len(result.batches) == (
            min(5, len(state.batches) + 1) if epoch == state.epoch else 1
        )
        assert result.opened == (state.opened or (AT if transactional else None))
        assert result.timestamp_ms == 8 and result.coordinator_epoch == 1
    else:
        assert result == expected


@pytest.mark.parametrize(
    ("sequence", "transactional", "version", "accepts"),
    [
        (0, False, 1, True),
        (57, False, 1, True),
        (57, True, 1, True),
        (57, False, 2, True),  # as in Kafka: only a transaction must begin there
        (0, True, 2, True),
        (57, True, 2, False),
    ],
)
def test_no_state_takes_any_sequence_but_a_transaction_of_version_2_begins_at_0(
    sequence: int, transactional: bool, version: int, accepts: bool
) -> None:
    result = batch(UNKNOWN, 6, sequence, transactional=transactional, version=version)
    assert isinstance(result, ProducerState) if accepts else result == ORDER


def test_a_batch_across_the_wrap() -> None:
    state = batch(UNKNOWN, 0, SEQUENCE_MAX - 1, 4)
    assert isinstance(state, ProducerState)
    assert state.batches == ((SEQUENCE_MAX - 1, 1, AT),)
    assert batch(state, 0, SEQUENCE_MAX - 1, 4, at=AT + 4) == AT
    assert isinstance(batch(state, 0, 2, at=AT + 4), ProducerState)


@pytest.mark.parametrize(
    ("state", "epoch", "coordinator_epoch", "version", "expected"),
    [
        (KNOWN, 3, 1, 1, ""),
        (KNOWN, 4, 1, 1, ""),
        (KNOWN, 2, 1, 1, EPOCH),
        (KNOWN, 3, 0, 1, FENCED),
        (KNOWN, 2, 0, 1, EPOCH),
        (UNKNOWN, 0, 0, 1, ""),
        (OPEN, 3, 1, 1, ""),
        (OPEN, 3, 0, 1, FENCED),
        (OPEN, 3, 1, 2, EPOCH),
        (OPEN, 4, 1, 2, ""),
        (OPEN, 4, 0, 2, FENCED),
        (KNOWN, 3, 1, 2, ""),  # written before
        (KNOWN, 3, 0, 2, FENCED),
        (KNOWN, 2, 1, 2, EPOCH),
        (UNKNOWN, 1, 0, 2, ""),
    ],
)
def test_what_becomes_of_a_marker(
    state: ProducerState, epoch: int, coordinator_epoch: int, version: int, expected: str
) -> None:
    assert check_marker(state, epoch, coordinator_epoch, version) == expected


def test_only_version_2_knows_a_marker_again() -> None:
    assert marked_already(KNOWN, 3, 2)
    assert not marked_already(KNOWN, 4, 2)
    assert not marked_already(KNOWN, 3, 1)


def test_a_marker_ends_the_transaction_and_empties_the_window_with_a_new_epoch() -> None:
    assert ended(OPEN, 3, 2) == KNOWN._replace(coordinator_epoch=2)
    assert ended(OPEN, 4, 2) == ProducerState(4, 2, None, 7, ())
    assert ended(UNKNOWN, 5, 2) == ProducerState(5, 2)
