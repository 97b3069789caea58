"""Collects topic writes of an open transaction: columns per partition, encoded into batches at commit.

    write_batch(values, keys) ─ by partition, in bulk ─▶ columns ─ cut at 1 MiB ─▶ (batch, records), …

All records without a key of one transaction go to one partition: they keep their order and share a batch.

Next: transaction.py.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ...errors import RecordTooLarge
from ...proto.batch import Batch, encode_batch, encode_headers
from ...proto.messages import Slices
from ...runtime.snapshot_reads import Segment
from ..arguments import brief, items_of
from ..columns.batch import ReadBatch, Record
from ..columns.codecs import encode_record_keys, encode_value, encode_values
from ..limits import BATCH_BYTES, RECORD_BYTES_MAX
from .routing import partitions_of

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ..columns.frame_encoder import Piece

Headers = Mapping[str, bytes | str]


def pack_headers(headers: Headers | None, where: str) -> bytes | None:
    """Encodes one record's headers, which map str names to bytes or str."""
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise TypeError(f"{where}: headers map str to bytes or str, not {brief(headers)}")
    if not headers:
        return None
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, (bytes, str)):
            raise TypeError(
                f"{where}: headers map str to bytes or str, not {brief(name)} to {brief(value)}"
            )
    try:
        return encode_headers(headers)
    except UnicodeEncodeError:
        raise TypeError(f"{where}: headers must not hold lone surrogates") from None


class Column:
    """The records for one partition: `earlier` ones, then those in the lists."""

    __slots__ = ("earlier", "headers", "keys", "values")

    def __init__(self) -> None:
        self.earlier: list[Column | Piece] = []
        self.values: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.headers: list[bytes | None] | None = None  # None while no record has any

    def batches(self, timestamp_ms: int) -> Slices:
        """Returns (encoded batch, records) for each batch, of about BATCH_BYTES at most."""
        values, headers = self.values, self.headers
        keys: list[bytes | None] | None = self.keys
        if keys and keys[0] is None and keys.count(None) == len(keys):
            keys = None
        result = [batch for piece in self.earlier for batch in piece.batches(timestamp_ms)]
        ends = [0, *accumulate(map(len, values))]
        if values and ends[-1] <= BATCH_BYTES:
            result.append((encode_batch(values, keys, headers, timestamp_ms, ends), len(values)))
            return tuple(result)
        for a, b in cuts(ends):
            data = encode_batch(
                values[a:b],
                keys and keys[a:b],
                headers and headers[a:b],
                timestamp_ms,
            )
            result.append((data, b - a))
        return tuple(result)


