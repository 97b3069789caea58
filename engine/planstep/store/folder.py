"""The files of one host's store, by name: which there are, which are open, which may go.

    log-<generation 8>-<number 8>    segments of the log                 spare     the next one, allocated ahead
    data-<generation 8>-<number 8>   payloads rewritten out of segments  reserve   a small one, for what frees space

A file goes when nothing refers to it and no reader in another process may still want it.

Next: disk.py.
"""

import threading
from pathlib import Path

from ..errors import IoError, NoSpace
from .files import Files
from .lease import oldest_lease

RESERVE_BYTES = 4 << 20


def segment_name(generation: int, number: int) -> str:
    return f"log-{generation:08d}-{number:08d}"


def data_name(generation: int, number: int) -> str:
    return f"data-{generation:08d}-{number:08d}"


def segment_parts(name: str) -> tuple[int, int]:
    """(generation, number) of a file of either kind."""
    _, generation, number = name.split("-")
    return int(generation), int(number)


def segment_files(path: Path) -> list[Path]:
    return sorted(path.glob("log-????????-????????"))


def data_files(path: Path) -> list[Path]:
    return sorted(path.glob("data-????????-????????"))


class Folder:
    """Invariant: `_fds` holds open descriptors of existing files only."""

    def __init__(self, path: Path, files: Files, segment_bytes: int) -> None:
        self.path = path
        self.files = files
        self.segment_bytes = segment_bytes
        self._fds: dict[str, int] = {}
        self._lock = threading.Lock()
        self._spare = path / "spare"
        self._reserve = path / "reserve"
        self._unneeded_since: dict[str, int] = {}

    # making --------------------------------------------------------------------------------

    def create(self, name: str, size: int) -> int:
        """A new file of `size` zeros, opened; NoSpace leaves none behind."""
        path = self.path / name
        self.files.allocate(path, size)
        return self._opened(name)

    def create_segment(self, name: str, size: int) -> tuple[int, int]:
        """(descriptor, size) of a segment with room for `size` bytes: the spare, or a new file."""
        size = max(size, self.segment_bytes)
        if self._spare.exists() and self._spare.stat().st_size >= size:
            size = self._spare.stat().st_size
            self.files.rename(self._spare, self.path / name)
            return self._opened(name), size
        return self.create(name, size), size

    def create_from_reserve(self, name: str, size: int) -> tuple[int, int]:
        """As `create_segment`, of what was put aside for this; NoSpace when it is used up."""
        held = self._reserve.stat().st_size if self._reserve.exists() else 0
        if held < size:
            raise NoSpace(
                f"{self.path}: the disk is full, and so is the reserve: free space elsewhere"
            )
        self.files.rename(self._reserve, self.path / name)
        return self._opened(name), held

    def _opened(self, name: str) -> int:
        try:
            fd = self.files.open(self.path / name, write=True)
        except IoError:
            (self.path / name).unlink(missing_ok=True)
            raise
        with self._lock:
            self._fds[name] = fd
        return fd

    def lacks_reserve(self) -> bool:
        return not self._reserve.exists()

    def lacks_spare(self) -> bool:
        return not self._spare.exists()

    def keep_reserve(self) -> None:
        if not self._reserve.exists():
            self.files.allocate(self._reserve, min(RESERVE_BYTES, self.segment_bytes))

    def keep_spare(self) -> None:
        if not self._spare.exists():
            self.files.allocate(self._spare, self.segment_bytes)

    def give_back_spare(self) -> bool:
        """Frees the spare's space for something more urgent; False when there was none."""
        if not self._spare.exists():
            return False
        self.files.remove(self._spare)
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
        """Up to `length` bytes; IoError when the file is gone."""
        with self._lock:  # not closed while it is read
            fd = self._fds.get(name, -1)
            if fd < 0:
                fd = self._fds[name] = self.files.open(self.path / name, write=False)
            return self.files.read(fd, offset, length)

    def sizes(self) -> dict[str, int]:
        """Bytes of each segment and data file."""
        paths = [*segment_files(self.path), *data_files(self.path)]
        return {path.name: path.stat().st_size for path in paths}

    # letting go ----------------------------------------------------------------------------

    def let_go(self, name: str) -> None:
        """Closes a file; what it holds stays."""
        with self._lock:
            fd = self._fds.pop(name, -1)
            if fd >= 0:
                self.files.close(fd)

    def discard(self, name: str) -> None:
        """Closes and removes a file that holds nothing yet."""
        self.let_go(name)
        self.files.remove(self.path / name)

    def remove_unneeded(self, needed: frozenset[str], first_needed: str, now: int) -> None:
        """Removes segments before `first_needed` and data files, but for those `needed`.

        `now`: the newest LMDB transaction. What a lease may want stays until the lease is gone.
        """
        since = self._unneeded_since
        for path in [*segment_files(self.path), *data_files(self.path)]:
            name = path.name
            if name not in needed and (name < first_needed or name.startswith("data-")):
                since.setdefault(name, now)
            else:
                since.pop(name, None)
        if not since:
            return
        oldest = oldest_lease(self.path)
        for name, transaction in list(since.items()):
            if oldest is not None and oldest < transaction:
                continue
            self.let_go(name)
            self.files.remove(self.path / name)
            del since[name]

    def close(self) -> None:
        with self._lock:
            for fd in self._fds.values():
                self.files.close(fd)
            self._fds.clear()
