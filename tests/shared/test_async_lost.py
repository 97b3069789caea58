"""Tests what a folder of mode "async" has beyond its log: the same folder ships it, and a takeover loses it.

The numbers are those of the scenarios that replication is accepted by.
"""

import dataclasses
import logging
import shutil
import signal
import threading
from typing import Any, NamedTuple

import async_kit
import pytest
import replica_kit
from async_kit import (
    FOR_EVER,
    OWNER,
    READER,
    Cut,
    die,
    ends,
    floor_of,
    lost_in,
    often,
    opened,
    settings,
    store_of,
)
from kafka_kit import MemoryPartition
from kill_kit import calls_of, killed_at, some_of
from kit import Child, background, until
from replica_kit import Hooks, Line, Machines, rows

import planstep
from planstep.errors import LogUnreachable
from planstep.runtime.seeding import seed
from planstep.runtime.unshipped import Overtaken
from planstep.shared.entry import Entry, seal
from planstep.shared.kafka_log import KafkaLog, open_partition
from planstep.store import DiskStore, disk_store
from planstep.store.files import Files
from planstep.store.meta import load_meta
from planstep.store.turn import decode_changes, encode_changes
from planstep.store.verify import verify

machines = replica_kit.machines
hooks = replica_kit.hooks
line = replica_kit.line
cut = async_kit.cut


# the same folder again --------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["async", "sync", "follow"])
def test_what_only_the_folder_has_comes_first_in_its_own_term(
    machines: Machines, cut: Cut, again: str
) -> None:
    db = opened(machines)
    table = db.create_table("t")
    until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
    cut.is_set = True
    for n in range(10):
        table.put(n, n)
    there, here = ends(machines)[-1][1], store_of(db).last_turn
    die(db)
    assert here >= there + 10
    cut.is_set = False
    if again == "follow":
        with planstep.follow(machines.folder("a"), machines.url) as me:
            assert dict(me.db.table("t").scan()) == {n: n for n in range(10)}
            assert ends(machines)[-1] == (1, here)
        return
    with machines.open("a", replicate=settings(machines, mode=again)) as db:
        assert rows(db) == {n: n for n in range(10)}
        db.table("t").put("more", 1)
    terms = ends(machines)
    assert terms[here - 1 : here + 1] == [(1, here), (2, here + 1)]
    with machines.open("b") as db:
        assert rows(db) == {**{n: n for n in range(10)}, "more": 1}


def test_a_put_that_landed_unknown_to_a_killed_owner_is_its_own(
    machines: Machines, hooks: Hooks
) -> None:
    db = opened(machines)
    db.create_table("t").put("k", 1)
    until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
    landed = threading.Event()

    def lose(_: Entry) -> None:
        landed.set()
        raise LogUnreachable("the answer was lost")

    hooks.after = lose
    db.table("t").put("l", 2)
    assert landed.wait(60)
    db.table("t").put("m", 3)
    hooks.after = replica_kit.nothing
    hooks.before = Cut(hooks)
    hooks.before.is_set = True
    die(db)
    hooks.before = replica_kit.nothing
    with opened(machines) as db:
        assert rows(db) == {"k": 1, "l": 2, "m": 3}
    ends(machines)


def test_segments_stay_until_their_turns_are_shipped(
    machines: Machines, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_store, "SEGMENT_BYTES", 1 << 16)
    db = opened(machines)
    topic, store = db.create_topic("c"), store_of(db)
    until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)

    def segments() -> list[str]:
        return sorted(path.name for path in (machines.folder("a") / "host-0").glob("log-*"))

    cut.is_set = True
    first = segments()[-1]
    for n in range(100):
        topic.write(b"%d" % n * 2000)
        if n % 10 == 0:
            store.checkpoint()
            topic.trim(n)
    store.checkpoint()
    assert first in segments() and len(segments()) > 2
    die(db)
    cut.is_set = False
    db = opened(machines)
    with db:
        assert db.topic("c").read(99, 0).values[-1] == b"99" * 2000
        store = store_of(db)
        until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
        db.topic("c").trim(99)
        store.checkpoint()
        until(lambda: store.checkpoint() or first not in segments())
    ends(machines)
    with machines.open("b") as db:
        assert db.topic("c").read(99, 0).values == [b"99" * 2000]
    assert verify(machines.folder("a") / "host-0") == []


