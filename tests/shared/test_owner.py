"""Tests an ownership over a log in memory: what it refuses to take, and what may follow an append that failed."""

from collections.abc import Callable

import pytest
from shared_kit import ROOT, STORE, begin_behind, history, nonce, slot, turn_behind

from planstep.errors import (
    Corruption,
    Diverged,
    Fenced,
    IoError,
    LogUnreachable,
    NoSpace,
    Trimmed,
)
from planstep.shared.entry import BEGIN, NO_CHAIN, Entry, Owner, read_entry, seal
from planstep.shared.memory_log import MemoryShared
from planstep.shared.objects_log import ObjectsLog
from planstep.shared.owner import OwnerRow, Ownership


class Folder:
    """A machine's folder: the entries that it has taken."""

    def __init__(self, entries: list[Entry] | None = None) -> None:
        self.entries = entries or []

    @property
    def last_turn(self) -> int:
        return len(self.entries)

    def owner_row(self) -> OwnerRow | None:
        if not self.entries:
            return None
        last = self.entries[-1]
        return OwnerRow(*last.owner, last.before, b"")

    def take(self, entry: Entry) -> None:
        assert entry.turn == len(self.entries) + 1
        self.entries.append(entry)


class Shared:
    """A log in memory, and owners on it."""

    def __init__(self) -> None:
        self.memory = MemoryShared()
        self.open()

    def open(self) -> ObjectsLog:
        return self.memory.open_as("a test", ROOT, 0.0)[0]

    def write(self, *entries: Entry) -> None:
        self.memory.objects.update({slot(entry.turn): entry.data for entry in entries})

    def owner(self, name: str, folder: Folder | None = None) -> Ownership:
        """Returns an ownership that has caught up."""
        owner = Ownership(self.open(), STORE, nonce(name))
        owner.catch_up(folder or Folder())
        return owner

    def leader(self, name: str) -> Ownership:
        """Returns an ownership that has begun its term."""
        owner = self.owner(name)
        owner.begin()
        append(owner)
        return owner


def append(owner: Ownership, payload: bytes = b"") -> Entry:
    return owner.append(owner.last.turn + 1, 7, b"changes", b"", [payload])


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_each_term_is_above_the_last_one(shared: Shared) -> None:
    first = shared.leader("first")
    written = append(first, b"x")
    second = shared.leader("second")
    assert (first.term, second.term) == (1, 2)
    assert second.last_owner == second.owner and second.last.turn == 3
    with pytest.raises(Fenced) as fenced:
        append(first)
    assert fenced.value.term == 2
    folder = Folder()
    third = shared.owner("third", folder)
    assert folder.entries[1].data == written.data
    third.begin(above=7)
    assert append(third).owner == Owner(8, nonce("third"))


