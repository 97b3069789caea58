"""Draws a damage to a shared log at rest, from a seed: objects to replace, and their new bytes.

    flip        one bit of an entry, the root, a floor, a run, a manifest or part of a snapshot
    cut         an object ends early, or is empty
    gone        an object is not there
    exchanged   two entries in one another's slots, or one in both
    foreign     the same object of another store
    rewritten   an entry with another row in it, sealed anew: only the chain of the next one shows it

Left out: what no machine can know if no folder has it: that the last turns are gone, or were others.

Next: shared_verdict.py.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ....shared.entry import read_entry, seal

Objects = dict[str, bytes]
"""The objects of a log, by name."""
LOG, ROOT = "log/", "store"
_SPARED = ("run/", "snap/", "pack/")
"""Objects that others stand in for."""
ROW = b"value "
"""How values of rows begin."""


class Damage(NamedTuple):
    """A damage: what was done, in words; the new bytes, None for an object that is gone.

    `turns`: an error is to name one of these. There are none for other objects than entries.
    """

    kind: str
    what: str
    objects: dict[str, bytes | None]
    turns: tuple[int, ...] = ()


def draw(kind: str, number: int, seed: int, whole: Objects, foreign: Objects) -> Damage:
    """Draws the `number`-th damage of its kind to a whole log; `foreign` is another store's."""
    random = Random(f"{kind} {number} {seed}")
    return _DRAWN[kind](random, whole, foreign)


def turn_of(name: str) -> int:
    """Returns the turn of an entry's name, or that of a floor; 0 for the root."""
    return int(name.rpartition("/")[2]) if "/" in name else 0


def _turns(*names: str) -> tuple[int, ...]:
    return tuple(turn_of(name) for name in names if name.startswith(LOG))


def _entries(whole: Objects) -> list[str]:
    """Lists the entries whose damage a later one shows."""
    return sorted(name for name in whole if name.startswith(LOG))[:-1]


def _some(random: Random, whole: Objects) -> str:
    """Draws an object: mostly an entry."""
    if random.random() < 0.7:
        return random.choice(sorted(name for name in whole if name.startswith(LOG)))
    return random.choice(sorted(name for name in whole if not name.startswith(LOG)))


def _flip(random: Random, whole: Objects, foreign: Objects) -> Damage:
    name = _some(random, whole)
    data = bytearray(whole[name])
    offset, bit = random.randrange(len(data)), random.randrange(8)
    data[offset] ^= 1 << bit
    return Damage("flip", f"bit {bit} of byte {offset}", {name: bytes(data)}, _turns(name))


def _cut(random: Random, whole: Objects, foreign: Objects) -> Damage:
    name = _some(random, whole)
    length = random.choice([0, random.randrange(len(whole[name]))])
    return Damage("cut", f"cut off at byte {length}", {name: whole[name][:length]}, _turns(name))


def _gone(random: Random, whole: Objects, foreign: Objects) -> Damage:
    spared = sorted(name for name in whole if name.startswith(_SPARED))
    name = random.choice([*_entries(whole), ROOT, *spared])
    return Damage("gone", "gone", {name: None}, _turns(name))


def _exchanged(random: Random, whole: Objects, foreign: Objects) -> Damage:
    one, other = random.sample(_entries(whole), 2)
    objects: dict[str, bytes | None] = {one: whole[other]}
    if random.random() < 0.5:
        objects[other] = whole[one]
    return Damage("exchanged", f"with turn {turn_of(other)}", objects, _turns(*objects))


def _foreign(random: Random, whole: Objects, foreign: Objects) -> Damage:
    name = random.choice([name for name in [*_entries(whole), ROOT] if name in foreign])
    return Damage("foreign", "that of another store", {name: foreign[name]}, _turns(name))


def _rewritten(random: Random, whole: Objects, foreign: Objects) -> Damage:
    name = random.choice([name for name in _entries(whole) if ROW in whole[name]])
    entry = read_entry(whole[name], name)
    data = seal(
        *entry[:6],
        changes=entry.changes.replace(ROW, ROW[::-1]),
        dropped=entry.dropped,
        payloads=[entry.payload],
    ).data
    return Damage("rewritten", "sealed anew", {name: data}, (entry.turn, entry.turn + 1))


_DRAWN: dict[str, Callable[[Random, Objects, Objects], Damage]] = {
    "flip": _flip,
    "cut": _cut,
    "gone": _gone,
    "exchanged": _exchanged,
    "foreign": _foreign,
    "rewritten": _rewritten,
}
KINDS = tuple(_DRAWN)
