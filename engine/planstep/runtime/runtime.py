"""Joins the parts of a running engine into one object for the face: its hosts, turns, reads, outcomes.

    transactions ─▶ transactions.py       create, alter, drop ─▶ schema.py
    reads ─▶ snapshot_reads.py            trims ─▶ maintenance.py
    outcomes ─▶ outcomes.py               what differs by mode ─▶ mode_hooks.py
    hosts ─▶ hosting.py                   close ─▶ shutdown.py

Reads see the last released step: rows through the store and the history.
Next: ../api/engine.py, the face.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..errors import (
    IoError,
    Undetermined,
)
from ..host.inputs import Deliver
from ..host.modes import MODES
from ..host.versions import BYTES_MAX, MS_MAX
from ..proto.ids import (
    COORDINATOR_ID,
    host_of,
)
from ..proto.messages import Resolve
from ..proto.mode_settings import ModeSettings
from ..store import Store
from ..store.files import typed_errors
from .admission import Admission
from .catalog import Names
from .deferred_signals import Uninterrupted, room_for_a_turn
from .following import Following
from .hosting import Hosting, Reopen
from .ledger import Ledger
from .maintenance import Maintenance
from .mode_hooks import ModeHooks
from .network import Network
from .process_shares import ProcessShares
from .processes.ids import address_of
from .replies import ReplyBook
from .shutdown import Shutdown
from .snapshot_reads import Snapshot
from .snapshotting import Snapshotter
from .statistics import stats
from .thread_pool import ThreadPool
from .turn_loop import TurnLoop
from .wait_primitives import wait_for

if TYPE_CHECKING:
    from .follower import Tail
    from .processes.attached import Accepted
    from .processes.link import Link as OwnersLink
    from .processes.next_owner import NextOwner
    from .processes.server import Server
    from .shares_of_links import Consumers

GENERATIONS = 1 << 32
_LOOK_SECONDS = 0.5
_FOLLOWED_SECONDS = 0.1
"""How often an attached engine looks at the marks by itself while it waits: the owner tells it sooner."""
_STATS_SECONDS = 5.0
"""How long the owner's counters are waited for."""


