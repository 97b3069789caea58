"""Reserves spare file descriptors so the store can still open a segment when the process runs out.

    no descriptor left ─▶ all of the process's stores close their spares, and the files
                          they keep open only for reading ─▶ tried again ─▶ reserved again

Each store reserves its own. One in need closes those of all stores, under a lock: another thread may take
a closed descriptor at once.

Next: log/segments.py.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import IoError
from .files import Files

DESCRIPTORS_ASIDE = 2
"""Spares of one store: for its next segment, and for a short use while both segments are open."""
_T = TypeVar("_T")
_all: "dict[FdReserve, None]" = {}
_lock = threading.RLock()


class FdReserve:
    """One store's spares. Invariant: it is in `_all` while it holds any; they are opened and closed under
    `_lock`.
    """

    def __init__(self, path: Path, files: Files, spare: Callable[[], None]) -> None:
        """`spare` closes files that can be opened again; it must not block."""
        self._path = path
        self._files = files
        self._spare = spare
        self._held: list[int] = []
        self._closed = False

    def keep(self) -> None:
        """Opens as many spares as are missing, as far as the process has descriptors."""
        with _lock:
            if not self._closed:
                _all[self] = None
                self.fill()

    def close(self) -> None:
        with _lock:
            self._closed = True
            _all.pop(self, None)
            self.let_go()

    def fill(self) -> None:
        """Opens the missing spares; the caller holds `_lock`."""
        while len(self._held) < DESCRIPTORS_ASIDE:
            try:
                self._held.append(self._files.open(self._path, write=False))
            except IoError:
                return

    def let_go(self) -> None:
        """Closes the spares; the caller holds `_lock`."""
        self._spare()
        while self._held:
            self._files.close(self._held.pop())


def with_reserve_released(call: Callable[[], _T]) -> _T:
    """Runs `call()` while no store of the process holds a spare. TooManyOpen."""
    with _lock:
        for aside in _all:
            aside.let_go()
        try:
            return call()
        finally:
            for aside in _all:
                aside.fill()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent may have held it
    _all.clear()


os.register_at_fork(after_in_child=_after_fork)
