"""Limits the bytes that are under way, so that a burst costs its callers time and not the engine memory.

    commit ─▶ room for its bytes? ─ no ─▶ wait ─▶ Overloaded after the time-out, before any effect
                     └ yes ─▶ counted until it is answered

A transaction larger than the limit is let in when it is alone. Messages between hosts, commits of
staged data and rollbacks never wait: they free room.

Next: group_commit.py.
"""

import threading
import time

from ..errors import Overloaded
from ..logs import overloaded

BYTES_MAX = 64 << 20
WAIT_SECONDS = 30.0


class Admission:
    """Counts bytes under way. Invariant: `bytes` is the sum of `_held`, the sizes admitted and not yet let go."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._held: dict[bytes, int] = {}
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting = 0
        self.waits = self.refused = 0

    def admit(self, tx: bytes, size: int, timeout: float | None) -> None:
        """Counts `size` bytes, after waiting for room at most `timeout` seconds (30 when None).

        Raises Overloaded when there was none: nothing was done.
        """
        with self._lock:  # not the condition: wait_primitives.py says why
            # Inlines `_fits`: every commit asks this.
            if self._waiting or (self.bytes and self.bytes + size > self.bytes_max):
                self._wait_for_room(size, WAIT_SECONDS if timeout is None else timeout)
            self._held[tx] = size
            self.bytes += size

    def _fits(self, size: int) -> bool:
        return not self.bytes or self.bytes + size <= self.bytes_max

    def _wait_for_room(self, size: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._waiting += 1
        self.waits += 1
        try:
            while not self._fits(size):
                self.bytes = sum(self._held.values())  # an interrupt may have left it behind
                remaining = deadline - time.monotonic()
                if self._fits(size):
                    return
                if remaining <= 0:
                    self.refused += 1
                    overloaded(self.bytes, size)
                    raise Overloaded(
                        f"{self.bytes:,} bytes are under way, the limit is {self.bytes_max:,}: no "
                        f"room for {size:,} more within {seconds:g} s; nothing was done: try "
                        "again, or commit less at a time"
                    )
                self._room.wait(remaining)
        finally:
            self._waiting -= 1
            self._room.notify_all()

    def share_out(self, tx: bytes, sizes: dict[bytes, int]) -> None:
        """Splits what was admitted as one, to be let go in parts, each under its own key."""
        with self._lock:
            whole = self._held.pop(tx)
            assert whole == sum(sizes.values())
            self._held |= sizes

    def let_go(self, tx: bytes) -> None:
        with self._lock:
            self.bytes -= self._held.pop(tx, 0)
            if self._waiting:
                self._room.notify_all()  # the longest waiting one may not fit
