"""Converts a topic's stored batches to Spark's record batches, with only the columns asked for.

    stored batch   keys, values   ─ the same buffers ─▶   key, value          json, msgpack: decoded
                   headers        ─ decoded ──────────▶   headers
    index entry    place, time    ─ repeated ─────────▶   place, timestamp, partition, offset

A stored batch of about 1 MiB becomes one record batch; runs of small ones are copied into one.
Next: reading.py.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from ..api import optional_packages
from ..api.columns import arrow
from ..errors import NoCommonType
from ..runtime.snapshot_reads import Segment
from .values import Decoder, Misfit

pa = optional_packages.pyarrow()
pc = pa.compute

_KEYS, _VALUES, _HEADERS = range(3)
TOPIC_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers", "place")


class Misread(NoCommonType):
    """Raised for a value that does not fit its column's type; the message names it and says what to do."""


def misread(where: str, kind: Any, error: Misfit) -> Misread:
    return Misread(
        f"{where} does not fit {kind} ({error}); declare a type that holds all, as in "
        '.schema("value struct<…>"), or read what does not fit as null, with .option("mode", '
        '"PERMISSIVE"), or all as stored, with .option("format", "utf8") or "bytes"'
    )


class Records:
    """Converts segments of one topic to record batches of `schema`."""

    def __init__(self, topic: str, stored: str, schema: Any, decoder: Decoder | None) -> None:
        self._topic, self._stored = topic, stored
        self._schema = schema
        self._decoder = decoder

    def batches(self, segments: Sequence[Segment], rows: int) -> Iterator[Any]:
        """Yields record batches of at most `rows`. Misread."""
        for run in arrow.runs(segments):
            count = sum(s.hi - s.lo for s in run)
            columns = [self._column(field, run, count) for field in self._schema]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            for at in range(0, count, rows):
                yield batch if count <= rows else batch.slice(at, rows)

    def _column(self, field: Any, run: list[Segment], count: int) -> Any:
        name, kind = field.name, field.type
        if name == "topic":
            return pa.repeat(pa.scalar(self._topic, kind), count)
        if name == "partition":
            return pa.repeat(pa.scalar(run[0].partition, kind), count)
        if name == "offset":
            if len(run) == 1:
                ones = pa.repeat(pa.scalar(1, kind), count)
                return pc.cumulative_sum(ones, start=run[0].offset - 1)
            ranges = (range(s.offset, s.offset + s.hi - s.lo) for s in run)
            return pa.array(chain.from_iterable(ranges), kind, size=count)
        if name == "timestamp":
            return _repeated(run, [1000 * s.batch.timestamp_ms for s in run], kind)
        if name == "place":
            return self._places(run, kind, count)
        if name == "headers":
            items = chain.from_iterable(s.batch.part(_HEADERS, s.lo, s.hi) for s in run)
            some = any(s.batch.holds(_HEADERS) for s in run)
            return arrow.header_maps(items, kind) if some else pa.nulls(count, kind)
        if name == "key":
            return self._keys(run, kind)
        return self._values(run, kind)

    def _places(self, run: list[Segment], kind: Any, count: int) -> Any:
        if any(s.place.n is None for s in run):  # mode kafka has no places
            return pa.nulls(count, kind)
        parts = [_repeated(run, [s.place[i] for s in run], pa.int64()) for i in (0, 1)]
        return pa.StructArray.from_arrays(parts, fields=list(kind))

    def _keys(self, run: list[Segment], kind: Any) -> Any:
        column = _binary(run, _KEYS)
        if kind == pa.binary():
            return column
        if self._stored != "bytes":  # stored as UTF-8: no need to check again
            return column.view(kind)
        try:
            return column.cast(kind)
        except pa.ArrowInvalid as error:
            raise Misread(
                f"keys of topic {self._topic!r}, partition {run[0].partition}, from offset "
                f'{run[0].offset} on, are no text: declare them, as in .schema("key binary, …")'
            ) from error

    def _values(self, run: list[Segment], kind: Any) -> Any:
        decoder = self._decoder
        assert decoder is not None
        if decoder.form == "bytes":
            return _binary(run, _VALUES)
        if decoder.form == "utf8" and self._stored in ("utf8", "json"):
            return _binary(run, _VALUES).view(kind)
        raw = list(chain.from_iterable(s.batch.part(_VALUES, s.lo, s.hi) for s in run))
        try:
            return decoder.array(raw)
        except Misfit as error:
            offsets = chain.from_iterable(range(s.offset, s.offset + s.hi - s.lo) for s in run)
            offset = next(o for i, o in enumerate(offsets) if i == error.index)
            part = f"partition {run[0].partition}, offset {offset}"
            where = f"the value of topic {self._topic!r}, {part}"
            raise misread(where, kind, error) from error


def _repeated(run: list[Segment], values: list[Any], kind: Any) -> Any:
    """Repeats each segment's value for each of its records."""
    if len(run) == 1:
        return pa.repeat(pa.scalar(values[0], kind), run[0].hi - run[0].lo)
    each = chain.from_iterable([v] * (s.hi - s.lo) for v, s in zip(values, run, strict=True))
    return pa.array(list(each), kind)


def _binary(run: list[Segment], column: int) -> Any:
    """Returns keys or values as they are stored; a single batch is not copied."""
    if len(run) == 1 and sys.byteorder == "little":
        (s,) = run
        return arrow.stored(s.batch, column, s.lo, s.hi, pa.binary())
    parts = chain.from_iterable(s.batch.part(column, s.lo, s.hi) for s in run)
    return pa.array(list(parts), pa.binary())