def in_kafka(monkeypatch: pytest.MonkeyPatch) -> tuple[planstep.Replicate, set[int]]:
    """Has all machines share a log in a partition in memory; turns above the smallest number of the set do not get
    there.
    """
    partition, above = MemoryPartition(), set[int]()

    class CutLog(KafkaLog):
        def append(self, entry: Entry) -> bytes:
            if entry.turn > min(above, default=1 << 60) and entry.owner.term == 1:
                raise LogUnreachable("the line is cut")
            return super().append(entry)

    def log_of(url: str, root: Any, timeout: float = 60) -> Any:
        found = open_partition(partition, root)
        return CutLog(partition, found, timeout), found

    monkeypatch.setattr("planstep.runtime.replication.open_shared_log", log_of)
    monkeypatch.setattr("planstep.runtime.snapshotting.open_shared_log", log_of)
    url = "kafka://nowhere:9092/shop"
    return planstep.Replicate(url, mode="async", max_lag=FOR_EVER, reads="local"), above


@pytest.mark.parametrize("taker", [None, "b"])
def test_a_log_in_kafka_gets_the_rest_too(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, taker: str | None
) -> None:
    """The folder's row R has a mark that is older than its turn there."""
    settings, above = in_kafka(monkeypatch)
    db = planstep.open(machines.folder("a"), replicate=settings)
    table, store = db.create_table("t"), store_of(db)
    for n in range(10):
        table.put(n, n)
    until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
    above.add(store.last_turn + 3)
    for n in range(10, 20):
        table.put(n, n)
    until(lambda: store._shared._ownership.last.turn == min(above))
    die(db)
    there = 13
    if taker is not None:
        with planstep.open(machines.folder(taker), replicate=settings, takeover=True) as other:
            assert rows(other) == {n: n for n in range(there)}
            other.table("t").put("b", 1)
    above.clear()
    with planstep.open(machines.folder("a"), replicate=settings) as db:
        expected = (
            {n: n for n in range(20)} if taker is None else {**{n: n for n in range(there)}, "b": 1}
        )
        assert rows(db) == expected
        table = db.table("t")
        for n in range(50):
            table.put("more", n)
    aside = machines.folder("a.term-1")
    assert aside.exists() == (taker is not None)
    if taker is not None:
        assert len([turn for turn in lost_in(aside).turns if turn.transactions]) == 20 - there
    sync = dataclasses.replace(settings, mode="sync")
    for name in ("a", "c"):
        with planstep.open(machines.folder(name), replicate=sync) as db:
            assert rows(db) == {**expected, "more": 49}


# scenario 28: the owner is lost, and comes back ---------------------------------------------------


class Answer(NamedTuple):
    """A commit that an owner was told of: its id, key, and when it began and was told, by the owner's clock."""

    tx: str
    key: tuple[int, int]
    began: float
    told: float


def answers(machines: Machines, max_lag: float, number: int, seconds: float = 0.0) -> list[Answer]:
    """Returns the commits that an owner was told of until it was killed amid others, after so many and so long."""

    def heard(line: str) -> Answer:
        tx, thread, i, began, told = line.split()
        return Answer(tx, (int(thread), int(i)), float(began), float(told))

    with Child(OWNER, machines.folder("a"), machines.url, max_lag) as owner:
        lines = [owner.line()]
        while len(lines) < number or heard(lines[-1]).told < heard(lines[0]).began + seconds:
            lines.append(owner.line())
        owner.process.send_signal(signal.SIGKILL)
        lines += [
            line for line in owner.process.stdout.read().splitlines() if len(line.split()) == 5
        ]
    return [heard(line) for line in lines]


