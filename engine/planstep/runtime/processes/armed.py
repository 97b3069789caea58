"""Has a thread wait for a nudge, and for a socket while that is wanted; other threads change that meanwhile.

    arm, disarm ─▶ epoll: one call of the system, as each commit needs both
                 └▶ elsewhere: registered with a selector, and removed again

Next: link.py.
"""

import select
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from .nudge import Nudge

IN, OUT = 1, 4
"""As epoll has them."""


class Poller(Protocol):
    """Waits for sockets; another thread may change what is waited for. Events of 0: for nothing.

    `poll` returns (descriptor, events) of those that are ready; epoll adds the end of a link to the events.
    """

    def register(self, link: socket.socket, events: int) -> None: ...
    def modify(self, link: socket.socket, events: int) -> None: ...
    def unregister(self, link: socket.socket) -> None: ...
    def poll(self, seconds: float | None = None, /) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


class BySelector:
    """Does on each system what epoll does on Linux."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._events: dict[socket.socket, int] = {}

    def register(self, link: socket.socket, events: int) -> None:
        self._events[link] = 0
        self.modify(link, events)

    def modify(self, link: socket.socket, events: int) -> None:
        if self._events[link]:
            self._selector.unregister(link)
        if events:
            reads, writes = bool(events & IN), bool(events & OUT)
            wanted = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * writes
            self._selector.register(link, wanted)
        self._events[link] = events

    def unregister(self, link: socket.socket) -> None:
        self.modify(link, 0)
        del self._events[link]

    def poll(self, seconds: float | None = None, /) -> list[tuple[int, int]]:
        reads, writes = selectors.EVENT_READ, selectors.EVENT_WRITE
        return [
            (key.fd, IN * bool(events & reads) | OUT * bool(events & writes))
            for key, events in self._selector.select(seconds)
        ]

    def close(self) -> None:
        self._selector.close()


def new_poller() -> Poller:
    return select.epoll() if hasattr(select, "epoll") else BySelector()


class Armed:
    """Waits for one socket, which may be exchanged, and for a nudge, which it clears. It waits for the socket to be
    readable while it is armed, and to be writable while `writes()`."""

    def __init__(self, nudge: Nudge, writes: Callable[[], bool], poller: Poller) -> None:
        self._nudge, self._writes, self._poller = nudge, writes, poller
        self._changing = threading.Lock()
        self._armed = False
        self._socket: socket.socket | None = None
        self._events = 0
        poller.register(nudge.socket, IN)

    def use(self, link: socket.socket | None) -> None:
        """Goes on with another socket, or with none: one that has ended would be ready for ever."""
        with self._changing:
            if self._socket is not None:
                self._poller.unregister(self._socket)
            self._socket, self._events = link, 0
            if link is not None:
                self._poller.register(link, 0)
                self._wait_anew()

    def arm(self) -> None:
        self._armed = True
        self.look()

    def disarm(self) -> None:
        self._armed = False
        self.look()

    def look(self) -> None:
        """Looks whether there is something to write."""
        with self._changing:
            self._wait_anew()

    def _wait_anew(self) -> None:
        events = (
            IN * self._armed | OUT * self._writes()
        )  # read under the lock: the last look has the newest
        if events != self._events and self._socket is not None:
            self._poller.modify(self._socket, events)
            self._events = events

    def wait(self) -> bool:
        """Waits for anything; returns whether the socket can be read, and is armed."""
        nudged, readable = self._nudge.socket.fileno(), False
        for fd, events in self._poller.poll():
            if fd == nudged:
                self._nudge.clear()
            elif events & ~OUT and self._armed:
                readable = True
        return readable

    def close(self) -> None:
        self._poller.close()
