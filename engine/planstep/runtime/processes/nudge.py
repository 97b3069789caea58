"""Wakes a thread that waits for sockets.

Next: link.py.
"""

import socket
from contextlib import suppress

from ..deferred_signals import Uninterrupted


class Nudge:
    """A socket that is readable from `set` to `clear`. It can stand for the queue that Uninterrupted tells."""

    def __init__(self) -> None:
        self.socket, self._other = socket.socketpair()
        self.socket.setblocking(False)
        self._other.setblocking(False)
        self._is_set = False

    def set(self) -> None:
        if not self._is_set:
            with Uninterrupted():  # a flag without its byte would be for ever
                self._is_set = True
                with suppress(OSError):  # full: it is readable; closed: nobody waits
                    self._other.send(b"!")

    def put(self, _: None) -> None:
        """Sets it, as a queue would be."""
        self.set()

    def clear(self) -> None:
        """Clears it. Whoever waits looks at everything after that."""
        with suppress(OSError):
            while len(self.socket.recv(64)) == 64:
                pass
        self._is_set = (
            False  # behind it: a byte of a `set` in between would be taken, and none sent again
        )

    def close(self) -> None:
        self.socket.close()
        self._other.close()
