"""Opens the runtime of a store: as its owner, or attached to the process that owns it.

    ":memory:" ─▶ stores in memory
    a folder ─▶ nobody has its lock ─▶ its stores: open_stores.py, open_replicated.py
                another process has it ─▶ that shares it: views of its stores, and a link
                                          that does not: StoreInUse

Next: open_stores.py.
"""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import NotSupported, StoreInUse
from ..store import MemoryStore, Store
from ..store.files import Files, typed_errors
from ..store.meta import check_shared, load_meta
from ..store.owner_lock import read_holder
from ..store.process_socket import NAME, NobodyListens
from .consistent_cut import open_views
from .deferred_signals import room_for_a_turn
from .open_replicated import open_replicated
from .open_stores import OpenOptions, check_asked, check_of_modes, let_go, make_runtime, open_stores
from .processes.attached import OwnerGone, agreed, attach
from .processes.next_owner import NextOwner
from .runtime import Runtime
from .store_path import alone_at_unfinished

_STARTING_SECONDS = 30.0
"""How long an owner may take from its lock to its socket: it recovers the store meanwhile."""
_LOOKS, _LOOK_SECONDS = 10, 0.01


def open_runtime(
    path: str | os.PathLike[str],
    options: OpenOptions | None = None,
    *,
    switch_interval: float | None = 0.0005,
    opened: list[Store | Runtime] | None = None,
) -> Runtime:
    """Opens the stores of all hosts under `path`, or in memory for ":memory:".

    `opened` holds what an earlier attempt opened and could not close; this one adds what it opens.
    """
    room_for_a_turn()
    options = options or OpenOptions()
    _check_replicated(path, options)
    opened = [] if opened is None else opened
    let_go(opened)
    if options.store is not None:
        opened.append(options.store)
    switch_at_least_every(switch_interval)
    kind = options.mode or "deterministic"
    if path == ":memory:":
        check_of_modes(options.of_modes, kind)
        runtime = make_runtime([MemoryStore() for _ in range(options.hosts or 1)], kind, options)
        opened.append(runtime)
        return runtime
    make = (options.create or options.replicate is not None) and not options.only_looks
    # OSError: no permission, a file where a folder should be, a name too long.
    with typed_errors(Path(path)):
        if make and options.replicate is None and not Path(path).exists():
            check_of_modes(options.of_modes, kind)  # before there is a folder
        with alone_at_unfinished(Path(path), make, options.files):
            return _open_or_attach(Path(path), options, opened)


def _check_replicated(path: str | os.PathLike[str], options: OpenOptions) -> None:
    """Raises NotSupported for stores that cannot be replicated."""
    if options.replicate is None:
        return
    if path == ":memory:":
        raise NotSupported("a replicated store needs a folder, so ':memory:' cannot be one")
    if options.hosts not in (None, 1):
        raise NotSupported("a replicated store has one host: leave hosts out")
    if options.only_looks:
        raise NotSupported("read_only=True shows what the folder has by now: leave replicate out")


def _open_or_attach(path: Path, options: OpenOptions, opened: list[Store | Runtime]) -> Runtime:
    """Opens the stores as their owner, or attaches to the process that is. StoreInUse: nobody can attach to it."""
    began, looks = time.monotonic(), 0
    own = options if options.attach is None else replace(options, wait=0)
    while True:
        try:
            if options.replicate is not None:
                return open_replicated(path, options.replicate, own, opened)
            return open_stores(path, own, opened)
        except StoreInUse as in_use:
            if options.attach is None or in_use.pid == os.getpid():
                raise
            runtime = _attached(path, options, options.attach, opened)
            if runtime is not None:
                return runtime
            looks += 1
            # What the lock says may be of an owner before. One that shares listens once it has recovered the store.
            starts = looks <= _LOOKS or read_holder(path / "host-0" / "lock").share is True
            if time.monotonic() - began > max(options.wait, _STARTING_SECONDS * starts):
                if in_use.shares:
                    in_use.args = (_not_listening(path, in_use.pid),)
                raise
            time.sleep(_LOOK_SECONDS)


def _not_listening(path: Path, pid: int | None) -> str:
    return (
        f"process {pid} owns the store and shares it, but does not listen for others: it still recovers the store, "
        f"or {path / 'host-0' / NAME} was removed. Wait longer (wait=SECONDS), or end that process"
    )


def _attached(
    path: Path, options: OpenOptions, given: Mapping[str, Any], opened: list[Store | Runtime]
) -> Runtime | None:
    """Attaches to the owner; None if none listens."""
    first = path / "host-0"
    meta = load_meta(first, Files())
    if meta is None:
        return None
    check_asked(meta, options.mode, options.hosts)
    check_of_modes(options.of_modes, meta.mode)
    check_shared(first, meta, b"" if options.replicate is None else meta.shared_id)
    try:
        link = attach(first, meta.store_id, given, meta.hosts)
    except (NobodyListens, OwnerGone):
        return None
    try:
        options = agreed(options, meta.mode, link.welcome)
        views = open_views(path, meta.hosts, ownable=True)
        linked = (link.welcome.generation, link.welcome.connection)
        runtime = make_runtime(views, meta.mode, replace(options, read_only=True), linked=linked)
        opened.append(runtime)
        runtime.follow(path, options.snapshots[1] / 1000)
        runtime.attach(link, NextOwner(runtime, given, options))
        return runtime
    except BaseException:
        link.socket.close()
        raise


def switch_at_least_every(seconds: float | None) -> None:
    """Makes the interpreter switch threads at least so often, so that a busy thread delays commits less. None
    changes nothing."""
    if seconds is not None and sys.getswitchinterval() > seconds:
        sys.setswitchinterval(seconds)
