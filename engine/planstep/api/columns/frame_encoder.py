"""Encodes tables of columns as records: from Arrow's buffers to stored batches, without Python code per record.

    key column    ─ distinct keys ─ crc32 ─▶ partition of each ─ stable sort ─▶ a slice per partition
    value column  ─────────────────────────────────────────────────── taken ──▶     │ cut at 1 MiB
                                                                                    ▼
                                                                         offsets and data of a batch

Python code runs only for each distinct key, and for each value that the format encodes (json, msgpack).

What it leaves out: headers and timestamps. A stored batch has one timestamp, the time of writing; a record's own
time belongs into its value.

Next: ../transaction/topic_writes.py, which keeps the pieces.
"""

import sys
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import RecordTooLarge
from ...proto.batch import Buffers, encode_buffers
from .. import optional_packages
from ..limits import RECORD_BYTES_MAX
from ..transaction.topic_writes import cuts
from .codecs import encode_values

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo

pa = optional_packages.pyarrow()
pc = pa.compute

_SLICE_BYTES = 64 << 20


def table_of(frame: Any) -> Any:
    """Converts a frame to a pyarrow Table: of a DataFrame the columns, and the index if it has a name."""
    if isinstance(frame, pa.Table):
        return frame
    if type(frame).__module__.partition(".")[0] == "pandas":
        named = any(name is not None for name in frame.index.names)
        return pa.Table.from_pandas(frame, preserve_index=True if named else False)
    return pa.table(frame)


def column_of(table: Any, name: str, where: str) -> Any:
    """Returns the column of that name. ValueError names the columns there are."""
    if table.column_names.count(name) != 1:
        has = ", ".join(map(repr, table.column_names))
        raise ValueError(f"{where}: no column {name!r} in the table (or two): it has {has}")
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column


def python_values(table: Any, names: list[str], where: str) -> list[Any]:
    """Converts rows to dicts of these columns, for json and msgpack to encode. TypeError."""
    for name in names:
        kind = column_of(table, name, where).type
        if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
            raise TypeError(
                f"{where}: column {name!r} is {kind}, which json and msgpack have no word for; make "
                "it text or a number, or leave it out"
            )
    rows: list[Any] = table.select(names).to_pylist()
    return rows


def _is_text(kind: Any) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(kind: Any) -> bool:
    known = (pa.binary(), pa.large_binary(), pa.binary_view())
    return kind in known or bool(pa.types.is_fixed_size_binary(kind))


