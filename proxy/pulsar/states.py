"""Lists the states of a client's transaction and the allowed changes between them.

    NewTxn                    commit             EndTxn(commit)
    BEGINNING ─────▶ OPEN ──────────▶ COMMITTING ─────────────▶ COMMITTED
        │              │ │ abort           │ │ an operation failed
        ▼              │ └──▶ ABORTING ◀───┘ │ refused, or not known
      ERROR            ▼          └──▶ ABORTED         └──▶ ERROR
                    TIME_OUT: any of the three in the middle, until EndTxn is sent

Pulsar's TransactionImpl has these states without BEGINNING: it exists only once its id is known. OPEN to ABORTED
are the coordinator's states too; ERROR and TIME_OUT are the client's alone. Next: transaction.py.
"""

from enum import Enum


class State(Enum):
    BEGINNING = "beginning"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"
    ERROR = "error"
    TIME_OUT = "time-out"


TRANSITIONS: dict[State, tuple[State, ...]] = {
    State.BEGINNING: (State.OPEN, State.ERROR),
    State.OPEN: (State.COMMITTING, State.ABORTING, State.TIME_OUT),
    State.COMMITTING: (State.COMMITTED, State.ABORTING, State.ERROR, State.TIME_OUT),
    State.ABORTING: (State.ABORTED, State.ERROR, State.TIME_OUT),
    State.COMMITTED: (),
    State.ABORTED: (),
    State.ERROR: (),
    State.TIME_OUT: (),
}


def moved(old: State, new: State) -> State:
    """Returns `new`; asserts that it may follow `old`."""
    assert new in TRANSITIONS[old], f"a transaction goes from {old.value} to {new.value}"
    return new
