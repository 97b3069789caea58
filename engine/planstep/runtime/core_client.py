"""Runs the core of a client outside of turns (mode kafka has one): adds a lock, timers, the line to the hosts.

    calls, answers, timers ─▶ core, under one lock ─▶ requests ─ the line ─▶ hosts' inboxes
                                                 └─▶ ends of calls ─▶ the callers

The core is the client's state machine, without lock, clock or thread (../proxy/kafka/client.py). It runs in the
thread that has an input for it: the application's, one that runs a host's turn, or the timers' thread.

A turn is a batch of a host's inputs, committed or undone as one. The client is part of no turn: a host
that undoes a turn does not undo its clients. Likewise a broker that fails does not affect its clients' memory.

Next: kafka/producer_sessions.py, which uses this; ../proxy/kafka/client.py, the core.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from ..host.inputs import AtomicDeliver, Deliver, each_of
from ..proto.ids import host_of
from ..proto.messages import Cause, Slices, size_of
from ..proto.shell import Answer
from ..proxy.requests import Exchange
from .deferred_signals import Uninterrupted
from .network import Line

if TYPE_CHECKING:
    from .runtime import Runtime

Then = Callable[[str, Any, str], None]
"""(error name or "", value, detail), called under the client's lock."""


class Carrier(Protocol):
    """A message with a batch of records: a partition's part of a request."""

    request: int
    data: bytes


C = TypeVar("C", bound=Exchange[Any])
"""The pure part of a mode's client, without lock, clock or thread."""


class _Locked(Uninterrupted):
    """Holds a client's lock, and takes the core's output before it is released."""

    __slots__ = ("_lock", "_pump")

    def __init__(self, lock: AbstractContextManager[bool], pump: Callable[[], None]) -> None:
        self._lock = lock
        self._pump = pump

    def __enter__(self) -> Self:
        super().__enter__()
        self._lock.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            try:
                if kind is None:
                    self._pump()
            finally:
                self._lock.__exit__(kind, error, trace)
        finally:
            super().__exit__(kind, error, trace)


