"""The store on disk: append to the log, sync, then show; LMDB is written behind.

    commit ─▶ record ─▶ one write that is durable ─▶ live layer ─▶ (later) frozen layer ─▶ LMDB

After a write or sync that failed the turn never was: a new segment under the next generation names
where history ends, and only then does the caller hear of it. If that fails too, the store closes.
NoSpace is different: it is met when the next segment is allocated, before anything was written.

What a crash leaves: a torn last record (void), an unbegun segment, a spare, a stale lock, an LMDB of
an older turn (the log has the rest). Opening deals with each and says so in `counters`.

What it leaves out: rewriting of mostly dead segments.
Next: readonly.py.
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
from .files import Files
from .layers import GONE, MISSING, Layer, merged_scan
from .lock import OwnerLock
from .log import (
    CLOSE,
    CLOSE_SIZE,
    OVERHEAD,
    RECORD_BYTES_MAX,
    START,
    TURN,
    decode_pairs,
    encode_pairs,
    encode_record,
    read_record,
)
from .readonly import ReleasedMark
from .recovery import read_back, read_segment, segment_files, segment_name, segment_parts
from .table import Table
from .turn import StoreCounters, Turn, decode_changes, encode_changes

FORMAT = 1
SEGMENT_BYTES = 64 << 20
_CHECKPOINT_KEYS = 50_000
_CHECKPOINT_SECONDS = 5.0


class DiskStore:
    """Invariants: what `get` and `scan` see is durable (at durability "full"); LMDB holds only turns
    whose sync returned; a layer is dropped, by one assignment, after its LMDB commit."""

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
        self._segment_bytes = segment_bytes
        self._mutex = threading.Lock()
        self._checkpointing = threading.Lock()
        self._fds: dict[str, int] = {}
        self._fd_lock = threading.Lock()
        self._broken: BaseException | None = None
        self._doubt: IoError | None = None
        self._closed = False
        self._layers: tuple[Layer, Layer | None] = (Layer(), None)
        self._runs: list[tuple[int, str, int, int]] = []
        self._run_starts: list[int] = []
        self._dropped: list[tuple[int, int]] = []
        self._changed_at = self._unsaved_bytes = 0.0
        self._next_address = 0
        self._segment = ""
        self._table = Table(folder / "table")
        self._released = ReleasedMark(folder / "released", write=True)
        try:
            self._recover()
            self._released.show(self.generation, self.last_turn)
        except BaseException:
            self._table.close()
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
        """Opens or creates one host's store. StoreInUse, WrongMode, FormatError, Corruption."""
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
                _save_meta(folder, meta, files)
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
        checkpoint, self._next_address, first_segment = state[:3]
        found = read_back(self.folder, self._files, self.store_id, checkpoint, first_segment)
        live = Layer()
        for segment, record, _ in found.turns:
            live.update(decode_changes(record.changes))
            self._dropped += decode_pairs(record.dropped)
            self._note_run(record.address, segment, record.payload_offset, record.payload_length)
            self.counters.replayed_turns += 1
        self._layers = (live, None)
        self._checkpointed = checkpoint
        self._first_segment = first_segment
        self.last_turn = found.turns[-1][1].turn if found.turns else checkpoint
        generations = [segment_parts(p.name)[0] for p in segment_files(self.folder)]
        self.generation = max(generations, default=0) + 1
        self._number = 0
        doubtful = [item for item in found.turns if item[1].turn > found.synced]
        self._fd = -1
        self._begin_segment(found.synced, doubtful)
        self._files.sync_folder(self.folder / "table")  # LMDB does not, when it creates its file
        self._files.sync_folder(self.folder)

    def _note_run(self, address: int, segment: str, offset: int, length: int) -> None:
        if length:
            self._next_address = address + length
            self._runs.append((address, segment, offset, length))
            self._run_starts.append(address)

    def _begin_segment(self, end: int, copies: list[Any]) -> None:
        """A new segment whose first record says that history ends at `end`; `copies` follow it.

        The copies are durable before the first record is: until it is there, the segments that
        they came from count, and the copies prove nothing (their `synced` is 0).
        """
        name = segment_name(self.generation, self._number)
        size = OVERHEAD + sum(record.size for _, record, _ in copies) + CLOSE_SIZE
        spare = self.folder / "spare"
        path = self.folder / name
        if spare.exists() and spare.stat().st_size >= max(size, self._segment_bytes):
            self._files.rename(spare, path)
        else:
            self._files.allocate(path, max(size, self._segment_bytes))
        fd = self._files.open(path, write=True)
        try:
            start, offset, crc = encode_record(
                START, self.store_id, self.generation, end, self._next_address, end, 0, 0
            )
            runs: list[tuple[int, int]] = []
            for _, record, data in copies:
                begin = record.payload_offset
                payload = data[begin : begin + record.payload_length]
                buffers, length, crc = encode_record(
                    TURN,
                    self.store_id,
                    self.generation,
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
                runs.append((record.address, offset + begin - record.offset))
                offset += length
            if copies:
                self._files.sync(fd)
            self._files.write(fd, start, 0, True)
            self.counters.syncs += 1 + bool(copies)
            self._files.sync_folder(self.folder)
        except BaseException:
            self._files.close(fd)
            raise
        moved = dict(runs)
        self._runs = [
            (a, name, moved[a], n) if a in moved else (a, s, o, n) for a, s, o, n in self._runs
        ]
        with self._fd_lock:
            if self._fd >= 0:
                self._fds[self._segment] = self._fd
            self._fd, self._segment = fd, name
        self._offset, self._crc = offset, crc
        self._size = path.stat().st_size
        self.counters.segments += 1
        self.counters.log_bytes += offset
        self._synced = self.last_turn

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
        with self._mutex:  # a checkpoint replaces both
            runs, starts = self._runs, self._run_starts
        at = bisect_right(starts, address) - 1
        if at >= 0 and at < len(runs) and runs[at][0] <= address < runs[at][0] + runs[at][3]:
            first, segment, offset, _ = runs[at]
        else:
            run = self._table.find_payload(address)
            if run is None or not run[0] <= address < run[0] + run[3]:
                raise Corruption(f"no payload at address {address}")
            first, segment, offset, _ = run
        with self._fd_lock:
            fd = self._fd if segment == self._segment else self._fds.get(segment, -1)
            if fd < 0:
                fd = self._fds[segment] = self._files.open(self.folder / segment, write=False)
            data = self._files.read(fd, offset + address - first, length)
        if len(data) < length:
            raise Corruption(f"{segment}: payload at address {address} is cut off")
        return data

    # writing -------------------------------------------------------------------------------

    def begin(self) -> Turn:
        self._lock.check()
        if self._broken is not None or self._closed:
            raise StoreClosed(f"the store is closed: {self._broken or 'close() was called'}")
        return Turn(self, self._next_address)

    def abandon(self, turn: Turn) -> None:
        """Nothing of the turn has left memory."""

    def commit(self, turn: Turn, before_visible: Callable[[Any], None] | None = None) -> None:
        net = turn.net()
        if not net and not turn.payloads and not turn.dropped:
            return
        changes, dropped = encode_changes(net), encode_pairs(turn.dropped)
        size = OVERHEAD + len(changes) + len(dropped) + turn.payload_bytes
        if size > RECORD_BYTES_MAX:
            raise TransactionTooLarge(f"a turn of {size} bytes is beyond what the log can hold")
        if self._doubt is not None:
            self._go_on_elsewhere(self._doubt)
        if self._offset + size + CLOSE_SIZE > self._size:
            self._roll(size)
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
        self._released.show(self.generation, self.last_turn)
        self.counters.turns += 1
        self.counters.log_bytes += size
        self.counters.payload_bytes += turn.payload_bytes
        self._unsaved_bytes += size
        self._changed_at = time.monotonic()
        payload_offset = position + size - 4 - turn.payload_bytes
        with self._mutex:
            self._note_run(self._next_address, self._segment, payload_offset, turn.payload_bytes)
            self._dropped += turn.dropped
        if before_visible is not None:
            before_visible(net)
        with self._mutex:
            self._layers[0].update(net)

    def _roll(self, size: int) -> None:
        """The next segment of this generation; NoSpace leaves all as it was."""
        if not self._sync:
            try:
                self._files.sync(self._fd)
            except IoError as error:
                self._go_on_elsewhere(error)
                raise
        wanted = self._segment_bytes
        self._segment_bytes = max(wanted, size + OVERHEAD + CLOSE_SIZE)
        self._number += 1
        try:
            self._begin_segment(self.last_turn, [])
        except NoSpace:
            self._remove_unbegun()
            self._number -= 1
            raise
        except IoError as error:
            self._number -= 1
            self._go_on_elsewhere(error)
            raise
        finally:
            self._segment_bytes = wanted

    def _remove_unbegun(self) -> None:
        (self.folder / segment_name(self.generation, self._number)).unlink(missing_ok=True)

    def _go_on_elsewhere(self, cause: BaseException) -> None:
        """After doubt: history ends at the last acknowledged turn, in a new generation."""
        self.generation += 1
        self._number = 0
        try:
            self._begin_segment(self._synced, self._unsynced())
            self._doubt = None
        except BaseException as error:
            self._broken = error
            raise StoreClosed(
                f"writing failed ({cause}), and so did going on in a new segment ({error}); "
                "reopen the store: the last transactions are undetermined until then"
            ) from cause

    def _unsynced(self) -> list[Any]:
        """Turns acknowledged before any sync (durability "os"): read back, to be copied on.

        A sync that failed is not tried again: it may succeed without having written anything.
        """
        if self._synced == self.last_turn:
            return []
        data = read_segment(self._files, self.folder / self._segment)
        generation, _ = segment_parts(self._segment)
        copies = []
        record = read_record(data, 0, self.store_id, generation, None)
        while record is not None and record.offset < self._offset:
            if record.kind == TURN and record.turn > self._synced:
                copies.append((self._segment, record, data))
            after = record.offset + record.size
            record = read_record(data, after, self.store_id, generation, record.crc)
        if len(copies) != self.last_turn - self._synced:
            raise IoError(f"{self._segment}: unsynced turns cannot be read back")
        return copies

    # behind --------------------------------------------------------------------------------

    def checkpoint_due(self, now: float) -> bool:
        live, frozen = self._layers
        if self._closed or self._broken is not None:
            return False
        if frozen is not None:
            return True
        keys = len(live)
        return (
            keys >= _CHECKPOINT_KEYS
            or self._unsaved_bytes >= SEGMENT_BYTES
            or bool((keys or self._runs) and now - self._changed_at >= _CHECKPOINT_SECONDS)
        )

    def checkpoint(self, closing: bool = False) -> bool:
        """Writes the layers to LMDB; False when there was nothing. A failed one keeps its layer."""
        with self._checkpointing:
            with self._mutex:
                live, frozen = self._layers
                if frozen is None:
                    if not len(live) and not self._runs and not self._dropped and not closing:
                        return False
                    self._layers = (Layer(), live)
                    self._frozen_at = (
                        self.last_turn,
                        self._next_address,
                        self._segment,
                        closing,
                        self._crc,
                    )
                    self._frozen_runs = len(self._runs)
                    self._frozen_dropped = len(self._dropped)
                    self._unsaved_bytes = 0
                frozen = self._layers[1]
                assert frozen is not None
            if not self._sync:
                self._sync_log(self._frozen_at[0])
            try:
                written, live_bytes = self._table.checkpoint(
                    frozen.values,
                    self._runs[: self._frozen_runs],
                    self._dropped[: self._frozen_dropped],
                    self._frozen_at,
                )
            except IoError:
                self.counters.failed_checkpoints += 1
                raise
            with self._mutex:
                self._layers = (self._layers[0], None)
                self._runs = self._runs[self._frozen_runs :]
                self._run_starts = [run[0] for run in self._runs]
                del self._dropped[: self._frozen_dropped]
            self._checkpointed = self._frozen_at[0]
            self.counters.checkpoints += 1
            self.counters.checkpoint_syncs += 2
            self.counters.checkpoint_bytes += written
            self._remove_dead(live_bytes, self._frozen_at[2])
            return True

    def _sync_log(self, turn: int) -> None:
        if self._doubt is not None:
            raise self._doubt  # until the next commit, or close, has gone on elsewhere
        try:
            self._files.sync(self._fd)
        except IoError as error:
            self._doubt = error
            raise
        self._synced = max(self._synced, turn)

    def _remove_dead(self, live: dict[str, int], first_needed: str) -> None:
        """Segments behind the checkpoint in which no payload is live."""
        for path in segment_files(self.folder):
            if path.name < first_needed and not live.get(path.name):
                with self._fd_lock:
                    fd = self._fds.pop(path.name, -1)
                    if fd >= 0:
                        self._files.close(fd)
                    self._files.remove(path)

    def close(self) -> None:
        """Checkpoints, writes the closing record, lets go of the store."""
        if self._closed:
            return
        try:
            if self._broken is None:
                if self._doubt is not None:
                    self._go_on_elsewhere(self._doubt)
                if self._layers[1] is not None:
                    self.checkpoint()
                self.checkpoint(closing=True)
                buffers, _, _ = encode_record(
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
        finally:
            self._closed = True
            with self._fd_lock:
                for fd in [self._fd, *self._fds.values()]:
                    self._files.close(fd)
                self._fds.clear()
            self._table.close()
            self._released.close()
            self._lock.close()


def load_meta(folder: Path, files: Files) -> StoreMeta | None:
    """What a store says of itself; None where there is none yet."""
    path = folder / "meta.pb"
    if not path.exists():
        return None
    fd = files.open(path, write=False)
    try:
        data = files.read(fd, 0, 1 << 16)
    finally:
        files.close(fd)
    meta = StoreMeta()
    try:
        meta.ParseFromString(data)
    except Exception as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    if len(meta.store_id) != 16 or meta.format < 1:
        raise FormatError(f"{path} is damaged, or not a store's")
    if meta.format > FORMAT:
        raise FormatError(
            f"{folder} has format {meta.format}, this version reads up to {FORMAT}: use a newer one"
        )
    return meta


def _save_meta(folder: Path, meta: StoreMeta, files: Files) -> None:
    data = meta.SerializeToString()
    new = folder / "meta.new"
    new.unlink(missing_ok=True)
    files.allocate(new, len(data))
    fd = files.open(new, write=True)
    try:
        files.write(fd, [data], 0, True)
    finally:
        files.close(fd)
    files.rename(new, folder / "meta.pb")
    files.sync_folder(folder)
    files.sync_folder(folder.parent)
