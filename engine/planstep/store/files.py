"""The one way to the log's files, so that tests can make each operation fail, or the power go.

Everything that can lose or tear data is a method here: allocate, write, shrink, sync, sync_folder,
rename, exchange, remove. LMDB does its own I/O.

Next: log.py.
"""

import errno
import fcntl
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import IoError, NoSpace

_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_FULLFSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_IOV_MAX = 500
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""EPERM: what a container says of calls that it does not know."""


class TooManyOpen(IoError):
    """The process, or the machine, is out of file descriptors; nothing was done."""


class Files:
    """The operating system's files. Every failure is an IoError; a full disk its kind NoSpace."""

    def allocate(self, path: Path, size: int) -> None:
        """Creates a file whose `size` bytes of zeros are reserved; leaves none behind on failure."""
        fd = -1
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, size)
            else:
                os.truncate(fd, size)
            os.fsync(fd)
        except OSError as error:
            if fd >= 0:
                path.unlink(missing_ok=True)
            raise io_error(error, path) from error
        finally:
            if fd >= 0:
                os.close(fd)

    def open(self, path: Path, write: bool) -> int:
        try:
            return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)
        except OSError as error:
            raise io_error(error, path) from error

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        try:
            data = os.pread(fd, length, offset)
            while len(data) < length:
                more = os.pread(fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise io_error(error, None) from error
        return data

    def data_end(self, fd: int) -> int:
        """Where the file's last written byte can be: a preallocated rest need not be read."""
        try:
            size = os.fstat(fd).st_size
        except OSError as error:
            raise io_error(error, None) from error
        end = 0
        try:
            while end < size:
                end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            return end if error.errno == errno.ENXIO else size  # nothing but holes; or unknown
        except AttributeError:
            return size
        return end

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        """All of the buffers at `offset`, durable on return with `sync`."""
        total = sum(map(len, buffers))
        if len(buffers) > _IOV_MAX:
            buffers = [b"".join(buffers)]
        try:
            if sync and _DSYNC:
                written = os.pwritev(fd, buffers, offset, _DSYNC)
            else:
                written = os.pwritev(fd, buffers, offset)
        except OSError as error:
            raise io_error(error, None) from error
        if written != total:
            rest = b"".join(buffers)[written:]
            self.write(fd, [rest], offset + written, sync)
        elif sync and not _DSYNC:
            self.sync(fd)

    def shrink(self, fd: int, size: int) -> None:
        """Cuts off what was allocated behind the last written byte."""
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise io_error(error, None) from error

    def sync(self, fd: int) -> None:
        try:
            if _FULLFSYNC is not None and sys.platform == "darwin":
                fcntl.fcntl(fd, _FULLFSYNC)
            elif hasattr(os, "fdatasync"):
                os.fdatasync(fd)
            else:
                os.fsync(fd)
        except OSError as error:
            raise io_error(error, None) from error

    def sync_folder(self, path: Path) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise io_error(error, path) from error

    def rename(self, source: Path, target: Path) -> None:
        try:
            os.rename(source, target)
        except OSError as error:
            raise io_error(error, source) from error

    def exchange(self, one: Path, other: Path) -> bool:
        """Each has the other's name, in one step; False, and nothing was done, where that cannot be had."""
        try:
            return _exchange(one, other)
        except OSError as error:
            if error.errno in _NO_EXCHANGE:
                return False
            raise io_error(error, one) from error

    def remove(self, path: Path) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise io_error(error, path) from error


def _exchange(one: Path, other: Path) -> bool:
    """By the C library: Python's own rename has no flags. OSError."""
    import ctypes  # here: hardly a process needs it

    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = library.renamex_np(*names, 2)  # RENAME_SWAP
    else:
        try:
            call = library.renameat2
        except AttributeError:
            return False
        here = -100  # AT_FDCWD
        failed = call(here, names[0], here, names[1], ctypes.c_uint(2))  # RENAME_EXCHANGE
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


def io_error(error: OSError, path: Path | None) -> IoError:
    """The typed error for one of the operating system's."""
    where = f"{path}: " if path is not None else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"{where}the disk is full: free some space; nothing was written or lost")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyOpen(f"{where}{error.strerror}: close some, or raise the limit (ulimit -n)")
    return IoError(f"{where}{error.strerror or error}")
