"""Opens the stores of all hosts under a path: `<path>/host-<n>`, each with log, tables and lock.

Next: ../store/disk_store.py.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import (
    Corruption,
    FormatError,
    NotSupported,
    PlanstepError,
    StoreInUse,
    Trimmed,
    WrongMode,
)
from ..host.inputs import Tick
from ..host.versions import BYTES_MAX, MS_MAX
from ..proto.mode_settings import ModeSettings
from ..shared.files_log import check_outside
from ..shared.settings import Replicate
from ..store import DiskStore, MemoryStore, Store, disk_store
from ..store.files import Files, typed_errors
from ..store.meta import Meta, check_shared, load_meta, make_folder
from ..store.owner_lock import no_other_makes, read_holder
from ..store.process_socket import NobodyListens
from ..store.tables.header_check import DATA_FILE
from .consistent_cut import open_views
from .deferred_signals import room_for_a_turn
from .follower import Tail
from .kafka.hooks import KafkaHooks
from .mode_hooks import ModeHooks
from .network import Network
from .processes.attached import OwnerGone, agreed, attach
from .processes.next_owner import NextOwner
from .pulsar.hooks import PulsarHooks
from .replace_store import left_beside
from .replication import Connection, Replication, Told, connect
from .runtime import Runtime
from .shipping import Shipping
from .snapshotting import Snapshotter, begin_from_snapshot
from .unfinished import remove_leftover
from .unshipped import Overtaken, set_aside

_STARTING_SECONDS = 30.0
"""How long an owner may take from its lock to its socket: it recovers the store meanwhile."""
_LOOKS, _LOOK_SECONDS = 10, 0.01
_TRIES = 10
"""How often a snapshot is restored that is trimmed before its tail is taken."""
FOLLOWER_TIMEOUT = 1.0
"""Seconds for which a follower's thread, and an interrupted close, wait in a call to the shared log, at most."""
HOOKS: dict[str, type[ModeHooks]] = {
    "deterministic": ModeHooks,
    "kafka": KafkaHooks,
    "pulsar": PulsarHooks,
}
"""The runtime's hooks of each mode."""


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """The options of opening a store. A setting left None is taken as stored."""

    create: bool = True
    read_only: bool = False
    wait: float = 0
    """Seconds to wait for another process that owns the store."""
    mode: str | None = None
    hosts: int | None = None
    durability: str = "full"
    placement: str = "shared"
    trace: str = "summary"
    network: Network | None = None
    rtt_ms: float = 0.0
    settings: Mapping[str, ModeSettings] = field(default_factory=dict)
    """By mode; a store uses those of its own mode."""
    of_modes: Mapping[str, str] = field(default_factory=dict)
    """Settings that the caller gave, each with its mode; WrongMode where that is not the store's."""
    snapshots: tuple[int, int] = (BYTES_MAX, MS_MAX)
    """Bytes and milliseconds of overwritten versions that are kept."""
    group_commit: bool = True
    """Inputs that arrive together share a turn, and its sync."""
    replicate: Replicate | None = None
    """Names the shared log that each turn goes to first."""
    takeover: bool = False
    """Takes a replicated store over from a machine that did not close it."""
    follow: bool = False
    """Follows a replicated store, read-only, while another machine owns it."""
    share: bool = False
    """Lets other processes attach once the store is open."""
    attach: Mapping[str, Any] | None = None
    """Attaches to another process that owns the store, if it has these settings; None: StoreInUse."""
    told: Told | None = None
    """Called with each turn that following begins with."""
    store: DiskStore | None = None
    """The open store of the folder, which its follower hands over."""
    # These two are looked up at each opening, because proofs and tests replace them.
    files: Files = field(default_factory=lambda: Files())
    segment_bytes: int = field(default_factory=lambda: disk_store.SEGMENT_BYTES)

    @property
    def only_looks(self) -> bool:
        """The folder is another process's, or nobody's. A follower owns its folder, and only reads it."""
        return self.read_only and not self.follow


def _runtime(
    stores: list[Any],
    kind: str,
    options: OpenOptions,
    reopen: Callable[[int], Store] | None = None,
    linked: tuple[int, int] | None = None,
) -> Runtime:
    return Runtime(
        stores,
        HOOKS[kind],
        network=options.network,
        trace=options.trace,
        reopen=reopen,
        read_only=options.read_only,
        separate=options.placement == "separate" and not options.read_only,
        rtt_ms=options.rtt_ms,
        settings=options.settings.get(kind),
        snapshots=options.snapshots,
        group_commit=options.group_commit,
        linked=linked,
    )


def _open_replicated(
    path: Path, settings: Replicate, options: OpenOptions, opened: list[Store | Runtime]
) -> Runtime:
    """Opens a store whose turns go to a shared log first. Its folder needs no sync of its own."""
    _check_can(path, options.durability)
    folder = path / "host-0"
    meta = load_meta(folder, Files())
    if meta is None:
        _check_may_be_made(path, True)
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
            return _open_stores(path, options, opened, shared)
        except Trimmed:
            if not from_snapshot(load_meta(path / "host-0", Files())):
                raise
        except Overtaken as lost:
            set_aside(path, lost)
            from_snapshot(None)
        options = replace(options, store=None)
    return _open_stores(path, options, opened, shared)


