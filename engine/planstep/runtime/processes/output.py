"""Sends buffers over a socket that does not block, from where they are.

Next: link.py.
"""

import socket
from collections import deque

from ...proto.frame_codec import Buffer

_BUFFERS = 512
"""The system takes at most 1,024 at a time."""


class Output:
    """Buffers to send, in order. Not for several threads at a time."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._buffers: deque[Buffer] = deque()
        self.size = 0
        """The bytes that wait."""

    def __len__(self) -> int:
        """Returns how many buffers wait."""
        return len(self._buffers)

    @property
    def waits(self) -> bool:
        """Returns whether the socket had no room for all of them."""
        return bool(self._buffers)

    def add(self, buffers: list[Buffer]) -> None:
        self._buffers.extend(buffers)
        self.size += sum(map(len, buffers))

    def send(self) -> None:
        """Sends as much as the socket takes. OSError when the link is gone."""
        buffers = self._buffers
        while buffers:
            some = [buffers[n] for n in range(min(len(buffers), _BUFFERS))]
            try:
                sent = self._link.sendmsg(some, (), _FLAGS)
            except BlockingIOError:
                return
            self.size -= sent
            while buffers and sent >= len(buffers[0]):
                sent -= len(buffers.popleft())
            if sent:
                buffers[0] = memoryview(buffers[0])[sent:]


_FLAGS = int(socket.MSG_DONTWAIT) | int(getattr(socket, "MSG_NOSIGNAL", 0))
