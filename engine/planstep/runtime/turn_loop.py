"""Runs the turns of the hosts: takes inputs from an inbox, and passes on what the turn releases.

    inbox ─▶ turn (under the node's lock) ─┬─▶ frames ─▶ other hosts · answers ─▶ those that wait
                                           ├ no space ─▶ inputs that free space once more, from the reserve
                                           ├ another owner has its place ─▶ none of it was done; the host stops
                                           └ perhaps durable, perhaps not ─▶ the host stops

The threads that run turns are in thread_pool.py; replies.py takes answers to those that wait.

Next: thread_pool.py.
"""

import math
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..errors import (
    Aborted,
    EngineClosed,
    Fenced,
    HostStopped,
    IoError,
    LogUnreachable,
    NoSpace,
    PlanstepError,
    StoreClosed,
    Undetermined,
    reason,
)
from ..host.host import Host
from ..host.inputs import (
    Arrived,
    AtomicDeliver,
    CommitAgain,
    Deliver,
    Input,
    Released,
    Rollback,
    StageInput,
    Tick,
    each_of,
    frees,
)
from ..host.inputs import Commit as CommitInput
from ..logs import engine_stopped, host_stopped, input_failed, no_space, turn_failed
from ..proto.ids import Place, tx_text
from ..proto.messages import Cause
from ..proto.reasons import cause_of
from ..proto.shell import Answer
from ..proxy.deterministic import Result
from .catalog import Names
from .deferred_signals import Uninterrupted, room_for_a_turn
from .group_commit import Node, ReplySink, Sink, Waiter, bytes_of
from .ledger import Ledger
from .network import Network
from .outcome import Commit, failure
from .partial_commits import PartialCommits
from .replies import ReplyBook, own
from .timers import Delays
from .wait_primitives import Signal, Watches, wait_for

if TYPE_CHECKING:
    from .core_client import Client

_TURN_INPUTS = 1000
_TURN_BYTES = 4 << 20
_LOOK_SECONDS = 0.5


ToClient: TypeAlias = tuple[int, Answer, Cause]
"""(client's address, answer, cause)."""


class AnswerSink(Protocol):
    """Takes the answers of one client, once they have left their turn. It is quick, and raises nothing."""

    def answered(self, answers: list[ToClient], /) -> None: ...


