"""Defines the states of a transactional id, the effect of EndTxn in each, and the row that is stored.

    Empty ─▶ Ongoing ─▶ PrepareCommit ─▶ CompleteCommit ─▶ Ongoing, Empty, Dead
      │ ▲      │ └────▶ PrepareAbort ──▶ CompleteAbort ──▶ Ongoing, Empty, Dead
      ▼ │      └─▶ PrepareEpochFence ─▶ PrepareAbort        fenced by another InitProducer, or timed out
     Dead

Everything that decides which state may follow which is in this file; transactions.py asks it, and applies.
Numbers and names are Kafka's (TransactionState.java), for comparison.

Next: transactions.py.
"""

from typing import Any, NamedTuple

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, FENCE = range(
    8
)
STATE_NAMES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
COMPLETED = (COMPLETE_COMMIT, COMPLETE_ABORT)
AT_REST = (EMPTY, *COMPLETED)
"""The states with no open transaction: the id may expire, and a new producer may take it at once."""

CAME_FROM: dict[int, tuple[int, ...]] = {
    EMPTY: (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    ONGOING: (ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    PREPARE_COMMIT: (ONGOING,),
    # In version 2 a producer may abort before any partition is registered: its write may be on the way.
    PREPARE_ABORT: (ONGOING, FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    DEAD: (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT),
    FENCE: (ONGOING,),
}
"""The allowed predecessors of each state. Dead is a tombstone in the log, PrepareEpochFence is in no log."""


def check_move(before: int, after: int) -> None:
    """Asserts that a state may follow another."""
    assert before in CAME_FROM[after], f"{STATE_NAMES[before]} -> {STATE_NAMES[after]}"


# EndTxn ------------------------------------------------------------------------------------

END = "END"
"""The outcome "end the transaction now"; any other is an error name, or "" for success, done before."""
INVALID, CONCURRENT, FENCED = "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED"

END_TXN_1: dict[int, tuple[str, str]] = {
    # state: (commit, abort); the request has the stored epoch
    EMPTY: (INVALID, INVALID),
    ONGOING: (END, END),
    # Not complete yet: answering success here would lose the next transaction of this epoch.
    PREPARE_COMMIT: (CONCURRENT, INVALID),
    PREPARE_ABORT: (INVALID, CONCURRENT),
    # An epoch may have many transactions, so a late request looks like a repeat: hence the torn
    # transactions of version 1.
    COMPLETE_COMMIT: ("", INVALID),
    COMPLETE_ABORT: (INVALID, ""),
}

END_TXN_2: dict[int, tuple[str, str, str, str]] = {
    # state: (retried commit, commit; retried abort, abort); a retry has the epoch before the stored one,
    # since each end raises it
    EMPTY: (FENCED, INVALID, FENCED, END),
    ONGOING: (FENCED, END, FENCED, END),
    # A producer that has the stored epoch was answered at Prepare and is one transaction ahead.
    PREPARE_COMMIT: (CONCURRENT, CONCURRENT, INVALID, CONCURRENT),
    PREPARE_ABORT: (FENCED, CONCURRENT, CONCURRENT, CONCURRENT),
    COMPLETE_COMMIT: ("", INVALID, INVALID, END),
    # A commit behind the coordinator's own abort is fenced; it is no wrong state (KAFKA-20785).
    COMPLETE_ABORT: (FENCED, INVALID, "", END),
}


def end_1(state: int, commit: bool) -> str:
    return END_TXN_1[state][not commit]


def end_2(state: int, commit: bool, retry: bool) -> str:
    return END_TXN_2[state][2 * (not commit) + (not retry)]


# names ---------------------------------------------------------------------------------------

NAME_BYTES_MAX = 400
"""The most bytes of a transactional id or group in UTF-8: it is part of a key of the store."""


def usable(name: str) -> bool:
    return bool(name) and len(name.encode()) <= NAME_BYTES_MAX


# epochs ------------------------------------------------------------------------------------

EPOCH_MAX = 32_767
"""The highest epoch, reserved for fencing: no client ever gets it."""


def exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


# appends -----------------------------------------------------------------------------------

APPEND_ERRORS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "COORDINATOR_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS": "COORDINATOR_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT": "COORDINATOR_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR": "NOT_COORDINATOR",
}
"""Maps an error of writing the log to the one that the client gets."""


# the row -----------------------------------------------------------------------------------


class Transaction(NamedTuple):
    """A transactional id's row.

    A broker has the fields from `generation` on in memory only. They count while `generation` is the host's,
    so a restart forgets them.
    """

    producer: int
    epoch: int
    state: int
    timeout_ms: int
    start_ms: int
    """When the transaction began; -1 if none has."""
    update_ms: int
    partitions: tuple[int, ...] = ()
    """In ascending order."""
    previous: int = -1
    """The producer id before this one, if that ran out of epochs."""
    next: int = -1
    """The producer id to take once complete, if this one ran out of epochs with this transaction."""
    version: int = 1
    number: int = 0
    """The number of the transaction that ended last, counted over the id's life."""
    generation: int = -1
    last_epoch: int = -1
    """The epoch before the last InitProducer (KIP-360) or end (version 2): a repeat with it is answered again."""

    def logged(self) -> tuple[Any, ...]:
        """Returns the fields that a log record holds."""
        return tuple(self[:11])

    def remembered(self, generation: int) -> "Transaction":
        """Returns the row without what an earlier generation of the host had in memory only."""
        if self.generation == generation:
            return self
        return self._replace(generation=generation, last_epoch=-1)

    def fenced(self, epoch: int) -> "Transaction":
        return self._replace(epoch=epoch)
