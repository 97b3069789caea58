"""Reads a store that another process owns, or that no process has open, as a fixed view.

    lease ─▶ LMDB as of turn T (one pinned transaction) + the log's turns T+1 … released ─▶ a fixed view

`newer` gives a later view, through the same LMDB environment. A view that was closed with a successor passes
row reads on to it: a reader without a snapshot wants the newest rows. The owner's mark says how far it has
released. If the mark is of another boot of the machine, all valid turns in the log came from the disk and count.
If the log continued in a new generation after the mark was read, the mark is read again.

With several hosts the views must fit together: runtime/consistent_cut.py reads all marks at one moment and
passes each host's here as `until`. This store then takes the host's remaining work, in memory.

Next: ../recovery.py.
"""

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import Corruption, EngineClosed, FormatError, IoError, NotSupported
from ...proto.stored import AnyRow
from ..files import Files, check_there, io_error, open_folder, typed_errors, way_into
from ..layers import GONE, MISSING, Layer, Rows, layered, merged_scan
from ..log.extents import Extent
from ..log.records import Record
from ..log.segments import Folder
from ..meta import Meta, load_meta
from ..recovery import ReadBack, read_back
from ..tables.table import Table
from ..turn import Show, StoreCounters, Turn, decode_changes
from .reader_lease import Lease
from .released_mark import Mark, mark_bytes, read_mark

_TRIES = 20
_TRIES_AT_REST = 3
"""Tries for files that do not change, which stay damaged: each try reads a whole log."""


class StoreChanged(IoError):
    """The owner is beyond the mark that was asked for: take a newer mark."""


