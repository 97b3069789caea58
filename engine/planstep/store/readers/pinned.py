"""Pins an owner's store as of one turn, for a thread of the same process that reads for long.

    layers, copied + LMDB, one pinned transaction + a lease ─▶ a view that stands still while turns go on

readonly.py reads the disk; this takes the same from memory, because one process opens LMDB's file only once.

Next: readonly.py.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..disk_store import DiskStore
from ..files import Files
from ..log.extents import Extent
from ..log.segments import Folder
from ..memory_store import MemoryStore
from ..meta import FORMAT, Meta
from ..tables.table import Table
from .reader_lease import Lease
from .readonly import ReadOnlyStore
from .tail import Epoch


class PinnedStore(ReadOnlyStore):
    """A fixed view of an open store. No turn may run while it is made. Close it before its store."""

    def __init__(self, store: DiskStore | MemoryStore, mode: str = "deterministic") -> None:
        """Pins the store; `mode` is that of a store in memory, which does not record it."""
        if isinstance(store, DiskStore):
            super().__init__(store.meta, _pinned(store), store.generation)
            return
        values, payloads, next_address = store.picture()
        nothing: Any = _Nothing()
        epoch = Epoch(nothing, nothing, nothing, nothing, -1)
        epoch.begin(store.last_turn, next_address)
        epoch.layer.update(values)
        super().__init__(Meta(FORMAT, store.store_id, mode, 1), epoch, store.generation)
        self._runs = [Extent(at, "", i, len(data)) for i, (at, data) in enumerate(payloads)]
        self._added = [data for _, data in payloads]

    @property
    def tables(self) -> tuple[Table, Any]:
        """The tables of a store on disk, and their pinned transaction."""
        return self._epoch.table, self._epoch.txn

    @property
    def files(self) -> Folder:
        """The files that the tables name; all of them stay until this is closed."""
        return self._folder


def _pinned(store: DiskStore) -> Epoch:
    held = store.hold_folder()
    with ExitStack() as undo:
        undo.callback(os.close, held)
        files = Files()
        files.hold(store.folder, held)
        lease = Lease(store.folder, held)  # before the pin: see reader_lease.py
        undo.callback(lease.close)
        layer, runs, next_address, txn = store.picture()
        undo.callback(txn.abort)
        lease.name(store.table.newest(txn))
        table = store.table.shared()
        undo.callback(table.close)
        epoch = Epoch(Folder(store.folder, store.store_id, files, 0), table, txn, lease, held)
        epoch.begin(store.last_turn, next_address)
        epoch.layer, epoch.runs = layer, runs
        undo.pop_all()
    return epoch


class _Nothing:
    """Stands in for the files and tables of a store in memory."""

    path = Path()
    store_id = b""

    def newest(self, txn: Any) -> int:
        return 0

    def get(self, key: bytes, txn: Any) -> None:
        return None

    def scan(self, begin: bytes, end: bytes, reverse: bool, txn: Any) -> Any:
        return iter(())

    def find_payload(self, address: int, txn: Any) -> None:
        return None

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass
