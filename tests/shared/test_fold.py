"""Tests which records of a partition are turns: against brute force, and rule by rule."""

import random
from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_kit import STORE, at, begin_behind, history, nonce, turn_behind

from planstep.errors import Corruption
from planstep.shared.entry import BEGIN, NO_CHAIN, TURN, Entry, Owner, chain_of, read_entry, seal
from planstep.shared.fold import PART_OVERHEAD, Fold, _part, split
from planstep.shared.shared_log import Position

LIMIT = PART_OVERHEAD + 100
"""Entries of the tests have some 130 bytes and more: those with a payload go in parts."""
FIRST, SECOND = Owner(1, nonce("first")), Owner(2, nonce("second"))


def fold_all(records: list[bytes], fold: Fold | None = None) -> list[Entry]:
    """Folds records, each at its index; returns the entries that count."""
    fold = fold or Fold(STORE, Position())
    found = (fold.add(data, offset) for offset, data in enumerate(records) if offset >= fold.offset)
    return [entry for entry in found if entry is not None]


def data_of(entries: list[Entry]) -> list[bytes]:
    return [entry.data for entry in entries]


def whole(*entries: Entry) -> list[bytes]:
    return data_of(list(entries))


# brute force -----------------------------------------------------------------------------------


def part_fields(record: bytes) -> tuple[tuple[bytes, int, bytes, int, int], int, bytes]:
    """Decodes a part by the places of its fields: (what it is a part of, number, bytes)."""
    number, count = (int.from_bytes(record[at : at + 4], "little") for at in (4, 8))
    term, turn = (int.from_bytes(record[at : at + 8], "little") for at in (28, 52))
    return (record[12:28], term, record[36:52], turn, count), number, record[60:-4]


def ended_by(window: list[bytes]) -> bytes | None:
    """Returns the entry of which the last of these records is the last part to come, or which it is."""
    last = window[-1]
    if last[:4] != b"PSP1":
        return last if last[:4] == b"PSE1" else None
    of, _, _ = part_fields(last)
    parts: dict[int, bytes] = {}
    for record in window:
        if record[:4] == b"PSP1" and part_fields(record)[0] == of:
            parts.setdefault(part_fields(record)[1], part_fields(record)[2])
    return b"".join(parts[n] for n in range(of[4])) if len(parts) == of[4] else None


def turns_by_definition(records: list[bytes]) -> list[tuple[int, bytes]]:
    """Returns (offset, entry) of each turn: the first entry behind the turn before that may be the next one."""
    found: list[tuple[int, bytes]] = []
    owner, chain = Owner(0, bytes(16)), NO_CHAIN
    begin = end = 0
    while end < len(records):
        end += 1
        data = ended_by(records[begin:end])
        if data is None:
            continue
        entry = read_entry(data, "a record")
        right = entry.owner.term > owner.term if entry.kind == BEGIN else entry.owner == owner
        place = (entry.store_id, entry.turn, entry.before)
        if right and place == (STORE, len(found) + 1, chain):
            found.append((end - 1, data))
            owner, chain, begin = entry.owner, chain_of(data), end
    return found


class Sender:
    """A machine: it folds the partition, and sends what an honest owner may send."""

    def __init__(self, name: str, draw: random.Random) -> None:
        self.name = name
        self.draw = draw
        self.openings = 0
        self.told: list[bytes] = []
        self.restart()

    def restart(self) -> None:
        self.openings += 1
        self.fold = Fold(STORE, Position())
        self.last: Entry | None = None
        self.owner = Owner(0, nonce(f"{self.name}{self.openings}"))
        self.sent: Entry | None = None

    def step(self, partition: list[bytes]) -> list[bytes]:
        """Reads what is there; returns the records to send now, which may come late, twice and in other order."""
        for offset in range(self.fold.offset, len(partition)):
            entry = self.fold.add(partition[offset], offset)
            if entry is None:
                continue
            self.last = entry
            if self.sent and entry.data == self.sent.data:
                self.told.append(entry.data)
                self.owner, self.sent = entry.owner, None
            elif self.sent or self.owner.term:
                self.restart()  # fenced
                return []
        if self.sent is None:
            self.sent = self._next()
        return split(self.sent, LIMIT)

    def _next(self) -> Entry:
        if not self.owner.term:
            term = self.last.owner.term if self.last else 0
            return begin_behind(
                self.last, self.owner._replace(term=term + self.draw.choice((1, 1, 5)))
            )
        payload = self.draw.randbytes(self.draw.choice((0, 10, 150, 400)))
        return turn_behind(self.last, self.owner, payload)


def strange(draw: random.Random) -> bytes:
    """A record of somebody else: of another program, of another store, or a part of its turn."""
    other = seal(TURN, bytes(16), Owner(1, nonce("first1")), 1, NO_CHAIN, 0, payloads=[bytes(300)])
    return draw.choice([b"", b"PS", b"hello", other.data, *split(other, LIMIT)])


