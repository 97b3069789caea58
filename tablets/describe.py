"""Describes rows of a partition and a shard of mode "deterministic" as text, for the inspection commands.

    place (12, 0)                       a batch
    clicks[3] 1-17 prepared             a proposal

Next: kafka/describe.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ..proto.ids import tx_text

Name = Callable[[int], str]
"""Gives a tablet's readable name: "clicks[3]"."""
ENTRY_COLUMNS = ("place",)


def entry_fields(step: int, n: int) -> dict[str, Any]:
    """Names the fields of a batch's row that follow address, length and number of records."""
    return {"place": (step, n)}


def entry_text(fields: dict[str, Any]) -> str:
    return f"place {fields['place']}"


def position(name: Name, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"{name(tablet)} {rest.decode()} = {value[2]}"


def staged(name: Name, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    records = sum(piece[2] for piece in value[1:])
    yield f"{name(tablet)} {records} record{'s' * (records != 1)} staged for {tx_text(rest)}"


def proposal(name: Name, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"{name(tablet)} {tx_text(rest)} {'planned' if value[0] else 'prepared'}"
