"""The simulated world of mode "kafka": hosts, a line to their clients, clients, and time, from one seed.

    Client (proxy/kafka.py) ── the line: loses, repeats, delays, reorders ──▶ inbox ─▶ Host.run
       ▲ timers, calls                                                                  │ frames, later,
       └────────────────────────── answers, over the line ◀────────────────────────────┘ answers

Everything that will happen waits in one queue, by its time; time goes from one event to the next. Hosts
lose power before and after a sync and are away for a while, turns fail, clients end without a word, and a
request that is held back arrives long after its client has given it up.

What an application does is a generator (`Process`): it yields a delay in ms, or a call of its client,
which it is told the end of.

Next: tests/sim/kafka_workload.py.
"""

import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from typing import Any

from .host import Host
from .inputs import Arrived, Deliver, Input, Tick, Together
from .modes import coordinator_of, group_of
from .proto.ids import GROUPS, PROXY, TRANSACTIONS, host_of, tablet_id
from .proto.kafka import (
    Answer,
    EndTxn,
    InitProducer,
    SwitchLog,
)
from .proto.kafka_settings import KafkaSettings
from .proto.messages import NOBODY
from .proxy import kafka as core
from .proxy.kafka import Ended
from .simulator import Hosts
from .store import MemoryStore

QUICK = KafkaSettings(
    transaction_timeout_ms=700,
    abort_scan_ms=70,
    retry_backoff_ms=10,
    concurrent_backoff_ms=3,
    request_timeout_ms=80,
    delivery_timeout_ms=400,
    max_block_ms=900,
    marker_retry_ms=15,
    log_batch_records=8,
    log_batch_delay_ms=4.0,
)
"""Time-outs short enough to pass often in a run."""
_TICK_MS = 20


@dataclass
class Faults:
    """Probabilities: of a message on a line or between hosts, and of a turn. `late` is for an EndTxn, or
    `any_late` request: it arrives when its client has long asked again. All zero heals the world."""

    lose: float = 0.03
    repeat: float = 0.05
    slow: float = 0.1
    crash: float = 0.004
    fail: float = 0.01
    late: float = 0.0
    any_late: bool = False


NONE = Faults(0, 0, 0, 0, 0)

Do = Callable[[core.Client, bytes], None]
Steps = Generator["float | Do", Any, None]


class Client:
    """A process with its client core. After `crash` nothing reaches it, and nobody is told."""

    def __init__(self, world: "KafkaWorld", number: int) -> None:
        self.world = world
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
                self.world._request(items)
            for delay_ms, token in timers:
                self.world.after(delay_ms, partial(self._wake, token))
            for end in ended:
                self.waiting.pop(end.call)(end)

    def take(self, answer: Answer) -> None:
        if self.alive:
            self.core.handle(answer)
            self.pump()

    def _wake(self, token: int) -> None:
        if self.alive:
            self.core.wake(token)
            self.pump()

    def crash(self) -> None:
        self.alive = False
        self.waiting.clear()


class Process:
    """What an application does, step by step, until its client ends."""

    def __init__(self, client: Client, steps: Steps) -> None:
        self.client = client
        self.done = False
        self._steps = steps
        client.world.after(0, partial(self._go_on, None))

    def _go_on(self, told: Any) -> None:
        if not self.client.alive:
            return
        try:
            wants = self._steps.send(told)
        except StopIteration:
            self.done = True
            return
        finally:
            self.client.pump()
        world = self.client.world
        if callable(wants):
            # In an event of its own: an end is told while the core is at work.
            self.client.call(wants, lambda end: world.after(0, partial(self._go_on, end)))
        else:
            world.after(wants, partial(self._go_on, None))


