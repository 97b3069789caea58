"""Describes topics, written records and consumers; checks retention, and resolves where a consumer shall begin.

    cumulative    one position a partition; a transaction consumes the records after it
    individual    a position and ranges beyond it: records may be consumed in any order, by many at once

A consumer that was not created is cumulative and begins at the oldest record that was not trimmed.

Next: topic.py.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ...errors import OffsetOutOfRange
from ...proto.ids import Place
from ..arguments import brief, whole
from ..columns.batch import counted, html_table
from ..transaction.snapshot_reader import Reading, check_partition, chosen_partitions

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo

Kind: TypeAlias = Literal["cumulative", "individual"]
Start: TypeAlias = "str | int | datetime | Mapping[int, int]"
"""A place to begin: "earliest", "latest", an offset, a time, or partition → offset."""


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
                raise TypeError(f"retention is a timedelta or seconds, not {brief(retention)}")
            if not 0 < seconds < 1e12:
                raise ValueError("retention is more than 0 seconds")
            options["retention_ms"] = max(1, round(seconds * 1000))
    if not isinstance(retention_bytes, Unchanged):
        options.pop("retention_bytes", None)
        if retention_bytes is not None:
            options["retention_bytes"] = whole("retention_bytes", retention_bytes, 1)
    return tuple(sorted(options.items()))


class Written(NamedTuple):
    """The partition and offset of a written record, and the place of its transaction.

    The offset is -1 where mode "pulsar" sent the record again after an answer was lost, and dropped the repeat. It
    is -1 too where the store's owner ended before it answered, and the record may be trimmed by now.
    """

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


class ConsumerPosition(NamedTuple):
    """A consumer in one partition: `lag` records are not consumed, `missed` were trimmed before they were."""

    partition: int
    position: int
    end: int
    lag: int
    missed: int


class ConsumerDescription(NamedTuple):
    """A consumer as of one step; `kind` is "cumulative" or "individual". An `exclusive` one has one reader."""

    name: str
    kind: str
    partitions: tuple[ConsumerPosition, ...]
    exclusive: bool = False

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    @property
    def missed(self) -> int:
        return sum(partition.missed for partition in self.partitions)

    def _repr_html_(self) -> str:
        title = f"consumer {self.name!r} ({self.kind}): {self.lag} behind, {self.missed} missed"
        return html_table(
            title, ConsumerPosition._fields, self.partitions[:100], len(self.partitions)
        )


def describe_consumer(reading: Reading, topic: "TopicInfo", consumer: str) -> ConsumerDescription:
    """Describes a consumer as of the snapshot."""
    parts = []
    for partition, tablet in enumerate(topic.partitions):
        position, missed, ranges, _ = reading.standing(tablet, consumer)
        end = reading.bounds(tablet)[1]
        lag = reading.runtime.views.lag(tablet, position, end, ranges)
        parts.append(ConsumerPosition(partition, position, end, lag, missed))
    kind = "individual" if consumer in topic.individual else "cumulative"
    return ConsumerDescription(consumer, kind, tuple(parts), consumer in topic.exclusive)


def offsets_of(
    reading: Reading, topic: "TopicInfo", start: Start, partition: int | None = None
) -> dict[int, int]:
    """Resolves a start to partition → offset. ValueError, TypeError, OffsetOutOfRange."""
    chosen = chosen_partitions(topic, partition)
    bounds = {p: reading.bounds(topic.partitions[p]) for p in chosen}
    if isinstance(start, Mapping):
        if partition is not None:
            raise ValueError(
                "a dict of partition to offset names the partitions: leave partition= out"
            )
        offsets = {check_partition(topic, p): offset for p, offset in start.items()}
    elif start == "earliest":
        return {p: low for p, (low, _) in bounds.items()}
    elif start == "latest":
        return {p: high for p, (_, high) in bounds.items()}
    elif isinstance(start, datetime):
        ms = int(start.timestamp() * 1000)
        return {p: reading.runtime.views.offset_at(topic.partitions[p], ms) for p in chosen}
    elif isinstance(start, int) and not isinstance(start, bool):
        if partition is None and len(topic.partitions) > 1:
            raise ValueError(
                "an offset belongs to one partition: pass partition= too, or a dict of partition to offset"
            )
        offsets = dict.fromkeys(chosen, start)
    else:
        raise ValueError(
            f'{brief(start)} is no place to begin: "earliest", "latest", an offset, a datetime, or a dict '
            "of partition to offset"
        )
    _refuse_outside(topic, offsets, bounds)
    return offsets


def _refuse_outside(
    topic: "TopicInfo", offsets: dict[int, int], bounds: dict[int, tuple[int, int]]
) -> None:
    """Raises OffsetOutOfRange for the first offset that is outside of its partition's log."""
    for p, offset in offsets.items():
        low, high = bounds[p]
        is_offset = isinstance(offset, int) and not isinstance(offset, bool)
        if not is_offset or not low <= offset <= high:
            raise OffsetOutOfRange(
                f"topic {topic.name!r}, partition {p}: offset {brief(offset)} is outside the log "
                f"[{low}, {high})"
            )
