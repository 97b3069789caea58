"""Keeps one engine per path and process, while it is open and while it is being closed.

    open ─▶ slot of the real path ─▶ engine? ─▶ is it being closed? wait ─▶ `opens` counts who shares it

A forked child forgets the parent's engines.

Next: lifetime.py.
"""

import atexit
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import StoreInUse

if TYPE_CHECKING:
    from ..runtime.runtime import Runtime
    from ..store import DiskStore, Store
    from .engine import Engine
    from .lifetime import Lifetime


MEMORY = ":memory:"
"""The path of stores in memory, which have no slot."""


def in_use(why: str) -> StoreInUse:
    """Makes the error of an open engine of this process that cannot be shared."""
    error = StoreInUse(os.getpid(), None)
    error.args = (why,)
    return error


class Slot:
    """A path of this process: its engine if open, or the one that is being closed, and a lock for both.

    The lock is not held while an engine closes: its threads run callbacks, which may open or close engines.
    """

    __slots__ = ("closing", "engine", "folder", "lock", "opened", "store", "told")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engine: Engine | None = None
        self.closing: Lifetime | None = None
        self.folder: tuple[int, int] | None = None
        self.opened: list[Store | Runtime] = []  # by an open that has not finished
        self.store: DiskStore | None = None
        """Handed over by a follower, for the next open."""
        self.told: Callable[[int], object] | None = None

    def __enter__(self) -> None:
        """Takes the lock once no engine of this path is being closed."""
        while True:
            closing = self.closing
            if closing is not None:
                closing.wait_closed()
            self.lock.acquire()
            if self.closing is None:
                return
            self.lock.release()

    def __exit__(self, *exc: object) -> None:
        self.lock.release()


def folder_of(path: str) -> tuple[int, int] | None:
    """Identifies a folder whatever its name: device and inode; None in memory, or when it is gone."""
    try:
        status = os.stat(os.path.join(path, "host-0"))
    except OSError:
        return None
    return status.st_dev, status.st_ino


_slots: dict[str, Slot] = {}


def slot_of(real: str) -> Slot:
    return _slots.setdefault(real, Slot())


def _close_all() -> None:
    for slot in list(_slots.values()):
        engine = slot.engine
        if engine is not None:
            engine.lifetime.close_at_exit()


# A forked child forgets the parent's engines, and the locks that its threads held.
os.register_at_fork(after_in_child=_slots.clear)
atexit.register(_close_all)
