"""The host: one store, the tablets that live in it, one turn at a time.

    inputs ─▶ deliver, first in first out, until nothing is left ─▶ close steps ─▶ one append, one sync
                                                                                     │ durable
              answers to callers, frames to other hosts  ◀── released ◀──────────────┘

Nobody acts on something that can still be lost: all that leaves a turn does so after `store.commit`.
A client's input that makes a tablet raise is undone whole; a raise while executing a plan is a bug
of ours: the turn is abandoned, the host stops and names it. Given the same inputs, clock value and
store, a turn makes the same changes byte for byte: threads and clocks are the caller's (runtime.py),
so the simulator drives this very class.

Next: runtime.py.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from .coordinator.plan import Coordinator
from .errors import HostStopped, PlanstepError
from .history import History
from .inputs import Ahead, Arrived, Commit, Deliver, Input, Released, Rollback, Tick, frees
from .links import Link, open_link
from .proto.ids import (
    CATALOGUE,
    COORDINATOR,
    HOST,
    PARTITION,
    PROXY,
    SHARD,
    host_of,
    kind_of,
    tablet_id,
    tablet_prefix,
    tx_text,
)
from .proto.messages import (
    DATAGRAMS,
    Ask,
    Clean,
    Message,
    Plan,
    PlanRequest,
    Propose,
    Refused,
    Stage,
    Staged,
    Withdraw,
    decode,
    encode,
)
from .proto.records_pb2 import LinkFrame
from .proxy.deterministic import Proxy
from .space import HostSpace, stored_tablets
from .store import Store, Turn
from .tablets.catalogue import Catalogue
from .tablets.partition import Partition
from .tablets.shard import Shard

_NO_LINKS: dict[int, tuple[int, int]] = {}
ASK_AFTER_MS = 2_000
"""A proposal that waits this long without a plan is asked about; its client may be gone."""


_TABLETS: dict[int, Any] = {
    PARTITION: Partition,
    SHARD: Shard,
    CATALOGUE: Catalogue,
    COORDINATOR: Coordinator,
}


class Host:
    """Invariants: at most one turn is open; results leave only after their turn is durable; what a
    discarded turn did to proxy, coordinator and links in memory is taken back."""

    def __init__(
        self,
        number: int,
        store: Store,
        hosts: int = 1,
        *,
        proxy: int | None = None,
        trace: str = "summary",
        observe: Callable[[Turn], None] | None = None,
    ) -> None:
        self.number = number
        self.store = store
        self.hosts = hosts
        self.history = History()
        self.trace = trace == "messages"
        self.at_once = not self.trace  # with every message to be recorded, every message is sent
        self.observe = observe
        self.turn: Turn
        self.superseded: list[tuple[bytes, Any, int]] = []
        self.messages = 0
        self.stopped: BaseException | None = None
        self._waiting: deque[tuple[int, Message]] = deque()
        self._datagrams: dict[int, list[bytes]] = {}
        self._tablets: dict[int, Any] = {}
        self._now_ms = 0
        self._horizon: int | None = 0 if number else None  # of the snapshots, as plans tell it
        self._prepared: dict[tuple[int, bytes], int] = {}
        self._ended: dict[tuple[int, bytes], None] = {}  # of those, as the running turn has it
        self._events: dict[bytes, list[tuple[int, str]]] = {}
        self._keys = HostSpace(self, tablet_id(HOST, number, 0))
        self.proxy = Proxy(proxy, self._send) if proxy is not None else None
        coordinator = tablet_id(COORDINATOR, 0, 0)
        self._coordinator: Coordinator | None = (
            self._tablet(coordinator) if number == host_of(coordinator) else None
        )
        if self._coordinator is not None:
            self._coordinator.keeps_participants = trace != "off"
        own = tablet_prefix(tablet_id(HOST, number, 0))
        self.links: dict[int, Link] = {}
        for other in range(hosts):
            if other != number:
                o, to = own + b"O" + bytes([other]), bytes([other])
                rows = store.scan(o, o + b"\xff" * 9)
                last, taken = store.get(own + b"N" + to), store.get(own + b"I" + to)
                self.links[other] = open_link(number, other, rows, last, taken)
        step = tablet_prefix(coordinator) + b"l"
        self._step_key = own + b"s" if number else step
        self.step_released = self._last_step()
        self.history.release(self.step_released, self._horizon)
        self.history.horizon = self.step_released  # what was overwritten before is not here
        if hosts > 1:
            self._find_prepared()

    def _find_prepared(self) -> None:
        """Proposals that outlived a restart: they are asked about in time."""
        for prefix in stored_tablets(self.store, self.number):
            for key, value in self.store.scan(prefix + b"t", prefix + b"u"):
                if value[0] == 0:
                    self._prepared[int.from_bytes(prefix, "big"), key[5:]] = 0
        for tablet, tx in self.staged_before(1 << 32):
            self._prepared[tablet, tx] = 0

    def staged_before(self, generation: int) -> list[tuple[int, bytes]]:
        """(partition, transaction) of payloads that an older engine sent ahead and never proposed."""
        return [
            (int.from_bytes(prefix, "big"), key[5:])
            for prefix in stored_tablets(self.store, self.number)
            for key, _ in self.store.scan(prefix + b"s", prefix + b"t")
            if len(key) == 17 and int.from_bytes(key[5:9], "big") < generation
        ]

    def _last_step(self) -> int:
        return self.store.get(self._step_key) or 0

    # one turn ------------------------------------------------------------------------------

    def run(self, inputs: Iterable[Input], now_ms: int, reserve: bool = False) -> Released:
        """Runs one turn over the inputs and makes it durable; IoError when it could not be.

        `reserve`: the disk is full, and the turn may use what was put aside: proposals that would
        take space are refused.
        """
        if self.stopped is not None:
            raise HostStopped(f"host {self.number} stopped: {self.stopped}") from self.stopped
        released = Released()
        self.turn = self.store.begin()
        self.turn.reserve = reserve
        self._now_ms = now_ms
        whole = self._mark()
        again = False
        try:
            for item in inputs:
                if type(item) is Tick:
                    again = True
                self._input(item, released)
            while self._coordinator is not None and self._coordinator.pending:
                here = self._coordinator.close(now_ms, self.history.oldest(), self.at_once)
                for n, request in enumerate(here):
                    self._decide(self._coordinator, n, request)
                self._drain()
            for link in self.links.values():
                if link.staged or self.superseded:
                    link.drop_acknowledged(self._keys)
            if self.trace:
                self._write_trace()
            if self.observe is not None:
                self.observe(self.turn)
        except BaseException as error:
            self._undo(whole)
            self.store.abandon(self.turn)
            if isinstance(error, (RecursionError, MemoryError)):
                # The caller's stack or memory, not a bug: nothing of the turn was done.
                raise PlanstepError(f"there is no room to run the turn: {error!r}") from error
            if isinstance(error, Exception) and not isinstance(error, PlanstepError):
                self.stopped = error
                raise HostStopped(f"host {self.number} stopped while executing: {error}") from error
            raise
        try:
            self.store.commit(self.turn, self._install)
        except BaseException:
            self._undo(whole)
            raise
        self.superseded.clear()
        for ended in self._ended:
            self._prepared.pop(ended, None)
        self._ended.clear()
        self.step_released = self._last_step()
        self.history.release(self.step_released, self._horizon, now_ms)
        for link in self.links.values():
            link.committed()
        if self.proxy is not None:
            released.results = self.proxy.take()
        for target, link in self.links.items():
            datagrams = self._datagrams.pop(target, [])
            released.frames.extend((target, data) for data in link.frames(datagrams, again))
        return released

    def _install(self, changes: object) -> None:
        self.history.install(self.superseded, self._now_ms)

    def _input(self, item: Input, released: Released) -> None:
        mark = self._mark()
        try:
            if isinstance(item, Commit):
                assert self.proxy is not None
                self.proxy.commit(item.tx, item.parts)
            elif isinstance(item, Ahead):
                assert self.proxy is not None
                self.proxy.stage(item.tx, item.slices)
            elif isinstance(item, Rollback):
                assert self.proxy is not None
                self.proxy.rollback(item.tx)
            elif isinstance(item, Deliver):
                self._waiting.append((item.target, item.message))
            elif isinstance(item, Arrived):
                self._arrive(item.data)
            else:
                self._tick()
            self._drain()
        except Exception as error:
            # A client's input is undone whole, and only that client hears of it. A link's message
            # is part of the order: to skip it would be to lose it, so that stops the host.
            if type(item) is Arrived:
                raise
            self._undo(mark)
            released.failures.append((item, error))

    def _arrive(self, data: bytes) -> None:
        assert isinstance(data, bytes), "only bytes travel between hosts"
        frame = LinkFrame()
        try:
            frame.ParseFromString(data)
            link = self.links[frame.source]
            datagrams = [decode(bytes(part)) for part in frame.datagrams]
        except Exception:
            return  # not a frame of ours: whatever was in it will be sent again
        if frame.target != self.number:
            return
        link.heard(frame)
        for part in link.take(self._keys, frame):
            self._waiting.append(decode(part))
        self._waiting.extend(datagrams)

    def _tick(self) -> None:
        if self.proxy is not None:
            self.proxy.resend()
        for (tablet, tx), since in list(self._prepared.items()):
            space = self._tablet(tablet).space
            record = space.get(b"t" + tx)
            if record[0] if record is not None else space.get(b"s" + tx) is None:
                self._ended[tablet, tx] = None
            elif self._now_ms - since >= ASK_AFTER_MS:
                self._prepared[tablet, tx] = self._now_ms
                self._tablet(tablet).ask_about(tx)

    def _decide(self, coordinator: Coordinator, n: int, request: PlanRequest) -> None:
        """A transaction whose participants are all here: plan, votes, effects and answer in one.

        What the messages would have brought about, without sending them. Where something undecided
        is in the way, they are sent.
        """
        tablets = [self._tablet(tablet) for tablet in request.participants]
        if not all([tablet.idle() for tablet in tablets]):
            coordinator.announce(n, request)
            self._drain()
            return
        reason = None
        for tablet, body in zip(tablets, request.bodies, strict=True):
            if reason is None and tablet.id in request.voters:
                reason = tablet.vote(request.tx, body)
        details: dict[int, Any] = {}
        step = coordinator.step[0]
        if reason is None:
            for tablet, body in zip(tablets, request.bodies, strict=True):
                if tablet.id in request.receivers:
                    details[tablet.id] = tablet.publish(request.tx, body, step, n)
        else:
            for tablet in tablets:
                tablet.unstage(request.tx)
        coordinator.decided(n, request, reason is None)
        if self.proxy is not None and request.proxy == self.proxy.id:
            self.proxy.decided(request.tx, step, n, reason, details)

    def _drain(self) -> None:
        waiting = self._waiting
        tablets = self._tablets
        while waiting:
            target, message = waiting.popleft()
            self.messages += 1
            if self.trace:
                self._note(target, message)
            if kind_of(target) == PROXY:
                if self.proxy is not None and target == self.proxy.id:
                    self.proxy.handle(message)
                elif type(message) is Staged:  # for a client of an older engine
                    self._send(message.tablet, Withdraw(message.tx))
                continue
            kind = type(message)
            if self.turn.reserve and (
                kind is Stage or (kind is Propose and not frees(message.part))
            ):
                self._send(message.proxy, Refused(message.tx, target, (target, "space")))
                continue
            if kind is Ask and self.proxy is not None and self.proxy.knows(message.tx):
                continue  # its client is at it: it will be planned, or withdrawn
            if self.hosts > 1 and (kind is Propose or kind is Stage):
                self._prepared[target, message.tx] = self._now_ms
                self._ended.pop((target, message.tx), None)
            elif kind is Plan and self.number:
                self._horizon = max(self._horizon or 0, message.horizon)
                if message.step > (self._keys.get(b"s") or 0):
                    self._keys.put(b"s", message.step)
            tablet = tablets.get(target)
            if tablet is None:
                tablet = self._tablet(target)
            tablet.handle(message)

    def _tablet(self, tablet: int) -> Any:
        found = self._tablets.get(tablet)
        if found is None:
            assert host_of(tablet) == self.number, f"tablet {tablet:#x} lives elsewhere"
            found = _TABLETS[kind_of(tablet)](tablet, HostSpace(self, tablet), self._send)
            self._tablets[tablet] = found
        return found

    def _send(self, target: int, message: Message) -> None:
        host = 0 if kind_of(target) == PROXY else host_of(target)
        if host == self.number:
            self._waiting.append((target, message))
        elif isinstance(message, DATAGRAMS):
            self._datagrams.setdefault(host, []).append(encode(target, message))
        else:
            self.links[host].push(self._keys, encode(target, message))

    # undoing -------------------------------------------------------------------------------

    def _mark(self) -> tuple[Any, ...]:
        return (
            self.turn.savepoint(),
            self.proxy.mark() if self.proxy is not None else None,
            len(self._coordinator.pending) if self._coordinator is not None else 0,
            {target: link.mark() for target, link in self.links.items()}
            if self.links
            else _NO_LINKS,
            len(self.superseded),
        )

    def _undo(self, mark: tuple[Any, ...]) -> None:
        savepoint, proxy, pending, links, superseded = mark
        self.turn.rollback(savepoint)
        if self.proxy is not None:
            self.proxy.undo(proxy)
        if self._coordinator is not None:
            self._coordinator.forget(pending)
        for target, link_mark in links.items():
            self.links[target].undo(link_mark)
        del self.superseded[superseded:]
        self._waiting.clear()
        self._datagrams.clear()
        self._ended.clear()

    # what happened to a transaction ---------------------------------------------------------

    def _note(self, target: int, message: Message) -> None:
        if type(message) is Plan:
            for entry in message.entries:
                self._events.setdefault(entry[1], []).append((target, "Plan"))
        elif type(message) is not Clean:
            self._events.setdefault(message.tx, []).append((target, type(message).__name__))

    def _write_trace(self) -> None:
        turn = (self.store.last_turn + 1).to_bytes(8, "big")
        for tx, events in self._events.items():
            self._keys.put(b"T" + tx + turn, tuple(events))
        self._events.clear()

    def recorded(self, tx: bytes) -> list[tuple[int, list[tuple[int, str]]]]:
        """(turn, [(tablet, message)]) as trace="messages" recorded it on this host."""
        prefix = tablet_prefix(tablet_id(HOST, self.number, 0)) + b"T" + tx
        rows = self.store.scan(prefix, prefix + b"\xff" * 9)
        return [(int.from_bytes(key[-8:], "big"), list(value)) for key, value in rows]

    def __repr__(self) -> str:
        last = max((key[1] for key in self._prepared), default=None)
        return (
            f"<Host {self.number} step {self.step_released} last {tx_text(last) if last else '-'}>"
        )
