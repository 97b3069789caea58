"""Lets an engine that reads a store of another process see what its owner has released by now.

    a call ─▶ look: the owner's marks ─ as they were ─▶ nothing
                                      └ moved ─▶ newer views of all hosts ─▶ shown; waiting callers look again
    a checkpoint, and no turn ─▶ within a second the same: the older views keep segments that it has freed
    a wait for records ─▶ a thread looks every 20 ms
    no call for 1 s, no open snapshot ─▶ the views are closed: nothing is pinned ─ the next look opens others

The owner notifies no reader, so each call asks: a mark is a few bytes a host. An owner shows a turn by its marks
before it answers. So a look that begins after an answer, in any process, has all that the answer reports. A newer
view reads the turns since the last one, and with several hosts finishes their open work in memory. The catalogue is
read again if a turn changed it.

A snapshot reads the views that were shown when it was opened. They are closed once they have a successor, and no
snapshot reads them; then they answer by it. With `limit_seconds` a snapshot ends so long after its successor came.

Who becomes the owner (change_of_owner.py) stays at what is shown, and then gives over to hosts of its own. The log
may have turns that the former owner never showed. Once others see them, looks wait for the new hosts.

Next: consistent_cut.py.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import EngineClosed, StoreClosed
from ..host.versions import History, Pin, Retired
from ..logs import tried_again
from ..proto.ids import CATALOGUE_ID, COORDINATOR_ID, tablet_prefix
from .catalog import Names
from .consistent_cut import open_views
from .deferred_signals import Uninterrupted
from .wait_primitives import Signal, Wake, Watches

if TYPE_CHECKING:
    from ..store.readers.readonly import Resting
    from .runtime import Runtime

_EVERY_SECONDS = 0.02
_IDLE_SECONDS = 1.0
_AGAIN_SECONDS = _RENEWED_SECONDS = 1.0
_RESTING_SECONDS = 3600.0
_REST = 4
_STEP_KEY = tablet_prefix(COORDINATOR_ID) + b"l"

Marks = tuple[tuple[int, int, bool] | None, ...]
"""(generation, turn, of this boot) of each host; None where its mark cannot be read."""


class ShownHost(NamedTuple):
    """A host as a snapshot reads it. Its view has nothing newer than the snapshot, so there are no versions."""

    store: Any
    history: History


class Shown:
    """Views of all hosts, at one step. Invariant: they are open until `history` is retired."""

    def __init__(self, stores: Sequence[Any], marks: Marks) -> None:
        self.history = History(lock=threading.RLock(), clock=time.monotonic)
        self.history.release(stores[0].get(_STEP_KEY) or 0)
        self.hosts = [ShownHost(store, self.history) for store in stores]
        self.stores = stores
        self.marks = marks
        self.replaced_at = 0.0

    def retired(self) -> bool:
        """Lets no more snapshots open, if none is."""
        self.history.pins()  # forgets those that nobody holds
        return self.history.retire(lambda: None)


class Following(Watches):
    """Watches of an engine that reads another process's store, and what it shows. Invariants: what is shown never
    goes back; while a partition is watched, the thread looks."""

    def __init__(self, runtime: "Runtime", path: Path, limit_seconds: float | None) -> None:
        """Shows the views that the runtime was opened with. `limit_seconds`: None for snapshots of any age."""
        super().__init__()
        self.limit_seconds = limit_seconds
        self.every = _EVERY_SECONDS
        self._runtime = runtime
        self._path = path
        self._moving = threading.Lock()
        self._older: list[Shown] = []
        self._resting: list[Resting] | None = None
        self._stays = self._given_over = self._ended = False
        self.passing = threading.RLock()
        """Held while others see more than this shows, and until it goes on or gives over: looks wait."""
        self._wanted = Signal()
        self._asked = True
        self._renews_at = 0.0
        stores = [node.host.store for node in runtime.nodes]
        marks = _marks(stores)
        own = tuple((store.generation, store.last_turn, True) for store in stores)
        self._shown = Shown(stores, marks if marks == own else ())
        for node in runtime.nodes:
            node.host.history = self._shown.history

    # for callers -----------------------------------------------------------------------------

    def look(self) -> None:
        """Shows what the owner has released by now. IoError, Corruption, TooManyReaders, StoreClosed."""
        self._asked = True
        if self._stays:
            with self.passing:
                if self._stays:
                    return
        shown = self._shown
        if self._resting is None:
            try:
                if _marks(shown.stores) == shown.marks and not self._outdated(shown):
                    return
            except EngineClosed:
                pass  # they were replaced, or rest
        try:
            moved = self._move()
        except StoreClosed as error:  # another store has its place
            self._runtime.turns.stop_everything(error)
            self.wake(list(self.watched))
            raise
        if moved:
            self.wake(list(self.watched))

    def _outdated(self, shown: Shown) -> bool:
        """Returns whether views keep what a checkpoint has freed, though no turn came since; asks once a second."""
        now = time.monotonic()
        if now < self._renews_at:
            return False
        self._renews_at = now + _RENEWED_SECONDS
        return any(store.outdated() for store in shown.stores)

    def stay(self) -> None:
        """Stays at what is shown now, until `go_on`: what a command reports is as of one step."""
        while not self._stays:
            self.look()
            with self._moving:
                self._stays = self._resting is None

    def go_on(self) -> None:
        """Ends `stay`."""
        self._stays = False

    def give_over(self) -> None:
        """Shows nothing newer: the hosts' stores are this process's own by now. Open snapshots keep their views."""
        with Uninterrupted(), self._moving:
            self._stays = self._given_over = True
            self._shown.replaced_at = time.monotonic()
            self._older.append(self._shown)
            self._close_older()
        self._wanted.set()

    def pin(self) -> tuple[Shown, Pin] | None:
        """Looks, and opens a snapshot of what is shown then. None: this process has just become the owner."""
        while True:
            self.look()
            if self._given_over:
                return None
            shown = self._shown
            with suppress(Retired):  # newer views were shown just now
                return shown, shown.history.open()

    def open_snapshots(self) -> tuple[int, float]:
        """Returns (open snapshots, seconds since the oldest of them was opened)."""
        pins = [shown.history.pins() for shown in (self._shown, *list(self._older))]
        return sum(count for count, _ in pins), max(seconds for _, seconds in pins)

    @contextmanager
    def watch(self, tablets: Iterable[int], wake: Wake) -> Iterator[None]:
        with super().watch(tablets, wake):
            self._wanted.set()
            yield

    def end(self) -> None:
        """Wakes the thread: the engine is closed."""
        self._wanted.set()

    def close(self) -> None:
        """Shows nothing newer, and closes what snapshots read. The nodes' own stores are closed by the runtime."""
        with Uninterrupted(), self._moving:
            self._ended = True
            if not self._given_over:  # who failed while it became the owner may have replaced some
                stores = [node.host.store for node in self._runtime.nodes]
                for view in self._shown.stores:
                    if not any(view is store for store in stores):
                        view.close()
            while self._older:
                for store in self._older[-1].stores:
                    store.close()
                self._older.pop()
            self._end_rest()

    # moving on -------------------------------------------------------------------------------

    def _move(self) -> bool:
        with Uninterrupted(), self._moving:
            if self._ended:
                raise EngineClosed("the engine was closed")
            if self._stays:
                return False
            before: Sequence[Any] = self._resting or self._shown.stores
            # They are read before the views: what comes meanwhile is for the next look.
            marks = _marks(before)
            known = self._resting is None and marks == self._shown.marks
            if known and not any(store.outdated() for store in before):
                return False
            stores = open_views(self._path, len(before), before)
            try:
                shown = Shown(stores, marks)
                names = self._names(stores[0])
            except BaseException:
                for store in stores:
                    store.close()
                raise
            self._show(shown, names)
            self._close_older()
            return True

    def _names(self, first: Any) -> Names:
        """Returns the names as of a newer view: those that are known, unless a turn since may have changed them."""
        runtime, before = self._runtime, self._shown.stores[0]
        same = (first.generation, first.last_turn) == (before.generation, before.last_turn)
        if same or first.unchanged(tablet_prefix(CATALOGUE_ID), before.last_turn):
            return runtime.names
        return Names(first)

    def _show(self, shown: Shown, names: Names) -> None:
        before, self._shown = self._shown, shown
        before.replaced_at = time.monotonic()
        for node, store in zip(self._runtime.nodes, shown.stores, strict=True):
            # In this order: who reads a row asks then whether its step is released.
            node.host.history = shown.history
            node.host.store = store
        names.move_to(shown.stores[0])
        self._runtime.names = self._runtime.turns.names = names
        if self._resting is None:
            self._older.append(before)
        else:
            self._end_rest()
            self._wanted.set()  # the thread begins to count idle seconds

    def _close_older(self) -> None:
        """Closes views that have a successor and no reader, or are read for too long."""
        limit, now = self.limit_seconds, time.monotonic()
        for shown in list(self._older):
            if shown.retired():
                for node, store in zip(self._runtime.nodes, shown.stores, strict=True):
                    store.give_way(partial(_store_of, node))
            elif limit is not None and now - shown.replaced_at > limit:
                for store in shown.stores:
                    store.expire(
                        f"the snapshot at step {shown.history.released} is read for longer than {limit:g} s after "
                        "newer turns came: open a new one, end it sooner, or open the store with larger "
                        "snapshot_seconds"
                    )
            else:
                continue
            self._older.remove(shown)

    def _rest(self) -> None:
        """Closes the views, if no snapshot reads them: nothing at the owner's is kept for this engine then."""
        with self._moving:
            self._close_older()
            if self._ended or self._stays or self._resting is not None or self.open_snapshots()[0]:
                return
            resting: list[Resting] = []
            with ExitStack() as undo:
                for store in self._shown.stores:
                    resting.append(store.resting())
                    undo.callback(resting[-1].close)
                if not self._shown.retired():
                    return
                undo.pop_all()
            self._resting = resting
            for node, store in zip(self._runtime.nodes, self._shown.stores, strict=True):
                store.give_way(partial(self._awake, node))

    def _awake(self, node: Any) -> Any:
        """Returns the open view of a host, for who reads in one that rests."""
        self.look()
        return node.host.store

    def _end_rest(self) -> None:
        resting, self._resting = self._resting or [], None
        for one in resting:
            one.close()

    # the thread ------------------------------------------------------------------------------

    def serve(self) -> None:
        stopping = self._runtime.threads.stopping
        while not stopping.is_set() and (self._older or not self._given_over):
            began = time.monotonic()
            try:
                if self._given_over:
                    self._wanted.wait(_IDLE_SECONDS)
                    with self._moving:
                        self._close_older()
                elif self.watched:
                    self.look()
                    stopping.wait(max(self.every, _REST * (time.monotonic() - began)))
                elif self._resting is not None:
                    self._wanted.wait(_RESTING_SECONDS)
                else:
                    self._wait_idle()
            except StoreClosed:
                return  # all callers were told
            except Exception as error:  # without this thread no waiting caller would wake
                if stopping.is_set():
                    return
                tried_again("a newer look at the store", error)
                stopping.wait(_AGAIN_SECONDS)

    def _wait_idle(self) -> None:
        self._asked = False
        self._wanted.wait(_IDLE_SECONDS)
        if self._asked or self.watched or self._runtime.threads.stopping.is_set():
            return
        if self.limit_seconds is not None and self.open_snapshots()[0]:
            self.look()  # else what they read would have no successor, and no end
            self._asked = False
        self._rest()


def _marks(stores: Sequence[Any]) -> Marks:
    marks = [store.mark() for store in stores]
    return tuple(None if mark is None else mark[:3] for mark in marks)


def _store_of(node: Any) -> Any:
    return node.host.store
