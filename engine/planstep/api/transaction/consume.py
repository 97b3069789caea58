"""Reads on from a consumer's positions: chooses the partitions, the offsets and the amount.

A read takes partition after partition until it is full. The consumer's next read begins with the
partition after the one where this one was full, so that a busy partition starves no other. That
turn is a hint in memory: correctness is in the ranges, which the partitions check.

Next: transaction.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import Conflict, OffsetOutOfRange, SnapshotTooOld
from ...runtime.snapshot_reads import Segment
from ...tablets.intervals import overlap_end
from ..arguments import integer
from .read_set import Conditions
from .snapshot_reader import Reading, below, end_of

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo

Turns = dict[tuple[str, str], int]
"""(topic, consumer) → the partition to begin with."""


class ConsumerReads:
    """Reads on for one consumer of a topic in one transaction; the ranges that it reads become conditions."""

    def __init__(
        self, reading: Reading, conditions: Conditions, topic: "TopicInfo", consumer: str
    ) -> None:
        self._reading = reading
        self._conditions = conditions
        self._topic = topic
        self._consumer = consumer
        self._individual = consumer in topic.individual
        self._has_places = reading.runtime.hooks.has_places

    def next(
        self, turns: Turns, partition: int | None, max_records: int, max_bytes: int, exact: bool
    ) -> tuple[list[Segment], bool]:
        """Returns the next records of this consumer, and whether there are more.

        With `exact` the end of each partition that was read to its end becomes a condition, too.
        """
        topic, consumer = self._topic, self._consumer
        count = len(topic.partitions)
        turn = turns.get((topic.name, consumer), 0)
        order = [(turn + i) % count for i in range(count)] if partition is None else [partition]
        batch: list[Segment] = []
        for p in order:
            segments, size = self._read_on(p, max_records, max_bytes)
            if exact and not self._left(p):
                tablet = topic.partitions[p]
                end = self._reading.bounds(tablet)[1]
                moved = self._reading.moved(tablet, consumer)
                self._conditions.no_more(tablet, consumer, end, moved)
            if not segments:
                continue
            batch += segments
            max_records -= sum(segment.hi - segment.lo for segment in segments)
            max_bytes -= size
            if max_records <= 0 or max_bytes <= 0:
                if partition is None:
                    turns[topic.name, consumer] = (p + 1) % count
                return batch, any(map(self._left, order[order.index(p) :]))
        return batch, False

    def _held(self, tablet: int) -> Sequence[tuple[int, int]]:
        """Returns the ranges of an individual consumer that this transaction has consumed."""
        return self._conditions.acked.get(tablet, {}).get(self._consumer, ())

    def _free(self, tablet: int) -> list[tuple[int, int]]:
        """Returns the ranges that neither this transaction nor another one has consumed, or is about to."""
        pending = self._reading.runtime.views.pending_ranges(tablet, self._consumer)
        return self._reading.free(tablet, self._consumer, [*self._held(tablet), *pending])

    def _trimmed(self, tablet: int, offset: int) -> bool:
        """Returns whether a record was trimmed just where it was about to be read: without snapshots the read goes
        on behind what was trimmed."""
        return not self._has_places and self._reading.bounds(tablet)[0] > offset

    def _left(self, partition: int) -> bool:
        """Returns whether a partition has more records."""
        reading, tablet = self._reading, self._topic.partitions[partition]
        if self._individual:
            return bool(self._free(tablet))
        at = self._conditions.consumed_to(tablet, self._consumer)
        if at is None:
            at = reading.position(tablet, self._consumer)
        return at < reading.bounds(tablet)[1]

    def _read_on(
        self, partition: int, max_records: int, max_bytes: int
    ) -> tuple[list[Segment], int]:
        reading, conditions, consumer = self._reading, self._conditions, self._consumer
        tablet = self._topic.partitions[partition]
        if self._individual:
            return self._read_free(partition, max_records, max_bytes)
        offset = conditions.consumed_to(tablet, consumer)
        moved = 0
        if offset is None:
            offset, _, _, moved = reading.standing(tablet, consumer)
        while True:
            at = offset if self._has_places else max(offset, reading.bounds(tablet)[0])
            try:
                segments, size = reading.segments(
                    self._topic, partition, at, max_records, max_bytes
                )
                break
            except SnapshotTooOld:
                if not self._trimmed(tablet, at):
                    raise
        if segments:
            conditions.consume(tablet, consumer, offset, end_of(segments))
            conditions.fence(tablet, consumer, moved)
        return segments, size

    def _read_free(
        self, partition: int, max_records: int, max_bytes: int
    ) -> tuple[list[Segment], int]:
        """Reads the ranges that an individual consumer has not consumed."""
        reading, consumer = self._reading, self._consumer
        tablet = self._topic.partitions[partition]
        batch: list[Segment] = []
        size = 0
        free = self._free(tablet)
        while free:
            begin, end = free.pop(0)
            most = min(max_records, end - begin)
            try:
                segments, used = reading.segments(
                    self._topic, partition, begin, most, max_bytes - size
                )
            except SnapshotTooOld:
                if not self._trimmed(tablet, begin):
                    raise
                free = self._free(tablet)
                continue
            segments = below(segments, end)
            if not segments:
                break
            self._conditions.acknowledge(tablet, consumer, begin, end_of(segments))
            self._conditions.fence(tablet, consumer, reading.moved(tablet, consumer))
            batch += segments
            max_records -= sum(segment.hi - segment.lo for segment in segments)
            size += used
            if max_records <= 0 or size >= max_bytes:
                break
        return batch, size

    def consume(self, partition: int, begin: int, end: int) -> None:
        """Consumes [begin, end) without reading it.

        Offsets that are not ints are a TypeError: such a position would block the consumer for ever. A range that
        was consumed before the snapshot is a Conflict here: the commit would only find it later.
        """
        integer("begin", begin)
        integer("end", end)
        reading, conditions, consumer = self._reading, self._conditions, self._consumer
        tablet = self._topic.partitions[partition]
        low, high = reading.bounds(tablet)
        where = f"topic {self._topic.name!r}, partition {partition}"
        if not low <= begin <= end <= high:
            raise OffsetOutOfRange(f"{where}: [{begin}, {end}) is outside the log [{low}, {high})")
        if self._individual:
            if any(b < end and begin < e for b, e in self._held(tablet)):
                raise OffsetOutOfRange(
                    f"{where}: this transaction consumed part of [{begin}, {end}) already"
                )
            if begin < end:
                position, _, ranges, moved = reading.standing(tablet, consumer)
                before = overlap_end(position, ranges, begin, end)
                if before is not None:
                    raise self._consumed_before(partition, begin, before)
                conditions.acknowledge(tablet, consumer, begin, end)
                conditions.fence(tablet, consumer, moved)
            return
        known = conditions.consumed_to(tablet, consumer)
        if known is not None and known != begin:
            raise OffsetOutOfRange(
                f"{where}: this transaction consumed up to {known} already, so the next range begins "
                f"there, not at {begin}"
            )
        if begin < end:
            if known is None and reading.runtime.hooks.has_places:
                position = reading.position(tablet, consumer)
                if begin < position:
                    raise self._consumed_before(partition, begin, position)
            conditions.consume(tablet, consumer, begin, end)
            conditions.fence(tablet, consumer, reading.moved(tablet, consumer))

    def _consumed_before(self, partition: int, begin: int, actual: int) -> Conflict:
        return Conflict(
            kind="topic",
            name=self._topic.name,
            part=partition,
            consumer=self._consumer,
            expected=begin,
            actual=actual,
            consumed=True,
        )
