"""Tests opening replicated stores: what is refused, and what a folder that is empty, old or foreign gets.

The numbers are those of the scenarios that replication is accepted by.
"""

import shutil
import threading
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest
import replica_kit
from replica_kit import Line, Machines, rows

import planstep
from planstep.proto.records_pb2 import StoreMeta
from planstep.runtime.replication import ReplicatedFolder
from planstep.shared.entry import BEGIN
from planstep.shared.files_log import FileObjects
from planstep.shared.owner import Ownership
from planstep.shared.registry import open_shared_log
from planstep.shared.shared_log import Root
from planstep.store import DiskStore
from planstep.store.files import Files
from planstep.store.meta import FORMAT, REPLICATED, load_meta
from planstep.store.replicated import OWNER_KEY
from planstep.store.verify import verify

machines = replica_kit.machines
hooks = replica_kit.hooks
line = replica_kit.line


def write(db: planstep.Engine, key: str, value: Any = 1) -> None:
    db.create_table("t", exist_ok=True).put(key, value)


def test_a_store_goes_on_from_its_shared_log_in_an_empty_folder(machines: Machines) -> None:
    with machines.open("a") as db:
        db.create_topic("events", partitions=2, format="utf8").write_batch(["x", "y"], partition=1)
        write(db, "k", 7)
        db.table("t").delete("k")
        write(db, "l", 8)
        tx = db.transaction()
        tx.put("t", "m", 9)
        tx.commit()
    with machines.open("b") as db:
        assert rows(db) == {"l": 8, "m": 9}
        assert db.topic("events").read(0, partition=1).values == ["x", "y"]
        assert db.outcome(tx.id).state == "committed"
        write(db, "n")
    with machines.open("a") as db:
        assert rows(db) == {"l": 8, "m": 9, "n": 1}


def _id(machines: Machines, name: str) -> bytes:
    meta = load_meta(machines.folder(name) / "host-0", Files())
    assert meta is not None and meta.format == REPLICATED
    return meta.store_id


def test_all_that_is_stored_is_equal_on_all_machines(machines: Machines) -> None:
    for name in "abab":
        with machines.open(name) as db:
            write(db, name)
            db.create_topic("log", exist_ok=True).write_batch([b"v"] * 100)
            db.topic("log").trim(50, 0)
    held = []
    for name in "abc":
        log, root = open_shared_log(machines.url, None)
        store = DiskStore.open(machines.folder(name) / "host-0", shared_id=_id(machines, "a"))
        Ownership(log, root.store_id, bytes(16)).catch_up(ReplicatedFolder(store))
        held.append((store.last_turn, store.next_address, store.scan(b"", b"\xff" * 9)))
        store.crash()
        log.close()
        assert verify(store.folder) == []
    assert held[0] == held[1] == held[2] and len(held[0][2]) > 10
    assert len({load_meta(machines.folder(name) / "host-0", Files()) for name in "abc"}) == 3


def test_a_term_is_in_each_id_and_grows_with_each_opening(machines: Machines) -> None:
    ids = []
    for name in "aabb":
        with machines.open(name) as db:
            ids.append(db.transaction().id)
            assert db.stats()["generation"] == len(ids)
    assert len(set(ids)) == 4
    begun = [entry for entry in machines.entries() if entry.kind == BEGIN]
    assert [entry.owner.term for entry in begun] == [1, 2, 3, 4]
    assert len({entry.owner.nonce for entry in begun}) == 4


def test_who_did_not_close_it_owns_it_elsewhere(machines: Machines) -> None:
    with machines.open("a") as db:
        write(db, "k")
        before = len(machines.entries())
        for _ in range(2):  # the second finds a folder that has caught up
            with pytest.raises(
                planstep.OwnedElsewhere, match=r"process \d+, since .*takeover=True"
            ):
                machines.open("b")
        assert len(machines.entries()) == before, "a refused opening ends nobody's term"
        write(db, "l")
    with machines.open("b") as db:  # it was closed
        assert rows(db) == {"k": 1, "l": 1}


def test_the_same_folder_opens_without_a_takeover_after_a_crash(machines: Machines) -> None:
    db = machines.open("a")
    write(db, "k")
    db._runtime.crash()
    db.close()
    with machines.open("a") as db:
        assert rows(db) == {"k": 1}


