"""Descriptors that stand for nothing: held so that others of the process cannot take them.

    no descriptor left ─▶ all of the process's stores let go what they hold aside, and what
                          they hold only to read from it again ─▶ tried again ─▶ held again

Each store holds its own, and in need has all of them: what one lets go another's thread may take at once.

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
"""A store's: the next segment's, and one for what needs it for a moment, while both segments are open."""
_T = TypeVar("_T")
_all: "dict[Aside, None]" = {}
_lock = threading.RLock()


class Aside:
    """Invariant: it is in `_all` while it holds any; they are let go and taken under `_lock` only."""

    def __init__(self, path: Path, files: Files, spare: Callable[[], None]) -> None:
        """`spare`: closes what is open and can be opened again; it must not wait."""
        self._path = path
        self._files = files
        self._spare = spare
        self._held: list[int] = []
        self._closed = False

    def keep(self) -> None:
        """As many as it lacks and are to be had."""
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
        """Under `_lock`."""
        while len(self._held) < DESCRIPTORS_ASIDE:
            try:
                self._held.append(self._files.open(self._path, write=False))
            except IoError:
                return

    def let_go(self) -> None:
        """Under `_lock`."""
        self._spare()
        while self._held:
            self._files.close(self._held.pop())


def with_all_spare(call: Callable[[], _T]) -> _T:
    """`call()` while no store of the process holds any to spare. TooManyOpen."""
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
    _lock = threading.RLock()  # a thread of the parent's may have held it
    _all.clear()


os.register_at_fork(after_in_child=_after_fork)
