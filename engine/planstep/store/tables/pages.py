"""Packs transactions' outcomes into pages: a million of them are kept, and each is small.

    p<key without its last byte>    zlib of msgpack [last byte, row, last byte, row, …]     up to 256 rows

An entry for each would take some 90 bytes of LMDB's pages, and a lookup's and a checksum's time; in a page an
outcome takes some 5 bytes. Ids of transactions grow, so a checkpoint writes the last page again, and new ones.
Tables of format 1 have these rows as entries of their own; such a row stays there until it changes.

Next: table.py.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import msgpack

from ...errors import Corruption
from ...proto.ids import COORDINATOR_ID, tablet_prefix
from ...proto.stored import AnyRow
from ..layers import GONE, Changes
from .checksums import FOREIGN, NeighbourCheck, backwards, between, entry_text, look_up, unseal

PAGED = tablet_prefix(COORDINATOR_ID) + b"o"
"""Rows whose keys begin with this are in pages: coordinator/plan.py, a transaction's outcome."""
PAGED_END = PAGED[:-1] + b"p"
_PAGE_KEY_BYTES = len(PAGED) + 11
_LEVEL = 1
_DECODED_MAX = 8


def _decode(key: bytes, sealed: bytes) -> dict[int, AnyRow]:
    data = unseal(key, sealed)
    try:
        flat = msgpack.unpackb(zlib.decompress(data), use_list=False)
        return dict(zip(flat[::2], flat[1::2], strict=True))
    except (zlib.error, *FOREIGN) as error:
        text = f"the tables are damaged: {entry_text(key)} is not readable: {error}"
        raise Corruption(text) from error


def _encode(rows: dict[int, AnyRow]) -> bytes:
    flat = [item for last in sorted(rows) for item in (last, rows[last])]
    return zlib.compress(msgpack.packb(flat, use_bin_type=True), _LEVEL)


class Pages:
    """Reads and changes pages. Invariant: `_decoded` is bounded, and maps a page's key to its bytes and rows."""

    def __init__(self, beside: NeighbourCheck) -> None:
        self._beside = beside
        self._decoded: dict[bytes, tuple[bytes, dict[int, AnyRow]]] = {}

    def get(self, txn: Any, key: bytes) -> AnyRow:
        return self._rows(txn, b"p" + key[:-1]).get(key[-1])

    def _rows(self, txn: Any, page: bytes) -> dict[int, AnyRow]:
        """Returns a page's rows by the last byte of their keys; they are not to be changed."""
        sealed = txn.get(page)
        if sealed is None:
            look_up(txn, page, self._beside)
            return {}
        known = self._decoded.get(page)
        if known is not None and known[0] == sealed:
            return known[1]
        data = bytes(sealed)
        rows = _decode(page, data)
        if len(self._decoded) >= _DECODED_MAX:
            self._decoded.clear()
        self._decoded[page] = data, rows
        return rows

    def scan(
        self, txn: Any, begin: bytes, end: bytes, reverse: bool
    ) -> Iterator[tuple[bytes, AnyRow]]:
        """Yields the rows in pages with begin <= key < end."""
        first, last = b"p" + begin[:_PAGE_KEY_BYTES], b"p" + end[:_PAGE_KEY_BYTES] + b"\0"
        with txn.cursor() as cursor:
            pages = (backwards if reverse else between)(cursor, first, last, self._beside)
            for page, sealed in pages:
                rows = _decode(page, sealed)
                for name in sorted(rows, reverse=reverse):
                    key = page[1:] + bytes((name,))
                    if begin <= key < end:
                        yield key, rows[name]

    def entries(self, txn: Any, changes: Changes) -> Changes:
        """Returns the changes by LMDB key: rows as they are, those in pages as new pages. `txn` reads the tables
        before the changes.
        """
        entries: Changes = {}
        pages: dict[bytes, dict[int, AnyRow]] = {}
        for key, value in changes.items():
            entries[b"k" + key] = value
            if key[: len(PAGED)] != PAGED:
                continue
            entries[b"k" + key] = GONE  # of format 1
            page = b"p" + key[:-1]
            rows = pages.get(page)
            if rows is None:
                rows = pages[page] = dict(self._rows(txn, page))
            if value is GONE:
                rows.pop(key[-1], None)
            else:
                rows[key[-1]] = value
        for page, rows in pages.items():
            entries[page] = _encode(rows) if rows else GONE
        return entries
