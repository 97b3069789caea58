"""Makes the folder that a store is copied into, before it gets its name: TO.incomplete/copy.

No open takes it for a store. A kill leaves it, and the next copy to TO removes it. Its lock keeps others out.

Next: replace_store.py.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import AlreadyExists, IoError, StoreInUse
from ..shared.files_log import check_outside
from ..store.files import Files, check_parent, io_error
from ..store.owner_lock import OwnerLock


@contextmanager
def making(to: Path, replace: bool = False) -> Iterator[Path]:
    """Makes the folder for the copy, and removes it with its contents afterwards unless it was renamed."""
    if not to.name:
        raise ValueError(f"{to} is no name for a folder to be made")
    if not replace and os.path.lexists(to):
        raise AlreadyExists(f"{to} exists: choose another name; `restore --force` replaces a store")
    around = to.with_name(to.name + ".incomplete")
    try:
        check_parent(to)
        check_outside(to)
        lock = _alone_in(around)
    except StoreInUse as error:
        raise AlreadyExists(f"{around}: process {error.pid} is making a copy there") from None
    except OSError as error:
        raise io_error(error, around) from error
    try:
        copy = around / "copy"
        if copy.exists():
            shutil.rmtree(copy)
        yield copy
    except OSError as error:
        raise io_error(error, to) from error
    finally:
        with suppress(OSError):  # `ignore_errors` does not cover all
            shutil.rmtree(around, ignore_errors=True)
        lock.close()


def _alone_in(around: Path) -> OwnerLock:
    """Takes the lock of a folder to copy in, which a killed backup may have left. Raises StoreInUse,
    AlreadyExists."""
    while True:
        around.mkdir(mode=0o700, exist_ok=True)
        try:
            names = {path.name for path in around.iterdir()}
            if names <= {"lock", "copy"}:
                return OwnerLock(around / "lock")
        except (FileNotFoundError, IoError):
            if around.exists():
                raise
            continue  # the backup that made it has just ended
        raise AlreadyExists(f"{around} is there, and was not left by a backup: remove it first")


def give_name(copy: Path, to: Path) -> None:
    """Renames the copy durably, or not at all."""
    files = Files()
    files.rename(copy, to)
    try:
        files.sync_folder(to.parent)
    except BaseException:
        files.rename(to, copy)
        raise
