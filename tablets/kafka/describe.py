"""Describes entries of a partition of mode "kafka" as text, for the inspection commands.

    producer 4 epoch 0 seq 0 transactional
    commit marker producer 4 epoch 0

Next: partition.py, whose rows these are.
"""

from typing import Any

from ...proto.kafka.messages import ABORT, COMMIT, KIND_TEXTS

ENTRY_COLUMNS = ("kind", "producer", "epoch", "sequence")


def entry_fields(
    producer: int, epoch: int, sequence: int, kind: int, coordinator_epoch: int | None = None
) -> dict[str, Any]:
    """Names the fields of an entry's row that follow address, length and records; a marker has one more."""
    marker = kind in (COMMIT, ABORT)
    return {
        **({"records": 0} if marker else {}),
        "kind": KIND_TEXTS[kind],
        "producer": producer,
        "epoch": epoch,
        "sequence": None if marker else sequence,
        "coordinator_epoch": coordinator_epoch,
    }


def entry_text(fields: dict[str, Any]) -> str:
    who = f"producer {fields['producer']} epoch {fields['epoch']}"
    if fields["sequence"] is None:
        return f"{fields['kind']} {who}"
    return f"{who} seq {fields['sequence']} {fields['kind']}"