FIRST = history(3)
WRONG: dict[str, Callable[[], Entry]] = {
    "a turn before any BEGIN": lambda: turn_behind(None, Owner(1, nonce("first"))),
    "a turn of another owner": lambda: turn_behind(FIRST[-1], Owner(2, nonce("other"))),
    "a turn of the same term": lambda: turn_behind(FIRST[-1], Owner(1, nonce("other"))),
    "a turn of a later term": lambda: turn_behind(FIRST[-1], Owner(2, nonce("first"))),
    "a BEGIN of the same term": lambda: begin_behind(FIRST[-1], Owner(1, nonce("other"))),
    "a BEGIN of no term": lambda: begin_behind(FIRST[-1], Owner(0, nonce("other"))),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_no_owner_writes_is_not_taken(shared: Shared, wrong: str) -> None:
    entry = WRONG[wrong]()
    shared.write(*FIRST[: entry.turn - 1], entry)
    folder = Folder()
    with pytest.raises(Corruption, match="no owner writes that"):
        shared.owner("taker", folder)
    assert len(folder.entries) == entry.turn - 1


def test_a_chain_and_a_store_are_compared_at_each_entry(shared: Shared) -> None:
    shared.write(*FIRST[:2], FIRST[2]._replace(data=history(3, Owner(1, nonce("other")))[2].data))
    with pytest.raises(Diverged, match=r"turn 3 .* does not follow"):
        shared.owner("taker")
    other = Ownership(shared.open(), b"another store id", nonce("taker"))
    with pytest.raises(Diverged, match="another store"):
        other.catch_up(Folder())


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_folder_of_another_history_is_refused(shared: Shared, turns: int) -> None:
    shared.write(*FIRST)
    for owner in (Owner(1, nonce("other")), Owner(2, nonce("first"))):
        with pytest.raises(Diverged, match=f"turn {turns}"):
            shared.owner("taker", Folder(history(turns, owner)))
    with pytest.raises(Diverged, match=r"ends before turn 4.*--reseed"):
        shared.owner("taker", Folder(history(4)))


@pytest.mark.parametrize("error", [LogUnreachable("cut"), KeyboardInterrupt(), Corruption("x")])
def test_nothing_follows_an_append_that_failed(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    owner = shared.leader("first")

    def fails(log: ObjectsLog, entry: Entry) -> bytes:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(ObjectsLog, "append", fails)
        with pytest.raises(type(error)):
            append(owner)
    with pytest.raises(AssertionError, match="behind an append that failed"):
        append(owner, b"other bytes")


def test_another_turn_may_follow_where_there_was_no_room(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = shared.leader("first")

    def full(log: ObjectsLog, entry: Entry) -> bytes:
        raise NoSpace("full")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectsLog, "append", full)
        with pytest.raises(NoSpace):
            append(owner, b"large")
    assert append(owner, b"small").turn == 2


def test_a_begin_in_a_slot_that_was_emptied_is_void_and_stays(shared: Shared) -> None:
    """It is below the floor by then. If it were removed, the slot of an owner before would be free again."""
    entries = history(6)
    shared.write(*entries[:3])
    taker, reader = shared.owner("taker"), shared.owner("reader")  # both sleep now
    shared.write(*entries[3:])
    shared.open().trim(6)
    assert slot(4) not in shared.memory.objects
    taker.begin()
    with pytest.raises(Trimmed) as trimmed:
        append(taker)
    assert trimmed.value.floor == 6
    left = read_entry(shared.memory.objects[slot(4)], "slot 4")
    assert (left.kind, left.owner) == (BEGIN, Owner(2, nonce("taker")))
    (void,) = reader.log.read(1, 0)
    assert void == left
    with pytest.raises(Trimmed):
        reader._check(void)
    with pytest.raises(Trimmed):
        shared.owner("later", Folder(entries[:3]))


@pytest.mark.parametrize("floor", [3, 4])
def test_a_fence_below_the_floor_leaves_a_turn_in_doubt(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, floor: int
) -> None:
    """Turn 2 counts, but its owner sleeps before it learns so. By then a late taker's void BEGIN is in its slot."""
    zombie = shared.leader("zombie")
    taker = shared.owner("taker")
    taker.begin()
    objects = shared.memory.objects
    put, get = shared.memory.create, shared.memory.get
    counted: dict[str, bytes] = {}

    def unanswered(name: str, data: bytes) -> bool:
        put(name, data)
        raise IoError("no answer")

    def sleeping(name: str) -> bytes | None:
        monkeypatch.undo()
        counted.update(objects)
        append(shared.leader("next"))
        shared.open().trim(floor)
        with pytest.raises(Trimmed):
            append(taker)
        return get(name)

    monkeypatch.setattr(shared.memory, "create", unanswered)
    monkeypatch.setattr(shared.memory, "get", sleeping)
    with pytest.raises(Fenced) as fenced:
        append(zombie)
    assert read_entry(counted[slot(2)], "slot 2").owner == zombie.owner
    assert read_entry(objects[slot(2)], "slot 2").owner == taker.owner
    assert fenced.value.in_doubt


def test_a_fence_above_the_floor_leaves_no_doubt(shared: Shared) -> None:
    zombie = shared.leader("zombie")
    append(shared.leader("next"))
    shared.open().trim(2)
    with pytest.raises(Fenced) as fenced:
        append(zombie)
    assert not fenced.value.in_doubt


def test_a_floor_that_is_not_known_leaves_a_fenced_turn_in_doubt(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = shared.leader("zombie")
    shared.leader("next")

    def cut(log: ObjectsLog) -> int:
        raise LogUnreachable("cut")

    monkeypatch.setattr(ObjectsLog, "floor", cut)
    with pytest.raises(LogUnreachable):  # and not Fenced, which says that it has no effect
        append(zombie)


# folders below the floor -----------------------------------------------------------------------


def long_history() -> list[Entry]:
    """Seals turns 1 to 4 of a first owner, 5 to 8 of a second one, and 9 to 12 of a third one."""
    entries = history(4)
    for term in (2, 3):
        owner = Owner(term, nonce(f"owner {term}"))
        entries.append(begin_behind(entries[-1], owner))
        for _ in range(3):
            entries.append(turn_behind(entries[-1], owner))
    return entries


def other_history(turns: int, begun: int, term: int) -> list[Entry]:
    """Seals the same turns up to `begun`, from which on another owner goes on."""
    entries = long_history()[: begun - 1]
    owner = Owner(term, nonce("other"))
    entries.append(begin_behind(entries[-1], owner))
    while len(entries) < turns:
        entries.append(turn_behind(entries[-1], owner))
    return entries


@pytest.mark.parametrize(
    ("turns", "floor"), [(turns, floor) for floor in (9, 10, 12) for turns in range(1, floor)]
)
def test_a_folder_below_the_floor_is_told_so(shared: Shared, turns: int, floor: int) -> None:
    entries = long_history()
    shared.write(*entries)
    shared.open().trim(floor)
    if turns not in (1, 5, 9):  # BEGINs
        assert slot(turns) not in shared.memory.objects
        void = begin_behind(entries[turns - 2], Owner(entries[turns - 2].owner.term + 1, b"v" * 16))
        shared.write(void)
    with pytest.raises(Trimmed):
        shared.owner("later", Folder(entries[:turns]))


@pytest.mark.parametrize("floor", [9, 10, 12])
@pytest.mark.parametrize("turns", range(2, 9))
def test_a_folder_of_another_history_below_the_floor_is_refused(
    shared: Shared, turns: int, floor: int
) -> None:
    """Its turns are nowhere else, so no snapshot takes their place."""
    shared.write(*long_history())
    shared.open().trim(floor)
    for begun in range(2, turns + 1):
        for term in (1, 2, 3, 9):
            with pytest.raises(Diverged, match=f"turn {turns}"):
                shared.owner("later", Folder(other_history(turns, begun, term)))
    for turn in range(5, turns + 1):  # the first owner went on where the second one began
        ahead = history(turn, Owner(1, nonce("first")))
        with pytest.raises(Diverged, match=f"turn {turn}"):
            shared.owner("later", Folder(ahead))


def test_a_folder_is_refused_that_has_the_turn_of_a_seed_from_elsewhere(shared: Shared) -> None:
    """The log was put back, and goes on behind a folder that lacked the last turn."""
    owner = Owner(9, nonce("reseeded"))
    begin = seal(BEGIN, STORE, owner, 7, NO_CHAIN, 7)
    shared.write(*history(6), begin, turn_behind(begin, owner))
    shared.open().trim(7)
    with pytest.raises(Trimmed):
        shared.owner("later", Folder(history(5)))
    with pytest.raises(Diverged, match="turn 6"):
        shared.owner("later", Folder(history(6)))


def test_damage_below_the_floor_refuses_no_folder(shared: Shared) -> None:
    entries = long_history()
    shared.write(*entries)
    shared.memory.objects[slot(7)] = b"damaged"
    shared.open().trim(10)
    assert shared.memory.objects[slot(7)] == b"damaged"
    with pytest.raises(Trimmed):
        shared.owner("later", Folder(entries[:6]))
