"""Appends records to the end of the log, and moves on to a new segment when it cannot append there.

    turn ─▶ room? ─ no ─▶ next segment (spare, new file, or the reserve for a turn that frees space)
              │                    ├ no space, no descriptor for it: before any effect
              │                    └ its first record failed: doubt
              ▼
            ship, if the store is replicated ─ failed ─▶ the store closes: ../replicated.py
              ▼
            write ─ failed ─▶ doubt: a new segment under the next generation names where history ends
                                     └ failed too: broken, and the store closes

Nothing follows a doubt: after a write or sync that failed or was interrupted, that segment is never appended
to again. If the failed write may have begun a segment, the one before is not either: the new one would void it.
History never ends before a turn that was shipped: then the store closes, and gets the turn from the shared log.

Next: ../recovery.py.
"""

import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TypeAlias

from ...errors import Fenced, IoError, NoSpace, Refused, StoreClosed, TooManyOpen, reason
from ..files import Files
from ..recovery import read_segment
from ..turn import StoreCounters, Turn
from .extents import Extent
from .records import (
    CLOSE,
    CLOSE_SIZE,
    OVERHEAD,
    START,
    TURN,
    Record,
    before_first,
    encode_record,
    read_record,
)
from .segments import Folder, segment_name, segment_parts

Copies: TypeAlias = list[tuple[str, Record, bytes]]
"""Records to write again, each with its segment's name and bytes."""


