"""Writes the rows of a table as of one step to an Arrow file, which tasks in other processes read.

    rows as of S ─ key, value as stored, place ─▶ <folder>/planstep-<store>-<S>/<table>-<range>.arrow

The store keeps only the newest version of a row, and tasks cannot share the view of step S. So the load that
picks the step writes the rows once for all DataFrames of a Spark session. The file is in the session's local
folder, which Spark removes at its end, or else in a folder of this process (private.py). A file gets its name
when it is complete. Tasks map it, decode, and copy nothing else.

Next: snapshots.py.
"""

import errno
import hashlib
import os
import secrets
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..api import optional_packages
from ..api.transaction.routing import key_of, scan_range
from ..errors import IoError, NoSpace
from ..proto.ids import Place
from ..proto.keys import encode_key
from .options import ReadOptions
from .private import PrivateFolder, make_private
from .values import Decoder, Misfit, decode_keys

if TYPE_CHECKING:
    from ..api.snapshot import SnapshotView
    from ..runtime.catalog import TableInfo

pa = optional_packages.pyarrow()
pc = pa.compute

StoredRow: TypeAlias = tuple[bytes, Place, bytes]
"""A row's encoded key, place and encoded value."""
TABLE_COLUMNS = ("key", "value", "place")
_SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("step", pa.int64()), ("n", pa.int64())]
)
_PAGE = 2000
_PAGE_BYTES = 8 << 20
"""Rows (`_PAGE`, at most) and bytes (about) of one scan and of one batch of the file.

Spark takes no batch of 2 GiB, and a row may have 16 MiB.
"""
_FIRST_PAGE = 100


class Wanted(NamedTuple):
    """The rows to read: those of single encoded `keys`, or all in the range [first, last)."""

    first: bytes = b""
    last: bytes = b"\xff"
    keys: tuple[bytes, ...] | None = None


WHOLE = Wanted()


def wanted(options: ReadOptions) -> Wanted:
    if options.keys is not None:
        return Wanted(keys=tuple(sorted(set(map(encode_key, options.keys)))))
    return WHOLE if options.prefix is None else Wanted(*scan_range(options.prefix, None, None))


def local_folder() -> Path:
    """Returns Spark's folder for temporary files (SPARK_LOCAL_DIRS), or else a private one of this process."""
    named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(named) if named else _own_folder().path


@cache
def _own_folder() -> PrivateFolder:
    return PrivateFolder("planstep-spark-")


def rows_file(store: str, step: int, table: "TableInfo", part: Wanted, folder: Path) -> Path:
    """Names the file for a table's rows as of a step, in a private folder; it may not exist yet. IoError."""
    name = "all" if part == WHOLE else hashlib.sha256(repr(part).encode()).hexdigest()[:16]
    private = folder / f"planstep-{store}-{step}"
    try:
        make_private(private)
    except OSError as error:
        raise _unwritten(table, private, error) from error
    return private / f"{table.id}-{name}.arrow"


