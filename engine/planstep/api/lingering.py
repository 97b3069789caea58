"""Writers whose records are published after a time at the latest: one thread for all of an engine.

    write ─ first record since the last flush ─▶ due in `linger` seconds ─▶ flush, on this thread

A writer that is garbage is forgotten; one whose flush fails is tried again, and says so to its owner at
the next call. Next: writer.py.
"""

import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .writer import Writer


class Lingering:
    """Invariant: the thread runs from the first writer that lingers until `close`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[weakref.ref[Writer], float] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def at(self, writer: "Writer", seconds: float) -> None:
        """Flushes the writer in so many seconds, if it is still there."""
        with self._changed:
            self._due[weakref.ref(writer)] = time.monotonic() + seconds
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._serve, name="planstep-linger", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while True:
                    if self._closed:
                        return
                    now = time.monotonic()
                    due = [reference for reference, at in self._due.items() if at <= now]
                    if due:
                        break
                    first = min(self._due.values(), default=None)
                    self._changed.wait(None if first is None else first - now)
                for reference in due:
                    del self._due[reference]
            self._flush(due)

    def _flush(self, references: "list[weakref.ref[Writer]]") -> None:
        for reference in references:
            writer = reference()
            if writer is not None:
                writer._flush_late()

    def close(self) -> None:
        """Flushes what lingers, and ends the thread."""
        with self._changed:
            self._closed = True
            left = list(self._due)
            self._due.clear()
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._flush(left)
