"""Manages the files of one host's store: creates, opens, reserves and removes them.

    log-<generation 8>-<number 8>    segments of the log                 spare     the next one, allocated ahead
    data-<generation 8>-<number 8>   payloads rewritten out of segments  reserve   a small one, to free space
                                                                         cushion   room for LMDB to do so

A segment is as large as those before it together, within bounds. If that is more than half of the disk's free
space, it is as small as the first one. So a small disk holds a store, and a large log has few files.

A file is removed once nothing refers to it and no reader in another process may still want it. A file opened
for reading must be the one that its name says: its first record tells.

Next: ../disk_store.py.
"""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...errors import Corruption, IoError, NoSpace, TooManyOpen
from ..fd_reserve import FdReserve, with_reserve_released
from ..files import Files
from ..readers.reader_lease import oldest_lease
from .records import DATA, HEADER_SIZE, MISPLACED, START, is_misplaced

FIRST_PART = 16
"""The smallest segment is at least this fraction of the largest."""
LEAST_BYTES = 64 << 10
RESERVE_BYTES_MIN, RESERVE_BYTES = 2 << 20, 4 << 20
READING_MAX = 32
_SEGMENT = re.compile(r"log-\d{8}-\d{8}")
_DATA = re.compile(r"data-\d{8}-\d{8}")
_T = TypeVar("_T")


def segment_name(generation: int, number: int) -> str:
    return f"log-{generation:08d}-{number:08d}"


def data_name(generation: int, number: int) -> str:
    return f"data-{generation:08d}-{number:08d}"


def segment_parts(name: str) -> tuple[int, int]:
    """Splits the name of a segment or data file into (generation, number)."""
    _, generation, number = name.split("-")
    return int(generation), int(number)


def is_another_s(name: str, data: bytes, store_id: bytes) -> bool:
    """Returns whether a segment or data file begins with a record that was written for another file."""
    kind = DATA if _DATA.fullmatch(name) else START
    return is_misplaced(data, store_id, kind, *segment_parts(name))


def segment_files(path: Path, files: Files | None = None) -> list[Path]:
    """Lists the segments in the log's order. IoError."""
    return _listed(path, _SEGMENT, files)


def data_files(path: Path, files: Files | None = None) -> list[Path]:
    return _listed(path, _DATA, files)


def _listed(path: Path, name: re.Pattern[str], files: Files | None) -> list[Path]:
    names = (files or Files()).names(path)
    return sorted(path / found for found in names if name.fullmatch(found))


