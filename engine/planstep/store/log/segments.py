"""The files of one host's store, by name: which there are, which are open, which may go.

    log-<generation 8>-<number 8>    segments of the log                 spare     the next one, allocated ahead
    data-<generation 8>-<number 8>   payloads rewritten out of segments  reserve   a small one, for what frees space
                                                                         cushion   room for LMDB to say so

A segment is as large as those before it together, within bounds; where that is more than half of the disk's
free space, as small as the first one. So a small disk holds a store, and a large log has few files.

A file goes when nothing refers to it and no reader in another process may still want it. One that is
opened to be read has to be the one that its name says: its first record tells.

Next: ../disk_store.py.
"""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...errors import Corruption, IoError, NoSpace
from ..fd_reserve import Aside, with_all_spare
from ..files import Files, TooManyOpen
from ..readers.reader_lease import oldest_lease
from .records import DATA, HEADER_SIZE, MISPLACED, START, is_misplaced

FIRST_PART = 16
"""A segment is at least so small a part of the largest."""
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
    """(generation, number) of a file of either kind."""
    _, generation, number = name.split("-")
    return int(generation), int(number)


def is_another_s(name: str, data: bytes, store_id: bytes) -> bool:
    """Whether what a file of either kind begins with was written for another one."""
    kind = DATA if _DATA.fullmatch(name) else START
    return is_misplaced(data, store_id, kind, *segment_parts(name))


def segment_files(path: Path, files: Files | None = None) -> list[Path]:
    """In the log's order. IoError."""
    return _listed(path, _SEGMENT, files)


def data_files(path: Path, files: Files | None = None) -> list[Path]:
    return _listed(path, _DATA, files)


def _listed(path: Path, name: re.Pattern[str], files: Files | None) -> list[Path]:
    names = (files or Files()).names(path)
    return sorted(path / found for found in names if name.fullmatch(found))


