"""Decides from a partition's state of one producer whether to accept its batch or marker: pure rules, no keys.

    epoch 3   sequences … 40–49 │ 50–59 │ 60–60 │ 61–70 │ 71–71      the last five batches and their offsets
                          ╰ exactly one of these again: a duplicate, answered with its old offset
                                                              72–… : next; anything else is out of order

A higher epoch begins at 0 and empties the window; a lower one is refused. A marker with a higher epoch does
the same. In version 2 each raises it (KIP-890: an epoch for each transaction), in version 1 a fencing one.

After org.apache.kafka.storage.internals.log.ProducerStateEntry and ProducerAppendInfo, with their order of
checks: duplicates, epoch, sequence, transaction. Leaves out: the laxer checks of followers and of the group
coordinator's log, and the fence of a sequence that waits for verification. Here, waiting batches are
appended in the order of their sequences.

Next: partition.py, which keeps the rows.
"""

from typing import NamedTuple

BATCHES_KEPT = 5
SEQUENCE_MAX = (1 << 31) - 1
"""The highest sequence; 0 follows it."""
Window = tuple[tuple[int, int, int], ...]


class ProducerState(NamedTuple):
    """A partition's state of one producer.

    Invariants: `batches` (first, last sequence, offset) are of `epoch`, oldest first; epochs only rise.

    `coordinator_epoch` is the highest of any marker, -1 for none. `opened` is the first offset of the open
    transaction. `timestamp_ms` is that of the last batch or marker. `number` is the highest of a marker
    with a number.
    """

    epoch: int = -1
    coordinator_epoch: int = -1
    opened: int | None = None
    timestamp_ms: int = 0
    batches: Window = ()
    number: int = 0


UNKNOWN = ProducerState()
"""The state of a producer that never wrote here, or that expired."""


def last_sequence(first: int, records: int) -> int:
    """Returns a batch's last sequence; sequences wrap from 2**31 - 1 to 0."""
    return (first + records - 1) & SEQUENCE_MAX


def check(
    state: ProducerState,
    epoch: int,
    sequence: int,
    records: int,
    offset: int,
    *,
    timestamp_ms: int,
    transactional: bool,
    version: int,
) -> "str | int | ProducerState":
    """Checks a batch that would get `offset`.

    Returns the state after it; or, for a duplicate, the offset that it already has; or an error.
    """
    last = last_sequence(sequence, records)
    if epoch == state.epoch:
        for first, end, written in state.batches:
            if (first, end) == (sequence, last):
                return written
    if epoch < state.epoch:
        return "INVALID_PRODUCER_EPOCH"
    if not _in_sequence(state, epoch, sequence, transactional and version >= 2):
        return "OUT_OF_ORDER_SEQUENCE_NUMBER"
    if state.opened is not None and not transactional:
        return "INVALID_TXN_STATE"
    window = state.batches if epoch == state.epoch else ()
    return ProducerState(
        epoch,
        state.coordinator_epoch,
        offset if transactional and state.opened is None else state.opened,
        timestamp_ms,
        (*window, (sequence, last, offset))[-BATCHES_KEPT:],
        state.number,
    )


def _in_sequence(state: ProducerState, epoch: int, sequence: int, strict: bool) -> bool:
    if state.epoch == -1:
        # Without a state any sequence is accepted. But a transaction of version 2 begins at 0: otherwise
        # a late batch could open one behind its own transaction's marker.
        return sequence == 0 or not strict
    if epoch != state.epoch or not state.batches:
        return sequence == 0
    return sequence == last_sequence(state.batches[-1][1], 2)


def numbered_before(state: ProducerState, number: int) -> bool:
    """Returns whether the marker with this number (0: none) was written already.

    Kafka relies on one connection between two brokers instead: there a repeated marker arrives before
    anything sent after the transaction's end.
    """
    return 0 < number <= state.number


def check_marker(state: ProducerState, epoch: int, coordinator_epoch: int, version: int) -> str:
    """Returns the error for a marker that is refused, or ""."""
    if epoch < state.epoch:
        return "INVALID_PRODUCER_EPOCH"
    if version >= 2 and epoch == state.epoch and state.opened is not None:
        # The open transaction's marker has a higher epoch than its data; this one ends an earlier one.
        return "INVALID_PRODUCER_EPOCH"
    if coordinator_epoch < state.coordinator_epoch:
        return "TRANSACTION_COORDINATOR_FENCED"
    return ""


def marked_already(state: ProducerState, epoch: int, version: int) -> bool:
    """Returns whether an accepted marker was written before (KAFKA-19999).

    In version 1 a repeat without a number looks like the marker of another, empty transaction of the epoch.
    """
    return version >= 2 and epoch == state.epoch


def ended(
    state: ProducerState, epoch: int, coordinator_epoch: int, number: int = 0, now_ms: int = 0
) -> ProducerState:
    """Returns the state after an accepted marker.

    It is kept as long as after a batch. In version 1 only this state keeps a producer that was taken for
    dead from opening a transaction that no coordinator ends.
    """
    window = state.batches if epoch == state.epoch else ()
    number = max(number, state.number)
    timestamp_ms = max(now_ms, state.timestamp_ms)
    return ProducerState(epoch, coordinator_epoch, None, timestamp_ms, window, number)
