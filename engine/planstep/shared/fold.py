"""Decides which records of a Kafka partition are a store's turns: all readers fold the same records alike.

    record   an entry (entry.py), or a part of one that is too large for a record:
    part     magic 4 | number 4 | count 4 | store id 16 | term 8 | nonce 16 | turn 8 | bytes | crc32 of all before

    offset   0        1        2        3         4        5         6         7         8
             BEGIN 1  turn 2   turn 2   BEGIN 3   turn 3   BEGIN 3   part 0    part 1    turn 5
    of       A        A        A        B         A        C         B, 4      B, 4      B
             counts   counts   repeat   counts    fenced   second    waits     counts    counts

A record counts if its turn is the next one, its chain fits, and it is a BEGIN of a higher term or a TURN of the
present owner. Parts count as their entry does, with the last one to come; a BEGIN that counts in between ends them.
All other records are void: repeats, turns of a fenced owner, BEGINs that came second, records of strangers.

A machine sends turn n only after it has seen all turns before it. So a record of a later turn than the next one
proves that a turn is gone, one of a later term that its BEGIN is, and one whose chain does not fit that the log was
changed: all are Corruption.

Next: kafka_log.py.
"""

from struct import Struct

from ..crc import crc32
from ..errors import Corruption
from .entry import BEGIN, MAGIC, TURN, Entry, Owner, read_entry
from .shared_log import Position

_PART_MAGIC = b"PSP1"
_PART = Struct("<4sII16sQ16sQ")
_CRC = Struct("<I")
PART_OVERHEAD = _PART.size + _CRC.size
_MARK = Struct("<QQ16s")


def split(entry: Entry, limit: int) -> list[bytes]:
    """Splits an entry into records of at most `limit` bytes: one, if it fits."""
    data = entry.data
    if len(data) <= limit:
        return [data]
    size = limit - PART_OVERHEAD
    assert size > 0 and entry.kind == TURN  # a BEGIN is small
    count = -(-len(data) // size)
    return [_part(entry, n, count, data[n * size : (n + 1) * size]) for n in range(count)]


def _part(entry: Entry, number: int, count: int, data: bytes) -> bytes:
    head = _PART.pack(_PART_MAGIC, number, count, entry.store_id, *entry.owner, entry.turn)
    return b"".join((head, data, _CRC.pack(crc32(data, crc32(head)))))


class Fold:
    """The state behind the records that were added. Invariant: it depends on them and on the beginning alone.

    `offset` is that of the next record. `void` counts the records that are part of no turn.
    """

    def __init__(self, store_id: bytes, at: Position) -> None:
        """`at`: the beginning, as an entry's turn, chain and mark say it."""
        self.turn, self.chain = at.turn, at.chain
        self.offset, self.owner = place_of(at.mark)
        self.void = 0
        self._store_id = store_id
        self._parts: dict[int, bytes] = {}
        self._count = 0

    def add(self, data: bytes, offset: int) -> Entry | None:
        """Adds the next record; returns the entry that counts with it, if any. Corruption.

        Offsets rise, and may leave some out.
        """
        where = f"the record at offset {offset}"
        self.offset = offset + 1
        whole: bytes | None = None
        if data.startswith(_PART_MAGIC):
            if not self._add_part(data, where):
                self.void += 1
            elif len(self._parts) == self._count:
                whole = b"".join(self._parts[number] for number in range(self._count))
                self._parts = {}
        elif data.startswith(MAGIC):
            whole = data
        else:
            self.void += 1
        if whole is None:
            return None
        entry = read_entry(whole, where)
        if not self._counts(entry, where):
            self.void += 1
            return None
        self.turn, self.chain, self.owner = entry.turn, entry.chain, entry.owner
        self._parts = {}
        return entry._replace(mark=_MARK.pack(self.offset, *self.owner))

    def _counts(self, entry: Entry, where: str) -> bool:
        begins = entry.kind == BEGIN
        term = 0 if begins else entry.owner.term
        if not self._is_next(entry.store_id, term, entry.turn, where):
            return False
        due = entry.owner.term > self.owner.term if begins else entry.owner == self.owner
        if due and entry.before != self.chain:
            raise Corruption(f"{where}: turn {entry.turn} does not follow the turns before it")
        return due

    def _is_next(self, store_id: bytes, term: int, turn: int, where: str) -> bool:
        """Returns whether a record is of the next turn; `term`: that of its owner, 0 for a BEGIN. Corruption."""
        if store_id != self._store_id:
            return False
        if term > self.owner.term:
            raise Corruption(f"{where} is of term {term}, but the BEGIN of that is missing")
        if turn > self.turn + 1:
            raise Corruption(f"{where} is of turn {turn}, but turn {self.turn + 1} is missing")
        return turn == self.turn + 1

    def _add_part(self, data: bytes, where: str) -> bool:
        """Keeps a part if its entry may count with it and others."""
        _, number, count, store_id, term, nonce, turn = _PART.unpack_from(_checked(data, where))
        if not self._is_next(store_id, term, turn, where) or (term, nonce) != self.owner:
            return False
        if number in self._parts or number >= count or (self._parts and count != self._count):
            return False
        self._parts[number] = data[_PART.size : -_CRC.size]
        self._count = count
        return True


def place_of(mark: bytes) -> tuple[int, Owner]:
    """Decodes a mark: the offset behind a turn's last record, and the owner. That of the beginning is empty."""
    if not mark:
        return 0, Owner(0, bytes(16))
    if len(mark) != _MARK.size:
        raise Corruption(f"{mark!r} is no place in a Kafka partition")
    offset, term, nonce = _MARK.unpack(mark)
    return offset, Owner(term, nonce)


def turn_of(data: bytes, store_id: bytes, where: str) -> tuple[int, int] | None:
    """Returns the turn of a record of the store, and its term; None for records of others. Corruption."""
    if data.startswith(_PART_MAGIC):
        _, _, _, whose, term, _, turn = _PART.unpack_from(_checked(data, where))
    elif data.startswith(MAGIC):
        entry = read_entry(data, where)
        whose, term, turn = entry.store_id, entry.owner.term, entry.turn
    else:
        return None
    return (turn, term) if whose == store_id else None


def _checked(part: bytes, where: str) -> bytes:
    end = len(part) - _CRC.size
    if len(part) < PART_OVERHEAD or crc32(part[:end]) != _CRC.unpack_from(part, end)[0]:
        raise Corruption(f"{where}: a part of an entry is damaged")
    return part
