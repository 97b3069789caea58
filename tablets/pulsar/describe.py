"""Describes entries of a partition of mode "pulsar" as text, for the inspection commands.

    transactional (0,5) producer clicks seq 12
    abort marker (0,5)

Next: partition.py, whose rows these are.
"""

from typing import Any

from ...proto.pulsar.messages import ABORT, COMMIT, KIND_TEXTS, NO_TXN, TxnID

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
