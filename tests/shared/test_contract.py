"""Tests what every shared log promises (shared_log.py), on each of them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kit import background, in_threads
from shared_kit import (
    ROOT,
    STORE,
    Backing,
    at,
    begin_behind,
    data_of,
    filled,
    history,
    nonce,
    read_all,
    slot,
    turn_behind,
)

from planstep.errors import Corruption, Fenced, FormatError, Trimmed
from planstep.shared.entry import Entry, Owner
from planstep.shared.objects_log import open_root
from planstep.shared.owner import OwnerRow, Ownership
from planstep.shared.root import encode_root
from planstep.shared.shared_log import Position

SECOND = Owner(2, nonce("second"))
ALL = 1 << 20


def test_an_empty_log_has_no_turns_and_no_floor(anywhere: Any) -> None:
    log = anywhere.open()
    log.open(Position())
    assert log.read(ALL, 0) == []
    assert log.floor() == 1
    log.barrier()


def test_what_one_machine_appended_another_one_reads(anywhere: Any) -> None:
    entries = filled(anywhere, 5)
    log = anywhere.open()
    assert read_all(log) == entries
    assert log.read(ALL, 0) == []


def test_reading_goes_on_where_it_was_told_to(anywhere: Any) -> None:
    entries = filled(anywhere, 5)
    log = anywhere.open()
    assert read_all(log, entries[2]) == entries[3:]
    assert read_all(log, entries[4]) == []
    assert read_all(log) == entries


def test_a_read_returns_one_turn_at_least_and_stops_at_its_limit(anywhere: Any) -> None:
    entries = filled(anywhere, 4)
    log = anywhere.open()
    log.open(Position())
    assert log.read(0, 0) == entries[:1]
    assert log.read(1, 0) == entries[1:2]
    assert log.read(len(entries[2].data) + 1, 0) == entries[2:4]


def test_a_read_below_its_limit_has_all_that_was_there(anywhere: Any) -> None:
    entries = history(4)
    one, other = anywhere.open(), anywhere.open()
    for entry in entries[:3]:
        one.append(entry)
    assert data_of(other.read(1, 0)) == data_of(entries[:1])
    one.append(entries[3])
    assert data_of(other.read(ALL, 0)) == data_of(entries[1:])


def test_reading_and_appending_take_turns(anywhere: Any) -> None:
    entries = history(4)
    one, other = anywhere.open(), anywhere.open()
    for mine, theirs in (entries[:2], entries[2:]):
        one.append(mine)
        assert data_of(other.read(ALL, 0)) == [mine.data]
        other.append(theirs)
        assert data_of(one.read(ALL, 0)) == [theirs.data]


def test_a_read_waits_for_the_next_turn(anywhere: Any) -> None:
    reader, writer = anywhere.open(), anywhere.open()
    (entry,) = history(1)
    with background(lambda: reader.read(ALL, 60)) as (found,):
        writer.append(entry)
    assert data_of(found.result()) == [entry.data]
    assert reader.read(ALL, 0.01) == []


def test_a_second_turn_for_a_slot_is_fenced_and_leaves_the_first(anywhere: Any) -> None:
    entries = filled(anywhere, 2)
    late = anywhere.open()
    late.open(at(entries[0]))
    for _ in range(2):
        with pytest.raises(Fenced) as refused:
            late.append(begin_behind(entries[0], SECOND))
        assert refused.value.term == 1
    assert late.read(ALL, 0) == entries[1:]
    assert read_all(anywhere.open()) == entries


def test_a_turn_that_is_sent_again_is_ones_own(anywhere: Any) -> None:
    entries = filled(anywhere, 3)
    again = anywhere.open()
    for entry in entries:
        assert again.append(entry) == entry.mark
    assert read_all(anywhere.open()) == entries


def test_a_fenced_owner_learns_the_term_of_the_new_one(anywhere: Any) -> None:
    entries = history(2)
    owner, taker = anywhere.open(), anywhere.open()
    owner.append(entries[0])
    taker.read(ALL, 0)
    owner.barrier()
    taker.append(begin_behind(entries[0], SECOND))
    with pytest.raises(Fenced, match="term 2"):
        owner.barrier()
    with pytest.raises(Fenced, match="term 2"):
        owner.append(entries[1])
    taker.barrier()


def test_one_of_many_that_append_at_once_gets_the_slot(anywhere: Any) -> None:
    (first,) = filled(anywhere, 1)
    turns = [begin_behind(first, Owner(2, nonce(f"taker {n}"))) for n in range(8)]
    logs = [anywhere.open() for _ in turns]
    start = threading.Barrier(len(turns))
    got: list[Entry] = []

    def append(log: Any, entry: Entry) -> None:
        log.open(at(first))
        start.wait(60)
        try:
            log.append(entry)
        except Fenced:
            return
        got.append(entry)

    in_threads(lambda log=log, e=e: append(log, e) for log, e in zip(logs, turns, strict=True))
    assert data_of(read_all(anywhere.open())) == data_of([first, *got])
    assert len(got) == 1


# damage ----------------------------------------------------------------------------------------


def filled_without_runs(backing: Backing, turns: int) -> list[Entry]:
    """Appends so many turns. No run has them once more, from which a reader would take what is damaged."""
    entries = filled(backing, turns)
    remove_runs(backing)
    return entries


def remove_runs(backing: Backing) -> None:
    for name in backing.objects().names("run/"):
        backing.remove(name)


@pytest.mark.parametrize("missing", [[3], [1], [1, 2, 3], [2, 3, 4, 5]], ids=str)
def test_a_hole_is_corruption_and_not_the_end(backing: Backing, missing: list[int]) -> None:
    entries = filled_without_runs(backing, 6)
    for turn in missing:
        backing.remove(slot(turn))
    log = backing.open()
    log.open(Position())
    if missing[0] > 1:
        assert log.read(ALL, 0) == entries[: missing[0] - 1]
    for _ in range(2):
        with pytest.raises(Corruption, match=f"{slot(missing[0])} is missing"):
            log.read(ALL, 0)


def test_a_hole_that_comes_later_is_found_by_a_reader_at_the_end(backing: Backing) -> None:
    entries = filled_without_runs(backing, 2)
    log = backing.open()
    assert read_all(log) == entries
    backing.write(slot(4), history(4)[3].data)
    with pytest.raises(Corruption, match=f"{slot(3)} is missing"):
        log.read(ALL, 0)


@pytest.mark.parametrize("call", ["names", "get"])
def test_turns_that_come_while_the_end_is_looked_for_are_no_hole(
    backing: Backing, call: str
) -> None:
    entries = filled_without_runs(backing, 1)
    log, writer = backing.open(), backing.open()
    assert log.read(1, 0) == entries
    if call == "get":
        assert log.read(1, 0) == []
    else:
        log.open(at(entries[0]))  # so it lists once more
    coming = history(3)[1:]
    writer.read(1, 0)
    objects: Any = log._objects
    real = getattr(objects, call)

    def late(name: str, *start: str) -> Any:
        if name in ("log/", slot(3)):
            while coming:
                writer.append(coming.pop(0))
        return real(name, *start)

    setattr(objects, call, late)
    assert log.read(ALL, 0) == history(3)[1:]
    delattr(objects, call)


def test_damage_is_corruption_and_the_turns_before_it_are_read(backing: Backing) -> None:
    entries = filled_without_runs(backing, 3)
    data = entries[1].data
    for at_byte in range(len(data)):
        backing.write(slot(2), data[:at_byte] + bytes([data[at_byte] ^ 1]) + data[at_byte + 1 :])
        log = backing.open()
        log.open(Position())
        assert log.read(ALL, 0) == entries[:1]
        with pytest.raises(Corruption, match=slot(2)):
            log.read(ALL, 0)
        log.close()


def test_a_turn_in_another_ones_slot_is_corruption(backing: Backing) -> None:
    entries = filled_without_runs(backing, 3)
    backing.write(slot(2), entries[2].data)
    log = backing.open()
    log.open(at(entries[0]))
    with pytest.raises(Corruption, match=f"{slot(2)} has the entry of turn 3"):
        log.read(ALL, 0)


def test_a_slot_that_is_damaged_tells_an_owner_nothing(backing: Backing) -> None:
    entries = filled_without_runs(backing, 2)
    backing.write(slot(2), entries[1].data[:-1])
    log = backing.open()
    log.open(at(entries[0]))
    with pytest.raises(Corruption, match=slot(2)):
        log.append(entries[1])  # it was there, and nobody can say now that it was not
    with pytest.raises(Corruption, match=slot(2)):
        log.barrier()


def test_names_of_others_are_passed_by(backing: Backing) -> None:
    entries = filled_without_runs(backing, 2)
    for name in ("log/.nfs0001", "log/7", "log/" + "9" * 21, "floor/README", "floor/" + "x" * 20):
        backing.write(name, b"?")
    log = backing.open()
    assert read_all(log) == entries
    assert log.floor() == 1


# the root --------------------------------------------------------------------------------------


def test_a_root_that_is_gone_is_not_replaced(backing: Backing) -> None:
    filled(backing, 1)
    backing.remove("store")
    for root in (ROOT._replace(store_id=bytes(16)), None):
        with pytest.raises((Corruption, FormatError), match=r"is missing|is no shared log"):
            open_root(backing.objects(), "a log", root)
    assert backing.objects().get("store") is None
    backing.write("store", encode_root(ROOT))
    assert open_root(backing.objects(), "a log", None) == ROOT


# trimming --------------------------------------------------------------------------------------


def trimmed_history(backing: Backing) -> list[Entry]:
    """Appends BEGIN 1, turns 2 and 3, BEGIN 4, turns 5 to 7, and returns them. There are no runs."""
    entries = history(3)
    entries.append(begin_behind(entries[2], SECOND))
    for _ in range(3):
        entries.append(turn_behind(entries[-1], SECOND))
    log = backing.open()
    for entry in entries:
        log.append(entry)
    remove_runs(backing)
    return entries


def turns_left(backing: Backing) -> list[int]:
    names = backing.objects().names("log/")
    return [int(name.removeprefix("log/")) for name in names]


def test_trimming_leaves_the_begins(backing: Backing) -> None:
    entries = trimmed_history(backing)
    log = backing.open()
    log.trim(6)
    assert log.floor() == 6
    assert turns_left(backing) == [1, 4, 6, 7]
    assert read_all(backing.open(), entries[4]) == entries[5:]


def test_a_reader_below_the_floor_is_told_the_floor(backing: Backing) -> None:
    entries = trimmed_history(backing)
    behind = backing.open()
    behind.open(at(entries[0]))
    backing.open().trim(6)
    for _ in range(2):
        with pytest.raises(Trimmed) as gone:
            behind.read(ALL, 0)
        assert gone.value.floor == 6
    behind.open(at(entries[3]))
    with pytest.raises(Trimmed):
        behind.read(ALL, 0)


def test_a_reader_of_a_log_that_is_trimmed_to_its_end_is_told_so(backing: Backing) -> None:
    entries = trimmed_history(backing)
    backing.open().trim(8)
    log = backing.open()
    assert read_all(log, entries[6]) == []
    with pytest.raises(Trimmed):
        read_all(log, entries[4])


def test_a_floor_never_falls(backing: Backing) -> None:
    trimmed_history(backing)
    backing.open().trim(6)
    backing.open().trim(3)  # an owner that was fenced long ago
    backing.open().trim(6)
    assert backing.open().floor() == 6
    assert turns_left(backing) == [1, 4, 6, 7]


def test_a_floor_stands_before_the_first_turn_goes(backing: Backing) -> None:
    trimmed_history(backing)
    log = backing.open()
    objects: Any = log._objects
    floors: list[int] = []
    remove: Callable[[str], None] = objects.remove

    def noting(name: str) -> None:
        floors.append(backing.open().floor())
        remove(name)

    objects.remove = noting
    log.trim(6)
    del objects.remove
    assert floors == [6, 6, 6]


def test_trimming_that_was_cut_short_is_ended_by_the_next_one(backing: Backing) -> None:
    entries = trimmed_history(backing)
    backing.write("floor/" + "6".zfill(20), b"PSF1")
    backing.remove(slot(2))
    with pytest.raises(Trimmed):
        read_all(backing.open(), entries[0])
    backing.open().trim(6)
    assert turns_left(backing) == [1, 4, 6, 7]


def test_trimming_leaves_what_may_have_been_a_begin(backing: Backing) -> None:
    trimmed_history(backing)
    backing.write(slot(2), b"?")
    backing.open().trim(6)
    assert turns_left(backing) == [1, 2, 4, 6, 7]


# with owners -----------------------------------------------------------------------------------


class Folder:
    """A store's folder, as far as an owner goes."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def last_turn(self) -> int:
        return len(self.entries)

    def owner_row(self) -> OwnerRow | None:
        if not self.entries:
            return None
        last = self.entries[-1]
        mark = self.entries[-2].mark if self.entries[1:] else b""
        return OwnerRow(*last.owner, last.before, mark)

    def take(self, entry: Entry) -> None:
        assert entry.turn == self.last_turn + 1
        self.entries.append(entry)


