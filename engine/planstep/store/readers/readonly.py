"""Reads a store that another process owns, or that no process has open, as a fixed view.

    open ─▶ a look at the whole store: whole_look.py ─▶ a view of an epoch
    newer ─▶ the mark ─▶ the log's turns since ─▶ a later view of it, or of the next epoch: tail.py
                 └▶ the tail is lost ─▶ a look at the whole store
    resting ─▶ nothing is pinned ─ newer ─▶ a look at the whole store

`newer` costs the turns since the last view, whatever the age of the log. Views share their epoch: LMDB's
environment, one pinned transaction, a lease, and the turns behind it. A view that was closed with a successor
passes reads on to it: a reader without a snapshot wants the newest rows.

With several hosts the views must fit together: runtime/consistent_cut.py reads all marks at one moment and
passes each host's here as `until`. This store then takes the host's remaining work, in memory of its own. It gives
payloads of that work addresses that no other view has, so that a later view is never asked for them.

Next: tail.py.
"""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from ...errors import (
    Corruption,
    EngineClosed,
    FormatError,
    IoError,
    NotSupported,
    PlanstepError,
    SnapshotTooOld,
    StoreClosed,
    TooManyReaders,
)
from ...proto.stored import AnyRow
from ..files import Files, io_error, name_by_now, open_folder, typed_errors
from ..layers import GONE, MISSING, Layer, Rows, merged_scan
from ..log.extents import Extent
from ..log.segments import Folder
from ..meta import Meta, load_meta
from ..tables.table import Table
from ..turn import Show, StoreCounters, Turn
from .reader_lease import Lease
from .released_mark import Mark
from .tail import Epoch, Tail, Taken, read_on, run_of
from .whole_look import Place, StoreChanged, look

__all__ = ["ReadOnlyStore", "Resting", "StoreChanged"]

_settled = count()
_OWN_ADDRESSES, _OWN_BYTES_BITS, _VIEWS = 1 << 63, 40, 1 << 23
"""Addresses of payloads that views have settled: the place of the view among them, and 40 bits."""


