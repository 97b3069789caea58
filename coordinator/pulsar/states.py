"""Defines the states of a transaction, what an end does in each, and the row that is stored.

    OPEN ─▶ COMMITTING ─▶ COMMITTED
      └───▶ ABORTING ──▶ ABORTED          by the client, an operator, or the time-out

Everything that decides which state may follow which is in this file; transactions.py asks it, and applies.
Numbers and names are Pulsar's (TxnStatus); ERROR and TIME_OUT are the client's alone.

Next: transactions.py.
"""

from typing import Any, NamedTuple

from ...proto.batched_log import Position

OPEN, COMMITTING, COMMITTED, ABORTING, ABORTED = range(5)
STATE_NAMES = ("OPEN", "COMMITTING", "COMMITTED", "ABORTING", "ABORTED")
DECIDED = (COMMITTING, ABORTING)
"""The states of a transaction whose end is decided but not known everywhere."""

CAME_FROM: dict[int, tuple[int, ...]] = {
    OPEN: (),
    COMMITTING: (OPEN,),
    COMMITTED: (COMMITTING,),
    ABORTING: (OPEN,),
    ABORTED: (ABORTING,),
}
"""The allowed predecessors of each state."""


def check_move(before: int, after: int) -> None:
    """Asserts that a state may follow another."""
    assert before in CAME_FROM[after], f"{STATE_NAMES[before]} -> {STATE_NAMES[after]}"


END, WAIT = "END", "WAIT"
"""Outcomes of a request to end: "end the transaction now", "answer it with the end that is under way"."""
INVALID, UNKNOWN = "InvalidTxnStatus", "TransactionNotFound"

END_TXN: dict[int, tuple[str, str]] = {
    # state: (commit, abort)
    OPEN: (END, END),
    COMMITTING: (WAIT, INVALID),
    COMMITTED: (WAIT, INVALID),
    ABORTING: (INVALID, WAIT),
    ABORTED: (INVALID, WAIT),
}
"""The outcome of EndTxn: an end that was asked for before is answered with it, another one is refused."""

REQUESTED, TIMED_OUT = range(2)
"""Why a transaction was ended."""

ENDED_AGAIN: dict[tuple[int, int], tuple[str, str]] = {
    # (state, why): (commit, abort)
    (COMMITTED, REQUESTED): ("", "AlreadyCommitted"),
    (ABORTED, REQUESTED): ("AlreadyAborted", ""),
    (ABORTED, TIMED_OUT): ("AlreadyTimedOut", ""),
}
"""The outcome of EndTxn for a transaction that is over, while the coordinator remembers it (PIP-481)."""


# records of the log ------------------------------------------------------------------------

NEW, ADD_PARTITION, ADD_SUBSCRIPTION, UPDATE = range(4)
"""The first field of a record; then come most, least, the highest number given so far, and

    NEW               timeout_ms, start_ms, the host's generation
    ADD_PARTITION     tablets
    ADD_SUBSCRIPTION  (tablet, name) pairs
    UPDATE            the new state, the one before, why
"""

# the row -----------------------------------------------------------------------------------


class Transaction(NamedTuple):
    """A live transaction's row; tuples ascend."""

    state: int
    timeout_ms: int
    start_ms: int
    generation: int
    """The host's generation when it was opened: what an earlier one left open, no client can end."""
    partitions: tuple[int, ...] = ()
    subscriptions: tuple[tuple[int, str], ...] = ()
    why: int = REQUESTED
    positions: tuple[tuple[int, ...], ...] = ()
    """The positions of its records in the log, in their order."""

    @property
    def participants(self) -> tuple[tuple[int, str | None], ...]:
        """Returns whom its end is sent to: (tablet, None) for a partition, (tablet, name) for a subscription."""
        return (*((tablet, None) for tablet in self.partitions), *self.subscriptions)

    @property
    def deadline_ms(self) -> int:
        return self.start_ms + self.timeout_ms


def row_of(value: tuple[Any, ...]) -> Transaction:
    return Transaction(*value)


def applied(row: Transaction | None, record: tuple[Any, ...], position: Position) -> Transaction:
    """Returns the row once a record of its transaction is in the log at `position`."""
    op, _, _, _, *rest = record
    if op == NEW:
        assert row is None
        timeout_ms, start_ms, generation = rest
        return Transaction(OPEN, timeout_ms, start_ms, generation, positions=(tuple(position),))
    assert row is not None
    positions = (*row.positions, tuple(position))
    if op == ADD_PARTITION:
        partitions = tuple(sorted({*row.partitions, *rest[0]}))
        return row._replace(partitions=partitions, positions=positions)
    if op == ADD_SUBSCRIPTION:
        subscriptions = tuple(sorted({*row.subscriptions, *map(tuple, rest[0])}))
        return row._replace(subscriptions=subscriptions, positions=positions)
    state, before, why = rest
    assert op == UPDATE and row.state == before
    check_move(before, state)
    return row._replace(state=state, why=why, positions=positions)
