"""Reads the tables for a process that does not own them: pages are checked on the way to what is read.

    get, cursor ─▶ root ─▶ branch pages ─▶ the leaf ─▶ its values, in overflow pages too
                   each read from the file, and checked when it is first met: page_format.py

An opening costs the same whatever the tables hold. A damaged page is Corruption once something is read from it,
and never ends the process: LMDB, which ends it, looks at none of these pages, because they are not read through its
map. It gives the reader what it does need: a transaction, in whose slot every process sees that the pages as of
then must stay.

The interface is the part of lmdb.Transaction and lmdb.Cursor that table.py uses. The two must show the same:
tests/store/test_page_reader.py.

Next: create.py.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import Corruption, EngineClosed, IoError
from ..files import io_error, open_file, shown
from .header_check import DATA_FILE
from .page_format import (
    LEAF,
    Child,
    Damaged,
    Elsewhere,
    Meta,
    PageFile,
    check_metas,
    is_empty,
    key_at,
    read_metas,
)

_TRIES = 20
_HELD_PAGES = 512
"""Checked pages that a reading keeps: some 10 KB of memory each."""


class _Page(NamedTuple):
    """A checked page, for these bounds of its keys and at this height above the leaves.

    `keys` are those of a leaf's entries, or those with which all children but the first begin.
    """

    bounds: tuple[bytes, bytes | None, int]
    keys: list[bytes]
    children: list[Child]
    data: bytes
    offsets: Sequence[int]


_Step = tuple[_Page, int]
"""A page on the way to an entry, and the number of the child, or of the entry, in it."""


class TablesFile:
    """The tables' file, opened to read before LMDB opens it; a missing one is for LMDB to report."""

    def __init__(self, folder: Path) -> None:
        """IoError."""
        self._path = folder / DATA_FILE
        self._fd = -1
        try:
            self._fd = open_file(self._path, os.O_RDONLY)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise io_error(error, self._path) from error

    def check_same(self, opened: tuple[int, int]) -> None:
        """Raises IoError if LMDB opened another file; `opened`: its device and inode."""
        status = os.fstat(self._fd) if self._fd >= 0 else None
        if status is None or (status.st_dev, status.st_ino) != opened:
            raise IoError(f"{shown(self._path)} was replaced just now; open the store again")

    def begin(self, env: Any) -> Any:
        """Begins a read transaction of LMDB's, and returns it with checked pages. lmdb.Error, Corruption, IoError.

        Returns LMDB's own for files that only LMDB knows.
        """
        try:
            for _ in range(_TRIES):
                txn = env.begin()
                try:
                    metas = self._metas()
                    if metas is None:
                        return txn
                    which = txn.id() & 1
                    # Two later commits of the owner have replaced the meta page of this one.
                    if metas[which].transaction == txn.id():
                        return CheckedReading(txn, self._fd, self._path, check_metas(metas, which))
                except BaseException:
                    txn.abort()
                    raise
                txn.abort()
        except OSError as error:
            raise io_error(error, self._path) from error
        except Damaged as damaged:
            raise _corruption(self._path, damaged) from damaged
        raise Corruption(f"{shown(self._path)}: damaged: no meta page is that of the newest commit")

    def _metas(self) -> tuple[Meta, Meta] | None:
        """Reads the meta pages twice: the owner may be writing one."""
        before = read_metas(self._fd)
        for _ in range(_TRIES):
            metas = read_metas(self._fd)
            if metas == before:
                break
            before = metas
        return metas

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _corruption(path: Path, damaged: Damaged) -> Corruption:
    return Corruption(f"{shown(path)}: damaged: {damaged}")


