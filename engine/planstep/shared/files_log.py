"""Keeps a shared log in a folder of another disk, or of a file system that machines share: `file:///disk/shop`.

    create   write new/<name>-<16 hex>, synced ─▶ link(2) it to <name>: whole, or not at all ─▶ sync the folder
             no room for the name ─▶ remove new/… ─▶ <name> is not there: it never will be
    sync     the folder: the process that linked a file may have been killed before it synced it

A name of a snapshot or a run may have further folders: they come with their first file, and go with the last one.

An open log holds its folder by a descriptor, and believes an answer only if the path still leads there. Otherwise
the disk was unmounted, or the folder was replaced. A file in `new` is written once and never again: it may be the
same file as one in `log`.

Left out: a dead NFS server hangs whoever asks it, also here. An NFS client may believe for a while that a name is
free, unless it was mounted with lookupcache=positive: then its readers are late, and no more.

Next: bucket_log.py.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote_to_bytes

from ..errors import (
    Corruption,
    FormatError,
    IoError,
    LogUnreachable,
    NoSpace,
    NotSupported,
    Refused,
    TooManyOpen,
)
from ..store.files import (
    Files,
    check_parent,
    io_error,
    open_file,
    open_folder,
    typed_errors,
)
from .objects_log import ObjectsLog, open_root
from .patient import LOG_TIMEOUT
from .root import is_root, is_temporary
from .shared_log import EntryTooLarge, Root, SharedLog

_FOLDERS = ("log", "floor", "new")
_OF_SEEDS = ("snap", "pack")
"""Further folders that a log without a root may have."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)
_URL = re.compile("file://([^/]*)(/.*)", re.IGNORECASE | re.DOTALL)
_BAD_PERCENT = re.compile("%(?![0-9a-fA-F]{2})")


def open_files_log(
    url: str,
    root: Root | None,
    timeout: float = LOG_TIMEOUT,
    files: "LinkedFiles | None" = None,
) -> tuple[SharedLog, Root]:
    """Opens the log of a `file:` URL; parameters as in `open_shared_log`. IoError, FormatError, ValueError."""
    path = folder_of(url)
    files = files or LinkedFiles()
    if root is not None:
        _make(path, files)
    elif files.status_of(path) is None:
        raise IoError(f"{path} is not there: mount its disk, or mend the URL of the shared log")
    objects = FileObjects(path, files)
    try:
        return ObjectsLog(objects, url, timeout), open_root(objects, url, root)
    except BaseException:
        objects.close()
        raise


def make_files_place(url: str) -> "FileObjects":
    """Makes the folder for a log that has no root yet, unless it is there. Errors as `open_files_log`."""
    path = folder_of(url)
    files = LinkedFiles()
    _make(path, files)
    return FileObjects(path, files)


