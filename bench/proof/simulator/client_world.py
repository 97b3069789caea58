"""Simulates hosts of a mode with data in place, its clients, the lines between them, and time, from one seed.

    Client (the mode's client core) ────────── the line: loses, repeats, delays, reorders ──▶ inbox ─▶ Host.run
       ▲ timers, calls                                                                  │ frames, later,
       └────────────────────────── answers, over the line ◀────────────────────────────┘ answers

All future events wait in one queue, ordered by time; time goes from one event to the next. Hosts lose power
before, at and after a sync, pause, have slow, failing or full disks, and have their clocks set. Links are
clogged and cut. Clients end or pause without notice; a delayed request may arrive long after its client gave it
up. Each concern draws from a fork of the seed, so one more draw in one of them shifts no other.

Next: kafka_world.py, pulsar_world.py.
"""

import random
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from ....errors import NoSpace
from ....host.host import Host
from ....host.inputs import Arrived, AtomicDeliver, Deliver, Input, Released, Tick
from ....proto.ids import host_of
from ....proto.messages import NOBODY
from ....store import MemoryStore
from .clients import Client
from .hosts import Hosts
from .lines import Lines

_TICK_MS = 20
_WEATHER_MS = 10, 60
_LAST = "pause", "full", "jump", "clog", "cut", "stop"


@dataclass(frozen=True)
class Faults:
    """Holds probabilities: `lose`, `repeat`, `slow` of a message; `crash`, `fail`, `sluggish` of a turn.

    `late` applies to an EndTxn, or with `any_late` to any request: it arrives long after its client has asked
    again. From `pause` on they apply to each look at the "weather", every 10 to 60 ms. All zero heals the world.
    """

    lose: float = 0.03
    repeat: float = 0.05
    slow: float = 0.1
    crash: float = 0.004
    fail: float = 0.01
    late: float = 0.0
    any_late: bool = False
    sluggish: float = 0.0
    """A sync is slow."""
    pause: float = 0.0
    """A host pauses."""
    full: float = 0.0
    """A disk is full for a while."""
    jump: float = 0.0
    """A host's clock is set forward or back, by `jump_ms` at most."""
    jump_ms: float = 1_500.0
    clog: float = 0.0
    cut: float = 0.0
    stop: float = 0.0
    """A client's process pauses."""


NONE = Faults(0, 0, 0, 0, 0)
_ON_A_LINE = ("lost", "repeated", "delayed", "reordered", "cut off", "held by a clog")
CLASSES = (
    *(f"{what} {how}" for what in ("request", "answer", "frame") for how in _ON_A_LINE),
    *(f"host crash {when} the sync" for when in ("before", "at", "after")),
    "client crash",
    "client paused",
    "client paused, then a zombie",
    "clock set back",
    "clock set forward",
    "disk full",
    "disk slow",
    "host paused",
    "link clogged",
    "links clogged in turn",
    "links cut",
    "links cut one way",
    "request late",
    "turn failed",
    "turn without space",
)
"""The names under which faults are counted."""