class Folder:
    """The files of one store. Every failure is an IoError.

    Invariants: `_writing` and `_reading` hold open descriptors of existing files only. `_reading` is small and
    ordered by last use. `grown` is the bytes of the log when it was opened, plus its segments since.
    """

    def __init__(
        self, path: Path, store_id: bytes, files: Files, segment_bytes: int, held: int | None = None
    ) -> None:
        """`held`: the folder's descriptor."""
        self.path = path
        self._held = held
        self.store_id = store_id
        self.files = files
        self.grown = 0
        self._most = segment_bytes
        self._least = max(segment_bytes // FIRST_PART, min(segment_bytes, LEAST_BYTES))
        self._writing: dict[str, int] = {}
        self._reading: dict[str, int] = {}
        self._fd_reserve = FdReserve(path, files, self._stop_reading)
        self._lock = threading.RLock()
        self._spare = path / "spare"
        self._reserve = path / "reserve"
        self._cushion = path / "cushion"
        self._lent = False  # is a checkpoint using the cushion's room?
        # Held while the file system looks for room, which takes time, and while the cushion is lent.
        self._room = threading.Lock()  # taken before `_lock`
        self._unneeded_since: dict[str, int] = {}

    # creating ------------------------------------------------------------------------------

    def create(self, name: str, size: int) -> int:
        """Creates a file of `size` zeros and opens it; a failure leaves no file behind."""
        path = self.path / name
        self._allocate(path, size)
        try:
            fd = self.with_descriptors(lambda: self.files.open(path, write=True))
        except IoError:
            self.files.remove(path)
            raise
        with self._lock:
            self._writing[name] = fd
        return fd

    @property
    def segment_bytes(self) -> int:
        """Size of the next segment, if there is room."""
        return min(self._most, max(self._least, self.grown))

    def create_segment(self, name: str, needed: int) -> tuple[int, int]:
        """Creates a segment with room for `needed` bytes, from the spare or a new file; returns (descriptor, size).
        NoSpace, also while a checkpoint needs the cushion's room.
        """
        with self._room:
            size = self.files.size_of(self._spare)
            if size >= needed:
                fd = self._rename(self._spare, name)
            else:
                fd, size = self._create_segment(name, needed)
        self.grown += size
        return fd, size

    def _create_segment(self, name: str, needed: int) -> tuple[int, int]:
        least, wanted = max(needed, self._least), max(needed, self.segment_bytes)
        self._leave_what_is_lent(least + self._reserve_bytes)
        make = partial(self.create, name)
        try:
            return self._as_large(make, least, wanted)
        except NoSpace:
            if not self.give_back_spare():  # too small for this one
                raise
            return self._as_large(make, needed, needed)

    def create_from_reserve(self, name: str, size: int) -> tuple[int, int]:
        """Creates a segment like `create_segment`, from the reserve, or else from the free space left. NoSpace."""
        held = self.files.size_of(self._reserve)
        if held >= size:
            try:
                return self._rename(self._reserve, name), held
            except NoSpace:  # ext4: one more name may take a block of the folder's own
                if not self.give_back_cushion():
                    raise
                return self._rename(self._reserve, name), held
        room = max(size, self._reserve_bytes)
        while True:
            try:
                return self.create(name, room), room
            except NoSpace as error:
                if room == size:
                    raise NoSpace(
                        f"{self.path}: the disk has no room for {size:,} bytes, and the reserve is used "
                        "up: free space elsewhere"
                    ) from error
            room = max(size, room - max(1, room // 8))

    def _rename(self, source: Path, name: str) -> int:
        """Opens the file before renaming it, so that a lack of descriptors does not lose a spare or reserve."""
        fd = self.with_descriptors(lambda: self.files.open(source, write=True))
        try:
            self.files.rename(source, self.path / name)
        except BaseException:
            self.files.close(fd)
            raise
        with self._lock:
            self._writing[name] = fd
        return fd

    def _allocate(self, path: Path, size: int) -> None:
        self.with_descriptors(lambda: self.files.allocate(path, size))

    def sync(self) -> None:
        """Makes the folder's names durable."""
        self.with_descriptors(lambda: self.files.sync_folder(self.path))

    def with_descriptors(self, call: Callable[[], _T]) -> _T:
        """Runs `call`; if no descriptor is left, closes the spares and the files open for reading, and retries."""
        try:
            return call()
        except TooManyOpen:
            # Here it may wait for the lock. `with_reserve_released` asks no store that only reads.
            with self._lock:
                _close_all(self.files, self._reading)
            return with_reserve_released(call)

    def _stop_reading(self) -> None:
        """Closes the files open for reading, unless a thread holds the lock: it may wait for these descriptors."""
        if self._lock.acquire(blocking=False):
            try:
                _close_all(self.files, self._reading)
            finally:
                self._lock.release()

    def lacks_reserve(self) -> bool:
        least = min(self.files.size_of(self._reserve), self.files.size_of(self._cushion))
        return least < self._reserve_bytes

    def lacks_spare(self) -> bool:
        return self.files.size_of(self._spare) < self._least

    def keep_reserve(self) -> None:
        """Allocates the reserve, for a record that frees space, and the cushion, for the checkpoint after it."""
        self._keep(self._reserve, self._reserve_bytes)
        self._keep(self._cushion, self._reserve_bytes)

    def make_reserve(self) -> None:
        """Allocates a missing reserve, before a segment that would take its room. NoSpace, also while a checkpoint
        needs the cushion's room.
        """
        with self._room:
            self._leave_what_is_lent(self._least + 2 * self._reserve_bytes)
            self._keep_first(self._reserve)

    def create_copy(self, name: str, size: int) -> int:
        """Creates a file like `create`, for data that is copied. NoSpace, also if it would take the cushion's room
        while a checkpoint needs that: such a copy goes only with a later checkpoint, which would never have room.
        """
        with self._room:
            self._leave_what_is_lent(size + self._reserve_bytes)
            return self.create(name, size)

    def _leave_what_is_lent(self, needed: int) -> None:
        if self._lent and self.files.free(self.path) < needed:
            raise NoSpace(
                f"{self.path}: the disk is full, and a checkpoint uses the space put aside: free some "
                "space; nothing was written or lost"
            )

    def keep_cushion(self) -> None:
        """Allocates a missing cushion, as soon as a checkpoint has succeeded."""
        self._keep_first(self._cushion)
        self._lent = False

    def _keep_first(self, path: Path) -> None:
        """Allocates the file, giving up the spare's room if needed."""
        while self.files.size_of(path) < 0:
            try:
                self._keep(path, self._reserve_bytes)
            except NoSpace:
                if not self.give_back_spare():
                    raise

    def keep_spare(self) -> None:
        self._as_large(partial(self._keep, self._spare), self._least, self.segment_bytes)

    def _as_large(self, make: Callable[[int], _T], least: int, wanted: int) -> tuple[_T, int]:
        """Calls `make` with the wanted size, or with the least if room is short; returns (result, size). NoSpace.

        A segment that took all the room would keep it even after its data is dropped: the log could not leave it.
        """
        if wanted > least and wanted * 2 <= self.files.free(self.path):
            with suppress(NoSpace):
                return make(wanted), wanted
        return make(least), least

    @property
    def _reserve_bytes(self) -> int:
        """Size of the reserve: larger only next to a large spare; else it would take room freed for the next
        segment.
        """
        part = self.files.size_of(self._spare) // FIRST_PART
        return min(max(part, RESERVE_BYTES_MIN), RESERVE_BYTES, self._most)

    def _keep(self, path: Path, size: int) -> None:
        """Allocates under another name, then renames, so a crash amid the allocation leaves no short file."""
        if self.files.size_of(path) >= size:
            return
        new = path.with_name(path.name + ".new")
        self.files.remove(new)
        self._allocate(new, size)
        self.files.rename(new, path)

    def give_back_spare(self) -> bool:
        """Frees the spare's space for a more urgent use; returns False if there was none."""
        return self._give_back(self._spare)

    def give_back_cushion(self) -> bool:
        """Lends the cushion's space to LMDB; returns False if there was none."""
        with self._room:
            self._lent = True
            return self._give_back(self._cushion)

    def _give_back(self, path: Path) -> bool:
        if self.files.size_of(path) <= 0:
            return False
        self.files.remove(path)
        return True

    def shrink(self, name: str, size: int) -> None:
        """Frees the space allocated behind a segment's last record."""
        fd = self.files.open(self.path / name, write=True)
        try:
            self.files.shrink(fd, size)
        finally:
            self.files.close(fd)

    # reading -------------------------------------------------------------------------------

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Reads up to `length` bytes; IoError if the file is gone, Corruption if another file has its name."""
        with self._lock:  # so that it is not closed during the read
            fd = self._writing.get(name, -1)
            if fd < 0:
                fd = self._reading.pop(name, -1)
                if fd < 0:
                    fd = self._open_to_read(name)
                self._reading[name] = fd
                while len(self._reading) > READING_MAX:
                    oldest = next(iter(self._reading))
                    self.files.close(self._reading.pop(oldest))
            return self.files.read(fd, offset, length)

    def _open_to_read(self, name: str) -> int:
        path = self.path / name
        fd = self.with_descriptors(lambda: self.files.open(path, write=False))
        try:
            if is_another_s(name, self.files.read(fd, 0, HEADER_SIZE), self.store_id):
                raise Corruption(f"{name}: its records are {MISPLACED}")
        except BaseException:
            self.files.close(fd)
            raise
        return fd

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each segment and data file."""
        return {
            path.name: size for path in self._listed() if (size := self.files.size_of(path)) >= 0
        }

    def _listed(self) -> list[Path]:
        return self.with_descriptors(
            lambda: [*segment_files(self.path, self.files), *data_files(self.path, self.files)],
        )

    # removing ------------------------------------------------------------------------------

    def let_go(self, name: str) -> None:
        """Closes a file and leaves its content. Its descriptor becomes a spare if too few are reserved."""
        with self._lock:
            for opened in (self._writing, self._reading):
                fd = opened.pop(name, -1)
                if fd >= 0:
                    self.files.close(fd)
        self._fd_reserve.keep()

    def discard(self, name: str) -> None:
        """Closes and removes a file that holds nothing yet."""
        self.let_go(name)
        self.files.remove(self.path / name)

    def remove_unneeded(self, needed: frozenset[str], first_needed: str, now: int) -> None:
        """Removes segments before `first_needed`, and data files, except those `needed`.

        `now`: the newest LMDB transaction. A file that a lease may want stays until the lease is gone.
        """
        since = self._unneeded_since
        for path in self._listed():
            name = path.name
            if name not in needed and (name < first_needed or name.startswith("data-")):
                since.setdefault(name, now)
            else:
                since.pop(name, None)
        if not since:
            return
        oldest = oldest_lease(self.path, self._held)
        for name, transaction in list(since.items()):
            if oldest is not None and oldest < transaction:
                continue
            self.let_go(name)
            self.files.remove(self.path / name)
            del since[name]

    def close(self) -> None:
        with self._lock:
            _close_all(self.files, self._writing)
            _close_all(self.files, self._reading)
        self._fd_reserve.close()


def _close_all(files: Files, opened: dict[str, int]) -> None:
    while opened:
        files.close(opened.popitem()[1])