class TurnLoop:
    """Runs turns. Invariant: every waiter is answered, by a durable turn or by a failure."""

    def __init__(
        self,
        nodes: list[Node],
        replies: ReplyBook,
        names: Names,
        ledger: Ledger,
        *,
        network: Network | None = None,
        rtt_ms: float = 0.0,
        async_clients: bool = False,
        group_commit: bool = True,
    ) -> None:
        self.nodes = nodes
        self.names = names
        self.network = network or Network()
        self.network.deliver = self._deliver
        self.delays = Delays()
        self.half_ms = rtt_ms / 2
        self.watches = Watches()
        self.client: Client[Any] | None = None  # outside of turns, in modes that have one
        self.clients: dict[int, AnswerSink] = {}
        """By address: the client of this process, and those of processes that are attached."""
        self.committed = 0
        self.conflicts = 0
        self.aborted: dict[str, int] = {}  # by cause: see outcome.py
        self.failed: dict[str, int] = {}  # by error: the turn, or the input alone
        self.closed = False
        self.stopped: BaseException | None = None  # a host stopped: nothing under way ends here
        self.retries: deque[tuple[int, Input]] = deque()  # (host, input to give it again)
        self.partial = PartialCommits(nodes)
        self.submitted = Signal()
        """Set when there is work for the service thread."""
        self._hosts = len(nodes)
        self._replies = replies
        self._ledger = ledger
        self._turn_inputs = _TURN_INPUTS if group_commit else 1
        self.async_clients = async_clients  # clients are outside of the hosts' turns

    # inputs --------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.closed:
            raise EngineClosed("the engine is closed")
        if isinstance(self.stopped, StoreClosed):
            raise own(self.stopped)
        if self.stopped is not None:
            raise HostStopped(f"the engine stopped: {reason(self.stopped)}; reopen it")

    def enqueue(
        self, item: CommitInput | StageInput, future: ReplySink | Sink | None, wait: float | None
    ) -> Waiter:
        if self.closed or self.stopped is not None:
            self.check_open()
        room_for_a_turn()
        size = bytes_of(item)
        try:
            self._replies.admission.admit(item.tx, size, wait)
            if not self.async_clients:  # else its messages to the tablets count their bytes
                item.size = size
            waiter = Waiter(item.tx, size, future)
            node = self.nodes[0]
            link = node.link
            if link is None:
                # CPython looks for signals after a call, so no handler runs between these two.
                self._replies.waiting[item.tx] = waiter
                node.inbox.append(item)
            else:
                with Uninterrupted():
                    self._replies.waiting[item.tx] = waiter
                    link.send(item)
        except BaseException as error:
            if item.tx not in self._replies.waiting:  # interrupted before it was sent, or refused
                self._replies.admission.let_go(item.tx)
                raise
            if not isinstance(error, MemoryError):
                if isinstance(error, PlanstepError):  # the link refuses it
                    self._replies.waiting.pop(item.tx, None)
                    self._replies.admission.let_go(item.tx)
                raise
            self.stop_soon(error)  # perhaps sent, perhaps not
        if self.stopped is not None:  # it stopped since the check above
            self._replies.give_up(self.stopped)
            self._replies.answer()
        return waiter

    def enqueue_again(
        self, item: CommitAgain, future: ReplySink | None, wait: float | None
    ) -> Waiter:
        """Takes a commit that a client hands in once more. One that is under way here gets another sink."""
        return self._replies.redirect(item.tx, future) or self.enqueue(item, future, wait)

    def hand_in_again(self, items: Iterable[CommitAgain]) -> None:
        """Takes commits of this process that wait for an owner's answer, once this process is the owner."""
        self.nodes[0].inbox.extend(items)
        self.poke(self.nodes[0])

    def _deliver(self, target: int, data: bytes) -> None:
        node = self.nodes[target]
        if not node.down:
            self.put(node, Arrived(data))

    def doubt(self) -> str:
        """Returns what is known of why an input is not answered in time."""
        link = self.nodes[0].link
        return "" if link is None else link.doubt()

    # turns ---------------------------------------------------------------------------------

    def rest(
        self, node: Node, deadline: float = math.inf, block: Uninterrupted | None = None
    ) -> bool:
        """Waits until the next turn may begin. Returns False if `deadline` came first, or a signal that `block`
        defers. The caller does not hold the node's lock."""
        with node.hurried.listen() as queue:
            while not self.closed and (now := time.monotonic()) < node.due:
                if now >= deadline:
                    return False
                # A signal may come just before the wait: it is looked for once more.
                if wait_for(queue, min(node.due - now, deadline - now, _LOOK_SECONDS), block):
                    return self.closed
        return True

    def hurry(self) -> None:
        """Ends rests: the engine closes."""
        for node in self.nodes:
            node.hurried.ring()

    def turn(self, node: Node) -> None:
        """Runs one turn over the inputs of an inbox, unless the node rests; the caller holds the node's lock."""
        if node.linger and not self.closed and time.monotonic() < node.due:
            return
        inputs: list[Input] = []
        size = 0
        inbox = node.inbox
        while inbox and len(inputs) < self._turn_inputs and size < _TURN_BYTES:
            item = inbox.popleft()
            inputs.append(item)
            if isinstance(item, (CommitInput, StageInput)):
                waiter = self._replies.waiting.get(item.tx)
                size += waiter.size if waiter is not None else 0
            else:
                size += _bytes_in(item)
        if not inputs or node.down:
            return
        store = node.host.store
        began, before = time.perf_counter(), store.last_turn
        try:
            released = node.host.run(inputs, time.time_ns() // 1_000_000)
        except PlanstepError as error:
            self._not_durable(node, inputs, error)
            return
        except BaseException as error:
            # Set into this thread by another thread, or our own bug, or a lack of memory.
            if isinstance(error, Exception) or store.last_turn != before or store.in_doubt:
                self._stop(node, error)
            else:  # the turn was undone as a whole; another thread will run these inputs
                inbox.extendleft(reversed(inputs))
                self.submitted.set()
            raise
        seconds = time.perf_counter() - began
        if node.linger and store.last_turn != before:
            node.due = time.monotonic() + node.linger
        self._release(node, released)
        node.turn_seconds.add(seconds)
        if released.results:
            node.turn_transactions.add(len(released.results))

    def _not_durable(self, node: Node, inputs: list[Input], error: PlanstepError) -> None:
        """Tells those that wait for a turn's inputs that none of it was done, or that its end is not known."""
        match error:
            case NoSpace():
                self._without_space(node, inputs, error)
            case IoError():
                turn_failed(node.host.number, error)
                self._fail(node, inputs, Aborted(f"the turn could not be made durable: {error}"))
            case StoreClosed() | HostStopped():
                self._ended_with(node, inputs, error)
            case _:
                self._fail(node, inputs, error)

    def _without_space(self, node: Node, inputs: list[Input], error: NoSpace) -> None:
        """Handles a turn that was not done for lack of space. Inputs that free space, and those of other hosts, run
        once more, with the reserve; there proposals that would take space are refused. When the reserve is used
        up too, frames are sent again until there is room."""
        no_space(node.host.number, error)
        rest = [
            item
            for item in inputs
            if not isinstance(item, (CommitInput, StageInput))
            or isinstance(item, CommitAgain)
            or (isinstance(item, CommitInput) and all(map(frees, item.parts.values())))
        ]
        self._fail(node, [item for item in inputs if item not in rest], error)
        if rest:
            try:
                released = node.host.run(rest, time.time_ns() // 1_000_000, reserve=True)
            except (StoreClosed, HostStopped) as again:
                self._ended_with(node, rest, again)
                return
            except PlanstepError as again:
                self._fail(node, rest, again)
                return
            except BaseException as again:
                self._stop(node, again)
                raise
            self._release(node, released)

    def _ended_with(
        self, node: Node, inputs: Iterable[Input], error: StoreClosed | HostStopped
    ) -> None:
        """Stops the engine with a host that takes no more turns: transactions under way do not end here."""
        cause: BaseException = error
        if isinstance(error, StoreClosed):
            node.host.stopped = error
        else:
            cause = error.__cause__ or error
        host_stopped(node.host.number, cause)
        if not (isinstance(error, StoreClosed) and error.in_doubt):  # else the turn may be durable
            self._fail(node, inputs, error)
        if isinstance(error, (Fenced, LogUnreachable)):
            self.refuse_all(node)
        self.stop_everything(cause)

    def _stop(self, node: Node, error: BaseException) -> None:
        """Stops the host of a turn that may or may not be durable; those that wait are told that."""
        node.host.stopped = error
        self.stop_everything(error)
        host_stopped(node.host.number, error)

    def deliver_leftover(self, node: Node) -> None:
        """Delivers messages that "separate" tablets left on their way; the caller holds the node's lock."""
        self._release(node, node.host.run((), time.time_ns() // 1_000_000))

    def _release(self, node: Node, released: Released) -> None:
        """Passes on the results of a durable turn. Any error stops the host: callers not told yet would wait for
        ever."""
        try:
            self._ledger.turn(released)
            if released.frames or released.delayed or released.answers or released.failures:
                self._send_out(node, released)
            self.partial.waiting.extend(released.repeated)  # for the service thread
            for result in released.results:
                if result.reason is not None:
                    self._aborted(result)
                elif not result.step:
                    self.committed_at(result.tx, 0, 0, {})
                else:  # not `committed_at`: a call for each commit
                    if self.watches.watched:
                        self.watches.wake(result.details)
                    self.committed += 1
                    place = Place(result.step, result.n)
                    self._replies.answers[result.tx] = Commit(
                        result.tx, place, result.details, self.names.of_tablet
                    )
            if node.changed.listening:
                node.changed.ring()
            if node.host.number:
                self.nodes[0].changed.ring()
            if released.visible and self.watches.watched:
                self.watches.wake(released.visible)
        except BaseException as error:
            self._stop(node, error)
            raise

    def committed_at(self, tx: bytes, step: int, n: int, details: dict[int, Any]) -> None:
        """Notes the answer of a transaction that was committed; step 0: of one that was staged, without a place."""
        if not step:
            self._replies.answers[tx] = Commit(tx, Place(0, 0), {})
            return
        self.committed += 1
        self._replies.answers[tx] = Commit(tx, Place(step, n), details, self.names.of_tablet)

    def failed_with(self, tx: bytes, error: PlanstepError) -> None:
        """Notes the answer of a transaction that failed at the store's owner."""
        if isinstance(error, Aborted):
            self.conflicts += 1
        self.names.stale = True
        if not isinstance(error, (StoreClosed, Undetermined)):
            self._replies.note_refused(tx, error)
        self._replies.answers[tx] = error

    def complete_partial(self) -> None:
        """Answers commits that were handed in once more, as far as all hosts have executed them."""
        for result in self.partial.completed():
            self.committed_at(result.tx, result.step, result.n, result.details)

    def _send_out(self, node: Node, released: Released) -> None:
        """Sends what a turn released to other hosts, to later turns, and to clients outside of turns."""
        for target, data in released.frames:
            send = partial(self.network.send, node.host.number, target, data)
            if self.half_ms:
                self.delays.after(self.half_ms, send)
            else:
                send()
        for later in released.delayed:
            self._schedule(node, later.delay_ms, later.deliver)
        if released.answers:
            self.answer_clients(released.answers)
        for item, cause in released.failures:
            self._raised(node, item, cause)

    def answer_clients(self, answers: list[ToClient]) -> None:
        """Passes answers on to those that asked; a client that has ended needs none."""
        of_client: dict[int, list[ToClient]] = {}
        for answer in answers:
            of_client.setdefault(answer[0], []).append(answer)
        for address, its in of_client.items():
            client = self.clients.get(address)
            if client is not None:
                client.answered(its)

    def _aborted(self, result: Result) -> None:
        assert result.reason is not None
        error = failure(result.tx, result.reason, self.names.of_tablet)
        if isinstance(error, Undetermined):
            self._replies.answers[result.tx] = error
            return
        self.conflicts += 1
        self._ledger.aborted(result.tx)
        cause = cause_of(result.reason)
        self.aborted[cause] = self.aborted.get(cause, 0) + 1
        if not result.step:
            self._replies.note_refused(result.tx, error)
        self._replies.answers[result.tx] = error

    def _schedule(self, node: Node, delay_ms: float, item: Deliver) -> None:
        if delay_ms:
            self.delays.after(delay_ms, partial(self._enqueue, node, node.host, item))
        else:
            node.inbox.append(item)  # for the next turn: the leader checks the inbox again

    def _enqueue(self, node: Node, host: Host, item: Deliver) -> None:
        """Delivers a delayed message, from a thread that runs no turns. Delayed messages die with their host; a
        restarted host sets its own timers."""
        if not node.down and node.host is host:
            self.put(node, item)

    def put(self, node: Node, item: Input) -> None:
        """Gives a host an input that no caller waits for."""
        node.take(item)
        self.poke(node)

    def announce_due(self) -> None:
        """Has the thread of the engine that ends futures do so, with one host."""
        self.submitted.set()

    def poke(self, node: Node) -> None:
        """Announces an input in the inbox that no caller waits for."""
        if self._hosts > 1:
            node.wake.set()
        elif node.link is None and not node.leading:
            self.submitted.set()

    def _fail(self, node: Node, inputs: Iterable[Input], error: BaseException) -> None:
        proxy = self.nodes[0].host.proxy
        kind = type(error).__name__
        for item in inputs:
            if isinstance(item, CommitAgain):
                # An earlier owner may have done it, so only a look-up tells; if none comes, its end is not known.
                if not isinstance(error, (StoreClosed, HostStopped, EngineClosed)):
                    self.retries.append((node.host.number, item))
            elif isinstance(item, (CommitInput, StageInput)):
                self.failed[kind] = self.failed.get(kind, 0) + 1
                if not isinstance(error, (StoreClosed, Undetermined)):  # else its end is not known
                    self._replies.note_refused(item.tx, error)
                self._replies.answers[item.tx] = own(error)
                if proxy is not None and item.tx in proxy.staging:
                    self.retries.append((node.host.number, Rollback(item.tx)))
            elif not isinstance(item, Tick):
                # No caller waits for it, and a sender would wait longer than this before it asks again.
                self.retries.append((node.host.number, item))

    def refuse_all(self, node: Node) -> None:
        """Refuses the inputs that no turn took: they have no effect."""
        stopped = node.host.stopped
        closed = (
            stopped if isinstance(stopped, StoreClosed) else EngineClosed("the engine is closed")
        )
        self._fail(node, list(node.inbox), closed)
        node.inbox.clear()

    def _raised(self, node: Node, item: Input, error: BaseException) -> None:
        """Reports an input that made a tablet raise, and was undone: it is not retried, as it would raise again."""
        if isinstance(item, (Deliver, AtomicDeliver)):
            input_failed(type(each_of(item)[0].message).__name__, error)
            if self.client is not None:
                self.client.failed(item)
        elif isinstance(item, CommitAgain):
            doubt = Undetermined(
                f"transaction {tx_text(item.tx)}: its end was not found: {reason(error)}"
            )
            doubt.__cause__ = error
            self._replies.answers[item.tx] = doubt
        else:
            self._fail(node, [item], error)

    def stop_soon(self, error: Exception) -> None:
        """Stops the engine for an error outside of a host's turn, perhaps for want of memory. The service thread
        tells those that wait."""
        if self.stopped is None:
            self.stopped = error
            with suppress(MemoryError):
                engine_stopped(error)

    def stop_everything(self, error: BaseException) -> None:
        self.stopped = self.stopped or error
        self._replies.give_up(error)


def _bytes_in(item: Input) -> int:
    """Returns the bytes of an input that no client waits for."""
    if type(item) is Arrived:
        return len(item.data)
    if type(item) is Deliver:
        return len(getattr(item.message, "data", b""))
    if isinstance(item, AtomicDeliver):
        return sum(len(getattr(one.message, "data", b"")) for one in each_of(item))
    return 0
