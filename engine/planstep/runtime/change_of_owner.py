"""Makes an engine that is attached to a store's owner the owner itself: the owner has ended, and its lock is free.

    host 0's lock, just taken ─▶ the other hosts' ─▶ each store opened, on the tables that its views have open
         ─▶ replicated: what the shared log has besides, and a new term ─▶ hosts over them: hosting.py

What any opener does about a log after a kill is done here, by the same code. Views and open snapshots stay. After
an error before the hosts run, only the lock has changed: it is free again. After one behind that the engine stops,
as at a kill: the stores are let go of, and another process may own them.

Left out: asking the former owner. Who hands a store over gives up its lock.

Next: ../store/disk_store.py, `take_over`.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import StoreClosed, StoreInUse, Trimmed, reason
from ..store import DiskStore
from ..store.files import Files
from ..store.meta import load_meta
from ..store.owner_lock import OwnerLock
from .catalog import Names
from .deferred_signals import Uninterrupted
from .open_replicated import begin_term, connect_folder
from .open_stores import OpenOptions
from .replication import Connection
from .runtime import Runtime
from .unshipped import Overtaken
from .wait_primitives import Watches

_LOCK_SECONDS = 30.0
"""How long an owner may take from giving up its first host's lock to the last one's."""
_LOOK_SECONDS = 0.2


def become_owner(
    runtime: Runtime,
    path: Path,
    lock: OwnerLock,
    options: OpenOptions,
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Makes the engine of the store at `path` its owner. The lock of host 0 is the store's from here on, and is
    released after an error. `ended`: the engine is being closed, and waits for nobody.

    StoreInUse, NoSpace, IoError, LogUnreachable: the engine reads on, and may try again. StoreClosed, Corruption,
    FormatError, OwnedElsewhere, Fenced, Diverged: nobody can go on as it was; the caller stops the engine.
    """
    shared = None
    if options.replicate is not None:
        try:
            meta = load_meta(path / "host-0", Files())
            shared = connect_folder(path, options.replicate, replace(options, create=False), meta)
        except BaseException:
            lock.close()
            raise
        options = replace(options, durability="os")
    following = runtime.following
    assert following is not None, "it shows what the former owner has released"
    try:
        try:
            following.stay()  # nobody releases anything meanwhile
        except BaseException:
            lock.close()
            raise
        views = [node.host.store for node in runtime.nodes]
        stores = take_stores(views, lock, options, ended)
        try:
            if shared is not None:
                _enter(shared, stores[0])
        except BaseException:
            with following.passing:
                with suppress(Exception):  # what the folder has got by then stays
                    for store in stores:
                        store.begin_to_show()
                _crash(stores)
                following.go_on()
            raise
        _go_over(runtime, path, stores, options, shared)
    except BaseException:
        following.go_on()
        if shared is not None:
            shared.log.close()
        raise


def _go_over(
    runtime: Runtime,
    path: Path,
    stores: list[DiskStore],
    options: OpenOptions,
    shared: Connection | None,
) -> None:
    """Runs the engine over the stores. StoreClosed: what runs then is neither the former engine nor the next."""
    try:
        _run_over(runtime, stores, separate=options.placement == "separate")
        if shared is not None and options.replicate is not None:
            begin_term(runtime, options.replicate, shared)
    except Exception as error:
        _crash(stores)
        raise StoreClosed(
            f"{path}: this process was about to own the store, and failed: {reason(error)}; open it again"
        ) from error


def take_stores(
    views: Sequence[Any], lock: OwnerLock, options: OpenOptions, ended: Callable[[], bool]
) -> list[DiskStore]:
    """Opens each host's store over the tables of its view, or none of them. Errors as `become_owner`."""
    stores: list[DiskStore] = []
    try:
        for number, view in enumerate(views):
            own = lock if not number else _locked(view.folder_by_now() / "lock", ended)
            store = DiskStore.take_over(
                view,
                own,
                files=options.files,
                durability=options.durability,
                segment_bytes=options.segment_bytes,
            )
            stores.append(store)
    except BaseException:
        _crash(stores)
        raise
    return stores


def _run_over(runtime: Runtime, stores: Sequence[DiskStore], *, separate: bool) -> None:
    """Runs the hosts over stores of which this process has just become the owner, in place of another's views.

    Inputs wait for the hosts' locks, and are then for these hosts. Looks wait from the moment that other processes
    see the stores' last turns until they are at these hosts. After an error the caller stops the engine: it may
    have changed in part.
    """
    hosting, turns, link, followed = runtime.hosting, runtime.turns, runtime.link, runtime.followed
    assert followed is not None, "it shows what the former owner has released"
    names = Names(stores[0])
    with Uninterrupted(), hosting.between_turns():
        with followed.passing:
            for store in stores:
                store.begin_to_show()
            hosting.replace(stores, separate=separate)
            runtime.generation, runtime.ids = hosting.generation, hosting.ids
            turns.async_clients = hosting.async_clients
            runtime.names = turns.names = names
            for node in runtime.nodes:
                node.link = None
            runtime.views.begin()
            runtime.following = runtime.views.following = None
            followed.give_over()
        runtime.read_only = False
        runtime.schema = runtime.hooks.schema()
        hosting.take_up(turns)
    watches = turns.watches = Watches(turns.watches)
    watches.wake(list(watches.watched))
    runtime.threads.ticks = True
    for node in runtime.nodes:
        node.changed.ring()
        turns.poke(node)
    runtime.maintenance.begin()
    runtime.hooks.own()
    if link is not None:
        runtime.hooks.client_left(link.owner_incarnation)


def _locked(path: Path, ended: Callable[[], bool]) -> OwnerLock:
    """Takes the lock of another host, which the former owner may be about to give up. StoreInUse."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return OwnerLock(path, max(0.0, min(_LOOK_SECONDS, deadline - time.monotonic())))
        except StoreInUse:
            if ended() or time.monotonic() >= deadline:
                raise


def _enter(shared: Connection, store: DiskStore) -> None:
    try:
        shared.enter(store)
    except (Overtaken, Trimmed) as error:
        raise StoreClosed(
            f"{store.folder}: another machine has gone on with the store; open it again: {error}"
        ) from error


def _crash(stores: list[DiskStore]) -> None:
    """Releases stores after an error, which says more than theirs."""
    for store in reversed(stores):
        with suppress(Exception):
            store.crash()
