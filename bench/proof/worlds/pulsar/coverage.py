"""Counts the transitions of mode "pulsar"'s state tables that a running world takes, and what it allows.

Next: seed.py.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .....coordinator.pulsar import states as coordinator
from .....coordinator.pulsar.states import CAME_FROM, STATE_NAMES
from .....proxy.pulsar import transaction
from .....proxy.pulsar.states import TRANSITIONS, State
from ..in_place.anomalies import ALLOWED, NOT_TOLD, TWO_HANDS, WAITS
from ..kafka.coverage import counting

REPEATS = "duplicate", "non-monotonic send"
"""What requests that come twice cause without deduplication (A14)."""
TWICE = "input used twice"
"""By cumulative acknowledgements that overlap (A6), or plain ones beside pending ones (A10)."""
HALF_SEEN = "commit that is seen in one partition first"
"""A4."""
ALLOWED_ANOMALY = "allowed anomaly"
_AT_COORDINATOR, _AT_CLIENT = "transaction at its coordinator", "transaction at its client"

TABLES: dict[str, tuple[str, ...]] = {
    _AT_COORDINATOR: tuple(
        f"{STATE_NAMES[before]} -> {STATE_NAMES[after]}"
        for after, befores in CAME_FROM.items()
        for before in befores
    ),
    _AT_CLIENT: tuple(
        f"{old.value} -> {new.value}" for old, following in TRANSITIONS.items() for new in following
    ),
    ALLOWED_ANOMALY: (*ALLOWED, *REPEATS, TWICE, HALF_SEEN, WAITS, NOT_TOLD, TWO_HANDS),
}
"""By table: all its transitions, "from -> to"; and the names of allowed anomalies."""


def _move(_: object, before: int, after: int) -> str:
    return f"{_AT_COORDINATOR}: {STATE_NAMES[before]} -> {STATE_NAMES[after]}"


def _moved(_: State, old: State, new: State) -> str:
    return f"{_AT_CLIENT}: {old.value} -> {new.value}"


_WATCHED: tuple[tuple[Any, str, Callable[..., str]], ...] = (
    (coordinator, "check_move", _move),
    (transaction, "moved", _moved),
)


@contextmanager
def watch() -> Iterator[Counter[str]]:
    """Counts transitions until it exits. Do not use it from two threads."""
    with counting(_WATCHED) as reached:
        yield reached
