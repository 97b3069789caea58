"""Stores the checkpoint in LMDB: the tablets' tables as of turn T, T itself, and where payloads are.

    k<key>         value                      p<part of a key>   a page of values: pages.py
    d<tablet 4>    (digest, entries, 1)       a, s               where payloads are: ../log/extents.py
    m              (T, next address, segment, closed, crc)
    i              the store's id: missing in tables that an older version wrote

Each value is sealed (checksums.py). Each checkpoint is one fully synced LMDB transaction, and writes its keys
in order: a key costs the same in a large table. A tablet's digest is over all its entries (digested_rows.py).
DiskStore and the readers use it.

Next: ../disk_store.py.
"""

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any

import lmdb

from ...errors import Corruption, IoError, PlanstepError, StoreClosed
from ...proto.stored import AnyRow
from ..files import shown, typed_errors
from ..layers import Changes
from ..log.extents import (
    Extent,
    address_key,
    decode_extent,
    delete_within,
    drop,
    extent_at,
    live_bytes,
    put_extents,
)
from .checksums import (
    FOREIGN,
    NeighbourCheck,
    backwards,
    between,
    look_up,
    seal,
    unseal,
)
from .create import READERS_MAX, allocate_lock, make_file
from .digested_rows import put_rows
from .fork_safe_open import close_environment, file_key, open_environment
from .header_check import DATA_FILE, check_size
from .lmdb_errors import given_up, not_opened, not_written, unreadable
from .page_check import check_tree
from .page_reader import TablesFile
from .pages import PAGED, PAGED_END, Pages
from .reader_slots import SPARED, Slots, admit, all_taken

_MAP_BYTES = 1 << 40
_STATE = [int, int, str, bool, int]


def _environment(folder: Path, owned: bool, writable: bool) -> tuple[Any, tuple[int, int]]:
    """Opens LMDB with as large a map as the process may have; returns (environment, its file)."""
    if owned:  # a reader checks what it reads: page_reader.py
        check_size(folder)
        check_tree(folder)
    allocate_lock(folder)
    size = _MAP_BYTES
    try:
        if owned:
            make_file(folder)
        while True:
            try:
                return open_environment(
                    folder,
                    map_size=size,
                    mode=0o700,
                    max_readers=READERS_MAX,
                    readonly=not writable,
                    create=owned,
                    writemap=False,
                    max_spare_txns=SPARED if writable else 0,
                )
            except lmdb.MemoryError:
                size //= 2
                if size < 1 << 24:
                    raise IoError("the memory map for the tables could not be reserved") from None
    except lmdb.Error as error:
        raise not_opened(folder, error) from error


