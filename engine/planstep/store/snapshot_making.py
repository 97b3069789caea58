"""Makes a snapshot of a store for its shared log, while turns and checkpoints go on.

    checkpoint ─▶ LMDB pinned as of turn T ─▶ packs of the snapshot before that stay
                                           ─▶ other live payload, into new packs ─▶ LMDB's file ─▶ manifest

A manifest comes once the shared log has its turn, so a snapshot has only what counts for ever. LMDB's file is
copied through a socket as it is sent, without its free pages. A pack stays while at least half of it lives, unless
it is small and its neighbour is made anew. At most about two parts are in memory, or twice the payload of one turn.

Next: snapshot_restoring.py.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import lmdb

from ..errors import IoError
from ..shared.manifest import Manifest, Pack, stem_of
from ..shared.snapshots import Snapshots, SnapshotWriter
from .disk_store import DiskStore
from .log.compaction import read_extent
from .log.extents import Extent
from .log.segments import Folder
from .readers.pinned import PinnedStore
from .replicated import OWNER_KEY
from .tables.table import Table

PART_BYTES = 64 << 20


def make_snapshot(
    store: DiskStore,
    snapshots: Snapshots,
    before: Manifest | None,
    floor: Callable[[], int],
    *,
    check: Callable[[], object] = lambda: None,
    decided: Callable[[int], object] = lambda turn: None,
    part_bytes: int = PART_BYTES,
) -> tuple[Manifest, int]:
    """Makes a snapshot of the store's last checkpoint; returns (its manifest, bytes sent).

    `before`: the newest whole one, whose packs it may take over. `floor` reads the shared log's floor. `check` is
    called between parts, and raises to end it. `decided` returns once the shared log has a turn. Errors of
    Snapshots; IoError and Corruption of the store.
    """
    store.table.trust()  # LMDB itself copies them
    with closing(PinnedStore(store)) as pinned:
        table, txn = pinned.tables
        turn, address, *_ = table.state(txn) or (0, 0)
        files = pinned.files
        kept = _kept(table, txn, before.packs if before is not None else (), address, part_bytes)
        writer = snapshots.begin(stem_of(turn, os.urandom(8)), before, kept, floor)
        for begin, end in list(_gaps(writer.packs, address)):  # those that are added now are none
            _add_packs(writer, files, table.extents_within(begin, end, txn), part_bytes, check)
        for part in _tables(table, txn, part_bytes):
            check()
            writer.add_tables(part)
        check()
        decided(turn)
        row: Any = table.get(OWNER_KEY, txn)
        manifest = Manifest(
            *(writer.stem, snapshots.store_id, store.store_id, turn, address, store.generation),
            *(b"" if row is None else row[-1], time.time_ns() // 1_000_000, row is None),
            *((), (), table.digests(txn)),
        )
        return writer.finish(manifest), writer.uploaded


def _kept(
    table: Table, txn: Any, packs: tuple[Pack, ...], address: int, part_bytes: int
) -> list[Pack]:
    """Returns the packs that stay."""
    live = [
        sum(extent.length for extent in table.extents_within(pack.begin, pack.end, txn))
        for pack in packs
    ]
    stays = [2 * bytes_ >= pack.payload for bytes_, pack in zip(live, packs, strict=True)]
    # New payload comes behind the last pack; none comes between others, but for that of packs that do not stay.
    grows = not packs or any(True for _ in table.extents_within(packs[-1].end, address, txn))
    remade = [bytes_ > 0 and not stay for bytes_, stay in zip(live, stays, strict=True)]
    beside = [False, *remade, grows]
    return [
        pack
        for at, pack in enumerate(packs)
        if stays[at]
        and live[at]
        and (2 * pack.payload >= part_bytes or not (beside[at] or beside[at + 2]))
    ]


def _gaps(packs: list[Pack], address: int) -> Iterator[tuple[int, int]]:
    at = 0
    for pack in packs:
        yield at, pack.begin
        at = pack.end
    yield at, address


def _add_packs(
    writer: SnapshotWriter,
    files: Folder,
    extents: Iterator[Extent],
    part_bytes: int,
    check: Callable[[], object],
) -> None:
    """Adds packs of all payload in the extents. None of these is in two packs: a batch is read from one place."""
    runs: list[tuple[int, int]] = []
    chunks: list[bytes] = []
    size = 0
    for extent in extents:
        address, _, _, length = extent
        if runs and size + length > part_bytes:
            check()
            writer.add_pack(runs, chunks)
            runs, chunks, size = [], [], 0
        if runs and sum(runs[-1]) == address:
            runs[-1] = (runs[-1][0], runs[-1][1] + length)
        else:
            runs.append((address, length))
        chunks += read_extent(files, extent)
        size += length
    if runs:
        check()
        writer.add_pack(runs, chunks)


def _tables(table: Table, txn: Any, part_bytes: int) -> Iterator[bytes]:
    """Yields LMDB's file as of the transaction, in parts. IoError.

    A forked child may hold both ends of the socket; a shutdown ends them in all processes.
    """
    source, sink = socket.socketpair()
    failures: list[lmdb.Error] = []

    def copy() -> None:
        try:
            table.environment.copyfd(sink.fileno(), compact=True, txn=txn)
        except lmdb.Error as error:
            failures.append(error)
        finally:
            sink.shutdown(socket.SHUT_RDWR)

    with source, sink:
        copier = threading.Thread(target=copy, name="planstep-tables", daemon=True)
        copier.start()
        try:
            with source.makefile("rb") as reading:
                while part := reading.read(part_bytes):
                    yield part
        finally:
            source.shutdown(socket.SHUT_RDWR)
            copier.join()
    if failures:
        raise IoError(f"the tables could not be copied: {failures[0]}") from failures[0]
