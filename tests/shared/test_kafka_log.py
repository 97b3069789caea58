"""Tests the log over a Kafka partition: what an append believes, roots, trims, and machines on bad days."""

from collections import Counter
from typing import Any

import pytest
from kafka_kit import InPartition, MemoryPartition, log_over
from shared_kit import (
    ROOT,
    BadDay,
    Machine,
    at,
    begin_behind,
    data_of,
    filled,
    history,
    nonce,
    play_bad_day,
    read_all,
    turn_behind,
)

from planstep.errors import (
    Corruption,
    Diverged,
    Fenced,
    FormatError,
    IoError,
    LogUnreachable,
    Trimmed,
)
from planstep.shared.entry import BEGIN, Entry, Owner
from planstep.shared.fold import PART_OVERHEAD
from planstep.shared.kafka_log import Record, open_partition
from planstep.shared.root import encode_root
from planstep.shared.shared_log import Position

FIRST, SECOND = Owner(1, nonce("first")), Owner(2, nonce("second"))
LIMIT = PART_OVERHEAD + 50
"""Records of the tests that have parts: a BEGIN has 107 bytes, a turn of a Machine some more than this."""
ALL = 1 << 20


@pytest.fixture
def log() -> InPartition:
    return InPartition()


class OneTrouble(BadDay):
    """A day on which the next calls of send have these troubles; everything else goes well."""

    def __init__(self, *kinds: str) -> None:
        super().__init__(0, 0.0)
        self.kinds = list(kinds)

    def draw(self, *kinds: str) -> str:
        return self.kinds.pop(0) if len(kinds) > 2 and self.kinds else ""


