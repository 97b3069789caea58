"""Reads what a store shows: rows from memory, and then from LMDB; payloads from the log's segments.

    row      live layer ─▶ frozen layer ─▶ behind the last key of its kind? absent ─▶ LMDB
    payload  run of the log, not in LMDB yet ─▶ LMDB's runs ─▶ segment, place

`get` takes no lock. A scan takes the mutex for a moment, so that its layers and the pinned tables fit together.

Next: unsaved.py.
"""

from ..errors import Corruption, IoError
from ..proto.stored import AnyRow
from .layers import GONE, MISSING, Rows, layered, merged_scan
from .log.extents import Extent
from .log.segments import Folder
from .tables.table import Table
from .unsaved import KIND_BYTES, Ends, Unsaved

_ENDS_MAX = 100_000


class LayeredReads:
    """The reading part of a DiskStore. Invariant: it sees turns that were shown, each of them whole."""

    def __init__(self, unsaved: Unsaved, table: Table, folder: Folder) -> None:
        self._unsaved = unsaved
        self._table = table
        self._folder = folder

    def get(self, key: bytes) -> AnyRow:
        live, frozen, ends = self._unsaved.layers
        value = live.values.get(key, MISSING)
        if value is MISSING:
            if frozen is not None:
                value = frozen.values.get(key, MISSING)
            if value is MISSING:
                end = ends.get(key[:KIND_BYTES])
                if end is None:
                    end = self._find_end(key[:KIND_BYTES], ends)
                return None if key > end else self._table.get(key)
        return None if value is GONE else value

    def _find_end(self, kind: bytes, ends: Ends) -> bytes:
        """Returns the last key in the tables that begins with `kind`, b"" for none, and keeps it in `ends`."""
        end = self._table.last(kind)
        if len(ends) < _ENDS_MAX:
            ends[kind] = end
        return end

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> Rows:
        with self._unsaved.mutex:
            live, frozen, ends = self._unsaved.layers
            layers = [live] if frozen is None else [live, frozen]
            rows = layered(layers, begin, end, reverse, limit)
            kind = begin[:KIND_BYTES]
            if kind == end[:KIND_BYTES]:
                last = ends.get(kind)
                if last is None:
                    last = self._find_end(kind, ends)
                if begin > last:  # LMDB has none of them
                    return merged_scan(rows, iter(rows.pop()), reverse, limit) if any(rows) else []
                if reverse and limit == 1 and (newest := merged_scan(rows, iter(()), True, 1)):
                    if newest[0][0] > last:
                        return newest
            pinned = self._table.pin()  # at the same moment: a checkpoint may be about to finish
        with pinned:
            return merged_scan(rows, self._table.scan(begin, end, reverse, pinned), reverse, limit)

    def read_payload(self, address: int, length: int) -> bytes:
        """Reads payload bytes. IoError or Corruption if they are missing; the batch's CRC detects altered ones."""
        extent = self._extent(address)
        try:
            data = self._folder.read(extent.file, extent.offset + address - extent.address, length)
        except IoError:
            again = self._extent(address)
            if again == extent:
                raise
            # The payload was rewritten and its old file removed between the lookup and the read.
            data = self._folder.read(again.file, again.offset + address - again.address, length)
        if len(data) < length:
            raise Corruption(f"{extent.file}: payload at address {address} is cut off")
        return data

    def _extent(self, address: int) -> Extent:
        extent = self._unsaved.run_at(address) or self._table.find_payload(address)
        if extent is None:
            raise Corruption(f"no payload at address {address}")
        return extent
