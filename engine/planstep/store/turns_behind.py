"""Reads a folder's last turns from its segments, for a shared log that has not got them yet.

    segments ─▶ the last one that begins at or before turn n ─▶ records behind n, in order, as recovery reads them

Next: readers/released_mark.py.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import Corruption
from .files import Files
from .log.log_writer import LogEnd
from .log.records import OVERHEAD, START, read_record
from .log.segments import segment_files, segment_parts
from .recovery import read_back
from .replicated import OWNER_KEY, SHIPPED_KEY


class LoggedTurn(NamedTuple):
    """One turn, as the log's record has it."""

    turn: int
    address: int
    changes: bytes
    dropped: bytes
    payload: bytes


class Backlog:
    """Keeps the turns of an open store that its shared log may not have yet."""

    def __init__(self, folder: Path, files: Files, store_id: bytes, log: LogEnd) -> None:
        self._folder = folder
        self._files = files
        self._store_id = store_id
        self._log = log

    def keep(self, get: Callable[[bytes], Any]) -> None:
        """Keeps the segments whose turns may have to be shipped yet, whoever opens the store. `get`: its rows."""
        row = get(SHIPPED_KEY)
        owner = None if row is None else get(OWNER_KEY)
        if owner is not None and row[0] == owner[0]:
            kept = first_segment(self._folder, self._files, self._store_id, row[1])
            self._log.first_kept = lambda first: min(first, kept)

    def end(self) -> None:
        """Lets the segments go that were kept at opening: the shared log has all turns."""
        self._log.first_kept = None

    def behind(self, turn: int) -> Iterator[LoggedTurn]:
        """Reads the turns behind one that the log still has. Corruption if it has them not."""
        return turns_behind(self._folder, self._files, self._store_id, turn, self._log.turn)


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