class Runtime:
    """Runs one engine's hosts: transactions, names, reads, outcomes."""

    reply_book: ClassVar[type[ReplyBook]] = ReplyBook
    turn_loop: ClassVar[type[TurnLoop]] = TurnLoop  # testing.py has both with faults

    def __init__(
        self,
        stores: list[Store],
        hooks: type[ModeHooks] = ModeHooks,
        *,
        network: Network | None = None,
        trace: str = "summary",
        reopen: Reopen | None = None,
        read_only: bool = False,
        separate: bool = False,
        rtt_ms: float = 0.0,
        settings: ModeSettings | None = None,
        snapshots: tuple[int, int] = (BYTES_MAX, MS_MAX),
        group_commit: bool = True,
        linked: tuple[int, int] | None = None,
    ) -> None:
        """`linked`: the owner's generation and the number of the link, where another process owns the store."""
        self.mode = hooks.mode
        self.hosts = len(stores)
        self.read_only = read_only
        self.rtt_ms = rtt_ms
        self.has_places = hooks.has_places
        self.settings = settings or MODES[self.mode].settings()
        self.hosting = Hosting(
            stores,
            self.mode,
            trace=trace,
            reopen=reopen,
            separate=separate,
            rtt_ms=rtt_ms,
            settings=self.settings,
            snapshots=snapshots,
        )
        self.nodes = self.hosting.nodes
        self.generation = self.hosting.generation
        self.ids = self.hosting.ids
        self.linked = linked
        self.address = self.hosting.proxy if linked is None else address_of(*linked)
        """The address of this process's client, in modes that have one. It stays when the process becomes owner."""
        self.incarnation = str(self.generation) if linked is None else "{}.{}".format(*linked)
        """A name for this process that no other one with the store has, for its client's producers and members."""
        self.fresh: Callable[[], None] | None = None
        """Returns once what is released here is known to be the newest; None: it is, as nobody else writes."""
        self.shared_stats: Callable[[], dict[str, Any]] | None = None  # of a replicated store
        self.tail: Tail | None = None  # follows another machine's store
        self.link: OwnersLink | None = None
        """The link to the process that owns the store; None: this one does, or nobody can write here."""
        self.server: Server | None = None
        """Serves the processes that are attached to this owner."""
        self.shutdown = Shutdown(self)
        self.names = Names(stores[0])
        self.admission = Admission()
        self.ledger = Ledger()
        self.shares = ProcessShares()
        self.consumers: Consumers | None = None
        """What sharing consumers among processes must know of topics; the face sets it."""
        self.replies = self.reply_book(self.hosts, self.admission, self._record_refusal)
        self.replies.remembered = hooks.has_places
        self.turns = self.turn_loop(
            self.nodes,
            self.replies,
            self.names,
            self.ledger,
            network=network,
            rtt_ms=rtt_ms,
            async_clients=self.async_clients,
            group_commit=group_commit,
        )
        self.threads = ThreadPool(self.turns, self.replies, read_only)
        self.hooks = hooks(self)
        self.schema = self.hooks.schema()
        self.views = self.hooks.views()
        self.following: Following | None = None
        self.followed: Following | None = None
        """The same, also once this process became the owner."""
        self.transactions = self.hooks.transactions()
        self.outcomes = self.hooks.outcomes()
        if not read_only:
            with self.hosting.between_turns():
                self.hosting.take_up(self.turns)
        self.maintenance = Maintenance(self)
        self.snapshotter: Snapshotter | None = None
        try:
            self.hooks.begin()
            self.threads.begin()
        except BaseException:
            self.shutdown.end_threads()
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an engine, and what belongs to it, cannot be pickled: pass the path and names, and open the store "
            "in the other process with planstep.open"
        )

    def share(self, said: dict[str, Any], *, follows: bool = False) -> None:
        """Lets other processes attach to this owner. `said`, `follows`: see Server. IoError."""
        from .processes.server import Server

        store: Any = self.nodes[0].host.store
        said["confirms"] = self.fresh is not None
        said["incarnation"] = self.incarnation
        listener = store.listener()
        try:
            with typed_errors(listener.folder):
                self.server = server = Server(self, listener, said, follows=follows)
        except BaseException:
            listener.close()
            listener.end()
            raise
        server.runner = self.threads.begin_thread("processes", server.serve, wake=server.nudge.set)

    def attach(self, attached: "Accepted", next_owner: "NextOwner") -> None:
        """Sends all inputs of turns over a link from now on."""
        from .processes.link import Link
        from .processes.watches import LinkWatches

        self.link = link = Link(self, attached, next_owner)
        self.generation = attached.welcome.generation
        self.ids = link.ids
        if link.said.get("confirms"):
            self.fresh = partial(link.call, "confirm")
        for node in self.nodes:
            node.link = link
        self.schema = self.hooks.schema_over(link)
        self.turns.watches = LinkWatches(link, self.turns.watches)
        assert self.following is not None, "it follows the store"
        self.following.every = _FOLLOWED_SECONDS
        link.begin()

    def begin_snapshots(self, snapshotter: Snapshotter) -> None:
        """Starts the thread that makes the snapshots of a replicated store."""
        self.threads.begin_thread("snapshots", snapshotter.serve, self.threads.stopping)
        self.snapshotter = snapshotter

    def follow(self, path: Path, limit_seconds: float | None = None) -> None:
        """Has the engine show what another process, which owns the store, has released by now. Its stores are views
        of that. `limit_seconds`: see following.py."""
        self.followed = following = Following(self, path, limit_seconds)
        self.following = self.views.following = self.turns.watches = following
        self.threads.begin_thread("following", following.serve, wake=following.end)

    @property
    def async_clients(self) -> bool:
        return self.hosting.async_clients

    @property
    def in_order(self) -> bool:
        """Transactions get their places in the order in which they were sent."""
        return self.has_places and self.hosts == 1 and not self.async_clients

    def _record_refusal(self, tx: bytes) -> None:
        self.turns.put(self.nodes[0], Deliver(COORDINATOR_ID, Resolve(tx)))

    # transactions ---------------------------------------------------------------------------

    def new_tx(self) -> bytes:
        """Makes a transaction id: (engine generation, counter), known from begin."""
        return next(self.ids)

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a function of the closed table of processes/calls.py at the store's owner, perhaps this process."""
        from .processes.calls import CALLS

        link = self.link
        return CALLS[name](self, *arguments) if link is None else link.call(name, *arguments)

    def tell(self, target: int, message: Any) -> None:
        """Delivers a message to a tablet, in a turn that this thread runs if no other thread does."""
        room_for_a_turn()
        link = self.link
        if link is not None:
            assert isinstance(message, Resolve), "no other message comes from a caller here"
            link.call("resolve", message.tx)
            self.look()
            return
        node = self.nodes[host_of(target)]
        item = Deliver(target, message)
        node.inbox.append(item)
        try:
            # Only until this item is taken: if work kept coming, the leader might never get the lock.
            while node.host.stopped is None and any(one is item for one in list(node.inbox)):
                if node.linger:
                    self.turns.rest(node)
                with node.lock, Uninterrupted():
                    if node.host.stopped is None:
                        self.turns.turn(node)
        finally:
            self.replies.answer()
            self.turns.poke(node)  # for inputs that came meanwhile, or follow from it
            self.turns.submitted.set()  # for futures that this turn answered

    def live_since(self) -> int:
        """Returns a generation: no other process that is alive has begun a transaction in an earlier one."""
        peers = [] if self.server is None else list(self.server.peers.values())
        firsts = [linked[0] for linked in (self.linked, *(peer.linked for peer in peers)) if linked]
        if not firsts:
            return GENERATIONS
        return 0 if self.hosts > 1 else min(firsts)  # each host counts its own generations

    def recorded(self, tx: bytes) -> list[tuple[int, int, int, str]]:
        """Returns (host, turn, tablet, message) by host and turn, where trace="messages" recorded it."""
        rows = [
            (turn, node.host.number, tablet, name)
            for node in self.nodes
            for turn, events in node.host.recorded(tx)
            for tablet, name in events
        ]
        return [(host, turn, tablet, name) for turn, host, tablet, name in rows]

    # reads ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Has an engine that reads another process's store show what that has released by now: following.py."""
        if self.following is not None:
            self.following.look()

    def stay(self) -> None:
        """Has an engine that reads another process's store stay at what it shows now: following.py."""
        if self.following is not None:
            self.following.stay()

    def snapshot(self) -> Snapshot:
        """Pins the last released step until `close`."""
        return self.views.snapshot()

    def open_snapshots(self) -> tuple[int, float]:
        """Returns (open snapshots, seconds since the oldest of them was opened)."""
        if self.following is not None:
            return self.following.open_snapshots()
        return self.nodes[0].host.history.pins()

    def confirm(self) -> None:
        """Returns once a snapshot that was pinned before is known to have been the newest when it was pinned.

        Fenced, LogUnreachable, EngineClosed.
        """
        if self.fresh is not None:
            self.fresh()

    def wait_published(self, tablets: Iterable[int], ends: dict[int, int], timeout: float) -> bool:
        """Waits until one of the partitions has a released end beyond `ends`, or was dropped; False at time-out or
        when the engine is closed. HostStopped when the engine stopped, as for commits."""
        deadline = time.monotonic() + timeout
        watched = list(tablets)
        queue: SimpleQueue[None] = SimpleQueue()
        with self.turns.watches.watch(watched, partial(queue.put, None)):
            while True:
                self.look()
                if any(self.views.end(tablet) > ends.get(tablet, 0) for tablet in watched):
                    return True
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self.turns.closed:
                    return False
                if self.turns.stopped is not None:
                    self.turns.check_open()
                if wait_for(queue, min(remaining, _LOOK_SECONDS)):
                    return True

    # the end --------------------------------------------------------------------------------

    def stats(self, ask: bool = True) -> dict[str, Any]:
        """Collects the counters: statistics.py. `ask`: those of an owner that is another process, too."""
        self.look()
        processes = {} if self.server is None else {"processes": self.server.stats()}
        collected = {**stats(self), **processes, **self.hooks.stats()}
        link = self.link
        if link is not None:
            collected["link"] = link.stats()
        if link is not None and ask:
            with suppress(IoError):  # no owner answers
                collected["owner"] = link.call("stats", timeout=_STATS_SECONDS)
        return collected

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
        if number == 0:  # the proxy, which would have answered, stops with it
            self.replies.give_up(Undetermined("host 0 was stopped"))
            self.replies.answer()

    def start_host(self, number: int) -> None:
        node = self.nodes[number]
        self.hosting.restart(node)
        if number == 0:
            self.names = self.turns.names = Names(node.host.store)
        node.down = False
        self.threads.begin_host(node)

    def owns_this_thread(self) -> bool:
        """Returns whether the caller is on a thread that `close` waits for, as callbacks of futures are."""
        return self.maintenance.has_this_thread or self.threads.has_this_thread

    def crash(self) -> None:
        """Closes and writes nothing: for an engine that nobody has used, perhaps for lack of memory."""
        self.close(checkpoint=False)

    def close(self, checkpoint: bool = True) -> None:
        """Ends the threads, lets commits under way finish, checkpoints and closes the stores.

        After an interrupt, call it again: each step may be repeated.
        """
        self.shutdown.run(checkpoint)
