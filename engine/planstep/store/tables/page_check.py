"""Checks the tables' pages before LMDB follows them: LMDB ends the process at a damaged page.

    the newer meta page ─┬▶ rows: root ─▶ branch pages ─▶ leaves ─▶ overflow pages
                         └▶ free pages: the same, and no page that is in use among them

It checks each page's own number, its kind, the bounds of its entries, and a leaf's key order; each page, and
each entry, occurs once. It does not check values: they have their checksums (checksums.py), and `planstep
verify` takes the time to read all. It goes through the tree level by level, so it reads pages in the
order of the file.

A reader checks while an owner writes. LMDB writes to no page of the two newest commits, so a tree found
damaged is damaged if the meta pages are still the same. Otherwise it is checked again.

Leaves of large tables are skipped: some 2 ms for each MB are too long a wait for GBs; there LMDB still ends
the process at a damaged one. Files of LMDB 1.0 and other byte orders are for LMDB to judge.

Next: create.py.
"""

import os
import sys
from array import array
from collections.abc import Iterator
from operator import lt
from pathlib import Path
from struct import Struct

from ...errors import Corruption
from ..files import io_error, open_file, shown
from .header_check import DATA_FILE, MAGIC, VERSION

LEAVES_UP_TO = 256 << 20
"""Tables up to this many bytes have their leaves checked: half a second."""
_TRIES = 20
_PIECE_PAGES = 256
_GAP_PAGES = 8
"""Reads across gaps of up to this many unwanted pages: a separate call costs as much."""

_META_BYTES = 152
_META_HEAD = Struct("=QHHIII")  # page number, _, flags, _, magic, version
_TREE = Struct("=IHH32xQ")  # page size (of the first), flags, depth, counts, root
_FREE_AT, _ROWS_AT, _LAST_AT = 40, 88, 136
_LAST = Struct("=QQ")  # last page, transaction
_HEAD = Struct("=QHHHH")  # page number, _, flags, end of the entries' offsets, begin of the entries
_OVERFLOW = Struct("=QHHI")  # page number, _, flags, pages
_ENTRY = Struct("=HIH")  # size, low half; size, high half and flags; size of the key
_HEAD_BYTES, _ENTRY_BYTES, _NUMBER_BYTES = 16, 8, 8
_BRANCH, _LEAF, _OVERFLOWN, _META = 1, 2, 4, 8
_ELSEWHERE = 1 << 16
"""Flag of an entry whose value is in overflow pages, as `_ENTRY` reads it."""
_EMPTY = (1 << 64) - 1
_DEPTH_MAX = 32

_Child = tuple[int, bytes, bytes | None]
"""A page, and its keys' bounds: the first that may be in it, the first beyond."""


class _Damaged(Exception):
    """Names the page and its damage."""


def check_tree(folder: Path, *, free: bool) -> None:
    """Raises Corruption if a page is damaged. With `free`, for writers, it checks the free pages too."""
    path = folder / DATA_FILE
    try:
        fd = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    except OSError as error:
        raise io_error(error, path) from error
    try:
        for _ in range(_TRIES):
            metas = _metas(fd)
            try:
                if metas is not None:
                    _Look(fd, *metas).look(free)
                return
            except _Damaged as damaged:
                if _metas(fd) == metas:
                    raise Corruption(f"{shown(path)}: damaged: {damaged}") from damaged
    except OSError as error:
        raise io_error(error, path) from error
    finally:
        os.close(fd)


def _metas(fd: int) -> tuple[bytes, bytes] | None:
    """Reads both meta pages; None if they are not those of LMDB 0.9: LMDB itself refuses unknown files."""
    first = os.pread(fd, _META_BYTES, 0)
    if not _is_meta(first):
        return None
    size = _TREE.unpack_from(first, _FREE_AT)[0]
    second = os.pread(fd, _META_BYTES, size)
    return (first, second) if _is_meta(second) else None


def _is_meta(data: bytes) -> bool:
    if len(data) < _META_BYTES or sys.byteorder != "little":
        return False
    _, _, flags, _, magic, version = _META_HEAD.unpack_from(data)
    return bool(flags & _META) and magic == MAGIC and version & 0xFFFF == VERSION


