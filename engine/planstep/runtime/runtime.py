"""The runtime: one engine's hosts, as the face uses them.

    transactions ─▶ transactions.py       create, alter, drop ─▶ schema.py
    reads ─▶ snapshot_reads.py            trims ─▶ maintenance.py
    outcomes ─▶ outcomes.py               what a mode does its own way ─▶ mode_hooks.py

Reads look at the last released step: rows through the store and the history.
Next: ../api/engine.py, the face.
"""

import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from typing import Any

from ..errors import (
    EngineClosed,
    IoError,
    NotSupported,
    Undetermined,
)
from ..host.host import Host
from ..host.inputs import Deliver, Rollback
from ..host.links import check_ends
from ..host.modes import MODES
from ..host.versions import BYTES_MAX, MS_MAX, History
from ..proto.ids import (
    COORDINATOR_ID,
    PROXY,
    host_of,
    tablet_id,
)
from ..proto.messages import Resolve, Withdraw
from ..proto.mode_settings import ModeSettings
from ..store import Store
from .admission import Admission
from .catalog import Names
from .deferred_signals import Uninterrupted, room_for_a_turn
from .group_commit import Node
from .ledger import Ledger
from .maintenance import Chores
from .mode_hooks import ModeHooks
from .network import Network
from .replies import ReplyBook
from .snapshot_reads import Snapshot
from .statistics import stats
from .thread_pool import ThreadPool
from .turn_loop import TurnLoop
from .wait_primitives import wait_for

_LOOK_SECONDS = 0.5


class Runtime:
    """One engine's hosts: transactions, names, reads, outcomes."""

    def __init__(
        self,
        stores: list[Store],
        hooks: type[ModeHooks] = ModeHooks,
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
        self.mode = hooks.mode
        self.hosts = len(stores)
        self.read_only = read_only
        self.separate = separate
        self.rtt_ms = rtt_ms
        self.settings = settings or MODES[self.mode].settings()
        self.snapshots = snapshots
        """Bytes and milliseconds of overwritten versions that a host keeps for them."""
        self.apart = separate or rtt_ms > 0
        self.in_order = hooks.has_places and len(stores) == 1 and not separate and not rtt_ms
        """Transactions get their places in the order in which they were sent."""
        self.generation = stores[0].generation
        self.trace = trace
        self._reopen = reopen
        self.proxy = tablet_id(PROXY, 0, self.generation & 0xFFFFF)
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
        self.hooks = hooks(self)
        self.schema = self.hooks.schema()
        self.views = self.hooks.views()
        self.transactions = self.hooks.transactions()
        self.outcomes = self.hooks.outcomes()
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
            self.hooks.begin()
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

    def _host(self, number: int, store: Store) -> Host:
        return Host(
            number,
            store,
            self.hosts,
            proxy=self.proxy if number == 0 else None,
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

    # the end --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """See statistics.py."""
        return {**stats(self), **self.hooks.stats()}

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
        self.hooks.close()
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
            while (
                self.hosts == 1
                and self.turns.stopped is None
                and node.inbox
                and node.try_lead(None)
            ):
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
                if node.host.stopped is None:
                    node.host.store.close()  # again, if the first time did not come to it
                else:  # what its turn left in memory is not to be relied on, nor its locks
                    node.host.store.crash()
        self.replies.end_futures()
        self.ended = True


def _not_started(error: RuntimeError) -> IoError:
    return IoError(f"the engine's threads could not be started: {error}")
