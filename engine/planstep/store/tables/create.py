"""Creates LMDB's files durably: LMDB would create them in place, and sync neither their content nor their name.

    data.new ── LMDB's two first pages ─▶ synced ─▶ renamed to data.mdb ─▶ the store syncs the folder

Nothing else would sync them before the first checkpoint. A power loss in those seconds could leave a page of
zeros, which LMDB refuses, while acknowledged turns are in the log.

Next: table.py.
"""

import errno
import os
from pathlib import Path

import lmdb

from ...errors import NoSpace
from ..files import Files, check_own, io_error, open_file, typed_errors
from .header_check import DATA_FILE

READERS_MAX = 1024
_LOCK_BYTES = READERS_MAX * 64 + 4096  # 64 bytes a reader, and a header; LMDB takes more for more
_MAP_BYTES = 1 << 20  # later openings use a larger one


def make_file(folder: Path) -> None:
    """Creates the tables' file, without rows, if missing; all but its name is durable. lmdb.Error, IoError."""
    path, new = folder / DATA_FILE, folder / "data.new"
    with typed_errors(path):
        if path.exists() and path.stat().st_size:
            return
        new.unlink(missing_ok=True)
    files = Files()
    try:
        with lmdb.open(
            os.fspath(new),
            subdir=False,
            lock=False,
            map_size=_MAP_BYTES,
            mode=0o700,
            writemap=False,
            # Ignores $LMDB_DEFAULT_LIB_VERSION: every reader of LMDB 0.9 knows this version.
            lib_version=0,
        ):
            pass
        fd = files.open(new, write=True)
        try:
            files.sync(fd)
        finally:
            files.close(fd)
        files.rename(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def allocate_lock(folder: Path) -> None:
    """Allocates LMDB's lock file in full. LMDB makes it sparse and stores through a map of it: on a full disk that
    kills the process. An existing file is not opened, because closing it would release this process's locks on
    it.
    """
    path, new = folder / "lock.mdb", folder / f"lock-{os.getpid()}.new"
    try:
        try:
            check_own(os.lstat(path))
            return
        except FileNotFoundError:
            new.unlink(missing_ok=True)
        try:
            fd = open_file(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                Files().write(fd, [bytes(_LOCK_BYTES)], 0, False)
            finally:
                os.close(fd)
            os.link(new, path)
        finally:
            new.unlink(missing_ok=True)
    except FileExistsError:
        pass  # another process was faster
    except OSError as error:
        typed = io_error(error, path)
        if isinstance(typed, NoSpace) or error.errno == errno.ELOOP:
            raise typed from error
        # If the folder cannot be written to, LMDB raises its own error.
