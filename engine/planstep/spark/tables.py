"""Writes the rows of a table as of one step to an Arrow file, which tasks in other processes read.

    rows as of S ─ key, value as stored, place ─▶ planstep-tables/<store>-<S>-<table>-all.arrow
                                                  and one more name for each load of that step

The store keeps only the newest version of a row, and tasks cannot share the view of step S. So the first load of a
step writes the rows, for all loads of that step. A load of some keys uses a copy of all rows if there is one. The
file is in the local folder of this Spark, which Spark removes at its end, or else in a folder of this process
(private.py). What a killed Spark leaves is removed by the next load (owners.py). A file gets its name when it is
complete. Tasks map it, bisect it for the keys that they want, and copy nothing else.

Next: snapshots.py.
"""

import errno
import gc
import hashlib
import os
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..api import optional_packages
from ..api.transaction.routing import key_of, scan_range
from ..errors import IoError, NoSpace
from ..proto.ids import Place
from ..proto.keys import encode_key
from . import owners
from .options import ReadOptions
from .owners import make_private
from .private import PrivateFolder
from .values import Decoder, Misfit, decode_keys

if TYPE_CHECKING:
    from ..api.snapshot import SnapshotView
    from ..runtime.catalog import TableInfo

pa = optional_packages.pyarrow()

StoredRow: TypeAlias = tuple[bytes, Place, bytes]
"""A row's encoded key, place and encoded value."""
Range: TypeAlias = tuple[bytes, bytes]
"""Encoded keys: the first, and the first behind the last."""
FOLDER = "planstep-tables"
TABLE_COLUMNS = ("key", "value", "place")
_SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("step", pa.int64()), ("n", pa.int64())]
)
_PAGE = 2_000
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

    @property
    def ranges(self) -> list[Range]:
        if self.keys is None:
            return [(self.first, self.last)]
        return [(key, key + b"\0") for key in self.keys]


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


def copy(
    view: "SnapshotView | None", store: str, step: int, table: "TableInfo", part: Wanted
) -> str | None:
    """Returns a copy of a table's rows as of a step, for one load. It is a name for a file that all loads of that
    step share, and may have more rows than `part`. `release` removes it.

    `view`: of that step, to write the file if there is none; None: there is no copy then. NoSpace, IoError.
    """
    folder = local_folder() / FOLDER
    try:
        make_private(folder)
        owners.register(folder)
        shared = [_shared(folder, store, step, table, rows) for rows in (WHOLE, part)]
        while True:
            for file in shared:
                with suppress(FileNotFoundError):
                    return os.fspath(_named(file))
            if view is None:
                return None
            write_rows(view, table, part, shared[1])
    except OSError as error:
        raise _unwritten(table, folder, error) from error


def _shared(folder: Path, store: str, step: int, table: "TableInfo", part: Wanted) -> Path:
    name = "all" if part == WHOLE else hashlib.sha256(repr(part).encode()).hexdigest()[:16]
    return folder / f"{store}-{step}-{table.id}-{name}.arrow"


def _named(shared: Path) -> Path:
    """Gives a file one more name: the file system then counts the loads that use it. FileNotFoundError; OSError."""
    own = shared.with_name(f"{shared.stem}+{secrets.token_hex(8)}.arrow")
    try:
        own.hardlink_to(shared)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        return shared  # this file system has no such names: the first release removes the file
    return own


def release(copy: str) -> None:
    """Removes a load's copy, "" for none; the shared file goes with the last. It may be gone already. OSError."""
    if not copy:
        return
    file = Path(copy)
    file.unlink(missing_ok=True)
    shared = file.with_name(f"{file.stem.partition('+')[0]}.arrow")
    with suppress(FileNotFoundError):
        if shared.stat().st_nlink == 1:
            shared.unlink()  # a load that comes now has a name of its own by then, or writes again


def write_rows(view: "SnapshotView", table: "TableInfo", part: Wanted, file: Path) -> None:
    """Writes rows completely or not at all; keeps an existing file. NoSpace, IoError."""
    if file.exists():
        return
    partial = file.with_name(f".{file.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with (
            _without_collector(),
            pa.OSFile(os.fspath(partial), "wb") as sink,
            pa.ipc.new_file(sink, _SCHEMA) as writer,
        ):
            for batch in _batches(view, table, part):
                writer.write_batch(batch)
        os.replace(partial, file)
    except OSError as error:
        raise _unwritten(table, file.parent, error) from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Stops the collector of cycles, of which rows make none: it takes two fifths of the CPU of a copy."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


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
    keys, places, values = zip(*rows, strict=True)
    fields = keys, values, *zip(*places, strict=True)
    columns = [pa.array(c, kind) for c, kind in zip(fields, _SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _opened(file: str) -> Any:
    """Opens the file's batches; keys are in order within each."""
    return pa.ipc.open_file(pa.memory_map(file))


class Slice(NamedTuple):
    """Rows [start, end) of a batch of a file."""

    batch: int
    start: int
    end: int


def find(file: str, ranges: Iterable[Range]) -> tuple[Slice, ...]:
    """Finds the rows in ranges [first, last) of encoded keys, in the order of the file. It bisects each batch that
    has some, and reads no other rows. A row in several ranges is found once.
    """
    reader, wanted = _opened(file), _disjoint(ranges)
    found: list[Slice] = []
    for number in range(reader.num_record_batches):
        keys = reader.get_batch(number)["key"]
        at = bisect_right(wanted, keys[0].as_py(), key=itemgetter(1))
        for first, last in wanted[at:]:
            start, end = _bisected(keys, first), _bisected(keys, last)
            if start < end:
                found.append(Slice(number, start, end))
            if end == len(keys):
                break
    return tuple(found)


def _disjoint(ranges: Iterable[Range]) -> list[Range]:
    """Sorts ranges, and joins those that overlap."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        elif first < last:
            joined.append((first, last))
    return joined


def _bisected(keys: Any, key: bytes) -> int:
    return bisect_left(range(len(keys)), key, key=lambda at: keys[at].as_py())


def first_rows(file: str, slices: tuple[Slice, ...], limit: int) -> tuple[list[Any], list[bytes]]:
    """Returns (keys, stored values) of about `limit` rows, some from each slice."""
    reader = _opened(file)
    keys: list[Any] = []
    values: list[bytes] = []
    for number, start, end in slices:
        batch = reader.get_batch(number).slice(
            start, min(end - start, max(1, limit // len(slices)))
        )
        keys += map(key_of, batch["key"].to_pylist())
        values += batch["value"].to_pylist()
        if len(keys) >= limit:
            break
    return keys, values


def read_rows(
    file: str, slices: tuple[Slice, ...], rows: int, schema: Any, decoder: Decoder | None
) -> Iterator[Any]:
    """Reads slices as record batches of `schema`, of at most `rows` rows. RowMisfit names a row by key."""
    reader = _opened(file)
    for number, start, end in slices:
        batch = reader.get_batch(number)
        for at in range(start, end, rows):
            part = batch.slice(at, min(rows, end - at))
            columns = [_column(field, part, decoder) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


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
