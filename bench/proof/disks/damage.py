"""Draws a damage to one copy of a store at rest, from a seed: files to replace, and their new bytes.

    flip       one bit of a log segment, data file, tables (anywhere; a leaf page's offsets; a key), meta page,
               meta.pb, mark, closing record
    truncated  a file ends early, or is gone
    page       4 KiB zeroed, taken from an older version, or two of the tables exchanged
    file       an older version, two segments exchanged, the same file of another store

Left out: whole stores that are older throughout, because nothing in a store can show that.

Next: verdict.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from struct import Struct

from .sample import Sample

PAGE = 4096
_PAGE_HEAD = Struct("<10xHH")
"""Flags of an LMDB page, and the end of its entries' offsets."""
_HEAD_BYTES = 16
_LEAF = 0x02
CLASSES = ("flip", "truncated", "page", "file")
_Drawn = tuple[str, dict[str, bytes | None]]
"""A damage in words, and the new bytes of files."""


@dataclass(frozen=True)
class Damage:
    """A damage: `sample` is the sample's number, `exchanged` the files for `Sample.planted`, `what` its text."""

    sample: int
    kind: str
    what: str
    exchanged: dict[str, bytes | None]

    @property
    def is_valid_by_itself(self) -> bool:
        """Returns whether a page of the tables was replaced by an older version of itself. Each value in it has a
        valid checksum, and LMDB's pages carry no version.
        """
        older = self.kind == "page" and "versions ago" in self.what
        return older and all(name.endswith("/data.mdb") for name in self.exchanged)


def draw(samples: Sequence[Sample], kind: str, number: int, seed: int) -> Damage:
    """Draws the `number`-th damage of its class; the samples take turns."""
    random = Random(f"{kind} {number} {seed}")
    at = number % len(samples)
    what, exchanged = _DRAWN[kind](samples, at, random)
    return Damage(at, kind, what, exchanged)


def _named(sample: Sample, part: str) -> list[str]:
    """Lists the files that hold data; reserved empty files have nothing to damage."""
    return sorted(name for name, data in sample.files.items() if part in name and data)


def _flip(samples: Sequence[Sample], at: int, random: Random) -> _Drawn:
    sample = samples[at]
    (area,) = random.choices(
        ["/log-", "/data-", "data.mdb", "leaf", "head", "meta.pb", "released", "close"],
        [52, 26, 6, 6, 2, 3, 2, 3],
    )
    closing = [r for r in sample.records if not r.counts and r.start]
    if area == "close" and closing:
        record = random.choice(closing)
        name, low, high = record.name, record.start, record.end
    else:
        tables = area in ("head", "leaf", "close", "data.mdb")
        name = random.choice(
            _named(sample, "data.mdb" if tables else area) or _named(sample, "/log-")
        )
        low, high = 0, len(sample.files[name])
        if area == "released":
            high = 32
        elif area == "head":
            high = 2 * PAGE
        elif area == "leaf":
            low, high = _in_a_leaf(sample.files[name], random) or (low, high)
        elif "/log-" in name:
            high = max((r.end for r in sample.records if r.name == name), default=high)
            low = high // 2 if random.random() < 0.7 else 0  # mostly what no checkpoint covers
    offset, bit = random.randrange(low, high), random.randrange(8)
    data = bytearray(sample.files[name])
    data[offset] ^= 1 << bit
    full = bytes(data).ljust(sample.sizes[name], b"\0") if area == "released" else bytes(data)
    return f"{name}: bit {bit} of byte {offset}", {name: full}


def _in_a_leaf(tables: bytes, random: Random) -> tuple[int, int] | None:
    """Returns (begin, end) of a leaf page's entry offsets, or of one entry's key."""
    pages = range(2 * PAGE, len(tables) - PAGE + 1, PAGE)
    heads = [(page, *_PAGE_HEAD.unpack_from(tables, page)) for page in pages]
    leaves = [head for head in heads if head[1] == _LEAF and _HEAD_BYTES < head[2] <= PAGE]
    if not leaves:
        return None
    page, _, lower = random.choice(leaves)
    begin, end = page + _HEAD_BYTES, page + lower
    if random.random() < 0.5:
        return begin, end
    at = random.randrange(begin, end, 2)
    entry = page + int.from_bytes(tables[at : at + 2], "little")
    length = int.from_bytes(tables[entry + 6 : entry + 8], "little")
    return (entry + 8, entry + 8 + length) if length else None


def _truncated(samples: Sequence[Sample], at: int, random: Random) -> _Drawn:
    sample = samples[at]
    name = random.choice(_named(sample, ""))
    if random.random() < 0.15:
        return f"{name}: gone", {name: None}
    length = random.randrange(len(sample.files[name]))
    if random.random() < 0.3:
        length -= length % PAGE
    return f"{name}: cut off at byte {length}", {name: sample.files[name][:length]}


def _page(samples: Sequence[Sample], at: int, random: Random) -> _Drawn:
    sample = samples[at]
    part = random.choice(["data.mdb", "data.mdb", "/log-", "/data-"])
    name = random.choice(_named(sample, part) or _named(sample, "data.mdb"))
    data = bytearray(sample.files[name])
    pages = max(1, len(data) // PAGE)
    number = random.randrange(pages)
    low, high = PAGE * number, PAGE * number + PAGE
    way = random.choice(["zeroed", "older", "swapped"])
    older = [
        version[low:high]
        for version in sample.older.get(name, [])
        if len(version) >= high and version[low:high] != data[low:high]
    ]
    if way == "older" and older:
        which = random.randrange(len(older))
        data[low:high] = older[which]
        return f"{name}: page {number} from {len(older) - which} versions ago", {name: bytes(data)}
    if way == "swapped" and pages > 1:
        other = random.choice([n for n in range(pages) if n != number])
        end = PAGE * other + PAGE
        data[low:high], data[PAGE * other : end] = data[PAGE * other : end], data[low:high]
        return f"{name}: pages {number} and {other} exchanged", {name: bytes(data)}
    data[low:high] = bytes(len(data[low:high]))
    return f"{name}: page {number} zeroed", {name: bytes(data)}


def _file(samples: Sequence[Sample], at: int, random: Random) -> _Drawn:
    sample = samples[at]
    way = random.choice(["older", "swapped", "foreign"])
    # Excludes the owner's mark: an older one only says less, as after a power loss. A reader then sees an earlier
    # state, and an owner sees everything: no damage.
    aged = [name for name, old in sorted(sample.older.items()) if old and "/released" not in name]
    if way == "older":
        name = random.choice([name for name in aged if name in sample.files])
        versions = sample.older[name]
        which = random.randrange(len(versions))
        return f"{name}: as it was {len(versions) - which} versions ago", {name: versions[which]}
    parts = _named(sample, "/log-") + _named(sample, "/data-")
    if way == "swapped" and len(parts) > 1:
        one, other = random.sample(parts, 2)
        swapped: dict[str, bytes | None] = {one: sample.files[other], other: sample.files[one]}
        return f"{one} and {other} exchanged", swapped
    name = random.choice(sorted(sample.files))
    foreign = random.choice([s for s in samples if s is not sample and name in s.files])
    return f"{name}: that of {foreign.kind}", {name: foreign.files[name]}


_DRAWN = {"flip": _flip, "truncated": _truncated, "page": _page, "file": _file}
