"""The store on disk: append to the log, sync, then show; LMDB is written behind.

    commit ─▶ record ─▶ one write that is durable ─▶ live layer ─▶ (later) frozen layer ─▶ LMDB

After a write or sync that failed the turn never was: a new segment under the next generation names
where history ends, and only then does the caller hear of it. If that fails too, the store closes.
NoSpace is different: it is met when the next segment is allocated, before anything was written; turns
that free space then go to the reserve.

What a crash leaves: a torn last record (void), a file that was begun and is not referred to, a stale
lock, an LMDB of an older turn (the log has the rest). Opening deals with each.

Next: behind.py, what is done beside the turns.
"""

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import (
    Corruption,
    FormatError,
    IoError,
    NoSpace,
    StoreClosed,
    TransactionTooLarge,
    WrongMode,
)
from ..proto.records_pb2 import StoreMeta
from .behind import Behind
from .files import Files
from .folder import Folder, segment_files, segment_name, segment_parts
from .layers import GONE, MISSING, Layer, merged_scan
from .lock import OwnerLock
from .log import (
    CLOSE,
    CLOSE_SIZE,
    OVERHEAD,
    RECORD_BYTES_MAX,
    START,
    TURN,
    Record,
    decode_pairs,
    encode_pairs,
    encode_record,
    read_record,
)
from .mark import ReleasedMark
from .meta import FORMAT, load_meta, save_meta
from .recovery import Found, read_back, read_segment
from .table import Extent, Table
from .turn import StoreCounters, Turn, decode_changes, encode_changes

SEGMENT_BYTES = 64 << 20
_Copies = list[tuple[str, Record, bytes]]