class ReadOnlyStore:
    """A store's content as of one turn; `get`, `scan` and `read_payload` as in every store."""

    in_doubt = False
    clean = True  # a read-only store cleans nothing up

    _later: Callable[[], Any] | None = None
    """Returns the successor of a view that gave way."""

    def __init__(
        self,
        meta: Meta,
        epoch: Epoch,
        generation: int,
        tail: Tail | None = None,
    ) -> None:
        """Enters an epoch as of its newest turn. EngineClosed."""
        self.folder = epoch.folder.path
        self.meta = meta
        self.store_id = meta.store_id
        self.generation = generation
        self.last_turn = epoch.turn
        self.counters = StoreCounters()
        self.settling = False
        self._epoch = epoch
        self._folder: Folder = epoch.folder
        self._held = epoch.held
        self._tail = tail
        self._next = epoch.next_address
        self._own: Layer | None = None  # what it has settled
        self._runs: list[Extent] = []  # payloads of its own, in `_added`
        self._added: list[bytes] = []
        self._closing = threading.Lock()
        self._closed = False
        self._why = "the store was closed while it was read"
        self._kind: type[PlanstepError] = EngineClosed
        epoch.enter(self.last_turn)

    @classmethod
    def open(
        cls, folder: Path, until: Mark | None = None, *, ownable: bool = False
    ) -> "ReadOnlyStore":
        """Opens a view of a store. FormatError if there is none, Corruption, IoError.

        `until`: see `StoreChanged`. `ownable`: for `DiskStore.take_over`.
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
        except BaseException:
            os.close(held)
            raise
        return _looked(Place(folder, meta, files, held, ownable=ownable), until)

    @property
    def table(self) -> Table:
        table: Table = self._epoch.table
        return table

    @property
    def lags(self) -> bool:
        return self.meta.replicated

    def hold_folder(self) -> int:
        """Returns a new descriptor of the store's folder, which the caller closes."""
        with self._epoch.reading:
            if self._later is None or not self._closed:
                self._check_open()
                with typed_errors(self.folder):
                    return os.dup(self._held)
        held: int = self._later().hold_folder()
        return held

    def folder_by_now(self) -> Path:
        """Returns the path of the folder that this store has open, which may have been renamed. StoreClosed: it was
        removed, or replaced on a system that does not tell its new name."""
        fd = self.hold_folder()
        try:
            with typed_errors(self.folder):
                path = name_by_now(self.folder, fd)
        finally:
            os.close(fd)
        if path is None:
            raise StoreClosed(
                f"{self.folder} is not the folder any more that this process has open: it was moved, removed or "
                "replaced meanwhile; open the store again where it is by now"
            )
        return path

    def newer(self, until: Mark | None = None) -> "ReadOnlyStore":
        """Opens a later view like `open`; this one stays as it is, and each is closed separately."""
        self._check_open()
        tail = self._tail
        if tail is not None:
            with tail.lock:
                view = self._followed(tail, until)
            if view is not None:
                return view
        held, files = self._hold_again()
        return _looked(Place(self.folder, self.meta, files, held, self._epoch.table), until)

    def _hold_again(self) -> tuple[int, Files]:
        files = Files()
        held = self.hold_folder()
        files.hold(self.folder, held)
        return held, files

    def _followed(self, tail: Tail, until: Mark | None) -> "ReadOnlyStore | None":
        """Opens a later view by reading the log on; None if the tail is lost. The caller holds its lock."""
        mark = self.mark() if until is None else until
        position = tail.position
        if position is None or mark is None or not mark.current:
            return None
        if mark.generation != position.generation or mark.turn < position.turn:
            return None
        epoch = tail.epoch
        try:
            epoch.enter(position.turn)  # so that it stays open
        except EngineClosed:
            return None
        try:
            read = read_on(epoch.folder, position, mark.turn)
            if read is None:
                return None
            turns, behind = read
            begun = self._begun(epoch, behind.turn, turns)
            tail.position = None  # if what follows is interrupted, it is not known what was taken
            if begun is None:
                epoch.take(turns)
            else:
                tail.epoch = begun
            view = _entered(self.meta, tail.epoch, self.generation, tail)
            tail.position = behind
            return view
        except (IoError, Corruption):
            return None  # a look at the whole log says more
        finally:
            epoch.leave(position.turn)

    def _begun(self, epoch: Epoch, turn: int, turns: list[Taken]) -> Epoch | None:
        """Begins another epoch as of `turn`, with the tables as they are now. `turns`: those that `epoch` has not
        taken. None if they have not changed, or are newer than that turn, or cannot be pinned once more now.
        """
        if not epoch.outdated():
            return None
        held, files = self._hold_again()
        with ExitStack() as undo:
            undo.callback(os.close, held)
            lease = Lease(self.folder, held)
            undo.callback(lease.close)
            table = epoch.table.shared()
            undo.callback(table.close)
            try:
                txn = table.pin()
            except TooManyReaders:
                return None  # this epoch has its place
            undo.callback(txn.abort)
            lease.name(table.newest(txn))
            state = table.state(txn)
            if state is None or not epoch.base <= state[0] <= turn:
                return None
            folder = Folder(self.folder, self.store_id, files, 0)
            begun = Epoch(folder, table, txn, lease, held)
            begun.begin(state[0], state[1])
            begun.take(taken for taken in (*epoch.turns, *turns) if taken.turn > begun.base)
            undo.pop_all()
            return begun

    def unchanged(self, tablet: bytes, since: int) -> bool:
        """Returns whether it is known that no key which begins with `tablet` changed behind turn `since`."""
        return not self._own and self._epoch.unchanged(tablet, since, self.last_turn)

    def outdated(self) -> bool:
        """Returns whether the tables were written since: a newer view would keep less of the log. EngineClosed."""
        return self._epoch.outdated()

    def mark(self) -> Mark | None:
        """Reads the owner's mark as it is now, wherever the folder is by now. IoError, StoreClosed."""
        return self._epoch.mark()

    def resting(self) -> "Resting":
        """Returns what opens later views once this one is closed."""
        with ExitStack() as undo:
            held, files = self._hold_again()
            undo.callback(os.close, held)
            lease = Lease(self.folder, held)
            undo.callback(lease.close)
            lease.keep_nothing()
            table = self._epoch.table.shared()
            undo.pop_all()
            return Resting(Place(self.folder, self.meta, files, held, table), lease)

    def get(self, key: bytes) -> AnyRow:
        value = MISSING if self._own is None else self._own.values.get(key, MISSING)
        if value is MISSING:
            value = self._epoch.value(key, self.last_turn)
        if self._closed:  # asked behind the value: that of a closed view may be newer
            value = MISSING
        if value is MISSING:
            with self._epoch.reading:
                if self._later is None:
                    self._check_open()
                    return self._epoch.row(key)
            return self._later().get(key)
        return None if value is GONE else value

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> Rows:
        epoch = self._epoch
        own = None if self._own is None else self._own.between(begin, end, reverse)
        most = limit if own is None else None
        rows = [epoch.between(begin, end, reverse, most, self.last_turn)]
        if own is not None:
            rows.insert(0, own)
        with epoch.reading:
            if self._later is None:
                self._check_open()  # behind the rows: those of a closed view would be newer
                base = epoch.table.scan(begin, end, reverse, epoch.txn)
                return merged_scan(rows, base, reverse, limit)
        found: Rows = self._later().scan(begin, end, reverse=reverse, limit=limit)
        return found

    def read_payload(self, address: int, length: int) -> bytes:
        own = run_of(self._runs, address)
        with self._epoch.reading:
            if self._later is None:
                self._check_open()
            if own is not None:
                return self._added[own.offset][address - own.address :][:length]
            if self._later is None:
                return self._stored_payload(address, length)
        data: bytes = self._later().read_payload(address, length)
        return data

    def _stored_payload(self, address: int, length: int) -> bytes:
        """Reads a payload of the owner's. The caller holds `reading`."""
        epoch = self._epoch
        extent = run_of(epoch.runs, address) or epoch.table.find_payload(address, epoch.txn)
        if extent is None:
            raise Corruption(f"no payload at address {address}")
        at = extent.offset + address - extent.address
        data = epoch.folder.read(extent.file, at, length)
        if len(data) < length:
            raise Corruption(f"{extent.file}: payload at address {address} is cut off")
        return data

    def _check_open(self) -> None:
        if self._closed:
            raise self._kind(self._why)

    # settling: work that the owner has decided and this host has not done yet, in memory ------

    def begin(self) -> Turn:
        if not self.settling:
            raise NotSupported("the store was opened with read_only=True; reopen it to write")
        if self._own is None:
            self._own = Layer()
            self._next = _OWN_ADDRESSES | next(_settled) % _VIEWS << _OWN_BYTES_BITS
        return Turn(self, self._next, self._own.values)

    def abandon(self, turn: Turn) -> None:
        """Does nothing: no change of the turn was taken."""

    def commit(self, turn: Turn, show: Show | None = None) -> None:
        """Applies a turn in memory, while `settling`."""
        net = turn.net()
        for data in turn.payloads:
            self._runs.append(Extent(self._next, "", len(self._added), len(data)))
            self._added.append(bytes(data))
            self._next += len(data)
        assert self._own is not None, "a turn was begun"
        visible = partial(self._own.update, net)
        if show is None:
            visible()
        else:
            show(visible)

    def checkpoint_due(self, now: float) -> bool:
        return False

    def checkpoint(self, rest: Callable[[float], object] | None = None) -> bool:
        return False

    def give_way(self, later: Callable[[], Any]) -> None:
        """Closes the view; later reads are answered by `later()`."""
        self._later = later
        self.close()

    def expire(self, why: str) -> None:
        """Closes the view; later reads raise SnapshotTooOld, which says `why`."""
        self._kind, self._why = SnapshotTooOld, why
        self.close()

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._epoch.leave(self.last_turn)

    crash = close


