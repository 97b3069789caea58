"""Simulates an engine in mode "deterministic": the real tablets, hosts and links, with faults drawn from one seed.

    hosts.py: what will happen, by its time ─▶ a frame arrives · a host takes its turn · a clock ticks
        seed/net, seed/hosts, seed/disk … ─▶ what goes wrong; each concern has random numbers of its own
        └─▶ Host.run over a store in memory ─▶ results, histories, recorded inputs

Time goes from one event to the next. Stores are in memory: a crash keeps committed data and loses the rest, as
the disk store is tested to do. The inputs of each turn are recorded and can be replayed into fresh hosts: the
changes must be the same byte for byte, under any PYTHONHASHSEED.

faults.py draws the faults. bench/proof/worlds runs this world and client_world.py's. Next: client_world.py.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any

from ....errors import NoSpace
from ....host.host import Host
from ....host.inputs import (
    Arrived,
    Commit,
    Deliver,
    Input,
    Released,
    Rollback,
    StageInput,
    Tick,
    frees,
)
from ....proto.ids import PROXY, host_of, tablet_id, tx_id
from ....proto.messages import Withdraw
from ....proxy.deterministic import Result
from ....store import MemoryStore, Turn
from .faults import CRASHES, HEALED, TURN, Faults, Lines, Odds
from .hosts import Hosts

_SETTLE_EVENTS_MAX = 100_000


class World(Hosts):
    """Simulates hosts that exchange bytes. One turn takes at most `turn_inputs` inputs.

    Invariants: a transaction is answered once; events depend only on the arguments and on the calls made.
    `watch` is called with every durable turn, `answered` with every answer. `echoed` is called with a turn that
    received only the frame that the turn before it had already received.
    """

    def __init__(
        self,
        seed: int,
        hosts: int = 4,
        faults: Faults | None = None,
        *,
        merge: bool = True,
        at_once: bool = True,
        separate: bool = False,
        rtt_ms: float = 0.0,
        turn_inputs: int = 1_000,
        tick_ms: float = 100.0,
    ) -> None:
        self.merge, self.at_once = merge, at_once
        self.separate, self.rtt_ms = separate, rtt_ms
        self.turn_inputs, self.tick_ms = turn_inputs, tick_ms
        super().__init__(seed, hosts)
        self.results: dict[bytes, Result] = {}
        self.asked_at: dict[bytes, float] = {}
        self.told_at: dict[bytes, float] = {}
        self.ahead: dict[bytes, tuple[list[dict[int, tuple[int, Any]]], dict[int, Any]]] = {}
        self.given_up: dict[bytes, None] = {}
        self.sent_ahead = 0
        self.watch: Callable[[int, Turn], None] = lambda number, turn: None
        self.answered: Callable[[Result], None] = lambda result: None
        self.echoed: Callable[[int, Turn], None] = lambda number, turn: None
        self._random = random.Random(f"{seed}/hosts")
        self._disk = random.Random(f"{seed}/disk")
        self._lines = Lines(hosts, random.Random(f"{seed}/net"), self.faulted)
        self._counter = 0
        self.inboxes: list[list[Input]] = [[] for _ in range(hosts)]
        self.dead: dict[int, None] = {}
        self._set_faults(Faults() if faults is None else faults)
        for number in range(hosts):
            self.after(self._random.uniform(0, tick_ms), self._tick, number)

    def _set_faults(self, faults: Faults) -> None:
        self._odds = Odds(faults, TURN, self._disk)
        self._lines.set(faults)

    def _host(self, number: int, store: MemoryStore) -> Host:
        proxy = tablet_id(PROXY, 0, store.generation) if number == 0 else None
        host = Host(
            number,
            store,
            self.hosts,
            proxy=proxy,
            observe=self._observe,
            separate=self.separate,
            rtt_ms=self.rtt_ms,
        )
        host.decides_inline = self.at_once and not self.separate
        if host.proxy is not None:
            host.proxy.merge = self.merge and not self.separate
        return host

    # clients -------------------------------------------------------------------------------

    def _begin(self) -> bytes:
        self._counter += 1
        tx = tx_id(self.stores[0].generation, self._counter)
        self.asked_at[tx] = self.now
        return tx

    def commit(self, parts: dict[int, Any]) -> bytes:
        """Sends a transaction to the proxy; its result appears in `results`, unless host 0 crashes."""
        tx = self._begin()
        self._put(0, Commit(tx, parts))
        return tx

    def commit_ahead(self, ahead: list[dict[int, tuple[int, Any]]], parts: dict[int, Any]) -> bytes:
        """Stages the pieces of `ahead` one by one, then commits; rolls back if a piece is not staged."""
        tx = self._begin()
        self._put(0, StageInput(tx, ahead[0]))
        self.ahead[tx] = (ahead[1:], parts)
        return tx

    def rollback(self, tx: bytes) -> None:
        """Gives up a transaction whose staging is under way."""
        if self.ahead.pop(tx, None) is not None:
            self.given_up[tx] = None
            self._put(0, Rollback(tx))

    def deliver(self, tablet: int, message: Any) -> None:
        """Sends a message from outside the protocol, like those of maintenance or an administrator."""
        self._put(host_of(tablet), Deliver(tablet, message))

    def unanswered(self) -> list[bytes]:
        """Returns transactions whose client waits; those of earlier proxies have no client any more."""
        life, known = self.stores[0].generation, {**self.results, **self.given_up}
        return [
            tx for tx in self.asked_at if tx not in known and int.from_bytes(tx[:4], "big") == life
        ]

    # clocks --------------------------------------------------------------------------------

    def clock(self, number: int) -> int:
        """Returns the time by the host's own clock."""
        return int(self.now) + self.skew_ms[number]

    def _tick(self, number: int) -> None:
        self.after(self.tick_ms, self._tick, number)
        if self.nodes[number].ticks and not self.away[number]:
            self._put(number, Tick())

    # turns ---------------------------------------------------------------------------------

    def _put(self, number: int, item: Input) -> None:
        self.inboxes[number].append(item)
        if not self._due[number] and not self.away[number]:
            self._due[number] = True
            rests = max(0.0, self._rests_until[number] - self.now)
            self.after(rests + self._random.uniform(0.05, 0.6), self._turn, number)

    def _take(self, number: int) -> list[Input]:
        inbox = self.inboxes[number]
        batch, self.inboxes[number] = inbox[: self.turn_inputs], inbox[self.turn_inputs :]
        if self.inboxes[number]:
            self._due[number] = True
            self.after(0.1, self._turn, number)
        return batch

    def _turn(self, number: int) -> None:
        if not self._can_run(number):
            return
        kind = self._strike(number, self.inboxes[number])
        if kind in ("pause", "jump"):
            getattr(self, "_" + kind)(number)
        elif kind == "crash_before":
            self._lose_power(number, kind)
        if kind in ("pause", "crash_before"):
            return
        inputs = self._take(number)
        if kind == "mix" and len(inputs) > 1:
            self.faulted["inputs mixed"] += 1
            self._disk.shuffle(inputs)
        self.last.append((self.now, number, kind, inputs))
        if kind in ("crash_lost", "fail"):
            self._lose(number, kind, inputs)
        else:
            self._keep(number, kind, inputs)

    def _strike(self, number: int, inputs: list[Input]) -> str:
        kind = self._odds.strike()
        if kind == "crash_at":
            return "crash_lost" if self._disk.random() < 0.5 else "crash_kept"
        return kind

    def _lose(self, number: int, kind: str, inputs: list[Input]) -> None:
        """Runs a turn that is lost, and applies the fault drawn for its host."""
        self._fail(number, inputs, self.clock(number))
        if kind == "fail":
            self.faulted["turn failed"] += 1
            self._answer_failed(number, inputs)
        else:
            self._lose_power(number, kind)

    def _keep(self, number: int, kind: str, inputs: list[Input]) -> None:
        """Runs a turn to durability, if the disk has room, and applies the fault drawn for its host."""
        if kind == "full":
            self._fill(number)
        released = self._durable(number, inputs)
        if released is None:
            return
        alone = len(inputs) == 1 and type(inputs[0]) is Arrived
        if kind == "echo" and alone and not self.stores[number].full:
            self.faulted["frame taken twice"] += 1
            self._release(number, self.lives[number], released)
            released = self._run(number, inputs, self.clock(number))
            self.echoed(number, self.turn)
        if kind == "crash_sent":
            self._release(number, self.lives[number], released)
        if kind in CRASHES:
            self._lose_power(number, kind)
        elif kind == "slow":
            self.faulted["disk slow"] += 1
            delay_ms = self._disk.uniform(1, 300)
            self._rests_until[number] = self.now + delay_ms
            self.after(delay_ms, self._release, number, self.lives[number], released)
        else:
            self._release(number, self.lives[number], released)

    def _durable(self, number: int, inputs: list[Input]) -> Released | None:
        """Runs a turn; on a full disk it retries only what frees space, as turn_loop.py does, or fails."""
        try:
            released = self._run(number, inputs, self.clock(number))
        except NoSpace:
            self.faulted["disk full"] += 1
            rest: list[Input] = [
                item
                for item in inputs
                if not isinstance(item, (Commit, StageInput))
                or (isinstance(item, Commit) and all(map(frees, item.parts.values())))
            ]
            self._answer_failed(number, [item for item in inputs if item not in rest])
            if not rest:
                return None
            if self._disk.random() < 0.2:
                self.faulted["disk full, reserve too"] += 1
                self._fail(number, rest, self.clock(number))
                self._answer_failed(number, rest)
                return None
            released = self._run(number, rest, self.clock(number), reserve=True)
        self.watch(number, self.turn)
        return released

    def _release(self, number: int, life: int, released: Released) -> None:
        if life != self.lives[number]:
            return
        for result in released.results:
            if not result.step and result.reason is None:
                self.sent_ahead += 1
                self._put(0, self._next_input(result.tx))
            else:
                self._answer(result)
        for target, data in released.frames:
            for at in self._lines.arrival_times(number, target, self.now):
                self.after(at - self.now, self._arrive, target, Arrived(data))
        for later in released.delayed:
            if later.delay_ms:
                self.after(later.delay_ms, self._arrive, number, later.deliver, life)
            else:
                self._put(number, later.deliver)

    def _next_input(self, tx: bytes) -> Input:
        """Returns the client's next input after a piece was staged."""
        more, parts = self.ahead.pop(tx, ([], None))
        if parts is None:
            return Rollback(tx)  # inputs are shuffled: it may have arrived before the piece
        if more:
            self.ahead[tx] = (more[1:], parts)
            return StageInput(tx, more[0])
        return Commit(tx, parts)

    def _answer(self, result: Result) -> None:
        assert result.tx not in self.results, "a transaction is answered once"
        self.results[result.tx] = result
        self.answered(result)
        proxy = self.nodes[0].proxy
        if result.reason is not None and proxy is not None and result.tx in proxy.staging:
            self._put(0, Rollback(result.tx))  # a client whose payload was refused does the same
        self.told_at[result.tx] = self.now

    def _answer_failed(self, number: int, inputs: list[Input]) -> None:
        """Answers the clients of a failed turn and delivers the rest again, like ../../../runtime/turn_loop.py."""
        proxy = self.nodes[0].proxy
        assert proxy is not None and not proxy.finished, "a failed turn left answers"
        for item in inputs:
            if isinstance(item, (Commit, StageInput)):
                self._answer(Result(item.tx, reason=(0, "failed")))
                self.ahead.pop(item.tx, None)
            elif not isinstance(item, Tick):
                self.after(20.0, self._arrive, number, item, self.lives[number])

    def _arrive(self, number: int, item: Input, life: int | None = None) -> None:
        if not self.away[number] and life in (None, self.lives[number]):
            self._put(number, item)

    # faults of a host ----------------------------------------------------------------------

    def crash(self, number: int, away_ms: float | None = None) -> None:
        """Takes the uncommitted state and the inbox from a host, and starts it again a little later."""
        self.last.append((self.now, number, "crash", []))
        self.inboxes[number] = []
        self._restart(number)
        if number == 0:
            self.ahead.clear()  # the clients are gone with the proxy
        self.away[number] = True
        if number not in self.dead:
            if away_ms is None:
                away_ms = self._random.uniform(0, self._random.choice((1, 50, 1_000)))
            self.after(away_ms, self._come_back, number, self.lives[number])
        self._drop_older(range(self.hosts) if number == 0 else [number])

    def kill(self, number: int) -> None:
        """Crashes the host for ever."""
        self.dead[number] = None
        self.crash(number)

    def deafen(self, number: int) -> None:
        """Drops every later frame to the host, also once healed: a fault that nothing survives."""
        self._lines.deaf = (*self._lines.deaf, number)

    def _come_back(self, number: int, life: int) -> None:
        if life == self.lives[number] and number not in self.dead:
            self.away[number] = False
            self._put(number, Tick())

    def _drop_older(self, hosts: Iterable[int]) -> None:
        """Withdraws data staged by earlier lives of the engine, as opening it does."""
        for number in hosts:
            for tablet, tx in self.nodes[number].staged_before(self.stores[0].generation):
                self._put(number, Deliver(tablet, Withdraw(tx)))

    def _lose_power(self, number: int, kind: str) -> None:
        self.faulted[CRASHES[kind]] += 1
        self.crash(number)

    def _pause(self, number: int) -> None:
        self.faulted["host paused"] += 1
        pause_ms = self._random.uniform(1, self._random.choice((20, 200, 3_000)))
        self._rests_until[number] = self.now + pause_ms
        self._due[number] = True
        self.after(pause_ms, self._turn, number)

    def _jump(self, number: int) -> None:
        ms = self._random.choice((100, 3_000, 100_000, 5_000_000))
        ahead = self._random.random() < 0.5
        self.faulted["clock ahead" if ahead else "clock back"] += 1
        self.skew_ms[number] += ms if ahead else -ms

    def _fill(self, number: int) -> None:
        self.stores[number].full = True
        self.after(self._disk.uniform(1, 200), self._free_space, number)

    def _free_space(self, number: int) -> None:
        self.stores[number].full = False

    # the end -------------------------------------------------------------------------------

    def heal(self) -> None:
        """Stops all faults. Killed hosts stay dead, and clocks keep their offsets."""
        self._set_faults(HEALED)
        for store in self.stores:
            store.full = False

    def settle(self, within_ms: float = 60_000.0) -> float:
        """Heals the world and runs until nothing is under way; returns the virtual time taken, ms."""
        self.heal()
        began, first = self.now, self.events
        while True:
            self.pass_ms(self.tick_ms)
            rest = self.under_way()
            if not rest:
                return self.now - began
            if self.now - began > within_ms or self.events > first + _SETTLE_EVENTS_MAX:
                took = f"{self.now - began:.0f} ms and {self.events - first} events"
                raise AssertionError(f"after {took} there is still {rest}")

    def under_way(self) -> str:
        """Names something still under way; returns "" if there is nothing."""
        waited_for = self._arrive, self._release, self._come_back, self._free_space
        if any(call in waited_for for call in self.scheduled()):
            return "a message"
        if any(type(item) is not Tick for inbox in self.inboxes for item in inbox):
            return "a message"
        proxy = self.nodes[0].proxy
        assert proxy is not None
        if proxy.open:
            return f"an open transaction: {next(iter(proxy.open))!r}"
        return self.unfinished()
