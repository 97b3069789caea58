"""Describes the logs of mode "pulsar"'s coordinators as text, for the inspection commands.

    transaction coordinator: (0,5) COMMITTING (2 of 3 in one append)

Next: transactions.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ...errors import FormatError
from ...proto.batched_log import decode_entry
from ...proto.pulsar.messages import TxnID
from .states import ADD_PARTITION, ADD_SUBSCRIPTION, NEW, STATE_NAMES, TIMED_OUT

Name = Callable[[int], str]
"""Gives a tablet's readable name: "clicks[3]"."""


def logged(name: Name, tablet: int, rest: bytes, value: bytes) -> Iterator[str]:
    """Describes one entry of the log, a line a record."""
    where = name(tablet)
    try:
        records = decode_entry(value)
    except FormatError as error:
        yield f"{where}: {error}"
        return
    for i, record in enumerate(records, 1):
        together = f" ({i} of {len(records)} in one append)" if len(records) > 1 else ""
        yield f"{where}: {record_text(name, record)}{together}"


def ended(name: Name, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    """Describes that a transaction's row and records are deleted: every participant has its end."""
    yield f"{name(tablet)}: its transaction {int.from_bytes(rest, 'big')} is over, its records are deleted"


def record_text(name: Name, record: tuple[Any, ...]) -> str:
    """Describes one record, such as "(0,5) COMMITTING"."""
    op, most, least, _, *rest = record
    who = TxnID(most, least)
    if op == NEW:
        return f"{who} opened, time-out {rest[0]} ms"
    if op == ADD_PARTITION:
        return f"{who} writes {', '.join(map(name, rest[0]))}"
    if op == ADD_SUBSCRIPTION:
        where = ", ".join(f"{name(tablet)} for {consumer}" for tablet, consumer in rest[0])
        return f"{who} acknowledges {where}"
    state, _, why = rest
    return f"{who} {STATE_NAMES[state]}" + (", timed out" if why == TIMED_OUT else "")
