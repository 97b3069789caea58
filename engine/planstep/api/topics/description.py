"""Describes topics and written records, and checks the settings of retention.

Next: topic.py.
"""

from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

from ...proto.ids import Place
from ..arguments import shown, whole
from ..columns.batch import counted, html_table


class Unchanged(Enum):
    """The type of UNCHANGED, an argument that leaves a setting as it is."""

    UNCHANGED = 0


UNCHANGED = Unchanged.UNCHANGED


def retention_options(
    known: tuple[tuple[str, Any], ...],
    retention: timedelta | float | None | Unchanged,
    retention_bytes: int | None | Unchanged,
) -> tuple[tuple[str, Any], ...]:
    """Returns a topic's options with another retention. TypeError, ValueError."""
    options = dict(known)
    if not isinstance(retention, Unchanged):
        options.pop("retention_ms", None)
        if retention is not None:
            seconds = retention.total_seconds() if isinstance(retention, timedelta) else retention
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
                raise TypeError(f"retention is a timedelta or seconds, not {shown(retention)}")
            if not 0 < seconds < 1e12:
                raise ValueError("retention is more than 0 seconds")
            options["retention_ms"] = max(1, round(seconds * 1000))
    if not isinstance(retention_bytes, Unchanged):
        options.pop("retention_bytes", None)
        if retention_bytes is not None:
            options["retention_bytes"] = whole("retention_bytes", retention_bytes, 1)
    return tuple(sorted(options.items()))


class Written(NamedTuple):
    """The partition and offset of a written record, and the place of its transaction."""

    partition: int
    offset: int
    place: Place


class PartitionBounds(NamedTuple):
    """A partition's log: the oldest offset that was not trimmed, and the next one to come."""

    partition: int
    start: int
    end: int


class TopicDescription(NamedTuple):
    """A topic as of one step; `retention` is in seconds, None if records are kept."""

    name: str
    format: str
    partitions: tuple[PartitionBounds, ...]
    retention: float | None = None
    retention_bytes: int | None = None

    @property
    def records(self) -> int:
        return sum(bounds.end - bounds.start for bounds in self.partitions)

    def _repr_html_(self) -> str:
        title = f"topic {self.name!r}, format {self.format}: {counted(self.records, 'record')}"
        return html_table(
            title, PartitionBounds._fields, self.partitions[:100], len(self.partitions)
        )
