"""Records every file operation whose effect could be lost or torn, in order.

    store ─▶ Recorder ─▶ FastFiles ─▶ the operating system
                └▶ trace: create, write, flush, sync, lose, shrink, rename, remove, folder, sync_folder
                          and the workload's events: begin, acknowledged, refused, opened, kept

A write that is durable on return is two events, `write` and `flush`: the power may fail between them. `lose` is a
failed write or sync, whose data may or may not be on the disk. LMDB does its own I/O; `watch_tables` records the
changes of each commit in its file, in LMDB's order: the pages, a sync, and then, in one sector, the 120 bytes of
LMDB's meta page that make the transaction the newest. `watch_mark` records the owner's mark, a mapped page that
is never synced: the disk may hold any version of it.

The event `kept` says that from here on all acknowledged changes but the newest n survive a power loss.

Next: images.py, which makes the crash images.
"""

import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ....errors import IoError
from ....store import DiskStore
from ....store.readers.released_mark import encode_mark
from ..patching import exchange
from .failing import FastFiles
from .stores import table_file

Event = tuple[Any, ...]
Trace = list[Event]
SECTOR = 512
BOOT = b"before.."
"""Boot id of the machine before its power loss."""
_PAGE = mmap.PAGESIZE
_META_AT, _META_BYTES = 32, 120


class Recorder(FastFiles):
    """Files that append their operations to `trace`; `fail` makes the next operation of that kind fail, `dead` all.

    Names are relative to `root`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.trace: Trace = []
        self.opened: dict[int, str] = {}
        self.fail = ""
        self.dead = False

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def check(self, kind: str) -> None:
        if kind not in ("open", "read") and (self.dead or self.fail == kind):
            self.fail = ""
            raise IoError("made to fail")

    def allocate(self, path: Path, size: int) -> None:
        super().allocate(path, size)
        self.trace.append(("create", self.name(path), size))

    def open(self, path: Path, write: bool) -> int:
        fd = super().open(path, write)
        self.opened[fd] = self.name(path)
        return fd

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        if self.dead:
            raise IoError("dead")
        data = b"".join(buffers)
        # A failing write may have reached the file all the same, but is not durable.
        failing, dying = self.fail == "write", self.fail == "die"
        name = self.opened[fd]
        self.trace.append(("write", name, offset, data))
        super().write(fd, [data], offset, False)
        if failing and sync:
            self.trace.append(("lose", name))
        if dying:
            self.dead = True
        if failing or dying:
            self.fail = ""
            raise IoError("made to fail")
        if sync:
            self.trace.append(("flush", name, offset, len(data)))

    def shrink(self, fd: int, size: int) -> None:
        super().shrink(fd, size)
        self.trace.append(("shrink", self.opened[fd], size))

    def sync(self, fd: int) -> None:
        if self.fail == "sync":
            self.trace.append(("lose", self.opened[fd]))
        super().sync(fd)
        self.trace.append(("sync", self.opened[fd]))

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        if path == self.root or self.root in path.parents:
            name = self.name(path)
            self.trace.append(("sync_folder", "" if name == "." else name))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        before, after = self.name(source), self.name(target)
        self.trace.append(("rename", before, after))
        for fd, name in self.opened.items():
            if name == before:
                self.opened[fd] = after

    def remove(self, path: Path) -> None:
        was_there = path.exists()
        super().remove(path)
        if was_there:
            self.trace.append(("remove", self.name(path)))


def watch_tables(
    store: DiskStore, files: Recorder, note: Callable[[str, tuple[Any, ...]], None] | None = None
) -> None:
    """Records each commit to LMDB in the trace; then calls `note(what, arguments)`.

    A new file exists in the trace from the beginning, and gets its name once it is durable.
    """
    path = table_file(store.folder)
    name = files.name(path)
    state = [path.read_bytes()]
    if not any(event[0] == "rename" and event[2] == name for event in files.trace):
        new = files.name(path.with_suffix(".new"))
        files.trace.append(("create", new, 0))
        files.trace.append(("write", new, 0, state[0]))
        files.trace.append(("sync", new))
        files.trace.append(("rename", new, name))
        files.trace.append(("sync_folder", files.name(path.parent)))

    def watched(what: str, commit: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            answer = commit(*args)
            before, state[0] = state[0], path.read_bytes()
            files.trace += commit_events(name, before, state[0])
            if note is not None:
                note(what, args)
            return answer

        return call

    for what in ("checkpoint", "move", "mark_closed"):
        setattr(store.table, what, watched(what, getattr(store.table, what)))


def watch_mark(store: DiskStore, files: Recorder) -> None:
    """Records each mark in the trace when it is written; the first one is there already."""
    name, mark = files.name(store.folder / "released"), store.released
    if not any(event[:2] == ("create", name) for event in files.trace):
        files.trace.append(("create", name, mmap.PAGESIZE))
    show = mark.show

    def watched(generation: int, turn: int, synced: int) -> None:
        show(generation, turn, synced)
        page = encode_mark(store.store_id, generation, turn, synced, BOOT)
        files.trace.append(("write", name, 0, page))

    exchange(mark, "show", watched)
    last = mark.read()
    assert last is not None  # opening wrote it
    mark.show(last.generation, last.turn, last.synced)


def commit_events(name: str, before: bytes, after: bytes) -> Trace:
    """Returns LMDB's file operations in a transaction that leads from `before` to `after`."""
    events: Trace = []
    begin = 2 * _PAGE
    while begin < len(after):
        end = begin
        while end < len(after) and after[end : end + SECTOR] != before[end : end + SECTOR]:
            end += SECTOR
        if end > begin:
            events.append(("write", name, begin, after[begin:end]))
        begin = end + SECTOR
    events.append(("sync", name))
    for page in (0, _PAGE):
        at = page + _META_AT
        meta = after[at : at + _META_BYTES]
        if meta != before[at : at + _META_BYTES]:
            events.append(("write", name, at, meta))
            events.append(("flush", name, at, _META_BYTES))
    return events
