"""Runs a host: one store, the tablets that live in it, one turn at a time.

    inputs ─▶ deliver, first in first out, until nothing is left ─▶ close steps ─▶ one append, one sync
                                                                                     │ durable
              answers to callers, frames to other hosts  ◀── released ◀──────────────┘

Nothing leaves a turn before `store.commit` has made it durable; at that moment all of it becomes visible at
once (versions.py, `release`). When a client's input makes a tablet raise, the whole input is undone. A raise
while executing a plan is our own bug: the host abandons the turn, stops and names the error, as it does when
memory runs out. Given the same inputs, clock value and store, a turn makes the same changes byte for byte.
The caller owns threads and clocks (../runtime/runtime.py), so the simulator drives this very class. The store's
mode says which cores run (modes.py); the placement decides where their messages go (delivery.py). Transactions of
one host need none (inline_decisions.py).

Next: delivery.py, ../runtime/runtime.py.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar

from ..coordinator.plan import Coordinator
from ..errors import HostStopped, PlanstepError, reason
from ..proto.ids import (
    COORDINATOR,
    HOST,
    KIND_SHIFT,
    PROXY,
    host_of,
    tablet_id,
    tablet_prefix,
)
from ..proto.messages import (
    NOBODY,
    Ask,
    Message,
    Part,
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
from .inline_decisions import InlineDecisions
from .inputs import (
    Arrived,
    AtomicDeliver,
    Commit,
    CommitAgain,
    Decided,
    Deliver,
    Input,
    Released,
    Rollback,
    StageInput,
    Tick,
    frees,
)
from .links import Link
from .message_trace import Recording, recorded
from .modes import MODES, Shell
from .pending_proposals import Proposals
from .repeated_commits import RepeatedCommits
from .tablet_registry import TabletRegistry
from .tablet_space import HostSpace, stored_tablets
from .versions import History, Superseded


class Host:
    """Runs turns over one store, one at a time. Invariants: at most one turn is open; results leave only after
    their turn is durable; a discarded turn leaves nothing in memory of proxy, coordinators and links."""

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
        self.decides_inline = not (self.trace or separate)  # else every message is sent
        self.observe = observe
        self.turn: Turn
        self.superseded: list[Superseded] = []
        self.messages = 0
        self.stopped: BaseException | None = None
        self._now_ms = 0
        self._horizon: int | None = 0 if number else None  # the oldest snapshot, as plans report it
        self._proposals = Proposals(number, store)
        keys = HostSpace(self, tablet_id(HOST, number, 0))
        self._keys = keys
        self._recording = Recording(keys)
        self._mode = MODES[mode]
        request_of = self._mode.request_of
        self.delivery = Delivery(
            number, hosts, store, keys, separate=separate, rtt_ms=rtt_ms, request_of=request_of
        )
        shell_of = partial(
            Shell,
            delivery=self.delivery,
            settings=(settings or self._mode.settings()).with_rtt(rtt_ms),
            epoch=store.generation,
            hosts=hosts,
        )
        self._registry = TabletRegistry(
            number, self._mode, partial(HostSpace, self), self.delivery, shell_of
        )
        self._tablet = self._registry.__getitem__
        self._others = self._mode.others
        self._begun = not self._others
        self.links: dict[int, Link] = self.delivery.links
        self.proxy = Proxy(proxy, self.delivery.send) if proxy is not None else None
        if self.proxy is not None and separate:
            self.proxy.merge = False
        self._inline = InlineDecisions(self.delivery, self.proxy, self._tablet)
        coordinator = tablet_id(COORDINATOR, 0, 0)
        self._coordinator: Coordinator | None = (
            self._tablet(coordinator) if number == host_of(coordinator) else None
        )
        if self._coordinator is not None:
            self._coordinator.keeps_participants = trace != "off"
        self._repeated: RepeatedCommits | None = None
        if self._coordinator is not None and self.proxy is not None:
            self._repeated = RepeatedCommits(number, self._coordinator, self.proxy, self._tablet)
        own = tablet_prefix(tablet_id(HOST, number, 0))
        self._step_key = own + b"s" if number else tablet_prefix(coordinator) + b"l"
        self.history.release(store.get(self._step_key) or 0)
        self.history.horizon = self.step_released  # versions overwritten earlier are not in memory
        self._distributed = hosts > 1 or self.delivery.async_clients
        if self._distributed or store.get(own + b"A"):
            self._proposals.find()

    @property
    def ticks(self) -> bool:
        """Returns whether the host needs ticks, to resend messages or ask about proposals."""
        return self._distributed or bool(self._proposals) or not self._begun

    def wait_for_clients(self, now_ms: int) -> None:
        """Leaves proposals alone for a while, whose clients may hand them in again (`CommitAgain`)."""
        self._proposals.wait_for_clients(now_ms)

    def staged_before(self, generation: int) -> list[tuple[int, bytes]]:
        """Returns (partition, transaction) of payloads that an older engine staged and never proposed."""
        return self._proposals.staged_before(generation)

    @property
    def step_released(self) -> int:
        return self.history.released

    # one turn ------------------------------------------------------------------------------

    def run(self, inputs: Iterable[Input], now_ms: int, reserve: bool = False) -> Released:
        """Runs one turn over the inputs and makes it durable; raises IoError if that fails.

        `reserve`: the disk is full. The turn may use the reserved space, and refuses proposals that would
        take space.
        """
        if self.stopped is not None:
            text = f"host {self.number} stopped: {reason(self.stopped)}"
            raise HostStopped(text) from self.stopped
        released = Released()
        self.turn = self.store.begin()
        self.turn.reserve = self.delivery.on_reserve = reserve
        self._now_ms = self.delivery.now_ms = now_ms
        if self._coordinator is not None:
            self._coordinator.now_ms = now_ms
        whole = self._mark()
        try:
            again = self._execute(inputs, released, whole)
        except BaseException as error:
            self._undo(whole)
            self.delivery.forget()
            self.store.abandon(self.turn)
            self._stop_for(error)
            raise
        syncs = self.store.counters.syncs
        try:
            self.store.commit(self.turn, self._show)
        except BaseException:
            self._undo(whole)
            self.delivery.forget()
            raise
        self._begun = True
        if self._others:
            self._registry.durable()
        if again:
            self._proposals.durable()
        self.superseded.clear()
        self.history.forget(self._horizon, now_ms)
        if self.proxy is not None:
            released.results = self.proxy.take()
        repeated = self._repeated
        if repeated is not None and (repeated.journal or repeated.partial):  # not a call each turn
            released.repeated = repeated.durable()
        self.delivery.release(released, again, self.store.counters.syncs - syncs)
        return released

    def _execute(self, inputs: Iterable[Input], released: Released, whole: tuple[Any, ...]) -> bool:
        """Runs the turn up to its commit; returns whether time has passed. `whole` marks the turn's beginning."""
        delivery, coordinator = self.delivery, self._coordinator
        mark: tuple[Any, ...] | None = whole
        if delivery.leftover or not self._begun:
            self._begin()
            mark = None
        again = False
        for item in inputs:
            again = again or type(item) is Tick
            self._input(item, released, mark or self._mark())
            mark = None
        while coordinator is not None and coordinator.pending:
            delivery.closing(coordinator.id, coordinator.pending)
            here = coordinator.close(self._now_ms, self.history.oldest(), self.decides_inline)
            for n, request in enumerate(here):
                if not self._inline.decide(coordinator, n, request):
                    self._drain()
            if delivery.waiting:
                self._drain()
        if self._repeated is not None and self._repeated.waiting:
            self._repeated.look(self.turn)
        if self.links or self.trace or self.observe is not None:
            self._before_commit()
        return again

    def _before_commit(self) -> None:
        self.delivery.before_commit(bool(self.superseded))
        if self.trace:
            self._recording.write(self.store.last_turn + 1)
        if self.observe is not None:
            self.observe(self.turn)

    def _stop_for(self, error: BaseException) -> None:
        """Raises a clearer error where there is one for `error`, which ended the turn; stops the host for a bug."""
        if isinstance(error, RecursionError):
            # The caller's stack, not a bug: nothing of the turn was done.
            raise PlanstepError(f"there is no room to run the turn: {error!r}") from error
        if isinstance(error, Exception) and not isinstance(error, PlanstepError):
            self.stopped = error
            text = f"host {self.number} stopped while executing: {reason(error)}"
            raise HostStopped(text) from error

    def _begin(self) -> None:
        """Takes up work that an earlier engine left under way, before any new input."""
        if self.delivery.leftover:
            self.delivery.deliver_leftover()
            self._drain()
        if not self._begun:
            for number in self._to_begin():
                tablet = self._tablet(number)
                self.delivery.sender, self.delivery.cause = number, NOBODY
                self._registry.touch(tablet)
                tablet.begin()
            self._drain()

    def _to_begin(self) -> Iterator[int]:
        for kind in self._mode.begun:
            first = tablet_id(kind, self.number, 0)
            yield first
            for prefix in stored_tablets(self.store, self.number, (kind,)):
                if (number := int.from_bytes(prefix, "big")) != first:
                    yield number

    def _show(self, visible: Callable[[], None]) -> None:
        """Releases the durable turn's step and shows its changes through `visible`, in one moment."""
        step = self.turn.get(self._step_key) or 0
        self.history.release(step, self.superseded, self._now_ms, visible, not self.number)

    def _input(self, item: Input, released: Released, mark: tuple[Any, ...]) -> None:
        try:
            if type(item) is Commit:  # here, and not in a method: most inputs are
                delivery, proxy = self.delivery, self.proxy
                assert proxy is not None
                delivery.sender, delivery.cause = proxy.id, (item.tx, 0)
                delivery.spent[item.tx].client_bytes += item.size
                if delivery.async_clients and not self._keys.get(b"A"):
                    self._keys.put(b"A", True)  # proposals may outlive a turn
                proxy.commit(item.tx, item.parts)
            else:
                self._HANDLERS[type(item)](self, item)
            self._drain()
        except Exception as error:
            # A client's input is undone whole, and only that client hears of it. A link's message
            # is part of the order: to skip it would be to lose it, so an error stops the host. So
            # does running out of memory.
            if type(item) is Arrived or isinstance(error, MemoryError):
                raise
            self._undo(mark)
            released.failures.append((item, error))

    def _commit_again(self, item: CommitAgain) -> None:
        delivery, proxy, repeated = self.delivery, self.proxy, self._repeated
        assert proxy is not None and repeated is not None
        delivery.sender, delivery.cause = proxy.id, (item.tx, 0)
        if repeated.is_new(item, self.turn):
            delivery.spent[item.tx].client_bytes += item.size
            if delivery.async_clients:
                self._keys.put(b"A", True)
            proxy.commit(item.tx, item.parts)

    def _stage_input(self, item: StageInput) -> None:
        delivery, proxy = self.delivery, self.proxy
        assert proxy is not None
        delivery.sender, delivery.cause = proxy.id, (item.tx, 0)
        delivery.spent[item.tx].client_bytes += item.size
        proxy.stage(item.tx, item.slices)

    def _roll_back(self, item: Rollback) -> None:
        delivery, proxy = self.delivery, self.proxy
        assert proxy is not None
        delivery.sender, delivery.cause = proxy.id, (item.tx, 0)
        proxy.rollback(item.tx)

    def _deliver(self, item: Deliver) -> None:
        self.delivery.waiting.append((item.target, item.message, item.cause))

    def _deliver_all(self, item: AtomicDeliver) -> None:
        for one in item.items:
            self._deliver(one)

    def _arrive(self, item: Arrived) -> None:
        data = item.data
        assert isinstance(data, bytes), "only bytes travel between hosts"
        frame = LinkFrame()
        try:
            frame.ParseFromString(data)
            link = self.links[frame.source]
            datagrams = [decode(bytes(part)) for part in frame.datagrams]
        except Exception:
            return  # not a frame of ours: the sender repeats whatever was in it
        if frame.target != self.number:
            return
        link.heard(frame)
        for part in link.take(self._keys, frame):
            self.delivery.waiting.append(decode(part))
        self.delivery.waiting.extend(datagrams)

    def _tick(self, _: Tick) -> None:
        delivery = self.delivery
        if self.proxy is not None:
            delivery.sender, delivery.cause = self.proxy.id, NOBODY
            self.proxy.resend()
        for tablet, tx in self._proposals.due(self._now_ms, self._tablet):
            delivery.sender, delivery.cause = tablet.id, NOBODY
            tablet.ask_about(tx)

    def _drain(self) -> None:
        delivery = self.delivery
        waiting = delivery.waiting
        tablet_of, others, idle = self._tablet, self._others, self._inline.idle
        turn = self.turn
        while waiting:
            target, message, cause = waiting.popleft()
            delivery.sender, delivery.cause = target, cause
            self.messages += 1
            if self.trace:
                self._recording.note(target, message, cause)
            if target >> KIND_SHIFT == PROXY:
                self._tell_proxy(target, message)
                continue
            if turn.reserve and self._refuse(target, message):
                continue
            kind = type(message)
            own = self._HOST_HANDLERS.get(kind)
            if own is not None and own(self, target, message):
                continue
            tablet = tablet_of(target)
            idle.pop(target, None)
            if target >> KIND_SHIFT in others:
                self._registry.touch(tablet)
                delivery.handling = message.what if kind is Wake else kind.__name__
                tablet.handle(message)
            elif kind is PlanRequest:  # it waits for its step, and changes nothing yet
                delivery.planned = max(delivery.planned, cause[1])
                tablet.handle(message)
            else:
                before = turn.writes
                tablet.handle(message)
                if turn.writes != before:
                    delivery.changed(target, message)

    def _see_question(self, target: int, message: Ask) -> bool:
        """Returns whether to drop the question: the client is still here, and will plan or withdraw."""
        return self.proxy is not None and self.proxy.knows(message.tx)

    def _see_proposal(self, target: int, message: Propose[Part] | Stage) -> bool:
        if self._distributed:
            self._proposals.came(target, message.tx, self._now_ms)
        return False

    def _see_plan(self, target: int, message: Plan[Part]) -> bool:
        if self.number:
            self._horizon = max(self._horizon or 0, message.horizon)
            if message.step > (self._keys.get(b"s") or 0):
                self._keys.put(b"s", message.step)
        return False

    def _tell_proxy(self, target: int, message: Message) -> None:
        proxy = self.proxy
        if proxy is not None and target == proxy.id:
            tx, hops = message.tx, self.delivery.cause[1]
            reached = self.delivery.reached
            reached[tx] = max(reached.get(tx, 0), hops)
            if type(message) is Decided:
                proxy.decided(
                    tx, message.step, message.n, message.reason, message.details, late=True
                )
            else:
                proxy.handle(message)
        elif type(message) is Staged:  # for a client of an older engine
            self.delivery.send(message.tablet, Withdraw(message.tx))

    def _refuse(self, target: int, message: Message) -> bool:
        """On a full disk, refuses a message that would take space; returns whether it did."""
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
        repeated = self._repeated
        changed = repeated is not None and (repeated.journal or repeated.partial)
        return (
            self.turn.savepoint(),
            self.proxy.mark() if self.proxy is not None else None,
            len(self._coordinator.pending) if self._coordinator is not None else 0,
            self.delivery.mark(),
            len(self.superseded),
            self._registry.mark() if self._others else 0,
            repeated.mark() if repeated is not None and changed else (0, 0),
        )

    def _undo(self, mark: tuple[Any, ...]) -> None:
        savepoint, proxy, pending, delivery, superseded, memory, repeated = mark
        self.turn.rollback(savepoint)
        self._inline.idle.clear()
        if self.proxy is not None:
            self.proxy.undo(proxy)
        if self._coordinator is not None:
            self._coordinator.forget(pending)
        self.delivery.undo(delivery)
        del self.superseded[superseded:]
        self._registry.undo(memory)
        self._proposals.undo()
        if self._repeated is not None:
            self._repeated.undo(repeated)

    def in_use(self, tablet: int) -> Any:
        """Returns a tablet with its memory, None for one that nothing was sent to yet."""
        return self._registry.get(tablet)

    def recorded(self, tx: bytes) -> list[tuple[int, list[tuple[int, str]]]]:
        """Returns (turn, [(tablet, message)]) as trace="messages" recorded it on this host."""
        return recorded(self.store, self.number, tx)

    def __repr__(self) -> str:
        return f"<Host {self.number} step {self.step_released} {self._proposals!r}>"

    _HANDLERS: ClassVar[dict[type, Callable[["Host", Any], None]]] = {
        CommitAgain: _commit_again,
        StageInput: _stage_input,
        Rollback: _roll_back,
        Deliver: _deliver,
        AtomicDeliver: _deliver_all,
        Arrived: _arrive,
        Tick: _tick,
    }
    """The handler of each input of a turn except `Commit`."""

    _HOST_HANDLERS: ClassVar[dict[type, Callable[["Host", int, Any], bool]]] = {
        Ask: _see_question,
        Propose: _see_proposal,
        Stage: _see_proposal,
        Plan: _see_plan,
    }
    """The host's own look at a message before the tablet's; true: the tablet does not get it."""
