"""Writes a checkpoint's rows into LMDB in the order of their keys, and each tablet's digest over them.

    entry as it was ─▶ its share is taken off ─▶ entry as it is now ─▶ its share is added ─▶ d<tablet>

A tablet's digest is the sum, modulo 2^64, of its entries' seals. Tablets of format 1 have (digest, entries), over a
longer hash of each entry, and keep it.

Next: table.py.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import msgpack

from ..layers import GONE, Changes
from .checksums import SEAL_BYTES, NeighbourCheck, look_up, seal

_MASK = (1 << 64) - 1
_REST_EVERY = 1024
"""Changes of a checkpoint between two rests: some 2 ms."""
_SEALS = 1
"""Marks a tablet's digest that is the sum of its entries' seals."""


def hash_entry(key: bytes, value: bytes) -> int:
    digest = hashlib.blake2b(value, digest_size=8, key=hashlib.sha256(key).digest()).digest()
    return int.from_bytes(digest, "little")


def entry_sum(key: bytes, sealed: bytes, seals: bool) -> int:
    """Returns an entry's share of its tablet's digest; `key` is LMDB's."""
    if seals:
        return int.from_bytes(sealed[-SEAL_BYTES:], "little")
    return hash_entry(key[1:], sealed)


def put_rows(
    txn: Any, before: Any, entries: Changes, beside: NeighbourCheck, rest: Callable[[], None]
) -> int:
    """Writes rows and each tablet's digest over them; returns the bytes. `before`: the tables before this."""
    keys = sorted(entries)
    digests: dict[bytes, list[int]] = {}
    for key in keys:
        if key[1:5] not in digests:
            digests[key[1:5]] = list(look_up(txn, b"d" + key[1:5]) or (0, 0, _SEALS))
    written = 0
    with txn.cursor() as writing, before.cursor() as reading:
        for at in range(0, len(keys), _REST_EVERY):
            some = {key: entries[key] for key in keys[at : at + _REST_EVERY]}
            written += _put_some(writing, reading, some, digests, beside)
            rest()
    for prefix, (digest, count, *seals) in digests.items():
        named = b"d" + prefix
        txn.put(named, seal(named, (digest & _MASK, count, *seals)))
    return written


def _put_some(
    writing: Any,
    reading: Any,
    entries: Changes,
    digests: dict[bytes, list[int]],
    beside: NeighbourCheck,
) -> int:
    """Writes entries in the order of their keys, and counts them in the digests; returns the bytes.

    New entries that follow one another need one look at the neighbours of them all.
    """
    pack = msgpack.Packer(use_bin_type=True).pack
    old = {bytes(key): sealed for key, sealed in reading.getmulti(entries)}
    new: list[tuple[bytes, bytes]] = []
    checked = b""  # up to this key the neighbours of new entries are checked
    for key, value in entries.items():
        digest = digests[key[1:5]]
        held = old.get(key)
        if held is not None:
            digest[0] -= entry_sum(key, held, len(digest) > 2)
            digest[1] -= 1
        if value is GONE:
            continue
        if held is None and key >= checked:
            checked = beside.around(reading, key)
        sealed = seal(key, value, pack)
        new.append((key, sealed))
        digest[0] += entry_sum(key, sealed, len(digest) > 2)
        digest[1] += 1
    writing.putmulti(new)
    for key in old:
        if entries[key] is GONE and writing.set_key(key):
            writing.delete()
    return sum(len(key) + len(sealed) for key, sealed in new)