def _confirm(runtime: Runtime, store: DiskStore) -> None:
    runtime.turns.check_open()
    store.confirm()


def _beat(runtime: Runtime, leading: Replication) -> None:
    """Runs a turn where none came for a while, so that followers see that the owner lives."""
    node = runtime.nodes[0]
    while runtime.turns.stopped is None and not runtime.threads.stopping.wait(leading.beat / 4):
        if leading.beat_is_due() and not node.inbox:  # else a turn is about to come
            runtime.turns.put(node, Tick())


def _open_stores(
    path: Path,
    options: OpenOptions,
    opened: list[Store | Runtime],
    shared: Connection | None = None,
) -> Runtime:
    """Opens every host's store, or none of them."""
    mode, hosts, durability = options.mode, options.hosts, options.durability
    _check_can(path, durability)
    meta = load_meta(path / "host-0", Files())
    if meta is None:
        _check_may_be_made(path, options.create and not options.only_looks)
    else:
        _check_asked(meta, mode, hosts)
    count = meta.hosts if meta is not None else hosts or 1
    kind = meta.mode if meta is not None else mode or "deterministic"
    check_of_modes(options.of_modes, kind)
    _check_durability(durability, count)

    if options.only_looks:
        with _making_sense(path):
            views = open_views(path, count)
            runtime = _runtime(views, kind, options)
            opened.append(runtime)
            runtime.follow(path)
            return runtime

    stores: list[Any] = []

    def open_one(number: int) -> DiskStore:
        folder = path / f"host-{number}"
        if number < len(stores):  # a host that is started again
            current = load_meta(folder, Files())
            if current is None or current.store_id != stores[number].store_id:
                raise FormatError(
                    f"{folder} is of another store by now, or gone; reopen the engine"
                )
        # The stored settings count: during the wait for the lock another store may have come here.
        stored = stores[0].meta if stores else None
        # All folders exist before host 0 takes its first turn.
        fresh = not number or stores[0].last_turn == 0
        if not fresh and not (folder / "meta.pb").exists():
            raise FormatError(
                f"{folder} is missing: the store has {stores[0].meta.hosts} hosts, and none can do "
                "without the others; restore it from a backup of the whole store"
            )
        return DiskStore.open(
            folder,
            create=options.create,
            mode=mode if stored is None else stored.mode,
            hosts=hosts if stored is None else stored.hosts,
            host=number,
            first_id=stores[0].store_id if number else b"",
            shared_id=b"" if shared is None else shared.root.store_id,
            wait=options.wait,
            share=options.share,
            files=options.files,
            durability=durability,
            segment_bytes=options.segment_bytes,
        )

    try:
        number = 0
        while not stores or number < stores[0].meta.hosts:
            opened.append(options.store or open_one(number))
            stores.append(opened[-1])
            number += 1
        _check_durability(durability, len(stores))
        kind = stores[0].meta.mode
        check_of_modes(options.of_modes, kind)
        with _making_sense(path):
            if shared is not None:
                shared.enter(stores[0])
            runtime = _runtime(stores, kind, options, open_one)
        opened.append(runtime)
    except BaseException:
        let_go(opened)
        raise
    return runtime


def _check_can(path: Path, durability: str) -> None:
    if os.name == "nt":
        raise NotSupported("planstep runs on Linux and macOS; on Windows use it inside WSL")
    if durability not in ("full", "os"):
        raise PlanstepError(f"durability is 'full' or 'os', not {durability!r}")
    if path.exists() and not path.is_dir():
        raise FormatError(f"{path} is a file; a store is a folder")


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


def _check_may_be_made(path: Path, may: bool) -> None:
    """Raises FormatError where there is no store, and none may be made."""
    if (rest := left_beside(path)) is not None:
        raise FormatError(
            f"there is no store at {path}: a restore was killed before it finished, and {rest} is the store "
            "that it was to replace; restore again, or rename that one back"
        )
    if not may:
        close = nearest_store(path)
        hint = (
            f"did you mean {close!r}?"
            if close
            else "open it without read_only and create=False to make one"
        )
        raise FormatError(f"there is no store at {path}; {hint}")
    if path.exists() and any(p.name != "host-0" for p in path.iterdir()):
        raise FormatError(
            f"{path} is neither a store nor an empty folder: choose another one; a shared log lies outside of it"
        )
    check_outside(path)


def _check_asked(meta: Meta, mode: str | None, hosts: int | None) -> None:
    """Raises WrongMode where the store's mode or hosts are not those asked for."""
    if hosts is not None and hosts != meta.hosts:
        raise WrongMode("hosts", meta.hosts, hosts)
    if mode is not None and mode != meta.mode:
        raise WrongMode("mode", meta.mode, mode)


