"""Writes a store's unsaved changes to LMDB, then removes unneeded files and reclaims space, for disk_store.py.

    layer ──checkpoint──▶ LMDB at turn T ─▶ unneeded files go ─▶ chores: spare files, reserve, rewriting

A turn is a batch of inputs that one commit makes durable. A layer holds the changes of turns since the last
checkpoint; until it is written, they are in memory and in the log. An engine's background thread
(runtime/thread_pool.py) calls `DiskStore.checkpoint` when work is due. Nothing here starts a thread.

A checkpoint holds only turns whose sync returned. A failed one keeps its layer and is tried again; if
checkpoints keep failing while changes pile up, writes are refused. The chores keep files in reserve for a full
disk and rewrite files of little live data. A failed chore is counted and tried again later.

Next: log/compaction.py, which rewrites files.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import Corruption, NoSpace, PlanstepError
from ..logs import chore_failed
from .digests import Digests
from .layers import Layer
from .log.compaction import choose, rewrite
from .log.log_writer import LogEnd
from .log.segments import Folder
from .tables.header_check import DATA_FILE
from .tables.table import Table
from .turn import StoreCounters
from .unsaved import Unsaved

Rest = Callable[[float], object]
"""Waits for the given seconds, or less."""
CHECKPOINT_BYTES = 64 << 20
CHECKPOINT_KEYS = 50_000
CHECKPOINT_SECONDS = 5.0
WAITING_BYTES_MAX = 256 << 20
RETRY_SECONDS = 5.0
_REST_SECONDS = 0.002
"""About the time that the changes between two rests take."""


class Checkpointer:
    """Writes a store's unsaved changes to LMDB, and keeps its files in order.

    Invariants: LMDB holds only turns whose sync returned; a layer is forgotten after its LMDB commit.
    """

    def __init__(
        self,
        unsaved: Unsaved,
        log: LogEnd,
        *,
        table: Table,
        folder: Folder,
        store_id: bytes,
        counters: StoreCounters,
        sync: bool,
    ) -> None:
        self._unsaved = unsaved
        self._log = log
        self._table = table
        self._folder = folder
        self._store_id = store_id
        self._counters = counters
        self.syncs = sync  # sync each turn: durability "full"
        self.failing: Exception | None = None  # the last checkpoint's error
        self.digests: Digests | None = None
        self._to_digest = 0  # the turn as of which they will be
        self._stopped = False
        self._running = threading.Lock()  # taken before the other locks
        self._frozen_at: tuple[int, int, str, bool, int] = (0, 0, "", False, 0)
        self._data_number = 0
        self._unreadable: dict[str, None] = {}
        self._chores_at = 0.0
        self._written_at = time.monotonic()

    def due(self, now: float) -> bool:
        """Returns whether `run` has work to do. `now` is time.monotonic()."""
        unsaved = self._unsaved
        live, frozen, _ = unsaved.layers
        if self._stopped or self._log.broken is not None or self._table.gave_up is not None:
            return False
        if frozen is not None:
            return now >= self._chores_at  # the last one failed: wait before the next attempt
        keys = len(live)
        return (
            keys >= CHECKPOINT_KEYS
            or unsaved.bytes >= CHECKPOINT_BYTES
            or bool((keys or unsaved.runs) and now - unsaved.changed_at >= CHECKPOINT_SECONDS)
            or ((self._lacks_spare() or self._left()) and now >= self._chores_at)
        )

    def run(self, rest: Rest | None = None) -> bool:
        """Writes the layers to LMDB, then does the chores. Returns False if there was no layer to write. It calls
        `rest` with a number of seconds now and then, to pause while no caller waits for its end.
        """
        with self._running:
            if self._stopped:
                return False
            written = self.write(rest)
            if self._table.damaged is None:
                self._chores()
            return written

    def write_all(self) -> None:
        """Writes all changes in memory, before closing."""
        with self._running:
            self._check_table()
            while self.write():
                pass

    def stop(self) -> None:
        """Marks the store closed; from here on `run` does nothing."""
        self._stopped = True

    def write(self, rest: Rest | None = None) -> bool:
        """Writes one layer to LMDB; returns False if there was none."""
        unsaved = self._unsaved
        with self._log.appending, unsaved.mutex:
            frozen = unsaved.layers[1]
            if frozen is None:
                if unsaved.empty and self._table.state() is not None and not self._left():
                    return False
                frozen = self._freeze()
        try:
            if self._table.damaged is None:
                self._check_table()
            if not self.syncs:
                self.sync_log(self._frozen_at[0])
            written = self._commit_frozen(frozen, rest)
        except Exception as error:
            self._counters.failed_checkpoints += 1
            self.failing = error
            self._chores_at = time.monotonic() + RETRY_SECONDS
            raise
        if self._frozen_at[0] == self._to_digest:
            self.digests = Digests(self._frozen_at[0], self._table.digests())
        unsaved.forget_frozen()
        self.failing = None
        self._written_at = time.monotonic()
        self._counters.checkpoints += 1
        self._counters.checkpoint_syncs += 2
        self._counters.checkpoint_bytes += written
        return True

    def _freeze(self) -> Layer:
        log = self._log
        self._frozen_at = (log.turn, log.address, log.segment, False, log.crc)
        return self._unsaved.freeze()

    def freeze_to_digest(self) -> None:
        """Makes the next checkpoint one of this very turn, whose `digests` are kept, unless one is under way. The
        caller holds LogEnd.appending.
        """
        with self._unsaved.mutex:
            if self._unsaved.layers[1] is None:
                self._freeze()
                self._to_digest = self._log.turn

    def _check_table(self) -> None:
        """Raises Corruption if the tables' file has left the store: the log must keep the turns it covered."""
        path = self._folder.path / "table" / DATA_FILE
        self._table.check_file(path, self._folder.files.status_of(path))

    def _commit_frozen(self, frozen: Layer, rest: Rest | None) -> int:
        before = self._table.state()
        if before is not None and before[:3:2] == self._frozen_at[:3:2]:
            return 0  # this commit succeeded and was then interrupted; a second one would count its extents twice
        runs, dropped = self._unsaved.frozen_payloads()
        resting = partial(self._rest, rest)
        while True:
            try:
                written, _ = self._table.checkpoint(
                    frozen.values, runs, dropped, self._frozen_at, resting
                )
                return written
            except NoSpace:
                # Dropped space is returned only after a checkpoint, and the checkpoint itself needs pages.
                if not self._folder.give_back_spare() and not self._folder.give_back_cushion():
                    raise
            resting = partial(self._rest, None)

    def _rest(self, rest: Rest | None) -> None:
        """Pauses so that turns get the interpreter, unless the next checkpoint is already near."""
        near = (
            self._unsaved.bytes > CHECKPOINT_BYTES // 2
            or len(self._unsaved.layers[0]) > CHECKPOINT_KEYS // 2
        )
        if rest is not None and not near:
            rest(_REST_SECONDS)

    def sync_log(self, turn: int) -> None:
        """Makes the log durable up to `turn` before LMDB holds it (durability "os")."""
        log = self._log
        if log.synced >= turn:
            return
        try:
            log.sync()
        except BaseException as error:
            with log.appending:
                if log.broken is None and log.in_doubt():
                    log.go_on_elsewhere(error)
            raise
        with log.appending:
            log.synced = max(log.synced, turn)

    def behind(self) -> dict[str, Any]:
        """Reports the changes that wait for the next checkpoint: their age in seconds, keys, bytes of log."""
        unsaved = self._unsaved
        live, frozen, _ = unsaved.layers
        return {
            "checkpoint_age_seconds": time.monotonic() - self._written_at,
            "unsaved_keys": len(live) + (0 if frozen is None else len(frozen)),
            "unsaved_bytes": unsaved.bytes + unsaved.frozen_bytes,
        }

    def refuse_beyond_memory(self) -> None:
        """Raises NoSpace if checkpoints fail and too much waits for the next, or if none can ever succeed."""
        if self._table.lost:
            raise NoSpace(f"{self._table.lost}; writes are refused")
        if self._unsaved.bytes + self._unsaved.frozen_bytes > WAITING_BYTES_MAX:
            raise NoSpace(
                f"checkpoints fail ({self.failing}), and {WAITING_BYTES_MAX >> 20} MB wait in "
                "memory for the next: writes are refused until one succeeds"
            )

    # chores --------------------------------------------------------------------------------

    def _lacks_spare(self) -> bool:
        log = self._log
        if log.refused and self._folder.lacks_reserve():
            return True
        return (log.refused or log.offset * 2 > log.size) and self._folder.lacks_spare()

    def _left(self) -> bool:
        """Returns whether the log is on the reserve and no checkpoint yet lets the earlier segments go."""
        return self._log.on_reserve and self._frozen_at[2] != self._log.segment

    def attempt(self, chore: Callable[[], Any]) -> None:
        """Runs an optional chore; a failure is counted and the chore is tried again later."""
        try:
            chore()
        except (PlanstepError, OSError) as error:
            self._counters.failed_chores += 1
            chore_failed(self._folder.path, error)
            self._chores_at = time.monotonic() + RETRY_SECONDS

    def _chores(self) -> None:
        if self._table.state() is None:
            return
        self.attempt(self.remove_unneeded)
        self.attempt(self._leave_segment)
        self.attempt(self._keep_aside)
        self.attempt(self._rewrite)

    def _leave_segment(self) -> None:
        """Leaves a segment of little live data when there was no room for the next one. Otherwise it would keep its
        space, and dropped data would never free any.
        """
        log = self._log
        name = log.segment
        if not log.refused or log.on_reserve or self._unsaved.runs or name in self._unreadable:
            return
        live = self._table.live().get(name, 0)
        if live * 2 >= log.size:
            return
        if live:
            self._copy([name])
        with self._log.appending:
            if log.segment != name or self._unsaved.runs:
                return  # the log went on by itself, or the segment is needed
            log.leave()
        self.write()
        self.remove_unneeded()

    def _keep_aside(self) -> None:
        self._folder.keep_cushion()
        if not self._log.on_reserve and self._folder.lacks_reserve():
            self._folder.keep_reserve()
        if self._lacks_spare() and self._folder.lacks_spare():
            self._folder.keep_spare()

    def remove_unneeded(self) -> None:
        """Removes the files that neither a reader nor the next opening needs."""
        self._check_table()
        needed = frozenset(self._table.live())
        self._folder.remove_unneeded(needed, self._first_kept(), self._table.newest())

    def _first_kept(self) -> str:
        """Returns the first segment that recovery needs, or the shared log."""
        first: str = self._table.state()[2]
        return first if self._log.first_kept is None else self._log.first_kept(first)

    def _rewrite(self) -> None:
        first = self._first_kept()
        sizes = {
            name: size
            for name, size in self._folder.sizes().items()
            if (name < first or name.startswith("data-")) and name not in self._unreadable
        }
        old = choose(self._table.live(), sizes, self._folder.segment_bytes)
        if old:
            self._copy(old)
            self.remove_unneeded()

    def _copy(self, old: list[str]) -> None:
        try:
            size, _ = rewrite(
                self._folder,
                self._table,
                self._store_id,
                data_file=(self._log.generation, self._data_number),
                old=old,
            )
        except Corruption:
            self._unreadable.update(dict.fromkeys(old))  # readers get the error when they ask
            raise
        finally:
            self._data_number += 1
        self._counters.rewrites += 1
        self._counters.rewritten_bytes += size
        self._counters.checkpoint_syncs += 3
