"""Holds what all handles of an open engine share: its runtime, its settings, its state; and how handles are made.

Every public call asks it first: is the engine open, is this its process, does it take writes?

Next: names.py.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from inspect import getdoc, signature
from itertools import count
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

from ..errors import EngineClosed, ForkedProcess, NotSupported, UnknownName
from ..proto.ids import Place
from .arguments import brief, check_worker
from .retry import Losers
from .slots import MEMORY
from .snapshot import SnapshotView
from .topics.group_registry import GroupRegistry
from .topics.linger_timer import Lingering
from .topics.stored_consumers import StoredConsumers
from .transaction.snapshot_reader import Reading
from .transaction.transaction import Transaction

if TYPE_CHECKING:
    from ..runtime.catalog import TableInfo, TopicInfo
    from ..runtime.runtime import Runtime
    from .engine import Engine
    from .open_engine import Settings
    from .transaction.consume import Turns
    from .transaction.read_set import Conditions

P = ParamSpec("P")
R = TypeVar("R")


_contexts: "WeakSet[Context]" = WeakSet()


def _note_fork() -> None:
    for context in list(_contexts):
        context.note_fork()


os.register_at_fork(after_in_child=_note_fork)  # a commit asks ten times: too often for os.getpid()


class Context:
    """The shared state of an engine. Invariant: usable only in the process that opened it, until `closed`."""

    def __init__(self, path: str, runtime: "Runtime", settings: "Settings") -> None:
        self.path = path
        self.runtime = runtime
        self.settings = settings
        self.usable = True
        """False once the engine is closed, and in a fork: then `check` says which, and raises."""
        self.closed = False
        self.forked = False
        """True in a fork of the process that opened the engine."""
        self._pid = os.getpid()
        self._adopting = threading.Lock()
        self._adopted: Engine | None = None
        """The engine that a fork has opened in place of this one."""
        _contexts.add(self)
        self.turns: Turns = {}
        self.consuming: dict[bytes, Conditions] = {}
        """Open transactions → what they are about to consume."""
        self.abandoned: deque[bytes] = deque()
        """Transactions that sent something and did not end, to be rolled back."""
        self.groups = GroupRegistry(runtime)
        self.losers = Losers()
        self.lingering = Lingering()
        self._keyless_turns: dict[int, Any] = {}
        self._producers: list[bytes] = []  # of closed writers that had no name
        runtime.maintenance.reading = self._lowest_read
        runtime.maintenance.open_floors = self._open_floors
        runtime.maintenance.leases = self.groups.tidy
        runtime.consumers = StoredConsumers(runtime)

    def note_fork(self) -> None:
        self.forked, self.usable = True, False
        self._adopting = threading.Lock()  # a thread of the parent may have held it

    def here(self) -> "Context":
        """Returns the context to use in this process. In a fork it is another one: the child has opened the store
        by itself, and is attached to its owner.
        """
        if not self.forked or self.closed or self.path == MEMORY or self.settings.follow:
            return self  # a follower's folder is followed by one process
        with self._adopting:
            if self._adopted is None:
                self._adopted = self._open_again(self.path)
        return self._adopted.context

    def _open_again(self, path: str) -> "Engine":
        from .open_engine import OF_MODES, open

        settings = self.settings
        given = {field.name: getattr(settings, field.name) for field in fields(settings)}
        for mode in OF_MODES.keys() - {settings.mode}:
            del given[mode]
        return open(path, **given)

    def close_adopted(self) -> None:
        """Closes, in a fork, the engine that it has opened."""
        if self._adopted is not None:
            self._adopted.close()

    def check(self) -> None:
        """Raises ForkedProcess or EngineClosed where the engine cannot be used."""
        if self.forked:
            raise ForkedProcess(
                f"this belongs to process {self._pid}, and this is a forked child of it: begin it here, with the "
                f"engine of {self.path!r} or a handle of it"
                if self.path != MEMORY
                else f"a store in memory belongs to process {self._pid}, and this is a forked child of it: open a "
                "folder in its place, which processes share"
            )
        if self.closed:
            raise EngineClosed(f"the engine of {self.path!r} is closed; open it again")

    def look(self) -> None:
        """Checks that the engine can be used. One that reads another process's store looks at that, so that names
        and answers are as of now."""
        if not self.usable:
            self.check()
        self.runtime.look()

    def check_writable(self) -> None:
        """Raises NotSupported where the store was opened read-only."""
        if not self.usable:
            self.check()
        if self.settings.read_only:
            raise NotSupported(f"{self.path!r} was opened with read_only=True: it takes no writes")

    # names ---------------------------------------------------------------------------------

    def topic(self, name: str) -> "TopicInfo":
        """Returns a topic's info; UnknownName suggests the nearest name."""
        names = self.runtime.names
        info = names.topics.get(name) if isinstance(name, str) else None
        if info is None or names.stale:
            info = self._sought("topic", name)
        return info

    def table(self, name: str) -> "TableInfo":
        """Returns a table's info; UnknownName suggests the nearest name."""
        names = self.runtime.names
        info = names.tables.get(name) if isinstance(name, str) else None
        if info is None or names.stale:
            self.runtime.schema.check_tables()
            info = self._sought("table", name)
        return info

    def _sought(self, kind: str, name: Any) -> Any:
        """Returns the info of a topic or table that is not known, or may be stale, once it has been looked for.
        UnknownName."""
        self.runtime.names.stale = False
        self.runtime.look()
        names = self.runtime.names
        known: dict[str, Any] = names.topics if kind == "topic" else names.tables
        info = known.get(name) if isinstance(name, str) else None
        if info is None:
            raise unknown(kind, name, known)
        return info

    def consumers(self, info: "TopicInfo") -> set[str]:
        """Returns the names of all consumers of a topic that were created or have committed a position."""
        used = map(self.runtime.views.consumers, info.partitions)
        return set(self.runtime.names.consumers.get(info.id, ())).union(*used)

    # transactions and snapshots ------------------------------------------------------------

    def begin(self, worker: str | None = None, statement: bool = False) -> Transaction:
        """Begins a transaction, or that of a single statement: see Engine.transaction."""
        if not self.usable:
            self.check()
        if self.abandoned:
            self.drop()
        return Transaction(self, check_worker(worker), statement)

    def open_view(self) -> SnapshotView:
        """Opens a view of the present, as far as the mode has one: as of one step, or each partition now."""
        self.check()
        self.drop()
        return SnapshotView(self, present=True)

    def snapshot(self) -> SnapshotView:
        """Opens a snapshot: see Engine.snapshot."""
        self.runtime.schema.check_snapshots()
        self.check()
        self.drop()
        return SnapshotView(self)

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Opens a Reading of the present, as `open_view` does, for reading stored data."""
        self.check()
        self.drop()
        snap = self.runtime.snapshot()
        try:
            self.runtime.confirm()
            yield Reading(self.runtime, snap)
        finally:
            snap.close()

    def drop(self) -> None:
        """Rolls back transactions that were garbage collected without an end."""
        while self.abandoned:
            try:
                self.runtime.transactions.rollback(self.abandoned.popleft())
            except IndexError:  # another thread was faster
                return

    def _lowest_read(self, tablet: int) -> int | None:
        """Returns the lowest offset in a partition that open transactions are about to consume."""
        floors = [conditions.floor(tablet) for conditions in list(self.consuming.values())]
        return min((floor for floor in floors if floor is not None), default=None)

    def _open_floors(self) -> dict[int, int]:
        """Returns the lowest offset that open transactions are about to consume, by partition with retention."""
        floors: dict[int, int] = {}
        for conditions in list(self.consuming.values()):
            for tablet, floor in conditions.floors().items():
                floors[tablet] = min(floor, floors.get(tablet, floor))
        topics = list(self.runtime.names.topics.values()) if floors else []
        trimmed = {
            tablet
            for topic in topics
            if topic.retention_ms is not None or topic.retention_bytes is not None
            for tablet in topic.partitions
        }
        return {tablet: floor for tablet, floor in floors.items() if tablet in trimmed}

    # writers -------------------------------------------------------------------------------

    def keyless(self, topic: "TopicInfo") -> int:
        """Returns the partition for one transaction's records without key; transactions take turns."""
        turns = self._keyless_turns.setdefault(topic.id, count())
        return int(next(turns)) % len(topic.partitions)

    def take_producer(self) -> bytes:
        """Returns a name for a writer without one. Names are used again: partitions keep a row for each."""
        try:
            return self._producers.pop()
        except IndexError:
            name = os.urandom(16)
            self.runtime.hooks.made_up(name)
            return name

    def give_producer(self, producer: bytes) -> None:
        """Takes back a name whose numbers are all decided, so that another writer may continue after them."""
        self._producers.append(producer)


