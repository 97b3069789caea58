"""Keeps a host's store on disk: a turn is appended to the log, synced, then shown; LMDB follows later.

    commit ─▶ record ─▶ one write that is durable ─▶ mark, live layer ─▶ (later) frozen layer ─▶ LMDB

If a write or sync fails, the turn never happened: a new segment of the next generation records where history
ends, and only then does the caller get the error. If that fails too, the store closes.
NoSpace is raised earlier, when the next segment is allocated and nothing has been written. Turns that free
space may then use the reserve.

A crash may leave a torn last record (void), a file that was begun and is not referred to, a stale
lock, or an LMDB of an older turn (the log has the rest). Opening repairs each: resuming.py.

Next: layered_reads.py; checkpointing.py, the background work.
"""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import (
    Fenced,
    IoError,
    NoSpace,
    PlanstepError,
    StoreClosed,
    TransactionTooLarge,
    reason,
)
from ..logs import SLOW_SYNC_SECONDS, chore_failed, left_open, slow_sync
from .checkpointing import Checkpointer, Rest
from .digests import Digests
from .files import Files, check_there, typed_errors, way_into
from .layered_reads import LayeredReads
from .layers import Changes
from .log.log_writer import LogEnd
from .log.records import OVERHEAD, RECORD_BYTES_MAX, encode_pairs
from .log.segments import Folder
from .owned_folder import OwnedFolder
from .owner_lock import OwnerLock
from .process_socket import Listener
from .readers.reader_lease import make_leases, oldest_lease
from .readers.released_mark import ReleasedMark
from .replicated import (
    MARK_KEY,
    OPENED_KEY,
    OWNER_KEY,
    SharedTurns,
    stop_sending,
)
from .resuming import resume
from .tables.table import Table
from .turn import Show, StoreCounters, Turn, encode_changes
from .turns_behind import Backlog
from .unsaved import Picture, Unsaved

if TYPE_CHECKING:
    from .readers.readonly import ReadOnlyStore

SEGMENT_BYTES = 64 << 20


