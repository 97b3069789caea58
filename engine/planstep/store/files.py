"""Wraps all file operations of a store but LMDB's, so that tests can make each one fail or cut the power.

Every operation that can lose or tear data is a method here: allocate, write, shrink, sync, sync_folder,
rename, exchange, remove. LMDB does its own I/O.

The operating system resolves a path anew each time, and by then another store may be there. So an open store
holds its folder: operations in it go through the folder's descriptor, wherever the folder was moved.

Next: log/records.py.
"""

import contextlib
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ..errors import IoError, NoSpace, TooManyOpen

_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_FULLFSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_IOV_MAX = 500
_DESCRIPTORS = Path("/proc/self/fd")
_OWN_FILE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""Errors of systems without the call. EPERM is a container's answer to calls that it does not know."""


class Files:
    """The operating system's files. Every failure is an IoError; a full disk is its subclass NoSpace.

    Invariant: `_folders` holds the descriptors of open folders; it is replaced, never changed.
    """

    _folders: Mapping[Path, int] = MappingProxyType({})

    def hold(self, folder: Path, fd: int) -> None:
        """Finds files of `folder` through `fd` until `release`, whatever the folder's name is by now."""
        self._folders = {**self._folders, folder: fd}

    def release(self, folder: Path) -> None:
        """Stops using the descriptor; call it before the descriptor is closed."""
        self._folders = {path: fd for path, fd in self._folders.items() if path != folder}

    def _at(self, path: Path) -> tuple[Path, int | None]:
        """Translates a path to the (path, directory descriptor) to give to the operating system."""
        folders = self._folders
        folder, above = path, path.parent
        while folders:
            if (fd := folders.get(folder)) is not None:
                return path.relative_to(folder), fd
            if above == folder:
                break
            folder, above = above, above.parent
        return path, None

    def names(self, folder: Path) -> list[str]:
        """Lists the names in a folder, in no order."""
        with typed_errors(folder):
            return list_folder(*self._at(folder))

    def states(self, folder: Path) -> list[tuple[str, os.stat_result]]:
        """Lists (name, status) for a folder's contents; empty if there is no folder."""
        found = []
        try:
            fd = open_folder(*self._at(folder))
            try:
                for name in os.listdir(fd):
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        found.append((name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
            finally:
                os.close(fd)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise io_error(error, folder) from error
        return found

    def size_of(self, path: Path) -> int:
        """Returns the file's size in bytes; -1 if there is no such file."""
        status = self.status_of(path)
        return -1 if status is None else status.st_size

    def status_of(self, path: Path) -> os.stat_result | None:
        """Returns the file's status, a link's own; None if there is no such file."""
        at, folder = self._at(path)
        try:
            return os.stat(at, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise io_error(error, path) from error

    def free(self, folder: Path) -> int:
        """Returns the free space of the disk in bytes."""
        at, fd = self._at(folder)
        with typed_errors(folder):
            state = os.statvfs(at if fd is None else fd)
        return state.f_bavail * state.f_frsize

    def make_folder(self, path: Path) -> None:
        """Creates the folder unless it exists."""
        at, folder = self._at(path)
        with typed_errors(path), contextlib.suppress(FileExistsError):
            make_folder(at, folder)

    def allocate(self, path: Path, size: int) -> None:
        """Creates a file and reserves `size` bytes of zeros; leaves no file behind on failure."""
        fd = -1
        at, folder = self._at(path)
        try:
            fd = open_file(at, os.O_RDWR | os.O_CREAT | os.O_EXCL, folder)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, size)
            else:
                os.truncate(fd, size)
            os.fsync(fd)
        except OSError as error:
            if fd >= 0:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(at, dir_fd=folder)
            raise io_error(error, path, size) from error
        finally:
            if fd >= 0:
                os.close(fd)

    def open(self, path: Path, write: bool) -> int:
        at, folder = self._at(path)
        with typed_errors(path):
            return open_file(at, os.O_RDWR if write else os.O_RDONLY, folder)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, offset: int, length: int) -> bytes:
        """Reads up to `length` bytes; fewer only at the end of the file."""
        with typed_errors(None):
            data = os.pread(fd, length, offset)
            while len(data) < length:
                more = os.pread(fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        return data

    def data_end(self, fd: int) -> int:
        """Returns an upper bound for the end of the written bytes, so a preallocated rest need not be read."""
        with typed_errors(None):
            size = os.fstat(fd).st_size
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
        """Writes all of the buffers at `offset`; with `sync` they are durable on return."""
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
        if total and not written:  # trying again would never end
            raise io_error(OSError(errno.EIO, "nothing of a write was written"), None)
        if written != total:
            rest = b"".join(buffers)[written:]
            self.write(fd, [rest], offset + written, sync)
        elif sync and not _DSYNC:
            self.sync(fd)

    def shrink(self, fd: int, size: int) -> None:
        """Cuts off the space that was allocated behind the last written byte."""
        with typed_errors(None):
            os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        with typed_errors(None):
            if _FULLFSYNC is not None and sys.platform == "darwin":
                fcntl.fcntl(fd, _FULLFSYNC)
            elif hasattr(os, "fdatasync"):
                os.fdatasync(fd)
            else:
                os.fsync(fd)

    def sync_folder(self, path: Path) -> None:
        with typed_errors(path):
            fd = open_folder(*self._at(path))
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        (old, here), (new, there) = self._at(source), self._at(target)
        with typed_errors(source):
            os.rename(old, new, src_dir_fd=here, dst_dir_fd=there)

    def exchange(self, one: Path, other: Path) -> bool:
        """Swaps the names of two files in one step; returns False, with nothing done, if the system cannot."""
        try:
            return _exchange(one, other)
        except OSError as error:
            if error.errno in _NO_EXCHANGE:
                return False
            raise io_error(error, one) from error

    def remove(self, path: Path) -> None:
        at, folder = self._at(path)
        with typed_errors(path), contextlib.suppress(FileNotFoundError):
            os.unlink(at, dir_fd=folder)


def open_folder(path: Path, folder: int | None = None) -> int:
    """Opens a folder; OSError. A relative path begins at the descriptor `folder`."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)


def list_folder(path: Path, folder: int | None = None) -> list[str]:
    """Lists a folder's names, through a descriptor of its own: a shared one would share its position."""
    if folder is None:
        return os.listdir(path)
    fd = open_folder(path, folder)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def open_file(path: Path, flags: int, folder: int | None = None, mode: int = 0o600) -> int:
    """Opens a store's own file; `folder` as for `open_folder`.

    OSError also if another kind of file has the name: a link leads out of the store, and opening a pipe may block
    for ever.
    """
    fd = os.open(path, flags | _OWN_FILE, mode, dir_fd=folder)
    try:
        status = os.fstat(fd)
        check_own(status)
        if stat.S_ISDIR(status.st_mode) and path.name:  # "." is the store's own folder
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        # A file made just now: not one of root's that the folder's user has linked or moved here.
        if flags & os.O_CREAT and not status.st_size and status.st_nlink == 1:
            _give_to_owner_of(path.parent if folder is None else folder, fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_room_for(count: int, folder: Path) -> None:
    """TooManyOpen, about a folder, if this process may not open so many more files just now."""
    with contextlib.ExitStack() as opened, typed_errors(folder):
        for _ in range(count):
            opened.callback(os.close, open_folder(Path(os.sep)))


def _give_to_owner_of(around: Path | int, fd: int) -> None:
    """Gives what root has made in a user's store to that user, who could not open the store any more."""
    if os.geteuid():
        return
    status = os.stat(around)
    if status.st_uid:
        with contextlib.suppress(OSError):  # a container's root may not
            os.fchown(fd, status.st_uid, status.st_gid)


def make_folder(path: Path, folder: int | None = None) -> None:
    """Creates a folder of a store, for its user only; `folder` as for `open_folder`. OSError."""
    os.mkdir(path, 0o700, dir_fd=folder)
    if not os.geteuid():
        # Not through a link, which the user may have put in its place meanwhile.
        fd = os.open(
            path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
        )
        try:
            _give_to_owner_of(path.parent if folder is None else folder, fd)
        finally:
            os.close(fd)


def check_own(status: os.stat_result) -> None:
    """OSError if the status is that of neither a file nor a folder."""
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def check_parent(path: Path) -> None:
    """IoError if more than the last name of the path would have to be created: the path may be a typo."""
    if not path.parent.exists():
        raise IoError(f"{path.parent} is not there: make it first, or choose another path")


def way_into(folder: Path, fd: int) -> Path:
    """Returns a path to the folder that goes through its descriptor, for LMDB, which takes only paths. On a system
    without such paths it returns `folder`: call `check_there` before and after.
    """
    way = _DESCRIPTORS / str(fd)
    try:
        there = os.path.samestat(os.stat(way), os.fstat(fd))
    except OSError:
        there = False
    return way if there else folder


def check_there(way: Path, fd: int) -> None:
    """IoError if a path from `way_into` now leads elsewhere."""
    try:
        there = os.path.samestat(os.stat(way), os.fstat(fd))
    except FileNotFoundError:
        there = False
    except OSError as error:
        raise io_error(error, way) from error
    if not there:
        raise IoError(f"{way} was moved, replaced or removed while it was opened; open it again")


def name_by_now(folder: Path, fd: int) -> Path | None:
    """Returns the path of an open folder: the one given, or its new one where it was renamed. None where it is not
    known, or the folder was removed. OSError."""
    held = os.fstat(fd)
    for path in (folder, shown(_DESCRIPTORS / str(fd))):
        try:
            if os.path.samestat(os.stat(path), held):
                return path
        except FileNotFoundError:
            pass
    return None


def shown(path: Path) -> Path:
    """Translates a path through a descriptor back to the folder's real name, for messages."""
    if _DESCRIPTORS not in path.parents:
        return path
    number, *rest = path.relative_to(_DESCRIPTORS).parts
    try:
        return Path(os.readlink(_DESCRIPTORS / number), *rest)
    except OSError:
        return path


def _exchange(one: Path, other: Path) -> bool:
    """Calls the C library, because Python's rename has no flags. OSError."""
    import ctypes  # imported here because few processes need it

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


class typed_errors:
    """Raises the `io_error` of a path in place of an OSError of its block."""

    __slots__ = ("_path",)

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise io_error(error, self._path) from error


def io_error(error: OSError, path: Path | None, size: int = 0) -> IoError:
    """Returns the typed error for an OSError; `size` is the number of bytes that were asked for."""
    where = f"{shown(path)}: " if path is not None else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        full = f"the disk has no room for {size:,} bytes" if size else "the disk is full"
        return NoSpace(f"{where}{full}: free some space; nothing was written or lost")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TooManyOpen(f"{where}{error.strerror}: close some, or raise the limit (ulimit -n)")
    if error.errno in (errno.ELOOP, errno.ENXIO) and path is not None:
        return IoError(
            f"{shown(path)} is a link, a pipe or a device in place of a file: a store's files are its "
            "own; put the file back, or restore the store from a backup"
        )
    return IoError(f"{where}{error.strerror or error}")
