"""Encodes a snapshot's manifest, which names all its parts, and packs, which hold payload.

    manifest   magic 4 | msgpack: the fields of Manifest | blake2b, 16 bytes, of all before
    pack       magic 4 | runs 4 | (address 8, length 8) of each run | payload of the runs, by address

    snap/<turn 20>-<nonce 16>/tables-0000 …   LMDB's file as of that turn, cut into parts
    snap/<turn 20>-<nonce 16>/manifest        written last
    snap/<turn 20>-<nonce 16>/draft           written first: a manifest that names only the packs it takes over
    pack/<turn 20>-<nonce 16>-0000 …          payload, made for the snapshot of that turn

A manifest names packs by their last part alone, and its tables by their number: no name in it leads elsewhere.

Next: snapshots.py.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple

import msgpack

from ..errors import Corruption

SNAP, PACK = "snap/", "pack/"
MANIFEST, DRAFT = "/manifest", "/draft"
STEM = re.compile("([0-9]{20})-[0-9a-f]{16}")
PACK_NAME = re.compile("([0-9]{20})-[0-9a-f]{16}-[0-9]{4,}")
_MAGIC, _PACK_MAGIC = b"PSN1", b"PSP1"
_DIGEST = 16
_HEAD = Struct("<4sI")
_RUN = Struct("<QQ")


class Part(NamedTuple):
    """An object of a snapshot: its size, and the blake2b of its bytes."""

    size: int
    digest: bytes


class Pack(NamedTuple):
    """A pack: its name without `pack/`, the addresses from its first run's to its last one's end, payload bytes."""

    name: str
    begin: int
    end: int
    payload: int
    part: Part


class Manifest(NamedTuple):
    """A snapshot: the store as of `turn`.

    `stem`: its name in `snap/`. `tables_id`: the id in LMDB's file, another one in a seed's. `address`: of the next
    payload byte. `term`: no transaction has an id of a later one. `mark`: the log's, of the entry before the turn
    (owner.OwnerRow). `made_ms`: when, by the maker's clock.
    `is_seed`: the shared log begins behind it, and lacks its turn.
    `digests`: (tablet's prefix, digest, entries) of each tablet.
    """

    stem: str
    store_id: bytes
    tables_id: bytes
    turn: int
    address: int
    term: int
    mark: bytes
    made_ms: int
    is_seed: bool
    tables: tuple[Part, ...]
    packs: tuple[Pack, ...]
    digests: tuple[tuple[bytes, int, int], ...]

    @property
    def floor_max(self) -> int:
        """The highest floor of a log that goes on from here: opening compares this turn, but for a seed's."""
        return self.turn + self.is_seed

    @property
    def bytes(self) -> int:
        """The size of all parts and packs."""
        parts = [*self.tables, *(pack.part for pack in self.packs)]
        return sum(part.size for part in parts)

    @property
    def names(self) -> list[str]:
        """The names of all its objects but itself."""
        tables = [tables_name(self.stem, number) for number in range(len(self.tables))]
        return tables + [PACK + pack.name for pack in self.packs]


def stem_of(turn: int, nonce: bytes) -> str:
    assert len(nonce) == 8
    return f"{turn:020d}-{nonce.hex()}"


def turn_of(stem: str) -> int:
    return int(stem[:20])


def tables_name(stem: str, number: int) -> str:
    return f"{SNAP}{stem}/tables-{number:04d}"


def part_of(data: bytes) -> Part:
    return Part(len(data), _digest(data))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST).digest()


def check_part(data: bytes, part: Part, where: str) -> None:
    """Corruption, which names `where` it was, if the bytes are not the part's."""
    if part_of(data) != part:
        raise Corruption(f"{where} is damaged")


def encode_manifest(manifest: Manifest) -> bytes:
    data: bytes = _MAGIC + msgpack.packb(manifest[1:])
    return data + _digest(data)


def read_manifest(data: bytes, stem: str, where: str) -> Manifest:
    """Decodes the manifest of `stem`. Corruption, which names `where` it was, if it is not one."""
    if data[:4] != _MAGIC or _digest(data[:-_DIGEST]) != data[-_DIGEST:]:
        raise Corruption(f"{where} is damaged, or no manifest")
    try:
        manifest = _manifest(stem, *msgpack.unpackb(data[4:-_DIGEST], use_list=False))
        fits = _fits(manifest)
    except (TypeError, ValueError) as error:
        raise Corruption(f"{where} is no manifest: {error}") from error
    if not fits:
        raise Corruption(f"{where} names what no snapshot has")
    return manifest


def _manifest(stem: str, *fields: Any) -> Manifest:
    manifest = Manifest(stem, *fields)
    tables = tuple(_part(*part) for part in manifest.tables)
    packs = tuple(Pack(*pack)._replace(part=_part(*pack[-1])) for pack in manifest.packs)
    return manifest._replace(tables=tables, packs=packs)


def _part(size: int, digest: bytes) -> Part:
    if type(size) is not int or type(digest) is not bytes:
        raise TypeError("a part has a size and a digest")
    return Part(size, digest)


def _fits(manifest: Manifest) -> bool:
    """Returns whether all is of its type and in its bounds, and packs follow one another."""
    numbers = manifest.turn, manifest.address, manifest.term, manifest.made_ms
    if any(type(number) is not int or number < 0 for number in numbers):
        return False
    if type(manifest.is_seed) is not bool or type(manifest.mark) is not bytes:
        return False
    if any(type(id_) is not bytes or len(id_) != 16 for id_ in manifest[1:3]):
        return False
    if not STEM.fullmatch(manifest.stem) or turn_of(manifest.stem) != manifest.turn:
        return False
    at = 0
    for name, begin, end, payload, _ in manifest.packs:
        if any(type(number) is not int for number in (begin, end, payload)):
            return False
        if type(name) is not str or not PACK_NAME.fullmatch(name):
            return False
        if not (at <= begin < end <= manifest.address and 0 < payload <= end - begin):
            return False
        at = end
    return all(
        type(prefix) is bytes and type(digest) is int and type(count) is int
        for prefix, digest, count in manifest.digests
    )


# packs -------------------------------------------------------------------------------------


def encode_pack(runs: Sequence[tuple[int, int]], chunks: Sequence[bytes]) -> bytes:
    """Encodes a pack; `chunks` are the payload of the runs, (address, length) by address."""
    head = _HEAD.pack(_PACK_MAGIC, len(runs))
    return b"".join((head, *(_RUN.pack(*run) for run in runs), *chunks))


class PackReader:
    """Finds payload in a pack's bytes. Corruption, which names `where` it was, if they are none."""

    def __init__(self, data: bytes, where: str) -> None:
        self._where = where
        self._data = data
        try:
            magic, count = _HEAD.unpack_from(data)
            at = _HEAD.size + count * _RUN.size
            runs = list(_RUN.iter_unpack(data[_HEAD.size : at]))
        except Exception as error:
            raise Corruption(f"{where} is no pack") from error
        self._runs: list[tuple[int, int, int]] = []
        for address, length in runs:
            self._runs.append((address, length, at))
            at += length
        if magic != _PACK_MAGIC or len(runs) != count or at != len(data):
            raise Corruption(f"{where} is no pack")

    def get(self, address: int, length: int) -> bytes:
        """Returns payload bytes. Corruption if the pack has not all of them."""
        at = bisect_right(self._runs, address, key=itemgetter(0)) - 1
        begin, held, offset = self._runs[at] if at >= 0 else (0, 0, 0)
        if address + length > begin + held:
            raise Corruption(f"{self._where} lacks payload at address {address}")
        offset += address - begin
        return self._data[offset : offset + length]