class LogEnd:
    """The end of one host's log. A thread that changes it holds `appending`.

    Invariants: `turn` is the last turn written, `synced` the last whose sync returned; `offset` and
    `crc` are those behind the last record of `segment`; `address` is that of the next payload byte.
    All unsynced turns are in `segment`: the log moves on only after a successful sync, holding `syncing`.
    `sending` is set while a turn may be in the shared log and is not written here.
    """

    def __init__(
        self,
        folder: Folder,
        store_id: bytes,
        sync: bool,
        counters: StoreCounters,
        moved: Callable[[dict[int, Extent]], None],
        show: Callable[[], None],
    ) -> None:
        self.generation = 0
        self.number = 0
        self.turn = 0
        self.synced = 0
        self.address = 0
        self.fd = -1
        self.segment = ""
        self.size = self.offset = self.crc = 0
        self.on_reserve = False
        self.refused = False  # a turn, because there was no room for the next segment
        self.seconds = 0.0  # the last turn's write, its sync included
        self.broken: BaseException | None = None
        self.ship: Callable[[int, int, bytes, bytes, list[bytes]], object] | None = None
        """Appends a turn to the shared log: (turn, address, changes, dropped, payloads)."""
        self.written: Callable[[Extent, int, bytes, bytes, list[bytes]], object] | None = None
        """Gets a turn that is durable here: (place of its payload, turn, changes, dropped, payloads)."""
        self.first_kept: Callable[[str], str] | None = None
        """Returns the first segment to be kept, given the first that recovery needs."""
        self.sending = False
        self.appending = threading.Lock()  # taken before Unsaved.mutex
        self.syncing = threading.Lock()  # taken last
        self._doubt: BaseException | None = None
        self._folder = folder
        self._files: Files = folder.files
        self._store_id = store_id
        self.syncs = sync  # each turn
        self._counters = counters
        self._moved = moved
        self._show = show

    def begin_segment(self, end: int, copies: Copies, room: int = 0, reserve: bool = False) -> None:
        """Begins a segment whose first record says that history ends at `end`; `copies` follow it.

        `room`: bytes that must fit behind them. `reserve`: when the disk is full, use the reserve file. The copies
        are durable before the first record is. Until it is, the segments that they came from count, and the
        copies prove nothing (their `synced` is 0).
        """
        file = self._create(sum(record.size for _, record, _ in copies) + room, reserve)
        self._start(*file, end, copies)

    def _create(self, room: int, reserve: bool) -> tuple[str, int, int, bool]:
        """Creates the next segment; returns (name, descriptor, size, whether it is the reserve).

        NoSpace and TooManyOpen come before any effect.

        The name is durable before the first byte. Otherwise a power loss could undo the spare's renaming and keep
        its new content, which would be found when the spare is used again.
        """
        folder = self._folder
        try:
            return self._create_by(folder.create_segment, room, False)
        except NoSpace:
            if not reserve:
                raise
            return self._create_by(folder.create_from_reserve, room, True)

    def _create_by(
        self, create: Callable[[str, int], tuple[int, int]], room: int, from_reserve: bool
    ) -> tuple[str, int, int, bool]:
        name = segment_name(self.generation, self.number)
        fd, size = create(name, OVERHEAD + room + CLOSE_SIZE)
        try:
            self._folder.sync()
        except BaseException:
            self._folder.discard(name)  # it holds zeros, in case the power loss brings it back
            raise
        return name, fd, size, from_reserve

    def _start(
        self, name: str, fd: int, size: int, from_reserve: bool, end: int, copies: Copies
    ) -> None:
        """Starts the segment. After any error, NoSpace too, the first record may be on the disk."""
        try:
            offset, crc, moved = self._write_start(fd, name, end, copies)
        except BaseException:
            self._folder.let_go(name)
            raise
        self._moved(moved)
        before = self.segment
        with self.syncing:
            self.fd, self.segment, self.size = fd, name, size
            self.offset, self.crc = offset, crc
            self.on_reserve, self.refused = from_reserve, False
            self.synced = self.turn
            self._doubt = None
        self._folder.let_go(before)
        self._counters.segments += 1
        self._counters.log_bytes += offset

    def _write_start(
        self, fd: int, name: str, end: int, copies: Copies
    ) -> tuple[int, int, dict[int, Extent]]:
        sid, generation = self._store_id, self.generation
        first = before_first(self.number)
        start, offset, crc = encode_record(
            START, sid, generation, end, self.address, end, position=0, previous=first
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
                position=offset,
                previous=crc,
                changes=record.changes,
                dropped=record.dropped,
                payloads=[payload],
            )
            self._files.write(fd, buffers, offset, False)
            if payload:
                at = offset + begin - record.offset
                moved[record.address] = Extent(record.address, name, at, len(payload))
            offset += size
        if copies:
            self._files.sync(fd)
        self._files.write(fd, start, 0, True)
        self._counters.syncs += 1 + bool(copies)
        return offset, crc, moved

    def append(self, changes: bytes, dropped: bytes, turn: Turn, frees: bool) -> Extent:
        """Writes one turn; returns the place of its payload. NoSpace: before any effect. `frees`: the turn frees
        space, so it may use the reserve. Another IoError: the turn never happened. StoreClosed: broken. While
        `sending` is set after an error, the turn may be in the shared log.
        """
        size = OVERHEAD + len(changes) + len(dropped) + turn.payload_bytes
        if self.offset + size + CLOSE_SIZE > self.size or (self.on_reserve and not frees):
            self._go_on_in(partial(self._create_next, size, frees))
        position = self.offset
        buffers, size, crc = encode_record(
            TURN,
            self._store_id,
            self.generation,
            self.turn + 1,
            self.address,
            self.synced,
            position=position,
            previous=self.crc,
            changes=changes,
            dropped=dropped,
            payloads=turn.payloads,
        )
        payload_at = position + size - 4 - turn.payload_bytes
        # Builds Extent(…) without the call: each turn has one.
        extent = tuple.__new__(Extent, (self.address, self.segment, payload_at, turn.payload_bytes))
        number = self.turn + 1
        synced = number if self.syncs else self.synced
        if self.ship is not None:
            self.sending = True
            try:
                self.ship(number, self.address, changes, dropped, turn.payloads)
            except (NoSpace, Refused):
                self.sending = False
                raise
            except Fenced as error:
                self.broken, self.sending = error, error.in_doubt
                raise
        offset, address = position + size, self.address + turn.payload_bytes
        began = perf_counter()
        try:
            self._files.write(self.fd, buffers, position, self.syncs)
        except BaseException as error:
            if not self.sending:
                self.go_on_elsewhere(error)
            raise
        # No call in here, so an interrupt comes before all of it or after.
        self.turn, self.synced, self.address = number, synced, address
        self.offset, self.crc, self.sending = offset, crc, False
        self._counters.syncs += self.syncs
        self._counters.turns += 1
        self._counters.log_bytes += size
        self._counters.payload_bytes += turn.payload_bytes
        self.seconds = perf_counter() - began
        if self.written is not None:
            self.written(extent, number, changes, dropped, turn.payloads)
        return extent

    def _create_next(self, size: int, frees: bool) -> tuple[str, int, int, bool]:
        if not frees:
            self._folder.make_reserve()
        return self._create(size, frees)

    def leave(self) -> None:
        """Leaves the segment for the reserve, so that its space can be freed. NoSpace: before any effect."""
        self._go_on_in(lambda: self._create_by(self._folder.create_from_reserve, 0, True))

    def _go_on_in(self, create: Callable[[], tuple[str, int, int, bool]]) -> None:
        refused = False
        try:
            if not self.syncs:
                self.sync()
            self.number += 1
            try:
                file = create()
            except (NoSpace, TooManyOpen) as error:
                self.number -= 1
                refused = True
                self.refused = isinstance(error, NoSpace)
                raise
            self._start(*file, self.turn, [])
        except BaseException as error:
            if not refused:
                self.go_on_elsewhere(error)
            raise

    def in_doubt(self) -> bool:
        """Returns whether a sync of the segment failed and the log has not moved to another one yet."""
        return self._doubt is not None

    def sync(self) -> None:
        """Makes the segment's content durable (durability "os").

        The system reports an error once per descriptor, so later callers get the same error: a later sync may
        succeed without having written anything.
        """
        with self.syncing:
            if self._doubt is not None:
                raise IoError(f"{self.segment}: {self._doubt}") from self._doubt
            try:
                self._files.sync(self.fd)
            except BaseException as error:
                self._doubt = error
                raise

    def go_on_elsewhere(self, cause: BaseException) -> None:
        """Ends history at the last acknowledged turn after a doubt, and continues in a new generation."""
        try:
            self.generation += 1
            self.number = 0
            self._show()  # before the first record, so that readers of the new generation do not go back
            self.begin_segment(self.synced, self._unsynced(), reserve=True)
        except BaseException as error:
            self.broken = error
            raise StoreClosed(
                f"writing failed ({reason(cause)}), and so did going on in a new segment ({reason(error)}); "
                "reopen the store: the last transactions are undetermined until then"
            ) from cause

    def _unsynced(self) -> Copies:
        """Reads back the turns acknowledged before any sync (durability "os"), to copy them on.

        A failed sync is not tried again: it may succeed without having written anything.
        """
        if self.synced == self.turn:
            return []
        path = self._folder.path / self.segment
        data = self._folder.with_descriptors(lambda: read_segment(self._files, path))
        generation, _ = segment_parts(self.segment)
        copies: Copies = []
        record = read_record(data, 0, self._store_id, generation, None)
        while record is not None and record.offset < self.offset:
            if record.kind == TURN and record.turn > self.synced:
                copies.append((self.segment, record, data))
            after = record.offset + record.size
            record = read_record(data, after, self._store_id, generation, record.crc)
        if len(copies) != self.turn - self.synced:
            raise IoError(f"{self.segment}: unsynced turns cannot be read back")
        return copies

    def write_close(self) -> None:
        """Writes the closing record durably."""
        buffers, size, crc = encode_record(
            CLOSE,
            self._store_id,
            self.generation,
            self.turn,
            self.address,
            self.turn,
            position=self.offset,
            previous=self.crc,
        )
        self._files.write(self.fd, buffers, self.offset, True)
        self.offset, self.crc = self.offset + size, crc