def folder_of(url: str) -> Path:
    """Returns the folder that a `file:` URL names. ValueError if it names none."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(
            f"{url!r}: write a whole path behind three slashes, as in file:///disk/shop"
        )
    host, path = match.groups()
    if host.lower() not in ("", "localhost"):
        raise ValueError(
            f"{url!r} names the machine {host!r}: mount its disk here, and write the path behind three slashes"
        )
    if "?" in path or "#" in path or _BAD_PERCENT.search(path):
        raise ValueError(f"{url!r}: in a path write %3F for ?, %23 for # and %25 for %")
    try:
        folder = Path("/", os.fsdecode(unquote_to_bytes(path)).lstrip("/"))
    except UnicodeEncodeError:
        raise ValueError(f"{url!r} is no URL: take it from Path.as_uri()") from None
    if folder == folder.parent:
        raise ValueError(
            f"{url!r} names no folder of its own: write a path as in file:///disk/shop"
        )
    if ".." in folder.parts or "\0" in str(folder):
        raise ValueError(f"{url!r} names no folder: write its path without '..' and without %00")
    return folder


def normal_files_url(url: str) -> str:
    """Returns the URL of the same log as every program would write it. ValueError."""
    return folder_of(url).as_uri()


def check_outside(path: Path) -> None:
    """FormatError for a path inside a shared log, which would be counted, or removed, with it."""
    if is_temporary(path.name):
        return
    for above in Path(os.path.realpath(path)).parents:
        if _is_log(above):
            raise FormatError(
                f"{path} is inside the shared log {above}: choose a path outside of it"
            )


def _check_outside_stores(path: Path) -> None:
    """FormatError for a path inside a store, which may be replaced as a whole."""
    for above in Path(os.path.realpath(path)).parents:
        if (above / "host-0" / "meta.pb").exists():
            raise FormatError(f"{path} is inside the store {above}: choose a path outside of it")


def _is_log(folder: Path) -> bool:
    try:
        with (folder / "store").open("rb") as file:
            return is_root(file.read(4)) and (folder / "log").is_dir()
    except OSError:
        return False


def erase_files_log(url: str) -> None:
    """Removes the folder of a `file:` URL. IoError."""
    path = folder_of(url)
    with typed_errors(path):
        shutil.rmtree(path)


def _make(path: Path, files: Files) -> None:
    """Creates the folders of a log, unless it is there. FormatError for a folder of something else."""
    with typed_errors(path):
        check_parent(path)
        check_outside(path)
        _check_outside_stores(path)
    files.make_folder(path)
    names = set(files.names(path))
    if "store" in names:  # so its folders were made: one that is missing now was removed
        return
    if others := names - {*_FOLDERS, *_OF_SEEDS}:
        raise FormatError(
            f"{path} has other files than a shared log ({min(others)}): give the log a folder of its own"
        )
    for folder in _FOLDERS:
        files.make_folder(path / folder)
    files.sync_folder(path)
    files.sync_folder(path.parent)


class LinkedFiles(Files):
    """Files that appear whole."""

    def create(self, path: Path, data: bytes) -> None:
        """Writes a new file, durably. NoSpace, EntryTooLarge."""
        at, folder = self._at(path)
        with typed_errors(path):
            fd = open_file(at, os.O_RDWR | os.O_CREAT | os.O_EXCL, folder)
            try:
                self.write(fd, [data], 0, True)
            except IoError as error:
                cause = error.__cause__
                if isinstance(cause, OSError) and cause.errno == errno.EFBIG:
                    raise EntryTooLarge(
                        f"the file system, or a limit of this process (ulimit -f), takes no file of {len(data)} "
                        "bytes: make smaller transactions; nothing was written"
                    ) from error
                raise
            finally:
                self.close(fd)

    def link(self, source: Path, target: Path) -> bool:
        """Gives a file another name, if that is free; returns whether it was said to be. NotSupported.

        NoSpace: it was said that there is no room for the name.
        """
        (old, here), (new, there) = self._at(source), self._at(target)
        try:
            os.link(old, new, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise NotSupported(
                    f"{target}: the file system has no hard links, which a shared log needs"
                ) from error
            raise io_error(error, target) from error
        return True


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    """Turns an error of a user that may not write a folder, or of a disk that nobody may write, into Refused."""
    try:
        yield
    except IoError as error:
        cause = error.__cause__
        if not (isinstance(cause, OSError) and cause.errno in _REFUSALS):
            raise
        raise Refused(
            f"{folder} may not be written ({cause.strerror}), and nothing was done: let all machines be one user "
            "there, or give this one the right; a disk that is read-only has to be mounted anew"
        ) from error


class FileObjects:
    """The files of a log's folder, as an object store, from opening to `close`."""

    def __init__(self, path: Path, files: LinkedFiles) -> None:
        """Opens a folder. IoError, also if it lacks one of its folders."""
        self._path = path
        self._files = files
        with typed_errors(path):
            self._fd = open_folder(path)
        try:
            self._places = {at: self._place(at or ".", self._fd) for at in ("", *_FOLDERS)}
            self._check_readable()
        except BaseException:
            os.close(self._fd)
            raise
        files.hold(path, self._fd)

    def _check_readable(self) -> None:
        """Refused for a folder that this user may not list: waiting for its turns would take a minute."""
        for at in ("log", "floor"):
            try:
                os.close(open_folder(Path(f"{at}/."), self._fd))
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise io_error(error, self._path / at) from error
                raise Refused(
                    f"{self._path / at} may not be read ({error.strerror}): let all machines be one user there, "
                    "or give this one the right to read it"
                ) from error

    def create(self, name: str, data: bytes) -> bool:
        path = self._path / name
        new = self._path / "new" / f"{name.replace('/', '-')}-{os.urandom(8).hex()}"
        with _refusals(path.parent):
            self._make_folders(name)
        try:
            with _refusals(new.parent):
                self._files.create(new, data)
            try:
                with _refusals(path.parent):
                    made = self._files.link(new, path)
            except (NoSpace, Refused) as error:
                self._check_unlinked(new, name, error)
                raise
            if made:
                self.sync(name)
                self._check_there(name)
        finally:
            with suppress(IoError):
                self._files.remove(new)
        return made

    def _check_unlinked(self, new: Path, name: str, error: IoError) -> None:
        """Makes sure that a link that was refused has no effect. IoError: it may have.

        Over NFS it may have been made, or may arrive yet. A file that has lost all its names gets none any more.
        """
        path = self._path / name
        self._files.remove(new)
        if self._files.status_of(path) is not None:
            raise IoError(f"{path} is there, though it was said to be refused") from error
        self._check_there(name)

    def get(self, name: str) -> bytes | None:
        path = self._path / name
        status = self._files.status_of(path)
        data = None
        if status is not None:
            if not stat.S_ISREG(status.st_mode):
                raise Corruption(f"{path} is no file: a link or a folder has its place")
            data = self._read(path, status.st_size)
        self._check_there(name)
        return data

    def _read(self, path: Path, size: int) -> bytes:
        fd = self._files.open(path, write=False)
        try:
            return self._files.read(fd, 0, size)
        finally:
            self._files.close(fd)

    def sync(self, name: str) -> None:
        try:
            self._files.sync_folder((self._path / name).parent)
        except TooManyOpen:
            raise  # nothing was synced yet
        except IoError as error:  # trying again may succeed without having written anything
            raise LogUnreachable(
                f"{self._path} could not be synced ({error}); reopen the store once it can be"
            ) from error

    def names(self, prefix: str, start: str = "") -> list[str]:
        folder = prefix.removesuffix("/")
        if folder in self._places:
            found = self._files.names(self._path / folder)
        else:
            found = list(self._sizes_below(self._path / folder))
        self._check_there(prefix)
        return sorted(name for name in (prefix + name for name in found) if name > start)

    def sizes(self) -> dict[str, int]:
        sizes = self._sizes_below(self._path)
        self._check_there("")
        return sizes

    def _sizes_below(self, folder: Path) -> dict[str, int]:
        """Lists the files of a folder and of those in it; none if there is no such folder."""
        sizes: dict[str, int] = {}
        for name, status in self._files.states(folder):
            if stat.S_ISDIR(status.st_mode):
                below = self._sizes_below(folder / name)
                sizes |= {f"{name}/{file}": size for file, size in below.items()}
            else:
                sizes[name] = status.st_size
        return sizes

    def remove(self, name: str) -> None:
        self._files.remove(self._path / name)
        if folder := self._own_folder(name):
            with suppress(OSError):  # it has others
                os.rmdir(folder, dir_fd=self._fd)

    def _own_folder(self, name: str) -> str:
        """Returns the folder of a name if it is made with its first file, and goes with its last; else ""."""
        folder = name.rpartition("/")[0]
        return "" if folder in self._places else folder

    def _make_folders(self, name: str) -> None:
        """Creates the folders that a name has, and no open log needs. It syncs them even if others made them."""
        above = self._path
        for part in self._own_folder(name).split("/"):
            if part:
                self._files.make_folder(above / part)
                self._place(above / part)
                self._files.sync_folder(above)
            above /= part

    def tidy(self) -> None:
        """Removes files whose writer was killed. One that writes just now writes another file."""
        for name in self.names("new/"):
            with suppress(IoError):
                self.remove(name)
        for folder in (*_OF_SEEDS, "run"):
            below = [f"{folder}/{name}" for name, _ in self._files.states(self._path / folder)]
            for at in (*below, folder):  # who is about to make a file there makes them again
                with suppress(OSError):  # it is no folder, or has something
                    os.rmdir(at, dir_fd=self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self._files.release(self._path)
            os.close(self._fd)
            self._fd = -1

    def _place(self, at: str | Path, fd: int | None = None) -> tuple[int, int]:
        """Identifies a folder, to which a path leads now; a relative one begins at a descriptor. IoError."""
        with typed_errors(self._path / at):
            status = os.stat(at, dir_fd=fd, follow_symlinks=at == self._path)
        if not stat.S_ISDIR(status.st_mode):
            raise IoError(f"{self._path / at} is no folder")
        return status.st_dev, status.st_ino

    def _check_there(self, name: str) -> None:
        """IoError unless the path of a name's folder leads to the one that was opened."""
        folder = name.rpartition("/")[0]
        if folder not in self._places:
            folder = ""
        if self._place(self._path / folder) != self._places[folder]:
            raise IoError(
                f"{self._path / folder} was replaced, or its disk was unmounted: bring it back"
            )
