"""Copies a store at one step while its writers go on, for backup and restore.

    every host's view at one step ─▶ fresh stores in TO.incomplete/copy ─▶ verified ─▶ renamed to TO

The views are those of readers (consistent_cut.py); the owner's own process pins them between two turns, the
batches that a host commits (../store/readers/pinned.py). Only decided effects are copied. Left out are proposals
that have no place in the one order yet, and data staged before a commit: their clients know only the original.
Each batch's checksum is checked on the way, and the copy is verified as a whole before it gets its name, so TO is
always a complete store. A crash leaves TO.incomplete, which no open takes for a store; the next backup to TO
removes it. A copy that replaces a store exchanges names with it (replace_store.py): then the earlier store goes
with TO.incomplete.

A copy is a store of its own. It has its own store id, so that no file of one is taken for the other's. It knows
earlier transactions under their ids; new ones get ids of a generation (the number of a store's openings, part of
each id) 1,000 higher, so that original and copy, both written to, do not give one id to two transactions. The
copy of a replicated store is not replicated.

What it leaves out: increments. A copy is whole, with the batches of a partition side by side.

Next: consistent_cut.py, which opens the views.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import (
    Corruption,
    FormatError,
    HostStopped,
    IoError,
    NotSupported,
    PlanstepError,
)
from ..host.tablet_space import stored_tablets
from ..proto.batch import Batch
from ..proto.ids import (
    CATALOGUE,
    COORDINATOR_ID,
    PARTITION,
    SHARD,
    kind_of,
    tablet_prefix,
    tablet_text,
    tx_text,
)
from ..store import DiskStore, MemoryStore
from ..store.files import Files, shown, typed_errors, way_into
from ..store.meta import load_meta
from ..store.owner_lock import OwnerLock
from ..store.readers.pinned import PinnedStore
from ..store.readers.readonly import ReadOnlyStore
from ..store.replicated import OWN_KEYS, OWNER_KEY
from ..store.snapshot_restoring import GENERATIONS_APART, check_whole, skip_generations
from ..tablets.participant import TxRecord
from .consistent_cut import settle, views_of
from .deferred_signals import Uninterrupted
from .open_runtime import open_runtime
from .open_stores import OpenOptions
from .replace_store import refuse_readers, replace
from .runtime import Runtime
from .unfinished import give_name, making

_TURN_ROWS, _TURN_BYTES = 2_000, 4 << 20
_STAGED_KEY_BYTES = 17
"""Of a partition's rows `s<tx>`; the row `s` of mode "pulsar" is a snapshot of aborted ids."""
_LAST = b"\xff" * 9

Telling = Callable[[int, int], object]
"""Called now and then with (records copied, records in all)."""


class Backup(NamedTuple):
    """A complete copy: its path, the step it is of, and its contents; `bytes` of records."""

    path: str
    step: int
    hosts: int
    records: int
    rows: int
    bytes: int


def backup_runtime(runtime: Runtime, to: Path, progress: Telling | None = None) -> Backup:
    """Copies the engine's store as of the last step. Raises AlreadyExists, Corruption, IoError, NoSpace; ValueError
    where `to` is inside the store."""
    return _backup(_home(runtime), _pinned(runtime), to, progress)


def backup_store(store: Path, to: Path, progress: Telling | None = None) -> Backup:
    """Copies a store that is closed, or that another process has open. Raises as `backup_runtime`."""
    return _backup(store, _views_of(store), to, progress)


def _backup(
    store: Path | None,
    opening: AbstractContextManager[list[Any]],
    to: Path,
    progress: Telling | None,
) -> Backup:
    _refuse_within(store, to)
    with making(to) as copy, opening as views:
        done = _copy(views, copy, to, progress)
        give_name(copy, to)
        return done


def restore(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    force: bool = False,
    progress: Telling | None = None,
) -> Backup:
    """Makes `store` from the backup `source`, which stays: a copy, verified before it gets its name.

    force     replace the store that is there; StoreInUse when a process has it open, even to read
    progress  called with (records copied, records in all) now and then

    A source that this process has open is StoreInUse: `backup` of its engine makes the same copy.
    AlreadyExists without `force`; FormatError when `source` is no store, or `force` would replace
    something else; IoError when the folder that is to contain `store` is missing.
    Any store serves as source, as of its last step.
    """
    path, to = Path(os.path.realpath(source)), Path(os.path.realpath(store))
    with typed_errors(to):
        return _restore(path, to, force, progress)


