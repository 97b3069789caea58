"""Models a disk at a point of a trace, the images that a power loss may leave, and their allowed contents.

    trace ─▶ Disk at a point: names and sectors that are surely there, those that may be
                 └▶ image: any subset of the others, torn at 512 bytes ─▶ a folder that a store is opened in

The model: a sector is dirty from its write to the sync that covers it, and may be on the disk or not; after
a failed sync it stays dirty for ever. A sector is written whole. If it was written several times since, it may
hold any of these versions. Names, of folders too, are certain after their folder's sync. A truncated file may
have its old length until its sync.

Next: bare.py and steps.py, the workloads whose traces these are.
"""

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from ....errors import FormatError
from ....store.files import Files
from ....store.meta import load_meta
from ....store.readers.released_mark import encode_mark
from .recorder import BOOT, SECTOR, Event

VERSIONS = 8
"""Versions kept of a sector that was written repeatedly."""


class Inode:
    """A file: its bytes as reads see them, those surely on the disk, and the sectors in which they may differ."""

    def __init__(self, size: int) -> None:
        self.cache, self.disk = bytearray(size), bytearray(size)
        self.dirty: dict[int, list[bytes]] = {}
        self.lost: dict[int, list[bytes]] = {}

    def write(self, offset: int, data: bytes) -> None:
        if len(self.cache) < offset + len(data):
            self.cache.extend(bytes(offset + len(data) - len(self.cache)))
        self.cache[offset : offset + len(data)] = data
        for n in sorted(_sectors(offset, len(data))):
            begin = n * SECTOR
            versions = self.lost.pop(n, []) + self.dirty.get(n, [])
            versions.append(bytes(self.cache[begin : begin + SECTOR]))
            self.dirty[n] = versions[-VERSIONS:]

    def _settle(self, sectors: Iterable[int]) -> None:
        for n in sorted(sectors):
            _copy(self.cache[n * SECTOR : (n + 1) * SECTOR], self.disk, n)
            self.dirty.pop(n, None)

    def flush(self, offset: int, length: int) -> None:
        self._settle(_sectors(offset, length) & self.dirty.keys())

    def sync(self) -> None:
        self._settle(self.dirty)
        if not self.lost:
            del self.disk[len(self.cache) :]

    def lose(self) -> None:
        """Keeps the dirty sectors in doubt after a failed sync."""
        for n, versions in self.dirty.items():
            self.lost[n] = [*self.lost.get(n, []), *versions][-VERSIONS:]
        self.dirty = {}

    def shrink(self, size: int) -> None:
        del self.cache[size:]
        for doubt in (self.dirty, self.lost):
            for n in [n for n in doubt if n * SECTOR >= size]:
                del doubt[n]

    def image(self, rng: random.Random, losses: Counter[str]) -> bytes:
        data = bytearray(self.disk)
        chance = rng.choice([0.0, 0.5, 0.5, 0.9, 1.0])
        doubt = {**self.lost, **self.dirty}
        doubtful = sorted(doubt)
        written = [n for n in doubtful if rng.random() < chance]
        for n in written:
            newest = rng.random() < 0.7
            version = doubt[n][-1] if newest else rng.choice(doubt[n])
            losses["sectors as they were before"] += version != doubt[n][-1]
            _copy(version, data, n)
        if len(self.cache) < len(self.disk):  # truncated, and perhaps not yet on the disk
            if rng.random() < 0.5:
                del data[len(self.cache) :]
            losses["length in doubt"] += 1
        elif len(data) < len(self.cache) and rng.random() < 0.5:
            data.extend(bytes(len(self.cache) - len(data)))  # longer, without the new content
        if doubtful:
            losses["sectors lost"] += len(written) < len(doubtful)
            losses["sectors in part"] += 0 < len(written) < len(doubtful)
        return bytes(data)


