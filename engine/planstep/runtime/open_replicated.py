"""Opens a store whose turns go to a shared log first: its folder may be empty, old, or have been overtaken.

    shared log ─ root, owner ─▶ the folder, as far as it has the turns ─ trimmed ─▶ from a snapshot
                                    │                                  └ overtaken ─▶ set aside, from a snapshot
                                    └─▶ the rest of the turns ─┬▶ a new term: this machine owns the store
                                                               └▶ a follower: a thread takes what comes

Next: replication.py.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import Trimmed
from ..host.inputs import Tick
from ..shared.settings import Replicate
from ..store import DiskStore, Store
from ..store.files import Files
from ..store.meta import Meta, load_meta
from .follower import Tail
from .open_stores import OpenOptions, check_can, open_stores
from .replication import Connection, Replication, connect
from .runtime import Runtime
from .shipping import Shipping
from .snapshotting import Snapshotter, begin_from_snapshot
from .store_path import check_may_be_made
from .unfinished import remove_leftover
from .unshipped import Overtaken, set_aside

_TRIES = 10
"""How often a snapshot is restored that is trimmed before its tail is taken."""
FOLLOWER_TIMEOUT = 1.0
"""Seconds for which a follower's thread, and an interrupted close, wait in a call to the shared log, at most."""


def open_replicated(
    path: Path, settings: Replicate, options: OpenOptions, opened: list[Store | Runtime]
) -> Runtime:
    """Opens a store whose turns go to a shared log first. Its folder needs no sync of its own."""
    check_can(path, options.durability)
    folder = path / "host-0"
    meta = load_meta(folder, Files())
    if meta is None:
        check_may_be_made(path, True)
    shared = connect_folder(path, settings, options, meta)
    if options.follow:
        shared.told = options.told or (lambda _: None)
    try:
        options = replace(options, create=True, mode=shared.root.mode, hosts=1, durability="os")
        from_snapshot = partial(begin_from_snapshot, path, settings, shared.log, shared.root)
        if meta is None:
            from_snapshot(None)
        runtime = _open_with(path, options, opened, shared, from_snapshot)
        remove_leftover(Path(os.path.realpath(path)))
        if options.follow:
            assert shared.followed is not None
            shared.log.wait_less(
                FOLLOWER_TIMEOUT
            )  # its thread tries again, so that it can be ended
            runtime.tail = Tail(runtime, shared.followed)
            runtime.fresh = runtime.tail.check
            runtime.shared_stats = runtime.tail.stats
            runtime.threads.begin_thread("follower", runtime.tail.serve, wake=runtime.tail.stop)
            return runtime
        begin_term(runtime, settings, shared)
        return runtime
    except BaseException:
        shared.log.close()
        raise


def begin_term(runtime: Runtime, settings: Replicate, shared: Connection) -> None:
    """Has an engine do what the owner of a replicated store does besides its turns."""
    assert shared.leading is not None
    node = runtime.nodes[0]
    store: Any = node.host.store
    node.linger = shared.log.linger if settings.linger is None else settings.linger
    runtime.shared_stats = shared.leading.stats
    runtime.shutdown.wait_less = partial(shared.leading.wait_less, FOLLOWER_TIMEOUT)
    runtime.begin_snapshots(Snapshotter(store, settings, shared.log.counts, shared.leading))
    shared.leading.failed = partial(runtime.turns.put, node, Tick())
    if settings.reads == "confirmed":
        runtime.fresh = partial(_confirm, runtime, store)
    if settings.beat:
        runtime.threads.begin_thread("beats", _beat, runtime, shared.leading)


def connect_folder(
    path: Path, settings: Replicate, options: OpenOptions, meta: Meta | None
) -> Connection:
    """Connects a store's folder to its shared log. Errors as `connect`."""
    create = options.create and not options.follow
    shared = connect(settings, path / "host-0", meta, options.mode, options.takeover, create)
    if settings.mode == "async":
        shared.lead_by = partial(Shipping, settings)
    return shared


def _open_with(
    path: Path,
    options: OpenOptions,
    opened: list[Store | Runtime],
    shared: Connection,
    from_snapshot: Callable[[Meta | None], bool],
) -> Runtime:
    """Opens a store on its shared log, from a snapshot if the turns that it lacks are gone.

    A folder that has turns of its own, and was overtaken, is set aside first.
    """
    for _ in range(_TRIES):
        try:
            return open_stores(path, options, opened, shared)
        except Trimmed:
            if not from_snapshot(load_meta(path / "host-0", Files())):
                raise
        except Overtaken as lost:
            set_aside(path, lost)
            from_snapshot(None)
        options = replace(options, store=None)
    return open_stores(path, options, opened, shared)


def _confirm(runtime: Runtime, store: DiskStore) -> None:
    runtime.turns.check_open()
    store.confirm()


def _beat(runtime: Runtime, leading: Replication) -> None:
    """Runs a turn where none came for a while, so that followers see that the owner lives."""
    node = runtime.nodes[0]
    while runtime.turns.stopped is None and not runtime.threads.stopping.wait(leading.beat / 4):
        if leading.beat_is_due() and not node.inbox:  # else a turn is about to come
            runtime.turns.put(node, Tick())
