"""Simulates client processes of modes with data in place, which may crash, or pause and go on.

    Process: steps of an application ─▶ call ─▶ Client: the mode's client core ─▶ the line ─▶ hosts
               ▲ a delay in ms, an end ◀─────────── timers, answers ◀──────────────────┘

An application is a generator: it yields a delay in ms, or a call of its client, whose end it is sent. A paused
process receives nothing until it resumes; then everything that waited arrives. A producer that was declared
dead meanwhile, and does not know it, is a zombie.

Next: client_world.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ....host.inputs import Deliver
from ....proto.batch import encode_batch
from ....proto.ids import PROXY, host_of, tablet_id
from ....proxy.requests import Ended

if TYPE_CHECKING:
    from .client_world import ClientWorld

Do = Callable[[Any, bytes], None]
Steps = Generator["float | Do", Any, Any]


class Client(ABC):
    """Runs a client core as a process. After `crash` nothing reaches it, and its calls are never answered."""

    def __init__(self, world: "ClientWorld", number: int) -> None:
        self.world = world
        self.number = -number
        self.address = tablet_id(PROXY, 0, number)
        self.core: Any = self._core()
        self.alive = True
        self.waiting: dict[bytes, Callable[[Ended], None]] = {}
        self._calls = 0
        self._paused: list[Callable[[], None]] | None = None

    @abstractmethod
    def _core(self) -> Any: ...

    @abstractmethod
    def open(self, name: str, who: str) -> Steps:
        """Makes a producer: `name` is its application's, `who` this incarnation's; returns its handle, or None."""

    @abstractmethod
    def close(self, handle: Any) -> None: ...

    @abstractmethod
    def begin(self, handle: Any, tx: bytes) -> str:
        """Begins a transaction; returns "" or an error."""

    @abstractmethod
    def put(self, handle: Any, tx: bytes, batches: dict[int, Any]) -> None:
        """Sends batches of a transaction."""

    @abstractmethod
    def end(self, handle: Any, tx: bytes, commit: bool, offsets: Any = None) -> Steps:
        """Commits or aborts, and repeats until the outcome is known, or never will be.

        Returns (the outcome, or "unknown", the error).
        """

    @abstractmethod
    def dead(self, handle: Any) -> bool:
        """Returns whether a handle can be used no more."""

    @abstractmethod
    def plain(self, batches: dict[int, Any]) -> Do:
        """Makes a call that writes outside of transactions."""

    def call(self, do: Do, then: Callable[[Ended], None]) -> None:
        self._calls += 1
        call = self._calls.to_bytes(8, "big")
        self.waiting[call] = then
        do(self.core, call)
        self.pump()

    def pump(self) -> None:
        """Sends the core's requests, sets its timers, and reports ended calls."""
        client = self.core
        while client.out or client.timers or client.ended:
            out, timers, ended = client.take()
            for items in _requests(out):
                self.world.request(self, items)
            for delay_ms, token in timers:
                self.world.after(delay_ms, self.reach, client.wake, token)
            for end in ended:
                self.waiting.pop(end.call)(end)

    def reach(self, what: Callable[..., None], *args: object) -> None:
        """Runs `what` in this process: now, when it resumes, or never if it has crashed."""
        if self._paused is not None:
            self._paused.append(partial(self.reach, what, *args))
        elif self.alive:
            what(*args)
            self.pump()

    def send(self, handle: Any, tx: bytes, tablet: int, values: list[bytes]) -> None:
        batch = encode_batch(values, timestamp_ms=self.world.now_ms)
        self.put(handle, tx, {tablet: [(batch, len(values))]})
        self.pump()

    def crash(self) -> None:
        self.alive = False
        self._paused = None
        self.waiting.clear()

    def pause(self, ms: float) -> None:
        if self.alive and self._paused is None:
            self._paused = []
            self.world.after(ms, self.resume)

    def resume(self) -> None:
        """Ends a pause and delivers everything that waited, in order."""
        waiting, self._paused = self._paused, None
        for reach in waiting or ():
            reach()


class Process:
    """Runs an application step by step, until its generator or its client ends."""

    def __init__(self, client: Client, steps: Steps) -> None:
        self.client = client
        self.done = False
        self._steps = steps
        self._later(0, None)

    def _later(self, ms: float, answer: Any) -> None:
        self.client.world.after(ms, self.client.reach, self._go_on, answer)

    def _go_on(self, answer: Any) -> None:
        try:
            wants = self._steps.send(answer)
        except StopIteration:
            self.done = True
            return
        finally:
            self.client.pump()
        if callable(wants):
            # The end is scheduled as a separate event, because the core is still at work here.
            self.client.call(wants, lambda end: self._later(0, end))
        else:
            self._later(wants, None)


def _requests(out: list[tuple[int, Any, bytes | None]]) -> Iterator[list[Deliver]]:
    """Groups messages into wire requests: one request holds batches for several partitions of a host."""
    requests: dict[tuple[int, int], list[Deliver]] = {}
    for target, message, tx in out:
        key = message.request, host_of(target)
        requests.setdefault(key, []).append(Deliver(target, message, (tx, 0)))
    yield from requests.values()
