"""Describes the logs of mode "kafka"'s coordinators as text, for the inspection commands.

    transaction coordinator: w1 Ongoing [clicks[3]] producer 4 epoch 0
    group coordinator: resharder clicks[0] = 12 pending producer 4

Next: transactions.py, groups.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ...errors import FormatError
from ...proto.batched_log import decode_entry
from ...proto.ids import TRANSACTIONS, kind_of
from ...proto.kafka.messages import ABORT, COMMIT, KIND_TEXTS
from .states import STATE_NAMES

Name = Callable[[int], str]
"""Gives a tablet's readable name: "clicks[3]"."""


def members(name: Name, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    generation, joined = value
    who = f"members {', '.join(joined)}" if joined else "no members"
    yield f"{name(tablet)}: {rest.decode()} generation {generation}, {who}"


def logged(name: Name, tablet: int, rest: bytes, value: bytes) -> Iterator[str]:
    where = name(tablet)
    try:
        records = decode_entry(value)
    except FormatError as error:
        yield f"{where}: {error}"
        return
    several = len(records) > 1
    for i, record in enumerate(records, 1):
        # Records that share an append say so.
        together = f" ({i} of {len(records)} in one append)" if several else ""
        tell = _transaction_text if kind_of(tablet) == TRANSACTIONS else _group_text
        yield f"{where}: {tell(name, record)}{together}"


def _transaction_text(name: Name, record: tuple[Any, ...]) -> str:
    """Describes a record of a transaction coordinator's log: (id, the row's logged fields), or (id, None)."""
    who, *row = record
    if row == [None]:
        return f"{who} expired"
    producer, epoch, state, *_ = row
    parts = ", ".join(name(tablet) for tablet in row[6])
    where = f" [{parts}]" if parts else ""
    return f"{who} {STATE_NAMES[state]}{where} producer {producer} epoch {epoch}"


def _group_text(name: Name, record: tuple[Any, ...]) -> str:
    """Describes a record of a group coordinator's log: offsets, pending offsets, or a marker."""
    what, *rest = record
    if what == "marker":
        producer, epoch, _, commit, *_ = rest
        return f"{KIND_TEXTS[COMMIT if commit else ABORT]} producer {producer} epoch {epoch}"
    group, offsets = rest[-2:]
    moved = ", ".join(
        f"{name(tablet)} {'forgotten' if offset is None else f'= {offset}'}"
        for tablet, offset in offsets
    )
    return f"{group} {moved}" + (f" pending producer {rest[0]}" if what == "pending" else "")