class ClientWorld(Hosts):
    """Simulates hosts and clients. Invariant: events depend only on the arguments and on its processes.

    `faults` holds probabilities, `faulted` counts the faults that happened. One turn takes at most `inputs_max`
    inputs from clients and links.
    """

    mode: str
    late_most = 5.0
    """The longest delay of a late request, in time-outs of a request."""

    def __init__(
        self,
        seed: int,
        hosts: int,
        separate: bool,
        settings: Any,
        faults: Faults,
        *,
        switches: bool = False,
        inputs_max: int = 1 << 20,
    ) -> None:
        settings.check()
        self.separate = separate
        self.settings = settings
        super().__init__(seed, hosts)
        self.random = random.Random(f"{seed}/work")
        self._drawn = random.Random(f"{seed}/hosts")
        self._weather_drawn = random.Random(f"{seed}/weather")
        self._late_drawn = random.Random(f"{seed}/late")
        self.faults = faults
        self._late = bool(faults.late)
        self.hold: Callable[[Any], float] = lambda message: 0.0
        """Returns an extra delay of a request, ms: for worlds that follow a script."""
        self.after_turn: Callable[[int], None] = lambda host: None
        self.clients: list[Client] = []
        self.switched = 0
        self.inputs_max = inputs_max
        half = settings.request_timeout_ms / 2  # a slow message still arrives before the time-out
        self.lines = Lines(f"{seed}/net", self.after, self.faulted, half)
        self.lines.lose, self.lines.repeat = self.faults.lose, self.faults.repeat
        self.lines.slow = self.faults.slow
        self.inboxes: list[list[tuple[float, Input]]] = [[(inf, Tick())] for _ in range(hosts)]
        """For each host: (the time at which the input's connection closes and drops it, the input)."""
        self._full_until = [0.0] * hosts
        for number in range(hosts):
            self._poke(number)
            self.after(_TICK_MS, self._tick, number)
            if switches:  # turns batching of the coordinators' logs on and off during the run
                self._switch(number)
        if any(getattr(self.faults, name) for name in _LAST):
            self.after(_WEATHER_MS[1], self._weather)

    def _host(self, number: int, store: MemoryStore) -> Host:
        return Host(
            number,
            store,
            self.hosts,
            observe=self._observe,
            mode=self.mode,
            separate=self.separate,
            settings=self.settings,
        )

    @abstractmethod
    def make_client(self, number: int) -> Client: ...

    @abstractmethod
    def _ends_late(self, message: Any) -> bool:
        """Returns whether a request ends a transaction."""

    def _connection(self, message: Any) -> tuple[bool, bool]:
        """Returns (a request is never repeated, is dropped once it is older than its time-out)."""
        return False, False

    @abstractmethod
    def _switch_logs(self, number: int, batching: bool) -> None:
        """Tells a host's tablets how to write their logs."""

    def client(self) -> Client:
        client = self.make_client(len(self.clients) + 1)
        self.clients.append(client)
        return client

    # time ----------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return int(self.now)

    def clock(self, number: int) -> int:
        """Returns the time by the host's own clock, ms."""
        return max(1, self.now_ms + self.skew_ms[number])

    # lines ---------------------------------------------------------------------------------

    def request(self, client: Client, items: list[Deliver]) -> None:
        item = items[0] if len(items) == 1 else AtomicDeliver(tuple(items))
        number, message = host_of(items[0].target), items[0].message
        held_ms = self.hold(message)
        timeout_ms = self.settings.request_timeout_ms
        may_be_late = self._ends_late(message) or self.faults.any_late
        if may_be_late and self._late_drawn.random() < self.faults.late:
            self.faulted["request late"] += 1
            held_ms = timeout_ms * self._late_drawn.uniform(1.0, self.late_most)
        once, dropped = self._connection(message)
        until = self.now + timeout_ms if dropped and not held_ms else inf
        arrive = partial(self._arrive, number, item, until)
        self.lines.send("request", (client.number, number), arrive, held_ms, once)

    def _arrive(
        self, number: int, item: Input, until: float = inf, life: int | None = None
    ) -> None:
        if not self.away[number] and life in (None, self.lives[number]):
            self.inboxes[number].append((until, item))
            self._poke(number)

    # hosts ---------------------------------------------------------------------------------

    def _poke(self, number: int) -> None:
        if not self._due[number]:
            self._due[number] = True
            self.after(self._drawn.uniform(0.1, 2.0), self._turn, number)

    def _tick(self, number: int) -> None:
        self.after(_TICK_MS, self._tick, number)
        if self.nodes[number].ticks:
            self._arrive(number, Tick())

    def _turn(self, number: int) -> None:
        if not self._can_run(number):
            return
        inbox = self.inboxes[number]
        batch, self.inboxes[number] = inbox[: self.inputs_max], inbox[self.inputs_max :]
        if self.inboxes[number]:
            self._poke(number)
        draw = self._drawn
        if draw.random() < self.faults.sluggish:
            self.faulted["disk slow"] += 1
            ms = draw.uniform(2, self.settings.request_timeout_ms / 4)
            self._rests_until[number] = self.now + ms
            self.after(ms, self._sync, number, self.lives[number], batch)
        else:
            self._sync(number, self.lives[number], batch)

    def _sync(self, number: int, life: int, batch: list[tuple[float, Input]]) -> None:
        """Runs a turn up to its sync, and applies the fault drawn for it."""
        if self.lives[number] != life:
            return  # the host lost power meanwhile
        accepted = [item for item in batch if self.now <= item[0]]
        self.faulted["request down with its connection"] += len(batch) - len(accepted)
        inputs = [item for _, item in accepted]
        kind = self._strike(number, inputs)
        self.last.append((self.now, number, kind, inputs))
        if kind == "crash_kept":  # durable, but its messages never leave
            self._run(number, inputs, self.clock(number))
            self.after_turn(number)
        elif kind in ("crash_lost", "fail"):
            self._fail(number, inputs, self.clock(number))
        elif kind in ("", "crash_sent"):
            self._make_durable(number, accepted)
        if kind == "fail":
            self._redeliver(number, accepted)
        elif kind:
            self.crash(number)

    def _strike(self, number: int, inputs: list[Input]) -> str:
        draw, faults = self._drawn, self.faults
        crashes, fails = draw.random() < faults.crash, draw.random() < faults.fail
        if crashes:
            when = draw.choice(("before", "at", "after"))
            self.faulted[f"host crash {when} the sync"] += 1
            if when == "at":
                return "crash_kept" if draw.random() < 0.5 else "crash_lost"
            return "crash_kept" if when == "after" else "crash_before"
        if fails:
            self.faulted["turn failed"] += 1
        return "fail" if fails else ""

    def _make_durable(self, number: int, accepted: list[tuple[float, Input]]) -> None:
        """Runs a turn to durability, if the disk has room for it."""
        store = self.stores[number]
        store.full = self.now < self._full_until[number] and self._drawn.random() < 0.7
        try:
            released = self._run(number, [item for _, item in accepted], self.clock(number))
        except NoSpace:
            self._without_space(number, accepted)
        else:
            self._release(number, released)
        finally:
            store.full = False

    def _redeliver(self, number: int, accepted: list[tuple[float, Input]], ms: float = 0.0) -> None:
        """Delivers a failed turn's requests again, as ../../../runtime/turn_loop.py does; hosts resend frames."""
        for until, item in accepted:
            if isinstance(item, (Deliver, AtomicDeliver)):
                self._put(number, item, ms, until)

    def _put(self, number: int, item: Input, ms: float, until: float = inf) -> None:
        """Delivers an input after `ms`, unless the host crashes meanwhile."""
        if ms:
            self.after(ms, self._arrive, number, item, until, self.lives[number])
        else:
            self._arrive(number, item, until)

    def _without_space(self, number: int, accepted: list[tuple[float, Input]]) -> None:
        """Runs a turn again from the disk's reserve, as turn_loop.py does; one time in ten the reserve is used up
        too, and the requests are delivered later."""
        self.faulted["turn without space"] += 1
        if self._drawn.random() < 0.1:
            self.faulted["turn without space in the reserve"] += 1
            self._redeliver(number, accepted, self._drawn.uniform(1, 20))
        else:
            inputs = [item for _, item in accepted]
            self._release(number, self._run(number, inputs, self.clock(number), reserve=True))

    def _release(self, number: int, released: Released) -> None:
        self.after_turn(number)
        for target, data in released.frames:
            arrive = partial(self._arrive, target, Arrived(data))
            self.lines.send("frame", (number, target), arrive)
        for later in released.delayed:
            self._put(number, later.deliver, later.delay_ms)
        for address, answer, _ in released.answers:
            client = self.clients[(address & 0xFFFFF) - 1]
            self.lines.send(
                "answer", (number, client.number), partial(client.reach, client.core.handle, answer)
            )

    def _switch(self, number: int) -> None:
        self.after(self._weather_drawn.uniform(20, 400), self._switch, number)
        self.switched += 1
        self._switch_logs(number, self._weather_drawn.random() < 0.5)

    def crash(self, number: int) -> None:
        self.last.append((self.now, number, "crash", []))
        self.inboxes[number] = []
        self.away[number] = True
        self.after(self._drawn.uniform(1, 60), self._come_back, number)
        self._restart(number)

    def _come_back(self, number: int) -> None:
        self.away[number] = False
        self._arrive(number, Tick())

    def tell(self, target: int, message: Any) -> None:
        """Sends a message that expects no answer, like those of maintenance."""
        self._arrive(host_of(target), Deliver(target, message, NOBODY))

    # weather -------------------------------------------------------------------------------

    def _weather(self) -> None:
        """Draws faults that strike hosts, links and processes at any time, and schedules the next draw."""
        draw, faults = self._weather_drawn, self.faults
        self.after(draw.uniform(*_WEATHER_MS), self._weather)
        number = draw.randrange(self.hosts)
        if draw.random() < faults.pause:
            self.faulted["host paused"] += 1
            self._rests_until[number] = self.now + draw.uniform(5, 200)
        if draw.random() < faults.full:
            self.faulted["disk full"] += 1
            self._full_until[number] = self.now + draw.uniform(20, 400)
        if draw.random() < faults.jump:
            to = round(draw.uniform(-faults.jump_ms, faults.jump_ms))
            self.faulted[
                "clock set back" if to < self.skew_ms[number] else "clock set forward"
            ] += 1
            self.skew_ms[number] = to
        if draw.random() < faults.stop:
            self.faulted["client paused"] += 1
            draw.choice(self.clients).pause(draw.uniform(20, 300))
        here = draw.sample(range(self.hosts), draw.randint(1, self.hosts))
        others = [n for n in range(self.hosts) if n not in here]
        others += [client.number for client in self.clients if client.alive]
        if draw.random() < faults.clog:
            if draw.random() < 0.3:  # clogged one after the other, opened in another order
                self.faulted["links clogged in turn"] += 1
                for host in here:
                    links = [(end, host) for end in others]
                    clog = partial(self.lines.clog, links, draw.uniform(20, 150))
                    self.after(draw.uniform(0, 100), clog)
            else:
                self.faulted["link clogged"] += 1
                links = [(draw.choice(others), number), (number, draw.choice(others))]
                self.lines.clog([draw.choice(links)], draw.uniform(10, 150))
        if draw.random() < faults.cut:
            some = draw.sample(others, draw.randint(1, len(others)))
            into = [(end, host) for end in some for host in here]
            out = [(host, end) for end, host in into]
            which, links = draw.choice(
                (("cut one way", into), ("cut one way", out), ("cut", into + out))
            )
            self.faulted[f"links {which}"] += 1
            self.lines.cut(links, draw.uniform(20, 250))

    def heal(self) -> None:
        """Stops all faults and ends lasting ones. Clocks keep their offsets, and crashed clients stay down."""
        self.faults = NONE
        self.lines.heal()
        self._full_until = [0.0] * self.hosts
        self._rests_until = [min(until, self.now) for until in self._rests_until]
        for client in self.clients:
            client.resume()