def cuts(ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields [begin, end) of batches of at most BATCH_BYTES, or of one record; `ends` begins where they begin."""
    begin, count = 0, len(ends) - 1
    while begin < count:
        end = bisect_right(ends, ends[begin] + BATCH_BYTES, begin + 1, count + 1) - 1
        end = max(begin + 1, end)
        yield begin, end
        begin = end


def _sizes(column: Sequence[Any]) -> list[int]:
    try:
        return list(map(len, column))
    except TypeError:  # an absent item has no length
        return [len(item or b"") for item in column]


class Outbox:
    """Holds one topic's records until the commit."""

    __slots__ = ("columns", "keyless", "topic", "where")

    def __init__(self, topic: "TopicInfo", keyless: int) -> None:
        self.topic = topic
        self.keyless = keyless
        self.where = f"topic {topic.name!r}"
        self.columns: dict[int, Column] = {}

    def encode(
        self,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        headers: Iterable[Headers | None] | None,
    ) -> tuple[Sequence[bytes], Sequence[bytes | None] | None, list[bytes | None] | None, int]:
        """Returns the columns as stored and their bytes; raises before anything is kept."""
        values = items_of(self.where, "values", values)
        form = self.topic.format
        raw = encode_values(form, values, self.where)
        raw_keys: Sequence[bytes | None] | None = None
        packed: list[bytes | None] | None = None
        if keys is not None:
            raw_keys = encode_record_keys(form, items_of(self.where, "keys", keys), self.where)
        if headers is not None:
            items = items_of(self.where, "headers", headers)
            packed = [pack_headers(item, self.where) for item in items]
        for name, column in (("keys", raw_keys), ("headers", packed)):
            if column is not None and len(column) != len(raw):
                raise ValueError(f"{self.where}: {len(raw)} values but {len(column)} {name}")
        return raw, raw_keys, packed, self._measure(raw, raw_keys, packed)

    def _measure(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[bytes | None] | None,
    ) -> int:
        sizes = [_sizes(column) for column in (values, keys, headers) if column]
        total = sum(map(sum, sizes))
        # Else no record can be too large; the largest items are perhaps of different records: check each.
        if total > RECORD_BYTES_MAX and sum(map(max, sizes)) > RECORD_BYTES_MAX:
            for i, value in enumerate(values):
                size = len(value) + len((keys and keys[i]) or b"")
                size += len((headers and headers[i]) or b"")
                if size > RECORD_BYTES_MAX:
                    raise RecordTooLarge(
                        f"{self.where}: record {i} has {size:,} bytes, the limit is "
                        f"{RECORD_BYTES_MAX:,}; nothing was written"
                    )
        return total

    def encode_one(self, value: Any) -> bytes:
        """Returns the value of one record, without key or headers, as stored; raises before anything is kept."""
        raw = encode_value(self.topic.format, value, self.where)
        if len(raw) > RECORD_BYTES_MAX:
            self._measure((raw,), None, None)
        return raw

    def add_one(self, value: bytes) -> None:
        """Adds what `encode_one` returned."""
        column = self.columns.get(self.keyless)
        if column is None:
            column = self.columns[self.keyless] = Column()
        if column.headers is not None:
            column.headers.append(None)
        column.values.append(value)
        column.keys.append(None)

    def add(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[bytes | None] | None,
        partition: int | Sequence[int] | None,
    ) -> None:
        count = len(self.topic.partitions)
        if partition is None and (keys is None or count == 1):
            partition = self.keyless
        keys = [None] * len(values) if keys is None else keys
        if isinstance(partition, int):
            self._extend(partition, values, keys, headers)
            return
        if partition is None:
            partition = partitions_of(keys, count, self.keyless if None in keys else None)
        columns = [Column() for _ in range(count)]
        appends = [(c.values.append, c.keys.append) for c in columns]
        for p, value, key in zip(partition, values, keys, strict=True):
            add_value, add_key = appends[p]
            add_value(value)
            add_key(key)
        if headers is not None:
            split: list[list[bytes | None]] = [[] for _ in range(count)]
            for p, item in zip(partition, headers, strict=True):
                split[p].append(item)
            for column, items in zip(columns, split, strict=True):
                column.headers = items
        for p, column in enumerate(columns):
            if column.values and self.columns.setdefault(p, column) is not column:
                self._extend(p, column.values, column.keys, column.headers)

    def _extend(
        self,
        partition: int,
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[bytes | None] | None,
    ) -> None:
        column = self.columns.get(partition)
        if column is None:
            column = self.columns[partition] = Column()
        if headers is not None or column.headers is not None:
            if column.headers is None:
                column.headers = [None] * len(column.values)
            column.headers += [None] * len(values) if headers is None else headers
        column.values += values
        column.keys += keys

    def add_piece(self, partition: int, piece: "Piece") -> None:
        """Adds records that are encoded as columns already, after those that are here."""
        column = self.columns.get(partition)
        fresh = self.columns[partition] = Column()
        if column is not None:
            fresh.earlier = column.earlier
            if column.values:
                column.earlier = []
                fresh.earlier.append(column)
        fresh.earlier.append(piece)

    def records(self, partition: int) -> list[Record]:
        """Returns the records that wait here for a partition, as a reader would get them, without offsets."""
        column = self.columns.get(partition)
        if column is None:
            return []
        return self.decode(partition, [Batch.decode(data) for data, _ in column.batches(0)])

    def decode(self, partition: int, batches: list[Batch]) -> list[Record]:
        """Returns the records of batches, as `records` does."""
        segments = [Segment(partition, 0, 0, batch.count, batch) for batch in batches]
        records = ReadBatch(self.topic.name, self.topic.format, segments)
        return [record._replace(offset=-1, timestamp_ms=0) for record in records]