def _sectors(offset: int, length: int) -> set[int]:
    return set(range(offset // SECTOR, (offset + length - 1) // SECTOR + 1)) if length else set()


def _copy(data: bytes | bytearray, target: bytearray, sector: int) -> None:
    begin = sector * SECTOR
    if len(target) < begin:
        target.extend(bytes(begin - len(target)))
    target[begin : begin + len(data)] = data


class Disk:
    """All files below a root, at one point of a trace.

    `live`: names as a process sees them; `names`: those surely in their folder; `pending`: changes of names that
    may be on the disk or not. A folder's inode is None. `lies`: syncs do nothing.
    """

    def __init__(self, lies: bool = False) -> None:
        self.live: dict[str, Inode | None] = {}
        self.names: dict[str, Inode | None] = {}
        self.pending: list[Event] = []
        self.lies = lies

    def step(self, event: Event) -> None:
        match event:
            case "create" | "folder" as kind, name, *size:
                inode = Inode(*size) if kind == "create" else None
                self.live[name] = inode
                self.pending.append(("create", name, inode))
            case "rename", name, target:
                self.live[target] = self.live.pop(name)
                self.pending.append(event)
            case "remove", name:
                del self.live[name]
                self.pending.append(("remove", name, None))
            case "sync_folder", folder:
                others = {n: inode for n, inode in self.names.items() if _folder_of(n) != folder}
                within = {n: inode for n, inode in self.live.items() if _folder_of(n) == folder}
                self.names = others | within
                self.pending = [one for one in self.pending if _folder_of(one[1]) != folder]
            case "write" | "shrink" | "lose" | "flush" | "sync" as kind, name, *rest:
                changed = self.live[name]
                assert changed is not None, f"{name} is a folder"
                if not (self.lies and kind in ("flush", "sync")):
                    getattr(changed, kind)(*rest)

    def image(self, folder: Path, rng: random.Random, losses: Counter[str]) -> None:
        """Writes into `folder` an image that a power loss here may leave; `losses` counts the kinds of loss."""
        names = self._names(rng, losses)
        folder.mkdir(parents=True)
        for name, inode in sorted(names.items()):
            folders = [p.as_posix() for p in PurePosixPath(name).parents][:-1]
            # A folder from before the trace exists.
            if not all(above in names or above not in self.live for above in folders):
                continue
            path = folder / name
            if inode is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(inode.image(rng, losses))
        for meta in folder.rglob("meta.pb"):
            (meta.parent / "table").mkdir(exist_ok=True)  # the trace does not say who made it
            if not (meta.parent / "released").exists() and rng.random() < 0.5:
                _old_mark(meta.parent, rng)

    def _names(self, rng: random.Random, losses: Counter[str]) -> dict[str, Inode | None]:
        """Returns the names that are surely there, and those that may be."""
        names = dict(self.names)
        chance = rng.choice([0.0, 0.5, 1.0])
        for kind, name, what in self.pending:
            if rng.random() >= chance:
                losses["names lost"] += 1
            elif kind == "create":
                names[name] = what
            elif name in names:
                inode = names.pop(name)
                if kind == "rename":
                    names[what] = inode
        return names


def _folder_of(name: str) -> str:
    folder = PurePosixPath(name).parent.as_posix()
    return "" if folder == "." else folder


def _old_mark(folder: Path, rng: random.Random) -> None:
    """Writes an earlier mark, of another boot of the machine, which must be ignored."""
    try:
        meta = load_meta(folder, Files())
    except FormatError:  # on a disk that ignores syncs
        meta = None
    own = b"" if meta is None else meta.store_id
    data = encode_mark(own, rng.randrange(1, 9), rng.randrange(1 << 20), 0, BOOT)
    (folder / "released").write_bytes(data.ljust(4096, b"\0"))


class Allowed:
    """Computes a store's allowed contents after a power loss, in step with the disk: all acknowledged turns, with
    or without the one in flight. `first` is the content of an empty store.

        durability "full"   [ acknowledged ]                                    + [ the one in flight ]
        durability "os"     [ surely kept, …, each that followed, acknowledged ] + [ the one in flight ]
    """

    def __init__(self, durability: str, first: Any) -> None:
        self.full = durability == "full"
        self.history: list[Any] = [first]  # the first surely survives, the last is acknowledged
        self.flying: list[Any] = []

    def step(self, event: Event) -> None:
        kind = event[0]
        if kind == "begin":
            self.flying = [event[1]]
        elif kind == "acknowledged":
            self.history = self.flying if self.full else [*self.history, *self.flying]
            self.flying = []
        elif kind == "refused":
            self.flying = []
        elif kind == "kept":  # all but the newest n survive surely
            del self.history[: len(self.history) - 1 - event[1]]
        elif kind == "opened":
            self.history, self.flying = [event[1]], []

    def judge(self, content: Any) -> str:
        """Returns why the content is not allowed, "" if it is."""
        if content in self.history or content in self.flying:
            return ""
        return "acknowledged turns are lost, or something is torn"


def is_of_workload(event: Event) -> bool:
    """Returns whether the event comes from the workload, not from a change of the disk."""
    return event[0] in ("begin", "acknowledged", "refused", "kept", "opened", "lose")