def write_rows(view: "SnapshotView", table: "TableInfo", part: Wanted, file: Path) -> None:
    """Writes rows completely or not at all; keeps an existing file. NoSpace, IoError."""
    if file.exists():
        return
    partial = file.with_name(f".{file.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with pa.OSFile(os.fspath(partial), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
            for batch in _batches(view, table, part):
                writer.write_batch(batch)
        os.replace(partial, file)
    except OSError as error:
        raise _unwritten(table, file.parent, error) from error
    finally:
        partial.unlink(missing_ok=True)


def _unwritten(table: "TableInfo", folder: Path, error: OSError) -> IoError:
    kind = NoSpace if error.errno == errno.ENOSPC else IoError
    return kind(
        f"table {table.name!r} could not be written to {folder}, where Spark's tasks read it "
        f"({error}); make room, or set spark.local.dir to a folder that has some"
    )


def _batches(view: "SnapshotView", table: "TableInfo", part: Wanted) -> Iterator[Any]:
    pages = _scanned(view, table, part) if part.keys is None else _found(view, table, part.keys)
    for rows in pages:
        for a, b in pairwise(_cuts([len(value) for _, _, value in rows])):
            yield _batch(rows[a:b])


def _scanned(view: "SnapshotView", table: "TableInfo", part: Wanted) -> Iterator[list[StoredRow]]:
    reading = view.pinned.reading()
    for shard in table.shards:
        first, last, _ = part
        limit = _FIRST_PAGE
        while first < last:
            rows = reading.runtime.views.scan_rows(reading.snap, shard, first, last, limit=limit)
            yield rows
            if len(rows) < limit:
                break
            first = rows[-1][0] + b"\0"
            size = sum(len(value) for _, _, value in rows)
            limit = min(_PAGE, max(1, _PAGE_BYTES * limit // max(1, size)))


def _found(
    view: "SnapshotView", table: "TableInfo", keys: tuple[bytes, ...]
) -> Iterator[list[StoredRow]]:
    """Looks rows up by their keys; a key without a row is left out."""
    reading = view.pinned.reading()
    for at in range(0, len(keys), _FIRST_PAGE):
        page = [(key, reading.row(table, key)) for key in keys[at : at + _FIRST_PAGE]]
        yield [(key, *row) for key, row in page if row is not None]


def _cuts(sizes: list[int]) -> Iterator[int]:
    """Yields the limits of batches for rows of these sizes, both ends included."""
    yield 0
    held = 0
    for number, size in enumerate(sizes):
        if held and held + size > _PAGE_BYTES:
            yield number
            held = 0
        held += size
    if sizes:
        yield len(sizes)


def _batch(rows: list[StoredRow]) -> Any:
    fields = zip(*((key, value, place.step, place.n) for key, place, value in rows), strict=True)
    columns = [pa.array(c, kind) for c, kind in zip(fields, _SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def opened(file: str) -> Any:
    """Opens the file's batches."""
    return pa.ipc.open_file(pa.memory_map(file))


def counts(file: str) -> tuple[int, ...]:
    """Counts the rows of each batch."""
    reader = opened(file)
    return tuple(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))


def first_rows(file: str, part: Wanted, limit: int) -> tuple[list[Any], list[bytes]]:
    """Returns (keys, stored values) of about `limit` rows, some from each batch."""
    reader = opened(file)
    keys: list[Any] = []
    values: list[bytes] = []
    batches = reader.num_record_batches
    for i in range(batches):
        batch = _within(reader.get_batch(i), part).slice(0, max(1, limit // batches))
        keys += map(key_of, batch["key"].to_pylist())
        values += batch["value"].to_pylist()
        if len(keys) >= limit:
            break
    return keys, values


def read_rows(
    file: str, begin: int, end: int, part: Wanted, schema: Any, decoder: Decoder | None
) -> Iterator[Any]:
    """Reads batches [begin, end) of the file as record batches of `schema`. RowMisfit names a row by key."""
    reader = opened(file)
    for i in range(begin, end):
        batch = _within(reader.get_batch(i), part)
        columns = [_column(field, batch, decoder) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _within(batch: Any, part: Wanted) -> Any:
    """Filters a batch to the rows that are wanted: the file may hold the whole table."""
    if part == WHOLE:
        return batch
    keys = batch["key"]
    if part.keys is not None:
        return batch.filter(pc.is_in(keys, value_set=pa.array(part.keys, pa.binary())))
    first, last = (pa.scalar(key, pa.binary()) for key in (part.first, part.last))
    return batch.filter(pc.and_(pc.greater_equal(keys, first), pc.less(keys, last)))


class RowMisfit(Exception):
    """Raised for a key or value that does not fit its column."""

    def __init__(self, what: str, key: Any, kind: Any, error: Misfit) -> None:
        self.what, self.key, self.kind, self.error = what, key, kind, error
        super().__init__(str(error))


def _column(field: Any, batch: Any, decoder: Decoder | None) -> Any:
    if field.name == "place":
        return pa.StructArray.from_arrays([batch["step"], batch["n"]], fields=list(field.type))
    try:
        if field.name == "key":
            return decode_keys(batch["key"].to_pylist(), field.type)
        assert decoder is not None
        if decoder.form == "bytes":
            return batch["value"]
        return decoder.array(batch["value"].to_pylist())
    except Misfit as error:
        key = key_of(batch["key"][error.index].as_py())
        raise RowMisfit(field.name, key, field.type, error) from error
