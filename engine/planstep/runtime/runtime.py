"""The runtime: one engine's hosts, as the face uses them.

    commit, submit ─▶ thread_pool.py      create, alter, drop ─▶ schema.py
    reads ─▶ snapshot_reads.py            trims ─▶ maintenance.py

Reads look at the last released step: rows through the store and the history.
Next: ../api/engine.py, the face.
"""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any

from ..coordinator.plan import PLANNED, STATES, OutcomeRow
from ..errors import (
    Aborted,
    EngineClosed,
    HostStopped,
    IoError,
    NotSupported,
    Undetermined,
)
from ..host.host import Host
from ..host.inputs import Ahead, Deliver, Rollback
from ..host.inputs import Commit as CommitInput
from ..host.links import check_ends
from ..host.modes import MODES
from ..host.versions import BYTES_MAX, MS_MAX, History
from ..proto.ids import (
    COORDINATOR_ID,
    PROXY,
    Place,
    host_of,
    tablet_id,
    tablet_prefix,
    tx_parse,
    tx_text,
)
from ..proto.messages import Resolve, Withdraw
from ..proto.mode_settings import ModeSettings
from ..store import Store
from .admission import Admission
from .catalog import Names
from .deferred_signals import Uninterrupted, room_for_a_turn
from .group_commit import Ending, Node, Waiter
from .ledger import Ledger
from .maintenance import Chores
from .mode_hooks import ModeHooks
from .network import Network
from .open_transactions import OpenTransaction, undecided
from .outcome import Commit, Outcome
from .replies import ReplyBook
from .schema import Schema
from .snapshot_reads import Snapshot, Views
from .statistics import stats
from .thread_pool import ThreadPool
from .turn_loop import TurnLoop
from .wait_primitives import CommitFuture, wait_for

_LOOK_SECONDS = 0.5