def test_28_a_lost_machine_takes_no_more_with_it_than_the_bound(machines: Machines) -> None:
    """A turn had room no later than `max_lag` behind the first one that is lost, so it began before that."""
    told = answers(machines, 0.4, 300, seconds=1.0)  # so the log had to get some
    with machines.take_over("b") as db:
        there = rows(db).keys()
    lost = [one for one in told if one.key not in there]
    assert 0 < len(lost) < len(told)
    first = min(one.told for one in lost)
    assert all(one.began <= first + 0.4 for one in lost)
    for thread in range(3):  # no holes
        numbers = sorted(i for which, i in there if which == thread)
        assert numbers == list(range(len(numbers)))
    with machines.open("a") as db:  # it was closed: nobody is in the way
        assert rows(db).keys() == there
    named = {tx for turn in lost_in(machines.folder("a.term-1")).turns for tx in turn.transactions}
    assert {one.tx for one in lost} <= named
    assert named.isdisjoint(one.tx for one in told if one.key in there)


def test_28_the_same_machine_loses_nothing(machines: Machines) -> None:
    keys: set[Any] = set()
    for _ in range(3):
        keys |= {one.key for one in answers(machines, FOR_EVER, 150)}
    with machines.open("a") as db:
        assert keys <= rows(db).keys()
    assert not list(machines.home.glob("a.term-*"))
    ends(machines)


OPENING = """
import planstep

arm()
settings = planstep.Replicate(sys.argv[3], mode="async", reads="local")
with planstep.open(sys.argv[2], replicate=settings, takeover=True) as db:
    db.table("t").put("more", 1)
"""


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_an_opening_that_is_killed_anywhere_may_be_repeated(
    machines: Machines, cut: Cut, tmp_path_factory: pytest.TempPathFactory, is_overtaken: bool
) -> None:
    """It ships what the folder alone has, or sets the folder aside."""
    if is_overtaken:
        db, _ = overtaken(machines, cut)
        expected: dict[Any, Any] = {"both": 1, "new": "b"}
    else:
        db = opened(machines)
        db.create_table("t")
        until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
        cut.is_set = True
        for n in range(5):
            db.table("t").put(n, n)
        expected = {n: n for n in range(5)}
    die(db)
    cut.is_set = False

    def copy(name: str) -> Machines:
        home = tmp_path_factory.mktemp(name) / "home"
        shutil.copytree(machines.home, home)
        return Machines(home)

    whole = copy("whole")
    calls = calls_of(OPENING, whole.folder("a"), whole.url)
    for call in some_of(calls, 12):
        there = copy("killed")
        killed_at(call, OPENING, there.folder("a"), there.url)
        with opened(there, takeover=True) as db:
            assert {key: value for key, value in rows(db).items() if key != "more"} == expected
        ends(there)
        aside = list(there.home.glob("a.term-*"))
        assert len(aside) == is_overtaken
        for path in aside:
            assert sum(len(turn.transactions) for turn in lost_in(path).turns) == 5


def overtaken(machines: Machines, cut: Cut) -> tuple[planstep.Engine, int]:
    """Returns an owner with 5 turns of its own, behind whose back "b" owns the store, and its last shared turn."""
    db = opened(machines, reads="confirmed")
    db.create_topic("c")
    db.create_table("t").put("both", 1)
    until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
    shared = int(store_of(db).last_turn)
    cut.is_set = True
    for n in range(5):
        with db.transaction() as tx:
            tx.put("t", n, "a")
            tx.write("c", b"1")
            tx.write("c", b"2")
    with machines.take_over("b") as other:
        assert rows(other) == {"both": 1}
        other.table("t").put("new", "b")
    return db, shared


def test_28_a_fenced_owner_says_how_many_turns_are_lost(machines: Machines, cut: Cut) -> None:
    db, _ = overtaken(machines, cut)
    cut.is_set = False
    until(lambda: db._runtime.turns.stopped is not None)  # by itself, without a commit
    for call in (lambda: db.table("t").put("x", 1), lambda: db.table("t").get("x")):
        with pytest.raises(planstep.Fenced, match="has not: 5") as caught:
            call()
        assert (caught.value.lost, caught.value.term) == (5, 2)
    assert db.stats()["shared_log"]["fences"] == 1
    db.close()


def test_a_read_that_finds_the_fence_ends_all_answers(machines: Machines, cut: Cut) -> None:
    """A reader is told of the fence; what is committed behind that would be lost."""
    db, _ = overtaken(machines, cut)
    store_of(db)._shared._stopping.set()  # the shipper does not get there
    store_of(db)._shared._thread.join()
    with pytest.raises(planstep.Fenced) as caught:
        db.table("t").get("both")
    assert caught.value.lost == 5
    with pytest.raises(planstep.Fenced):
        db.table("t").put("x", 1)
    db.close()


