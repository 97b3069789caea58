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
    """Waits for descriptors; another thread may change what is waited for. Events of 0: for nothing."""

    def register(self, fd: int, events: int) -> None: ...
    def modify(self, fd: int, events: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def poll(self) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


class BySelector:
    """Does on each system what epoll does on Linux."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._events: dict[int, int] = {}

    def register(self, fd: int, events: int) -> None:
        self._events[fd] = 0
        self.modify(fd, events)

    def modify(self, fd: int, events: int) -> None:
        if self._events[fd]:
            self._selector.unregister(fd)
        if events:
            reads, writes = bool(events & IN), bool(events & OUT)
            wanted = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * writes
            self._selector.register(fd, wanted)
        self._events[fd] = events

    def unregister(self, fd: int) -> None:
        self.modify(fd, 0)
        del self._events[fd]

    def poll(self) -> list[tuple[int, int]]:
        ready = self._selector.select()
        return [(key.fd, IN if events & selectors.EVENT_READ else OUT) for key, events in ready]

    def close(self) -> None:
        self._selector.close()


def new_poller() -> Poller:
    return select.epoll() if hasattr(select, "epoll") else BySelector()


class Armed:
    """Waits for one socket, which may be exchanged, and for a nudge, which it clears. It waits for the socket to be
    readable while it is armed, and to be writable while `writes()`."""

    def __init__(self, nudge: Nudge, writes: Callable[[], bool], poller: Poller) -> None:
        self._nudge, self._writes, self._poller = nudge, writes, poller
        self._nudged = nudge.socket.fileno()
        self._changing = threading.Lock()
        self._armed = False
        self._fd = -1
        self._events = 0
        poller.register(self._nudged, IN)

    def use(self, link: socket.socket | None) -> None:
        """Goes on with another socket, or with none: one that has ended would be ready for ever."""
        with self._changing:
            if self._fd >= 0:
                self._poller.unregister(self._fd)
            self._fd, self._events = -1 if link is None else link.fileno(), 0
            if self._fd >= 0:
                self._poller.register(self._fd, 0)
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
        if events != self._events and self._fd >= 0:
            self._poller.modify(self._fd, events)
            self._events = events

    def wait(self) -> bool:
        """Waits for anything; returns whether the socket can be read, and is armed."""
        readable = False
        for fd, events in self._poller.poll():
            if fd == self._nudged:
                self._nudge.clear()
            elif events & ~OUT and self._armed:
                readable = True
        return readable

    def close(self) -> None:
        self._poller.close()
