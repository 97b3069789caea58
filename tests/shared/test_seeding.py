"""Tests shared logs that begin with a store that has turns, the end of that, and stores restored from a log."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import replica_kit
from kill_kit import calls_of, killed_at, some_of
from replica_kit import Machines, rows

import planstep
from planstep.runtime.seeding import restore_from, seed, stop
from planstep.shared.registry import open_shared_log
from planstep.shared.settings import Replicate
from planstep.shared.shared_log import Root
from planstep.store.files import Files
from planstep.store.meta import load_meta
from planstep.store.verify import verify

machines = replica_kit.machines


def fill(machines: Machines, name: str = "a", **settings: Any) -> dict[Any, Any]:
    """Makes an ordinary store with rows, records and payload that was trimmed; returns its rows."""
    with planstep.open(machines.folder(name), **settings) as db:
        table, topic = db.create_table("t", exist_ok=True), db.create_topic("top", exist_ok=True)
        for n in range(40):
            table.put(n, n)
            topic.write(b"%d" % n * 50, partition=0)
        topic.trim(10, 0)
        return rows(db)


def settings_of(machines: Machines, log: str = "log") -> Replicate:
    return Replicate((machines.home / log).as_uri())


def check(machines: Machines, name: str) -> None:
    assert verify(machines.folder(name) / "host-0") == []


def generation(db: planstep.Engine) -> int:
    return int(db.stats()["generation"])


def test_a_store_with_turns_is_replicated(machines: Machines) -> None:
    expected = fill(machines)
    with planstep.open(machines.folder("a")) as db:
        before = generation(db)
    turn = seed(machines.folder("a"), settings_of(machines))
    assert turn > 40
    with pytest.raises(planstep.NotSupported, match="is replicated"):
        planstep.open(machines.folder("a"))
    with machines.open("a") as db:
        assert rows(db) == expected and generation(db) > before
        db.table("t").put("later", 1)
        expected = rows(db)
    with machines.open("b") as db:
        assert rows(db) == expected
        assert [record.value for record in db.topic("top").read()][-1] == b"39" * 50
        db.table("t").put("elsewhere", 2)
    with machines.open("a") as db:
        assert db.table("t").get("elsewhere") == 2
    for name in "ab":
        check(machines, name)


@pytest.mark.parametrize("mode", ["kafka", "pulsar"])
def test_a_store_of_each_mode_is_replicated(machines: Machines, mode: Any) -> None:
    with planstep.open(machines.folder("a"), mode=mode) as db:
        topic = db.create_topic("top")
        for n in range(10):
            topic.write(b"%d" % n)
    seed(machines.folder("a"), settings_of(machines))
    with machines.open("b") as db:
        assert db.mode == mode
        db.topic("top").write(b"10")
        assert len(db.topic("top").read()) == 11
    with machines.open("a") as db:
        assert len(db.topic("top").read()) == 11


def test_a_seed_is_repeated_without_effect(machines: Machines) -> None:
    expected = fill(machines)
    for _ in range(3):
        seed(machines.folder("a"), settings_of(machines))
    with machines.open("b") as db:
        assert rows(db) == expected
    assert len(list((machines.home / "log" / "snap").iterdir())) == 1


def test_an_empty_store_is_a_seed_too(machines: Machines) -> None:
    planstep.open(machines.folder("a")).close()
    seed(machines.folder("a"), settings_of(machines))
    with machines.open("b") as db:
        db.create_table("t").put(1, 1)
    with machines.open("a") as db:
        assert rows(db) == {1: 1}


def test_what_an_unclosed_store_left_open_is_withdrawn(machines: Machines) -> None:
    fill(machines)
    db = planstep.open(machines.folder("a"))
    tx = db.transaction()
    tx.put("t", "k", 1)
    db._runtime.crash()
    db.close()
    seed(machines.folder("a"), settings_of(machines))
    with machines.open("b") as db:
        assert db.table("t").get("k") is None
        db.table("t").put("k", 2)


def test_a_place_with_the_log_of_another_store_is_refused(machines: Machines) -> None:
    expected = fill(machines)
    with machines.open("other") as db:
        db.create_table("t").put(1, 1)
    with pytest.raises(planstep.Diverged, match="choose another URL"):
        seed(machines.folder("a"), settings_of(machines))
    with planstep.open(machines.folder("a")) as db:
        assert rows(db) == expected
    with machines.open("other") as db:
        assert rows(db) == {1: 1}
    seed(machines.folder("a"), settings_of(machines, "log-2"))


def test_two_copies_of_one_store_are_two_stores(machines: Machines) -> None:
    fill(machines)
    shutil.copytree(machines.folder("a"), machines.folder("b"))
    seed(machines.folder("a"), settings_of(machines))
    with pytest.raises(planstep.Diverged):
        seed(machines.folder("b"), settings_of(machines))
    seed(machines.folder("b"), settings_of(machines, "log-2"))
    for name, log in (("a", "log-2"), ("b", "log")):
        with pytest.raises(planstep.Diverged):
            machines.open(name, replicate=settings_of(machines, log))


def test_several_hosts_and_other_things_are_refused(machines: Machines, tmp_path: Path) -> None:
    fill(machines, hosts=2)
    with pytest.raises(planstep.NotSupported, match="2 hosts"):
        seed(machines.folder("a"), settings_of(machines))
    with pytest.raises(planstep.FormatError, match="no store"):
        seed(tmp_path / "nothing", settings_of(machines))
    with pytest.raises(planstep.NotSupported, match="first turn"):
        fill(machines, "b")
        seed(machines.folder("b"), Replicate("kafka://127.0.0.1:1/shop"))
    with planstep.open(machines.folder("b")):
        with pytest.raises(planstep.StoreInUse):
            seed(machines.folder("b"), settings_of(machines))
    assert not (machines.home / "log").exists()


SEED = """
import sys
from pathlib import Path
from planstep.runtime.seeding import seed
from planstep.shared.registry import open_shared_log
from planstep.shared.settings import Replicate
from planstep.shared.shared_log import Root
arm()
seed(Path(sys.argv[2]), Replicate(sys.argv[3]))
"""


def test_23_a_kill_in_each_step_of_a_seed(machines: Machines) -> None:
    expected = fill(machines)
    shutil.copytree(machines.folder("a"), machines.folder("whole"))
    calls = calls_of(SEED, machines.folder("whole"), (machines.home / "whole-log").as_uri())
    assert calls > 30
    alone = 0
    for number, call in enumerate(some_of(calls, 12)):
        here = Machines(machines.home / f"{number}")
        here.home.mkdir()
        shutil.copytree(machines.folder("a"), here.folder("a"))
        killed_at(call, SEED, here.folder("a"), here.url)
        meta = load_meta(here.folder("a") / "host-0", Files())
        assert meta is not None
        if meta.format == 2:  # the store goes on alone: then there is no log yet
            alone += 1
            assert not (here.home / "log" / "store").exists()
            with planstep.open(here.folder("a")) as db:
                assert rows(db) == expected
                db.table("t").put("alone", 1)
                now = rows(db)
        else:
            now = expected
            with pytest.raises(planstep.NotSupported):
                planstep.open(here.folder("a"))
        seed(here.folder("a"), settings_of(here))
        with here.open("b") as db:
            assert rows(db) == now
        check(here, "a")
        check(here, "b")
        shutil.rmtree(here.home)
    assert 2 < alone < 12


# the end of it ---------------------------------------------------------------------------------


def test_a_replicated_folder_becomes_an_ordinary_one(machines: Machines) -> None:
    with machines.open("a") as db:
        db.create_table("t").put("k", 1)
        before = generation(db)
    with machines.open("b") as db:
        db.table("t").put("k", 2)
    stop(machines.folder("a"))
    with planstep.open(machines.folder("a")) as db:
        assert rows(db) == {"k": 1} and generation(db) > before + 1000
        db.table("t").put("k", 3)
    check(machines, "a")
    with pytest.raises(planstep.NotSupported, match="not replicated"):
        stop(machines.folder("a"))
    with pytest.raises(planstep.NotSupported):
        machines.open("a")
    with machines.open("b") as db:
        assert rows(db) == {"k": 2}
    seed(machines.folder("a"), settings_of(machines, "log-2"))
    with machines.open("c", replicate=settings_of(machines, "log-2")) as db:
        assert rows(db) == {"k": 3}
    with pytest.raises(planstep.Diverged, match="another store"):
        machines.open("b", replicate=settings_of(machines, "log-2"))


STOP = SEED.replace("seed(Path(sys.argv[2]), Replicate(sys.argv[3]))", "stop(Path(sys.argv[2]))")
STOP = STOP.replace("import seed", "import stop")


def test_23_a_kill_in_each_step_of_a_stop(machines: Machines) -> None:
    with machines.open("a") as db:
        db.create_table("t").put("k", 1)
        before = generation(db)
    shutil.copytree(machines.folder("a"), machines.folder("whole"))
    calls = calls_of(STOP, machines.folder("whole"))
    for number, call in enumerate(some_of(calls, 8)):
        name = f"a-{number}"
        shutil.copytree(machines.folder("a"), machines.folder(name))
        killed_at(call, STOP, machines.folder(name))
        meta = load_meta(machines.folder(name) / "host-0", Files())
        assert meta is not None
        if meta.format == 3:
            stop(machines.folder(name))
        with planstep.open(machines.folder(name)) as db:
            assert rows(db) == {"k": 1} and generation(db) > before + 1000
        check(machines, name)


def test_19_a_log_that_was_put_back_goes_on_behind_a_folder(machines: Machines) -> None:
    with machines.open("a") as db:
        table = db.create_table("t")
        for n in range(10):
            table.put(n, n)
    with machines.open("b"):
        pass
    shutil.copytree(machines.home / "log", machines.home / "yesterday")
    with machines.open("a") as db:
        for n in range(10):
            db.table("t").put(n, n + 100)
        expected, before = rows(db), generation(db)
    with pytest.raises(planstep.NotSupported, match="not behind this folder"):
        seed(machines.folder("a"), settings_of(machines), reseed=True)
    shutil.rmtree(machines.home / "log")
    (machines.home / "yesterday").rename(machines.home / "log")
    with pytest.raises(planstep.Diverged, match="ends before turn"):
        machines.open("a")
    with pytest.raises(planstep.Diverged):
        seed(machines.folder("a"), settings_of(machines))
    seed(machines.folder("a"), settings_of(machines), reseed=True)
    with machines.open("c") as db:
        assert rows(db) == expected and generation(db) > before + 1000
        db.table("t").put("more", 1)
    for name in "ab":
        with machines.open(name) as db:
            assert rows(db) == {**expected, "more": 1}
        check(machines, name)


RESEED = SEED.replace("Replicate(sys.argv[3])", "Replicate(sys.argv[3]), reseed=True")


def test_23_a_kill_in_each_step_of_a_reseed(machines: Machines) -> None:
    with machines.open("a") as db:
        db.create_table("t").put("k", 1)
    shutil.copytree(machines.home / "log", machines.home / "yesterday")
    with machines.open("a") as db:
        db.table("t").put("k", 2)
    shutil.rmtree(machines.home / "log")
    (machines.home / "yesterday").rename(machines.home / "log")
    shutil.copytree(machines.home, machines.home.with_name("whole"))
    whole = Machines(machines.home.with_name("whole"))
    calls = calls_of(RESEED, whole.folder("a"), whole.url)
    for number, call in enumerate(some_of(calls, 8)):
        here = Machines(machines.home.with_name(f"h{number}"))
        shutil.copytree(machines.home, here.home)
        killed_at(call, RESEED, here.folder("a"), here.url)
        try:
            seed(here.folder("a"), settings_of(here), reseed=True)
        except planstep.NotSupported:  # it was killed behind the BEGIN
            pass
        for name in "ab":
            with here.open(name) as db:
                assert rows(db) == {"k": 2}
            check(here, name)


# restoring -------------------------------------------------------------------------------------


def test_a_store_is_restored_as_of_any_turn(machines: Machines) -> None:
    """Each turn that the log has, and the digests that the owner had then."""
    fill(machines)
    first = seed(machines.folder("a"), settings_of(machines))
    states: dict[int, Any] = {}
    draw = random.Random(3)
    with machines.open("a") as db:
        store: Any = db._runtime.nodes[0].host.store
        for n in range(30):
            db.table("t").put(draw.randrange(50), n)
            states[store.last_turn] = rows(db)
    for turn in draw.sample(sorted(states), 8):
        folder = machines.folder(f"r{turn}")
        assert restore_from(settings_of(machines), folder, turn) == turn
        with planstep.open(folder) as db:
            assert rows(db) == states[turn]
            assert generation(db) > 1000
            db.table("t").put("own", 1)
        assert verify(folder / "host-0") == []
    for turn, error in ((first - 1, planstep.Trimmed), (10_000, ValueError)):
        with pytest.raises(error, match=f"turn {turn}"):
            restore_from(settings_of(machines), machines.folder("r"), turn)
    assert not list(machines.home.glob("r.*"))
    with machines.open("a") as db:
        assert rows(db) == states[max(states)]


def test_a_store_is_restored_from_a_log_without_snapshots(machines: Machines) -> None:
    with machines.open("a") as db:
        table = db.create_table("t")
        for n in range(5):
            table.put("k", n)
        expected = rows(db)
        last = restore_from(settings_of(machines), machines.folder("r"))  # while it is in use
    with planstep.open(machines.folder("r")) as db:
        assert rows(db) == expected
    assert restore_from(settings_of(machines), machines.folder("r2"), last - 2) == last - 2
    with planstep.open(machines.folder("r2")) as db:
        assert rows(db) == {"k": 2}
    with pytest.raises(planstep.AlreadyExists):
        restore_from(settings_of(machines), machines.folder("r"))
    with pytest.raises(planstep.IoError):
        restore_from(settings_of(machines, "none"), machines.folder("r3"))
    seed(machines.folder("r"), settings_of(machines, "log-2"))


RESTORE = SEED.replace("seed(Path", "restore_from(Replicate(sys.argv[3]), Path")
RESTORE = RESTORE.replace("(sys.argv[2]), Replicate(sys.argv[3]))", "(sys.argv[2]))")
RESTORE = RESTORE.replace("import seed", "import restore_from")


def test_23_a_kill_in_each_step_of_a_restore_leaves_nothing_under_the_name(
    machines: Machines,
) -> None:
    expected = fill(machines)
    seed(machines.folder("a"), settings_of(machines))
    calls = calls_of(RESTORE, machines.folder("whole"), machines.url)
    for call in some_of(calls, 8)[:-1]:
        killed_at(call, RESTORE, machines.folder("r"), machines.url)
        if machines.folder("r").exists():  # only its name was not durable yet
            check(machines, "r")
            shutil.rmtree(machines.folder("r"))
        restore_from(settings_of(machines), machines.folder("r"))
        with planstep.open(machines.folder("r")) as db:
            assert rows(db) == expected
        shutil.rmtree(machines.folder("r"))
        assert not list(machines.home.glob("r.*"))


def test_a_place_with_an_empty_log_of_another_store_stays_as_it_is(machines: Machines) -> None:
    """Its first owner was killed before its first turn."""
    fill(machines)
    root = Root(bytes(16), "deterministic", 1)
    open_shared_log(machines.url, root)[0].close()
    before = sorted(machines.home.glob("log/**/*"))
    with pytest.raises(planstep.Diverged, match="another store"):
        seed(machines.folder("a"), settings_of(machines))
    assert sorted(machines.home.glob("log/**/*")) == before
    with planstep.open(machines.folder("a")):
        pass


def test_a_log_that_begins_with_turn_1_is_not_given_turns_and_the_folder_stays(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machines.open("a") as db:
        db.create_table("t").put(1, 1)
    shutil.copytree(machines.home / "log", machines.home / "yesterday")
    with machines.open("a") as db:
        db.table("t").put(1, 2)
    shutil.move(machines.home / "log", machines.home / "today")
    shutil.move(machines.home / "yesterday", machines.home / "log")
    with monkeypatch.context() as patch:
        patch.setattr("planstep.shared.registry.PLACES", {})
        with pytest.raises(planstep.NotSupported, match="first turn"):
            seed(machines.folder("a"), settings_of(machines), reseed=True)
    shutil.rmtree(machines.home / "log")
    shutil.move(machines.home / "today", machines.home / "log")
    with machines.open("a") as db:
        assert rows(db) == {1: 2}
