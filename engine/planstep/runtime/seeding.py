"""Replicates a store that has turns already, ends that, and restores a store from its shared log.

    seed      snapshot of turn T ─▶ floor T+1 ─▶ meta.pb: replicated ─▶ root of the log ─▶ opened: BEGIN is turn T+1
    stop      the log's rows go, in a turn of the folder alone ─▶ meta.pb: not replicated
    reseed    the log's rows go, too ─▶ seed, behind that turn
    restore   newest whole snapshot of turn N at most ─▶ the log's turns up to N ─▶ as stop ─▶ verified ─▶ NAME

Each may be killed anywhere and repeated. From the moment at which the log has a root, the folder does not open
without it. So a store never goes on in two histories.

Left out: a seed for a log that begins with turn 1, as a topic does.

Next: replication.py.
"""

import os
import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ..errors import Corruption, Diverged, FormatError, NotSupported, Trimmed
from ..logs import snapshot_unusable
from ..shared.entry import Entry
from ..shared.objects_log import ObjectsLog, put_root, root_of
from ..shared.owner import Ownership
from ..shared.registry import check_begins_anywhere, make_place, open_shared_log
from ..shared.root import FORMAT as ROOT_FORMAT
from ..shared.settings import Replicate
from ..shared.shared_log import Position, Root, SharedLog
from ..shared.snapshots import Snapshots
from ..store import DiskStore
from ..store.files import Files, typed_errors
from ..store.meta import FORMAT, REPLICATED, Meta, load_meta, save_meta
from ..store.replicated import OPENED_KEY, OWN_KEYS, OWNER_KEY
from ..store.snapshot_making import make_snapshot
from ..store.snapshot_restoring import (
    GENERATIONS_APART,
    check_whole,
    restore_snapshot,
    skip_generations,
)
from .open_runtime import open_runtime
from .open_stores import OpenOptions
from .replication import ReplicatedFolder
from .snapshotting import leading_on, snapshots_of
from .unfinished import give_name, making
from .unshipped import ship_rest


def seed(path: Path, settings: Replicate, reseed: bool = False) -> int:
    """Begins a shared log with a store that has turns; returns the turn behind which it begins.

    `reseed`: the log lacks turns that this folder has, as it was put back to an older state; it goes on behind the
    folder's. No other machine may have the store open. A store that is replicated already stays as it is.
    NotSupported, Diverged, StoreInUse, FormatError, LogUnreachable, NoSpace.
    """
    meta = _meta(path)
    with closing(_open(path, meta)) as store:
        replicated = store.get(OWNER_KEY) is not None
        turn = store.last_turn
    if reseed and replicated:
        check_begins_anywhere(settings.url)
        turn = _leave_behind(path, meta, settings)
    if reseed or not replicated:
        _begin_log(path, meta, settings, turn, reseed)
    open_runtime(path, OpenOptions(replicate=settings)).close()
    return turn


def _begin_log(path: Path, meta: Meta, settings: Replicate, turn: int, reseed: bool) -> None:
    where, timeout = settings.url, settings.log_timeout
    with closing(make_place(where)) as objects:
        there = root_of(objects, where)
        if there is not None:
            _check_root(there, meta, where)  # before anything is written there
        log = ObjectsLog(objects, where, timeout)
        with closing(_open(path, meta)) as store:
            assert store.last_turn == turn
            if not meta.first_id and meta.format != REPLICATED:
                # A log has an id of its own: the store may have been in another one, and gone on without it.
                meta = meta._replace(first_id=os.urandom(16), folder_id=os.urandom(16))
                save_meta(store.folder, meta, Files())
            if not _has_begun(log, turn, meta, reseed):
                _make_seed(store, Snapshots(objects, where, meta.shared_id, timeout))
                log.trim(turn + 1)
                save_meta(store.folder, meta._replace(format=REPLICATED), Files())
        root = put_root(objects, where, Root(meta.shared_id, meta.mode, ROOT_FORMAT), timeout)
    try:
        _check_root(root, meta, where)
    except Diverged:  # another machine made a log there meanwhile
        save_meta(path / "host-0", meta, Files())
        raise


def _check_root(root: Root, meta: Meta, where: str) -> None:
    if root.store_id != meta.shared_id:
        raise Diverged(f"{where} is the shared log of another store: choose another URL")


def _meta(path: Path) -> Meta:
    meta = load_meta(path / "host-0", Files())
    if meta is None:
        raise FormatError(f"there is no store at {path}")
    if meta.hosts > 1:
        raise NotSupported(f"{path} has {meta.hosts} hosts, and a replicated store has one")
    return meta


def _open(path: Path, meta: Meta) -> DiskStore:
    shared_id = meta.shared_id if meta.format == REPLICATED else b""
    return DiskStore.open(path / "host-0", create=False, shared_id=shared_id)


def _has_begun(log: ObjectsLog, turn: int, meta: Meta, reseed: bool) -> bool:
    """Returns whether the log begins behind this very turn already. Diverged if it has other turns."""
    floor = log.floor()
    log.open(Position(turn))
    if floor == turn + 1 and meta.format == REPLICATED and log.read(1, 0):
        return True
    if floor > turn + 1 or (log.has_turns() and not reseed):
        raise Diverged(
            "the shared log has turns that this folder has not: choose another URL for this store, or open the "
            "log with an empty folder"
        )
    return False


