"""Looking at a store that another process owns, or that nobody does.

    owner ── after each sync ──▶ released: (generation, turn)   16 bytes, mapped
    reader ── LMDB as of turn T (one pinned transaction) + the log's turns T+1 … released ──▶ a fixed view

The view stands still; open again for a newer one. The mark says how far the owner has released; where
it does not speak (after a power loss), turns that the log proves acknowledged are shown.

What it leaves out: leases. A segment is removed only when no published record lies in it, so none
that a reader may want goes away.

Next: recovery.py.
"""

import mmap
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

from ..errors import Corruption, FormatError, IoError, NotSupported
from ..proto.records_pb2 import StoreMeta
from .files import Files
from .layers import GONE, MISSING, Layer, merged_scan
from .log import TURN
from .recovery import read_back
from .table import Table
from .turn import StoreCounters, Turn, decode_changes

_MARK = Struct("<IQ")
_CRC = Struct("<I")


class ReleasedMark:
    """The mapped file in which the owner says what it has released."""

    def __init__(self, path: Path, write: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            if write:
                os.ftruncate(fd, mmap.PAGESIZE)
            access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
            self._map = mmap.mmap(fd, mmap.PAGESIZE, access=access)
        finally:
            os.close(fd)

    def show(self, generation: int, turn: int) -> None:
        data = _MARK.pack(generation, turn)
        self._map[:16] = data + _CRC.pack(zlib.crc32(data))

    def read(self) -> tuple[int, int] | None:
        """(generation, turn), None while it says nothing whole."""
        for _ in range(100):  # a torn look is looked at again
            data = self._map[:16]
            if zlib.crc32(data[:12]) == _CRC.unpack_from(data, 12)[0]:
                return _MARK.unpack_from(data)
        return None

    def close(self) -> None:
        self._map.close()


class ReadOnlyStore:
    """A store's content as of one turn; `get`, `scan` and `read_payload` as everywhere."""

    def __init__(self, folder: Path, meta: StoreMeta, files: Files | None = None) -> None:
        self.folder = folder
        self.meta = meta
        self.store_id = meta.store_id
        self.generation = 0
        self.counters = StoreCounters()
        self._files = files or Files()
        self._lock = threading.Lock()
        self._fds: dict[str, int] = {}
        self._runs: list[tuple[int, str, int, int]] = []
        self._layer = Layer()
        for attempt in range(20):
            try:
                self._look()
                return
            except (IoError, Corruption):
                # The owner checkpointed and removed segments, or began one, between two looks.
                if attempt == 19:
                    raise

    @classmethod
    def open(cls, folder: Path) -> "ReadOnlyStore":
        from .disk import load_meta  # the owner's side knows this module, not the reverse

        meta = load_meta(folder, Files())
        if meta is None:
            raise FormatError(f"{folder} is not a store")
        return cls(folder, meta)

    def _look(self) -> None:
        try:
            mark_file = ReleasedMark(self.folder / "released", write=False)
        except OSError:
            mark = None
        else:
            mark = mark_file.read()
            mark_file.close()
        self._table = Table(self.folder / "table", read_only=True)
        try:
            self._txn = self._table.pin()
            state = self._table.state(self._txn) or (0, 0, "", False, 0)
            found = read_back(self.folder, self._files, self.store_id, state[0], state[2])
            shown = found.synced
            if mark is not None and mark[0] >= found.generation:
                shown = max(shown, mark[1])
            self.last_turn = state[0]
            for segment, record, _ in found.turns:
                if record.turn <= shown and record.kind == TURN:
                    self._layer.update(decode_changes(record.changes))
                    self.last_turn = record.turn
                    if record.payload_length:
                        self._runs.append(
                            (record.address, segment, record.payload_offset, record.payload_length)
                        )
            self.generation = found.generation
        except BaseException:
            self._table.close()
            self._layer, self._runs = Layer(), []
            raise

    def get(self, key: bytes) -> Any:
        value = self._layer.values.get(key, MISSING)
        if value is MISSING:
            with self._lock:
                return self._table.get(key, self._txn)
        return None if value is GONE else value

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, Any]]:
        with self._lock:
            base = self._table.scan(begin, end, reverse, self._txn)
            return merged_scan([self._layer.between(begin, end)], base, reverse, limit)

    def read_payload(self, address: int, length: int) -> bytes:
        with self._lock:
            held = (run for run in self._runs if run[0] <= address < run[0] + run[3])
            run = next(held, None) or self._table.find_payload(address, self._txn)
            if run is None or not run[0] <= address < run[0] + run[3]:
                raise Corruption(f"no payload at address {address}")
            first, segment, offset, _ = run
            fd = self._fds.get(segment, -1)
            if fd < 0:
                fd = self._fds[segment] = self._files.open(self.folder / segment, write=False)
            return self._files.read(fd, offset + address - first, length)

    def begin(self) -> Turn:
        raise NotSupported("the store was opened with read_only=True; reopen it to write")

    def abandon(self, turn: Turn) -> None:
        """There are no turns here."""

    def commit(self, turn: Turn, before_visible: Callable[[Any], None] | None = None) -> None:
        self.begin()

    def checkpoint_due(self, now: float) -> bool:
        return False

    def checkpoint(self) -> bool:
        return False

    def close(self) -> None:
        with self._lock:
            for fd in self._fds.values():
                self._files.close(fd)
            self._fds.clear()
            self._txn.abort()
            self._table.close()
