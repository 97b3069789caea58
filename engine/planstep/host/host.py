"""The host: one store, the tablets that live in it, one turn at a time.

    inputs ─▶ deliver, first in first out, until nothing is left ─▶ close steps ─▶ one append, one sync
                                                                                     │ durable
              answers to callers, frames to other hosts  ◀── released ◀──────────────┘

Nobody acts on something that can still be lost: all that leaves a turn does so after `store.commit`, in which
the turn becomes visible to everybody at once (versions.py, `release`).
A client's input that makes a tablet raise is undone whole; a raise while executing a plan is a bug
of ours: the turn is abandoned, the host stops and names it. Given the same inputs, clock value and
store, a turn makes the same changes byte for byte: threads and clocks are the caller's (../runtime/runtime.py),
so the simulator drives this very class. Which cores it runs is the store's mode (modes.py); where their
messages go is the placement's business (delivery.py).

Next: delivery.py, ../runtime/runtime.py.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..coordinator.plan import Coordinator
from ..errors import HostStopped, PlanstepError, reason
from ..proto.ids import (
    COORDINATOR,
    HOST,
    PROXY,
    host_of,
    kind_of,
    tablet_id,
    tablet_prefix,
)
from ..proto.messages import (
    NOBODY,
    Ask,
    Message,
    Plan,
    PlanRequest,
    Propose,
    Refused,
    Stage,
    Staged,
    Withdraw,
    decode,
)
from ..proto.mode_settings import ModeSettings
from ..proto.reasons import DiskFull, kept_as
from ..proto.records_pb2 import LinkFrame
from ..proto.shell import Wake
from ..proxy.deterministic import Proxy
from ..store import Store, Turn
from .delivery import Delivery
from .inputs import (
    Ahead,
    Arrived,
    Commit,
    Decided,
    Deliver,
    Input,
    Released,
    Rollback,
    Tick,
    Together,
    frees,
)
from .links import Link
from .message_trace import Recording, recorded
from .modes import MODES
from .pending_proposals import Proposals
from .tablet_registry import Residents
from .tablet_space import HostSpace
from .versions import History


class Host:
    """Invariants: at most one turn is open; results leave only after their turn is durable; what a
    discarded turn did to proxy, coordinators and links in memory is taken back."""

    def __init__(
        self,
        number: int,
        store: Store,
        hosts: int = 1,
        *,
        proxy: int | None = None,
        trace: str = "summary",
        observe: Callable[[Turn], None] | None = None,
        mode: str = "deterministic",
        separate: bool = False,
        rtt_ms: float = 0.0,
        settings: ModeSettings | None = None,
        history: History | None = None,
    ) -> None:
        self.number = number
        self.store = store
        self.hosts = hosts
        self.history = history or History()
        self.trace = trace == "messages"
        self.at_once = not (self.trace or separate)  # else every message is sent
        self.observe = observe
        self.turn: Turn
        self.superseded: list[tuple[bytes, Any, int]] = []
        self.messages = 0
        self.stopped: BaseException | None = None
        self._now_ms = 0
        self._horizon: int | None = 0 if number else None  # of the snapshots, as plans tell it
        self._proposals = Proposals(number, store)
        self._reached: dict[bytes, int] = {}  # hops behind what a transaction's proxy was told
        keys = HostSpace(self, tablet_id(HOST, number, 0))
        self._keys = keys
        self._recording = Recording(keys)
        self._mode = MODES[mode]
        request_of = self._mode.request_of
        self.delivery = Delivery(
            number, hosts, store, keys, separate=separate, rtt_ms=rtt_ms, request_of=request_of
        )
        self._residents = Residents(
            number,
            hosts,
            self._mode,
            store,
            partial(HostSpace, self),
            self.delivery,
            settings or self._mode.settings(),
            rtt_ms,
            lambda: self._now_ms,
        )
        self._tablet = self._residents.get
        self._others = self._mode.others
        self._begun = not self._others
        self.links: dict[int, Link] = self.delivery.links
        self.proxy = Proxy(proxy, self.delivery.send) if proxy is not None else None
        if self.proxy is not None and separate:
            self.proxy.merge = False
        coordinator = tablet_id(COORDINATOR, 0, 0)
        self._coordinator: Coordinator | None = (
            self._tablet(coordinator) if number == host_of(coordinator) else None
        )
        if self._coordinator is not None:
            self._coordinator.keeps_participants = trace != "off"
        own = tablet_prefix(tablet_id(HOST, number, 0))
        step = tablet_prefix(coordinator) + b"l"
        self._step_key = own + b"s" if number else step
        self.history.release(self._last_step())
        self.history.horizon = self.step_released  # what was overwritten before is not here
        self._several = hosts > 1 or self.delivery.apart
        if self._several or store.get(own + b"A"):
            self._proposals.find()

    @property
    def ticks(self) -> bool:
        """It has to be told that time passes: something may have to be sent again, or asked."""
        return self._several or bool(self._proposals) or not self._begun

    def staged_before(self, generation: int) -> list[tuple[int, bytes]]:
        """(partition, transaction) of payloads that an older engine sent ahead and never proposed."""
        return self._proposals.staged_before(generation)

    def _last_step(self) -> int:
        return self.store.get(self._step_key) or 0

    @property
    def step_released(self) -> int:
        return self.history.released

    # one turn ------------------------------------------------------------------------------

    def run(self, inputs: Iterable[Input], now_ms: int, reserve: bool = False) -> Released:
        """Runs one turn over the inputs and makes it durable; IoError when it could not be.

        `reserve`: the disk is full, and the turn may use what was put aside: proposals that would
        take space are refused.
        """
        if self.stopped is not None:
            raise HostStopped(
                f"host {self.number} stopped: {reason(self.stopped)}"
            ) from self.stopped
        released = Released()
        self.turn = self.store.begin()
        self.turn.reserve = reserve
        self._now_ms = now_ms
        if self._coordinator is not None:
            self._coordinator.now_ms = now_ms
        delivery = self.delivery
        whole = self._mark()
        again = False
        try:
            if delivery.left or not self._begun:
                self._begin()
            for item in inputs:
                if type(item) is Tick:
                    again = True
                self._input(item, released)
            while self._coordinator is not None and self._coordinator.pending:
                delivery.closing(self._coordinator.id, self._coordinator.pending)
                here = self._coordinator.close(now_ms, self.history.oldest(), self.at_once)
                for n, request in enumerate(here):
                    self._decide(self._coordinator, n, request)
                self._drain()
            delivery.before_commit(bool(self.superseded))
            if self.trace:
                self._recording.write(self.store.last_turn + 1)
            if self.observe is not None:
                self.observe(self.turn)
        except BaseException as error:
            self._undo(whole)
            delivery.forget()
            self.store.abandon(self.turn)
            if isinstance(error, (RecursionError, MemoryError)):
                # The caller's stack or memory, not a bug: nothing of the turn was done.
                raise PlanstepError(f"there is no room to run the turn: {error!r}") from error
            if isinstance(error, Exception) and not isinstance(error, PlanstepError):
                self.stopped = error
                raise HostStopped(
                    f"host {self.number} stopped while executing: {reason(error)}"
                ) from error
            raise
        syncs = self.store.counters.syncs
        try:
            self.store.commit(self.turn, self._show)
        except BaseException:
            self._undo(whole)
            delivery.forget()
            raise
        self._begun = True
        self._residents.durable()
        self._proposals.durable()
        self.superseded.clear()
        self.history.forget(self._horizon, now_ms)
        if self.proxy is not None:
            released.results = self.proxy.take()
        delivery.release(released, again, self.store.counters.syncs - syncs)
        if released.results:
            spent = released.spent
            for result in released.results:
                hops = self._reached.pop(result.tx, 0)
                mine = spent.get(result.tx)
                if mine is not None and mine.wrote:
                    hops = max(hops, mine.hops + 1)
                released.hops[result.tx] = hops
        return released

    def _begin(self) -> None:
        """What an earlier engine left under way, before anything new."""
        if self.delivery.left:
            self.delivery.take_left()
            self._drain()
        if not self._begun:
            for kind in self._mode.begun:
                tablet = self._tablet(tablet_id(kind, self.number, 0))
                self.delivery.sender, self.delivery.cause = tablet.id, NOBODY
                self._residents.touch(tablet)
                tablet.begin()
            self._drain()

    def _show(self, visible: Callable[[], None]) -> None:
        """The turn is durable: in one moment its step is released, and `visible` shows its changes."""
        step = self.turn.get(self._step_key) or 0
        self.history.release(step, self.superseded, self._now_ms, visible)

    def _input(self, item: Input, released: Released) -> None:
        mark = self._mark()
        delivery = self.delivery
        try:
            if isinstance(item, (Commit, Ahead, Rollback)):
                proxy = self.proxy
                assert proxy is not None
                delivery.sender, delivery.cause = proxy.id, (item.tx, 0)
                if not isinstance(item, Rollback):
                    delivery.spend(item.tx).client_bytes += item.size
                if isinstance(item, Commit):
                    if delivery.apart and not self._keys.get(b"A"):
                        self._keys.put(b"A", True)  # proposals may outlive a turn
                    proxy.commit(item.tx, item.parts)
                elif isinstance(item, Ahead):
                    proxy.stage(item.tx, item.slices)
                else:
                    proxy.rollback(item.tx)
            elif isinstance(item, Deliver):
                delivery.waiting.append((item.target, item.message, item.cause))
            elif isinstance(item, Together):
                for one in item.items:
                    delivery.waiting.append((one.target, one.message, one.cause))
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
            self.delivery.waiting.append(decode(part))
        self.delivery.waiting.extend(datagrams)

    def _tick(self) -> None:
        delivery = self.delivery
        if self.proxy is not None:
            delivery.sender, delivery.cause = self.proxy.id, NOBODY
            self.proxy.resend()
        for tablet, tx in self._proposals.due(self._now_ms, self._tablet):
            delivery.sender, delivery.cause = tablet.id, NOBODY
            tablet.ask_about(tx)

    def _decide(self, coordinator: Coordinator, n: int, request: PlanRequest) -> None:
        """A transaction whose participants are all here: plan, votes, effects and answer in one.

        What the messages would have brought about, without sending them. Where something undecided
        is in the way, they are sent.
        """
        tablets = [self._tablet(tablet) for tablet in request.participants]
        if not all([tablet.idle() for tablet in tablets]):
            self.delivery.sender = coordinator.id
            coordinator.announce(n, request)
            self._drain()
            return
        tx, reason = request.tx, None
        spent = self.delivery.spend(tx)
        for tablet, body in zip(tablets, request.bodies, strict=True):
            if reason is None and tablet.id in request.voters:
                reason = tablet.vote(tx, body)
        details: dict[int, Any] = {}
        step = coordinator.step
        if reason is None:
            for tablet, body in zip(tablets, request.bodies, strict=True):
                if tablet.id in request.receivers:
                    details[tablet.id] = tablet.publish(tx, body, step, n)
                    spent.appends += 1
                    self.delivery.stepped(tablet.id, "Plan")
        else:
            for tablet in tablets:
                tablet.unstage(tx)
        coordinator.decided(n, request, reason is None)
        if self.proxy is not None and request.proxy == self.proxy.id:
            if self.delivery.apart:
                self.delivery.sender = coordinator.id
                self.delivery.send(self.proxy.id, Decided(tx, step, n, reason, details))
            else:
                self.proxy.decided(tx, step, n, reason, details)

    def _drain(self) -> None:
        delivery = self.delivery
        waiting = delivery.waiting
        tablet_of, others = self._tablet, self._others
        turn = self.turn
        while waiting:
            target, message, cause = waiting.popleft()
            delivery.sender, delivery.cause = target, cause
            self.messages += 1
            if self.trace:
                self._recording.note(target, message, cause)
            if kind_of(target) == PROXY:
                self._tell_proxy(target, message)
                continue
            kind = type(message)
            if turn.reserve and self._refuse(target, message):
                continue
            if kind is Ask and self.proxy is not None and self.proxy.knows(message.tx):
                continue  # its client is at it: it will be planned, or withdrawn
            if self._several and (kind is Propose or kind is Stage):
                self._proposals.came(target, message.tx, self._now_ms)
            elif kind is PlanRequest:
                delivery.requested()
            elif kind is Plan and self.number:
                self._horizon = max(self._horizon or 0, message.horizon)
                if message.step > (self._keys.get(b"s") or 0):
                    self._keys.put(b"s", message.step)
            tablet = tablet_of(target)
            if kind_of(target) in others:
                self._residents.touch(tablet)
                delivery.handling = message.what if kind is Wake else kind.__name__
                tablet.handle(message)
                continue
            before = turn.writes
            tablet.handle(message)
            if turn.writes != before:
                delivery.changed(target, message)

    def _tell_proxy(self, target: int, message: Message) -> None:
        proxy = self.proxy
        if proxy is not None and target == proxy.id:
            tx, hops = message.tx, self.delivery.cause[1]
            self._reached[tx] = max(self._reached.get(tx, 0), hops)
            if type(message) is Decided:
                proxy.decided(
                    tx, message.step, message.n, message.reason, message.details, late=True
                )
            else:
                proxy.handle(message)
        elif type(message) is Staged:  # for a client of an older engine
            self.delivery.send(message.tablet, Withdraw(message.tx))

    def _refuse(self, target: int, message: Message) -> bool:
        """The disk is full: whether the message would take space, and was refused."""
        kind = type(message)
        if kind is Stage or (kind is Propose and not frees(message.part)):
            refused = Refused(message.tx, target, kept_as(target, DiskFull()))
            self.delivery.send(message.proxy, refused)
            return True
        answer = self._mode.no_space(message, target)
        if answer is None:
            return False
        self.delivery.send(message.client, answer)
        return True

    # undoing -------------------------------------------------------------------------------

    def _mark(self) -> tuple[Any, ...]:
        return (
            self.turn.savepoint(),
            self.proxy.mark() if self.proxy is not None else None,
            len(self._coordinator.pending) if self._coordinator is not None else 0,
            self.delivery.mark(),
            len(self.superseded),
            self._residents.mark() if self._others else 0,
        )

    def _undo(self, mark: tuple[Any, ...]) -> None:
        savepoint, proxy, pending, delivery, superseded, memory = mark
        self.turn.rollback(savepoint)
        if self.proxy is not None:
            self.proxy.undo(proxy)
        if self._coordinator is not None:
            self._coordinator.forget(pending)
        self.delivery.undo(delivery)
        del self.superseded[superseded:]
        self._residents.undo(memory)
        self._proposals.undo()

    def log_counters(self, tablet: int) -> dict[str, Any]:
        """Of a coordinator's buffered log."""
        found: dict[str, Any] = self._tablet(tablet).log.counters()
        return found

    def recorded(self, tx: bytes) -> list[tuple[int, list[tuple[int, str]]]]:
        """(turn, [(tablet, message)]) as trace="messages" recorded it on this host."""
        return recorded(self.store, self.number, tx)

    def __repr__(self) -> str:
        return f"<Host {self.number} step {self.step_released} {self._proposals!r}>"
