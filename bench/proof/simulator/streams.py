"""Simulates the sockets between processes of one store: connections, cut at any byte, and what waits for them.

    sendmsg ─▶ pieces, cut anywhere, in order ─ each takes its time ─▶ the other end ─▶ recv_into
    close   ─▶ behind what was sent           cut ─▶ what is on its way is lost, from any byte on
    select, poll ─▶ wait in a fiber until an end can be read, has room, or was nudged

Bytes of one direction never overtake one another. The network loses nothing: a connection carries all, or ends.

Next: process.py.
"""

import errno
import itertools
import random
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from ....runtime.processes.armed import IN, OUT
from ....store.process_socket import NobodyListens, Peer
from .waits import Gate, Timed


@dataclass(frozen=True)
class Lines:
    """Holds the odds for each send: the end has no room for all of it, its bytes are late. All zero heals them."""

    full: float = 0.05
    late: float = 0.02
    cuts: float = 0.3
    """For another cut through the bytes of one send."""


QUIET = Lines(0.0, 0.0, 0.0)
_LONG = 500
"""So many bytes find no room twice as often as a few."""


class Network(Timed, Protocol):
    """A world with connections."""

    faulted: Counter[str]
    lines: Lines
    net: random.Random


class Source:
    """Something a selector waits for; each has a number in place of a descriptor."""

    _numbers = itertools.count(100)

    def __init__(self) -> None:
        self.watchers: list[Gate] = []
        self.number = 0

    def fileno(self) -> int:
        return self.number

    def can_read(self) -> bool:
        return False

    def can_write(self) -> bool:
        return False

    def changed(self) -> None:
        for gate in self.watchers:
            gate.open()


class Stream(Source):
    """One end of a connection (socket.socket). Invariant: what arrives is a prefix of what the other end sent."""

    def __init__(self, network: Network, number: int) -> None:
        super().__init__()
        self.number = number
        self.other: Stream
        self.closed = False
        """This end was closed: it neither sends nor receives."""
        self._network = network
        self._received = bytearray()
        self._ended = False  # the other end has closed, and all that it sent is here
        self.is_cut = False  # nothing arrives here any more
        self._arrives_at = 0.0  # the last piece that this end has sent
        self._full_until = 0.0
        self._gate = Gate(network)
        self._timeout: float | None = None
        self.watchers.append(self._gate)

    # sending -------------------------------------------------------------------------------

    def sendmsg(self, buffers: Iterable[Any], _ancillary: Any = (), _flags: int = 0) -> int:
        network = self._network
        if self.closed or self.other.closed:
            raise BrokenPipeError(errno.EPIPE, "the other end is closed")
        if self._full_until > network.now:
            raise BlockingIOError
        data = b"".join(buffers)
        if network.net.random() < network.lines.full * (1 + len(data) / _LONG):
            network.faulted["link full"] += 1
            data = data[: network.net.randrange(len(data) + 1)]
            ms = network.net.uniform(0.1, 20)
            self._full_until = network.now + ms
            network.after(ms, self.changed)
            if not data:
                raise BlockingIOError
        self._carry(data)
        return len(data)

    def sendall(self, data: Any) -> None:
        self._carry(bytes(data))

    def _carry(self, data: bytes) -> None:
        """Sends bytes on their way, in pieces."""
        net, lines = self._network.net, self._network.lines
        delay_ms = net.uniform(0.02, 0.2)
        if net.random() < lines.late:
            self._network.faulted["frames late"] += 1
            delay_ms = net.uniform(1, net.choice((10, 100, 400)))
        while data:
            whole = len(data) == 1 or net.random() >= lines.cuts
            end = len(data) if whole else net.randrange(1, len(data))
            self._send_piece(data[:end], delay_ms)
            data, delay_ms = data[end:], net.uniform(0, 1)

    def _send_piece(self, piece: bytes, delay_ms: float) -> None:
        now = self._network.now
        self._arrives_at = max(self._arrives_at, now + delay_ms)
        self._network.after(self._arrives_at - now, self.other.arrive, piece)

    def arrive(self, piece: bytes) -> None:
        """Takes bytes of the other end; none: it has closed."""
        if self.is_cut or self.closed:
            return
        self._received += piece
        self._ended = self._ended or not piece
        self.changed()

    # receiving -----------------------------------------------------------------------------

    def can_read(self) -> bool:
        return not self.closed and bool(self._received or self._ended)

    def can_write(self) -> bool:
        return self._full_until <= self._network.now

    def recv_into(self, buffer: memoryview) -> int:
        data = self._take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def recv(self, size: int) -> bytes:
        """Waits for bytes, and returns some; none when the other end has closed. TimeoutError."""
        until = None if self._timeout is None else self._network.now + 1000 * self._timeout
        while not self.can_read():
            if until is not None and self._network.now >= until:
                raise TimeoutError
            self._gate.wait(None if until is None else until - self._network.now)
        return self._take(size)

    def _take(self, size: int) -> bytes:
        if self.closed:
            raise OSError(errno.EBADF, "this end is closed")
        if not self._received and not self._ended:
            raise BlockingIOError
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def setblocking(self, _: bool) -> None: ...

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    # the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes this end; what it has sent arrives."""
        if not self.closed:
            self.closed = True
            self._received.clear()
            self._send_piece(b"", 0.0)

    def cut(self) -> None:
        """Ends the connection for both: what is on its way is lost."""
        for end in (self, self.other):
            if not end.closed and not end.is_cut:
                self._network.after(self._network.net.uniform(0, 5), end.end)
            end.is_cut = True

    def die(self, lost: bool) -> None:
        """Ends with its process. `lost`: what it has sent, and is on its way, does not arrive."""
        if lost:
            self.cut()
            self.closed = True
        else:
            self.close()

    def end(self) -> None:
        """Notes that nothing more arrives."""
        self._ended = True
        self.changed()


