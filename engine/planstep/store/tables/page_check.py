"""Checks all of the tables' pages for an owner, before LMDB follows them: it ends the process at a damaged page.

    the newer meta page ─┬▶ rows: root ─▶ branch pages ─▶ leaves ─▶ overflow pages
                         └▶ free pages: the same, and no page that is in use among them

It checks each page's own number, its kind, the bounds of its entries, and a leaf's key order; each page, and
each entry, occurs once. It does not check values: they have their checksums (checksums.py), and `planstep
verify` takes the time to read all. It goes through the tree level by level, so it reads pages in the
order of the file.

Leaves of large tables are skipped: some 2 ms for each MB are too long a wait for GBs; there LMDB still ends
the process at a damaged one.

Next: page_reader.py.
"""

import os
from array import array
from collections.abc import Iterator
from pathlib import Path

from ...errors import Corruption
from ..files import io_error, open_file, shown
from .header_check import DATA_FILE
from .page_format import (
    Child,
    Damaged,
    Elsewhere,
    Meta,
    PageFile,
    Root,
    check_metas,
    is_empty,
    read_metas,
)

LEAVES_UP_TO = 256 << 20
"""Tables up to this many bytes have their leaves checked: half a second."""
_PIECE_PAGES = 256
_GAP_PAGES = 8
"""Reads across gaps of up to this many unwanted pages: a separate call costs as much."""


def check_tree(folder: Path) -> None:
    """Checks all pages that an owner may follow or write to. Corruption, IoError."""
    path = folder / DATA_FILE
    try:
        fd = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    except OSError as error:
        raise io_error(error, path) from error
    try:
        metas = read_metas(fd)
        if metas is not None:
            _Look(fd, *metas).look()
    except Damaged as damaged:
        raise Corruption(f"{shown(path)}: damaged: {damaged}") from damaged
    except OSError as error:
        raise io_error(error, path) from error
    finally:
        os.close(fd)


class _Look(PageFile):
    """One check of the trees that the newer of two meta pages describes."""

    def __init__(self, fd: int, first: Meta, second: Meta) -> None:
        which = int(second.transaction > first.transaction)
        self._meta = meta = check_metas((first, second), which)
        super().__init__(fd, meta.size)
        self._last = meta.last
        pages = os.fstat(fd).st_size // meta.size
        self._met = bytearray(min(pages, meta.last + 1))
        self._met[:2] = b"\1\1"
        self._leaves = len(self._met) * meta.size <= LEAVES_UP_TO

    def look(self) -> None:
        for _ in self._walk(self._meta.rows, least=2):
            pass
        for transaction, numbers in self._walk(self._meta.free, least=1, values=True):
            self._check_free(transaction, numbers)

    def _walk(
        self, tree: Root, *, least: int, values: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Walks a tree level by level; yields the leaves' entries with `values`. `least`: children of a branch
        page.
        """
        if is_empty(tree):
            return
        depth, root = tree.depth, tree.root
        self._meet(root, 1, 0)
        level: list[Child] = [(root, b"", None)]
        for height in range(depth - 1, 0, -1):
            level = self._below(level, least, values or self._leaves or height > 1)
        if not (values or self._leaves or depth == 1):
            return
        elsewhere: list[Elsewhere] = []
        for page, data, at in self._pages(level):
            offsets, keys = self.leaf(page[0], data, at, elsewhere)
            if values:
                yield from (self.entry(data, at + offset) for offset in offsets)
            else:
                self.check_keys(page, keys)
        self._check_elsewhere(elsewhere)

    def _below(self, level: list[Child], least: int, kept: bool) -> list[Child]:
        """Returns the next level; if it is not `kept`, only marks its pages as met and returns []."""
        below: list[Child] = []
        for page, data, at in self._pages(level):
            children = self.branch(page, data, at, least)
            for child, _, _ in children:
                self._meet(child, 1, page[0])
            if kept:
                below += children
        return sorted(below)

    def _meet(self, number: int, pages: int, parent: int) -> None:
        end = number + pages
        if end > len(self._met) or any(self._met[number:end]):
            why = "is not in the file" if end > len(self._met) else "is in use twice"
            raise Damaged(f"page {number}, of which page {parent} tells, {why}")
        self._met[number:end] = b"\1" * pages

    def _pages(self, level: list[Child]) -> Iterator[tuple[Child, bytes, int]]:
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
            data = self.read(first, (level[end - 1][0] + 1 - first) * size)
            for page in level[begin:end]:
                yield page, data, (page[0] - first) * size
            begin = end

    def _check_elsewhere(self, values: list[Elsewhere]) -> None:
        for number, size, parent in sorted(values):
            self._meet(number, 1, parent)
            pages = self.check_overflow(number, size)
            if pages > 1:
                self._meet(number + 1, pages - 1, parent)

    def _check_free(self, transaction: bytes, value: bytes) -> None:
        """Checks the pages that LMDB will write to: in the file's bounds, each once, none of them in use."""
        free = array("Q", value[: len(value) & ~7])
        number = int.from_bytes(transaction, "little")
        if len(transaction) != 8 or not free or free[0] != len(free) - 1 or len(value) & 7:
            raise Damaged(f"the free-page list of transaction {number} is malformed")
        for page in free[1:]:
            if not 2 <= page <= self._last or (page < len(self._met) and self._met[page]):
                raise Damaged(f"page {page} is in use, and free since transaction {number}")
            if page < len(self._met):
                self._met[page] = 1