class Table:
    """The LMDB environment of one host. Corruption if it belongs to another store than `store_id`.

    Invariant: only the owner of the store writes them. A process that reads another's may become the owner: `own`.
    It goes on with the environment that it has open, since LMDB opens a file once in a process.
    """

    def __init__(
        self, folder: Path, store_id: bytes, *, read_only: bool = False, ownable: bool = False
    ) -> None:
        """`read_only`: another process owns the tables, or none; with `ownable` this one may come to own them."""
        self._owned = self._trusted = not read_only
        self._checked = TablesFile(folder) if read_only else None
        try:
            self._env, self._file = _environment(folder, self._owned, self._owned or ownable)
        except BaseException:
            self._close_checked()
            raise
        self._folder = folder
        self._users = 1
        self._sharing = threading.Lock()
        self._writing = threading.Lock()
        self._beside = NeighbourCheck()
        self._pages = Pages(self._beside)
        self.gave_up: StoreClosed | None = None  # LMDB is unusable until it is opened anew
        self.damaged: Corruption | None = None  # damage met earlier: nothing is written any more
        self.lost = ""  # why the next opening will not find the open file
        try:
            if self._checked is not None:
                self._checked.check_same(self._file)
            else:
                self._note_newest(folder)
                self._env.reader_check()
            self._slots = None if read_only else Slots(self._env)
            self._start = self._begin if read_only else self._env.begin
            self._store_id = store_id
            with self._reading(None) as reading:
                # Does not check its neighbours, which are rows: their damage is reported to those who read them.
                owner = reading.get(b"i")
                if read_only:
                    admit(self._env)
            if owner is not None and unseal(b"i", owner) != store_id:
                raise Corruption(f"{shown(folder)}: the tables are those of another store")
        except lmdb.ReadersFullError:
            self.close()
            raise all_taken(folder) from None
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> Any:
        """LMDB's own handle, for its figures and the size of its map."""
        return self._env

    def _note_newest(self, folder: Path) -> None:
        """Makes LMDB note the newest commit. A process killed within a commit may have made it valid without noting
        its number, which read transactions use while the environment is open. The next holder of the writers'
        lock notes it. An owner that read before would recover from an older checkpoint than it writes on.
        """
        try:
            self._begin_write().abort()
        except lmdb.Error as error:
            raise not_opened(folder, error) from error

    def own(self, folder: Path) -> None:
        """Makes this process the tables' owner, on the open environment; open reads go on. The caller holds the
        lock of the store in whose `folder` the tables are. Corruption, IoError, TooManyReaders: it owns nothing.

        It takes as long for large tables as for small ones: all pages are checked before the first write (`trust`).
        Until then those that are read are checked, as before.
        """
        assert not self._owned and self._checked is not None, "a reader's tables"
        self._folder = folder
        with typed_errors(folder / DATA_FILE):
            found = file_key(folder)
        if found != self._file:
            raise IoError(
                f"{shown(folder)}: the tables were replaced just now; open the store again"
            )
        check_size(folder)
        self._owned, self.damaged = True, None  # what follows tells, as at any opening
        try:
            self._note_newest(folder)
            self._env.reader_check()
            self._slots = Slots(self._env)
        except lmdb.ReadersFullError:
            self.disown()
            raise all_taken(folder) from None
        except BaseException:
            self.disown()
            raise

    def disown(self) -> None:
        """Ends `own`, once no write is under way: another process may write the tables now. Reads go on."""
        if self._checked is not None:
            with self._writing:
                self._owned, self._trusted, self._slots = False, False, None
                self._start = self._begin

    def trust(self) -> None:
        """Checks all pages of an owner's tables, once. From now on LMDB itself reads and writes them, and would end
        the process if it met a damaged one. Corruption.
        """
        with self._writing:
            self._trust()

    def _trust(self) -> None:
        if not self._trusted:
            check_tree(self._folder)
            self._trusted, self._start = True, self._env.begin

    def _begin_write(self) -> Any:
        """Begins a write transaction: the only way to one. StoreClosed: another process may own the tables."""
        if not self._owned:
            raise StoreClosed(f"{shown(self._folder)}: this process does not own the tables")
        return self._env.begin(write=True)

    @contextmanager
    def _write(self) -> Iterator[Any]:
        with self._writing:
            if self._owned:
                self._trust()
            with self._begin_write() as txn:
                yield txn

    def pin(self) -> Any:
        """Begins a read transaction for the other methods' `txn`, so that all see one moment. TooManyReaders."""
        try:
            txn = self._begin()
        except lmdb.Error as error:
            raise unreadable(error, self._folder) from error
        if self._slots is None:  # another process's, which leaves some slots to the owner
            try:
                admit(self._env)
            except BaseException:
                txn.abort()
                raise
        return txn

    def _begin(self, buffers: bool = False) -> Any:
        """Begins a read transaction, in one of the owner's reserved slots if no other is free."""
        if not self._trusted and self._checked is not None:
            try:
                return self._checked.begin(self._env)
            except lmdb.ReadersFullError:
                if self._slots is None:
                    raise
            self.trust()
        try:
            return self._env.begin(buffers=buffers)
        except lmdb.ReadersFullError:
            if self._slots is None:
                raise
            return self._slots.lend(buffers=buffers)

    @contextmanager
    def _reading(self, txn: Any) -> Iterator[Any]:
        try:
            if txn is not None:
                yield txn
            else:
                with self._begin() as own:
                    yield own
        except (lmdb.Error, *FOREIGN) as error:
            raise unreadable(error, self._folder) from error
        except Corruption as error:
            self.damaged = error
            raise

    def get(self, key: bytes, txn: Any = None) -> AnyRow:
        if key[: len(PAGED)] == PAGED:
            return self._get_paged(key, txn)
        try:
            if txn is not None:
                return look_up(txn, b"k" + key, self._beside)
            # Uses views of the pages if neighbours are large, to save copying them.
            buffers = bool(self._beside.large)
            try:
                begun = self._start(buffers=buffers)
            except lmdb.ReadersFullError:
                begun = self._begin(buffers)
            with begun as reading:
                return look_up(reading, b"k" + key, self._beside)
        except (lmdb.Error, *FOREIGN) as error:
            raise unreadable(error, self._folder) from error
        except Corruption as error:
            self.damaged = error
            raise

    def _get_paged(self, key: bytes, txn: Any) -> AnyRow:
        with self._reading(txn) as reading:
            row = self._pages.get(reading, key)
            if row is None:  # in tables of format 1 it may be an entry of its own
                row = look_up(reading, b"k" + key, self._beside)
            return row

    def last(self, kind: bytes) -> bytes:
        """Returns the last key that begins with `kind`, b"" if there is none."""
        behind = (int.from_bytes(kind, "big") + 1).to_bytes(len(kind), "big")
        with (
            self._reading(None) as reading,
            closing(self._rows(reading, kind, behind, True)) as rows,
        ):
            return next(rows, (b"", None))[0]

    def scan(
        self, begin: bytes, end: bytes, reverse: bool, txn: Any = None
    ) -> Generator[tuple[bytes, AnyRow], None, None]:
        """Scans lazily, in one read transaction that ends with the iterator."""
        with self._reading(txn) as reading:
            yield from self._rows(reading, begin, end, reverse)

    def _rows(
        self, reading: Any, begin: bytes, end: bytes, reverse: bool
    ) -> Generator[tuple[bytes, AnyRow], None, None]:
        first, last = b"k" + begin, b"k" + end
        with reading.cursor() as cursor:
            entries = (backwards if reverse else between)(cursor, first, last, self._beside)
            rows = ((key[1:], unseal(key, value)) for key, value in entries)
            if begin < PAGED_END and end > PAGED:
                paged = self._pages.scan(reading, begin, end, reverse)
                yield from merge(rows, paged, key=itemgetter(0), reverse=reverse)
            else:
                yield from rows

    def state(self, txn: Any = None) -> Any:
        """Returns (T, next address, first segment needed, closed, crc), or None in a new store."""
        with self._reading(txn) as reading:
            state = look_up(reading, b"m")
        if state is None:
            return None
        if not isinstance(state, tuple) or list(map(type, state)) != _STATE:
            raise Corruption(f"the tables' own state is not readable: {state!r:.80}")
        return state

    def newest(self, txn: Any = None) -> int:
        """Returns the id of the newest transaction, or of `txn`."""
        with self._reading(txn) as reading:
            number: int = reading.id()
        return number

    def committed(self) -> int:
        """Returns the id of the newest transaction that was committed, by whichever process."""
        try:
            number: int = self._env.info()["last_txnid"]
        except lmdb.Error as error:
            raise unreadable(error, self._folder) from error
        return number

    def digests(self, txn: Any = None) -> tuple[tuple[bytes, int, int], ...]:
        """Returns (the tablet's prefix, digest, entries) of each tablet."""
        with self._reading(txn) as reading, reading.cursor() as cursor:
            found = between(cursor, b"d", b"e")
            return tuple((key[1:], *unseal(key, value)[:2]) for key, value in found)

    def find_payload(self, address: int, txn: Any = None) -> Extent | None:
        """Returns the extent that holds `address`; None if nothing live is there."""
        with self._reading(txn) as reading, reading.cursor() as cursor:
            return extent_at(cursor, address)

    def live(self) -> dict[str, int]:
        """Returns live payload bytes by file, as of the last checkpoint; files without any are not listed."""
        with self._reading(None) as reading:
            return live_bytes(reading)

    def extents(self, files: frozenset[str]) -> Iterator[Extent]:
        """Yields all extents in the given files, by address, in one read transaction."""
        with self._reading(None) as reading, reading.cursor() as cursor:
            bounds = [
                held[1:]
                for name in sorted(files)
                if (held := look_up(reading, b"s" + name.encode())) is not None
            ]
            if not bounds:
                return
            end = max(stop for _, stop in bounds)
            begin = min(start for start, _ in bounds)
            for key, value in between(cursor, address_key(begin), address_key(end)):
                extent = decode_extent(key, value)
                if extent.file in files:
                    yield extent

    def extents_within(self, begin: int, end: int, txn: Any) -> Iterator[Extent]:
        """Yields what extents have of the addresses from `begin` to below `end`, in order."""
        with self._reading(txn) as reading, reading.cursor() as cursor:
            first = extent_at(cursor, begin)
            low = address_key(begin if first is None else first.address)
            for key, value in between(cursor, low, address_key(end)):
                address, file, offset, length = decode_extent(key, value)
                start, stop = max(address, begin), min(address + length, end)
                if start < stop:
                    yield Extent(start, file, offset + start - address, stop - start)

    def move(self, extents: list[Extent], old: frozenset[str]) -> dict[str, int]:
        """Records the extents' new places and that `old` files hold none; returns live bytes by file.

        An extent takes the place of all that begin within it.
        """
        try:
            with self._write() as txn:
                for name in sorted(old):
                    txn.delete(b"s" + name.encode())
                for extent in extents:
                    delete_within(txn, extent)
                put_extents(txn, extents)
                return live_bytes(txn)
        except lmdb.Error as error:
            raise self._failure("moving payloads", error) from error

    def mark_closed(self, segment: str) -> None:
        """Records that the closing record in `segment` is durable: from here on its absence is corruption."""
        try:
            with self._write() as txn:
                turn, address, _, _, crc = unseal(b"m", txn.get(b"m"))
                txn.put(b"m", seal(b"m", (turn, address, segment, True, crc)))
        except lmdb.Error as error:
            raise self._failure("the closing mark", error) from error

    def checkpoint(
        self,
        changes: Changes,
        payloads: list[Extent],
        dropped: list[tuple[int, int]],
        state: tuple[Any, ...],
        rest: Callable[[], None] = lambda: None,
    ) -> tuple[int, dict[str, int]]:
        """Writes one synced transaction; returns (bytes written, live payload bytes by file). Calls `rest` every
        few changes.

        Corruption, with nothing written, if damage was met: an entry written next to a flipped key would hide the
        damage from later lookups. So the neighbours of new entries are checked first.
        """
        if self.damaged is not None:
            raise Corruption(f"nothing is written to tables that are damaged: {self.damaged}")
        try:
            self._env.reader_check()  # a killed reader would hold back every freed page
            self._keep_slots()
            with self._write() as txn, self._begin(buffers=True) as before:
                # First, so that the lookup of a new tablet's digest passes no row.
                if txn.get(b"i") is None:
                    txn.put(b"i", seal(b"i", self._store_id))
                entries = self._pages.entries(before, changes)
                written = put_rows(txn, before, entries, self._beside, rest)
                put_extents(txn, payloads)
                for address, length in dropped:
                    drop(txn, address, length)
                txn.put(b"m", seal(b"m", state))
                live = live_bytes(txn)
        except lmdb.Error as error:
            raise self._failure("the checkpoint", error) from error
        except Corruption as error:
            self.damaged = error
            raise
        return written, live

    def check_file(self, path: Path, there: os.stat_result | None) -> None:
        """Raises Corruption if the file at `path`, with status `there`, is not the open one. From here on nothing
        is written, because the next opening would not find it.
        """
        if there is not None and (there.st_dev, there.st_ino) == self._file:
            return
        self.lost = (
            f"{path} was moved or removed while the store is open: what was committed is in the log, and a "
            "backup copies all of it now"
        )
        self.damaged = Corruption(self.lost)
        raise self.damaged

    def _keep_slots(self) -> None:
        if self._slots is not None:
            with suppress(lmdb.ReadersFullError):  # the remaining ones will do
                self._slots.keep()

    def _failure(self, what: str, error: lmdb.Error) -> PlanstepError:
        try:
            self._env.begin().abort()
        except lmdb.PanicError as fatal:
            self.gave_up = given_up(fatal)
            return self.gave_up
        except lmdb.Error:
            pass  # the first error says more
        return not_written(what, error, self._folder)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields every (LMDB key, raw value), for verification."""
        with self._reading(None) as txn, txn.cursor() as cursor:
            yield from cursor

    def shared(self) -> "Table":
        """Adds a user, who closes it too: LMDB opens a file once in a process."""
        with self._sharing:
            self._users += 1
        return self

    def close(self) -> None:
        self._sharing.acquire()  # `with` needs memory, and there may be none
        try:
            self._users -= 1
            last = self._users <= 0
        finally:
            self._sharing.release()
        if last:
            close_environment(self._env, self._file)
            self._close_checked()

    def _close_checked(self) -> None:
        if self._checked is not None:
            self._checked.close()
