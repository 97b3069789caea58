"""Reads a folder's last turns from its segments, for a shared log that has not got them yet.

    segments ─▶ the last one that begins at or before turn n ─▶ records behind n, in order, as recovery reads them

Next: readers/released_mark.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import Corruption
from .files import Files
from .log.records import OVERHEAD, START, read_record
from .log.segments import segment_files, segment_parts
from .recovery import read_back


class LoggedTurn(NamedTuple):
    """One turn, as the log's record has it."""

    turn: int
    address: int
    changes: bytes
    dropped: bytes
    payload: bytes


def turns_behind(
    folder: Path, files: Files, store_id: bytes, turn: int, end: int
) -> Iterator[LoggedTurn]:
    """Reads the turns behind one, up to `end`. Corruption if one of them is not there."""
    first = first_segment(folder, files, store_id, turn)
    found = read_back(folder, files, store_id, turn, first_segment=first)
    if found.last_turn(turn) < end:
        raise Corruption(f"{folder}: turns behind {found.last_turn(turn)} are missing in its log")
    for _, record, data in found.turns:
        begin = record.payload_offset
        payload = data[begin : begin + record.payload_length]
        yield LoggedTurn(record.turn, record.address, record.changes, record.dropped, payload)


def first_segment(folder: Path, files: Files, store_id: bytes, turn: int) -> str:
    """Finds the segment that has the turns behind one; "" if none begins early enough."""
    for path in reversed(segment_files(folder, files)):
        fd = files.open(path, write=False)
        try:
            data = files.read(fd, 0, OVERHEAD)
        finally:
            files.close(fd)
        start = read_record(data, 0, store_id, segment_parts(path.name)[0], None)
        if start is not None and start.kind == START and start.turn <= turn:
            return path.name
    return ""
