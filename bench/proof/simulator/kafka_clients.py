"""Clients of a simulated world of mode "kafka": processes that crash, are stopped for a while, and go on.

    Process: steps of an application ─▶ call ─▶ Client: ../../../proxy/kafka/client.py ─▶ the line ─▶ hosts
               ▲ a delay in ms, an end ◀─────────── timers, answers ◀──────────────────┘

What an application does is a generator: it yields a delay in ms, or a call of its client, which it is told the
end of. Nothing reaches a process while it is paused; then all comes that has waited: a producer that
was taken for dead, and does not know it, is a zombie.

Next: kafka_world.py.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ....host.inputs import Deliver
from ....proto.ids import PROXY, host_of, tablet_id
from ....proto.kafka.coordinators import coordinator_of, group_of
from ....proto.shell import Answer
from ....proxy.kafka import client as core
from ....proxy.kafka.client import Ended

if TYPE_CHECKING:
    from .kafka_world import KafkaWorld

Do = Callable[[core.Client, bytes], None]
Steps = Generator["float | Do", Any, Any]


class Client:
    """A process with its client core. After `crash` nothing reaches it, and nobody is told."""

    def __init__(self, world: "KafkaWorld", number: int) -> None:
        self.world = world
        self.end = -number
        self.address = tablet_id(PROXY, 0, number)
        self.core = core.Client(
            self.address,
            world.settings,
            partial(coordinator_of, hosts=world.hosts),
            partial(group_of, hosts=world.hosts),
        )
        self.alive = True
        self.waiting: dict[bytes, Callable[[Ended], None]] = {}
        self._calls = 0
        self._paused: list[Callable[[], None]] | None = None

    def call(self, do: Do, then: Callable[[Ended], None]) -> None:
        self._calls += 1
        call = self._calls.to_bytes(8, "big")
        self.waiting[call] = then
        do(self.core, call)
        self.pump()

    def pump(self) -> None:
        """Sends what the core has put out, and tells the ends of calls."""
        made = self.core
        while made.out or made.timers or made.ended:
            out, timers, ended = made.take()
            for items in _requests(out):
                self.world.request(self, items)
            for delay_ms, token in timers:
                self.world.after(delay_ms, partial(self.reach, partial(self._wake, token)))
            for end in ended:
                self.waiting.pop(end.call)(end)

    def reach(self, what: Callable[[], None]) -> None:
        """Something comes to this process: now, once it goes on, or never."""
        if self._paused is not None:
            self._paused.append(what)
        elif self.alive:
            what()

    def take(self, answer: Answer) -> None:
        self.reach(partial(self._take, answer))

    def _take(self, answer: Answer) -> None:
        self.core.handle(answer)
        self.pump()

    def _wake(self, token: int) -> None:
        self.core.wake(token)
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
        """All that came meanwhile comes now, in its order."""
        waited, self._paused = self._paused, None
        for what in waited or ():
            self.reach(what)


class Process:
    """What an application does, step by step, until its client ends."""

    def __init__(self, client: Client, steps: Steps) -> None:
        self.client = client
        self.done = False
        self._steps = steps
        self._later(0, None)

    def _later(self, ms: float, told: Any) -> None:
        self.client.world.after(ms, partial(self.client.reach, partial(self._go_on, told)))

    def _go_on(self, told: Any) -> None:
        try:
            wants = self._steps.send(told)
        except StopIteration:
            self.done = True
            return
        finally:
            self.client.pump()
        if callable(wants):
            # In an event of its own: an end is told while the core is at work.
            self.client.call(wants, lambda end: self._later(0, end))
        else:
            self._later(wants, None)


def _requests(out: list[tuple[int, Any, bytes | None]]) -> Iterator[list[Deliver]]:
    """What is one request on the wire: batches for several partitions of a host."""
    requests: dict[tuple[int, int], list[Deliver]] = {}
    for target, message, tx in out:
        key = message.request, host_of(target)
        requests.setdefault(key, []).append(Deliver(target, message, (tx, 0)))
    yield from requests.values()
