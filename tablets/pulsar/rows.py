"""Names the fields of the rows of a partition of mode "pulsar", and makes their keys.

Next: aborted.py.
"""

from typing import NamedTuple, TypeAlias

from ...proto.shell import Keys

META = b"m"
_FEW = 8


class Bounds(NamedTuple):
    """The log is [start, end); readers see only offsets before `max_read`.

    Pulsar names the last offset that may be read; here it is the first one that may not.
    """

    start: int = 0
    end: int = 0
    max_read: int = 0


EMPTY = Bounds()
"""The bounds of a log before its first append."""


class Entry(NamedTuple):
    """A batch of `records` messages, `length` bytes at `address` of its host's log, or a marker.

    (`most`, `least`) is the transaction's id, (-1, -1) without one. A marker has no bytes, one offset, no
    producer and the sequence -1.
    """

    address: int
    length: int
    records: int
    kind: int
    most: int
    least: int
    producer: str
    sequence: int


class Cursor(NamedTuple):
    """A subscription has acknowledged all before `position`, and `ranges` beyond it.

    An individual one may acknowledge any record, another one cumulatively as well. `missed` records were trimmed
    before they were acknowledged. `moves` counts seeks.
    """

    individual: bool
    position: int
    missed: int
    ranges: tuple[tuple[int, int], ...]
    moves: int


EntryRow: TypeAlias = tuple[int, int, int, int, int, int, str, int]
"""An `Entry` as the store returns it."""


def numbered(letter: bytes, number: int) -> bytes:
    """Returns the key of a row under a letter and a number of 64 bits."""
    return letter + number.to_bytes(8, "big")


def of_txn(letter: bytes, most: int, least: int) -> bytes:
    """Returns the key of a row under a letter and a transaction's id."""
    return letter + most.to_bytes(8, "big") + least.to_bytes(8, "big")


def txns_of(space: Keys, letter: bytes, most: int, begin: int, end: int) -> list[int]:
    """Returns which transactions [begin, end) of a coordinator have a row under a letter, ascending."""
    if end - begin <= _FEW:  # as a rule: a get costs a tenth of a scan
        numbers = range(begin, end)
        return [n for n in numbers if space.get(of_txn(letter, most, n)) is not None]
    rows = space.scan(of_txn(letter, most, begin), of_txn(letter, most, end))
    return [int.from_bytes(key[9:], "big") for key, _ in rows]


def of_name(letter: bytes, name: str, *numbers: int) -> bytes:
    """Returns the key of a subscription's row; a zero byte ends the name, which holds none."""
    key = letter + name.encode() + b"\0"
    for number in numbers:
        key += number.to_bytes(8, "big")
    return key