class ReadOnlyStore:
    """A store's content as of one turn; `get`, `scan` and `read_payload` as in every store."""

    in_doubt = False

    _later: Callable[[], Any] | None = None
    """Returns the successor of a view that gave way."""

    def __init__(
        self,
        folder: Path,
        meta: Meta,
        files: Files,
        held: int,
        until: Mark | None = None,
        earlier: "ReadOnlyStore | None" = None,
    ) -> None:
        """`held`: the folder's descriptor, which `files` uses; it is closed with this store."""
        self.folder = folder
        self._held = held
        self.meta = meta
        self.store_id = meta.store_id
        self.generation = 0
        self.clean = True  # a read-only store cleans nothing up
        self.counters = StoreCounters()
        self.settling = False
        self._folder = Folder(folder, meta.store_id, files, 0)
        self._lock = threading.Lock()
        self._closed = False
        self._earlier = earlier
        at_rest = 0
        for attempt in range(_TRIES):
            before = _state_of(files, folder)
            lease = Lease(folder, held)
            try:
                self._look(lease, until)
                self._lease, self._earlier = lease, None
                return
            except (IoError, Corruption, FormatError) as error:
                lease.close()
                self._folder.close()
                self._check_not_replaced()
                # The owner may have checkpointed, begun a segment or been created between two reads.
                at_rest = at_rest + 1 if _state_of(files, folder) == before else 0
                last = attempt == _TRIES - 1 or at_rest == _TRIES_AT_REST
                if last or isinstance(error, StoreChanged):
                    raise
                time.sleep(0.005)  # longer than the clock step of file times
            except BaseException:
                lease.close()
                self._folder.close()
                raise

    @classmethod
    def open(cls, folder: Path, until: Mark | None = None) -> "ReadOnlyStore":
        """Opens a view of a store. FormatError if there is none, Corruption, IoError.

        `until`: see `StoreChanged`.
        """
        files = Files()
        try:
            held = open_folder(folder)
        except FileNotFoundError:
            raise FormatError(f"{folder} is not a store") from None
        except OSError as error:
            raise io_error(error, folder) from error
        try:
            files.hold(folder, held)
            meta = load_meta(folder, files)
            if meta is None:
                raise FormatError(f"{folder} is not a store")
            return cls(folder, meta, files, held, until)
        except BaseException:
            os.close(held)
            raise

    def _check_not_replaced(self) -> None:
        """Raises IoError if a backup took this store's name since its id was read."""
        try:
            meta = load_meta(self.folder, self._folder.files)
        except (FormatError, IoError):
            return  # the first error says more
        if meta is not None and meta.store_id != self.store_id:
            raise IoError(f"{self.folder}: the store was replaced just now: open it again")

    @property
    def lags(self) -> bool:
        return self.meta.replicated

    def hold_folder(self) -> int:
        """Returns a new descriptor of the store's folder, which the caller closes."""
        with typed_errors(self.folder):
            return os.dup(self._held)

    def newer(self, until: Mark | None = None) -> "ReadOnlyStore":
        """Opens a later view like `open`; this one stays as it is, and each is closed separately."""
        files = Files()
        held = self.hold_folder()
        files.hold(self.folder, held)
        try:
            return ReadOnlyStore(self.folder, self.meta, files, held, until, self)
        except BaseException:
            os.close(held)
            raise

    def share_table(self) -> Table:
        """Returns the table for one more user, who closes it."""
        return self._table.shared()

    def _look(self, lease: Lease, until: Mark | None) -> None:
        mark = self.mark() if until is None else until
        self._runs: list[Extent] = []
        self._layer = Layer()
        self._added: list[bytes] = []
        self._table: Table = self._opened_table()
        txn = None
        try:
            self._txn = txn = self._table.pin()
            lease.name(self._table.newest(self._txn))
            state = self._table.state(self._txn) or (0, 0, "", False, 0)
            self.last_turn: int = state[0]
            self._next: int = state[1]
            first, closed = state[2:4]
            found = read_back(
                self.folder,
                self._folder.files,
                self.store_id,
                self.last_turn,
                first_segment=first,
                closed=closed,
                proven=0 if mark is None else mark.synced,
            )
            if until is None and mark is not None and mark.generation < found.generation:
                mark = self._mark_of(found.generation) or mark
            shown = self._shown(found, mark, until)
            for segment, record, _ in found.turns:
                if record.turn <= shown:
                    self._take(segment, record)
            self.generation = found.generation
        except BaseException:
            if txn is not None:
                txn.abort()
            self._table.close()
            raise

    def _opened_table(self) -> Table:
        if self._earlier is not None:
            return self._earlier.share_table()
        way = way_into(self.folder, self._held)
        check_there(way, self._held)
        table = Table(way / "table", self.store_id, read_only=True)
        try:
            check_there(way, self._held)
        except BaseException:
            table.close()
            raise
        return table

    def _shown(self, found: ReadBack, mark: Mark | None, until: Mark | None) -> int:
        """Returns the last turn that counts, of those that were read back. Passed."""
        if mark is None or not mark.current:
            return found.last_turn(found.synced)
        if mark.generation < found.generation:
            if until is not None:
                raise StoreChanged(
                    f"{self.folder}: its owner has switched to another log segment since turn {mark.turn}"
                )
            return found.synced
        if until is None:
            return max(found.synced, mark.turn)
        if self.last_turn > mark.turn:
            raise StoreChanged(f"{self.folder}: turn {mark.turn} is behind the checkpoint")
        # Turns that the log proves beyond the mark were released after the mark was read.
        return mark.turn

    def _take(self, segment: str, record: Record) -> None:
        self._layer.update(decode_changes(record.changes))
        self.last_turn = record.turn
        if record.payload_length:
            run = (record.address, segment, record.payload_offset)
            self._runs.append(Extent(*run, record.payload_length))
            self._next = record.address + record.payload_length

    def mark(self) -> Mark | None:
        """Reads the owner's mark as it is now, wherever the folder is by now. IoError."""
        return read_mark(self.folder / "released", self.store_id, self._held)

    def mark_bytes(self) -> bytes:
        """Returns the mark's bytes, for callers that only check for a change."""
        return mark_bytes(Path("released"), self._held)

    def _mark_of(self, generation: int) -> Mark | None:
        """Reads the mark again when the log continued in a new generation; the owner wrote a new mark before that.

        Only the mark of that same generation will do: a turn may have been written twice, and a later generation's
        mark does not say which copy was read. None: no mark was written, and the turns proven by the log count.
        """
        mark = self.mark()
        if mark is None or mark.generation > generation:
            raise IoError(f"{self.folder}: its owner keeps switching log segments; try again")
        return mark if mark.generation == generation else None

    def get(self, key: bytes) -> AnyRow:
        value = self._layer.values.get(key, MISSING)
        if value is MISSING:
            with self._lock:
                if self._later is None:
                    self._check_open()
                    return self._table.get(key, self._txn)
            return self._later().get(key)
        return None if value is GONE else value

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> Rows:
        with self._lock:
            if self._later is None:
                self._check_open()
                base = self._table.scan(begin, end, reverse, self._txn)
                rows = layered([self._layer], begin, end, reverse, limit)
                return merged_scan(rows, base, reverse, limit)
        found: Rows = self._later().scan(begin, end, reverse=reverse, limit=limit)
        return found

    def read_payload(self, address: int, length: int) -> bytes:
        with self._lock:
            self._check_open()  # also for one that gave way: its addresses may be others' in a settled view
            at = bisect_right(self._runs, address, key=lambda run: run.address) - 1
            extent: Extent | None = self._runs[at] if at >= 0 else None
            if extent is None or address >= extent.address + extent.length:
                extent = self._table.find_payload(address, self._txn)
            if extent is None:
                raise Corruption(f"no payload at address {address}")
            if not extent.file:  # added while settling
                return self._added[extent.offset][address - extent.address :][:length]
            at = extent.offset + address - extent.address
            data = self._folder.read(extent.file, at, length)
        if len(data) < length:
            raise Corruption(f"{extent.file}: payload at address {address} is cut off")
        return data

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("the store was closed while it was read")

    # settling: work that the owner has decided and this host has not done yet, in memory ------

    def begin(self) -> Turn:
        if not self.settling:
            raise NotSupported("the store was opened with read_only=True; reopen it to write")
        return Turn(self, self._next, self._layer.values)

    def abandon(self, turn: Turn) -> None:
        """Does nothing: no change of the turn was taken."""

    def commit(self, turn: Turn, show: Show | None = None) -> None:
        """Applies a turn in memory, while `settling`."""
        net = turn.net()
        for data in turn.payloads:
            self._runs.append(Extent(self._next, "", len(self._added), len(data)))
            self._added.append(bytes(data))
            self._next += len(data)
        visible = partial(self._layer.update, net)
        if show is None:
            visible()
        else:
            show(visible)

    def checkpoint_due(self, now: float) -> bool:
        return False

    def checkpoint(self, rest: Callable[[float], object] | None = None) -> bool:
        return False

    def give_way(self, later: Callable[[], Any]) -> None:
        """Closes the view; later row reads are answered by `later()`."""
        self._later = later
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._folder.close()
                self._txn.abort()
                self._txn = None  # its reader slot is free once no reference is left
            finally:
                try:
                    self._table.close()
                finally:
                    self._lease.close()
                    os.close(self._held)

    crash = close


def _state_of(files: Files, folder: Path) -> list[tuple[str, int, int]]:
    """Returns what changes when an owner writes: names, sizes and times of its files. IoError."""
    found = []
    for path in (folder, folder / "table"):
        for name, status in files.states(path):
            if name != "leases" and not name.startswith("lock"):
                found.append((name, status.st_size, status.st_mtime_ns))
    return sorted(found)
