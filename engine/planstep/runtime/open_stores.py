"""Opens the stores of all hosts under a path: `<path>/host-<n>`, each with log, tables and lock.

Next: ../store/disk_store.py.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import (
    Corruption,
    FormatError,
    NotSupported,
    PlanstepError,
    WrongMode,
)
from ..host.versions import BYTES_MAX, MS_MAX
from ..proto.mode_settings import ModeSettings
from ..shared.settings import Replicate
from ..store import DiskStore, Store, disk_store
from ..store.files import Files
from ..store.meta import Meta, load_meta
from .consistent_cut import open_views
from .kafka.hooks import KafkaHooks
from .mode_hooks import ModeHooks
from .network import Network
from .pulsar.hooks import PulsarHooks
from .replication import Connection, Told
from .runtime import Runtime
from .store_path import check_may_be_made

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


def make_runtime(
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


def open_stores(
    path: Path,
    options: OpenOptions,
    opened: list[Store | Runtime],
    shared: Connection | None = None,
) -> Runtime:
    """Opens every host's store, or none of them."""
    mode, hosts, durability = options.mode, options.hosts, options.durability
    check_can(path, durability)
    meta = load_meta(path / "host-0", Files())
    if meta is None:
        check_may_be_made(path, options.create and not options.only_looks)
    else:
        check_asked(meta, mode, hosts)
    count = meta.hosts if meta is not None else hosts or 1
    kind = meta.mode if meta is not None else mode or "deterministic"
    check_of_modes(options.of_modes, kind)
    _check_durability(durability, count)

    if options.only_looks:
        with _making_sense(path):
            views = open_views(path, count)
            runtime = make_runtime(views, kind, options)
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
            runtime = make_runtime(stores, kind, options, open_one)
        opened.append(runtime)
    except BaseException:
        let_go(opened)
        raise
    return runtime


def check_can(path: Path, durability: str) -> None:
    """Raises NotSupported, PlanstepError or FormatError where no store can be opened, whatever lies there."""
    if os.name == "nt":
        raise NotSupported("planstep runs on Linux and macOS; on Windows use it inside WSL")
    if durability not in ("full", "os"):
        raise PlanstepError(f"durability is 'full' or 'os', not {durability!r}")
    if path.exists() and not path.is_dir():
        raise FormatError(f"{path} is a file; a store is a folder")


def check_asked(meta: Meta, mode: str | None, hosts: int | None) -> None:
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


@contextmanager
def _making_sense(path: Path) -> Iterator[None]:
    """Turns errors from reading foreign bytes as names, numbers and tuples into Corruption."""
    try:
        yield
    except PlanstepError:
        raise
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Corruption(f"{path}: the tables hold what no store writes: {error!r}") from error