class Folder:
    """Every failure is an IoError. Invariants: `_writing` and `_reading` hold open descriptors of
    existing files only; of `_reading` there are few, the one used last at its end. `grown` is the bytes
    of the log when it was opened, and of its segments since."""

    def __init__(
        self,
        path: Path,
        store_id: bytes,
        files: Files,
        segment_bytes: int,
        held: int | None = None,
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
        self._aside = Aside(path, files, self._stop_reading)
        self._lock = threading.RLock()
        self._spare = path / "spare"
        self._reserve = path / "reserve"
        self._cushion = path / "cushion"
        self._lent = False  # is the cushion's room a checkpoint's?
        # Held while room is looked for, for a file system takes its time, and while the cushion is lent.
        self._room = threading.Lock()  # taken before `_lock`
        self._unneeded_since: dict[str, int] = {}

    # making --------------------------------------------------------------------------------

    def create(self, name: str, size: int) -> int:
        """A new file of `size` zeros, opened; a failure leaves none behind."""
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
        """Of the next segment, where there is room."""
        return min(self._most, max(self._least, self.grown))

    def create_segment(self, name: str, needed: int) -> tuple[int, int]:
        """(descriptor, size) of a segment with room for `needed` bytes: the spare, or a new file. NoSpace, also
        while a checkpoint needs the cushion's room."""
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
        """As `create_segment`, of what was put aside for this; else what there is, or NoSpace."""
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
        """Opened first: what was put aside is not lost for want of a descriptor."""
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
        """Names are durable on return."""
        self.with_descriptors(lambda: self.files.sync_folder(self.path))

    def with_descriptors(self, call: Callable[[], _T]) -> _T:
        """Where the process has none left, those that are kept aside and for reading are let go."""
        try:
            return call()
        except TooManyOpen:
            # Here it may wait for the lock; and who only reads is not among those that are asked.
            with self._lock:
                _close_all(self.files, self._reading)
            return with_all_spare(call)

    def _stop_reading(self) -> None:
        """Unless somebody is at it: who reads may be waiting for the very descriptors."""
        if self._lock.acquire(blocking=False):
            try:
                _close_all(self.files, self._reading)
            finally:
                self._lock.release()

    def lacks_reserve(self) -> bool:
        return (
            min(self.files.size_of(self._reserve), self.files.size_of(self._cushion))
            < self._reserve_bytes
        )

    def lacks_spare(self) -> bool:
        return self.files.size_of(self._spare) < self._least

    def keep_reserve(self) -> None:
        """For the log's record of what frees space, and for the checkpoint that then lets files go."""
        self._keep(self._reserve, self._reserve_bytes)
        self._keep(self._cushion, self._reserve_bytes)

    def make_reserve(self) -> None:
        """Where none is left, before a segment that would take its room. NoSpace, also while a checkpoint needs
        the cushion's."""
        with self._room:
            self._leave_what_is_lent(self._least + 2 * self._reserve_bytes)
            self._keep_first(self._reserve)

    def _leave_what_is_lent(self, needed: int) -> None:
        if self._lent and self.files.free(self.path) < needed:
            raise NoSpace(
                f"{self.path}: the disk is full, and what was put aside is in use: free some space; "
                "nothing was written or lost"
            )

    def keep_cushion(self) -> None:
        """Where none is left, as soon as a checkpoint has succeeded."""
        self._keep_first(self._cushion)
        self._lent = False

    def _keep_first(self, path: Path) -> None:
        """It goes before the spare."""
        while self.files.size_of(path) < 0:
            try:
                self._keep(path, self._reserve_bytes)
            except NoSpace:
                if not self.give_back_spare():
                    raise

    def keep_spare(self) -> None:
        self._as_large(partial(self._keep, self._spare), self._least, self.segment_bytes)

    def _as_large(self, make: Callable[[int], _T], least: int, wanted: int) -> tuple[_T, int]:
        """(what was made, its size): of the wanted size, or of the least where room is short. NoSpace.

        One that took all the room would keep it, whatever is dropped of it: the log could not leave it.
        """
        if wanted > least and wanted * 2 <= self.files.free(self.path):
            with suppress(NoSpace):
                return make(wanted), wanted
        return make(least), least

    @property
    def _reserve_bytes(self) -> int:
        """More where a large spare had room: else it would take what was freed for the next segment."""
        part = self.files.size_of(self._spare) // FIRST_PART
        return min(max(part, RESERVE_BYTES_MIN), RESERVE_BYTES, self._most)

    def _keep(self, path: Path, size: int) -> None:
        """Of its full size under its name, or not there: a crash may come amid the allocation."""
        if self.files.size_of(path) >= size:
            return
        new = path.with_name(path.name + ".new")
        self.files.remove(new)
        self._allocate(new, size)
        self.files.rename(new, path)

    def give_back_spare(self) -> bool:
        """Frees the spare's space for something more urgent; False when there was none."""
        return self._give_back(self._spare)

    def give_back_cushion(self) -> bool:
        """As `give_back_spare`, of what was put aside for LMDB."""
        with self._room:
            self._lent = True
            return self._give_back(self._cushion)

    def _give_back(self, path: Path) -> bool:
        if self.files.size_of(path) <= 0:
            return False
        self.files.remove(path)
        return True

    def shrink(self, name: str, size: int) -> None:
        """Gives back what was allocated behind a segment's last record."""
        fd = self.files.open(self.path / name, write=True)
        try:
            self.files.shrink(fd, size)
        finally:
            self.files.close(fd)

    # reading -------------------------------------------------------------------------------

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes; IoError when the file is gone, Corruption when it is another's."""
        with self._lock:  # not closed while it is read
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
        """Bytes of each segment and data file."""
        return {
            path.name: size for path in self._listed() if (size := self.files.size_of(path)) >= 0
        }

    def _listed(self) -> list[Path]:
        return self.with_descriptors(
            lambda: [*segment_files(self.path, self.files), *data_files(self.path, self.files)],
        )

    # letting go ----------------------------------------------------------------------------

    def let_go(self, name: str) -> None:
        """Closes a file; what it holds stays. Its descriptor is kept where too few are aside."""
        with self._lock:
            for opened in (self._writing, self._reading):
                fd = opened.pop(name, -1)
                if fd >= 0:
                    self.files.close(fd)
        self._aside.keep()

    def discard(self, name: str) -> None:
        """Closes and removes a file that holds nothing yet."""
        self.let_go(name)
        self.files.remove(self.path / name)

    def remove_unneeded(self, needed: frozenset[str], first_needed: str, now: int) -> None:
        """Removes segments before `first_needed` and data files, but for those `needed`.

        `now`: the newest LMDB transaction. What a lease may want stays until the lease is gone.
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
        self._aside.close()


def _close_all(files: Files, opened: dict[str, int]) -> None:
    while opened:
        files.close(opened.popitem()[1])