def partition_of(seed: int, steps: int) -> tuple[list[bytes], list[Sender]]:
    """Lets machines send to a partition, with repeats, delays and strangers between."""
    draw = random.Random(seed)
    senders = [Sender(name, draw) for name in "abc"]
    partition: list[bytes] = []
    on_their_way: list[bytes] = []
    awake = senders[0]
    for _ in range(steps):
        if draw.random() < 0.1:
            awake = draw.choice(senders)
        if draw.random() < 0.5:
            records = awake.step(partition)
            if draw.random() < 0.3:
                records = draw.sample(records, draw.randrange(len(records) + 1))
            (on_their_way if draw.random() < 0.4 else partition).extend(records)
            on_their_way += draw.sample(records, len(records) // 2)
        if on_their_way and draw.random() < 0.5:
            partition.append(on_their_way.pop(draw.randrange(len(on_their_way))))
        if draw.random() < 0.05:
            partition.append(strange(draw))
    return partition, senders


def test_what_counts_is_what_the_definition_says() -> None:
    turns = begins = in_parts = void = 0
    for seed in range(150):
        partition, senders = partition_of(seed, 200)
        fold = Fold(STORE, Position())
        found = fold_all(partition, fold)
        expected = turns_by_definition(partition)
        assert data_of(found) == [data for _, data in expected]
        assert [Fold(STORE, at(entry)).offset - 1 for entry in found] == [n for n, _ in expected]
        for sender in senders:
            assert set(sender.told) <= set(data_of(found))
        turns += len(found)
        begins += sum(entry.kind == BEGIN for entry in found)
        in_parts += sum(len(entry.data) > LIMIT for entry in found)
        void += fold.void
    assert turns > 2_000 and begins > 500 and in_parts > 300 and void > 1_000


def test_a_fold_goes_on_behind_each_turn_as_if_it_had_begun_before() -> None:
    for seed in range(20):
        partition, _ = partition_of(seed, 150)
        found = fold_all(partition)
        for n, entry in enumerate(found):
            assert fold_all(partition, Fold(STORE, at(entry))) == found[n + 1 :]


# one rule at a time ----------------------------------------------------------------------------


def test_the_example_of_the_module() -> None:
    a, b = FIRST, SECOND
    begin, two = (entries := history(2))[0], entries[1]
    taken = begin_behind(two, b)
    parts = split(four := turn_behind(taken, b, bytes(90)), LIMIT)
    assert len(parts) == 2
    five = turn_behind(four, b)
    records = [
        *whole(begin, two, two, taken, turn_behind(two, a, b"late")),
        *whole(begin_behind(two, Owner(2, nonce("third")))),
        *parts,
        five.data,
    ]
    fold = Fold(STORE, Position())
    assert data_of(fold_all(records, fold)) == whole(begin, two, taken, four, five)
    assert fold.void == 3


def test_a_turn_of_another_nonce_is_void() -> None:
    begin, two = history(2)
    stranger = turn_behind(begin, FIRST._replace(nonce=nonce("other")))
    assert data_of(fold_all(whole(begin, stranger, two))) == whole(begin, two)


def test_a_turn_of_a_term_whose_begin_is_missing_is_corruption() -> None:
    """The log was cut off, and the record's sender has seen another history: both would acknowledge turns."""
    begin, two = history(2)
    (elsewhere,) = history(1, SECOND)
    ahead = turn_behind(begin, SECOND, bytes(300))
    behind = turn_behind(elsewhere, SECOND)
    for strange in (*split(ahead, LIMIT), ahead.data, behind.data):
        with pytest.raises(Corruption, match="is of term 2, but the BEGIN of that is missing"):
            fold_all([*whole(begin, two), strange])


def test_a_begin_of_no_higher_term_is_void() -> None:
    begin, two = history(2)
    same = begin_behind(begin, FIRST._replace(nonce=nonce("other")))
    assert data_of(fold_all(whole(begin, same, two))) == whole(begin, two)


def test_a_begin_between_the_parts_of_a_turn_ends_it() -> None:
    (begin,) = history(1)
    parts = split(turn_behind(begin, FIRST, bytes(300)), LIMIT)
    taken = begin_behind(begin, SECOND)
    for n in range(len(parts)):
        records = [begin.data, *parts[:n], taken.data, *parts[n:], *parts]
        fold = Fold(STORE, Position())
        assert data_of(fold_all(records, fold)) == whole(begin, taken)
        assert fold.void == 2 * len(parts) - n


def test_parts_count_in_any_order_and_once() -> None:
    begin = history(1)[0]
    turn = turn_behind(begin, FIRST, bytes(range(200)))
    parts = split(turn, LIMIT)
    three = turn_behind(turn, FIRST)
    assert len(parts) == 4
    for order in permutations(parts):
        records = [begin.data, *order, *order, three.data]
        assert data_of(fold_all(records)) == whole(begin, turn, three)
    for cut in range(len(parts)):  # it was sent anew after each of its parts
        records = [begin.data, *parts[:cut], *parts, three.data]
        assert data_of(fold_all(records)) == whole(begin, turn, three)


def test_parts_of_others_are_no_parts_of_a_turn() -> None:
    begin = history(1)[0]
    turn = turn_behind(begin, FIRST, bytes(range(200)))
    parts = split(turn, LIMIT)
    others = [
        *split(turn_behind(begin, FIRST._replace(nonce=nonce("other")), bytes(200)), LIMIT),
        *split(seal(TURN, bytes(16), FIRST, 2, begin.chain, 0, payloads=[bytes(250)]), LIMIT),
    ]
    for other in others:
        for n in range(len(parts)):
            fold = Fold(STORE, Position())
            records = [begin.data, *parts[:n], other, *parts[n:]]
            assert data_of(fold_all(records, fold)) == whole(begin, turn)
            assert fold.void == 1


def test_parts_that_are_none_of_those_announced_are_void() -> None:
    begin = history(1)[0]
    turn = turn_behind(begin, FIRST, bytes(range(200)))
    parts = split(turn, LIMIT)
    beyond = _part(turn, 9, len(parts), b"beyond the last")
    elsewhere = split(turn, LIMIT + 100)[1]
    for other in (beyond, elsewhere, parts[0]):
        fold = Fold(STORE, Position())
        records = [begin.data, parts[0], other, *parts[1:]]
        assert data_of(fold_all(records, fold)) == whole(begin, turn)
        assert fold.void == 1


def test_records_of_another_store_are_void_whatever_they_say() -> None:
    begin, two = history(2)
    others = [
        seal(TURN, bytes(16), FIRST, 2, begin.chain, 0),
        seal(TURN, bytes(16), FIRST, 9, begin.chain, 0, payloads=[bytes(300)]),
        seal(BEGIN, bytes(16), SECOND, 2, begin.chain, 0),
    ]
    records = [record for other in others for record in [other.data, *split(other, LIMIT)]]
    fold = Fold(STORE, Position())
    assert data_of(fold_all([begin.data, *records, two.data], fold)) == whole(begin, two)
    assert fold.void == len(records)


@given(st.integers(PART_OVERHEAD + 1, 700), st.binary(max_size=600))
def test_an_entry_is_split_into_records_that_fit(limit: int, payload: bytes) -> None:
    begin = history(1)[0]
    turn = turn_behind(begin, FIRST, payload)
    records = split(turn, limit)
    assert max(map(len, records)) <= limit
    assert (len(records) == 1) == (len(turn.data) <= limit)
    assert data_of(fold_all([begin.data, *records])) == whole(begin, turn)


def flips(data: bytes) -> Iterator[bytes]:
    for n in range(len(data)):
        for bit in range(8):
            yield data[:n] + bytes([data[n] ^ 1 << bit]) + data[n + 1 :]


def test_damage_to_any_record_is_found_once_a_later_one_is_there() -> None:
    entries = history(3)
    large = turn_behind(entries[2], FIRST, bytes(100))
    last = turn_behind(large, FIRST)
    records = [*data_of(entries), *split(large, LIMIT), last.data]
    assert data_of(fold_all(records)) == whole(*entries, large, last)
    for n, record in enumerate(records[:-1]):
        for flipped in flips(record):
            with pytest.raises(Corruption, match="offset"):
                fold_all([*records[:n], flipped, *records[n + 1 :]])


def test_a_record_that_is_gone_or_cut_off_is_found() -> None:
    entries = history(3)
    large = turn_behind(entries[2], FIRST, bytes(100))
    records = [*data_of(entries), *split(large, LIMIT), turn_behind(large, FIRST).data]
    for n, record in enumerate(records[:-1]):
        with pytest.raises(Corruption, match="is missing"):
            fold_all([*records[:n], *records[n + 1 :]])
        for length in range(4, len(record)):
            with pytest.raises(Corruption, match="offset"):
                fold_all([*records[:n], record[:length], *records[n + 1 :]])


def test_a_turn_of_another_history_is_found() -> None:
    begin, two = history(2)
    other = turn_behind(turn_behind(begin, FIRST, b"another two"), FIRST)
    with pytest.raises(Corruption, match="turn 3 does not follow"):
        fold_all(whole(begin, two, other))


def test_a_mark_of_another_log_is_corruption() -> None:
    with pytest.raises(Corruption, match="no place in a Kafka partition"):
        Fold(STORE, Position(1, NO_CHAIN, b"?"))


def test_parts_are_kept_for_one_turn_alone() -> None:
    begin = history(1)[0]
    parts = split(turn_behind(begin, FIRST, bytes(5_000)), LIMIT)
    fold = Fold(STORE, Position())
    fold_all([begin.data, *parts[:-1], *parts[:-1]], fold)
    assert len(fold._parts) == len(parts) - 1
    fold.add(begin_behind(begin, SECOND).data, fold.offset)
    assert fold._parts == {}
