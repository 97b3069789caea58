"""Frees the space of a partition's log: trims entries from its front, and deletes the rows of a dropped partition.

For modes whose partition keeps batches and markers in place. Their entries are rows `b<offset 8>` of
(address, length, records, …).

Next: kafka/partition.py.
"""

from collections.abc import Callable

from ..proto.shell import Keys
from ..proto.stored import AnyRow
from .participant import DROPPED

TRIM_SLICES_MAX = 2_000
"""The most entries that one request trims; the client asks again for the rest."""
Removed = Callable[[bytes, AnyRow], None]


def drop_payload(space: Keys, key: bytes, row: AnyRow) -> None:
    """Frees the payload of a row that is deleted, if it is an entry and no marker."""
    if key[:1] == b"b":
        address, length, *_ = row
        if length:
            space.drop_payload(address, length)


def trim_entries(space: Keys, offset: int, most: int, removed: Removed) -> int:
    """Deletes up to `most` entries that end at or before `offset`, calling `removed` for each.

    Returns the log's new start: `offset`, or an earlier one if there are more entries.
    """
    entries: list[tuple[bytes, AnyRow]] = space.scan(
        b"b", b"b" + offset.to_bytes(8, "big"), limit=most
    )
    for key, row in entries:
        behind: int = int.from_bytes(key[1:], "big") + row[2]
        if behind > offset:
            break
        space.delete(key)
        removed(key, row)
    return min(offset, behind) if len(entries) == most else offset


def clean(space: Keys, most: int) -> None:
    """Deletes up to `most` rows of a dropped partition, with their payloads; the row `x` stays for ever."""
    if space.get(DROPPED) is None:
        return  # not dropped yet
    for key, row in space.scan(b"", b"\xff", limit=most):
        if key != DROPPED:
            drop_payload(space, key, row)
            space.delete(key)
