"""Defines the batch that a read returns: records of one topic, in columns.

    ReadBatch = segments of stored batches:  (partition, first offset, lo..hi of one batch)
                      │ decoded column by column, each at its first use
                      ▼
    values   keys   headers   offsets   timestamps        lists of equal length

Iterating gives `Record`s; the columns are much faster, and `tx.write_batch` takes them as they are.

Next: ../transaction/snapshot_reader.py, which makes them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

from ...proto.batch import decode_headers
from ...runtime.snapshot_reads import Segment
from .codecs import decode_record_keys, decode_values

_KEYS, _VALUES, _HEADERS = range(3)


class Record(NamedTuple):
    """One record. `offset` is -1 for a record of a transaction that has not committed."""

    value: Any
    key: Any
    headers: dict[str, Any]
    partition: int
    offset: int
    timestamp_ms: int


class ReadBatch:
    """Records of a topic, those of one partition together and in order.

    Keys are bytes for topics with format="bytes", else str; None where a record has none. `more` tells that the
    partitions had more records as of the same step.
    """

    redeliveries = 0
    """Counts how often a reader handed this batch back with `nack`, held it for longer than `ack_timeout_ms`, or
    left it: mode "pulsar". A new process counts from 0; so does a batch that is read in other parts."""

    def __init__(
        self,
        topic: str,
        format: str,
        segments: list[Segment],
        more: bool = False,
        starts: dict[int, int] | None = None,
        ends: dict[int, int] | None = None,
    ) -> None:
        self.topic = topic
        self.format = format
        self.segments = segments
        self.more = more
        self._starts = starts or {}  # of the partitions that were asked for
        self._ends = ends or {}
        self._length = sum(segment.hi - segment.lo for segment in segments)

    def __len__(self) -> int:
        return self._length

    def _raw(self, column: int) -> list[Any]:
        items: list[Any] = []
        for segment in self.segments:
            items += segment.batch.part(column, segment.lo, segment.hi)
        return items

    @cached_property
    def values(self) -> list[Any]:
        """The values, decoded by the topic's format."""
        return decode_values(self.format, self._raw(_VALUES))

    @cached_property
    def keys(self) -> list[Any]:
        """The keys, None where a record has none."""
        return decode_record_keys(self.format, self._raw(_KEYS))

    @cached_property
    def headers(self) -> list[dict[str, Any]]:
        """The headers, an empty dict where a record has none."""
        return [decode_headers(item) for item in self._raw(_HEADERS)]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """(partition, offset) of each record."""
        return [
            (segment.partition, segment.offset + i)
            for segment in self.segments
            for i in range(segment.hi - segment.lo)
        ]

    @property
    def timestamps(self) -> list[int]:
        """The time each record was written, in milliseconds since 1970; records of a stored batch share one."""
        column: list[int] = []
        for segment in self.segments:
            column += [segment.batch.timestamp_ms] * (segment.hi - segment.lo)
        return column

    @property
    def ends(self) -> dict[int, int]:
        """Partition → the offset to read on from, for each partition that was asked for, records or none.

        A consumer's read has only the partitions with records: the consumer itself knows where to go on.
        """
        return self._ends or behind(self._starts, self.segments)

    @property
    def partition(self) -> int | None:
        """The partition, if only one was asked for or only one has records here; else None."""
        ends = self.ends
        if len(ends) > 1:
            ends = behind({}, self.segments)
        return next(iter(ends)) if len(ends) == 1 else None

    def to_arrow(self, decode: bool = True, value_type: Any = None) -> Any:
        """Makes a pyarrow Table: partition, offset, timestamp, key, value, and headers if there are any.

        Keys and values are not copied. Values of format json and msgpack are decoded to columns of their own type
        (`value_type`, or inferred; dicts become structs). NoCommonType where they have none; decode=False gives
        them as stored. Adjacent batches of less than 256 records are copied into one chunk.
        """
        from . import arrow

        return arrow.topic_table(
            self.topic, self.format, self.segments, decode, value_type=value_type
        )

    def to_pandas(self) -> Any:
        """Makes a pandas DataFrame with the columns of `to_arrow`; values of json and msgpack stay objects."""
        from . import arrow

        table = self.to_arrow(decode=False)
        return arrow.to_pandas(table, self.values if self.format in ("json", "msgpack") else None)

    def count_by_key(self) -> Counter[Any]:
        """Counts the records of each key; records without key are not counted."""
        counts = Counter(self.keys)
        counts.pop(None, None)
        return counts

    def __iter__(self) -> Iterator[Record]:
        columns = (self.values, self.keys, self.headers, self.offsets, self.timestamps)
        for value, key, headers, (partition, offset), timestamp in zip(*columns, strict=True):
            yield Record(value, key, headers, partition, offset, timestamp)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> "ReadBatch": ...
    def __getitem__(self, index: int | slice) -> "Record | ReadBatch":
        """Returns one record, or for [a:b] a batch of those between, which copies nothing."""
        if isinstance(index, slice):
            return self._part(*index.indices(len(self)))
        value, key, headers = self.values[index], self.keys[index], self.headers[index]
        return Record(value, key, headers, *self.offsets[index], self.timestamps[index])

    def _part(self, begin: int, end: int, step: int) -> "ReadBatch":
        if step != 1:
            raise ValueError("a batch has no steps: take list(batch)[a:b:step], or batch[a:b]")
        more, ends = self.more, self._ends
        if end < len(self):
            more, ends = True, behind(self._starts, self._between(0, end))
        part = self._between(begin, end)
        return ReadBatch(self.topic, self.format, part, more, self._starts, ends)

    def _between(self, begin: int, end: int) -> list[Segment]:
        part, at = [], 0
        for segment in self.segments:
            size = segment.hi - segment.lo
            first, last = max(begin - at, 0), min(end - at, size)
            if first < last:
                offset, lo, hi = segment.offset + first, segment.lo + first, segment.lo + last
                part.append(segment._replace(offset=offset, lo=lo, hi=hi))
            at += size
        return part

    def __repr__(self) -> str:
        places = ", ".join(
            f"{s.partition}:[{s.offset}, {s.offset + s.hi - s.lo})" for s in self.segments[:4]
        )
        more = ", …" if len(self.segments) > 4 else ""
        return f"<ReadBatch {self.topic!r} {counted(len(self), 'record')} {places}{more}>"

    def _repr_html_(self) -> str:
        title = f"topic {self.topic!r}: {counted(len(self), 'record')}"
        rows = [(r.partition, r.offset, r.key, r.value) for r in self[:20]]
        return html_table(title, ("partition", "offset", "key", "value"), rows, len(self))