def _restore(path: Path, to: Path, force: bool, progress: Telling | None) -> Backup:
    if path.is_relative_to(to) or to.is_relative_to(path):
        raise ValueError(f"{path} cannot be restored onto itself, nor into or out of {to}")
    if not force or not to.exists():
        return backup_store(path, to, progress)
    if not _is_store(to):
        raise FormatError(f"{to} is not a store, so it is not replaced; remove it yourself")
    _refuse_replicated(to)
    with contextlib.ExitStack() as stack:
        for host in sorted(to.glob("host-*")):
            stack.callback(OwnerLock(host / "lock").close)
        refuse_readers(to, to)
        copy = stack.enter_context(making(to, replace=True))
        done = _copy(stack.enter_context(_views_of(path)), copy, to, progress)
        # No process becomes its owner before it is certain that it stays.
        for host in copy.glob("host-*"):
            stack.callback(OwnerLock(host / "lock").close)
        replace(copy, to)
        return done


def _refuse_replicated(to: Path) -> None:
    """NotSupported for a replicated folder: what is restored is a store of its own, which no shared log has."""
    meta = None
    with contextlib.suppress(Corruption, FormatError, IoError):
        meta = load_meta(to / "host-0", Files())
    if meta is not None and meta.replicated:
        raise NotSupported(
            f"{to} is replicated, and a backup restored there would not be: restore it beside, or end the "
            "replication first (planstep replicate --stop)"
        )


def _refuse_within(store: Path | None, to: Path) -> None:
    """Raises ValueError for a copy inside the store: it would be counted, moved and removed with the store."""
    if store is None:
        return
    home, target = Path(os.path.realpath(store)), Path(os.path.realpath(to))
    if home in target.parents:
        raise ValueError(f"{to} is inside the store {home}: a backup goes beside it, not into it")


def _home(runtime: Runtime) -> Path | None:
    """Returns the current path of the store's folder, None for a store in memory."""
    store: Any = runtime.nodes[0].host.store
    if isinstance(store, MemoryStore):
        return None
    folder: Path = store.folder
    with contextlib.suppress(IoError):  # the host is stopped, which is reported later
        fd = store.hold_folder()
        try:
            folder = shown(way_into(folder, fd))
        finally:
            os.close(fd)
    return folder.parent


def _is_store(path: Path) -> bool:
    """Returns whether the path holds a store, even a damaged one: backups exist to replace those."""
    try:
        return load_meta(path / "host-0", Files()) is not None
    except (Corruption, FormatError, IoError):
        return (path / "host-0" / "meta.pb").exists()


# views -------------------------------------------------------------------------------------


def _views_of(store: Path) -> AbstractContextManager[list[Any]]:
    return views_of(store, "a folder named .incomplete is an unfinished backup")


@contextlib.contextmanager
def _pinned(runtime: Runtime) -> Iterator[list[ReadOnlyStore]]:
    """Pins all hosts between two turns: the states that they have released by then fit together."""
    if runtime.following is not None and (pinned := runtime.following.pin()) is not None:
        shown, pin = pinned
        try:
            yield list(shown.stores)
        finally:
            pin.close()
        return
    views: list[ReadOnlyStore] = []
    try:
        # Uninterrupted: else a lock that is taken and not yet in the stack would never be released.
        with Uninterrupted(), contextlib.ExitStack() as locks:
            for node in runtime.nodes:
                locks.enter_context(node.lock)
            for node in runtime.nodes:
                if node.down:
                    raise HostStopped(f"host {node.host.number} is stopped: start it, then back up")
                store = node.host.store
                assert isinstance(store, (DiskStore, MemoryStore))
                views.append(PinnedStore(store, runtime.mode))
        if len(views) > 1:
            settle(views)
        yield views
    finally:
        for view in views:
            view.close()


# the copy ----------------------------------------------------------------------------------