class KafkaWorld(Hosts):
    """Invariant: what happens depends on the arguments only, and on what its processes do."""

    def __init__(
        self,
        seed: int,
        hosts: int = 1,
        separate: bool = False,
        settings: KafkaSettings = QUICK,
        faults: Faults | None = None,
        switches: bool = False,
    ) -> None:
        settings.check()
        self.seed = seed
        self.random = random.Random(seed)
        self.separate = separate
        self.settings = settings
        self.faults = Faults() if faults is None else faults
        self.now = 1_000.0
        self.hold: Callable[[Any], float] = lambda message: 0.0
        """How many ms more a request takes to arrive: for worlds that follow a script."""
        self.after_turn: Callable[[int], None] = lambda host: None
        self.clients: list[Client] = []
        self.crashes = self.failed = self.lost = self.repeated = self.late = self.switched = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.inboxes: list[list[Input]] = [[Tick()] for _ in range(hosts)]
        self._due = [False] * hosts
        self._away = [False] * hosts
        self._open(hosts)
        for number in range(hosts):
            self._poke(number)
            self.after(_TICK_MS, partial(self._tick, number))
            if switches:  # batching of the coordinators' logs, during the run
                self._switch(number)

    def _host(self, number: int, store: MemoryStore) -> Host:
        return Host(
            number,
            store,
            self.hosts,
            observe=self._observe,
            mode="kafka",
            separate=self.separate,
            settings=self.settings,
        )

    def client(self) -> Client:
        made = Client(self, len(self.clients) + 1)
        self.clients.append(made)
        return made

    # time ----------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return int(self.now)

    def after(self, delay_ms: float, call: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._events, (self.now + delay_ms, self._order, call))

    def step(self) -> None:
        self.now, _, call = heappop(self._events)
        call()

    def run(self, ms: float) -> None:
        until = self.now + ms
        while self._events[0][0] <= until:
            self.step()
        self.now = until

    # lines ---------------------------------------------------------------------------------

    def _request(self, items: list[Deliver]) -> None:
        item = items[0] if len(items) == 1 else Together(tuple(items))
        number, message = host_of(items[0].target), items[0].message
        held_ms = self.hold(message)
        may_be_late = type(message) is EndTxn or self.faults.any_late
        if may_be_late and self.random.random() < self.faults.late:
            self.late += 1
            held_ms = self.settings.request_timeout_ms * self.random.uniform(1.0, 5.0)
        # Version 1 has many transactions in an epoch: it counts on connections that repeat nothing.
        once = self.settings.protocol_version == 1 and type(message) is not InitProducer
        self._send(partial(self._arrive, number, item), held_ms, once)

    def _send(self, arrive: Callable[[], None], held_ms: float = 0.0, once: bool = False) -> None:
        """Never slower than a request's time-out: held back is what is meant to be."""
        draw, faults = self.random, self.faults
        if draw.random() < faults.lose and not held_ms:
            self.lost += 1
            return
        copies = 1
        if draw.random() < faults.repeat and not once:
            self.repeated += 1
            copies = 2
        for _ in range(copies):
            slow = draw.random() < faults.slow
            delay_ms = draw.uniform(5, self.settings.request_timeout_ms / 2) if slow else 0.0
            self.after(held_ms + delay_ms + draw.uniform(0.2, 2.0), arrive)

    def _arrive(self, number: int, item: Input) -> None:
        if not self._away[number]:
            self.inboxes[number].append(item)
            self._poke(number)

    def _arrive_later(self, number: int, life: int, item: Deliver) -> None:
        if self.lives[number] == life:
            self._arrive(number, item)

    # hosts ---------------------------------------------------------------------------------

    def _poke(self, number: int) -> None:
        if not self._due[number]:
            self._due[number] = True
            self.after(self.random.uniform(0.1, 2.0), partial(self._turn, number))

    def _tick(self, number: int) -> None:
        self.after(_TICK_MS, partial(self._tick, number))
        if self.nodes[number].ticks:
            self._arrive(number, Tick())

    def _turn(self, number: int) -> None:
        self._due[number] = False
        inputs = self.inboxes[number]
        if self._away[number] or not inputs:
            return
        draw, faults = self.random, self.faults
        if draw.random() < faults.crash:
            self.crash(number)
            return
        self.inboxes[number] = []
        if draw.random() < faults.fail:
            # Frames are sent again; the rest comes again, as turns.py has it.
            self._fail(number, inputs, self.now_ms)
            self.failed += 1
            for item in inputs:
                if isinstance(item, (Deliver, Together)):
                    self._arrive(number, item)
            return
        released = self._run(number, inputs, self.now_ms)
        self.after_turn(number)
        if draw.random() < faults.crash:  # durable, and nobody hears of it
            self.crash(number)
            return
        for target, data in released.frames:
            self._send(partial(self._arrive, target, Arrived(data)))
        for later in released.later:
            arrive = partial(self._arrive_later, number, self.lives[number], later.deliver)
            if later.delay_ms:
                self.after(later.delay_ms, arrive)
            else:
                arrive()
        for address, answer, _ in released.answers:
            client = self.clients[(address & 0xFFFFF) - 1]
            self._send(partial(client.take, answer))

    def _switch(self, number: int) -> None:
        self.after(self.random.uniform(20, 400), partial(self._switch, number))
        self.switched += 1
        batching = self.random.random() < 0.5
        for kind in (TRANSACTIONS, GROUPS):
            self.tell(tablet_id(kind, number, 0), SwitchLog(batching))

    def crash(self, number: int) -> None:
        """The host loses what was not committed, its inbox included, and starts again a little later."""
        self.crashes += 1
        self.inboxes[number] = []
        self._away[number] = True
        self.after(self.random.uniform(1, 60), partial(self._come_back, number))
        self._restart(number)

    def _come_back(self, number: int) -> None:
        self._away[number] = False
        self._arrive(number, Tick())

    def tell(self, target: int, message: Any) -> None:
        """A message that nobody answers, as a chore sends it."""
        self._arrive(host_of(target), Deliver(target, message, NOBODY))

    def heal(self) -> None:
        self.faults = replace(NONE)


def _requests(out: list[tuple[int, Any, bytes | None]]) -> Iterator[list[Deliver]]:
    """What is one request on the wire: batches for several partitions of a host."""
    requests: dict[tuple[int, int], list[Deliver]] = {}
    for target, message, tx in out:
        key = message.request, host_of(target)
        requests.setdefault(key, []).append(Deliver(target, message, (tx, 0)))
    yield from requests.values()