def check_of_modes(of_modes: Mapping[str, str], kind: str) -> None:
    """Raises WrongMode where a setting (setting → mode) belongs to another mode than the store's."""
    for setting, mode in of_modes.items():
        if mode != kind:
            error = WrongMode("mode", kind, mode)
            error.args = (
                f"{setting}= is a setting of mode {mode!r}, and the store's mode is {kind!r}: leave it out, or "
                f"make a store with mode={mode!r}",
            )
            raise error


def _check_durability(durability: str, hosts: int) -> None:
    if durability == "os" and hosts > 1:
        raise NotSupported(
            "durability='os' needs hosts=1: several hosts would lose different tails"
        )


@contextmanager
def _alone_at_unfinished(path: Path, make: bool, files: Files) -> Iterator[None]:
    """Keeps others from making the same store, where there is none or only a part of one.

    Waits for a while for others that are making it; they wait for this one while it makes the store.
    """
    first = path / "host-0"
    meta = load_meta(first, Files())
    if meta is not None and all(
        (path / f"host-{number}" / "table" / DATA_FILE).exists() for number in range(meta.hosts)
    ):
        yield
        return
    if make and not path.exists() and left_beside(path) is None:
        make_folder(path, files)
        files.sync_folder(path.parent)
    with ExitStack() as alone:
        alone.enter_context(no_other_makes(path))
        if not make:
            alone.close()
        yield


def let_go(opened: list[Store | Runtime]) -> None:
    """Releases stores of a failed attempt, last first. Those that cannot be released stay in the list, for the next
    attempt to open; their errors are dropped, because the first error says more.

    It makes no checkpoint: the log has everything, and the attempt may have failed for lack of memory, without
    which a checkpoint would leave its locks taken.
    """
    for at in range(len(opened) - 1, -1, -1):
        with suppress(Exception):
            opened[at].crash()
            del opened[at]


def is_store(path: Path) -> bool:
    """Returns whether there is a store to open, which may fail all the same."""
    try:
        return (path / "host-0").is_dir()
    except (OSError, ValueError):
        return False


def nearest_store(path: Path) -> str | None:
    """Returns the name of a store next to the path with a similar name, if there is one."""
    try:
        beside = [other.name for other in path.parent.iterdir() if is_store(other)]
    except OSError:
        return None
    close = get_close_matches(path.name, beside, n=1)
    return os.fspath(path.parent / close[0]) if close else None


@contextmanager
def _making_sense(path: Path) -> Iterator[None]:
    """Turns errors from reading foreign bytes as names, numbers and tuples into Corruption."""
    try:
        yield
    except PlanstepError:
        raise
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Corruption(f"{path}: the tables hold what no store writes: {error!r}") from error


def switch_at_least_every(seconds: float | None) -> None:
    """Makes the interpreter switch threads at least so often, so that a busy thread delays commits less. None
    changes nothing."""
    if seconds is not None and sys.getswitchinterval() > seconds:
        sys.setswitchinterval(seconds)


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
        runtime = _runtime([MemoryStore() for _ in range(options.hosts or 1)], kind, options)
        opened.append(runtime)
        return runtime
    make = (options.create or options.replicate is not None) and not options.only_looks
    # OSError: no permission, a file where a folder should be, a name too long.
    with typed_errors(Path(path)):
        if make and options.replicate is None and not Path(path).exists():
            check_of_modes(options.of_modes, kind)  # before there is a folder
        with _alone_at_unfinished(Path(path), make, options.files):
            return _open_or_attach(Path(path), options, opened)


def _open_or_attach(path: Path, options: OpenOptions, opened: list[Store | Runtime]) -> Runtime:
    """Opens the stores as their owner, or attaches to the process that is. StoreInUse: nobody can attach to it."""
    began, looks = time.monotonic(), 0
    own = options if options.attach is None else replace(options, wait=0)
    while True:
        try:
            if options.replicate is not None:
                return _open_replicated(path, options.replicate, own, opened)
            return _open_stores(path, own, opened)
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
                raise
            time.sleep(_LOOK_SECONDS)


def _attached(
    path: Path, options: OpenOptions, given: Mapping[str, Any], opened: list[Store | Runtime]
) -> Runtime | None:
    """Attaches to the owner; None if none listens."""
    first = path / "host-0"
    meta = load_meta(first, Files())
    if meta is None:
        return None
    _check_asked(meta, options.mode, options.hosts)
    check_of_modes(options.of_modes, meta.mode)
    check_shared(first, meta, b"" if options.replicate is None else meta.shared_id)
    try:
        link = attach(first, meta.store_id, given, meta.hosts)
    except (NobodyListens, OwnerGone):
        return None
    try:
        views = open_views(path, meta.hosts, ownable=True)
        options = agreed(options, meta.mode, link.welcome)
        linked = (link.welcome.generation, link.welcome.connection)
        runtime = _runtime(views, meta.mode, replace(options, read_only=True), linked=linked)
        opened.append(runtime)
        runtime.follow(path, options.snapshots[1] / 1000)
        runtime.attach(link, NextOwner(runtime, path, given, options))
        return runtime
    except BaseException:
        link.socket.close()
        raise