def behind(starts: dict[int, int], segments: list[Segment]) -> dict[int, int]:
    """Returns partition → the offset after its last record, or its start if it has none."""
    return starts | {s.partition: s.offset + s.hi - s.lo for s in segments}


class Rows(list[tuple[Any, Any]]):
    """(key, value) pairs of a scan, in key order: a list that notebooks show as a table."""

    def to_arrow(self) -> Any:
        """Makes a pyarrow Table with the columns key and value, of inferred types.

        Dicts become structs, tuple keys structs with the fields "0", "1", …; NoCommonType where keys
        or values have no common type.
        """
        from . import arrow

        return arrow.rows_table("the rows", [k for k, _ in self], [v for _, v in self])

    def to_pandas(self) -> Any:
        """Makes a pandas DataFrame with the columns key and value."""
        from ..optional_packages import pandas

        return pandas().DataFrame(list(self), columns=["key", "value"])

    def _repr_html_(self) -> str:
        return html_table(counted(len(self), "row"), ("key", "value"), self[:20], len(self))


def counted(number: int, what: str, many: str = "") -> str:
    """Formats a count: 1 record, 2 records."""
    return f"{number} {what if number == 1 else many or what + 's'}"


def html_table(
    title: str, columns: tuple[str, ...], rows: Sequence[Any], total: int, plain: bool = False
) -> str:
    """Makes a small HTML table for notebooks; long values are cut, all text is escaped.

    `plain`: cells are words, not values whose type matters.
    """
    import html  # its table of entities is large, and only notebooks need it

    def cell(value: Any) -> str:
        text = str(value) if plain else repr(value)
        return html.escape(text if len(text) <= 80 else text[:79] + "…")

    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    lines = ("".join(f"<td>{cell(value)}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    rest = f"<p>… and {total - len(rows)} more</p>" if total > len(rows) else ""
    return (
        f"<table><caption>{html.escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{rest}"
    )
