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
_RUN_BYTES = 64 << 20
_KEYS, _VALUES, _HEADERS = range(3)
_MADE_TYPES = (pa.int32(), pa.int64(), pa.timestamp("ms", tz="UTC"))


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
    has_headers = any(s.batch.holds(_HEADERS) for s in segments) if headers is None else headers
    names = ["partition", "offset", "timestamp", "key", "value"]
    types = [*_MADE_TYPES, key_type(form), stored_type(form)]
    if has_headers:
        names.append("headers")
        types.append(pa.map_(pa.string(), pa.binary()))
    chunks = [_chunk(run, types) for run in runs(segments)]
    columns = [
        pa.chunked_array([chunk[i] for chunk in chunks], type=kind) for i, kind in enumerate(types)
    ]
    if decode and form in ("json", "msgpack"):
        raw: list[Any] = []
        for s in segments:
            raw += s.batch.part(_VALUES, s.lo, s.hi)
        columns[4] = typed(decode_values(form, raw), f"values of topic {topic!r}", value_type)
    return pa.table(columns, names=names)


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


def _chunk(run: list[Segment], types: list[Any]) -> list[Any]:
    if len(run) > 1:
        return _copied(run, types)
    (s,) = run
    count = s.hi - s.lo
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    arrays = [
        pa.repeat(pa.scalar(s.partition, types[0]), count),
        pc.cumulative_sum(ones, start=s.offset - 1),
        pa.repeat(pa.scalar(s.batch.timestamp_ms, types[2]), count),
        stored(s.batch, _KEYS, s.lo, s.hi, types[3]),
        stored(s.batch, _VALUES, s.lo, s.hi, types[4]),
    ]
    if len(types) > 5:
        arrays.append(header_maps(s.batch.part(_HEADERS, s.lo, s.hi), types[5]))
    return arrays


def _copied(run: list[Segment], types: list[Any]) -> list[Any]:
    columns: list[list[Any]] = [[] for _ in types]
    for s in run:
        count = s.hi - s.lo
        columns[0] += [s.partition] * count
        columns[1] += range(s.offset, s.offset + count)
        columns[2] += [s.batch.timestamp_ms] * count
        columns[3] += s.batch.part(_KEYS, s.lo, s.hi)
        columns[4] += s.batch.part(_VALUES, s.lo, s.hi)
        if len(types) > 5:
            columns[5] += s.batch.part(_HEADERS, s.lo, s.hi)
    arrays = []
    for i, (column, kind) in enumerate(zip(columns, types, strict=True)):
        if i == 5:
            arrays.append(header_maps(column, kind))
        elif kind == pa.string():  # stored as UTF-8: viewed as text, without a check
            arrays.append(pa.array(column, pa.binary()).view(kind))
        else:
            arrays.append(pa.array(column, kind))
    return arrays


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
