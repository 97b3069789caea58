"""Reads a span of a topic in pieces: all of its stored batches, or only what the index and their headers tell.

    index    first offset, number of records, place      ─▶ partition, offset, place     no payload is read
    header   the batch's time                            ─▶ timestamp                    36 bytes of a batch
    batch    keys, values, headers of records            ─▶ key, value, headers

Next: reading.py.
"""

import sys
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from ..api.transaction.snapshot_reader import below, end_of
from ..proto.batch import HEADER_BYTES, Batch, timestamp_of
from ..runtime.snapshot_reads import Load, Segment, whole_batch

_PIECE_BYTES = 4 << 20
"""Roughly how many stored bytes are read at once."""
_INDEX_RECORDS = 200_000
"""How many records are looked at at once where no payload is read."""


class Span(NamedTuple):
    """Offsets [start, end) of a partition; `tablet` is the partition's id."""

    partition: int
    tablet: int
    start: int
    end: int


class Limits(NamedTuple):
    """Limits what is read at once, to numbers of records and bytes, and how much of each stored batch is read."""

    records: int
    bytes: int
    load: Load


def limits_for(columns: Collection[str]) -> Limits:
    """Returns what must be read for some of a topic's columns."""
    if {"key", "value", "headers"} & set(columns):
        return Limits(sys.maxsize, _PIECE_BYTES, whole_batch)
    return Limits(_INDEX_RECORDS, sys.maxsize, _dated if "timestamp" in columns else _counted)


def _counted(_store: Any, _address: int, _length: int, records: int) -> Batch:
    return Batch(b"", records, 0)


def _dated(store: Any, address: int, _length: int, records: int) -> Batch:
    return Batch(b"", records, timestamp_of(store.read_payload(address, HEADER_BYTES)))


def pieces(views: Any, snap: Any, span: Span, limits: Limits) -> Iterator[list[Segment]]:
    """Yields the segments of a span, in order. Offsets of markers and of aborted records are in none."""
    partition, tablet, offset, end = span
    while offset < end:
        records = min(end - offset, limits.records)
        segments = views.read_segments(
            snap, tablet, partition, offset, records, limits.bytes, load=limits.load
        )
        segments = below(segments, end)
        if not segments:  # only markers and aborted records up to the end
            return
        offset = end_of(segments)
        yield segments


def within(
    views: Any, snap: Any, span: Span, start_ms: int | None, end_ms: int | None
) -> Iterator[Span]:
    """Yields the parts of a span that were written from one time on, and before another.

    Clocks go back at times, so it looks at the time of each batch; a batch has one.
    """
    low = -sys.maxsize if start_ms is None else start_ms
    high = sys.maxsize if end_ms is None else end_ms
    start = end = span.start
    for segments in pieces(views, snap, span, limits_for(("timestamp",))):
        for s in segments:
            if not low <= s.batch.timestamp_ms < high:
                continue
            if s.offset > end:
                if start < end:
                    yield span._replace(start=start, end=end)
                start = s.offset
            end = s.offset + s.hi - s.lo
    if start < end:
        yield span._replace(start=start, end=end)
