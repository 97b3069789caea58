"""Fills an empty folder from a snapshot of a shared log, and verifies it.

    tables ─▶ table/data.mdb ─▶ packs ─▶ data files, at the addresses that they had ─▶ meta.pb ─▶ verified

The folder is as of the snapshot's turn, and has no segment: opening it begins one behind that turn. Nothing refers
to it until the caller gives it its name.

Next: verify.py.
"""

import os
from contextlib import closing
from functools import partial
from pathlib import Path

import lmdb

from ..errors import Corruption
from ..shared.manifest import Manifest, PackReader
from ..shared.snapshots import Snapshots
from .files import Files, open_file, typed_errors
from .log.compaction import write_data
from .log.extents import Extent
from .log.segments import Folder, segment_name
from .meta import Meta, make_folder, save_meta
from .tables.checksums import seal
from .tables.header_check import DATA_FILE
from .tables.lmdb_errors import not_written
from .tables.table import Table
from .verify import verify

GENERATIONS_APART = 1_000
"""How far a copy's generations are from the original's, so that the two never give one id to two transactions."""


def restore_snapshot(snapshots: Snapshots, manifest: Manifest, folder: Path, meta: Meta) -> None:
    """Fills the folder, which is not there yet. Corruption for a snapshot that is damaged or lacks a part; IoError,
    NoSpace. `meta` is the folder's, and may name another store than the snapshot's.
    """
    files = Files()
    make_folder(folder / "table", files)
    _write_tables(snapshots, manifest, folder / "table" / DATA_FILE, files)
    with closing(Table(folder / "table", manifest.tables_id)) as table:
        _check(table, manifest)
        _move_payload(snapshots, manifest, table, Folder(folder, meta.store_id, files, 0))
        _adopt(table, manifest, folder / "table", meta.store_id)
    skip_generations(folder, manifest.term)
    save_meta(folder, meta, files)
    check_whole(folder)
    files.sync_folder(folder / "table")


def check_whole(folder: Path) -> None:
    """Verifies a copy, whose names are durable then. Corruption, IoError."""
    for problem in verify(folder):
        if problem.unread is not None:
            raise problem.unread
        raise Corruption(f"{folder}: the copy is not what was written: {problem.what}")
    Files().sync_folder(folder)


def skip_generations(folder: Path, generation: int) -> None:
    """Makes the next opening one of a later generation: recovery continues after a segment that was never begun."""
    with typed_errors(folder):
        (folder / segment_name(generation, 0)).touch(mode=0o600)


def _write_tables(snapshots: Snapshots, manifest: Manifest, path: Path, files: Files) -> None:
    with typed_errors(path):
        fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        at = 0
        for part in snapshots.tables(manifest):
            files.write(fd, [part], at, False)
            at += len(part)
        files.sync(fd)
    finally:
        os.close(fd)


def _check(table: Table, manifest: Manifest) -> None:
    """Corruption unless the tables are those that the manifest was written for."""
    state = table.state() or (0, 0)
    if state[:2] != (manifest.turn, manifest.address) or table.digests() != manifest.digests:
        raise Corruption(f"the snapshot of turn {manifest.turn} has the tables of turn {state[0]}")


def _move_payload(snapshots: Snapshots, manifest: Manifest, table: Table, folder: Folder) -> None:
    """Writes each pack's live payload to a data file, and names that in the tables."""
    old = frozenset(table.live())
    pinned = table.pin()  # as it was: a file's payload may be in several packs
    try:
        held = sum(extent.length for extent in table.extents_within(0, manifest.address, pinned))
        for number, pack in enumerate(manifest.packs):
            extents = partial(table.extents_within, pack.begin, pack.end, pinned)
            reader = snapshots.pack(pack)
            _, moved = write_data(
                folder, folder.store_id, (0, number), extents, partial(_read, reader)
            )
            held -= sum(extent.length for extent in moved)
            table.move(moved, old)
            old = frozenset()
    finally:
        pinned.abort()
        folder.close()
    if held:
        raise Corruption(f"the snapshot of turn {manifest.turn} lacks {held:,} bytes of payload")


def _read(pack: PackReader, extents: list[Extent]) -> list[bytes]:
    return [pack.get(extent.address, extent.length) for extent in extents]


def _adopt(table: Table, manifest: Manifest, folder: Path, store_id: bytes) -> None:
    """Lets the tables begin a history: no segment of the log is needed, and they may be those of another store."""
    try:
        with table.environment.begin(write=True) as txn:
            txn.put(b"m", seal(b"m", (manifest.turn, manifest.address, "", False, 0)))
            txn.put(b"i", seal(b"i", store_id))
    except lmdb.Error as error:
        raise not_written("a restored state", error, folder) from error
