"""Maps payload addresses to places in files, as extents in LMDB; table.py calls it.

    a<address 8>   (file, offset, length)     an extent: payload bytes that are live, and where
    s<file>        (live bytes, lowest address, end of the highest)

A turn (a batch of inputs that one commit makes durable) appends one extent; dropping payload trims, splits or
deletes it. Rewriting (compaction.py) joins extents whose addresses follow one another.

Next: ../tables/table.py.
"""

from typing import Any, NamedTuple

import msgpack

from ..tables.checksums import between, look_up, seal, unseal


class Extent(NamedTuple):
    """A run of live payload: `length` bytes from `address` on, at `offset` of a file."""

    address: int
    file: str
    offset: int
    length: int


def address_key(address: int) -> bytes:
    return b"a" + address.to_bytes(8, "big")


def decode_extent(key: bytes, value: bytes) -> Extent:
    return Extent(int.from_bytes(key[1:], "big"), *unseal(key, value))


def extent_at(cursor: Any, address: int) -> Extent | None:
    key = address_key(address)
    if not cursor.set_range(key) or cursor.key() != key:
        # When set_range finds nothing at or after the key, the cursor has no place to step back from.
        found = cursor.prev() if cursor.key() else cursor.last()
        while found and cursor.key() > key:
            found = cursor.prev()
        if not found:
            return None
    if cursor.key()[:1] != b"a":
        return None
    extent = decode_extent(*cursor.item())
    return extent if address < extent.address + extent.length else None


def _count(txn: Any, file: str, live: int, low: int, high: int) -> None:
    """Adds `live` bytes (may be negative) to a file's count, and widens its address range."""
    key = b"s" + file.encode()
    stored = look_up(txn, key)
    if stored is not None:
        before, lowest, highest = stored
        live, low, high = live + before, min(low, lowest), max(high, highest)
    if live:
        txn.put(key, seal(key, (live, low, high)))
    else:
        txn.delete(key)


def _put(txn: Any, extent: Extent) -> None:
    key = address_key(extent.address)
    txn.put(key, seal(key, extent[1:]))


def put_extents(txn: Any, extents: list[Extent]) -> None:
    sums: dict[str, list[int]] = {}
    pack = msgpack.Packer(use_bin_type=True).pack
    entries = []
    for extent in extents:
        address, file, _, length = extent
        key = address_key(address)
        entries.append((key, seal(key, extent[1:], pack)))
        end = address + length
        held = sums.setdefault(file, [0, address, end])
        held[:] = held[0] + length, min(held[1], address), max(held[2], end)
    with txn.cursor() as cursor:
        cursor.putmulti(entries)
    for file, (live, low, high) in sums.items():
        _count(txn, file, live, low, high)


def delete_within(txn: Any, extent: Extent) -> None:
    """Deletes the extents that begin in `extent`; their files' counts stay."""
    end = address_key(extent.address + extent.length)
    with txn.cursor() as cursor:
        found = cursor.set_range(address_key(extent.address))
        while found and cursor.key() < end:
            found = cursor.delete() and cursor.key() != b""


def drop(txn: Any, address: int, length: int) -> None:
    """Removes [address, address + length) from the extent that holds it."""
    with txn.cursor() as cursor:
        extent = extent_at(cursor, address)
    if extent is None:
        return
    start, file, offset, held = extent
    stop, end = min(address + length, start + held), start + held
    if start < address:
        _put(txn, Extent(start, file, offset, address - start))
    else:
        txn.delete(address_key(start))
    if stop < end:
        _put(txn, Extent(stop, file, offset + stop - start, end - stop))
    _count(txn, file, address - stop, start, end)


def live_bytes(txn: Any) -> dict[str, int]:
    """Returns live bytes by file. Files not named here are removed, so the scan must detect a damaged key."""
    live: dict[str, int] = {}
    with txn.cursor() as cursor:
        for key, value in between(cursor, b"s", b"t"):
            live[key[1:].decode()] = unseal(key, value)[0]
    return live