class Counting(MemoryPartition):
    """A partition that counts the calls to it, and may answer what another broker would."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.hidden = 0  # records at the end that a broker that is no leader any more does not have

    def bounds(self) -> tuple[int, int]:
        self.calls["bounds"] += 1
        first, end = super().bounds()
        return first, end - self.hidden

    def fetch(self, offset: int, wait: float) -> tuple[list[Record], int]:
        self.calls["fetch"] += 1
        return super().fetch(offset, wait)

    def send(self, records: list[bytes], key: bytes) -> list[int | None]:
        self.calls["send"] += 1
        return super().send(records, key)


# machines on bad days --------------------------------------------------------------------------


def play(seed: int, steps: int) -> tuple[list[Entry], list[Machine], BadDay]:
    backing = InPartition()
    return play_bad_day(backing, backing.faulty, seed, steps)


@pytest.mark.parametrize("limit", [900_000, LIMIT])
def test_machines_agree_whatever_goes_wrong(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.shared.kafka_log.RECORD_BYTES", limit)
    kinds: Counter[str] = Counter()
    turns = terms = refused = 0
    for seed in range(100):
        entries, machines, day = play(seed, 300)
        kinds.update(day.seen)
        turns += len(entries)
        terms += sum(entry.kind == BEGIN for entry in entries)
        refused += sum(len(machine.refused) for machine in machines)
    expected = "refused,lost,late,again late,unknown,twice,strange,part,stale,no bounds,no records"
    assert min(kinds[kind] for kind in expected.split(",")) > 100, kinds
    assert turns > 1_500 and terms > 300 and refused > 200, (turns, terms, refused)


# appends ---------------------------------------------------------------------------------------


def test_a_record_right_behind_the_last_one_is_not_read_back() -> None:
    partition = Counting()
    log = log_over(partition)
    log.read(ALL, 0)
    entries = history(20)
    partition.calls.clear()
    marks = [log.append(entry) for entry in entries]
    log.barrier()
    assert partition.calls == {"send": 21}
    assert [entry.mark for entry in read_all(log_over(partition))] == marks


@pytest.mark.parametrize(
    "kind", ["refused", "lost", "late", "again late", "unknown", "twice", "strange", "part"]
)
@pytest.mark.parametrize("limit", [900_000, LIMIT])
def test_a_turn_gets_through_one_trouble(
    log: InPartition, kind: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.shared.kafka_log.RECORD_BYTES", limit)
    entries = filled(log, 2)
    day = OneTrouble(kind, kind, kind)
    sender = log.faulty(day, timeout=60)
    sender.open(at(entries[1]))
    mine = [turn_behind(entries[1], FIRST, bytes(100))]
    mine.append(turn_behind(mine[0], FIRST, bytes(200)))
    marks = [sender.append(entry) for entry in mine]
    day.end()
    found = read_all(log.open())
    assert data_of(found) == data_of([*entries, *mine])
    assert [entry.mark for entry in found[2:]] == marks


def test_a_turn_that_arrives_after_another_ones_begin_is_fenced(log: InPartition) -> None:
    entries = filled(log, 1)
    day = OneTrouble("late")
    sender = log.faulty(day)
    sender.open(at(entries[0]))
    mine = turn_behind(entries[0], FIRST, b"mine")
    with pytest.raises(LogUnreachable, match="a faulty topic was not reached"):
        sender.append(mine)
    taken = begin_behind(entries[0], SECOND)
    other = log.open()
    other.open(at(entries[0]))
    other.append(taken)
    day.end()
    with pytest.raises(Fenced, match="term 2"):
        sender.append(mine)
    assert data_of(sender.read(ALL, 0)) == [taken.data]
    assert data_of(read_all(log.open())) == data_of([*entries, taken])


def test_a_begin_between_parts_ends_the_turn(
    log: InPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.shared.kafka_log.RECORD_BYTES", LIMIT)
    entries = filled(log, 1)
    partition: Any = log.partition
    send, taken = partition.send, begin_behind(entries[0], SECOND)

    def interrupted(records: list[bytes], key: bytes) -> list[int | None]:
        if len(records) == 1:
            return list(send(records, key))
        head = send(records[:2], key)
        send([taken.data], key)
        return [*head, *send(records[2:], key)]

    partition.send = interrupted
    sender = log.open()
    sender.open(at(entries[0]))
    with pytest.raises(Fenced, match="term 2"):
        sender.append(turn_behind(entries[0], FIRST, bytes(200)))
    assert data_of(read_all(log.open())) == data_of([*entries, taken])


def test_a_partition_that_was_cut_back_is_found_by_its_owner(log: InPartition) -> None:
    """An unclean election, or power that all brokers lost at once."""
    entries = filled(log, 3)
    owner = log.open()
    assert len(read_all(owner)) == 3
    del log.partition.records[2:]
    with pytest.raises(Diverged, match="has lost records: it ends at offset 2, and had 4 before"):
        owner.append(turn_behind(entries[2], FIRST))


def test_two_owners_of_a_partition_that_was_cut_back_are_found(log: InPartition) -> None:
    entries = filled(log, 3)
    owner = log.open()
    assert len(read_all(owner)) == 3
    del log.partition.records[2:]
    taker = log.open()
    assert len(read_all(taker)) == 1
    second = [begin_behind(entries[0], SECOND)]
    for _ in range(2):
        second.append(turn_behind(second[-1], SECOND))
    for entry in second:
        taker.append(entry)
    with pytest.raises(Corruption, match="is of term 2, but the BEGIN of that is missing"):
        owner.append(turn_behind(entries[2], FIRST))


def test_a_broker_that_is_no_leader_any_more_confirms_nothing() -> None:
    partition = Counting()
    log = log_over(partition)
    (begin,) = history(1)
    log.append(begin)
    log_over(partition).read(ALL, 0)
    taker = log_over(partition)
    assert len(read_all(taker)) == 1
    taken = begin_behind(begin, SECOND)
    taker.append(taken)
    partition.hidden = 2  # BEGIN and beat
    with pytest.raises(LogUnreachable, match="cannot be read yet"):
        log.barrier()
    partition.hidden = 0
    with pytest.raises(Fenced, match="term 2"):
        log.barrier()


def test_a_beat_of_which_no_offset_is_known_confirms_nothing(log: InPartition) -> None:
    filled(log, 1)
    reader = log.faulty(OneTrouble("unknown"))
    assert len(read_all(reader)) == 1
    with pytest.raises(LogUnreachable):
        reader.barrier()
    reader.barrier()


# reading ---------------------------------------------------------------------------------------


def test_damage_is_corruption_for_ever_and_the_turns_before_it_are_read(log: InPartition) -> None:
    entries = filled(log, 3)
    records = log.partition.records
    for place in (2, 3):
        whole = records[place]
        for n in range(len(whole.data)):
            flipped = bytearray(whole.data)
            flipped[n] ^= 1
            records[place] = whole._replace(data=bytes(flipped))
            reader = log.open()
            reader.open(Position())
            if n < 4:  # it is a record of others now, and the next one tells
                after = turn_behind(entries[2], FIRST)
                records.append(Record(4, b"", after.data))
            assert reader.read(ALL, 0) == entries[: place - 1]
            for _ in range(2):
                with pytest.raises(Corruption, match=r"offset [234]"):
                    reader.read(ALL, 0)
            with pytest.raises(Corruption, match=r"offset [234]"):
                reader.barrier()
            del records[4:]
        records[place] = whole


def test_records_of_others_are_passed_over(log: InPartition) -> None:
    (begin,) = filled(log, 1)
    foreign = [b"", b"hello", b"PS", bytes(2_000), encode_root(ROOT._replace(store_id=bytes(16)))]
    log.partition.send(foreign, b"key")
    owner = log.open()
    assert read_all(owner) == [begin]
    entries = [turn_behind(begin, FIRST, b"one")]
    owner.append(entries[0])
    log.partition.send(foreign, b"key")
    entries.append(turn_behind(entries[0], FIRST, b"two"))
    owner.append(entries[1])
    reader = log.open()
    assert data_of(read_all(reader)) == data_of([begin, *entries])
    assert reader.counts.void_records == 1 + 2 * len(foreign)  # and the root


def test_a_fetch_that_brings_nothing_ends_with_the_time_out(
    log: InPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.shared.kafka_log._FETCH_S", 0.01)
    filled(log, 1)
    partition: Any = log.partition
    reader = log.open()
    partition.fetch = lambda offset, wait: ([], offset)
    with pytest.raises(LogUnreachable, match=r"no records came for 0\.01 seconds"):
        reader.read(ALL, 0)


def test_places_that_no_record_of_ours_has_are_passed(log: InPartition) -> None:
    """Markers of others' transactions have offsets, and are shown to nobody."""
    entries = filled(log, 2)
    partition: Any = log.partition
    partition.records.append(Record(3, b"", b"a marker"))
    really = partition.fetch

    def fetch(offset: int, wait: float) -> tuple[list[Record], int]:
        records, behind = really(offset, wait)
        return [record for record in records if record.data != b"a marker"], behind

    partition.fetch = fetch
    owner = log.open()
    assert read_all(owner) == entries
    assert owner.read(ALL, 0) == []
    owner.append(turn_behind(entries[1], FIRST))
    assert len(read_all(log.open())) == 3