class DiskStore(Behind):
    """Invariants: what `get` and `scan` see is durable (at durability "full"); `_appending` is held by
    whoever changes the log's end."""

    def __init__(
        self,
        folder: Path,
        *,
        meta: StoreMeta,
        lock: OwnerLock,
        files: Files,
        durability: str,
        segment_bytes: int,
    ) -> None:
        self.folder = folder
        self.meta = meta
        self.store_id = meta.store_id
        self.counters = StoreCounters()
        self._files = files
        self._lock = lock
        self._sync = durability == "full"
        self._appending = threading.Lock()
        self._broken: BaseException | None = None
        self._closed = False
        self._fd = -1
        self._folder = Folder(folder, files, segment_bytes)
        self._released = ReleasedMark(folder / "released", write=True)
        try:
            self._table = Table(folder / "table")
            try:
                super().__init__()
                self._recover()
                self._released.show(self.generation, self.last_turn)
            except BaseException:
                self._table.close()
                raise
        except BaseException:
            self._folder.close()
            self._released.close()
            raise

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        create: bool = True,
        mode: str = "deterministic",
        hosts: int = 1,
        host: int = 0,
        wait: float = 0,
        files: Files | None = None,
        durability: str = "full",
        segment_bytes: int = SEGMENT_BYTES,
    ) -> "DiskStore":
        """Opens or creates one host's store. StoreInUse, WrongMode, FormatError, Corruption, NoSpace."""
        files = files or Files()
        if not (folder / "meta.pb").exists():
            if not create:
                raise FormatError(f"{folder} is not a store; create one with create=True")
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = OwnerLock(folder / "lock", wait)
        try:
            meta = load_meta(folder, files)
            if meta is None:
                meta = StoreMeta(
                    format=FORMAT, store_id=os.urandom(16), mode=mode, hosts=hosts, host=host
                )
                (folder / "table").mkdir(exist_ok=True, mode=0o700)
                save_meta(folder, meta, files)
            for name, asked in (("mode", mode), ("hosts", hosts), ("host", host)):
                if getattr(meta, name) != asked:
                    raise WrongMode(name, getattr(meta, name), asked)
            return cls(
                folder,
                meta=meta,
                lock=lock,
                files=files,
                durability=durability,
                segment_bytes=segment_bytes,
            )
        except BaseException:
            lock.close()
            raise

    # opening -------------------------------------------------------------------------------

    def _recover(self) -> None:
        state = self._table.state() or (0, 0, "", False, 0)
        checkpoint, self._next_address, first_segment, closed = state[:4]
        found = read_back(
            self.folder, self._files, self.store_id, checkpoint, first_segment, closed
        )
        live = Layer()
        for segment, record, _ in found.turns:
            live.update(decode_changes(record.changes))
            self._dropped += decode_pairs(record.dropped)
            self._note_run(record.address, segment, record.payload_offset, record.payload_length)
            self.counters.replayed_turns += 1
        self._layers = (live, None)
        self.last_turn = found.turns[-1][1].turn if found.turns else checkpoint
        generations = [segment_parts(p.name)[0] for p in segment_files(self.folder)]
        self.generation = max(generations, default=0) + 1
        self._number = 0
        self._segment = ""
        doubtful = [item for item in found.turns if item[1].turn > found.synced]
        try:
            self._begin_segment(found.synced, doubtful)
        except NoSpace:
            self._free_tail(found)
            self._begin_segment(found.synced, doubtful, reserve=True)
        self._files.sync_folder(self.folder / "table")  # LMDB does not, when it creates its file
        self._files.sync_folder(self.folder)
        if found.segment:  # what is behind its records is void from now on
            self._try(lambda: self._folder.shrink(found.segment, found.offset))
        if not self._on_reserve:
            self._try(self._folder.keep_reserve)
        self._unsaved_bytes = sum(record.size for _, record, _ in found.turns)

    def _free_tail(self, found: Found) -> None:
        """The disk is full: what a crash left allocated behind the last record goes, if it is empty."""
        if not found.segment:
            return
        size = (self.folder / found.segment).stat().st_size
        if not any(self._folder.read(found.segment, found.offset, size - found.offset)):
            self._folder.shrink(found.segment, found.offset)

    def _note_run(self, address: int, segment: str, offset: int, length: int) -> None:
        if length:
            self._next_address = address + length
            self._runs.append(Extent(address, segment, offset, length))
            self._run_starts.append(address)

    def _begin_segment(
        self, end: int, copies: _Copies, room: int = 0, reserve: bool = False
    ) -> None:
        """A new segment whose first record says that history ends at `end`; `copies` follow it.

        `room`: bytes that must fit behind them.

        The copies are durable before the first record is: until it is there, the segments that
        they came from count, and the copies prove nothing (their `synced` is 0). `reserve`: when
        the disk is full, take what was put aside.
        """
        name = segment_name(self.generation, self._number)
        needed = OVERHEAD + sum(record.size for _, record, _ in copies) + room + CLOSE_SIZE
        from_reserve = False
        try:
            fd, size = self._folder.create_segment(name, needed)
        except NoSpace:
            if not reserve:
                raise
            fd, size = self._folder.create_from_reserve(name, needed)
            from_reserve = True
        try:
            offset, crc, moved = self._write_start(fd, name, end, copies)
            self._files.sync_folder(self.folder)
        except NoSpace:
            self._folder.discard(name)
            raise
        except BaseException:
            self._folder.let_go(name)
            raise
        with self._mutex:
            self._runs = [moved.get(run.address, run) for run in self._runs]
        self._fd, self._segment, self._size = fd, name, size
        self._offset, self._crc = offset, crc
        self._on_reserve = from_reserve
        self.counters.segments += 1
        self.counters.log_bytes += offset
        self._synced = self.last_turn

    def _write_start(
        self, fd: int, name: str, end: int, copies: _Copies
    ) -> tuple[int, int, dict[int, Extent]]:
        sid, generation = self.store_id, self.generation
        start, offset, crc = encode_record(
            START, sid, generation, end, self._next_address, end, 0, 0
        )
        moved: dict[int, Extent] = {}
        for _, record, data in copies:
            begin = record.payload_offset
            payload = data[begin : begin + record.payload_length]
            buffers, size, crc = encode_record(
                TURN,
                sid,
                generation,
                record.turn,
                record.address,
                0,
                offset,
                crc,
                record.changes,
                record.dropped,
                [payload],
            )
            self._files.write(fd, buffers, offset, False)
            if payload:
                at = offset + begin - record.offset
                moved[record.address] = Extent(record.address, name, at, len(payload))
            offset += size
        if copies:
            self._files.sync(fd)
        self._files.write(fd, start, 0, True)
        self.counters.syncs += 1 + bool(copies)
        return offset, crc, moved

    # reading -------------------------------------------------------------------------------

    def get(self, key: bytes) -> Any:
        live, frozen = self._layers
        value = live.values.get(key, MISSING)
        if value is MISSING:
            if frozen is not None:
                value = frozen.values.get(key, MISSING)
            if value is MISSING:
                return self._table.get(key)
        return None if value is GONE else value

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, Any]]:
        with self._mutex:
            live, frozen = self._layers
            layers = [live.between(begin, end)]
            if frozen is not None:
                layers.insert(0, frozen.between(begin, end))
        return merged_scan(layers, self._table.scan(begin, end, reverse), reverse, limit)

    def read_payload(self, address: int, length: int) -> bytes:
        """IoError or Corruption when the bytes are not there; the batch's own crc tells if they differ."""
        extent = self._extent(address)
        try:
            data = self._folder.read(extent.file, extent.offset + address - extent.address, length)
        except IoError:
            again = self._extent(address)
            if again == extent:
                raise
            # Rewritten, and the old file removed, between the two looks.
            data = self._folder.read(again.file, again.offset + address - again.address, length)
        if len(data) < length:
            raise Corruption(f"{extent.file}: payload at address {address} is cut off")
        return data

    def _extent(self, address: int) -> Extent:
        with self._mutex:  # a checkpoint replaces both
            runs, starts = self._runs, self._run_starts
        at = bisect_right(starts, address) - 1
        if 0 <= at < len(runs) and address < runs[at].address + runs[at].length:
            return runs[at]
        extent = self._table.find_payload(address)
        if extent is None:
            raise Corruption(f"no payload at address {address}")
        return extent

    # writing -------------------------------------------------------------------------------

    def begin(self) -> Turn:
        self._lock.check()
        if self._broken is not None or self._closed:
            raise StoreClosed(f"the store is closed: {self._broken or 'close() was called'}")
        return Turn(self, self._next_address)

    def abandon(self, turn: Turn) -> None:
        """Nothing of the turn has left memory."""

    def commit(self, turn: Turn, before_visible: Callable[[Any], None] | None = None) -> None:
        """Appends the turn and makes it durable, then visible.

        NoSpace before any effect; another IoError: the turn never was; StoreClosed: undetermined.
        """
        net = turn.net()
        if not net and not turn.payloads and not turn.dropped:
            return
        changes, dropped = encode_changes(net), encode_pairs(turn.dropped)
        size = OVERHEAD + len(changes) + len(dropped) + turn.payload_bytes
        if size > RECORD_BYTES_MAX:
            raise TransactionTooLarge(f"a turn of {size} bytes is beyond what the log can hold")
        with self._appending:
            if self._broken is not None or self._closed:
                raise StoreClosed(f"the store is closed: {self._broken or 'close() was called'}")
            self._make_room(size, turn.reserve)
            payload_at = self._append(changes, dropped, turn, size) + size - 4 - turn.payload_bytes
            self._released.show(self.generation, self.last_turn)
            self.counters.turns += 1
            self.counters.log_bytes += size
            self.counters.payload_bytes += turn.payload_bytes
            with self._mutex:
                self._unsaved_bytes += size
                self._changed_at = time.monotonic()
                self._note_run(self._next_address, self._segment, payload_at, turn.payload_bytes)
                self._dropped += turn.dropped
            if before_visible is not None:
                before_visible(net)
            with self._mutex:
                self._layers[0].update(net)

    def _append(self, changes: bytes, dropped: bytes, turn: Turn, size: int) -> int:
        """Writes one turn at the log's end; returns where."""
        position = self._offset
        buffers, size, crc = encode_record(
            TURN,
            self.store_id,
            self.generation,
            self.last_turn + 1,
            self._next_address,
            self._synced,
            position,
            self._crc,
            changes,
            dropped,
            turn.payloads,
        )
        try:
            self._files.write(self._fd, buffers, position, self._sync)
        except BaseException as error:
            self._go_on_elsewhere(error)
            raise
        self.last_turn += 1
        if self._sync:
            self._synced = self.last_turn
            self.counters.syncs += 1
        self._offset, self._crc = position + size, crc
        return position

    def _make_room(self, size: int, frees: bool) -> None:
        """NoSpace, before any effect, when there is none; what frees space may use the reserve."""
        if not frees:
            self._refuse_beyond_memory()
        if self._offset + size + CLOSE_SIZE <= self._size and (frees or not self._on_reserve):
            return
        if not self._sync:
            try:
                self._files.sync(self._fd)
            except IoError as error:
                self._go_on_elsewhere(error)
                raise
        self._number += 1
        try:
            self._begin_segment(self.last_turn, [], size, reserve=frees)
        except NoSpace:
            self._number -= 1
            raise
        except IoError as error:
            self._number -= 1
            self._go_on_elsewhere(error)
            raise

    def _go_on_elsewhere(self, cause: BaseException) -> None:
        """After doubt: history ends at the last acknowledged turn, in a new generation."""
        self.generation += 1
        self._number = 0
        try:
            self._begin_segment(self._synced, self._unsynced(), reserve=True)
        except BaseException as error:
            self._broken = error
            raise StoreClosed(
                f"writing failed ({cause}), and so did going on in a new segment ({error}); "
                "reopen the store: the last transactions are undetermined until then"
            ) from cause

    def _unsynced(self) -> _Copies:
        """Turns acknowledged before any sync (durability "os"): read back, to be copied on.

        A sync that failed is not tried again: it may succeed without having written anything.
        """
        if self._synced == self.last_turn:
            return []
        data = read_segment(self._files, self.folder / self._segment)
        generation, _ = segment_parts(self._segment)
        copies: _Copies = []
        record = read_record(data, 0, self.store_id, generation, None)
        while record is not None and record.offset < self._offset:
            if record.kind == TURN and record.turn > self._synced:
                copies.append((self._segment, record, data))
            after = record.offset + record.size
            record = read_record(data, after, self.store_id, generation, record.crc)
        if len(copies) != self.last_turn - self._synced:
            raise IoError(f"{self._segment}: unsynced turns cannot be read back")
        return copies

    def close(self) -> None:
        """Checkpoints, writes the closing record, lets go of the store."""
        if self._closed:
            return
        try:
            if self._broken is None:
                self._checkpoint_all()
                with self._appending:
                    buffers, size, self._crc = encode_record(
                        CLOSE,
                        self.store_id,
                        self.generation,
                        self.last_turn,
                        self._next_address,
                        self.last_turn,
                        self._offset,
                        self._crc,
                    )
                    self._files.write(self._fd, buffers, self._offset, True)
                    end = self._offset + size
                    self._try(lambda: self._table.mark_closed(self._segment))
                    self._try(lambda: self._folder.shrink(self._segment, end))
                    self._try(self._remove_unneeded)
        finally:
            self._closed = True
            self._folder.close()
            self._table.close()
            self._released.close()
            self._lock.close()
