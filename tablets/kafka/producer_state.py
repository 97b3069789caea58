"""What a partition knows of one producer, and what it therefore takes from it: pure rules, no keys.

    epoch 3   sequences … 40–49 │ 50–59 │ 60–60 │ 61–70 │ 71–71      the last five batches and their offsets
                          ╰ exactly one of these again: a duplicate, answered with its old offset
                                                              72–… : next; anything else is out of order

A higher epoch begins at 0 and empties the window; a lower one is refused. So does a marker, which raises
the epoch in version 2 (KIP-890: an epoch for each transaction) and, where a coordinator fences, in version 1.

After org.apache.kafka.storage.internals.log.ProducerStateEntry and ProducerAppendInfo, with their order of
checks: duplicates, epoch, sequence, transaction. What it leaves out: the laxer checks of followers and
of the group coordinator's log, and the fence of the sequence that waits for verification: what waits is
appended in the order of its sequences here.

Next: partition.py, which keeps the rows.
"""

from typing import NamedTuple

BATCHES_KEPT = 5
SEQUENCE_MAX = (1 << 31) - 1
"""The next is 0."""
Window = tuple[tuple[int, int, int], ...]


class ProducerState(NamedTuple):
    """Invariants: `batches` (first, last sequence, offset) are of `epoch`, oldest first; epochs only rise.

    `coordinator_epoch` is the highest that a marker came with, -1 for none; `opened` the first offset
    of the open transaction; `timestamp_ms` that of the last batch or marker; `number` that of the last
    transaction that was ended by a marker with a number.
    """

    epoch: int = -1
    coordinator_epoch: int = -1
    opened: int | None = None
    timestamp_ms: int = 0
    batches: Window = ()
    number: int = 0


UNKNOWN = ProducerState()
"""Of a producer that never wrote here, or that expired."""


def last_sequence(first: int, records: int) -> int:
    """Of a batch; it wraps from 2**31 - 1 to 0."""
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
    """What becomes of a batch that would get `offset`: the state with it, the offset that it has already
    as a duplicate, or an error."""
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
        # Anything goes on from a state that is gone. Version 2's transactions begin at 0, and say so:
        # otherwise a late batch could open one behind the marker of its own.
        return sequence == 0 or not strict
    if epoch != state.epoch or not state.batches:
        return sequence == 0
    return sequence == last_sequence(state.batches[-1][1], 2)


def numbered_before(state: ProducerState, number: int) -> bool:
    """Whether the marker with this number, 0 for none, was written already. It is what Kafka has of one
    connection between two brokers: a marker that is sent again arrives before what comes after its end."""
    return 0 < number <= state.number


def check_marker(state: ProducerState, epoch: int, coordinator_epoch: int, version: int) -> str:
    """Why a marker is refused, or ""."""
    if epoch < state.epoch:
        return "INVALID_PRODUCER_EPOCH"
    if version >= 2 and epoch == state.epoch and state.opened is not None:
        # The open transaction's own marker has an epoch beyond its data's: this one is of an earlier.
        return "INVALID_PRODUCER_EPOCH"
    if coordinator_epoch < state.coordinator_epoch:
        return "TRANSACTION_COORDINATOR_FENCED"
    return ""


def marked_already(state: ProducerState, epoch: int, version: int) -> bool:
    """Whether an accepted marker is one that was written before (KAFKA-19999). In version 1 a repeat without
    a number looks like the marker of another transaction without data, of the same epoch."""
    return version >= 2 and epoch == state.epoch


def ended(
    state: ProducerState, epoch: int, coordinator_epoch: int, number: int = 0, now_ms: int = 0
) -> ProducerState:
    """The state behind an accepted marker, which is remembered as long as a batch would be: in version 1 it
    alone stands between a producer that was taken for dead and a transaction that nobody ends."""
    window = state.batches if epoch == state.epoch else ()
    number = max(number, state.number)
    timestamp_ms = max(now_ms, state.timestamp_ms)
    return ProducerState(epoch, coordinator_epoch, None, timestamp_ms, window, number)