def test_a_taken_over_owner_is_told_by_whom(machines: Machines) -> None:
    old = machines.open("a")
    write(old, "k")
    with machines.take_over("b") as db:
        write(db, "l")
        with pytest.raises(planstep.Fenced, match="term 2") as fenced:
            write(old, "m")
        assert fenced.value.term == 2
        for call in (lambda: write(old, "m"), lambda: old.create_topic("x"), old.transaction):
            try:
                begun = call()
            except planstep.Fenced as error:
                assert error.term == 2 and "term 2:" in str(error)
            else:
                begun.put("t", "m", 1)
                with pytest.raises(planstep.Fenced):
                    begun.commit()
        assert rows(db) == {"k": 1, "l": 1}
        old.close()


def test_an_owner_that_writes_during_each_list_is_taken_over(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists of a long log take longer than a turn: a taker that lists before each try would never be in time."""
    busy = machines.open("a")
    write(busy, "k")
    really = FileObjects.names
    writing: list[int] = []

    def names(objects: FileObjects, *words: str) -> list[str]:
        found = really(objects, *words)
        if not writing:
            writing.append(1)
            with suppress(planstep.Fenced):
                write(busy, "k", len(found))
            writing.clear()
        return found

    monkeypatch.setattr(FileObjects, "names", names)
    before = len(machines.entries())
    with machines.take_over("b") as db:
        write(db, "l")
        assert rows(db)["l"] == 1
    assert [entry.kind for entry in machines.entries()[before:]].count(BEGIN) == 1
    busy.close()


@pytest.mark.parametrize("when", ["yesterday", "emptied", "just made"])
def test_15_a_folder_of_yesterday(machines: Machines, when: str) -> None:
    with machines.open("a") as db:
        write(db, "old")
        db.create_topic("events", format="utf8").write_batch(["x"] * 10)
    yesterday = machines.folder("yesterday")
    shutil.copytree(machines.folder("a"), yesterday)
    with machines.open("a") as db:
        write(db, "new")
        db.topic("events").write_batch(["y"] * 10)
    shutil.rmtree(machines.folder("a"))
    if when == "yesterday":
        yesterday.rename(machines.folder("a"))
    elif when == "emptied":
        machines.folder("a").mkdir()
    with machines.open("a") as db:
        assert rows(db) == {"old": 1, "new": 1}
        assert db.topic("events").describe().records == 20
        write(db, "newer")
    with machines.open("b") as db:
        assert rows(db) == {"old": 1, "new": 1, "newer": 1}


def test_16_a_folder_of_another_store(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Machines(tmp_path / "other")
    with machines.open("a") as db:
        write(db, "k")
    with other.open("a") as db:
        write(db, "l")
    ends = len(machines.entries()), len(other.entries())
    with pytest.raises(planstep.Diverged, match="another store"):
        planstep.open(machines.folder("a"), replicate=other.url, takeover=True)
    assert (len(machines.entries()), len(other.entries())) == ends
    with machines.open("a") as db:  # it is as it was
        assert rows(db) == {"k": 1}


@pytest.mark.parametrize("goes_on", ["nobody", "another machine"])
def test_17_a_folder_that_went_on_alone(machines: Machines, goes_on: str) -> None:
    with machines.open("a") as db:
        write(db, "k")
    store = DiskStore.open(machines.folder("a") / "host-0", shared_id=_id(machines, "a"))
    for value in range(2):
        turn = store.begin()
        turn.put(OWNER_KEY + b"alone", value)
        store.commit(turn)
    store.close()
    if goes_on == "another machine":
        with machines.open("b") as db:
            write(db, "l")
            write(db, "m")
    ends = len(machines.entries())
    with pytest.raises(planstep.Diverged, match="turn"):
        machines.take_over("a")
    assert len(machines.entries()) == ends


def test_18_a_replicated_folder_does_not_open_without_its_log(machines: Machines) -> None:
    with machines.open("a") as db:
        write(db, "k")
    for settings in ({}, {"create": False}, {"wait": 1}):
        with pytest.raises(planstep.NotSupported, match="replicate=URL"):
            planstep.open(machines.folder("a"), **settings)
    with planstep.open(machines.folder("a"), read_only=True) as db:
        assert rows(db) == {"k": 1}


def test_a_backup_is_a_store_of_its_own(machines: Machines) -> None:
    for name in "ab" * 3:
        with machines.open(name) as db:
            write(db, "k")
    with machines.open("c") as db:  # in term 7, and opened for the first time
        copy = machines.home / "copy"
        db.backup(copy)
    with planstep.open(copy) as alone:
        assert rows(alone) == {"k": 1}
        assert alone.stats()["generation"] > 1007
    again = machines.home / "again"
    planstep.restore(machines.folder("c"), again)
    with planstep.open(again) as alone:
        assert alone.stats()["generation"] > 1007
        assert alone._runtime.nodes[0].host.store.get(OWNER_KEY) is None
    with pytest.raises(planstep.NotSupported, match="not replicated"):
        planstep.open(copy, replicate=machines.url)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"hosts": 2}, planstep.NotSupported, "one host"),
        ({"read_only": True}, planstep.NotSupported, "leave replicate out"),
        ({"replicate": 7}, TypeError, "named by a URL"),
        ({"replicate": "nowhere"}, ValueError, "no URL"),
        ({"replicate": "carrier-pigeon://x/y"}, planstep.NotSupported, "carrier-pigeon"),
        ({"takeover": 1}, TypeError, "True or False"),
        ({"takeover": True, "replicate": None}, ValueError, "replicate=URL"),
    ],
)
def test_settings(
    machines: Machines, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        planstep.open(machines.folder("a"), **{"replicate": machines.url, **settings})
    assert not (machines.folder("a") / "host-0").exists()


def test_memory_is_not_replicated(machines: Machines) -> None:
    with pytest.raises(planstep.NotSupported, match="folder"):
        planstep.open(":memory:", replicate=machines.url)


def test_the_mode_is_that_of_the_log(machines: Machines) -> None:
    machines.open("a", mode="kafka", kafka=planstep.KafkaSettings()).close()
    with machines.open("b", kafka=planstep.KafkaSettings()) as db:
        assert db.mode == "kafka"
    for name in "bc":
        with pytest.raises(planstep.WrongMode, match="kafka"):
            machines.open(name, mode="deterministic")
        with pytest.raises(planstep.WrongMode, match="kafka"):
            machines.open(name, pulsar=planstep.PulsarSettings())


def test_a_mode_that_this_version_does_not_know_ends_no_term(machines: Machines) -> None:
    log, _ = open_shared_log(machines.url, Root(b"a newer version.", "quantum", 1))
    log.close()
    with pytest.raises(planstep.FormatError, match=r"mode 'quantum'.* use a newer"):
        machines.take_over("a")
    assert machines.entries() == []
    assert not (machines.folder("a") / "host-0").exists()


def test_a_path_is_one_engine_of_one_log(machines: Machines) -> None:
    with machines.open("a") as db:
        with pytest.raises(planstep.WrongMode, match=r"already with replicate\.url="):
            planstep.open(machines.folder("a"), replicate=machines.url + "2")
        for again in (planstep.open(machines.folder("a")), machines.take_over("a")):
            assert again is db  # what is left out is as the engine has it
            again.close()
    with planstep.open(machines.home / "alone"):
        with pytest.raises(planstep.WrongMode, match="already with replicate=None"):
            machines.open("alone")


def test_settings_of_the_log_are_settings_of_the_engine(machines: Machines) -> None:
    settings = planstep.Replicate(machines.url, log_timeout=5)
    with planstep.open(machines.folder("a"), replicate=settings):
        planstep.open(machines.folder("a"), replicate=settings).close()
        with pytest.raises(planstep.WrongMode, match=r"already with replicate\.log_timeout="):
            machines.open("a")


def test_the_engine_stops_once_its_log_has_not_answered_for_so_long(
    machines: Machines, line: Line
) -> None:
    settings = planstep.Replicate(machines.url, log_timeout=0.25)
    with planstep.open(machines.folder("a"), replicate=settings) as db:
        line.failing = inf
        with pytest.raises(planstep.Undetermined):
            db.create_table("t")
        with pytest.raises(planstep.LogUnreachable, match=r"for 0\.25 seconds"):
            db.create_table("t")


async def test_an_event_loop_opens_it_too(machines: Machines) -> None:
    async with planstep.open_async(machines.folder("a"), replicate=machines.url) as db:
        await db.create_table("t")
        await db.table("t").put("k", 1)
        with pytest.raises(planstep.OwnedElsewhere):
            await planstep.open_async(machines.folder("b"), replicate=machines.url)
        async with planstep.open_async(machines.folder("b"), replicate=machines.url, takeover=True):
            with pytest.raises(planstep.Fenced):
                await db.table("t").put("k", 2)


def test_a_store_with_turns_of_its_own_is_refused(machines: Machines) -> None:
    with planstep.open(machines.folder("a")) as db:
        write(db, "k")
    with pytest.raises(planstep.NotSupported, match="planstep replicate"):
        machines.open("a")
    assert not (machines.home / "log").exists(), "it made no log"
    meta = StoreMeta.FromString((machines.folder("a") / "host-0" / "meta.pb").read_bytes())
    assert meta.format == FORMAT and not meta.folder_id


def test_a_folder_without_its_log_makes_none(machines: Machines) -> None:
    with machines.open("a") as db:
        write(db, "k")
    shutil.rmtree(machines.home / "log")
    with pytest.raises(planstep.PlanstepError):
        machines.open("a")
    assert not (machines.home / "log").exists()


def test_without_create_the_log_must_be_there(machines: Machines) -> None:
    for _ in range(2):
        with pytest.raises(planstep.PlanstepError, match="log"):
            machines.take_over("a", create=False)
        assert not (machines.home / "log").exists()
        assert not (machines.folder("a") / "host-0").exists()
    with machines.open("a") as db:
        write(db, "k")
    with machines.open("b", create=False) as db:
        assert rows(db) == {"k": 1}
        write(db, "l")
    with machines.open("b", create=False) as db:
        assert rows(db) == {"k": 1, "l": 1}


def test_meta_of_a_store_that_is_not_replicated_is_as_ever(tmp_path: Path) -> None:
    planstep.open(tmp_path / "s").close()
    meta = StoreMeta.FromString((tmp_path / "s" / "host-0" / "meta.pb").read_bytes())
    assert (meta.format, meta.folder_id) == (2, b"")


def test_a_log_that_was_put_back_is_refused_while_a_folder_is_ahead(machines: Machines) -> None:
    with machines.open("a") as db:
        write(db, "k")
    shutil.copytree(machines.home / "log", machines.home / "kept")
    with machines.open("a") as db:
        write(db, "l")
    shutil.rmtree(machines.home / "log")
    (machines.home / "kept").rename(machines.home / "log")
    with pytest.raises(planstep.Diverged, match="ends before turn"):
        machines.open("a")


def test_a_long_tail_is_checkpointed_while_it_is_taken(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machines.open("a") as db:
        table = db.create_table("t")
        for n in range(40):
            table.put(n, n)
    monkeypatch.setattr("planstep.store.checkpointing.CHECKPOINT_KEYS", 30)
    by: list[int] = []
    really = DiskStore.checkpoint

    def noted(store: DiskStore, *args: Any) -> bool:
        by.append(threading.get_ident())
        return really(store, *args)

    monkeypatch.setattr(DiskStore, "checkpoint", noted)
    with machines.open("b") as db:
        assert by.count(threading.get_ident()) >= 2
        assert rows(db) == {n: n for n in range(40)}


def test_a_failing_opening_lets_go_of_folder_and_log(machines: Machines, hooks: Any) -> None:
    with machines.open("a") as db:
        write(db, "k")

    def fails(_: object) -> None:
        raise planstep.LogUnreachable("made to fail")

    hooks.before = fails
    with pytest.raises(planstep.LogUnreachable):
        machines.open("a")
    hooks.before = lambda _: None
    hooks.after = fails  # its BEGIN is there
    with pytest.raises(planstep.LogUnreachable):
        machines.open("a")
    hooks.after = lambda _: None
    with machines.open("a") as db:
        assert rows(db) == {"k": 1}
        assert db.stats()["generation"] == 3


@pytest.mark.parametrize("asked", [None, False, True])
def test_each_turn_is_synced_in_the_folder_too_if_asked(
    machines: Machines, asked: bool | None
) -> None:
    with machines.open("a") as db:
        for n in range(5):
            write(db, f"k{n}")
    settings = planstep.Replicate(machines.url, local_sync=asked)
    with planstep.open(machines.folder("b"), replicate=settings) as db:
        store: Any = db._runtime.nodes[0].host.store
        synced = store._log.synced == store.last_turn  # those that were caught up, and the first
        before = store.counters.syncs
        for n in range(5):
            write(db, f"l{n}")
        assert (store.counters.syncs - before >= 5) is synced is bool(asked)
        assert (store._log.synced == store.last_turn) is bool(asked)
    with machines.open("b") as db:
        assert len(rows(db)) == 10
