"""Reads the log back after a crash or a close: which turns happened, and where history ends.

    segments in order ─▶ records behind the checkpoint ─▶ [turns acknowledged for sure | found valid]
                                                           ▲ synced                    ▲ copied on

An invalid record means corruption if there is proof that its turn was acknowledged. Proofs: the checkpoint
covers it, a valid record behind it names `synced` at or beyond it, a later segment names a later end of
history, or the owner's mark says that it was synced. Without proof, it and all behind it is a torn tail.
Zeros, or no file, in place of records that the checkpoint covers are corruption too: later records may
have been lost with them.

Next: resuming.py.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..errors import Corruption
from .files import Files
from .log.records import (
    CLOSE,
    MISPLACED,
    START,
    TURN,
    Record,
    later_records,
    read_record,
)
from .log.segments import is_another_s, segment_files, segment_parts


@dataclass(slots=True)
class ReadBack:
    """Records behind the checkpoint, with their segments; turns up to `synced` were acknowledged for sure.

    `segment` is the last one begun; `offset` and `crc` are those behind the last valid record of its chain.
    `whole`: the chain reaches the checkpoint, so nothing refers to anything behind `offset`.
    """

    turns: list[tuple[str, Record, bytes]] = field(default_factory=list)
    synced: int = 0
    generation: int = 0
    closed: bool = False
    segment: str = ""
    offset: int = 0
    crc: int = 0
    whole: bool = False

    def last_turn(self, checkpoint: int) -> int:
        return self.turns[-1][1].turn if self.turns else checkpoint


class _Segment(NamedTuple):
    """A segment as it was read; `is_first`: the checkpoint names it."""

    name: str
    data: bytes
    store_id: bytes
    generation: int
    is_first: bool

    def later_than(self, offset: int) -> list[Record]:
        return later_records(self.data, offset, self.store_id, self.generation)


def read_back(
    folder: Path,
    files: Files,
    store_id: bytes,
    checkpoint: int,
    *,
    first_segment: str = "",
    closed: bool = False,
    proven: int = 0,
) -> ReadBack:
    """Reads the segments from `first_segment` on for turns beyond `checkpoint`.

    `closed`: the checkpoint knows that `first_segment` was closed behind it. `proven`: the owner's mark says
    that this turn's sync had returned. Raises Corruption naming segment, offset and turn.
    """
    found = ReadBack(synced=checkpoint)
    segments = segment_files(folder, files)
    if first_segment and not any(path.name == first_segment for path in segments):
        raise Corruption(f"{first_segment} is missing: turns behind turn {checkpoint} were in it")
    lacking = ""  # cleared if a later segment has all that the checkpoint covers, and continues from there
    for path in segments:
        if path.name < first_segment:
            continue
        generation, _ = segment_parts(path.name)
        found.generation = max(found.generation, generation)
        data = read_segment(files, path)
        if is_another_s(path.name, data, store_id):
            raise Corruption(f"{path.name}: its records are {MISPLACED}")
        segment = _Segment(path.name, data, store_id, generation, path.name == first_segment)
        first = read_record(data, 0, store_id, generation, None)
        if first is None or first.kind != START:
            lacking = _unbegun(segment, found.last_turn(checkpoint)) or lacking
            continue
        whole = _follow(found, segment, first, checkpoint)
        _check_behind(found, segment, whole, checkpoint, closed)
        if whole >= checkpoint:
            lacking = ""
        elif segment.is_first and not any(data[found.offset :]):
            lacking = f"{path.name}: zeros from byte {found.offset} on, where records were"
        found.whole = whole >= checkpoint
    if lacking:
        raise Corruption(lacking)
    _check_end(found, found.last_turn(checkpoint), proven)
    return found


def _unbegun(segment: _Segment, last: int) -> str:
    """Checks a segment that was allocated and never begun, because of a crash before its first record. Returns what
    it lacks of the records that the checkpoint covers; "" for nothing.
    """
    # An interrupted recovery may have copied turns into it (synced 0). They still count in their old segment, if
    # the power loss left them there.
    if any(r.synced and max(r.turn, r.synced) > last for r in segment.later_than(0)):
        raise Corruption(f"{segment.name}: the segment's first record is damaged")
    if segment.is_first and not any(segment.data):
        return f"{segment.name}: zeros, where records were"
    return ""


def _follow(found: ReadBack, segment: _Segment, first: Record, checkpoint: int) -> int:
    """Follows a segment's chain of records; returns the turn of its last valid record."""
    # History ends where this segment says; earlier segments' turns beyond that are void.
    end, last = first.turn, found.last_turn(checkpoint)
    if end > last:
        raise Corruption(
            f"{segment.name}: this segment continues after turn {end}, but the log has turns only up to {last}"
        )
    found.turns = [item for item in found.turns if item[1].turn <= end]
    found.synced = max(checkpoint, end)
    found.segment = segment.name
    whole = end
    record: Record | None = first
    while record is not None:
        found.offset, found.crc, whole = record.offset + record.size, record.crc, record.turn
        found.synced = max(found.synced, record.synced)
        found.closed = record.kind == CLOSE
        if record.kind == TURN and record.turn > checkpoint:
            last = found.last_turn(checkpoint)
            if record.turn != last + 1:
                raise Corruption(f"{segment.name}: turn {last + 1} is missing")
            found.turns.append((segment.name, record, segment.data))
        record = read_record(
            segment.data, found.offset, segment.store_id, segment.generation, found.crc
        )
    return whole


def _check_behind(
    found: ReadBack, segment: _Segment, whole: int, checkpoint: int, closed: bool
) -> None:
    """Raises Corruption if a record behind the chain, which ends with turn `whole`, proves that it was longer."""
    last, later = found.last_turn(checkpoint), segment.later_than(found.offset)
    proof = max((r.synced for r in later), default=0)
    # A damaged record that the checkpoint covers loses nothing, unless turns follow it.
    if proof > last or (proof > whole and any(r.turn > last for r in later)):
        raise Corruption(
            f"{segment.name}: the record at byte {found.offset}, turn {whole + 1}, is damaged; turn "
            f"{proof} was acknowledged"
        )
    closing = found.closed or any(r.kind == CLOSE for r in later)
    if closed and segment.is_first and not closing:
        raise Corruption(
            f"{segment.name}: the record at byte {found.offset} is damaged; the store was closed there"
        )


def _check_end(found: ReadBack, last: int, proven: int) -> None:
    if found.synced > last:
        raise Corruption(f"turn {last + 1} was acknowledged, but is not there")
    if proven > last:
        raise Corruption(
            f"turn {last + 1} is not there, but turns up to {proven} were synced, says the file "
            "`released`; without that file, the store opens with what is left"
        )


def read_segment(files: Files, path: Path) -> bytes:
    fd = files.open(path, write=False)
    try:
        return files.read(fd, 0, files.data_end(fd))
    finally:
        files.close(fd)