def own(backing: Any, name: str, folder: Folder) -> Ownership:
    """Takes a store over for a machine of this name."""
    owner = Ownership(backing.open(), STORE, nonce(name))
    owner.catch_up(folder)
    owner.begin()
    owner.append(owner.last.turn + 1, 0, b"begin", b"", [])
    return owner


def test_owners_take_over_from_one_another(anywhere: Any) -> None:
    folder = Folder()
    for n in range(1, 6):
        owner = own(anywhere, f"owner {n}", folder)
        assert owner.term == n
        owner.append(owner.last.turn + 1, 0, b"", b"", [b"of owner %d" % n])
    Ownership(anywhere.open(), STORE, nonce("reader")).catch_up(folder)
    payloads = [entry.payload for entry in folder.entries if entry.payload]
    assert payloads == [b"of owner %d" % n for n in range(1, 6)]
    assert [entry.owner.term for entry in folder.entries] == sorted([*range(1, 6)] * 2)


def _before(anywhere: Any, turn: int) -> Entry:
    entry: Entry = read_all(anywhere.open())[turn - 2]
    return entry


def test_an_owner_that_slept_over_a_trim_is_fenced(anywhere: Any) -> None:
    slept = own(anywhere, "slept", Folder())
    awake = own(anywhere, "awake", Folder())
    for _ in range(20):
        awake.append(awake.last.turn + 1, 0, b"", b"", [])
    awake.log.trim(20, _before(anywhere, 20).mark)
    with pytest.raises(Fenced, match="term 2"):
        slept.append(slept.last.turn + 1, 0, b"", b"", [])


def test_a_taker_that_slept_over_a_trim_begins_nothing(backing: Backing) -> None:
    first = own(backing, "first", Folder())
    first.append(2, 0, b"", b"", [])
    late, reader = (Ownership(backing.open(), STORE, nonce(name)) for name in ("late", "reader"))
    late.catch_up(Folder())
    reader.catch_up(Folder())
    first.append(3, 0, b"", b"", [])
    awake = own(backing, "awake", Folder())
    awake.append(5, 0, b"", b"", [])
    awake.log.trim(5)
    late.begin()
    with pytest.raises(Trimmed):  # slot 3 was free again, which only the floor tells
        late.append(3, 0, b"", b"", [])
    assert turns_left(backing) == [1, 3, 4, 5]  # the void BEGIN stays
    (void,) = reader.log.read(ALL, 0)[:1]
    with pytest.raises(Trimmed):
        reader._check(void)
    awake.append(6, 0, b"", b"", [])


def test_close_may_be_called_twice(anywhere: Any) -> None:
    log = anywhere.open()
    log.close()
    log.close()
    assert anywhere.open().floor() == 1
