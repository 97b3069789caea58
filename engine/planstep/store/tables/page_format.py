"""Decodes pages of the tables' file, and checks each by itself. The file is read, and not mapped.

    a page ─▶ its own number, its kind, the bounds of its entries, the order of its keys ─▶ children, or keys

Values are not checked: they have their checksums (checksums.py). Files of LMDB 1.0 and other byte orders are for
LMDB to judge.

Next: page_check.py.
"""

import os
import sys
from array import array
from operator import lt
from struct import Struct
from typing import NamedTuple

from .header_check import MAGIC, VERSION

_META_BYTES = 152
_META_HEAD = Struct("=QHHIII")  # page number, _, flags, _, magic, version
_TREE = Struct("=IHH32xQ")  # page size (of the first), flags, depth, counts, root
_FREE_AT, _ROWS_AT, _LAST_AT = 40, 88, 136
_LAST = Struct("=QQ")  # last page, transaction
_HEAD = Struct("=QHHHH")  # page number, _, flags, end of the entries' offsets, begin of the entries
_OVERFLOW = Struct("=QHHI")  # page number, _, flags, pages
_ENTRY = Struct("=HIH")  # size, low half; size, high half and flags; size of the key
HEAD_BYTES, _ENTRY_BYTES, _NUMBER_BYTES = 16, 8, 8
BRANCH, LEAF, _OVERFLOWN, _META = 1, 2, 4, 8
_ELSEWHERE = 1 << 16
"""Flag of an entry whose value is in overflow pages, as `_ENTRY` reads it."""
_EMPTY = (1 << 64) - 1
_DEPTH_MAX = 32

Child = tuple[int, bytes, bytes | None]
"""A page, and its keys' bounds: the first that may be in it, the first beyond."""
Elsewhere = tuple[int, int, int]
"""The first overflow page of a value, the value's bytes, and the page that tells of it."""


class Damaged(Exception):
    """Names the page and its damage."""


class Root(NamedTuple):
    """A tree: its flags, its depth in pages, its root; the depth is 0 if it is empty."""

    flags: int
    depth: int
    root: int


class Meta(NamedTuple):
    """A meta page: the bytes of a page, both trees, the last page, the transaction."""

    size: int
    free: Root
    rows: Root
    last: int
    transaction: int


def read_metas(fd: int) -> tuple[Meta, Meta] | None:
    """Reads both meta pages; None if they are not those of LMDB 0.9: LMDB itself refuses unknown files."""
    first = os.pread(fd, _META_BYTES, 0)
    if not _is_meta(first):
        return None
    size = _TREE.unpack_from(first, _FREE_AT)[0]
    second = os.pread(fd, _META_BYTES, size)
    return (_decode(first), _decode(second)) if _is_meta(second) else None


def _is_meta(data: bytes) -> bool:
    if len(data) < _META_BYTES or sys.byteorder != "little":
        return False
    _, _, flags, _, magic, version = _META_HEAD.unpack_from(data)
    return bool(flags & _META) and magic == MAGIC and version & 0xFFFF == VERSION


def _decode(data: bytes) -> Meta:
    size, *free = _TREE.unpack_from(data, _FREE_AT)
    _, *rows = _TREE.unpack_from(data, _ROWS_AT)
    return Meta(size, Root(*free), Root(*rows), *_LAST.unpack_from(data, _LAST_AT))


def check_metas(metas: tuple[Meta, Meta], which: int) -> Meta:
    """Returns one of the meta pages, after checking what it says of itself."""
    meta, sizes, size = metas[which], [meta.size for meta in metas], metas[0].size
    if sizes[1] != size or size & (size - 1) or not 256 <= size <= 1 << 15:
        raise Damaged(f"the meta pages say that pages have {sizes[0]} and {sizes[1]} bytes")
    if meta.transaction and meta.transaction % 2 != which:
        raise Damaged(f"meta page {which} is that of transaction {meta.transaction}")
    if meta.rows.flags:  # the engine's tables have no flags
        raise Damaged(f"the meta page says that the rows are of kind {meta.rows.flags:#x}")
    return meta


def is_empty(tree: Root) -> bool:
    """Returns whether a tree has no pages, after checking its depth."""
    if tree.root == _EMPTY:
        if tree.depth:
            raise Damaged(f"the meta page gives an empty tree a depth of {tree.depth} pages")
        return True
    if not 1 <= tree.depth <= _DEPTH_MAX:
        raise Damaged(f"the meta page says that a tree is {tree.depth} pages deep")
    return False


def key_at(data: bytes, offset: int) -> bytes:
    """Returns the key of an entry of a checked leaf."""
    begin = offset + _ENTRY_BYTES
    return data[begin : begin + _ENTRY.unpack_from(data, offset)[2]]


