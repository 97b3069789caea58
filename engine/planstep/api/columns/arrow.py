"""Converts stored batches and rows to Arrow: the boundary to pyarrow, whose types are Any here.

    stored batch   keys    offsets int32 ┐                       ┌ key     binary, or string
                           data          ├─ the same buffers ──▶ │
                   values  offsets int32 │                       └ value   binary, or string
                           data          ┘
                   headers msgpack         ─ decoded ──────────▶   headers map<string, binary>
    index entry    partition, offset, time ─ made ─────────────▶   partition, offset, timestamp

It copies headers, and decodes values of format json and msgpack into columns; a dict is a struct. Runs of small
batches (under SMALL records each) are copied into one chunk. It copies nothing else: even a short array keeps its
stored batch of about 1 MiB alive.

It infers a type from the values. Ints mixed with floats become floats where they are exact. A field that only some
dicts have is null in the others. Text mixed with bytes within dicts becomes bytes. It changes no other value
and drops none: values without a common type raise NoCommonType. `decode=False` gives values as stored: JSON text,
or msgpack as binary.

Next: span.py, which users call.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any

from ...errors import NoCommonType
from ...proto.batch import Batch, decode_headers
from ...runtime.snapshot_reads import Segment
from .. import optional_packages
from .codecs import decode_values

pa = optional_packages.pyarrow()
pc = pa.compute

SMALL = 256
"""Batches with fewer records than this are copied into a common chunk: a chunk costs more than the copy."""
TINY = 16
"""An array over a batch's buffers costs more than lists of fewer records than this."""
_RUN_BYTES = 64 << 20
_KEYS, _VALUES, _HEADERS = range(3)
_MADE_TYPES = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
}
_INT, _LONG = Struct("=i"), Struct("=q")
_ONE = _LONG.pack(1)


def key_type(form: str) -> Any:
    return pa.binary() if form == "bytes" else pa.string()


def stored_type(form: str) -> Any:
    """Returns the Arrow type of values as stored: text for utf8 and json, else binary."""
    return pa.string() if form in ("utf8", "json") else pa.binary()


# topics ------------------------------------------------------------------------------------


def topic_table(
    topic: str,
    form: str,
    segments: Sequence[Segment],
    decode: bool = True,
    headers: bool | None = None,
    value_type: Any = None,
) -> Any:
    """Makes a table: partition, offset, timestamp, key, value; headers where any has some, or as given."""
    shown = any(s.batch.holds(_HEADERS) for s in segments) if headers is None else headers
    columns = _places(segments)
    columns["key"] = _joined(segments, _KEYS, key_type(form))
    if decode and form in ("json", "msgpack"):
        values = decode_values(form, _items(segments, _VALUES))
        columns["value"] = typed(values, f"values of topic {topic!r}", value_type)
    else:
        columns["value"] = _joined(segments, _VALUES, stored_type(form))
    if shown:
        kind = pa.map_(pa.string(), pa.binary())
        columns["headers"] = header_maps(_items(segments, _HEADERS), kind)
    return pa.table(columns)


