"""Makes calls after a delay: messages on the way, and wake-ups that a tablet or client asked for.

    after(0.5 ms, call) ─▶ a heap by due time ─▶ one thread ─▶ call()

The thread begins with the first delay: an engine without delays has no such thread.

Next: turn_loop.py.
"""

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

from ..logs import tried_again

_WAIT_SECONDS_MAX = 3600.0
"""The thread looks again after this long: locks refuse to wait for centuries."""


class Delays:
    """Makes delayed calls on one thread. Invariants: calls due at the same time are made in the order in which
    they were asked for; none is made after `close`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def after(self, delay_ms: float, call: Callable[[], None]) -> None:
        due = time.monotonic() + delay_ms / 1000
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="planstep-delays", daemon=True
                )
                self._thread.start()
            first = not self._heap or due < self._heap[0][0]
            heapq.heappush(self._heap, (due, next(self._numbers), call))
            if first:
                self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._lock:
                while not self._closed:
                    remaining = self._heap[0][0] - time.monotonic() if self._heap else None
                    if remaining is not None and remaining <= 0:
                        break
                    self._changed.wait(remaining and min(remaining, _WAIT_SECONDS_MAX))
                if self._closed:
                    return
                _, _, call = heapq.heappop(self._heap)
            try:
                call()
            except Exception as error:
                tried_again("a delayed message", error)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._heap.clear()
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