class PageFile:
    """The pages of one file; `data` and `at` of its methods are bytes, and a page's offset in them."""

    def __init__(self, fd: int, size: int) -> None:
        """`size`: the bytes of a page."""
        self._fd = fd
        self._size = size

    def read(self, number: int, length: int) -> bytes:
        data = os.pread(self._fd, length, number * self._size)
        if len(data) < length:
            raise Damaged(f"page {number} is cut off")
        return data

    def offsets(self, number: int, data: bytes, at: int, kind: int, least: int) -> "array[int]":
        """Returns the offsets of a page's entries, after checking their bounds."""
        own, _, flags, lower, upper = _HEAD.unpack_from(data, at)
        if own != number or flags != kind:
            what = f"{'a leaf' if kind == LEAF else 'a branch page'} of that number"
            raise Damaged(f"page {number} is not {what}")
        if lower < HEAD_BYTES + 2 * least or lower & 1 or not lower <= upper <= self._size:
            raise Damaged(f"page {number} has its entries' offsets up to {lower} of {upper}")
        offsets = array("H", data[at + HEAD_BYTES : at + lower])
        if min(offsets) < upper or max(offsets) > self._size - _ENTRY_BYTES:
            raise Damaged(f"page {number} has an entry beyond its bounds")
        return offsets

    def branch(self, page: Child, data: bytes, at: int, least: int) -> list[Child]:
        """Returns a branch page's children, at least `least`."""
        number, low, high = page
        children, keys, used = [], [], 0
        for offset in self.offsets(number, data, at, BRANCH, least):
            child, above, key = _ENTRY.unpack_from(data, at + offset)
            if offset + _ENTRY_BYTES + key > self._size:
                raise Damaged(f"page {number} has a key beyond its bounds")
            used += (_ENTRY_BYTES + 1 + key) & ~1
            children.append(child | above << 16)
            begin = at + offset + _ENTRY_BYTES
            keys.append(data[begin : begin + key])
        self._check_used(number, data, at, used)
        return list(zip(children, [low, *keys[1:]], [*keys[1:], high], strict=True))

    def leaf(
        self, number: int, data: bytes, at: int, elsewhere: list[Elsewhere]
    ) -> tuple["array[int]", list[bytes]]:
        """Returns the entries' offsets and keys; adds the values that are in overflow pages."""
        offsets = self.offsets(number, data, at, LEAF, 1)
        if len(set(offsets)) < len(offsets):
            raise Damaged(f"page {number} has an entry twice, in place of another")
        entry, last = _ENTRY.unpack_from, self._size - _ENTRY_BYTES
        used = 0
        keys = []
        for offset in offsets:
            size, high, key = entry(data, at + offset)
            begin = at + offset + _ENTRY_BYTES
            keys.append(data[begin : begin + key])
            if high:
                if high & ~0xFFFF != _ELSEWHERE:
                    raise Damaged(
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
                raise Damaged(f"page {number} has a value beyond its bounds")
            used += (size + 9) & ~1
        self._check_used(number, data, at, used)
        return offsets, keys

    def check_keys(self, page: Child, keys: list[bytes]) -> None:
        """Checks that keys are in order and within the page's bounds, so that a lookup of one of them finds it."""
        number, low, high = page
        if keys[0] < low or (high is not None and keys[-1] >= high):
            raise Damaged(f"page {number} has keys that belong to another")
        if not all(map(lt, keys, keys[1:])):
            raise Damaged(f"page {number} has keys out of order")

    def _check_used(self, number: int, data: bytes, at: int, used: int) -> None:
        """Checks the sum of entry sizes. LMDB leaves no gaps; with a wrong size it would move others' bytes when it
        deletes the entry.
        """
        if used != self._size - _HEAD.unpack_from(data, at)[4]:
            raise Damaged(f"page {number} has entries of {used} bytes where others are")

    def check_overflow(self, number: int, size: int) -> int:
        """Checks the first of a value's overflow pages; returns how many there are. `size`: the value's bytes."""
        own, _, flags, pages = _OVERFLOW.unpack(self.read(number, _OVERFLOW.size))
        if own != number or flags != _OVERFLOWN:
            raise Damaged(f"page {number} is not an overflow page of that number")
        if pages * self._size < HEAD_BYTES + size:
            raise Damaged(f"page {number}: {pages} pages do not hold {size} bytes")
        return int(pages)

    def entry(self, data: bytes, at: int) -> tuple[bytes, bytes]:
        """Returns the key and value of an entry of a checked page, and checks the value's overflow pages; `at`: the
        entry's offset.
        """
        size, high, key = _ENTRY.unpack_from(data, at)
        begin = at + _ENTRY_BYTES
        end = begin + key
        if not high:
            return data[begin:end], data[end : end + size]
        number = int.from_bytes(data[end : end + _NUMBER_BYTES], "little")
        size |= (high & 0xFFFF) << 16
        self.check_overflow(number, size)
        return data[begin:end], self.read(number, HEAD_BYTES + size)[HEAD_BYTES:]