def _copy(views: list[ReadOnlyStore], copy: Path, to: Path, progress: Telling | None) -> Backup:
    hosts, mode = len(views), views[0].meta.mode
    generation = max(map(_newest, views)) + GENERATIONS_APART
    open_runtime(copy, OpenOptions(hosts=hosts, mode=mode), switch_interval=None).close()
    copying = _Copying(sum(_records(n, view) for n, view in enumerate(views)), progress)
    for number, view in enumerate(views):
        folder = copy / f"host-{number}"
        skip_generations(folder, generation)
        store = DiskStore.open(
            folder, create=False, mode=mode, hosts=hosts, host=number, durability="os"
        )
        try:
            copying.fill(view, store)
        finally:
            store.close()
        for spared in ("spare", "reserve", "cushion"):  # made again when the store is opened
            (folder / spared).unlink(missing_ok=True)
        check_whole(folder)
    Files().sync_folder(copy)
    step = views[0].get(tablet_prefix(COORDINATOR_ID) + b"l") or 0
    copying.tell()
    return Backup(os.fspath(to), step, hosts, copying.records, copying.rows, copying.bytes)


def _newest(view: ReadOnlyStore) -> int:
    """Returns the highest generation that transactions have in their ids; a replicated store counts terms."""
    row = view.get(OWNER_KEY)
    return max(view.generation, row[0] if row is not None else 0)


def _records(number: int, view: ReadOnlyStore) -> int:
    """Counts the records of a host's partitions."""
    metas = [view.get(prefix + b"m") for prefix in stored_tablets(view, number, (PARTITION,))]
    ends = [meta[-2:] if len(meta) == 4 else meta[:2] for meta in metas if meta is not None]
    return sum(end - start for start, end in ends)


def _kind(key: bytes) -> tuple[int, bytes]:
    return kind_of(int.from_bytes(key[:4], "big")), key[4:5]


def _rows(view: ReadOnlyStore) -> Iterator[tuple[bytes, Any]]:
    at = b""
    while rows := view.scan(at, _LAST, limit=_TURN_ROWS):
        yield from rows
        at = rows[-1][0] + b"\x00"


class _Copying:
    """Copies hosts' stores, and counts what was copied of all of them."""

    def __init__(self, total: int, progress: Telling | None) -> None:
        self.records = self.rows = self.bytes = 0
        self._total = total
        self._progress = progress

    def tell(self) -> None:
        if self._progress is not None:
            self._progress(self.records, self._total)

    def fill(self, view: ReadOnlyStore, store: DiskStore) -> None:
        """Copies everything that the view's step has decided, in turns of bounded size."""
        turn, rows = store.begin(), 0
        for key, value in _rows(view):
            kind, name = _kind(key)
            if kind in (CATALOGUE, PARTITION, SHARD) and name == b"t":
                _leave_out(key, value)
                continue
            if kind == PARTITION and name == b"s" and len(key) == _STAGED_KEY_BYTES:
                continue  # staged before a commit that never came
            if key in OWN_KEYS:
                continue  # the copy is not replicated
            if kind == PARTITION and name == b"b":
                address, length, count = value[:3]
                if length:  # else a marker
                    data = _payload(view, key, address, length)
                    value = (turn.append_payload(data), *value[1:])
                    self.bytes += length
                self.records += count
            elif kind == SHARD and name == b"r":
                self.rows += 1
            turn.put(key, value)
            rows += 1
            if rows >= _TURN_ROWS or turn.payload_bytes >= _TURN_BYTES:
                self._commit(store, turn)
                turn, rows = store.begin(), 0
        self._commit(store, turn)

    def _commit(self, store: DiskStore, turn: Any) -> None:
        store.commit(turn)
        if store.checkpoint_due(time.monotonic()):
            store.checkpoint()
        self.tell()


def _payload(view: ReadOnlyStore, key: bytes, address: int, length: int) -> bytes:
    data = view.read_payload(address, length)
    try:
        Batch.decode(data)
    except Corruption as error:
        where = tablet_text(int.from_bytes(key[:4], "big"))
        offset = int.from_bytes(key[5:], "big")
        raise Corruption(
            f"{where}, offset {offset}: {error}; a store with damaged records is not copied: "
            "trim the topic beyond them, or export what can be read"
        ) from error
    return data


def _leave_out(key: bytes, row: Any) -> None:
    """Leaves out a proposal without a plan. With several hosts the views have decided all planned ones."""
    if TxRecord._make(row).step:
        raise PlanstepError(
            f"transaction {tx_text(key[5:])} is planned and not decided: a host does not answer; "
            "nothing was copied, try again"
        )
