"""Makes the folder that a store is copied into, before it gets its name: TO.incomplete/copy.

    TO.incomplete   lock
                    copy            being made, or left by a kill: then the next copy to TO removes it
                    read-<8 hex>    a store that was replaced while other processes read it

No open takes one of these for a store. The lock keeps others out.

Next: replace_store.py.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..errors import AlreadyExists, IoError, PlanstepError, StoreInUse
from ..shared.files_log import check_outside
from ..store.files import Files, check_parent, io_error
from ..store.owner_lock import OwnerLock
from ..store.readers.reader_lease import readers

_READ = "read-"


@contextmanager
def making(to: Path, replace: bool = False) -> Iterator[Path]:
    """Makes the folder for the copy, and removes it with its contents afterwards unless it was renamed."""
    if not to.name:
        raise ValueError(f"{to} is no name for a folder to be made")
    if not replace and os.path.lexists(to):
        raise AlreadyExists(f"{to} exists: choose another name; `restore --force` replaces a store")
    around = _around(to)
    try:
        check_parent(to)
        check_outside(to)
        lock = _alone_in(around)
    except StoreInUse as error:
        raise AlreadyExists(f"{around}: process {error.pid} is making a copy there") from None
    except OSError as error:
        raise io_error(error, around) from error
    try:
        _sync(around)
        _remove_unread(around)
        yield around / "copy"
    except OSError as error:
        raise io_error(error, to) from error
    finally:
        _leave(around)
        lock.close()


def remove_leftover(to: Path) -> None:
    """Removes what killed copies to `to` left, and replaced stores that nobody reads any more, as far as possible.

    The store at `to` is whole, and stays so while this runs.
    """
    around = _around(to)
    if not around.is_dir():
        return
    with suppress(OSError, PlanstepError), closing(_alone_in(around)):
        _sync(around)
        _leave(around)


def _around(to: Path) -> Path:
    return to.with_name(to.name + ".incomplete")


def _sync(around: Path) -> None:
    """Makes an exchange of names durable, behind which a kill may have come: the earlier store goes after that."""
    if any(path.name != "lock" for path in around.iterdir()):
        Files().sync_folder(around.parent)
        Files().sync_folder(around)


def _leave(around: Path) -> None:
    with suppress(OSError, PlanstepError):
        _remove_unread(around)
        if {path.name for path in around.iterdir()} == {"lock"}:
            shutil.rmtree(around, ignore_errors=True)


def _remove_unread(around: Path) -> None:
    """Removes all that nobody reads. What `copy` is then gets another name if others read it. OSError, IoError."""
    for path in [path for path in around.iterdir() if path.name != "lock"]:
        if not any(readers(host) for host in path.glob("host-*")):
            shutil.rmtree(path)
        elif path.name == "copy":
            path.rename(around / f"{_READ}{os.urandom(4).hex()}")


def _alone_in(around: Path) -> OwnerLock:
    """Takes the lock of a folder to copy in, which a killed backup may have left. Raises StoreInUse,
    AlreadyExists."""
    while True:
        around.mkdir(mode=0o700, exist_ok=True)
        try:
            names = {path.name for path in around.iterdir()}
            if all(name in ("lock", "copy") or name.startswith(_READ) for name in names):
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