class Resting:
    """Opens views of a store of which it keeps nothing: no transaction is pinned, and its lease keeps no file."""

    def __init__(self, place: Place, lease: Lease) -> None:
        """It closes the lease, and the descriptor and tables of `place`."""
        assert place.table is not None
        self._place = place
        self._table = place.table
        self._lease = lease

    def mark(self) -> Mark | None:
        """Reads the owner's mark as it is now, wherever the folder is by now. IoError, StoreClosed."""
        return self._place.mark()

    def newer(self, until: Mark | None = None) -> ReadOnlyStore:
        """Opens a view like `ReadOnlyStore.newer`."""
        files, place = Files(), self._place
        with typed_errors(place.folder):
            held = os.dup(place.held)
        files.hold(place.folder, held)
        return _looked(place._replace(files=files, held=held), until)

    def close(self) -> None:
        """Closes what opens views, not the views."""
        try:
            self._table.close()
        finally:
            self._lease.close()
            os.close(self._place.held)


def _looked(place: Place, until: Mark | None) -> ReadOnlyStore:
    """Returns a view of what a look finds; closes the place's descriptor if there is none."""
    try:
        seen = look(place, until)
    except BaseException:
        os.close(place.held)
        raise
    tail = Tail(seen.epoch, seen.position)
    return _entered(place.meta, seen.epoch, seen.generation, tail)


def _entered(meta: Meta, epoch: Epoch, generation: int, tail: Tail) -> ReadOnlyStore:
    """Returns a view of an epoch, which is closed again if there is none."""
    try:
        return ReadOnlyStore(meta, epoch, generation, tail)
    except BaseException:
        epoch.discard()
        raise
