"""Resumes a store at the end of its history: loads the log's turns into memory and begins a new segment.

    mark, checkpoint ─▶ read_back ─▶ turns ─▶ live layer, runs
                                 └─▶ doubtful turns ─▶ copied on into a segment of the next generation

DiskStore calls it when it opens. Old segments are never appended to again; the room behind their last
record is given back.

Next: disk_store.py.
"""

from collections.abc import Callable
from typing import Any

from ..errors import Corruption, NoSpace
from .layers import Layer
from .log.extents import Extent
from .log.log_writer import LogEnd
from .log.records import decode_pairs
from .log.segments import Folder, segment_files, segment_parts
from .readers.released_mark import ReleasedMark
from .recovery import ReadBack, read_back
from .tables.table import Table
from .turn import StoreCounters, decode_changes
from .unsaved import Unsaved


def resume(
    log: LogEnd,
    unsaved: Unsaved,
    *,
    table: Table,
    folder: Folder,
    released: ReleasedMark,
    counters: StoreCounters,
    attempt: Callable[[Callable[[], Any]], None],
) -> bool:
    """Resumes the store; returns whether it had been closed in order. `attempt` runs the optional chores. NoSpace
    if there is no room for a segment, Corruption.
    """
    state = table.state() or (0, 0, "", False, 0)
    shown = released.read()
    proven = 0 if shown is None else shown.synced
    found = _read(folder, state, proven)
    log.turn, log.address = found.last_turn(state[0]), state[1]
    _replay(found, log, unsaved)
    counters.replayed_turns += len(found.turns)
    generations = [segment_parts(p.name)[0] for p in segment_files(folder.path, folder.files)]
    log.generation = max(generations, default=0) + 1
    if shown is not None and shown.current and shown.turn <= log.turn:
        released.show(log.generation, shown.turn, proven)  # readers must not go back
    _begin_segment(found, log, folder)
    folder.files.sync_folder(folder.path / "table")  # LMDB's file was created there
    folder.sync()
    if found.whole:  # anything behind its records is void from now on
        attempt(lambda: folder.shrink(found.segment, found.offset))
    if not log.on_reserve:
        attempt(folder.keep_reserve)
    return found.closed or not found.segment


def _read(folder: Folder, state: Any, proven: int) -> ReadBack:
    checkpoint, _, first_segment, closed, _ = state
    try:
        return read_back(
            folder.path,
            folder.files,
            folder.store_id,
            checkpoint,
            first_segment=first_segment,
            closed=closed,
            proven=proven,
        )
    except Corruption as error:
        if checkpoint:
            raise
        hint = "the tables are empty: put `table` back if it was removed, or restore a backup"
        raise Corruption(f"{error}; {hint}") from error


def _replay(found: ReadBack, log: LogEnd, unsaved: Unsaved) -> None:
    """Loads the turns behind the checkpoint into memory."""
    live = Layer()
    for segment, record, _ in found.turns:
        live.update(decode_changes(record.changes))
        run = Extent(record.address, segment, record.payload_offset, record.payload_length)
        unsaved.note(run, decode_pairs(record.dropped), record.size)
        if record.payload_length:
            log.address = record.address + record.payload_length
    unsaved.layers = (live, None, {})
    unsaved.changed_at = 0.0  # long ago, so that they are saved soon


def _begin_segment(found: ReadBack, log: LogEnd, folder: Folder) -> None:
    doubtful = [item for item in found.turns if item[1].turn > found.synced]
    folder.grown = sum(folder.sizes().values())
    try:
        log.begin_segment(found.synced, doubtful)
    except NoSpace:
        _free_tail(found, folder)
        log.number += 1  # the first attempt may have begun one; nothing has been acknowledged since
        log.begin_segment(found.synced, doubtful, reserve=True)


def _free_tail(found: ReadBack, folder: Folder) -> None:
    """Frees the space that a crash left allocated behind the last record, if it is empty: the disk is full."""
    if not found.segment:
        return
    size = folder.files.size_of(folder.path / found.segment)
    if not any(folder.read(found.segment, found.offset, size - found.offset)):
        folder.shrink(found.segment, found.offset)