@pytest.mark.parametrize("then", ["open", "take over", "follow"])
def test_28_a_folder_that_was_overtaken_is_set_aside_and_says_what_is_lost(
    machines: Machines, cut: Cut, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    db, shared = overtaken(machines, cut)
    last = store_of(db).last_turn
    die(db)
    cut.is_set = False
    folder = machines.folder("a")
    with caplog.at_level(logging.WARNING):
        if then == "follow":
            with planstep.follow(folder, machines.url) as me:
                assert dict(me.db.table("t").scan()) == {"both": 1, "new": "b"}
        else:
            with opened(machines, takeover=then == "take over") as again:
                assert rows(again) == {"both": 1, "new": "b"}
    assert "folder_set_aside" in [getattr(record, "event", "") for record in caplog.records]
    ends(machines)
    aside = folder.with_name("a.term-1")
    lost = lost_in(aside)
    assert (lost.term, lost.certain) == (1, True)
    assert [turn.turn for turn in lost.turns] == list(range(shared + 1, last + 1))
    told = [turn for turn in lost.turns if turn.transactions]
    assert len(told) == 5 and len({tx for turn in told for tx in turn.transactions}) == 5
    assert all((turn.records, turn.rows) == ({"c": 2}, {"t": 1}) for turn in told)
    assert any(change.startswith("c[0] @0 2 records") for change in told[0].changes)
    assert verify(aside / "host-0") == []
    with planstep.open(aside, read_only=True) as old:  # it is whole
        assert dict(old.table("t").scan()) == {"both": 1, **dict.fromkeys(range(5), "a")}


def test_a_folder_without_turns_of_its_own_is_not_set_aside(machines: Machines) -> None:
    db = opened(machines)
    db.create_table("t").put("k", 1)
    until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
    die(db)
    with machines.take_over("b") as other:
        other.table("t").put("l", 2)
    with opened(machines) as db:
        assert rows(db) == {"k": 1, "l": 2}
    assert not machines.folder("a.term-1").exists()


def test_set_aside_twice_gets_two_names(machines: Machines, hooks: Hooks) -> None:
    for number in (1, 2):
        cut = Cut(hooks, term=0)
        with machines.take_over("b") as other:
            other.create_table("t", exist_ok=True)
        db = opened(machines, takeover=True)
        cut.term, cut.is_set = store_of(db)._shared.term, True
        db.table("t").put(number, "a")
        with machines.take_over("b") as other:
            other.table("t").put("b", number)
        die(db)
        shutil.rmtree(machines.folder("x"), ignore_errors=True)
        cut.is_set = False
        with machines.take_over("a"):
            pass
    assert len(list(machines.home.glob("a.term-*"))) == 2


def test_a_folder_that_others_read_is_not_set_aside(machines: Machines, cut: Cut) -> None:
    db, _ = overtaken(machines, cut)
    die(db)
    cut.is_set = False
    with Child(READER, machines.folder("a")) as reader:
        assert reader.line() == "reads"
        with pytest.raises(planstep.StoreInUse):
            opened(machines)
    with opened(machines) as again:
        assert rows(again) == {"both": 1, "new": "b"}
    assert machines.folder("a.term-1").is_dir()


def test_a_folder_that_was_overtaken_long_ago_is_set_aside_too(
    machines: Machines, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new owner has trimmed the log above all that the folder knows."""
    db, shared = overtaken(machines, cut)
    last = store_of(db).last_turn
    die(db)
    often(monkeypatch)
    with machines.open("b", replicate=machines.replicate(snapshot_bytes=4_000)) as other:
        for n in range(1_000_000):
            other.table("t").put("new", n)
            if floor_of(machines) > last + 10:
                break
    cut.is_set = False
    with opened(machines) as again:
        assert rows(again) == {"both": 1, "new": n}
    lost = lost_in(machines.folder("a.term-1"))
    assert [turn.turn for turn in lost.turns] == list(range(shared + 1, last + 1))


def test_whoever_closes_the_folder_keeps_what_is_not_shipped(machines: Machines, cut: Cut) -> None:
    db = opened(machines)
    db.create_table("t")
    cut.is_set = True
    db.table("t").put("k", 1)
    die(db)
    cut.is_set = False
    folder = machines.folder("a") / "host-0"
    meta = load_meta(folder, Files())
    assert meta is not None
    for _ in range(2):
        DiskStore.open(folder, create=False, shared_id=meta.shared_id).close()
    with opened(machines) as db:
        assert rows(db) == {"k": 1}
    ends(machines)


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_log_that_is_only_behind_is_not_seeded_anew(
    machines: Machines, cut: Cut, is_overtaken: bool
) -> None:
    """It ships what the folder alone has, and throws away nothing that another machine did since."""
    if is_overtaken:
        db, _ = overtaken(machines, cut)
    else:
        db = opened(machines)
        db.create_table("t")
        cut.is_set = True
        db.table("t").put("k", 1)
    last = store_of(db).last_turn
    die(db)
    before = ends(machines)
    cut.is_set = False
    if is_overtaken:
        with pytest.raises(Overtaken):
            seed(machines.folder("a"), settings(machines), reseed=True)
        assert ends(machines) == before
    else:
        with pytest.raises(planstep.NotSupported, match="not behind this folder"):
            seed(machines.folder("a"), settings(machines), reseed=True)
        assert ends(machines)[-1] == (1, last)


def test_28_a_turn_under_way_when_the_fence_is_found_is_counted_as_lost(
    machines: Machines, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, _ = overtaken(machines, cut)
    store = store_of(db)
    files, go_on, is_written = store._log._files, threading.Event(), threading.Event()
    write = files.write

    def slow(fd: int, *args: Any) -> None:
        write(fd, *args)
        if fd == store._log.fd and not go_on.is_set():
            is_written.set()
            assert go_on.wait(60)

    monkeypatch.setattr(files, "write", slow)
    with background(lambda: db.table("t").put("late", 1)) as (put,):
        assert is_written.wait(60)
        cut.is_set = False
        until(lambda: store._shared._error is not None)
        go_on.set()
        put.result(60)
    with pytest.raises(planstep.Fenced, match="has not: 6") as caught:
        db.table("t").put("x", 1)
    assert caught.value.lost == 6
    db.close()


def test_a_read_amid_a_close_takes_no_entry_of_its_own_for_a_fence(
    machines: Machines, line: Line
) -> None:
    """The last entry is there, and nobody heard of it."""
    db = opened(machines, reads="confirmed")
    db.create_table("t")
    until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
    line.arrives, line.failing = True, float("inf")
    db.table("t").put("k", 1)
    shared = store_of(db)._shared
    until(lambda: isinstance(shared._trouble, LogUnreachable))
    thread, errors = shared._thread, []

    class Joined:
        ident = thread.ident

        def join(self) -> None:
            thread.join()
            line.failing = 0
            with pytest.raises(planstep.PlanstepError) as caught:
                store_of(db).confirm()
            errors.append(type(caught.value))

    shared._thread = Joined()
    db._runtime.crash()
    db.close()
    assert errors == [planstep.EngineClosed]


def test_a_folder_with_another_last_turn_of_the_same_owner_is_refused(machines: Machines) -> None:
    """A machine went on from an image of its memory; what it did before that was shipped."""
    with opened(machines) as db:
        db.create_table("t").put("k", 1)
        until(lambda: db.stats()["shared_log"]["lag_turns"] == 0)
        die(db)
    entry = machines.entries()[-1]
    changes = {
        key: value for key, value in decode_changes(entry.changes).items() if key[4:5] != b"r"
    }
    other = seal(
        *(entry.kind, entry.store_id, entry.owner, entry.turn, entry.before, entry.address),
        changes=encode_changes(changes),
        dropped=entry.dropped,
        payloads=[entry.payload],
    )
    assert other.data != entry.data
    (machines.home / "log" / "log" / f"{entry.turn:020d}").write_bytes(other.data)
    for mode in ("async", "sync"):
        with pytest.raises(planstep.Diverged, match="image"):
            machines.open("a", replicate=settings(machines, mode=mode))