class Records:
    """A table's records, checked and encoded as a topic stores them; `size` is in bytes.

    Invariant: keys and values are binary columns of one length; values have no nulls.
    """

    def __init__(self, topic: "TopicInfo", frame: Any, key: str | None, value: str | None) -> None:
        self.topic = topic
        self.where = f"topic {topic.name!r}"
        table = table_of(frame)
        keys = None if key is None else self._keys(column_of(table, key, self.where), key)
        values = self._values(table, key, value)
        self.table = pa.table({"value": values} if keys is None else {"value": values, "key": keys})
        self.size = self._measured()

    def _keys(self, column: Any, name: str) -> Any:
        kind = column.type
        if _is_text(kind) or (_is_bytes(kind) and self.topic.format == "bytes"):
            return _binary(column)
        if pa.types.is_null(kind):
            return None
        kinds = "text or bytes" if self.topic.format == "bytes" else "text"
        raise TypeError(
            f'{self.where} has format="{self.topic.format}": keys of its records are {kinds}, and '
            f'column {name!r} is {kind}; cast it, in Arrow with .cast("string")'
        )

    def _values(self, table: Any, key: str | None, value: str | None) -> Any:
        form = self.topic.format
        if form in ("json", "msgpack"):
            if value is None:
                names = [name for name in table.column_names if name != key]
                items = python_values(table, names, self.where)
            else:
                items = column_of(table, value, self.where).to_pylist()
            array = pa.array(encode_values(form, items, self.where), pa.binary())
            return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
        if value is None:
            has = ", ".join(map(repr, table.column_names))
            raise ValueError(
                f'{self.where} has format="{form}": name the column of values with value=, one of '
                f"{has}"
            )
        column = column_of(table, value, self.where)
        if not (_is_text(column.type) if form == "utf8" else _is_bytes(column.type)):
            wanted = "text" if form == "utf8" else "bytes"
            raise TypeError(
                f'{self.where} has format="{form}": its values are {wanted}, and column {value!r} is '
                f"{column.type}; cast it, or create the topic with another format"
            )
        if column.null_count:
            first = pc.index(column.is_null(), pa.scalar(True)).as_py()
            raise TypeError(f"{self.where}: record {first} has no value in column {value!r}")
        return _binary(column)

    def _measured(self) -> int:
        lengths = [
            pc.fill_null(pc.binary_length(c), 0).cast(pa.int64()) for c in self.table.columns
        ]
        records = lengths[0] if len(lengths) == 1 else pc.add(*lengths)
        largest = pc.max(records).as_py() or 0
        if largest > RECORD_BYTES_MAX:
            at = pc.index(records, pa.scalar(largest, pa.int64())).as_py()
            raise RecordTooLarge(
                f"{self.where}: record {at} has {largest:,} bytes, the limit is "
                f"{RECORD_BYTES_MAX:,}; nothing was written"
            )
        return pc.sum(records).as_py() or 0

    def pieces(
        self, keyless: int, partition: int | None
    ) -> Iterator[tuple[int, list[tuple[int, "Piece"]]]]:
        """Yields (bytes, [(partition, records), …]), about 64 MiB at a time."""
        count = self.table.num_rows
        rows = max(1, count * _SLICE_BYTES // max(self.size, _SLICE_BYTES))
        for begin in range(0, count, rows):
            part = self.table.slice(begin, rows)
            values = _one(part["value"])
            keys = _one(part["key"]) if part.num_columns > 1 else None
            ends = [_offsets(column) for column in (values, keys) if column is not None]
            size = sum(each[-1] - each[0] for each in ends)
            yield size, self._split(values, keys, keyless, partition)

    def _split(
        self, values: Any, keys: Any, keyless: int, partition: int | None
    ) -> list[tuple[int, "Piece"]]:
        parts = len(self.topic.partitions)
        if partition is not None or keys is None or parts == 1:
            target = partition if partition is not None else 0 if keys is not None else keyless
            return [(target, Piece(values, keys))]
        coded = keys.dictionary_encode()
        crc32 = zlib.crc32
        of_key = [crc32(key) % parts for key in coded.dictionary.to_pylist()]
        chosen = pa.array(of_key, pa.int32()).take(coded.indices).fill_null(keyless)
        order = pc.array_sort_indices(chosen)  # stable: records of a partition keep their order
        values, keys = values.take(order), keys.take(order)
        counts = {item["values"]: item["counts"] for item in chosen.value_counts().to_pylist()}
        pieces = []
        at = 0
        for target, size in sorted(counts.items()):
            pieces.append((target, Piece(values.slice(at, size), keys.slice(at, size))))
            at += size
        return pieces


class Piece:
    """Records for one partition, as Arrow columns."""

    __slots__ = ("keys", "values")

    def __init__(self, values: Any, keys: Any) -> None:
        self.values = values
        self.keys = None if keys is None or keys.null_count == len(keys) else keys

    def batches(self, timestamp_ms: int) -> tuple[tuple[bytes, int], ...]:
        """Returns (encoded batch, records), each of about BATCH_BYTES at most."""
        batches = []
        for a, b in cuts(_offsets(self.values)):
            keys = None if self.keys is None else _buffers(self.keys.slice(a, b - a))
            columns = (keys, _buffers(self.values.slice(a, b - a)), None)
            batches.append((encode_buffers(b - a, columns, timestamp_ms), b - a))
        return tuple(batches)


def _offsets(column: Any) -> memoryview:
    """Returns the count + 1 offsets of an array, which need not begin at 0."""
    at = column.offset
    return memoryview(column.buffers()[1]).cast("i")[at : at + len(column) + 1]


def _buffers(column: Any) -> Buffers:
    """Returns a binary array's buffers as a batch stores them: offsets from 0, no data for a null."""
    bitmap = None
    if column.null_count:
        valid = pc.invert(column.is_null())
        assert valid.offset == 0
        bits = bytearray(memoryview(valid.buffers()[1])[: (len(column) + 7) // 8])
        if len(column) % 8:
            bits[-1] &= (1 << len(column) % 8) - 1
        bitmap = memoryview(bits)
        column = column.fill_null(b"")
    ends = _offsets(column)
    first, last = ends[0], ends[-1]
    data = column.buffers()[2]
    if first:
        at = pa.Array.from_buffers(
            pa.int32(), len(column) + 1, [None, column.buffers()[1]], offset=column.offset
        )
        ends = memoryview(pc.subtract(at, pa.scalar(first, pa.int32())).buffers()[1]).cast("i")
        ends = ends[: len(column) + 1]
    offsets = ends.cast("B")
    if sys.byteorder == "big":
        swapped = pa.array(ends, pa.int32())  # slow, but such machines are rare
        offsets = memoryview(b"".join(e.as_py().to_bytes(4, "little") for e in swapped))
    return bitmap, offsets, memoryview(b"" if data is None else data)[first:last]


def _binary(column: Any) -> Any:
    """Converts text or bytes of any kind to binary with int32 offsets; does not copy where they have them."""
    if _is_text(column.type):
        column = column.cast(pa.string())
        return pa.chunked_array([chunk.view(pa.binary()) for chunk in column.chunks], pa.binary())
    return column.cast(pa.binary())


def _one(column: Any) -> Any:
    """Joins a column's chunks to one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