class _Look:
    """One check of the tree that the newer of two meta pages describes."""

    def __init__(self, fd: int, first: bytes, second: bytes) -> None:
        numbers = [_LAST.unpack_from(data, _LAST_AT)[1] for data in (first, second)]
        which = int(numbers[1] > numbers[0])
        self._meta = (first, second)[which]
        sizes = [_TREE.unpack_from(data, _FREE_AT)[0] for data in (first, second)]
        self._size: int = sizes[0]
        size = self._size
        if sizes[1] != size or size & (size - 1) or not 256 <= size <= 1 << 15:
            raise _Damaged(f"the meta pages say that pages have {sizes[0]} and {sizes[1]} bytes")
        self._transaction: int = numbers[which]
        if self._transaction and self._transaction % 2 != which:
            raise _Damaged(f"meta page {which} is that of transaction {self._transaction}")
        self._fd = fd
        self._file_pages = os.fstat(fd).st_size // size
        self._last: int = _LAST.unpack_from(self._meta, _LAST_AT)[0]
        self._met = bytearray(min(self._file_pages, self._last + 1))
        self._met[:2] = b"\1\1"
        self._leaves = len(self._met) * size <= LEAVES_UP_TO

    def look(self, free: bool) -> None:
        _, flags, depth, root = _TREE.unpack_from(self._meta, _ROWS_AT)
        if flags:  # the engine's tables have no flags
            raise _Damaged(f"the meta page says that the rows are of kind {flags:#x}")
        for _ in self._walk(depth, root, least=2):
            pass
        if not free:
            return
        _, _, depth, root = _TREE.unpack_from(self._meta, _FREE_AT)
        for transaction, numbers in self._walk(depth, root, least=1, values=True):
            self._check_free(transaction, numbers)

    def _walk(
        self, depth: int, root: int, *, least: int, values: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Walks a tree level by level; yields the leaves' entries with `values`. `least`: children of a branch
        page.
        """
        if root == _EMPTY:
            if depth:
                raise _Damaged(f"the meta page gives an empty tree a depth of {depth} pages")
            return
        if not 1 <= depth <= _DEPTH_MAX:
            raise _Damaged(f"the meta page says that a tree is {depth} pages deep")
        self._meet(root, 1, 0)
        level: list[_Child] = [(root, b"", None)]
        for height in range(depth - 1, 0, -1):
            level = self._below(level, least, values or self._leaves or height > 1)
        if not (values or self._leaves or depth == 1):
            return
        elsewhere: list[tuple[int, int, int]] = []
        for page, data, at in self._pages(level):
            offsets, keys = self._leaf(page[0], data, at, elsewhere)
            if values:
                yield from self._entries(data, at, offsets)
            else:
                self._check_keys(page, keys)
        self._check_elsewhere(elsewhere)

    def _below(self, level: list[_Child], least: int, kept: bool) -> list[_Child]:
        """Returns the next level; if it is not `kept`, only marks its pages as met and returns []."""
        below: list[_Child] = []
        for page, data, at in self._pages(level):
            children = self._branch(page, data, at, least)
            for child, _, _ in children:
                self._meet(child, 1, page[0])
            if kept:
                below += children
        return sorted(below)

    def _meet(self, number: int, pages: int, parent: int) -> None:
        end = number + pages
        if end > len(self._met) or any(self._met[number:end]):
            why = "is not in the file" if end > len(self._met) else "is in use twice"
            raise _Damaged(f"page {number}, of which page {parent} tells, {why}")
        self._met[number:end] = b"\1" * pages

    def _pages(self, level: list[_Child]) -> Iterator[tuple[_Child, bytes, int]]:
        """Yields (page, bytes, its offset in them) for pages in ascending order."""
        size, begin = self._size, 0
        while begin < len(level):
            first, end = level[begin][0], begin + 1
            while (
                end < len(level)
                and level[end][0] - level[end - 1][0] <= _GAP_PAGES
                and level[end][0] - first < _PIECE_PAGES
            ):
                end += 1
            data = self._read(first, (level[end - 1][0] + 1 - first) * size)
            for page in level[begin:end]:
                yield page, data, (page[0] - first) * size
            begin = end

    def _read(self, number: int, length: int) -> bytes:
        data = os.pread(self._fd, length, number * self._size)
        if len(data) < length:
            raise _Damaged(f"page {number} is cut off")
        return data

    def _offsets(self, number: int, data: bytes, at: int, kind: int, least: int) -> "array[int]":
        """Returns the offsets of a page's entries, after checking their bounds."""
        own, _, flags, lower, upper = _HEAD.unpack_from(data, at)
        if own != number or flags != kind:
            what = f"{'a leaf' if kind == _LEAF else 'a branch page'} of that number"
            raise _Damaged(f"page {number} is not {what}")
        if lower < _HEAD_BYTES + 2 * least or lower & 1 or not lower <= upper <= self._size:
            raise _Damaged(f"page {number} has its entries' offsets up to {lower} of {upper}")
        offsets = array("H", data[at + _HEAD_BYTES : at + lower])
        if min(offsets) < upper or max(offsets) > self._size - _ENTRY_BYTES:
            raise _Damaged(f"page {number} has an entry beyond its bounds")
        return offsets

    def _branch(self, page: _Child, data: bytes, at: int, least: int) -> list[_Child]:
        number, low, high = page
        children, keys, used = [], [], 0
        for offset in self._offsets(number, data, at, _BRANCH, least):
            child, above, key = _ENTRY.unpack_from(data, at + offset)
            if offset + _ENTRY_BYTES + key > self._size:
                raise _Damaged(f"page {number} has a key beyond its bounds")
            used += (_ENTRY_BYTES + 1 + key) & ~1
            children.append(child | above << 16)
            begin = at + offset + _ENTRY_BYTES
            keys.append(data[begin : begin + key])
        self._check_used(number, data, at, used)
        return list(zip(children, [low, *keys[1:]], [*keys[1:], high], strict=True))

    def _leaf(
        self, number: int, data: bytes, at: int, elsewhere: list[tuple[int, int, int]]
    ) -> tuple["array[int]", list[bytes]]:
        """Returns the entries' offsets and keys; adds (first page, bytes, page) of values in overflow pages."""
        offsets = self._offsets(number, data, at, _LEAF, 1)
        if len(set(offsets)) < len(offsets):
            raise _Damaged(f"page {number} has an entry twice, in place of another")
        entry, last = _ENTRY.unpack_from, self._size - _ENTRY_BYTES
        used = 0
        keys = []
        for offset in offsets:
            size, high, key = entry(data, at + offset)
            begin = at + offset + _ENTRY_BYTES
            keys.append(data[begin : begin + key])
            if high:
                if high & ~0xFFFF != _ELSEWHERE:
                    raise _Damaged(
                        f"page {number} has an entry of a kind that the engine never writes"
                    )
                size |= (high & 0xFFFF) << 16
                if offset + key + _NUMBER_BYTES <= last:
                    where = begin + key
                    page = int.from_bytes(data[where : where + _NUMBER_BYTES], "little")
                    elsewhere.append((page, size, number))
                size = _NUMBER_BYTES
            size += key
            if offset + size > last:
                raise _Damaged(f"page {number} has a value beyond its bounds")
            used += (size + 9) & ~1
        self._check_used(number, data, at, used)
        return offsets, keys

    def _check_keys(self, page: _Child, keys: list[bytes]) -> None:
        """Checks that keys are in order and within the page's bounds, so that a lookup of one of them finds it."""
        number, low, high = page
        if keys[0] < low or (high is not None and keys[-1] >= high):
            raise _Damaged(f"page {number} has keys that belong to another")
        if not all(map(lt, keys, keys[1:])):
            raise _Damaged(f"page {number} has keys out of order")

    def _check_used(self, number: int, data: bytes, at: int, used: int) -> None:
        """Checks the sum of entry sizes. LMDB leaves no gaps; with a wrong size it would move others' bytes when it
        deletes the entry.
        """
        if used != self._size - _HEAD.unpack_from(data, at)[4]:
            raise _Damaged(f"page {number} has entries of {used} bytes where others are")

    def _check_elsewhere(self, values: list[tuple[int, int, int]]) -> None:
        for number, size, parent in sorted(values):
            self._meet(number, 1, parent)
            own, _, flags, pages = _OVERFLOW.unpack(self._read(number, _OVERFLOW.size))
            if own != number or flags != _OVERFLOWN:
                raise _Damaged(f"page {number} is not an overflow page of that number")
            if pages * self._size < _HEAD_BYTES + size:
                raise _Damaged(f"page {number}: {pages} pages do not hold {size} bytes")
            if pages > 1:
                self._meet(number + 1, pages - 1, parent)

    def _entries(
        self, data: bytes, at: int, offsets: "array[int]"
    ) -> Iterator[tuple[bytes, bytes]]:
        for offset in offsets:
            size, high, key = _ENTRY.unpack_from(data, at + offset)
            begin = at + offset + _ENTRY_BYTES
            name, value = data[begin : begin + key], data[begin + key : begin + key + size]
            if high:
                number = int.from_bytes(data[begin + key : begin + key + _NUMBER_BYTES], "little")
                size |= (high & 0xFFFF) << 16
                value = self._read(number, _HEAD_BYTES + size)[_HEAD_BYTES:]
            yield name, value

    def _check_free(self, transaction: bytes, value: bytes) -> None:
        """Checks the pages that LMDB will write to: in the file's bounds, each once, none of them in use."""
        free = array("Q", value[: len(value) & ~7])
        number = int.from_bytes(transaction, "little")
        if len(transaction) != 8 or not free or free[0] != len(free) - 1 or len(value) & 7:
            raise _Damaged(f"the free-page list of transaction {number} is malformed")
        for page in free[1:]:
            if not 2 <= page <= self._last or (page < len(self._met) and self._met[page]):
                raise _Damaged(f"page {page} is in use, and free since transaction {number}")
            if page < len(self._met):
                self._met[page] = 1
