"""Flushes writers after their `linger` seconds, on one thread for all writers of an engine.

    write ─ first record since the last flush ─▶ due in `linger` seconds ─▶ flush, on this thread

A writer that is garbage-collected is dropped. A flush that fails is tried again; its owner gets the error at the
writer's next call, or when the engine is closed. Next: writer.py.
"""

import threading
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple

from ...runtime.deferred_signals import Uninterrupted
from ...runtime.wait_primitives import Signal

Flush = Callable[[], "Late | None"]
"""A method of a writer: publishes the buffered records, and returns None if that succeeded."""


class Late(NamedTuple):
    """A failed flush in the background: the writer, the error, and the seconds until it is tried again."""

    writer: str
    error: Exception
    again_seconds: float


class Lingering:
    """The writers that wait, and their thread. Invariant: the thread runs while a writer waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = Signal()
        self._due: dict[weakref.WeakMethod[Flush], float] = {}
        self._thread: threading.Thread | None = None
        self._serving = False
        self._stopping = False

    def at(self, flush: Flush, seconds: float) -> None:
        """Calls a writer's method after so many seconds, unless the writer is garbage-collected before."""
        with Uninterrupted(), self._lock:
            self._due[weakref.WeakMethod(flush)] = time.monotonic() + seconds
            if not (self._serving or self._stopping):
                self._serving = True
                self._thread = threading.Thread(
                    target=self._serve, name="planstep-linger", daemon=True
                )
                self._thread.start()
        self._changed.set()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if self._stopping or not self._due:
                    self._serving = False
                    return
                now = time.monotonic()
                due = [reference for reference, at in self._due.items() if at <= now]
                for reference in due:
                    del self._due[reference]
                first = min(self._due.values(), default=now)
            if not due:
                self._changed.wait(first - now)
            for reference in due:
                flush = reference()
                late = None if flush is None else flush()
                if flush is not None and late is not None:
                    self.at(flush, late.again_seconds)

    def flush(self) -> list[Late]:
        """Flushes all waiting writers now, and returns the failures."""
        with self._lock:
            self._stopping, thread = True, self._thread
        self._changed.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._stopping = False
            flushes = [flush for reference in self._due if (flush := reference()) is not None]
            self._due.clear()
        return [late for flush in flushes if (late := flush()) is not None]
