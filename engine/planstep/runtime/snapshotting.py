"""Makes snapshots of a replicated store as its owner, trims the shared log, and begins folders from snapshots.

    owner    enough logged since the last one ─▶ snapshot ─▶ the newest `keep` stay ─▶ floor ─▶ older turns,
                                                                                      snapshots and packs go
    opening  an empty folder, or one behind the floor ─▶ newest whole snapshot ─▶ NAME.incomplete ─▶ verified
                                                                                       ─▶ NAME ─▶ the log's tail

Snapshots have a thread of their own, and a connection of their own to the shared log: no turn and no checkpoint
waits for them. A failed one is logged and tried again. An owner that was fenced, and does not know it yet, harms
nobody: what it keeps is of decided turns, and its floors are no higher than what it kept.

Next: replication.py.
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from ..errors import Corruption, StoreClosed
from ..logs import snapshot_made, snapshot_restored, snapshot_unusable, tried_again
from ..shared.counts import Counts
from ..shared.manifest import Manifest
from ..shared.registry import open_objects, open_shared_log
from ..shared.settings import Replicate
from ..shared.shared_log import Root, SharedLog
from ..shared.snapshots import Snapshots
from ..store import DiskStore
from ..store.files import Files
from ..store.meta import REPLICATED, Meta, make_folder
from ..store.owner_lock import OwnerLock
from ..store.snapshot_making import make_snapshot
from ..store.snapshot_restoring import restore_snapshot
from .replace_store import replace
from .replication import Replication
from .unfinished import making
from .wait_primitives import Latch

CLOSE_BYTES = 16 << 20
"""Log since the last snapshot that makes a close wait for a new one."""
_LOOK_SECONDS = 0.5
_PAUSE_SECONDS = 5.0
_TRIM_SECONDS = 5.0
"""How long a trim waits for an answer; it is tried again."""
_RETRY_SECONDS = 30.0
_DAY_SECONDS = 86_400
_DAILY_PART = 8
"""After a day this part of the log that makes a snapshot due is enough."""
_TURN_BYTES = 4 << 10
"""What a turn of an earlier opening is taken to have logged."""


@contextmanager
def snapshots_of(
    settings: Replicate,
    log: SharedLog,
    root: Root,
    check: Callable[[], object] = lambda: None,
) -> Iterator[Snapshots | None]:
    """Yields the snapshots of a shared log; None if it has no place for any. Errors as `open_objects`.

    `check` raises to end a wait for an answer.
    """
    objects, url = log.objects, settings.url
    with ExitStack() as stack:
        if objects is None and settings.snapshots is not None:
            url = settings.snapshots
            objects = stack.enter_context(closing(open_objects(url, root, settings.log_timeout)))
        yield (
            objects
            if objects is None
            else Snapshots(objects, url, root.store_id, settings.log_timeout, check)
        )


class Snapshotter:
    """Makes the snapshots of a store while this machine owns it.

    `_newest` is the newest one, as far as known; `_counted` is the store's count of logged bytes as of that one, or
    as of the opening, before which `_earlier` bytes or so were logged.
    """

    def __init__(
        self,
        store: DiskStore,
        settings: Replicate,
        counts: Counts | None = None,
        leading: Replication | None = None,
    ) -> None:
        """`counts`: those of the owner's shared log; `leading`: the owner."""
        self._counts = counts or Counts()
        self._leading = leading
        self._store = store
        self._settings = settings
        self._closing = self._given_up = self._looked = False
        self.ended = Latch()
        self._again_at = time.monotonic() + _PAUSE_SECONDS
        self._newest: Manifest | None = None
        self._counted = store.counters.log_bytes
        self._earlier = 0
        self._opened_turn = store.last_turn

    def serve(self, stopping: Latch) -> None:
        """Makes snapshots as they are due, until the engine stops; then a last one if it is closed in order."""
        enough = self._settings.snapshot_bytes
        try:
            while not stopping.wait(_LOOK_SECONDS):
                if time.monotonic() >= self._again_at and self._store.is_open:
                    self._attempt(enough)
            if self._closing and self._store.is_open:
                self._attempt(min(CLOSE_BYTES, enough))
        finally:
            self.ended.set()

    def end(self, in_order: bool) -> None:
        """Tells whether a last one may be made; else one that is being made is given up."""
        self._closing, self._given_up = in_order, not in_order

    def _attempt(self, enough: int) -> None:
        if not self._may_be_due(enough):
            return
        try:
            self._make(enough)
            self._again_at = max(self._again_at, time.monotonic() + _PAUSE_SECONDS)
        except Exception as error:
            if self._given_up or not self._store.is_open:
                return
            self._again_at = time.monotonic() + _RETRY_SECONDS
            tried_again("a snapshot", error)

    def _may_be_due(self, enough: int) -> bool:
        """Returns whether one is due; also, while the engine is not closing, if the newest one is not known yet."""
        newest = self._newest
        logged = self._earlier + self._store.counters.log_bytes - self._counted
        if newest is None:
            return logged >= enough or not (self._looked or self._closing)
        enough = max(enough, newest.bytes // 2)
        if time.time() - newest.made_ms / 1000 > _DAY_SECONDS:
            enough //= _DAILY_PART
        return max(logged, self._store.next_address - newest.address) >= enough

    def _make(self, enough: int) -> None:
        settings, store = self._settings, self._store
        log, root = open_shared_log(settings.url, None, settings.log_timeout)
        log.count_into(self._counts)
        log.wait_less(_TRIM_SECONDS)
        with closing(log), snapshots_of(settings, log, root, self._check) as snapshots:
            if snapshots is None or root.store_id != store.meta.shared_id:
                self._again_at = math.inf  # it has no place for any
                return
            if not self._looked:
                self._newest = next(snapshots.newest_first(), None)
                turn = 0 if self._newest is None else self._newest.turn
                self._earlier = _TURN_BYTES * max(0, self._opened_turn - turn)
                self._looked = True
            if self._may_be_due(enough):
                self.make_now(log, snapshots)

    def make_now(self, log: SharedLog, snapshots: Snapshots) -> None:
        """Makes a snapshot of the last turn or a later one, and trims the log behind those that are kept."""
        store = self._store
        began, counted = time.monotonic(), store.counters.log_bytes
        store.checkpoint()
        newest = next(snapshots.newest_first(), None)
        # Of the turn behind a seed none is made: its floor would be the seed's (Manifest.floor_max).
        if newest is None or newest.turn + 1 < store.table.state()[0]:
            newest, sent = make_snapshot(
                store, snapshots, newest, log.floor, check=self._check, decided=self._await_decided
            )
            self._newest, self._counted, self._earlier = newest, counted, 0
            took = time.monotonic() - began
            snapshot_made(store.folder, newest.turn, newest.bytes, sent, took)
        leading = self._leading
        floor_max = math.inf if leading is None else leading.floor_max
        trim_behind(log, snapshots, self._settings.keep, floor_max)

    def _await_decided(self, turn: int) -> None:
        if self._leading is not None:
            self._leading.await_decided(turn, self._check)

    def _check(self) -> None:
        if self._given_up or not self._store.is_open:
            raise StoreClosed("the store is closed, so its snapshot was given up")


def trim_behind(
    log: SharedLog, snapshots: Snapshots, keep: int, floor_max: float = math.inf
) -> None:
    """Removes what the newest `keep` whole snapshots make needless. It may be repeated, and cut short anywhere."""
    oldest = snapshots.oldest(keep)
    if oldest is not None and oldest.turn <= floor_max:
        log.trim(oldest.turn, oldest.mark)
        snapshots.collect(oldest.turn)


# beginning from one ------------------------------------------------------------------------


def begin_from_snapshot(
    path: Path, settings: Replicate, log: SharedLog, root: Root, meta: Meta | None
) -> bool:
    """Makes the store at `path` anew from the newest whole snapshot; False, with nothing done, if there is none.

    `meta`: that of the folder which is there, None for an empty one. StoreInUse, also while others read it on a
    file system that cannot exchange names.
    """
    with snapshots_of(settings, log, root) as snapshots:
        if snapshots is None:
            return False
        folder_id = os.urandom(16) if meta is None else meta.folder_id
        new = Meta(REPLICATED, root.store_id, root.mode, 1, folder_id=folder_id)
        return any(
            restore_whole(snapshots, manifest, path, new) for manifest in leading_on(snapshots, log)
        )


def leading_on(
    snapshots: Snapshots, log: SharedLog, turn_max: int | None = None
) -> Iterator[Manifest]:
    """Yields the whole snapshots, of turn `turn_max` at most, behind which the log goes on, the newest first.

    It lists once more, with newer ones, if the log was trimmed meanwhile: those that it yielded may be gone.
    """
    listed = 0
    while (floor := log.floor()) > listed:
        listed = floor
        for manifest in snapshots.newest_first(turn_max):
            if manifest.floor_max >= floor:
                yield manifest


def restore_whole(snapshots: Snapshots, manifest: Manifest, path: Path, meta: Meta) -> bool:
    """Replaces the store at `path`, if there is one; returns False, with nothing done, for a damaged snapshot."""
    began = time.monotonic()
    to = Path(os.path.realpath(path))
    files = Files()
    make_folder(to, files)
    with ExitStack() as stack:
        for host in sorted(to.glob("host-*")):
            stack.callback(OwnerLock(host / "lock").close)
        copy = stack.enter_context(making(to, replace=True))
        try:
            restore_snapshot(snapshots, manifest, copy / "host-0", meta)
        except Corruption as error:
            snapshot_unusable(manifest.stem, error)
            return False
        files.sync_folder(copy)
        # No process becomes its owner before it is certain that it stays.
        stack.callback(OwnerLock(copy / "host-0" / "lock").close)
        replace(copy, to, under_readers=True)
    snapshot_restored(to, manifest.turn, manifest.bytes, time.monotonic() - began)
    return True
