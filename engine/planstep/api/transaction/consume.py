"""Reads on from a consumer's positions: chooses the partitions, the offsets and the amount.

A read takes partition after partition until it is full. The consumer's next read begins with the
partition after the one where this one was full, so that a busy partition starves no other. That
turn is a hint in memory: correctness is in the ranges, which the partitions check.

Next: transaction.py.
"""

from typing import TYPE_CHECKING

from ...errors import Conflict, OffsetOutOfRange
from ...tablets.intervals import taken
from ..arguments import integer
from ..columns.batch import Segment
from .read_set import Conditions
from .snapshot_reader import Reading, below, end_of

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo

Turns = dict[tuple[str, str], int]
"""(topic, consumer) → the partition to begin with."""


def consume_next(
    reading: Reading,
    conditions: Conditions,
    turns: Turns,
    topic: "TopicInfo",
    consumer: str,
    *,
    partition: int | None,
    max_records: int,
    max_bytes: int,
    exact: bool = False,
) -> tuple[list[Segment], bool]:
    """Returns the next records of this consumer, and whether there are more.

    The ranges become conditions, and with `exact` the end of each partition that was read to its end.
    """
    count = len(topic.partitions)
    turn = turns.get((topic.name, consumer), 0)
    order = [(turn + i) % count for i in range(count)] if partition is None else [partition]
    found: list[Segment] = []
    for p in order:
        segments, size = _read_on(
            reading, conditions, topic, p, consumer, max_records=max_records, max_bytes=max_bytes
        )
        if exact and not _left(reading, conditions, topic, p, consumer):
            tablet = topic.partitions[p]
            end, moved = reading.bounds(tablet)[1], reading.moved(tablet, consumer)
            conditions.no_more(tablet, consumer, end, moved)
        if not segments:
            continue
        found += segments
        max_records -= sum(segment.hi - segment.lo for segment in segments)
        max_bytes -= size
        if max_records <= 0 or max_bytes <= 0:
            if partition is None:
                turns[topic.name, consumer] = (p + 1) % count
            behind = [p, *order[order.index(p) + 1 :]]
            return found, any(_left(reading, conditions, topic, q, consumer) for q in behind)
    return found, False


def _left(
    reading: Reading, conditions: Conditions, topic: "TopicInfo", partition: int, consumer: str
) -> bool:
    tablet = topic.partitions[partition]
    if consumer in topic.individual:
        held = conditions.acked.get(tablet, {}).get(consumer, ())
        return bool(reading.free(tablet, consumer, held))
    at = conditions.consumed_to(tablet, consumer)
    if at is None:
        at = reading.position(tablet, consumer)
    return at < reading.bounds(tablet)[1]


def _read_on(
    reading: Reading,
    conditions: Conditions,
    topic: "TopicInfo",
    partition: int,
    consumer: str,
    *,
    max_records: int,
    max_bytes: int,
) -> tuple[list[Segment], int]:
    tablet = topic.partitions[partition]
    if consumer in topic.individual:
        found: list[Segment] = []
        size = 0
        held = conditions.acked.get(tablet, {}).get(consumer, ())
        for begin, end in reading.free(tablet, consumer, held):
            most = min(max_records, end - begin)
            segments, bytes_read = reading.segments(topic, partition, begin, most, max_bytes - size)
            segments = below(segments, end)
            if not segments:
                break
            conditions.acknowledge(tablet, consumer, begin, end_of(segments))
            conditions.fence(tablet, consumer, reading.moved(tablet, consumer))
            found += segments
            max_records -= sum(segment.hi - segment.lo for segment in segments)
            size += bytes_read
            if max_records <= 0 or size >= max_bytes:
                break
        return found, size
    offset = conditions.consumed_to(tablet, consumer)
    moved = 0
    if offset is None:
        offset, _, _, moved = reading.standing(tablet, consumer)
    segments, size = reading.segments(topic, partition, offset, max_records, max_bytes)
    if segments:
        conditions.consume(tablet, consumer, offset, end_of(segments))
        conditions.fence(tablet, consumer, moved)
    return segments, size


def consume_range(
    reading: Reading,
    conditions: Conditions,
    topic: "TopicInfo",
    consumer: str,
    partition: int,
    *,
    begin: int,
    end: int,
) -> None:
    """Consumes [begin, end) for a consumer without reading it.

    Offsets that are not ints are a TypeError: such a position would block the consumer for ever. A range that was
    consumed before the snapshot is a Conflict here: the commit would only find it later.
    """
    integer("begin", begin)
    integer("end", end)
    tablet = topic.partitions[partition]
    low, high = reading.bounds(tablet)
    where = f"topic {topic.name!r}, partition {partition}"
    if not low <= begin <= end <= high:
        raise OffsetOutOfRange(f"{where}: [{begin}, {end}) is outside the log [{low}, {high})")
    if consumer in topic.individual:
        held = conditions.acked.get(tablet, {}).get(consumer, ())
        if any(b < end and begin < e for b, e in held):
            raise OffsetOutOfRange(
                f"{where}: this transaction consumed part of [{begin}, {end}) already"
            )
        if begin < end:
            position, _, ranges, moved = reading.standing(tablet, consumer)
            before = taken(position, ranges, begin, end)
            if before is not None:
                raise _consumed_before(topic, partition, consumer, begin, before)
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
                raise _consumed_before(topic, partition, consumer, begin, position)
        conditions.consume(tablet, consumer, begin, end)
        conditions.fence(tablet, consumer, reading.moved(tablet, consumer))


def _consumed_before(
    topic: "TopicInfo", partition: int, consumer: str, begin: int, actual: int
) -> Conflict:
    return Conflict(
        kind="topic",
        name=topic.name,
        part=partition,
        consumer=consumer,
        expected=begin,
        actual=actual,
        consumed=True,
    )