# the root --------------------------------------------------------------------------------------


def test_of_two_that_make_a_log_at_once_the_first_root_counts() -> None:
    partition = MemoryPartition()
    mine, other = ROOT, ROOT._replace(store_id=b"of another store")
    real = partition.bounds
    theirs = encode_root(other)

    def late() -> tuple[int, int]:
        found = real()
        if found == (0, 0):
            partition.send([theirs], theirs)
        return found

    partition.bounds = late  # type: ignore[method-assign]
    assert open_partition(partition, mine) == other
    partition.bounds = real  # type: ignore[method-assign]
    assert [record.data for record in partition.records] == [theirs, encode_root(mine)]
    assert open_partition(partition, None) == open_partition(partition, mine) == other


def test_a_root_that_came_too_late_stays_without_effect_when_the_first_is_deleted() -> None:
    partition = MemoryPartition()
    log = log_over(partition)
    entries = [entry._replace(mark=log.append(entry)) for entry in history(3)]
    late = encode_root(ROOT._replace(store_id=b"of another store"))
    partition.send([late], late)
    four = turn_behind(entries[2], FIRST)
    log.append(four)
    log.trim(4, entries[2].mark)
    assert partition.records[partition.first].data == late
    assert open_partition(partition, ROOT._replace(store_id=bytes(16))) == ROOT
    assert log_over(partition).floor() == 4


def test_no_root_and_nobody_to_make_one() -> None:
    with pytest.raises(FormatError, match="a topic is no shared log"):
        open_partition(MemoryPartition(), None)


def test_a_topic_of_others_is_left_alone() -> None:
    partition = MemoryPartition()
    partition.send([b"an order", b"another one"], b"key")
    for root in (ROOT, None):
        with pytest.raises(FormatError, match="give the log a topic of its own"):
            open_partition(partition, root)
    partition.delete_below(2)
    with pytest.raises(FormatError, match="give the log a topic of its own"):
        open_partition(partition, ROOT)
    assert len(partition.records) == 2


