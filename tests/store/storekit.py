"""What the store's tests share: abandoning a store, its contents, files that fail or remember."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from planstep.errors import IoError
from planstep.proto.ids import PARTITION, SHARD, tablet_id
from planstep.store import DiskStore
from planstep.store.files import Files, io_error

TABLETS = [tablet_id(kind, 0, 1).to_bytes(4, "big") for kind in (PARTITION, SHARD)]
FIRST, LAST = TABLETS[0], TABLETS[-1] + b"\xff"

Contents = dict[bytes, Any]


def crash(store: DiskStore) -> None:
    """The process is gone: what it had opened is closed, nothing is written."""
    if store._closed:
        return
    store._closed = True
    store._lock.close()
    store._table.close()
    store._released.close()
    store._folder.close()


def contents(store: Any) -> Contents:
    """Every key with its value; a value (P, address, length) stands for its payload's bytes."""
    return {k: resolve(store, v) for k, v in store.scan(FIRST, LAST)}


def resolve(store: Any, value: Any) -> Any:
    if isinstance(value, tuple) and value and value[0] == "P":
        return store.read_payload(value[1], value[2])
    return value


def write(
    store: Any,
    changes: dict[bytes, Any],
    payloads: dict[bytes, bytes] | None = None,
    *,
    frees: bool = False,
) -> None:
    """One turn; None deletes. A payload that loses its key is dropped."""
    turn = store.begin()
    for key in {**changes, **(payloads or {})}:
        old = turn.get(key)
        if isinstance(old, tuple) and old and old[0] == "P":
            turn.drop_payload(old[1], old[2])
    for key, value in changes.items():
        if value is None:
            turn.delete(key)
        else:
            turn.put(key, value)
    for key, data in (payloads or {}).items():
        turn.put(key, ("P", turn.append_payload(data), len(data)))
    turn.reserve = frees
    store.commit(turn)


class FastFiles(Files):
    """Does not wait for the disk: for tests whose power never goes, or goes in a model only."""

    def allocate(self, path: Path, size: int) -> None:
        with open(path, "xb") as file:
            file.truncate(size)

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        os.pwrite(fd, b"".join(buffers), offset)

    def sync(self, fd: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


class FaultyFiles(FastFiles):
    """Fails the calls of one kind from the n-th on: `times` of them, or for ever (None).

    `short` of a failing write's bytes are written before it fails.
    """

    def __init__(
        self,
        kind: str = "",
        nth: int = 0,
        *,
        code: int = errno.EIO,
        times: int | None = 1,
        short: Callable[[int], int] = lambda size: 0,
    ) -> None:
        self.kind, self.nth, self.code, self.times, self.short = kind, nth, code, times, short
        self.calls = 0
        self.failed = 0

    def _error(self, kind: str) -> IoError | None:
        if kind != self.kind:
            return None
        self.calls += 1
        if self.calls <= self.nth or (self.times is not None and self.failed >= self.times):
            return None
        self.failed += 1
        return io_error(OSError(self.code, os.strerror(self.code)), None)

    def allocate(self, path: Path, size: int) -> None:
        if error := self._error("allocate"):
            raise error
        super().allocate(path, size)

    def write(self, fd: int, buffers: Sequence[bytes], offset: int, sync: bool) -> None:
        if error := self._error("write"):
            data = b"".join(buffers)
            part = data[: self.short(len(data))]
            if part:
                super().write(fd, [part], offset, False)
            raise error
        super().write(fd, buffers, offset, sync)

    def sync(self, fd: int) -> None:
        if error := self._error("sync"):
            raise error
        super().sync(fd)

    def sync_folder(self, path: Path) -> None:
        if error := self._error("sync_folder"):
            raise error
        super().sync_folder(path)

    def rename(self, source: Path, target: Path) -> None:
        if error := self._error("rename"):
            raise error
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        if error := self._error("remove"):
            raise error
        super().remove(path)
