"""Replaces the engine's files by ones that fail: the n-th operation of a kind, once, a few times, or for ever.

    store ─▶ FaultyFiles ─ not yet ─▶ FastFiles ─▶ the operating system
                 └ the n-th: IoError or NoSpace, after `short` of a write's bytes

SmallDisk has room for so many bytes. FastFiles do not wait for the disk, which only a power loss could reveal;
recorder.py models that.

Next: recorder.py, which extends FastFiles.
"""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ....errors import IoError
from ....store.files import Files, io_error, open_file


class FastFiles(Files):
    """Files that do not wait for the disk, for stores whose power never fails, or only in a model.

    `check` is called before each operation that a subclass may make fail.
    """

    def check(self, kind: str) -> None:
        """Raises the error of the operation, named like its method, if it fails; here none does."""

    def allocate(self, path: Path, size: int) -> None:
        self.check("allocate")
        at, folder = self._at(path)
        fd = open_file(at, os.O_RDWR | os.O_CREAT | os.O_EXCL, folder)
        os.ftruncate(fd, size)
        os.close(fd)

    def open(self, path: Path, write: bool) -> int:
        self.check("open")
        return super().open(path, write)

    def read(self, fd: int, offset: int, length: int) -> bytes:
        self.check("read")
        return super().read(fd, offset, length)

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        super().write(fd, buffers, offset, False)

    def shrink(self, fd: int, size: int) -> None:
        self.check("shrink")
        super().shrink(fd, size)

    def sync(self, fd: int) -> None:
        self.check("sync")

    def sync_folder(self, path: Path) -> None:
        self.check("sync_folder")

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename")
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self.check("remove")
        super().remove(path)


class FaultyFiles(FastFiles):
    """Files that fail calls of one kind from the n-th on: `times` of them, or for ever (None).

    `short` of a failing write's bytes are written before it fails.
    """

    def __init__(
        self,
        kind: str = "",
        nth: int = 0,
        *,
        code: int = errno.EIO,
        times: int | None = 1,
        short: Callable[[int], int] = lambda size: 0,
    ) -> None:
        self.kind, self.nth, self.code, self.times, self.short = kind, nth, code, times, short
        self.calls = 0
        self.failed = 0

    def check(self, kind: str) -> None:
        if kind != self.kind:
            return
        self.calls += 1
        if self.calls > self.nth and (self.times is None or self.failed < self.times):
            self.failed += 1
            raise io_error(OSError(self.code, os.strerror(self.code)), None)

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        try:
            self.check("write")
        except IoError:
            data = b"".join(buffers)
            super().write(fd, [data[: self.short(len(data))]], offset, False)
            raise
        super().write(fd, buffers, offset, sync)


class SmallDisk(FastFiles):
    """A disk with room for `room` bytes: a larger allocation finds it full; removed or cut-off bytes are freed.

    Real files; bytes that LMDB takes are not counted (tables.py makes LMDB find the disk full).
    """

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self._sizes: dict[Path, int] = {}
        self._opened: dict[int, Path] = {}
        self._lock = threading.Lock()

    def used(self) -> int:
        return sum(self._sizes.values())

    def free(self, folder: Path) -> int:
        with self._lock:
            return super().free(folder) if self.room is None else self.room - self.used()

    def allocate(self, path: Path, size: int) -> None:
        with self._lock:
            if self.room is not None and self.used() + size > self.room:
                raise io_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path, size)
            self._sizes[path] = size
        super().allocate(path, size)

    def open(self, path: Path, write: bool) -> int:
        fd = super().open(path, write)
        with self._lock:
            self._opened[fd] = path
        return fd

    def shrink(self, fd: int, size: int) -> None:
        super().shrink(fd, size)
        with self._lock:
            path = self._opened[fd]
            self._sizes[path] = min(size, self._sizes.get(path, size))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        with self._lock:
            self._sizes[target] = self._sizes.pop(source, 0)
            for fd, path in self._opened.items():
                if path == source:
                    self._opened[fd] = target

    def remove(self, path: Path) -> None:
        super().remove(path)
        with self._lock:
            self._sizes.pop(path, None)