class DiskStore(LayeredReads):
    """One host's store on disk. Invariant: what `get` and `scan` see is durable (at durability "full")."""

    def __init__(
        self, owned: OwnedFolder, sync: bool, segment_bytes: int, table: Table | None = None
    ) -> None:
        """With `sync`, each turn is durable before it is shown. `table`: the store's tables, if this process has
        them open: then nothing is shown until `begin_to_show`.
        """
        folder, lock = owned.path, owned.lock
        self.folder = folder
        self.meta = owned.meta
        self.store_id = owned.meta.store_id
        self.counters = StoreCounters()
        self._owned = owned
        self._lock = lock
        self._sync = sync
        self._closed = self._is_let_go = False
        self._shared: SharedTurns | None = None
        segments = Folder(folder, self.store_id, owned.files, segment_bytes, lock.folder)
        unsaved = Unsaved()
        self._log = LogEnd(segments, self.store_id, sync, self.counters, unsaved.move, self._show)
        self.backlog = Backlog(folder, owned.files, self.store_id, self._log)
        with typed_errors(folder / "released"):
            make_leases(folder, lock.folder)
            self._released = ReleasedMark(folder / "released", self.store_id, lock.folder)
        try:
            way = way_into(folder, lock.folder)
            check_there(way, lock.folder)
            super().__init__(unsaved, _own(table, way / "table", self.store_id), segments)
            try:
                check_there(way, lock.folder)
                self._checkpointer = Checkpointer(
                    unsaved,
                    self._log,
                    table=self._table,
                    folder=segments,
                    store_id=self.store_id,
                    counters=self.counters,
                    sync=sync,
                )
                self.clean = resume(
                    self._log,
                    unsaved,
                    table=self._table,
                    folder=segments,
                    released=self._released,
                    counters=self.counters,
                    attempt=self._checkpointer.attempt,
                )
                if self.meta.replicated:
                    self.backlog.keep(self.get)
                oldest_lease(folder, lock.folder)  # removes the leases of killed processes
                self._released.waits = table is not None
                self._show()
            except BaseException:
                self._table.disown()
                self._table.close()
                raise
        except BaseException:
            try:
                segments.close()
            finally:
                self._released.close()
            raise

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        create: bool = True,
        mode: str | None = None,
        hosts: int | None = None,
        host: int = 0,
        first_id: bytes = b"",
        shared_id: bytes = b"",
        wait: float = 0,
        share: bool = False,
        files: Files | None = None,
        durability: str = "full",
        segment_bytes: int = SEGMENT_BYTES,
    ) -> "DiskStore":
        """Opens or creates one host's store. StoreInUse, WrongMode, FormatError, Corruption, NoSpace.

        None for `mode` and `hosts` means as stored, or "deterministic" and 1 for a new store. `first_id` is the id
        of host 0's store, which the stores of all other hosts name. `shared_id` is the id of the shared log that
        the store is replicated to, b"" for none. `share`: says in the lock that other processes may attach.
        """
        owned = OwnedFolder.take(
            folder,
            files or Files(),
            create=create,
            mode=mode,
            hosts=hosts,
            host=host,
            first_id=first_id,
            shared_id=shared_id,
            wait=wait,
            share=share,
        )
        try:
            return cls(owned, durability == "full", segment_bytes)
        except BaseException:
            owned.release()
            raise

    @classmethod
    def take_over(
        cls,
        view: "ReadOnlyStore",
        lock: OwnerLock,
        *,
        files: Files | None = None,
        durability: str = "full",
        segment_bytes: int = SEGMENT_BYTES,
    ) -> "DiskStore":
        """Opens the store of a view that was opened `ownable`, in the same process, which has just taken the
        store's lock. The view, and all others, stay as they are. Errors as `open`, and StoreClosed: another store
        is there by now. The lock is the store's, and is released after an error. Call `begin_to_show` once this
        process's own readers see what the store has: the former owner may not have shown all of that.
        """
        owned = OwnedFolder.keep(view.folder, files or Files(), lock, view.store_id)
        try:
            return cls(owned, durability == "full", segment_bytes, view.table)
        except BaseException:
            owned.release()
            raise

    @property
    def generation(self) -> int:
        """Grows with each opening and with each failed write; of a replicated store it is the term."""
        shared = self._shared
        return self._log.generation if shared is None else shared.term

    @property
    def last_turn(self) -> int:
        return self._log.turn

    @property
    def next_address(self) -> int:
        """The address of the next payload byte."""
        return self._log.address

    @property
    def is_open(self) -> bool:
        """Turns may be committed: it is neither closed nor broken."""
        return not (self._closed or self._log.broken or self._table.gave_up)

    @property
    def in_doubt(self) -> bool:
        """The last turn may be in the shared log, and is not here."""
        return self._log.sending

    @property
    def lags(self) -> bool:
        return self.meta.replicated and self._shared is None

    def begin_to_show(self) -> None:
        """Shows the last turn to other processes, and from now on each one."""
        self._released.waits = False
        self._show()

    def _show(self) -> None:
        """Publishes the last turn to other processes, before anything of the turn leaves the host."""
        log = self._log
        self._released.show(log.generation, log.turn, log.synced)

    # for a reader of the same process ------------------------------------------------------

    @property
    def table(self) -> Table:
        return self._table

    @property
    def unsaved(self) -> Unsaved:
        """Changes that are in the log and not yet in LMDB."""
        return self._unsaved

    @property
    def released(self) -> ReleasedMark:
        """The mark file that other processes follow."""
        return self._released

    def hold_folder(self) -> int:
        """Returns a new descriptor of the store's folder, which the caller closes."""
        with typed_errors(self.folder):
            return os.dup(self._lock.folder)

    def picture(self) -> Picture:
        """Captures the whole store at one moment; the caller ends the read transaction in it."""
        return self._unsaved.picture(self._log, self._table)

    # writing -------------------------------------------------------------------------------

    def begin(self) -> Turn:
        self._lock.check()
        if not self._closed and self._lock.is_gone():
            self._log.broken = IoError(
                f"{self.folder} or its lock was removed while it was open: data in memory can no longer be saved"
            )
        if self._closed or self._log.broken or self._table.gave_up:  # is_open, without a call
            raise self._is_closed()
        return Turn(self, self._log.address, self._unsaved.layers[0].values)

    def _is_closed(self) -> StoreClosed:
        broken = self._log.broken or self._table.gave_up
        why = "close() was called" if broken is None else reason(broken)
        return StoreClosed(f"the store is closed: {why}")

    def abandon(self, turn: Turn) -> None:
        """Does nothing: an uncommitted turn has not left memory."""

    def commit(self, turn: Turn, show: Show | None = None) -> None:
        """Appends the turn, makes it durable, then visible; `show` receives a callback that makes it visible.

        NoSpace before any effect. Another IoError: the turn never happened. StoreClosed: undetermined if it is
        `in_doubt`. TransactionTooLarge, also for a key that the tables cannot hold.
        """
        self._lock.check()
        net = turn.net()
        if self._shared is not None:
            busy = bool(net or turn.payloads or turn.dropped)
            net.update(self._shared.rows(busy, self._checkpointer.digests))
        if not net and not turn.payloads and not turn.dropped:
            return
        if self._shared is not None:
            net[OWNER_KEY] = self._shared.owner_row()
        with self._log.appending:  # no signal handler interrupts it, or the rest of a turn
            if self._closed or self._log.broken or self._table.gave_up:
                raise self._is_closed()
            if self._checkpointer.failing is not None and not turn.reserve:
                self._checkpointer.refuse_beyond_memory()
            before = self._log.turn
            try:
                size = self._append(turn, net, show)
            except BaseException as error:
                self._append_failed(error, durable=self._log.turn != before)
                raise
            if self._shared is not None and MARK_KEY in net:
                self._checkpointer.freeze_to_digest()
            seconds = self._log.seconds
        self.counters.turn_bytes.add(size)
        if self._sync:
            self.counters.sync_seconds.add(seconds)
            if seconds >= SLOW_SYNC_SECONDS:
                slow_sync(self.folder, seconds, size)

    def _append_failed(self, error: BaseException, durable: bool) -> None:
        """Raises a more telling error than `error`. A `durable` turn may be in memory in part, so the store
        closes. It also does if the turn may be in the shared log.
        """
        if self._log.sending:
            stop_sending(self._log, error)
            return
        if durable:
            self._log.broken = error
        if not isinstance(error, Exception):
            return
        if durable:
            closed = StoreClosed(
                f"the turn is durable, and could not be taken into memory ({error!r}): "
                "reopen the store"
            )
            closed.in_doubt = True
            raise closed from error
        if isinstance(error, StoreClosed) and not isinstance(error, Fenced):
            error.in_doubt = True  # the record may be on the disk

    def _append(self, turn: Turn, net: Changes, show: Show | None) -> int:
        """Appends the turn to the log and arranges for it to be shown; returns the record's size in bytes."""
        changes = encode_changes(net)
        dropped = encode_pairs(turn.dropped) if turn.dropped else b""
        size = OVERHEAD + len(changes) + len(dropped) + turn.payload_bytes
        if size > RECORD_BYTES_MAX:
            raise TransactionTooLarge(f"a turn of {size} bytes is beyond what the log can hold")
        run = self._log.append(changes, dropped, turn, turn.reserve)
        self._unsaved.note(run, turn.dropped, size)
        visible = partial(self._visible, net)
        if show is None:
            visible()
        else:
            show(visible)
        return size

    def _visible(self, net: Changes) -> None:
        """Shows the turn to other processes first: they can then see all that this process sees, snapshot or
        not.
        """
        log = self._log
        self._released.show(log.generation, log.turn, log.synced)  # as _show, without the call
        unsaved = self._unsaved
        with unsaved.mutex:
            unsaved.layers[0].update(net)

    # replicated -----------------------------------------------------------------------------

    def lead(self, shared: SharedTurns, sync: bool) -> None:
        """Appends each turn to the shared log first, from now on; releases it when the store is closed.

        With `sync`, turns are synced here too. Until now none was: catching up would take long.
        """
        if sync:
            self._checkpointer.sync_log(self._log.turn)
            self._sync = self._log.syncs = self._checkpointer.syncs = True
        self._shared = shared
        shared.join(self._log)

    def confirm(self) -> None:
        """Returns once it is known that no other machine owned the store at some moment since the call."""
        if self._shared is not None:
            self._shared.confirm(self._log.appending)

    def _say_closed(self, shared: SharedTurns) -> None:
        """Tells other machines that the store has no owner any more: they need not take it over."""
        try:
            turn = self.begin()
            turn.reserve = True
            turn.put(OPENED_KEY, shared.closed_row())
            self.commit(turn)
            shared.flush()
        except PlanstepError as error:
            left_open(self.folder, error)
            cause = error.__cause__
            if cause is not None and not isinstance(cause, Exception):  # Ctrl-C amid the append
                raise cause from None

    # background work ------------------------------------------------------------------------

    def checkpoint_due(self, now: float) -> bool:
        """Returns whether `checkpoint` has work to do. `now` is time.monotonic()."""
        return self._checkpointer.due(now)

    def checkpoint(self, rest: Rest | None = None) -> bool:
        """Writes the changes in memory to LMDB, then does the chores. Returns False if there was nothing to write.
        It calls `rest` with a number of seconds now and then, to pause while no caller waits for its end.
        """
        self._lock.check()
        return self._checkpointer.run(rest)

    def digest(self) -> Digests:
        """Writes all changes to the tables, and returns the digests of these. No turn may run meanwhile."""
        self._checkpointer.write_all()
        return Digests(self._log.turn, self._table.digests())

    def behind(self) -> dict[str, Any]:
        """Reports the changes that wait for the next checkpoint: their age in seconds, keys, bytes of log."""
        return self._checkpointer.behind()

    def listener(self) -> Listener:
        """Begins to listen for other processes, in this store's folder. IoError."""
        return Listener(self._lock, self.folder)

    def close(self) -> None:
        """Checkpoints, writes the closing record and releases the store. If the tables are damaged (readers already
        got that error) or the disk is full, it only releases the store: all changes are in the log. A shared log
        gets a last turn first.
        """
        if self._closed:
            self._let_go()  # there was no memory for that
            return
        self._lock.check()
        try:
            if self._shared is not None:
                self._say_closed(self._shared)
            broken = self._log.broken or self._table.gave_up or self._table.damaged
            if broken is None and not self._lock.is_gone() and self._checkpointed():
                with self._log.appending:
                    self._log.write_close()
                    segment, end = self._log.segment, self._log.offset
                    self._checkpointer.attempt(lambda: self._table.mark_closed(segment))
                    self._checkpointer.attempt(lambda: self._folder.shrink(segment, end))
                    self._checkpointer.attempt(self._checkpointer.remove_unneeded)
        finally:
            self._closed = True
            self._checkpointer.stop()
            self._let_go()

    def crash(self) -> None:
        """Releases the store and writes nothing, as the end of its process would; nothing once it is closed."""
        self._closed = True
        self._let_go()

    def _checkpointed(self) -> bool:
        """Writes everything to the tables; returns False if the disk is full, with all of it durable in the log."""
        try:
            self._checkpointer.write_all()
        except NoSpace as error:
            self._checkpointer.sync_log(self._log.turn)
            chore_failed(self.folder, error)
            return False
        return True

    def _let_go(self) -> None:
        """Releases every resource, once, even if one release raises; then the store can be opened again."""
        if self._is_let_go:
            return
        self._is_let_go = True
        try:
            if self._shared is not None:
                with self._log.appending:  # it may be asked whether it is the owner still
                    self._shared.close()
        finally:
            try:
                self._folder.close()
            finally:
                try:
                    self._table.disown()  # views of this process may go on with it
                finally:
                    try:
                        self._table.close()
                    finally:
                        try:
                            self._released.close()
                        finally:
                            self._owned.release()


def _own(table: Table | None, folder: Path, store_id: bytes) -> Table:
    """Opens the tables, or makes this process the owner of those that it has open."""
    if table is None:
        return Table(folder, store_id)
    shared = table.shared()
    try:
        shared.own(folder)
    except BaseException:
        shared.close()
        raise
    return shared