def test_a_root_that_is_not_kept_is_an_error() -> None:
    partition = MemoryPartition()
    partition.send = lambda records, key: [None]  # type: ignore[method-assign]
    with pytest.raises(IoError, match="did not keep what was written to it"):
        open_partition(partition, ROOT)


# trimming --------------------------------------------------------------------------------------


def trimmed_history(log: InPartition) -> list[Entry]:
    """Appends BEGIN 1, turns 2 and 3, BEGIN 4, turns 5 to 7, each behind a stranger's record."""
    entries = history(3)
    entries.append(begin_behind(entries[2], SECOND))
    for _ in range(3):
        entries.append(turn_behind(entries[-1], SECOND))
    owner = log.open()
    for n, entry in enumerate(entries):
        log.partition.send([b"hello"], b"")
        entries[n] = entry._replace(mark=owner.append(entry))
    return entries


def test_trimming_leaves_what_a_reader_from_the_floor_needs(log: InPartition) -> None:
    entries = trimmed_history(log)
    log.open().trim(6, entries[4].mark)
    assert log.open().floor() == 6
    assert read_all(log.open(), entries[4]) == entries[5:]  # its terms are known without a BEGIN
    for behind in (None, entries[0], entries[3]):
        reader = log.open()
        reader.open(at(behind))
        for _ in range(2):
            with pytest.raises(Trimmed) as gone:
                reader.read(ALL, 0)
            assert gone.value.floor == 6
        assert reader.floor() == 6


def test_a_floor_never_falls(log: InPartition) -> None:
    entries = trimmed_history(log)
    log.open().trim(6, entries[4].mark)
    log.open().trim(3, entries[1].mark)  # an owner that was fenced long ago
    log.open().trim(1, b"")
    assert log.open().floor() == 6


def test_a_repeat_of_an_older_turn_at_the_front_hides_no_trim(log: InPartition) -> None:
    entries = filled(log, 3)
    log.partition.send([entries[1].data], b"")  # a sender that woke late
    owner = log.open()
    assert len(read_all(owner)) == 3
    four = turn_behind(entries[2], FIRST)
    owner.append(four)
    owner.trim(4, entries[2].mark)
    reader = log.open()
    reader.open(at(entries[1]))
    with pytest.raises(Trimmed) as gone:
        reader.read(ALL, 0)
    assert gone.value.floor == 4
    assert data_of(read_all(log.open(), entries[2])) == [four.data]


def test_a_trim_without_the_mark_is_a_bug_of_its_caller(log: InPartition) -> None:
    filled(log, 2)
    with pytest.raises(AssertionError, match="the mark tells"):
        log.open().trim(2)


def test_a_taker_that_slept_over_a_trim_begins_nothing(log: InPartition) -> None:
    entries = filled(log, 2)
    late = log.open()
    assert len(read_all(late)) == 2
    owner = log.open()
    assert len(read_all(owner)) == 2
    for _ in range(3):
        entry = turn_behind(entries[-1], FIRST)
        entries.append(entry._replace(mark=owner.append(entry)))
    owner.trim(5, entries[3].mark)
    with pytest.raises(Fenced):
        late.append(begin_behind(entries[1], SECOND))
    assert late.floor() == 5  # so the sender knows that it lacks turns
    with pytest.raises(Trimmed):
        late.read(ALL, 0)
    owner.append(turn_behind(entries[-1], FIRST))
    assert len(read_all(log.open(), entries[3])) == 2


def test_a_turn_may_have_counted_that_a_trim_has_removed_since(log: InPartition) -> None:
    """So the floor is above it: owner.py does not say then that it had no effect."""
    entries = filled(log, 2)
    day = OneTrouble("late")
    sender = log.faulty(day)
    sender.open(at(entries[1]))
    mine = turn_behind(entries[1], FIRST, b"mine")
    with pytest.raises(LogUnreachable):
        sender.append(mine)
    day.end()
    taker = log.open()
    found = read_all(taker)
    assert found[-1].data == mine.data
    taken = begin_behind(mine, SECOND)
    mark = taker.append(taken)
    taker.append(turn_behind(taken, SECOND))
    taker.trim(5, mark)
    with pytest.raises(Fenced, match="term 2"):
        sender.append(mine)
    assert sender.floor() == 5 > mine.turn