class Client(Generic[C]):
    """Runs a core under one lock. Invariant: the core's output is taken before the lock is released."""

    def __init__(
        self,
        runtime: "Runtime",
        address: int,
        core: C,
        batch: type[Carrier],
        errors: tuple[str, str],
    ) -> None:
        """`batch`: the class of messages with records; `errors`: of a request whose tablet raised, and of one whose
        tablet, or one that it names, was dropped."""
        self._failed, self._dropped = errors
        self.address = address
        self.line = Line(runtime.turns.delays, runtime.turns.half_ms)
        self._runtime = runtime
        self.core = core
        self._batch = batch
        self.pumped: Callable[[], None] = lambda: None
        """Called after each input to the core."""
        self._lock = threading.RLock()  # ends of calls ask for more
        self._calls = 0
        self._then: dict[bytes, Then] = {}
        self._hops: dict[bytes, int] = {}
        self._sizes: dict[bytes, int] = {}
        """The bytes of a transaction's messages, there and back, until it ends."""
        self._held: dict[bytes, dict[int, bytes]] = {}  # tx → id(batch) → the key of its admission
        self._produced: dict[tuple[int, int], tuple[bytes, int]] = {}
        """(request, partition's tablet) → (tx, id(batch))."""
        self._pokes: dict[int, None] = {}
        self._rows: dict[float, deque[tuple[float, int]]] = {}  # delay → (due, token)…
        self._armed: dict[float, None] = {}
        self._counted = 0
        self._pumping = 0  # the thread that sends the core's output
        self._closed = False

    def locked(self) -> "_Locked":
        return _Locked(self._lock, self._pump)

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def call(self, then: Then) -> bytes:
        """Returns a call's id for the core; the caller holds the lock, also while it calls the core."""
        self._calls += 1
        call = self._calls.to_bytes(8, "big")
        self._then[call] = then
        return call

    # room ----------------------------------------------------------------------------------

    def admit(self, tx: bytes, batches: dict[int, Slices], wait: float | None) -> None:
        """Waits for room for all batches at once, under no lock; raises Overloaded after `wait` seconds.

        Room is given back as answers come, or at once when the call was refused or interrupted. One batch at a
        time would wait in vain: for those before it, which are sent only together with it.
        """
        runtime, admission = self._runtime, self._runtime.admission
        pieces = [data for items in batches.values() for data, _ in items]
        if not pieces:
            return
        whole = runtime.new_tx()
        keys = [runtime.new_tx() for _ in pieces]
        try:
            admission.admit(whole, sum(map(len, pieces)), wait)
            with Uninterrupted(), self._lock:
                admission.share_out(whole, dict(zip(keys, map(len, pieces), strict=True)))
                held = self._held.setdefault(tx, {})
                for data, key in zip(pieces, keys, strict=True):
                    # Its producer did not take an earlier batch with this id, and that is gone.
                    if (earlier := held.get(id(data))) is not None:
                        admission.let_go(earlier)
                    held[id(data)] = key
        except BaseException:  # refused, or interrupted
            with Uninterrupted(), self._lock:
                mine = dict.fromkeys(keys)
                others = {b: k for b, k in self._held.get(tx, {}).items() if k not in mine}
                if others:
                    self._held[tx] = others
                else:
                    self._held.pop(tx, None)
                for key in (whole, *keys):
                    admission.let_go(key)
            raise

    def let_go(self, tx: bytes) -> None:
        """Gives back the room of a transaction that has ended, and counts its costs."""
        for key in self._held.pop(tx, {}).values():
            self._runtime.admission.let_go(key)
        requests, size = self.core.requests_of(tx), self._sizes.pop(tx, 0)
        if requests or size:
            self._runtime.ledger.requested(tx, requests, size)
        hops = self._hops.pop(tx, 0)
        if hops:
            self._runtime.ledger.replied(tx, hops)

    def flushed(self, tx: bytes) -> None:
        """Notes that the owner has waited for everything sent, so that its commit counts later hops only."""
        if tx in self._hops:
            self._hops[tx] = 0

    def outstanding(self, tx: bytes) -> int:
        """Returns the number of a transaction's batches that were sent and not answered."""
        return len(self._held.get(tx, ()))

    # input and output ----------------------------------------------------------------------

    def answered(self, answers: list[tuple[int, Answer, Cause]]) -> None:
        """Receives answers to this client that have left their turn, half an rtt later."""
        mine = [(answer, cause) for _, answer, cause in answers]
        self.line.send(mine[0][0], partial(self._take, mine))

    def failed(self, item: Deliver | AtomicDeliver, *, dropped: bool = False) -> None:
        """Answers requests, of any client, that were undone because a tablet raised, or was `dropped`."""
        error = self._dropped if dropped else self._failed
        requests = [one for one in each_of(item) if hasattr(one.message, "client")]
        self._runtime.turns.answer_clients(
            [
                (r.message.client, Answer(r.message.request, r.target, error), r.cause)
                for r in requests
            ]
        )

    def _take(self, answers: list[tuple[Answer, Cause]]) -> None:
        with self.locked():
            if self._closed:
                return
            for answer, (tx, hops) in answers:
                self._count_bytes(tx, size_of(answer))
                if tx is not None and tx in self._hops:
                    self._hops[tx] = max(self._hops[tx], hops)
                owner, batch = self._produced.pop((answer.request, answer.tablet), (b"", 0))
                if owner and not answer.error:
                    key = self._held.get(owner, {}).pop(batch, None)
                    if key is not None:
                        self._runtime.admission.let_go(key)
                self.core.handle(answer)
        self.deliver()

    def _count_bytes(self, tx: bytes | None, size: int) -> None:
        if tx in self._hops:  # it has not ended
            self._sizes[tx] = self._sizes.get(tx, 0) + size
        else:
            self._runtime.ledger.requested(tx, 0, size)

    def _schedule(self, delay_ms: float, token: int) -> None:
        """Queues a timer. Request timers rarely fire, so all timers with the same delay share one queue and
        one scheduled call."""
        row = self._rows.setdefault(delay_ms, deque())
        while row and not self.core.awaits(row[0][1]):
            row.popleft()
        row.append((monotonic() + delay_ms / 1000, token))
        if delay_ms not in self._armed:
            self._armed[delay_ms] = None
            self._runtime.turns.delays.after(delay_ms, partial(self._wake, delay_ms))

    def _wake(self, delay_ms: float) -> None:
        with self.locked():
            if self._closed:
                return
            row, now = self._rows[delay_ms], monotonic()
            while row and (row[0][0] <= now or not self.core.awaits(row[0][1])):
                self.core.wake(row.popleft()[1])
            if row:
                left_ms = max(0.0, 1000 * (row[0][0] - now))
                self._runtime.turns.delays.after(left_ms, partial(self._wake, delay_ms))
            else:
                del self._armed[delay_ms]
        self.deliver()

    def _pump(self) -> None:
        """Sends the core's output, and reports the ends of calls, until there is nothing more."""
        self._pumping = threading.get_ident()
        core = self.core
        while core.out or core.timers or core.ended:
            out, timers, ended = core.take()
            self._send_all(out)
            for delay_ms, token in timers:
                self._schedule(delay_ms, token)
            for end in ended:
                then = self._then.pop(end.call, None)
                if then is not None:
                    then(end.error, end.value, end.detail)
        if core.requests != self._counted:
            self._runtime.ledger.counted(core.requests - self._counted)
            self._counted = core.requests
        self.pumped()
        self._pumping = 0

    def _send_all(self, out: list[tuple[int, Any, bytes | None]]) -> None:
        """Sends messages, those of one request to a host together."""
        items: list[Deliver] = []
        for target, message, tx in out:
            item = self._item(target, message, tx)
            self._count_bytes(tx, size_of(message))
            if items and not self._same_request(items[-1], item):
                self._send(items)
                items = []
            items.append(item)
        if items:
            self._send(items)

    def _send(self, items: list[Deliver]) -> None:
        whole = items[0] if len(items) == 1 else AtomicDeliver(tuple(items))
        self.line.send(items[0].message, partial(self._arrive, whole))

    def _item(self, target: int, message: Any, tx: bytes | None) -> Deliver:
        hops = 0
        if tx is not None:
            hops = self._hops.setdefault(tx, 0)
            if type(message) is self._batch:
                self._produced[message.request, target] = (tx, id(message.data))
        return Deliver(target, message, (tx, hops))

    def _arrive(self, item: Deliver | AtomicDeliver) -> None:
        host = host_of(each_of(item)[0].target)
        node = self._runtime.nodes[host]
        if not node.down:
            node.take(item)
            if node.link is None:
                self._pokes[host] = None
        if self._pumping != threading.get_ident():  # it arrives later than it was sent
            self.deliver()

    def deliver(self) -> None:
        """Wakes the hosts that have input, and hands out answers; called after each call, under no lock."""
        runtime = self._runtime
        while self._pokes:
            try:
                host, _ = self._pokes.popitem()
            except KeyError:  # another thread was faster
                break
            runtime.turns.poke(runtime.nodes[host])
        runtime.replies.answer()

    def lost(self) -> None:
        """Sends all requests that are not answered once more: another process owns the store by now."""
        with self.locked():
            if not self._closed:
                self.core.lost()
        self.deliver()

    def _same_request(self, a: Deliver, b: Deliver) -> bool:
        return (
            type(b.message) is self._batch
            and a.message.request == b.message.request
            and host_of(a.target) == host_of(b.target)
        )
