"""Opens LMDB, also in a forked child whose parent has, or had, the same files open.

    open ─▶ "already open in this process" ─ by this process ─▶ StoreInUse
                                           └ by the parent ───▶ opened in addition to the inherited one

py-lmdb remembers open files by device and inode, and a fork inherits that memory. It guards against two
environments that share fcntl locks; a fork inherits none of those. Closing the inherited environment would
free the parent's reader slots in the lock file that both map. So it stays as it is, unused, and the child's
own is remembered under a different name.

Next: header_check.py.
"""

import os
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import lmdb

from ...errors import ForkedProcess, StoreInUse
from ..files import shown

try:
    _envid: Any = import_module("lmdb._envid")
except ImportError:  # another version: its memory of the parent is not ours to change
    _envid = None
_keys: Any = getattr(_envid, "env_keys", None)
_renaming = threading.Lock()
_own: set[tuple[int, int]] = set()
"""Files that this process itself has open: (device, inode)."""


def open_environment(folder: Path, **settings: Any) -> tuple[Any, tuple[int, int]]:
    """Opens LMDB with lmdb.open's settings; returns (environment, the key for `close_environment`).

    StoreInUse, ForkedProcess if the files are open already and cannot be opened again.
    """
    try:
        env = lmdb.open(os.fspath(folder), **settings)
    except lmdb.Error as error:
        if "already open" not in str(error):
            raise
        if file_key(folder) in _own:
            raise StoreInUse(os.getpid(), None) from error
        env = _open_beside(folder, settings)
    try:
        opened = env, file_key(folder)
        _own.add(opened[1])
    except BaseException:
        env.close()
        raise
    return opened


def close_environment(env: Any, key: tuple[int, int]) -> None:
    env.close()
    _own.discard(key)


def file_key(folder: Path) -> tuple[int, int]:
    """Identifies the tables' file by device and inode, whatever its name."""
    status = os.stat(folder / "data.mdb")
    return status.st_dev, status.st_ino


def _open_beside(folder: Path, settings: dict[str, Any]) -> Any:
    if _keys is None:
        raise _impossible(folder)
    with _renaming:
        try:
            _envid.env_keys = _renamed
            return lmdb.open(os.fspath(folder), **settings)
        except lmdb.Error as error:
            if "already open" not in str(error):
                raise
            raise _impossible(folder) from error
        finally:
            _envid.env_keys = _keys


def _impossible(folder: Path) -> ForkedProcess:
    return ForkedProcess(
        f"{shown(folder)}: the tables were open when this process was forked, and this version of "
        "py-lmdb cannot open them again; fork before opening, or start a process anew (spawn)"
    )


def _renamed(path: Any, subdir: bool) -> tuple[Any, ...]:
    return tuple(("after a fork", os.getpid(), *key) for key in _keys(path, subdir))


def _after_fork() -> None:
    global _renaming
    _renaming = threading.Lock()  # a thread of the parent may have held it
    if _keys is not None:
        _envid.env_keys = _keys
    _own.clear()


os.register_at_fork(after_in_child=_after_fork)