class CheckedReading:
    """A read transaction like lmdb.Transaction, over checked pages; for one thread at a time.

    Invariant: `_pages` is bounded, and its pages were whole.
    """

    def __init__(self, txn: Any, fd: int, path: Path, meta: Meta) -> None:
        self._txn = txn
        self._path = path
        self._file = PageFile(fd, meta.size)
        self._meta = meta
        self._depth = 0 if is_empty(meta.rows) else meta.rows.depth
        self._pages: dict[int, _Page] = {}
        # A damaged meta page may tell of any number of pages; those that are not in the file are never whole.
        self._end = min(meta.last + 1, os.fstat(fd).st_size // meta.size)
        self._whole = bytearray((self._end >> 3) + 1)

    def __enter__(self) -> "CheckedReading":
        return self

    def __exit__(self, *exc: object) -> None:
        self.abort()

    def abort(self) -> None:
        if self._txn is not None:
            self._txn.abort()
            self._txn = None
            self._pages.clear()

    def id(self) -> int:
        return int(self._txn.id())

    def get(self, key: bytes) -> bytes | None:
        if not self._depth:
            return None
        child: Child = (self._meta.rows.root, b"", None)
        for height in range(self._depth - 1, 0, -1):
            page = self._page(child, height)
            child = page.children[bisect_right(page.keys, key)]
        if child[0] in self._pages or not self._is_whole(child[0]):
            leaf = self._page(child, 0)
            data, offsets, at = leaf.data, leaf.offsets, bisect_left(leaf.keys, key)
        else:
            data, offsets = self._again(child[0])
            at = bisect_left(offsets, key, key=partial(key_at, data))
        if at == len(offsets) or key_at(data, offsets[at]) != key:
            return None
        return self.entry(data, offsets[at])[1]

    def _is_whole(self, leaf: int) -> bool:
        return leaf < self._end and self._whole[leaf >> 3] & 1 << (leaf & 7) != 0

    def _again(self, number: int) -> tuple[bytes, Sequence[int]]:
        """Reads a leaf again that was whole; while this transaction is open it stays so. IoError, Corruption."""
        self._check_open()
        try:
            data = self._file.read(number, self._meta.size)
            return data, self._file.offsets(number, data, 0, LEAF, 1)
        except OSError as error:
            raise io_error(error, self._path) from error
        except Damaged as damaged:
            raise _corruption(self._path, damaged) from damaged

    def cursor(self) -> "CheckedCursor":
        return CheckedCursor(self)

    def way(self, key: bytes | None = None, last: bool = False) -> list[_Step]:
        """Returns the steps from the root to a leaf's first entry from `key` on; it may be behind the leaf's last.
        Without `key` they lead to the first entry of all, or to the last.
        """
        way: list[_Step] = []
        if self._depth:
            self.descend(way, (self._meta.rows.root, b"", None), key, last)
        return way

    def descend(self, way: list[_Step], child: Child, key: bytes | None, last: bool) -> None:
        """Adds the steps from `child`, which the last step leads to, down to a leaf."""
        for height in range(self._depth - 1 - len(way), -1, -1):
            page = self._page(child, height)
            if key is not None:
                at = (bisect_right if height else bisect_left)(page.keys, key)
            else:
                at = len(page.children or page.keys) - 1 if last else 0
            way.append((page, at))
            if height:
                child = page.children[at]

    def _page(self, child: Child, height: int) -> _Page:
        bounds = *child[1:], height
        page = self._pages.pop(child[0], None)
        if page is None or page.bounds != bounds:
            page = self._checked(child, height)
            if len(self._pages) >= _HELD_PAGES:
                del self._pages[next(iter(self._pages))]  # the one that was used least recently
        self._pages[child[0]] = page
        return page

    def _checked(self, child: Child, height: int) -> _Page:
        self._check_open()
        number, low, high = child
        file, size = self._file, self._meta.size
        try:
            if not 2 <= number < self._end:
                raise Damaged(f"page {number}, of which another page tells, is not in the file")
            data = file.read(number, size)
            if height:
                children = file.branch(child, data, 0, least=2)
                keys = [key for _, key, _ in children[1:]]
                file.check_keys(child, keys)
                return _Page((low, high, height), keys, children, b"", ())
            elsewhere: list[Elsewhere] = []
            offsets, keys = file.leaf(number, data, 0, elsewhere)
            file.check_keys(child, keys)
            self._whole[number >> 3] |= 1 << (number & 7)
            return _Page((low, high, height), keys, [], data, offsets)
        except OSError as error:
            raise io_error(error, self._path) from error
        except Damaged as damaged:
            raise _corruption(self._path, damaged) from damaged

    def entry(self, data: bytes, offset: int) -> tuple[bytes, bytes]:
        """Returns the key and value of an entry of a leaf; checks the value's overflow pages."""
        try:
            return self._file.entry(data, offset)
        except OSError as error:
            raise io_error(error, self._path) from error
        except Damaged as damaged:
            raise _corruption(self._path, damaged) from damaged

    def _check_open(self) -> None:
        if self._txn is None:
            raise EngineClosed("the store was closed while it was read")


class CheckedCursor:
    """A cursor like lmdb.Cursor. Where it is at no entry, its key is b""."""

    def __init__(self, reading: CheckedReading) -> None:
        self._reading = reading
        self._set([])

    def __enter__(self) -> "CheckedCursor":
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        found = self._count or self.first()
        while found:
            yield self.item()
            found = self.next()

    def _set(self, way: list[_Step]) -> bool:
        self._way = way
        if way:
            leaf, self._at = way[-1]
            self._keys, self._data, self._offsets = leaf.keys, leaf.data, leaf.offsets
            self._count = len(leaf.keys)
        else:
            self._keys, self._at, self._count = [b""], 0, 0
        return self._count > 0

    def key(self) -> bytes:
        return self._keys[self._at]

    def item(self) -> tuple[bytes, bytes]:
        if not self._count:
            return b"", b""
        return self._reading.entry(self._data, self._offsets[self._at])

    def first(self) -> bool:
        return self._set(self._reading.way())

    def last(self) -> bool:
        return self._set(self._reading.way(last=True))

    def set_range(self, key: bytes) -> bool:
        """Moves to the first entry from `key` on."""
        found = self._set(self._reading.way(key))
        return self._move(1) if found and self._at == self._count else found

    def next(self) -> bool:
        at = self._at + 1
        if at < self._count:
            self._at = at
            return True
        return self._move(1) if self._count else self.first()

    def prev(self) -> bool:
        if self._at > 0:
            self._at -= 1
            return True
        return self._move(-1) if self._count else self.last()

    def _move(self, by: int) -> bool:
        """Moves to the next leaf's first entry, or to the previous leaf's last."""
        way = self._way
        way.pop()
        while way:
            page, at = way.pop()
            at += by
            if 0 <= at < len(page.children):
                way.append((page, at))
                self._reading.descend(way, page.children[at], None, by < 0)
                return self._set(way)
        return self._set([])
