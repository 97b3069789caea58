"""Lists the states of a transactional producer and the allowed changes between them.

                    InitProducer          begin              commit
    UNINITIALIZED ─▶ INITIALIZING ─▶ READY ────▶ IN_TRANSACTION ────▶ COMMITTING ─▶ READY
                          ▲           ▲                │ │ abort           │
                          │           └── ABORTING ◀───┼─┘                 │
                          └─ sequences ──────┘ ▲       ▼                   │
                             unknown           └─ ABORTABLE_ERROR ◀────────┘
    any ─▶ FATAL_ERROR, the end

Java's TransactionManager has the same table and refuses any other change. Next: producer.py.
"""

from enum import Enum


class State(Enum):
    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


TRANSITIONS: dict[State, tuple[State, ...]] = {
    State.UNINITIALIZED: (State.INITIALIZING, State.FATAL_ERROR),
    State.INITIALIZING: (State.READY, State.FATAL_ERROR),
    State.READY: (State.IN_TRANSACTION, State.FATAL_ERROR),
    State.IN_TRANSACTION: (
        State.COMMITTING,
        State.ABORTING,
        State.ABORTABLE_ERROR,
        State.FATAL_ERROR,
    ),
    State.COMMITTING: (State.READY, State.ABORTABLE_ERROR, State.FATAL_ERROR),
    State.ABORTABLE_ERROR: (State.ABORTING, State.FATAL_ERROR),
    # INITIALIZING: KIP-360, the producer asks for the next epoch before the next transaction
    State.ABORTING: (State.READY, State.INITIALIZING, State.FATAL_ERROR),
    State.FATAL_ERROR: (),
}


def moved(old: State, new: State) -> State:
    """Returns `new`; asserts that it may follow `old`."""
    assert new in TRANSITIONS[old], f"a producer goes from {old.value} to {new.value}"
    return new