def runs(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Yields the segments of each chunk: a single one, or a run of small ones."""
    run: list[Segment] = []
    size = 0
    for segment in segments:
        small = segment.hi - segment.lo < SMALL
        if run and (not small or size >= _RUN_BYTES):
            yield run
            run, size = [], 0
        if small:
            run.append(segment)
            size += len(segment.batch.data)
        else:
            yield [segment]
    if run:
        yield run


def _places(segments: Sequence[Segment]) -> dict[str, Any]:
    """Makes the columns partition, offset and timestamp, for all segments at once."""
    partitions, timestamps = [], []
    steps = []  # from each offset to the next: they are added up
    last = total = 0
    for s in segments:
        count = s.hi - s.lo
        partitions.append(_INT.pack(s.partition) * count)
        timestamps.append(_LONG.pack(s.batch.timestamp_ms) * count)
        steps += [_LONG.pack(s.offset - last), _ONE * (count - 1)]
        last = s.offset + count - 1
        total += count
    columns = {}
    for name, pieces in (("partition", partitions), ("offset", steps), ("timestamp", timestamps)):
        buffers = [None, pa.py_buffer(b"".join(pieces))]
        columns[name] = pa.Array.from_buffers(_MADE_TYPES[name], total, buffers)
    columns["offset"] = pc.cumulative_sum(columns["offset"])
    return columns


def _items(segments: Sequence[Segment], column: int) -> list[Any]:
    items: list[Any] = []
    for s in segments:
        items += s.batch.part(column, s.lo, s.hi)
    return items


def _joined(segments: Sequence[Segment], column: int, kind: Any) -> Any:
    """Makes a column of keys or values, over the batches' own buffers; runs of small batches are copied."""
    chunks = []
    for run in runs(segments):
        if len(run) > 1 and sum(s.hi - s.lo for s in run) < TINY * len(run):
            items = pa.array(_items(run, column), pa.binary())
            chunks.append(items.view(kind))  # text was stored as UTF-8: no check
            continue
        arrays = [stored(s.batch, column, s.lo, s.hi, kind) for s in run]
        chunks.append(arrays[0] if len(run) == 1 else pa.concat_arrays(arrays))
    return pa.chunked_array(chunks, type=kind)


def stored(batch: Batch, column: int, lo: int, hi: int, kind: Any) -> Any:
    """Makes an array of items lo..hi of keys (0) or values (1), over the batch's own buffers."""
    buffers = batch.buffers(column)
    if buffers is None:
        return pa.nulls(hi - lo, kind)
    if sys.byteorder == "big":  # stored little endian
        return pa.array(batch.part(column, lo, hi), pa.binary()).view(kind)
    views = [None if view is None else pa.py_buffer(view) for view in buffers]
    return pa.Array.from_buffers(kind, hi - lo, views, offset=lo)


def header_maps(column: Iterable[bytes | None], kind: Any) -> Any:
    maps = [None if item is None else list(decode_headers(item).items()) for item in column]
    return pa.array(maps, kind)


# tables ------------------------------------------------------------------------------------


def rows_table(where: str, keys: list[Any], values: list[Any], value_type: Any = None) -> Any:
    """Makes a table of key and value; tuple keys become structs with the fields "0", "1", …. NoCommonType."""
    kinds = set(map(_kind, keys))
    if len(kinds) > 1:
        names = " and ".join(sorted(map(_kind_name, kinds)))
        raise NoCommonType(
            f"keys of {where} have no common Arrow type: {names}; scan with prefix= or begin= and "
            "end= for keys of one kind"
        )
    if keys and isinstance(keys[0], tuple):
        keys = [_key_fields(key) for key in keys]
    columns = [
        typed(keys, f"keys of {where}"),
        typed(values, f"values of {where}", value_type),
    ]
    return pa.table(columns, names=["key", "value"])


def _kind(key: Any) -> Any:
    """Returns the type of a key: 1, 1.0 and True are different keys, which a column must not merge."""
    return tuple(map(_kind, key)) if isinstance(key, tuple) else type(key)


def _kind_name(kind: Any) -> str:
    if isinstance(kind, tuple):
        return f"({', '.join(map(_kind_name, kind))})"
    return "None" if kind is type(None) else str(kind.__name__)


def _key_fields(key: Any) -> Any:
    if isinstance(key, tuple):
        return {str(i): _key_fields(part) for i, part in enumerate(key)}
    return key


# types -------------------------------------------------------------------------------------


def typed(values: list[Any], what: str, kind: Any = None) -> Any:
    """Converts Python values to a column of a type that holds all of them. NoCommonType."""
    try:
        if kind is None and {str, bytes} <= set(map(type, values)):
            raise TypeError("text and bytes")  # would silently become bytes
        return pa.array(values, kind)
    except (TypeError, ValueError, OverflowError, pa.ArrowNotImplementedError) as error:
        # Arrow raises these for values that have no type or exceed its range; they are not bugs of ours.
        raise _refusal(what, error) from error


def common_type(name: str, a: Any, b: Any, what: str) -> Any:
    """Returns the type that holds both columns `name`. Structs get the fields of both; keys must be equal."""
    if a == b:
        return a
    try:
        if name == "key":
            raise TypeError(f"{a} and {b}")
        schemas = [pa.schema([("value", kind)]) for kind in (a, b)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (TypeError, ValueError) as error:
        raise _refusal(what, error) from error


def _refusal(what: str, error: Exception) -> NoCommonType:
    else_ = "" if what.startswith("keys") else "decode=False gives values as stored, "
    return NoCommonType(
        f"{what} have no common Arrow type ({error}); {else_}to_pandas() holds anything"
    )


def steady(tables: Iterable[Any], what: str) -> Iterator[Any]:
    """Yields the tables with the schema of the first. NoCommonType at one that does not fit."""
    schema = None
    for table in tables:
        if schema is None:
            schema = table.schema
        for field, kind in zip(schema, table.schema.types, strict=True):
            if common_type(field.name, field.type, kind, what) != field.type:
                raise NoCommonType(
                    f"{what}: {field.name} is {kind} from some record on, and {field.type} before; "
                    "pass value_type= to say what it is in all, or decode=False"
                )
        yield conform(table, schema, what)


def conform(table: Any, schema: Any, what: str) -> Any:
    """Converts a table to a schema whose types hold its own."""
    for i, (field, kind) in enumerate(zip(schema, table.schema.types, strict=True)):
        if kind != field.type:
            table = table.set_column(i, field, typed(table.column(i).to_pylist(), what, field.type))
    return table


def schema_of(tables: Iterable[Any], what: str) -> Any:
    """Finds the schema that holds all tables; reads them to the end. NoCommonType."""
    schema = None
    for table in tables:
        if schema is None or schema == table.schema:
            schema = table.schema
            continue
        pairs = zip(schema.names, schema.types, table.schema.types, strict=True)
        schema = pa.schema([(name, common_type(name, a, b, what)) for name, a, b in pairs])
    return schema


def record_batches(tables: Iterable[Any]) -> Iterator[Any]:
    """Yields each table as one RecordBatch, with its chunks copied together."""
    for table in tables:
        yield from table.combine_chunks().to_batches()


def to_pandas(table: Any, objects: list[Any] | None = None) -> Any:
    """Converts a table to a DataFrame; `objects`, if given, replace the column value as they are."""
    pandas = optional_packages.pandas()
    if objects is None:
        return table.to_pandas()
    frame = table.drop_columns(["value"]).to_pandas()
    kinds = set(map(type, objects))
    mixed = len(kinds) != 1 or not kinds <= {int, float, bool}
    column = pandas.Series(objects, dtype=object if mixed else None)
    frame.insert(frame.columns.get_loc("key") + 1, "value", column)
    return frame