class Runtime:
    """One engine's hosts: transactions, names, reads, outcomes."""

    hooks_type: type[ModeHooks] = ModeHooks

    def __init__(
        self,
        stores: list[Store],
        *,
        network: Network | None = None,
        trace: str = "summary",
        reopen: Any = None,
        read_only: bool = False,
        separate: bool = False,
        rtt_ms: float = 0.0,
        settings: ModeSettings | None = None,
        snapshots: tuple[int, int] = (BYTES_MAX, MS_MAX),
    ) -> None:
        self.hooks = self.hooks_type(self)
        self.mode = self.hooks.mode
        self.hosts = len(stores)
        self.separate = separate
        self.rtt_ms = rtt_ms
        self.settings = settings or MODES[self.mode].settings()
        self.snapshots = snapshots
        """Bytes and milliseconds of overwritten versions that a host keeps for them."""
        self.apart = separate or rtt_ms > 0
        self.in_order = len(stores) == 1 and not separate and not rtt_ms
        """Transactions get their places in the order in which they were sent."""
        self.generation = stores[0].generation
        self.trace = trace
        self._reopen = reopen
        self._proxy = tablet_id(PROXY, 0, self.generation & 0xFFFFF)
        self._counter = 0
        self.ended = False
        self._counter_lock = threading.Lock()
        self.nodes = [Node(self._host(i, store)) for i, store in enumerate(stores)]
        check_ends([node.host.links for node in self.nodes])
        self.names = Names(stores[0])
        self.admission = Admission()
        self.ledger = Ledger()
        self.replies = self._reply_book()
        self.turns = self._turn_loop(network)
        self.threads = ThreadPool(self.turns, self.replies)
        self.schema = Schema(self)
        self.views = self._views()
        for node in self.nodes:
            # An engine that was closed in order has taken back what its clients left open.
            if self.hosts > 1 or not node.host.store.clean:
                for tablet, tx in node.host.staged_before(self.generation):
                    node.inbox.append(Deliver(tablet, Withdraw(tx)))
                    self.turns.submitted.set()
        if not read_only:
            self._take_left()
        self.chores = Chores(self)
        self._side: threading.Thread | None = None
        try:
            self.threads.begin()
        except BaseException as error:
            self._end_threads()
            if isinstance(error, RuntimeError):
                raise _not_started(error) from error
            raise

    def begin_chores(self) -> None:
        """Once everything is there that they ask for: the face's settings, mode "kafka"'s clients."""
        side = threading.Thread(
            target=self.chores.serve,
            args=(self.threads.stopping,),
            name="planstep-chores",
            daemon=True,
        )
        try:
            side.start()
        except RuntimeError as error:
            raise _not_started(error) from error
        self._side = side

    def _take_left(self) -> None:
        """What was on its way between tablets that stood apart arrives before anybody reads."""
        for node in self.nodes:
            if node.host.delivery.left:
                with node.lock:
                    self.turns.take_left(node)

    def _reply_book(self) -> ReplyBook:
        return ReplyBook(self.hosts, self.admission, self._record_refusal)

    def _record_refusal(self, tx: bytes) -> None:
        self.turns.put(self.nodes[0], Deliver(COORDINATOR_ID, Resolve(tx)))

    def _turn_loop(self, network: Network | None) -> TurnLoop:
        return TurnLoop(
            self.nodes,
            self.replies,
            self.names,
            self.ledger,
            network=network,
            rtt_ms=self.rtt_ms,
            apart=self.apart,
        )

    def _views(self) -> Views:
        return Views(self.nodes, self.turns.check_open, self.rtt_ms)

    def _host(self, number: int, store: Store) -> Host:
        return Host(
            number,
            store,
            self.hosts,
            proxy=self._proxy if number == 0 else None,
            trace=self.trace,
            mode=self.mode,
            separate=self.separate,
            rtt_ms=self.rtt_ms,
            settings=self.settings,
            history=History(*self.snapshots, threading.RLock(), time.monotonic),
        )

    # transactions ---------------------------------------------------------------------------

    def new_tx(self) -> bytes:
        """A fresh transaction id: (engine generation, counter), known from begin."""
        with self._counter_lock:
            self._counter += 1
            return self.generation.to_bytes(4, "big") + self._counter.to_bytes(8, "big")

    def newest_tx(self) -> bytes:
        """The last id that was given; all later ones are greater."""
        with self._counter_lock:
            return self.generation.to_bytes(4, "big") + self._counter.to_bytes(8, "big")

    def submit(self, tx: bytes, parts: dict[int, Any]) -> "Future[Commit]":
        """Commits without waiting; the service thread runs the turn if nobody else does.

        Overloaded when there is no room for its bytes within 30 s.
        """
        future = CommitFuture()
        future.set_running_or_notify_cancel()  # a commit cannot be withdrawn, so nor cancelled
        self.send(tx, parts, future, None)
        return future

    def send(
        self, tx: bytes, parts: dict[int, Any], ending: Ending, wait: float | None = 0.0
    ) -> None:
        """As `submit`, with something of the caller's to end; Overloaded after `wait` seconds."""
        self.turns.enqueue(CommitInput(tx, parts), ending, wait)
        self.turns.poke(self.nodes[0])

    def look(self, tx: bytes) -> Snapshot:
        """What a transaction reads in."""
        return self.views.snapshot()

    def commit(self, tx: bytes, parts: dict[int, Any], timeout: float | None = None) -> Commit:
        """Commits and waits. Conflict, Aborted, Overloaded, or Undetermined after `timeout` seconds.

        MemoryError: not sent; or no memory was left to make an Undetermined from, so take it for one.

        With one host the time-out ends waiting for others' turns, not the turn of one's own.
        """
        waiter: Waiter | None = None
        try:
            waiter = self.turns.enqueue(CommitInput(tx, parts), None, timeout)
            self.threads.wait_for(waiter, timeout)
        except BaseException as error:
            self.replies.unheard(tx)
            if not isinstance(error, MemoryError) or (
                waiter is None and tx not in self.replies.waiting
            ):
                raise  # interrupted, or it was not sent
            if waiter is None or waiter.answer is None:
                raise Undetermined(
                    f"transaction {tx_text(tx)} was sent, and then memory was short; "
                    f"outcome({tx_text(tx)!r}) tells how it ended"
                ) from error
        if waiter.answer is None:
            self.replies.unheard(tx)
            raise self.undetermined(tx, timeout)
        return waiter.result()

    def undetermined(self, tx: bytes, timeout: float | None) -> Undetermined:
        return Undetermined(
            f"transaction {tx_text(tx)} was not answered within {timeout} s; it goes on, and "
            f"outcome({tx_text(tx)!r}) tells how it ended"
        )

    def send_ahead(self, tx: bytes, slices: dict[int, tuple[int, Any]]) -> None:
        """Makes payloads durable at their partitions, ahead of the commit; returns when they are.

        `slices`: (number of the first, ((batch, records), …)) by partition's tablet. Aborted,
        NoSpace, Overloaded: nothing of it is there, and the transaction cannot go on.
        """
        waiter = self.turns.enqueue(Ahead(tx, slices), None, None)
        self.threads.wait_for(waiter, None)
        self.without_doubt(waiter)

    def without_doubt(self, waiter: Waiter) -> None:
        """What precedes a commit has no outcome to be asked for, whatever became of the engine."""
        try:
            waiter.result()
        except Undetermined as error:
            self.turns.check_open()
            raise Aborted(f"transaction {tx_text(waiter.tx)} was not committed: {error}") from error

    def rollback(self, tx: bytes) -> None:
        """Takes back what was sent ahead; does not wait for it."""
        if not self.turns.closed:
            self.turns.put(self.nodes[0], Rollback(tx))

    def tell(self, target: int, message: Any) -> None:
        """Delivers a message to a tablet, in a turn that this thread runs if nobody else has."""
        room_for_a_turn()
        node = self.nodes[host_of(target)]
        item = Deliver(target, message)
        node.inbox.append(item)
        try:
            with node.lock, Uninterrupted():
                # No further: while work keeps coming, whoever leads could wait for the lock for ever.
                while node.host.stopped is None and any(one is item for one in list(node.inbox)):
                    self.turns.turn(node)
        finally:
            self.replies.answer()
            self.turns.poke(node)  # for what came meanwhile, or followed from it
            self.turns.submitted.set()  # for futures that were in the turn, too

    def outcome(self, tx: bytes | str) -> Outcome:
        """How a transaction ended, from what is durable. StoreClosed, HostStopped: the next engine tells."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        found = self._outcome(tx)
        if self.turns.stopped is not None and found.state in ("open", "planned", "unknown"):
            self.turns.check_open()
        return found

    def _outcome(self, tx: bytes) -> Outcome:
        host = self.nodes[0].host
        prefix = tablet_prefix(COORDINATOR_ID)
        running = tx in self.replies.waiting  # asked first: once it is gone its record is there
        row = host.store.get(prefix + b"o" + tx)
        record = None if row is None else OutcomeRow._make(row)
        if record is not None and record.step <= host.step_released:
            return outcome_of(tx, record)
        if running or record is not None:  # nobody is told of what cannot be read yet
            return Outcome(tx_text(tx), "open", None, 0, ())
        if tx in self.replies.refused:
            return Outcome(tx_text(tx), "refused", None, 0, ())
        forgotten = host.store.get(prefix + b"f")
        state = "expired" if forgotten is not None and tx <= forgotten else "unknown"
        return Outcome(tx_text(tx), state, None, 0, ())

    def never_sent(self, tx: bytes) -> bool:
        """Of a commit that an exception broke off, for the thread that called it: it will have no effect."""
        return (
            self.turns.stopped is None
            and tx not in self.replies.waiting
            and self.outcome(tx).state in ("unknown", "open")
        )

    def resolve(self, tx: bytes | str) -> Outcome:
        """Refuses a transaction that is not planned; never decides a planned one."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        self.tell(COORDINATOR_ID, Resolve(tx))
        return self.outcome(tx)

    def transactions(self, limit: int = 100) -> list[Outcome]:
        """The newest transactions that the coordinator remembers."""
        prefix = tablet_prefix(COORDINATOR_ID)
        host = self.nodes[0].host
        released = host.step_released
        rows = host.store.scan(prefix + b"o", prefix + b"p", reverse=True, limit=limit)
        records = [(key[5:], OutcomeRow._make(row)) for key, row in rows]
        return [outcome_of(tx, record) for tx, record in records if record.step <= released]

    def open_transactions(self) -> list[OpenTransaction]:
        """See open_transactions.py."""
        if self.nodes[0].down:
            raise HostStopped("host 0, which plans all transactions, is stopped: start it first")
        now = time.monotonic()
        stores = {n: node.host.store for n, node in enumerate(self.nodes) if not node.down}
        sent = {tx: now - waiter.since for tx, waiter in self.replies.waiting.copy().items()}
        return undecided(stores, self.names, time.time_ns() // 1_000_000, sent)

    def recorded(self, tx: bytes) -> list[tuple[int, int, int, str]]:
        """(host, turn, tablet, message) in order, where trace="messages" recorded it."""
        rows = [
            (turn, node.host.number, tablet, name)
            for node in self.nodes
            for turn, events in node.host.recorded(tx)
            for tablet, name in events
        ]
        return [(host, turn, tablet, name) for turn, host, tablet, name in rows]

    # reads ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The last released step, pinned until `close`."""
        return self.views.snapshot()

    def wait_published(self, tablets: Iterable[int], seen: dict[int, int], timeout: float) -> bool:
        """Waits until one of the partitions has a released end beyond `seen`; False at time-out. HostStopped
        where nothing comes any more, as commits have it."""
        deadline = time.monotonic() + timeout
        watched = list(tablets)
        queue: SimpleQueue[None] = SimpleQueue()
        with self.turns.watches.watch(watched, partial(queue.put, None)):
            while True:
                if any(self.views.end(tablet) > seen.get(tablet, 0) for tablet in watched):
                    return True
                left = deadline - time.monotonic()
                if left <= 0 or self.turns.closed:
                    return False
                if self.turns.stopped is not None:
                    self.turns.check_open()
                wait_for(queue, min(left, _LOOK_SECONDS))

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        """The last number that a producer gave a record of a partition."""
        return self.views.last_sequence(snap, tablet, producer)

    # the end --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """See statistics.py."""
        return stats(self)

    def show(self, views: list[Store]) -> bool:
        """An engine that only looks goes on to a newer view. False while a snapshot is open, which stays where it
        is. The views before are the caller's to close."""
        hosts = [self._host(number, view) for number, view in enumerate(views)]
        names = Names(views[0])

        def swap() -> None:
            self.names = self.turns.names = names
            for node, host in zip(self.nodes, hosts, strict=True):
                node.host = host

        with ExitStack() as turns:
            for node in self.nodes:
                turns.enter_context(node.lock)
            return self.nodes[0].host.history.retire(swap)

    def stop_host(self, number: int) -> None:
        """Closes one host while the others run (hosts > 1); `start_host` brings it back."""
        node = self.nodes[number]
        with node.lock:
            node.down = True
            node.inbox.clear()
            node.host.store.close()
        node.wake.set()
        if node.thread is not None:
            node.thread.join()
        if number == 0:  # with it goes the proxy, which would have answered
            self.replies.give_up(Undetermined("host 0 was stopped"))
            self.replies.answer()

    def start_host(self, number: int) -> None:
        if self._reopen is None:
            raise NotSupported("this engine cannot reopen a single host")
        node = self.nodes[number]
        node.host = self._host(number, self._reopen(number))
        if number == 0:
            self.names = self.turns.names = Names(node.host.store)
        node.down = False
        self.threads.begin_host(node)

    def owns_this_thread(self) -> bool:
        """Whether the caller is on a thread that `close` waits for, as callbacks of futures are."""
        here = threading.current_thread()
        return here is self._side or self.threads.has(here)

    def _end_threads(self) -> None:
        """The chores' is told, and not waited for: it may wait for a commit."""
        self.threads.stopping.set()
        self.turns.watches.end()
        self.chores.wake()
        self.threads.end()

    def close(self) -> None:
        """Ends the threads, lets what was committed finish, checkpoints and closes the stores.

        Interrupted, it is to be called again: each step may be repeated.
        """
        if self.ended:
            return
        self.turns.closed = True
        proxy = self.nodes[0].host.proxy
        if proxy is not None and not self.nodes[0].down:
            self.nodes[0].inbox.extend(map(Rollback, list(proxy.staging)))
            self.nodes[0].wake.set()
        deadline = time.monotonic() + 5.0
        while self.replies.waiting and not self.in_order and time.monotonic() < deadline:
            time.sleep(0.005)
        node = self.nodes[0]
        with Uninterrupted():
            while self.hosts == 1 and node.inbox and node.try_lead(None):
                self.threads.lead(node, None)
        self.turns.delays.close()
        self._end_threads()
        first = self.nodes[0]
        with first.lock:  # what no turn has taken has no effect: its end is not in doubt
            self.turns.refuse_all(first)
        self.turns.stop_everything(EngineClosed("the engine was closed"))
        self.replies.answer()
        side = self._side
        if side is not None and side.is_alive() and side is not threading.current_thread():
            side.join()
        for node in self.nodes:
            with node.lock:
                node.down = True
                node.host.store.close()  # again, if the first time did not come to it
        self.replies.end_futures()
        self.ended = True


def _not_started(error: RuntimeError) -> IoError:
    return IoError(f"the engine's threads could not be started: {error}")


def outcome_of(tx: bytes, record: OutcomeRow) -> Outcome:
    """As the coordinator's record has it."""
    place = Place(record.step, record.n) if record.step else None
    assert record.state != PLANNED or place is not None
    return Outcome(tx_text(tx), STATES[record.state], place, record.when_ms, record.participants)
