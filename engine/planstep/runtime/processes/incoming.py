"""Receives what the store's owner sends over one connection.

    ready ─ the socket, or a signal, or the time is over ─▶ frames ─ their bytes, as far as they have come
                                                                  └▶ None: the owner is gone

Next: link.py.
"""

import select
import socket
import time
from collections.abc import Iterator

from ...proto.frame_codec import Decoder
from ...proto.frames import Frame
from ..deferred_signals import Uninterrupted
from .awake import Awake
from .nudge import Nudge

_RECEIVED_MAX = 256 << 10


class Incoming:
    """Not for several threads at a time: the holder of the node's lead uses it."""

    def __init__(self, nudge: Nudge, waits: Awake, link: socket.socket, decoder: Decoder) -> None:
        """`nudge`: what a signal sets that ends a wait."""
        self._nudge, self._waits = nudge, waits
        self._socket, self._decoder = link, decoder
        self.heard_at = time.monotonic()
        """When the owner was last heard."""
        self._buffer = memoryview(bytearray(_RECEIVED_MAX))
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._poll.register(nudge.socket, select.POLLIN)

    def ready(self, seconds: float, block: Uninterrupted | None) -> bool:
        """Waits for the socket; returns False when `seconds` are over, or a signal has come that `block` defers."""
        try:
            if block is not None and block.tells(self._nudge):
                return False
            ready = self._waits.wait(self._look, seconds)
        finally:
            if block is not None:
                block.tells(None)
        if any(fd == self._nudge.socket.fileno() for fd, _ in ready):
            self._nudge.clear()
            return False
        return True

    def _look(self, seconds: float | None) -> list[tuple[int, int]]:
        return self._poll.poll(None if seconds is None else seconds * 1000)

    def frames(self) -> Iterator[Frame] | None:
        """Returns the frames that have come, perhaps none; None when the connection has ended. Exhaust it.
        MalformedFrame, from the iterator."""
        try:
            size = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return iter(())
        except OSError:
            return None
        self.heard_at = time.monotonic()
        return self._decoder.feed(self._buffer[:size]) if size else None