class NudgeSocket(Source):
    """The source of a Nudge."""

    is_set = False

    def can_read(self) -> bool:
        return self.is_set


class Nudge:
    """A source that is readable from `set` to `clear` (runtime/processes/nudge.py)."""

    def __init__(self, number: int) -> None:
        self.socket = NudgeSocket()
        self.socket.number = number

    def set(self) -> None:
        self.socket.is_set = True
        self.socket.changed()

    def put(self, _: None) -> None:
        self.set()

    def clear(self) -> None:
        self.socket.is_set = False

    def close(self) -> None: ...


class Poller:
    """Waits for sources, in a fiber, with the events that epoll has (runtime/processes/armed.py). Each look takes a
    moment of its process."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._gate = Gate(network)
        self._events: dict[Source, int] = {}

    def register(self, source: Source, events: int) -> None:
        assert source not in self._events
        self._events[source] = events
        source.watchers.append(self._gate)
        if self._ready():
            self._gate.open()

    def modify(self, source: Source, events: int) -> None:
        self.unregister(source)
        self.register(source, events)

    def unregister(self, source: Source) -> None:
        del self._events[source]
        source.watchers.remove(self._gate)

    def poll(self, seconds: float | None = None) -> list[tuple[int, int]]:
        network = self._network
        until = None if seconds is None else network.now + 1000 * max(0.0, seconds)
        Gate(network).wait(network.net.uniform(0.005, 0.05))
        while not (ready := self._ready()) and (until is None or network.now < until):
            self._gate.wait(None if until is None else until - network.now)
        return ready

    def _ready(self) -> list[tuple[int, int]]:
        found = []
        for source, wanted in self._events.items():
            reads = wanted & IN and source.can_read()
            writes = wanted & OUT and source.can_write()
            if reads or writes:
                found.append((source.fileno(), IN * bool(reads) | OUT * bool(writes)))
        return found

    def close(self) -> None:
        for source in list(self._events):
            self.unregister(source)


class Poll(Poller):
    """Waits for sources that can be read (select.poll)."""

    def register(self, source: Source, _events: int = IN) -> None:
        super().register(source, IN)

    def poll(self, ms: float | None = None) -> list[tuple[int, int]]:
        return super().poll(None if ms is None else ms / 1000)


class Listener(Source):
    """An owner's listening socket, and what has connected to it (store/process_socket.py)."""

    folder = Path("store/host-0")

    def __init__(self, network: Network, pid: int) -> None:
        super().__init__()
        self.pid = pid
        self.closed = False
        self.connected: deque[tuple[Stream, Peer]] = deque()
        self._network = network

    @property
    def socket(self) -> "Listener":
        return self

    def can_read(self) -> bool:
        return bool(self.connected)

    def accept(self) -> tuple[Stream, Peer] | None:
        return self.connected.popleft() if self.connected else None

    def stay(self) -> None: ...

    def others(self) -> list[int]:
        return []

    def end(self) -> None: ...

    def close(self) -> None:
        self.closed = True
        while self.connected:
            self.connected.popleft()[0].close()


def connect(network: Network, listener: Listener | None, pid: int, number: int) -> Stream:
    """Connects a process to an owner; returns the process's end. NobodyListens."""
    if listener is None or listener.closed:
        raise NobodyListens("no owner listens")
    ends = Stream(network, number), Stream(network, number + 1)
    ends[0].other, ends[1].other = ends[1], ends[0]
    listener.connected.append((ends[1], Peer(pid, 0)))
    listener.changed()
    return ends[0]


def select_for(network: Network) -> Any:
    """Returns what stands for the module `select`."""
    return SimpleNamespace(poll=partial(Poll, network), POLLIN=IN)
