"""What a crash left behind, read back: which turns happened, and where history ends.

    segments in order ─▶ records behind the checkpoint ─▶ [turns acknowledged for sure | found valid]
                                                           ▲ synced                    ▲ copied on

An invalid record is corruption when something proves that its turn was acknowledged: the checkpoint
covers it, a valid record behind it names `synced` at or beyond it, a later segment names a later end of
history, or the owner's mark says that it was synced. Otherwise it and all behind it is a torn tail. Where
zeros, or no file, are in place of records that the checkpoint covers, later ones may be gone alike:
corruption too.

Next: disk_store.py.
"""

from dataclasses import dataclass, field
from pathlib import Path

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
class Found:
    """Records behind the checkpoint, with their segments; `synced` is proven acknowledged.

    `segment` is the last that was begun, `offset` and `crc` are those behind the last valid record of
    its chain; `whole`: the chain reaches the checkpoint, so nothing behind `offset` is referred to.
    """

    turns: list[tuple[str, Record, bytes]] = field(default_factory=list)
    synced: int = 0
    generation: int = 0
    closed: bool = False
    segment: str = ""
    offset: int = 0
    crc: int = 0
    whole: bool = False


def read_back(
    folder: Path,
    files: Files,
    store_id: bytes,
    checkpoint: int,
    *,
    first_segment: str = "",
    closed: bool = False,
    proven: int = 0,
) -> Found:
    """Reads the segments from `first_segment` on for turns beyond `checkpoint`.

    `closed`: the checkpoint knows that `first_segment` was closed behind it; `proven`: the owner's mark
    says that this turn's sync had returned. Raises Corruption naming segment, offset and turn.
    """
    found = Found(synced=checkpoint)
    segments = segment_files(folder, files)
    if first_segment and not any(path.name == first_segment for path in segments):
        raise Corruption(f"{first_segment} is missing: turns behind turn {checkpoint} were in it")
    lacking = ""  # unless a later segment has what the checkpoint covers, and goes on from there
    for path in segments:
        if path.name < first_segment:
            continue
        generation, _ = segment_parts(path.name)
        found.generation = max(found.generation, generation)
        data = read_segment(files, path)
        last = found.turns[-1][1].turn if found.turns else checkpoint
        if is_another_s(path.name, data, store_id):
            raise Corruption(f"{path.name}: its records are {MISPLACED}")
        first = read_record(data, 0, store_id, generation, None)
        if first is None or first.kind != START:
            # Allocated and never begun: a crash before its first record was written. Turns that an
            # interrupted recovery had copied into it (synced 0) count where they came from, if the
            # power left them there.
            beyond = later_records(data, 0, store_id, generation)
            if any(r.synced and max(r.turn, r.synced) > last for r in beyond):
                raise Corruption(f"{path.name}: the segment's first record is damaged")
            if path.name == first_segment and not any(data):
                lacking = f"{path.name}: zeros, where records were"
            continue
        # History ends where this segment says; anything earlier segments hold beyond is void.
        end = first.turn
        if end > last:
            raise Corruption(
                f"{path.name}: history goes on behind turn {end}, but only turns up to {last} "
                "are there"
            )
        found.turns = [item for item in found.turns if item[1].turn <= end]
        found.synced = max(checkpoint, end)
        found.closed = False
        offset, crc, whole = 0, first.crc, end
        record: Record | None = first
        while record is not None:
            offset, crc, whole = record.offset + record.size, record.crc, record.turn
            last = found.turns[-1][1].turn if found.turns else checkpoint
            found.synced = max(found.synced, record.synced)
            found.closed = record.kind == CLOSE
            if record.kind == TURN and record.turn > checkpoint:
                if record.turn != last + 1:
                    raise Corruption(f"{path.name}: turn {last + 1} is missing")
                found.turns.append((path.name, record, data))
                last = record.turn
            record = read_record(data, offset, store_id, generation, crc)
        later = later_records(data, offset, store_id, generation)
        proof = max((r.synced for r in later), default=0)
        # A damaged record that the checkpoint covers loses nothing, unless turns are behind it.
        if proof > last or (proof > whole and any(r.turn > last for r in later)):
            raise Corruption(
                f"{path.name}: the record at byte {offset}, turn {whole + 1}, is damaged; turn "
                f"{proof} was acknowledged"
            )
        if whole >= checkpoint:
            lacking = ""
        elif path.name == first_segment and not any(data[offset:]):
            lacking = f"{path.name}: zeros from byte {offset} on, where records were"
        closing = found.closed or any(r.kind == CLOSE for r in later)
        if closed and path.name == first_segment and not closing:
            raise Corruption(
                f"{path.name}: the record at byte {offset} is damaged; the store was closed there"
            )
        found.offset, found.crc, found.segment = offset, crc, path.name
        found.whole = whole >= checkpoint
    if lacking:
        raise Corruption(lacking)
    last = found.turns[-1][1].turn if found.turns else checkpoint
    if found.synced > last:
        raise Corruption(f"turn {last + 1} was acknowledged, but is not there")
    if proven > last:
        raise Corruption(
            f"turn {last + 1} is not there, but turns up to {proven} were synced, says the file "
            "`released`; without that file, the store opens with what is left"
        )
    return found


def read_segment(files: Files, path: Path) -> bytes:
    fd = files.open(path, write=False)
    try:
        return files.read(fd, 0, files.data_end(fd))
    finally:
        files.close(fd)
