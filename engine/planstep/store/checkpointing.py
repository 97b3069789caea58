"""What is done beside the turns, by whoever calls `checkpoint`: LMDB, the files, their space.

    layers ──checkpoint──▶ LMDB at turn T ─▶ files nobody needs go ─▶ spare, reserve, rewriting

A checkpoint holds only turns whose sync returned. A failed one keeps its layer and is tried again;
when much waits behind failing ones, writes are refused. The chores after it may fail too: then the
store works on without them, counts that, and tries again later.

Next: log/compaction.py.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import Corruption, NoSpace, PlanstepError
from ..logs import chore_failed
from .files import Files
from .layers import Layer
from .log.compaction import choose, rewrite
from .log.extents import Extent
from .log.log_writer import LogEnd
from .log.segments import Folder
from .owner_lock import OwnerLock
from .tables.table import Table
from .turn import StoreCounters

Rest = Callable[[float], object]
"""Waits for so many seconds, or less."""
CHECKPOINT_BYTES = 64 << 20
CHECKPOINT_KEYS = 50_000
CHECKPOINT_SECONDS = 5.0
WAITING_BYTES_MAX = 256 << 20
RETRY_SECONDS = 5.0
_REST_SECONDS = 0.002
"""About as long as the changes between two rests take."""


class Behind:
    """The part of a DiskStore that is behind. Invariants: LMDB holds only turns whose sync returned;
    a layer is dropped, by one assignment, after its LMDB commit."""

    store_id: bytes
    counters: StoreCounters
    _files: Files
    _folder: Folder
    _lock: OwnerLock
    _log: LogEnd
    _table: Table

    def __init__(self, sync: bool) -> None:
        self._sync = sync  # each turn: durability "full"
        self._closed = False
        self._appending = threading.Lock()  # taken before `_mutex`
        self._mutex = threading.Lock()
        self._checkpointing = threading.Lock()
        self._layers: tuple[Layer, Layer | None] = (Layer(), None)
        self._frozen_at: tuple[int, int, str, bool, int] = (0, 0, "", False, 0)
        self._runs: list[Extent] = []
        self._run_starts: list[int] = []
        self._dropped: list[tuple[int, int]] = []
        self._frozen_runs = self._frozen_dropped = 0
        self._changed_at = 0.0
        self._unsaved_bytes = self._frozen_bytes = 0
        self._failing: Exception | None = None
        self._data_number = 0
        self._unreadable: dict[str, None] = {}
        self._chores_at = 0.0
        self._checkpointed_at = time.monotonic()

    @property
    def _broken(self) -> BaseException | None:
        """Why the store takes nothing any more, though it is open."""
        return self._log.broken or self._table.gave_up

    def checkpoint_due(self, now: float) -> bool:
        """Is there something for `checkpoint` to do? `now`: time.monotonic()."""
        live, frozen = self._layers
        if self._closed or self._broken is not None:
            return False
        if frozen is not None:
            return now >= self._chores_at  # it failed: not at once again
        keys = len(live)
        return (
            keys >= CHECKPOINT_KEYS
            or self._unsaved_bytes >= CHECKPOINT_BYTES
            or bool((keys or self._runs) and now - self._changed_at >= CHECKPOINT_SECONDS)
            or ((self._lacks_spare() or self._left()) and now >= self._chores_at)
        )

    def checkpoint(self, rest: Rest | None = None) -> bool:
        """Writes the layers to LMDB, then does the chores; False when there was no layer to write. `rest` is what
        it does now and then, for so many seconds, if nobody waits for its end."""
        self._lock.check()
        with self._checkpointing:
            if self._closed:
                return False
            written = self._write_checkpoint(rest)
            if self._table.damaged is None:
                self._chores()
            return written

    def _checkpoint_all(self) -> None:
        """Before closing: whatever is in memory."""
        with self._checkpointing:
            while self._write_checkpoint():
                pass

    def _write_checkpoint(self, rest: Rest | None = None) -> bool:
        with self._appending, self._mutex:
            frozen = self._layers[1]
            if frozen is None:
                if not len(self._layers[0]) and not self._runs and not self._dropped:
                    if self._table.state() is not None and not self._left():
                        return False
                frozen = self._layers[0]
                self._layers = (Layer(), frozen)
                log = self._log
                self._frozen_at = (log.turn, log.address, log.segment, False, log.crc)
                self._frozen_runs = len(self._runs)
                self._frozen_dropped = len(self._dropped)
                self._frozen_bytes, self._unsaved_bytes = self._unsaved_bytes, 0
        try:
            if not self._sync:
                self._sync_log(self._frozen_at[0])
            written = self._commit_frozen(frozen, rest)
        except Exception as error:
            self.counters.failed_checkpoints += 1
            self._failing = error
            self._chores_at = time.monotonic() + RETRY_SECONDS
            raise
        with self._mutex:
            self._layers = (self._layers[0], None)
            self._runs = self._runs[self._frozen_runs :]
            self._run_starts = [run.address for run in self._runs]
            del self._dropped[: self._frozen_dropped]
            self._frozen_bytes = 0
        self._failing = None
        self._checkpointed_at = time.monotonic()
        self.counters.checkpoints += 1
        self.counters.checkpoint_syncs += 2
        self.counters.checkpoint_bytes += written
        return True

    def _commit_frozen(self, frozen: Layer, rest: Rest | None) -> int:
        before = self._table.state()
        if before is not None and before[:3:2] == self._frozen_at[:3:2]:
            return (
                0  # it was committed, and then memory was short: twice, extents would count twice
            )
        runs, dropped = self._runs[: self._frozen_runs], self._dropped[: self._frozen_dropped]
        resting = partial(self._rest, rest)
        while True:
            try:
                written, _ = self._table.checkpoint(
                    frozen.values, runs, dropped, self._frozen_at, resting
                )
                return written
            except NoSpace:
                # What was dropped is given back only behind a checkpoint, which itself takes pages.
                if not self._folder.give_back_spare() and not self._folder.give_back_cushion():
                    raise
            resting = partial(self._rest, None)

    def _rest(self, rest: Rest | None) -> None:
        """Turns need the interpreter, too: a checkpoint is not in a hurry, unless the next one comes near."""
        near = (
            self._unsaved_bytes > CHECKPOINT_BYTES // 2
            or len(self._layers[0]) > CHECKPOINT_KEYS // 2
        )
        if rest is not None and not near:
            rest(_REST_SECONDS)

    def _sync_log(self, turn: int) -> None:
        """At durability "os": what LMDB is to hold is durable in the log first."""
        log = self._log
        if log.synced >= turn:
            return
        try:
            log.sync()
        except BaseException as error:
            with self._appending:
                if log.broken is None and log.in_doubt():
                    log.go_on_elsewhere(error)
            raise
        with self._appending:
            log.synced = max(log.synced, turn)

    def behind(self) -> dict[str, Any]:
        """What waits in memory for the next checkpoint: its age in seconds, keys, bytes of log."""
        live, frozen = self._layers
        return {
            "checkpoint_age_seconds": time.monotonic() - self._checkpointed_at,
            "unsaved_keys": len(live) + (0 if frozen is None else len(frozen)),
            "unsaved_bytes": self._unsaved_bytes + self._frozen_bytes,
        }

    def _refuse_beyond_memory(self) -> None:
        if self._failing is not None and (
            self._unsaved_bytes + self._frozen_bytes > WAITING_BYTES_MAX
        ):
            raise NoSpace(
                f"checkpoints fail ({self._failing}), and {WAITING_BYTES_MAX >> 20} MB wait in "
                "memory for the next: writes are refused until one succeeds"
            )

    # chores --------------------------------------------------------------------------------

    def _lacks_spare(self) -> bool:
        log = self._log
        if log.refused and self._folder.lacks_reserve():
            return True
        return (log.refused or log.offset * 2 > log.size) and self._folder.lacks_spare()

    def _left(self) -> bool:
        """Is the log on what was put aside, and the checkpoint does not say yet that all before can go?"""
        return self._log.on_reserve and self._frozen_at[2] != self._log.segment

    def _try(self, chore: Callable[[], Any]) -> None:
        """Does what the store can work on without; a failure is counted and tried again later."""
        try:
            chore()
        except (PlanstepError, OSError) as error:
            self.counters.failed_chores += 1
            chore_failed(self._folder.path, error)
            self._chores_at = time.monotonic() + RETRY_SECONDS

    def _chores(self) -> None:
        if self._table.state() is None:
            return
        self._try(self._remove_unneeded)
        self._try(self._leave_segment)
        self._try(self._keep_aside)
        self._try(self._rewrite)

    def _leave_segment(self) -> None:
        """Where there was no room for the next one and little of this one is live: else it would keep its room, and
        nothing that is dropped would ever make some."""
        log = self._log
        name = log.segment
        if not log.refused or log.on_reserve or self._runs or name in self._unreadable:
            return
        live = self._table.live().get(name, 0)
        if live * 2 >= log.size:
            return
        if live:
            self._copy([name])
        with self._appending:
            if log.segment != name or self._runs:
                return  # it goes on, or is needed
            log.leave()
        self._write_checkpoint()
        self._remove_unneeded()

    def _keep_aside(self) -> None:
        self._folder.keep_cushion()
        if not self._log.on_reserve and self._folder.lacks_reserve():
            self._folder.keep_reserve()
        if self._lacks_spare() and self._folder.lacks_spare():
            self._folder.keep_spare()

    def _remove_unneeded(self) -> None:
        needed = frozenset(self._table.live())
        first = self._table.state()[2]
        self._folder.remove_unneeded(needed, first, self._table.newest())

    def _rewrite(self) -> None:
        first = self._table.state()[2]
        sizes = {
            name: size
            for name, size in self._folder.sizes().items()
            if (name < first or name.startswith("data-")) and name not in self._unreadable
        }
        old = choose(self._table.live(), sizes, self._folder.segment_bytes)
        if old:
            self._copy(old)
            self._remove_unneeded()

    def _copy(self, old: list[str]) -> None:
        try:
            size, _ = rewrite(
                self._folder,
                self._table,
                self.store_id,
                self._log.generation,
                self._data_number,
                old,
            )
        except Corruption:
            self._unreadable.update(dict.fromkeys(old))  # readers are told, whenever they ask
            raise
        finally:
            self._data_number += 1
        self.counters.rewrites += 1
        self.counters.rewritten_bytes += size
        self.counters.checkpoint_syncs += 3
