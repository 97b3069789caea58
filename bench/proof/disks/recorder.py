"""Files that remember: whatever could be lost or torn, in the order in which it was done.

    store ─▶ Recorder ─▶ FastFiles ─▶ the operating system
                └▶ trace: create, write, flush, sync, lose, shrink, rename, remove, folder, sync_folder
                          and what the workload says: begin, acknowledged, refused, opened, kept

A write that is durable on return is two events, `write` and `flush`: between them the power may go. LMDB
does its own I/O; `watch_tables` adds what one of its commits changed in its file, in the order in which it
writes: the pages, a sync, and then, in one sector, the 120 bytes that make the transaction the newest. So
does `watch_mark` for the owner's mark, a mapped page that nobody syncs: the disk may have any it ever was.

Next: images.py.
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
"""Of the machine, until its power went."""
_PAGE = mmap.PAGESIZE
_META_AT, _META_BYTES = 32, 120


class Recorder(FastFiles):
    """Appends to `trace` what is done; `fail` makes the next operation of that kind fail, `dead` all.

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

    def _check(self, kind: str) -> None:
        if self.dead or self.fail == kind:
            self.fail = ""
            raise IoError("made to fail")

    def allocate(self, path: Path, size: int) -> None:
        self._check("allocate")
        self.trace.append(("create", self.name(path), size))
        super().allocate(path, size)

    def open(self, path: Path, write: bool) -> int:
        fd = super().open(path, write)
        self.opened[fd] = self.name(path)
        return fd

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        if self.dead:
            raise IoError("dead")
        data = b"".join(buffers)
        # What fails may have been written all the same, but is not durable.
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
        self._check("shrink")
        self.trace.append(("shrink", self.opened[fd], size))
        super().shrink(fd, size)

    def sync(self, fd: int) -> None:
        if self.fail == "sync":
            self.trace.append(("lose", self.opened[fd]))
        self._check("sync")
        self.trace.append(("sync", self.opened[fd]))

    def sync_folder(self, path: Path) -> None:
        self._check("sync_folder")
        if path == self.root or self.root in path.parents:
            name = self.name(path)
            self.trace.append(("sync_folder", "" if name == "." else name))

    def rename(self, source: Path, target: Path) -> None:
        self._check("rename")
        before, after = self.name(source), self.name(target)
        self.trace.append(("rename", before, after))
        super().rename(source, target)
        for fd, name in self.opened.items():
            if name == before:
                self.opened[fd] = after

    def remove(self, path: Path) -> None:
        self._check("remove")
        if path.exists():
            self.trace.append(("remove", self.name(path)))
        super().remove(path)


def watch_tables(
    store: DiskStore, files: Recorder, kept: Callable[[str, tuple[Any, ...]], None] | None = None
) -> None:
    """Each commit to LMDB goes into the trace; `kept(what, arguments)` is told of it then.

    One that has just been made is there from the beginning: it gets its name when it is durable.
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
            if kept is not None:
                kept(what, args)
            return answer

        return call

    for what in ("checkpoint", "move", "mark_closed"):
        setattr(store.table, what, watched(what, getattr(store.table, what)))


def watch_mark(store: DiskStore, files: Recorder) -> None:
    """Each mark goes into the trace when it is shown; the first of them is there already."""
    name, mark = files.name(store.folder / "released"), store.released
    if not any(event[:2] == ("create", name) for event in files.trace):
        files.trace.append(("create", name, mmap.PAGESIZE))
    show = mark.show

    def watched(generation: int, turn: int, synced: int) -> None:
        show(generation, turn, synced)
        said = encode_mark(store.store_id, generation, turn, synced, BOOT)
        files.trace.append(("write", name, 0, said))

    exchange(mark, "show", watched)
    last = mark.read()
    assert last is not None  # opening has shown it
    mark.show(last.generation, last.turn, last.synced)


def commit_events(name: str, before: bytes, after: bytes) -> Trace:
    """What LMDB does to its file in a transaction that leads from `before` to `after`."""
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
