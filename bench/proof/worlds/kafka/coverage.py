"""Counts the transitions of mode "kafka"'s state tables that a running world takes.

    with watch() as reached: …        reached["transactional id: Ongoing -> PrepareCommit"] == 12

The cores count nothing: the functions that look up their tables are wrapped where they are called. A transition
counts also if its turn is undone afterwards.

Next: seed.py.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from .....coordinator.kafka import ends
from .....coordinator.kafka import transactions as coordinator
from .....coordinator.kafka.states import (
    CAME_FROM,
    END_TXN_1,
    END_TXN_2,
    STATE_NAMES,
)
from .....proxy.kafka import producer
from .....proxy.kafka.states import TRANSITIONS, State
from .....tablets.kafka import partition as partition
from .....tablets.kafka.producer_state import ProducerState

_IDS, _END_1, _END_2 = "transactional id", "EndTxn, version 1", "EndTxn, version 2"
_PRODUCER, _BATCH, _MARKER = "producer", "batch at its partition", "marker at its partition"
_REQUESTS_1 = "commit", "abort"
_REQUESTS_2 = "commit again", "commit", "abort again", "abort"

TABLES: dict[str, tuple[str, ...]] = {
    _IDS: tuple(
        f"{STATE_NAMES[before]} -> {STATE_NAMES[after]}"
        for after, befores in CAME_FROM.items()
        for before in befores
    ),
    _END_1: tuple(
        f"{STATE_NAMES[state]}, {request} -> {outcome or 'done before'}"
        for state, outcomes in END_TXN_1.items()
        for request, outcome in zip(_REQUESTS_1, outcomes, strict=True)
    ),
    _END_2: tuple(
        f"{STATE_NAMES[state]}, {request} -> {outcome or 'done before'}"
        for state, outcomes in END_TXN_2.items()
        for request, outcome in zip(_REQUESTS_2, outcomes, strict=True)
    ),
    _PRODUCER: tuple(
        f"{old.value} -> {new.value}" for old, following in TRANSITIONS.items() for new in following
    ),
    _BATCH: tuple(
        f"{kind} -> {what}"
        for kind in ("plain", "transactional")
        for what in (
            "taken",
            "duplicate",
            "INVALID_PRODUCER_EPOCH",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
        )
    ),
    _MARKER: tuple(
        f"version {version} -> {what}"
        for version in (1, 2)
        for what in ("taken", "INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED")
    ),
}
"""By table: all its transitions, "from -> to"."""

_REGISTERED = "whoever ends a transaction has registered it in this epoch, and from Ongoing an end raises the epoch"
_ONE_END = "a client that has asked for a commit asks again until it is told; it does not abort"
_NUMBERED = (
    "markers are numbered, and a repeat is known by its number before anything else is looked at"
)
UNREACHABLE: dict[str, str] = {
    **{f"{_END_1}: Empty, {request} -> INVALID_TXN_STATE": _REGISTERED for request in _REQUESTS_1},
    f"{_END_2}: Empty, commit again -> PRODUCER_FENCED": _REGISTERED + ", and InitProducer again",
    **{
        f"{_END_2}: {state}, commit -> INVALID_TXN_STATE": _REGISTERED
        for state in ("Empty", "CompleteCommit", "CompleteAbort")
    },
    **{
        f"{_END_2}: {state}, commit -> CONCURRENT_TRANSACTIONS": "nothing is registered before Complete"
        for state in ("PrepareCommit", "PrepareAbort")
    },
    **{
        f"{_END_2}: {state}, abort again -> INVALID_TXN_STATE": _ONE_END
        for state in ("PrepareCommit", "CompleteCommit")
    },
    f"{_PRODUCER}: uninitialized -> fatal error": "a producer is initialized where it is made",
    **{
        f"{_MARKER}: version {version} -> {error}": _NUMBERED
        for version in (1, 2)
        for error in ("INVALID_PRODUCER_EPOCH", "TRANSACTION_COORDINATOR_FENCED")
    },
}
"""Transitions that no client or coordinator of this engine requests, each with the reason: the tables are Kafka's,
and guard against other clients."""


def _move(_: object, before: int, after: int) -> str:
    return f"{_IDS}: {STATE_NAMES[before]} -> {STATE_NAMES[after]}"


def _end_1(outcome: str, state: int, commit: bool) -> str:
    request = _REQUESTS_1[not commit]
    return f"{_END_1}: {STATE_NAMES[state]}, {request} -> {outcome or 'done before'}"


def _end_2(outcome: str, state: int, commit: bool, retry: bool) -> str:
    request = _REQUESTS_2[2 * (not commit) + (not retry)]
    return f"{_END_2}: {STATE_NAMES[state]}, {request} -> {outcome or 'done before'}"


def _moved(_: State, old: State, new: State) -> str:
    return f"{_PRODUCER}: {old.value} -> {new.value}"


def _batch(
    result: ProducerState | int | str, *_: object, transactional: bool, **more: object
) -> str:
    names: dict[type, str] = {ProducerState: "taken", int: "duplicate"}
    kind = "transactional" if transactional else "plain"
    return f"{_BATCH}: {kind} -> {names.get(type(result), result)}"


def _marker(error: str, _: object, epoch: int, coordinator_epoch: int, version: int) -> str:
    return f"{_MARKER}: version {version} -> {error or 'taken'}"


_WATCHED: tuple[tuple[Any, str, Callable[..., str]], ...] = (
    (coordinator, "check_move", _move),
    (ends.ROWS, "check_move", _move),
    (coordinator, "end_1", _end_1),
    (coordinator, "end_2", _end_2),
    (producer, "moved", _moved),
    (partition, "check", _batch),
    (partition, "check_marker", _marker),
)
"""(where a function is called, its name, the transition of its result and arguments)."""


@contextmanager
def counting(
    watched: tuple[tuple[Any, str, Callable[..., str]], ...],
) -> Iterator[Counter[str]]:
    """Counts transitions, "table: from -> to", until it exits. Do not use it from two threads."""
    reached: Counter[str] = Counter()

    def counted(function: Callable[..., Any], transition: Callable[..., str]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            reached[transition(result, *arguments, **named)] += 1
            return result

        return wrapper

    with ExitStack() as stack:
        for owner, name, transition in watched:
            wrapper = counted(getattr(owner, name), transition)
            stack.enter_context(patch.object(owner, name, wrapper))
        yield reached


@contextmanager
def watch() -> Iterator[Counter[str]]:
    """Counts the transitions of mode "kafka"."""
    with counting(_WATCHED) as reached:
        yield reached


def unreached(reached: Counter[str]) -> list[str]:
    """Lists the transitions of TABLES that were not taken."""
    return [
        f"{table}: {transition}"
        for table, transitions in TABLES.items()
        for transition in transitions
        if f"{table}: {transition}" not in reached
    ]
