"""Publishes how far the owner has released, for other processes and for recovery: 32 bytes in a mapped file.

    owner ── after each sync, as it releases ──▶ (generation, turn, boot) ◀── readers
                                                 (synced)                 ◀── recovery: it must be there

The mark is written at the moment the turn is released to the owner's own readers (host/versions.py), so
neither side sees less than the other has seen or been told. It is written before anything of the turn leaves
its host. So the marks of all hosts, read at one moment, are a consistent cut: no host has acted on something
that another has not released. An owner killed between sync and mark has replied to no client; recovery finds
the turn, and shows it.

The page cache outlives a killed process, not the machine. So the mark names the boot: under another boot
it says nothing, and all valid records in the log came from the disk, hence are durable.

`synced` is written only after that turn's sync returned. If the log ends before it, after any reboot, the log
was damaged; it is not a torn tail.

Its checksum begins with the store's id, so the mark of another store is not valid here.

Next: reader_lease.py.
"""

import hashlib
import mmap
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ...errors import StoreClosed
from ..files import Files, io_error, open_file

_MARK = Struct("<IQ8sQ")
_CRC = Struct("<I")
_SIZE = _MARK.size + _CRC.size
_REPLACED = b"replaced".ljust(_SIZE, b".")


class Mark(NamedTuple):
    """The owner's mark. `turn` of `generation` is released; `current`: in this boot; `synced`: the last synced
    turn.
    """

    generation: int
    turn: int
    current: bool
    synced: int


@cache
def _boot() -> bytes:
    path = Path("/proc/sys/kernel/random/boot_id")
    try:
        text = path.read_bytes()
    except (FileNotFoundError, PermissionError):
        return bytes(8)  # unknown: marks then count, as they do after a kill
    except OSError as error:  # for lack of a descriptor, say: to be tried again
        raise io_error(error, path) from error
    return hashlib.sha256(text).digest()[:8]


def encode_mark(store_id: bytes, generation: int, turn: int, synced: int, boot: bytes) -> bytes:
    data = _MARK.pack(generation, turn, boot, synced)
    return data + _CRC.pack(zlib.crc32(data, zlib.crc32(store_id)))


class ReleasedMark:
    """The owner's mapped file. OSError; IoError."""

    def __init__(self, path: Path, store_id: bytes, held: int | None = None) -> None:
        """`held`: the folder's descriptor; the file is then found in it by name."""
        self.waits = False
        """Nothing is shown: the owner's own readers do not see it yet."""
        self._store_id = store_id
        name = path if held is None else Path(path.name)
        fd = open_file(name, os.O_RDWR | os.O_CREAT, held)
        try:
            if os.fstat(fd).st_size < mmap.PAGESIZE:
                # Bytes, no hole: on a full disk this write fails, and not the first store to the map.
                Files().write(fd, [bytes(mmap.PAGESIZE)], 0, False)
            self._map = mmap.mmap(fd, mmap.PAGESIZE, access=mmap.ACCESS_WRITE)
        finally:
            os.close(fd)

    def show(self, generation: int, turn: int, synced: int) -> None:
        if not self.waits:
            self._map[:_SIZE] = encode_mark(self._store_id, generation, turn, synced, _boot())

    def read(self) -> Mark | None:
        """Reads the mark; None while it is not whole, or not of this store. StoreClosed: it was replaced."""
        return _whole(self._store_id, lambda: self._map[:_SIZE])

    def close(self) -> None:
        self._map.close()


class MarkReader:
    """Reads a mark again and again, through one descriptor. Threads take turns."""

    def __init__(self, path: Path, store_id: bytes, held: int) -> None:
        """`held`: the folder's descriptor; the file is found in it by name."""
        self._path = path
        self._store_id = store_id
        self._held = held
        self._fd = -1

    def read(self) -> Mark | None:
        """Reads the mark like `read_mark`; one that was removed is looked for once more by its name."""
        try:
            if self._fd < 0 or not os.fstat(self._fd).st_nlink:
                self.close()
                self._fd = open_file(Path(self._path.name), os.O_RDONLY, self._held)
            return _whole(self._store_id, lambda: os.pread(self._fd, _SIZE, 0))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise io_error(error, self._path) from error

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def say_replaced(path: Path) -> None:
    """Tells those that read a store with this mark that it is no longer at its path: another one is there."""
    with suppress(OSError):  # without a mark they go on as they are
        fd = open_file(path, os.O_RDWR)
        try:
            os.pwrite(fd, _REPLACED, 0)
        finally:
            os.close(fd)


def _whole(store_id: bytes, read: Callable[[], bytes]) -> Mark | None:
    own = zlib.crc32(store_id)
    for _ in range(100):  # a torn read is repeated
        data = read()
        if len(data) < _SIZE:
            return None
        if data == _REPLACED:
            raise StoreClosed(
                "the folder was replaced meanwhile, by a newer state of its store: open it again"
            )
        if zlib.crc32(data[: _MARK.size], own) == _CRC.unpack_from(data, _MARK.size)[0]:
            generation, turn, boot, synced = _MARK.unpack_from(data)
            return Mark(generation, turn, boot == _boot(), synced)
    return None


def read_mark(path: Path, store_id: bytes, held: int | None = None) -> Mark | None:
    """Reads the mark's file; None if it is missing or not whole. `held`: as for `ReleasedMark`.

    IoError: without the mark a reader would take turns for released that no client was told of. StoreClosed: it
    was replaced.
    """
    try:
        fd = open_file(path if held is None else Path(path.name), os.O_RDONLY, held)
        try:
            return _whole(store_id, lambda: os.pread(fd, _SIZE, 0))
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise io_error(error, path) from error


def mark_bytes(path: Path) -> bytes:
    """Returns the mark's bytes, for callers that only check for a change."""
    try:
        with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            return file.read(_SIZE)
    except OSError:
        return b""
