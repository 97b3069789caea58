"""Pins an owner's store as of one turn, for a thread of the same process that reads for long.

    layers, copied + LMDB, one pinned transaction + a lease ─▶ a view that stands still while turns go on

readonly.py reads the disk; this takes the same from memory, because one process opens LMDB's file only once.

Next: readonly.py.
"""

import os
import threading
from typing import Any

from ..disk_store import DiskStore
from ..files import Files
from ..layers import Layer
from ..log.extents import Extent
from ..log.segments import Folder
from ..memory_store import MemoryStore
from ..meta import FORMAT, Meta
from ..tables.table import Table
from ..turn import StoreCounters
from .reader_lease import Lease
from .readonly import ReadOnlyStore


class PinnedStore(ReadOnlyStore):
    """A fixed view of an open store. No turn may run while it is made. Close it before its store."""

    def __init__(self, store: DiskStore | MemoryStore, mode: str = "deterministic") -> None:
        """Pins the store; `mode` is that of a store in memory, which does not record it."""
        self.store_id = store.store_id
        self.generation = store.generation
        self.last_turn = store.last_turn
        self.clean = True
        self.counters = StoreCounters()
        self.settling = False
        self._lock = threading.Lock()
        self._closed = False
        self._held = -1
        self._layer = Layer()
        self._added: list[bytes] = []
        if isinstance(store, MemoryStore):
            self._pin_memory(store, mode)
        else:
            self._pin_disk(store)

    def _pin_disk(self, store: DiskStore) -> None:
        self.folder, self.meta = store.folder, store.meta
        files = Files()
        held = self._held = store.hold_folder()
        files.hold(store.folder, held)
        self._folder: Any = Folder(store.folder, store.store_id, files, 0)
        self._table: Any = store.table
        self._lease: Any = Lease(store.folder, held)  # before the pin: see reader_lease.py
        try:
            self._layer, self._runs, self._next, self._txn = store.picture()
            self._lease.name(self._table.newest(self._txn))
        except BaseException:
            self._lease.close()
            self._let_go()
            raise

    @property
    def tables(self) -> tuple[Table, Any]:
        """The tables of a store on disk, and their pinned transaction."""
        return self._table, self._txn

    @property
    def files(self) -> Folder:
        """The files that the tables name; all of them stay until this is closed."""
        folder: Folder = self._folder
        return folder

    def _pin_memory(self, store: MemoryStore, mode: str) -> None:
        self.meta = Meta(FORMAT, b"", mode, 1)
        self._folder = self._lease = self._txn = _Nothing()
        self._table = _Nothing()
        values, payloads, self._next = store.picture()
        self._layer.update(values)
        self._runs = [Extent(at, "", i, len(data)) for i, (at, data) in enumerate(payloads)]
        self._added += [data for _, data in payloads]

    def _let_go(self) -> None:
        if self._held >= 0:
            held, self._held = self._held, -1
            os.close(held)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._folder.close()
            self._txn.abort()
            self._lease.close()
            self._let_go()


class _Nothing:
    """Stands in for the files and tables of a store in memory."""

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
