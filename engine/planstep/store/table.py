"""LMDB as the checkpoint: the tablets' tables as of turn T, T itself, and where payloads are.

    k<key>         value (msgpack)            d<tablet 4>   (digest, keys): order-independent
    a<address 8>   (segment, offset, length, live bytes)
    m              (T, next address, segment, closed, crc)

Each checkpoint is one fully synced LMDB transaction. The digest of a tablet is the sum, modulo 2^64,
of a hash of each key with its value; it is updated from old and new value inside the checkpoint.

Next: disk.py.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import msgpack

from ..errors import Corruption, IoError, NoSpace
from .layers import GONE

_MAP_BYTES = 1 << 40
_MASK = (1 << 64) - 1


def hash_entry(key: bytes, value: bytes) -> int:
    digest = hashlib.blake2b(value, digest_size=8, key=hashlib.sha256(key).digest()).digest()
    return int.from_bytes(digest, "little")


class Table:
    """The LMDB environment of one host."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        size = _MAP_BYTES
        while True:
            try:
                self._env = lmdb.open(
                    os.fspath(folder),
                    map_size=size,
                    mode=0o700,
                    max_readers=1024,
                    readonly=read_only,
                    create=not read_only,
                    writemap=False,
                )
                break
            except lmdb.MemoryError:
                size //= 2
                if size < 1 << 24:
                    raise IoError("the memory map for the tables could not be reserved") from None
            except lmdb.Error as error:
                raise Corruption(f"{folder}: the tables cannot be opened: {error}") from error
        if not read_only:
            self._env.reader_check()

    def pin(self) -> Any:
        """A read transaction for the other methods' `txn`: all of them then see one moment."""
        return self._env.begin()

    @contextmanager
    def _reading(self, txn: Any) -> Iterator[Any]:
        try:
            if txn is not None:
                yield txn
            else:
                with self._env.begin() as own:
                    yield own
        except lmdb.Error as error:
            raise Corruption(f"the tables cannot be read: {error}") from error

    def get(self, key: bytes, txn: Any = None) -> Any:
        with self._reading(txn) as reading:
            data = reading.get(b"k" + key)
        return None if data is None else msgpack.unpackb(data, use_list=False)

    def scan(
        self, begin: bytes, end: bytes, reverse: bool, txn: Any = None
    ) -> Iterator[tuple[bytes, Any]]:
        """Lazily, in one read transaction that ends with the iterator."""
        first, last = b"k" + begin, b"k" + end
        with self._reading(txn) as reading, reading.cursor() as cursor:
            if reverse:
                found = cursor.set_range(last)
                found = cursor.prev() if found else cursor.last()
                while found and cursor.key() >= first:
                    yield cursor.key()[1:], msgpack.unpackb(cursor.value(), use_list=False)
                    found = cursor.prev()
            else:
                found = cursor.set_range(first)
                while found and cursor.key() < last:
                    yield cursor.key()[1:], msgpack.unpackb(cursor.value(), use_list=False)
                    found = cursor.next()

    def state(self, txn: Any = None) -> Any:
        """(T, next address, first segment needed, closed, crc), or None in a new store."""
        with self._reading(txn) as reading:
            data = reading.get(b"m")
        return None if data is None else msgpack.unpackb(data, use_list=False)

    def find_payload(self, address: int, txn: Any = None) -> tuple[int, str, int, int] | None:
        """(first address, segment, offset, length) of the run that holds `address`."""
        with self._reading(txn) as reading, reading.cursor() as cursor:
            key = b"a" + address.to_bytes(8, "big")
            if not cursor.set_range(key) or cursor.key() != key:
                # Behind the last run set_range leaves no place to step back from.
                found = cursor.prev() if cursor.key() else cursor.last()
                while found and cursor.key() > key:
                    found = cursor.prev()
                if not found:
                    return None
            if cursor.key()[:1] != b"a":
                return None
            segment, offset, length, _ = msgpack.unpackb(cursor.value(), use_list=False)
            return int.from_bytes(cursor.key()[1:], "big"), segment, offset, length

    def checkpoint(
        self,
        changes: dict[bytes, Any],
        payloads: list[tuple[int, str, int, int]],
        dropped: list[tuple[int, int]],
        state: tuple[Any, ...],
    ) -> tuple[int, dict[str, int]]:
        """One synced transaction; returns (bytes written, live payload bytes by segment)."""
        written = 0
        digests: dict[bytes, list[int]] = {}
        try:
            with self._env.begin(write=True) as txn:
                for key, value in changes.items():
                    tablet = digests.get(key[:4])
                    if tablet is None:
                        stored = txn.get(b"d" + key[:4])
                        tablet = list(msgpack.unpackb(stored)) if stored else [0, 0]
                        digests[key[:4]] = tablet
                    if value is GONE:
                        old = txn.pop(b"k" + key)
                    else:
                        data: bytes = msgpack.packb(value, use_bin_type=True)
                        written += len(key) + len(data)
                        old = txn.replace(b"k" + key, data)
                        tablet[0] += hash_entry(key, data)
                        tablet[1] += 1
                    if old is not None:
                        tablet[0] -= hash_entry(key, old)
                        tablet[1] -= 1
                for prefix, (digest, count) in digests.items():
                    txn.put(b"d" + prefix, msgpack.packb((digest & _MASK, count)))
                for address, segment, offset, length in payloads:
                    entry = msgpack.packb((segment, offset, length, length))
                    txn.put(b"a" + address.to_bytes(8, "big"), entry)
                for address, length in dropped:
                    _drop(txn, address, length)
                txn.put(b"m", msgpack.packb(state))
                live = _live(txn)
        except (lmdb.MapFullError, lmdb.DiskError) as error:
            raise NoSpace(f"the checkpoint found no space: {error}") from error
        except lmdb.Error as error:
            raise IoError(f"the checkpoint failed: {error}") from error
        return written, live

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Every (LMDB key, raw value): for verification."""
        with self._env.begin() as txn, txn.cursor() as cursor:
            yield from cursor

    def close(self) -> None:
        self._env.close()


def _drop(txn: Any, address: int, length: int) -> None:
    with txn.cursor() as cursor:
        key = b"a" + address.to_bytes(8, "big")
        if not cursor.set_range(key) or cursor.key() != key:
            if not cursor.prev() or cursor.key()[:1] != b"a":
                return
        segment, offset, total, live = msgpack.unpackb(cursor.value())
        entry = (segment, offset, total, max(0, live - length))
        txn.put(cursor.key(), msgpack.packb(entry))


def _live(txn: Any) -> dict[str, int]:
    live: dict[str, int] = {}
    with txn.cursor() as cursor:
        found = cursor.set_range(b"a")
        while found and cursor.key()[:1] == b"a":
            segment, _, _, bytes_live = msgpack.unpackb(cursor.value())
            live[segment] = live.get(segment, 0) + bytes_live
            found = cursor.next()
    return live