def _make_seed(store: DiskStore, snapshots: Snapshots) -> None:
    """Makes the snapshot that the log begins with, unless an attempt did that was killed."""
    while store.checkpoint():
        pass
    newest = next(snapshots.newest_first(), None)
    if newest is None or newest.turn < store.last_turn:
        make_snapshot(store, snapshots, None, lambda: 1)
    elif (newest.turn, newest.digests) != (store.last_turn, store.table.digests()):
        raise Diverged("the place has a snapshot of other turns: choose another URL for this store")


def _leave_behind(path: Path, meta: Meta, settings: Replicate) -> int:
    """Takes the log's rows out of a folder that is ahead of its log; returns its last turn."""
    log, root = open_shared_log(settings.url, None, settings.log_timeout)
    with closing(log), closing(_open(path, meta)) as store:
        folder = ReplicatedFolder(store)
        with suppress(Diverged, Trimmed):  # the log lacks what it had
            ship_rest(log, root.store_id, store, folder)  # it may be behind a folder of mode async
        row = folder.owner_row()
        assert row is not None
        turn = store.last_turn
        log.open(Position(turn - 1, row.before, row.mark))
        if log.floor() > turn or log.read(1, 0):
            raise NotSupported(
                f"the shared log is not behind this folder, which is at turn {turn}: open it with replicate=URL"
            )
        _leave_log(store)
        return store.last_turn


def _leave_log(store: DiskStore) -> None:
    """Removes the rows of the shared log. Ids of later transactions are of generations beyond its terms."""
    row: Any = store.get(OWNER_KEY)
    if row is None:
        return
    skip_generations(store.folder, row[0] + GENERATIONS_APART)
    turn = store.begin()
    for key in sorted(OWN_KEYS):
        turn.delete(key)
    store.commit(turn)


# the end of it -----------------------------------------------------------------------------


def stop(path: Path) -> int:
    """Makes a replicated folder an ordinary store, with the turns that it has; returns the last of them.

    The shared log stays as it is, and other machines may go on with it: these are two stores from now on.
    NotSupported if it is not replicated, StoreInUse.
    """
    meta = _meta(path)
    if meta.format != REPLICATED:
        raise NotSupported(f"{path} is not replicated")
    store = _open(path, meta)
    turn = store.last_turn
    _detach(store, meta)
    return turn


def _detach(store: DiskStore, meta: Meta) -> None:
    """Makes a folder one of an ordinary store, and closes it."""
    row: Any = store.get(OPENED_KEY)
    try:
        _leave_log(store)
        while store.checkpoint():
            pass
    except BaseException:
        store.crash()
        raise
    if row is not None and row[2]:
        store.close()
    else:  # its owner did not close it, and left transactions that the next opening ends
        store.crash()
    save_meta(store.folder, meta._replace(format=FORMAT, first_id=b"", folder_id=b""), Files())


# restoring ---------------------------------------------------------------------------------


class _UpTo(ReplicatedFolder):
    """A folder that takes turns up to a last one."""

    def __init__(self, store: DiskStore, last: int) -> None:
        super().__init__(store)
        self._last = last

    def take(self, entry: Entry) -> None:
        if entry.turn > self._last:
            raise _Reached
        super().take(entry)


class _Reached(Exception):
    """The last turn that was asked for has been taken."""


def restore_from(settings: Replicate, to: Path, turn: int | None = None) -> int:
    """Makes an ordinary store from a shared log, as of `turn` or its end; returns the turn.

    It is a store of its own, and not replicated. AlreadyExists; Trimmed if the turn is too old, ValueError if it is
    not there yet; Corruption, LogUnreachable, NoSpace.
    """
    log, root = open_shared_log(settings.url, None, settings.log_timeout)
    with closing(log), typed_errors(to), making(to) as copy:
        folder = copy / "host-0"
        meta = Meta(REPLICATED, os.urandom(16), root.mode, 1, folder_id=os.urandom(16))
        _begin_copy(settings, log, root, folder, meta, turn)
        store = DiskStore.open(
            folder, mode=root.mode, hosts=1, shared_id=meta.store_id, durability="os"
        )
        try:
            last = _take(log, root, store, turn)
        except BaseException:
            store.crash()
            raise
        _detach(store, meta)
        check_whole(folder)
        Files().sync_folder(copy)
        give_name(copy, to)
    return last


def _begin_copy(
    settings: Replicate, log: SharedLog, root: Root, folder: Path, meta: Meta, turn: int | None
) -> None:
    """Fills a folder from the newest whole snapshot of that turn at most; without one it stays empty."""
    with snapshots_of(settings, log, root) as snapshots:
        for manifest in () if snapshots is None else leading_on(snapshots, log, turn):
            try:
                assert snapshots is not None
                restore_snapshot(snapshots, manifest, folder, meta)
                return
            except Corruption as error:
                snapshot_unusable(manifest.stem, error)
                shutil.rmtree(folder)
    floor = log.floor()
    if floor > 1:
        gone = Trimmed(floor)
        asked = "it" if turn is None else f"turn {turn}"
        gone.args = (
            f"{asked} cannot be restored: the shared log begins at turn {floor}, and no whole snapshot leads there",
        )
        raise gone


def _take(log: SharedLog, root: Root, store: DiskStore, turn: int | None) -> int:
    """Takes the log's turns up to that one, or to the end; returns the last."""
    ownership = Ownership(log, root.store_id, bytes(16))
    with suppress(_Reached):
        ownership.catch_up(_UpTo(store, 1 << 63 if turn is None else turn))
    if turn is not None and store.last_turn < turn:
        raise ValueError(f"turn {turn} is not there yet: the shared log ends at {store.last_turn}")
    return store.last_turn