def unknown(kind: str, name: Any, names: Iterable[str]) -> UnknownName | TypeError:
    own = getattr(name, "name", None)
    if isinstance(own, str):
        return TypeError(f"a {kind} is meant by its name: pass {own!r}, not {brief(name)}")
    text = name if isinstance(name, str) else brief(name)
    nearest = get_close_matches(text, list(names), n=1)
    return UnknownName(kind, text, nearest[0] if nearest else None)


class Handle:
    """A topic or table by name; each method is a transaction or a snapshot of its own."""

    def __init__(self, context: Context, name: str) -> None:
        self._opened = context
        self.name = name

    @property
    def _context(self) -> Context:
        """The context in this process, which may be a fork of the one that made the handle."""
        return self._opened.here() if self._opened.forked else self._opened

    def _begin(self) -> Transaction:
        """Begins the transaction of one call."""
        opened = self._opened  # a property costs a call
        return (self._context if opened.forked else opened).begin(statement=True)


def of_now(
    method: Callable[Concatenate[SnapshotView, str, P], R],
) -> Callable[Concatenate[Handle, P], R]:
    """Makes the method of a handle that asks a view of the present about the handle's topic or table."""

    @wraps(method)
    def call(self: Handle, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._context.open_view() as view:
            return method(view, self.name, *args, **kwargs)

    _show_without_name(call, method, method.__annotations__["return"])
    return call


def in_transaction(
    method: Callable[Concatenate[Transaction, str, P], None],
) -> Callable[Concatenate[Handle, P], Place]:
    """Makes the method of a handle that calls a method of Transaction, and commits; it returns the place."""

    @wraps(method)
    def call(self: Handle, /, *args: P.args, **kwargs: P.kwargs) -> Place:
        with self._begin() as tx:
            method(tx, self.name, *args, **kwargs)
            return tx.commit().place

    call.__doc__ = (
        f"{getdoc(method)}\n\nIt commits in a transaction of its own, and returns the place."
    )
    _show_without_name(call, method, Place)
    return call


def _show_without_name(
    call: Callable[..., object], method: Callable[..., object], result: object
) -> None:
    """Makes `help` and the reference show the parameters of `method` but the name, and the type `result`."""
    full = signature(method)
    own, _, *rest = full.parameters.values()
    vars(call)["__signature__"] = full.replace(parameters=[own, *rest], return_annotation=result)
