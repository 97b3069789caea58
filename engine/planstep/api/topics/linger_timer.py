"""Writers whose records are published after a time at the latest: one thread for all of an engine.

    write ─ first record since the last flush ─▶ due in `linger` seconds ─▶ flush, on this thread

A writer that is garbage is forgotten; one whose flush fails is tried again, and says so to its owner at
the next call, or when the engine is closed. Next: writer.py.
"""

import threading
import time
import weakref
from typing import TYPE_CHECKING

from ...runtime.deferred_signals import Uninterrupted
from ...runtime.wait_primitives import Signal

if TYPE_CHECKING:
    from .writer import Writer


class Lingering:
    """Invariant: the thread runs while some writer is due."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = Signal()
        self._due: dict[weakref.ref[Writer], float] = {}
        self._thread: threading.Thread | None = None
        self._serving = False
        self._stopping = False

    def at(self, writer: "Writer", seconds: float) -> None:
        """Flushes the writer in so many seconds, if it is still there."""
        with Uninterrupted(), self._lock:
            self._due[weakref.ref(writer)] = time.monotonic() + seconds
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
                writer = reference()
                if writer is not None and not writer.flush_late():
                    self.at(writer, writer.again_seconds)

    def flush(self) -> list["Writer"]:
        """Flushes all that lingers; those whose flush failed."""
        with self._lock:
            self._stopping, thread = True, self._thread
        self._changed.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._stopping = False
            left = [writer for reference in self._due if (writer := reference()) is not None]
            self._due.clear()
        return [writer for writer in left if not writer.flush_late()]
