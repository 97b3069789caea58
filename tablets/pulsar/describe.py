"""Describes entries of a partition of mode "pulsar" as text, for the inspection commands.

    transactional (0,5) producer clicks seq 12
    abort marker (0,5)
    clicks[0] for resharder: (0,5) acknowledges 3-5, pending
    clicks[0] resharder = 5

Next: partition.py, whose rows these are.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ...errors import FormatError
from ...proto.batched_log import decode_entry
from ...proto.pulsar.messages import ABORT, COMMIT, KIND_TEXTS, NO_TXN, TxnID
from . import ack_log

Name = Callable[[int], str]
"""Gives a tablet's readable name: "clicks[3]"."""

ENTRY_COLUMNS = ("kind", "txn_id", "producer", "sequence")


def entry_fields(kind: int, most: int, least: int, producer: str, sequence: int) -> dict[str, Any]:
    """Names the fields of an entry's row that follow address, length and records."""
    marker = kind in (COMMIT, ABORT)
    return {
        **({"records": 0} if marker else {}),
        "kind": KIND_TEXTS[kind],
        "txn_id": None if (most, least) == NO_TXN else str(TxnID(most, least)),
        "producer": producer or None,
        "sequence": None if sequence < 0 else sequence,
    }


def entry_text(fields: dict[str, Any]) -> str:
    parts = [fields["kind"]]
    if fields["txn_id"] is not None:
        parts.append(fields["txn_id"])
    if fields["producer"] is not None:
        parts.append(f"producer {fields['producer']}")
    if fields["sequence"] is not None:
        parts.append(f"seq {fields['sequence']}")
    return " ".join(parts)


def acknowledged(name: Name, tablet: int, rest: bytes, value: bytes) -> Iterator[str]:
    """Describes one entry of a subscription's log of pending acknowledgements, a line a record."""
    subscription, _, row = rest.partition(b"\0")
    if row[:1] != b"l":
        return  # which of an entry's records are left
    where = f"{name(tablet)} for {subscription.decode()}:"
    try:
        records = decode_entry(value)
    except FormatError as error:
        yield f"{where} {error}"
        return
    for op, most, least, *acks in records:
        who = TxnID(most, least)
        if op != ack_log.ACK:
            yield f"{where} {who} {'committed' if op == ack_log.COMMIT else 'aborted'}"
            continue
        ranges, position = acks
        taken = [f"{begin}-{end}" for begin, end in ranges]
        yield f"{where} {who} acknowledges {', '.join(taken) or f'to {position}'}, pending"


def cursor(name: Name, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    """Describes what a subscription has acknowledged: its position, and the number of ranges beyond it."""
    _, position, _, ranges, _ = value
    beyond = f" and {len(ranges)} beyond" if ranges else ""
    yield f"{name(tablet)} {rest[:-1].decode()} = {position}{beyond}"
