"""Tests backups as a user makes them: of a live store, at one step, and restored."""

import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kit import background, python

import planstep
from planstep.runtime.backup import backup_store
from planstep.store.verify import verify

BALANCE = 100


def fill(db: planstep.Engine) -> None:
    db.create_topic("clicks", partitions=4, format="utf8")
    db.create_table("totals", shards=3)
    with db.transaction() as tx:
        for i in range(40):
            tx.write("clicks", f"v{i}", key=f"k{i}")
            tx.put("totals", i, {"n": i})


def shop(folder: Path, **settings: Any) -> planstep.Engine:
    db = planstep.open(folder / "shop", **settings)
    fill(db)
    return db


def contents(db: planstep.Engine) -> tuple[Any, Any]:
    records = db.topic("clicks").read(max_records=10_000)
    entries = [(r.partition, r.offset, r.key, r.value) for r in records]
    return entries, dict(db.table("totals").scan())


def assert_clean(store: Path) -> None:
    hosts = sorted(store.glob("host-*"))
    assert hosts
    assert [problem for host in hosts for problem in verify(host)] == []


@pytest.fixture(params=["memory", "disk", "two hosts", "two hosts on disk"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = str(tmp_path / "shop") if "disk" in request.param else ":memory:"
    with planstep.open(path, hosts=2 if "two" in request.param else None) as engine:
        yield engine


def test_a_backup_holds_its_step_and_nothing_after(db: planstep.Engine, tmp_path: Path) -> None:
    fill(db)
    before = contents(db)
    reports: list[tuple[int, int]] = []
    summary = db.backup(tmp_path / "copy", lambda done, total: reports.append((done, total)))
    assert (summary.records, summary.rows, summary.hosts) == (40, 40, db.stats()["hosts"])
    assert reports[-1] == (40, 40)
    db.write("clicks", "later")
    db.table("totals").put("later", 1)
    assert_clean(tmp_path / "copy")
    with planstep.open(tmp_path / "copy", create=False) as copy:
        assert contents(copy) == before
        assert copy.stats()["step"] == summary.step
        copy.write("clicks", "its own")
    assert not (tmp_path / "copy.incomplete").exists()


def test_a_backup_of_what_a_checkpoint_holds(tmp_path: Path) -> None:
    with shop(tmp_path) as db:
        db._runtime.nodes[0].host.store.checkpoint()
        db.topic("clicks").trim({0: 1, 1: 2})
        db._runtime.nodes[0].host.store.checkpoint()
        db.table("totals").delete(7)
        db.write("clicks", "in the layer")
        before = contents(db)
        db.backup(tmp_path / "copy")
    assert_clean(tmp_path / "copy")
    with planstep.open(tmp_path / "copy") as copy:
        assert contents(copy) == before
        assert copy.topic("clicks").describe().partitions[0][1] == 1


@pytest.mark.parametrize("hosts", [1, 2])
def test_writers_go_on_and_the_copy_is_of_one_step(tmp_path: Path, hosts: int) -> None:
    """Money moves between accounts all the time, and each move is a record: sums never differ."""
    stop = threading.Event()
    begun = threading.Barrier(3, timeout=600)
    with planstep.open(tmp_path / "bank", hosts=hosts) as db:
        db.create_topic("moves", partitions=4, format="json")
        db.create_table("accounts", shards=4)
        with db.transaction() as tx:
            for i in range(10):
                tx.put("accounts", i, BALANCE)

        def work(seed: int) -> None:
            i = seed
            first = True
            while not stop.is_set():
                with db.transaction() as tx:
                    tx.add("accounts", i % 10, -1)
                    tx.add("accounts", (i * 7 + 3) % 10, 1)
                    tx.write("moves", [i % 10, (i * 7 + 3) % 10], key=str(i))
                i += 1
                if first:
                    begun.wait()
                    first = False

        with background(*(partial(work, seed) for seed in (0, 5))):
            begun.wait()
            for name in ("first", "second"):
                db.backup(tmp_path / name)
            code = "import sys; from planstep.runtime.backup import backup_store; from pathlib import Path"
            code += "; backup_store(Path(sys.argv[1]), Path(sys.argv[2]))"
            python(code, tmp_path / "bank", tmp_path / "third")
            stop.set()
    steps = []
    for name in ("first", "second", "third"):
        assert_clean(tmp_path / name)
        with planstep.open(tmp_path / name) as copy:
            accounts = dict.fromkeys(range(10), BALANCE)
            for move in copy.topic("moves").read(max_records=1_000_000).values:
                accounts[move[0]] -= 1
                accounts[move[1]] += 1
            assert dict(copy.table("accounts").scan()) == accounts
            steps.append(copy.stats()["step"])
    assert steps == sorted(steps) and steps[0] < steps[2]


def test_what_is_there_is_never_replaced(tmp_path: Path) -> None:
    with shop(tmp_path) as db:
        (tmp_path / "taken").mkdir()
        with pytest.raises(planstep.AlreadyExists, match="exists"):
            db.backup(tmp_path / "taken")
        assert os.listdir(tmp_path / "taken") == []
    with pytest.raises(planstep.FormatError, match="not a store"):
        planstep.restore(tmp_path / "taken", tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["shop", "taken"]


def test_what_nobody_decided_is_left_out(tmp_path: Path) -> None:
    with shop(tmp_path) as db:
        before = contents(db)
        tx = db.transaction()
        for _ in range(10):
            tx.write_batch("clicks", ["x" * 1_000_000])
        db._runtime.nodes[0].host.store.checkpoint()
        assert list(db._runtime.nodes[0].host.staged_before(1 << 32))
        db.backup(tmp_path / "copy")
        tx.commit()
    with planstep.open(tmp_path / "copy") as copy:
        assert contents(copy) == before
        assert list(copy._runtime.nodes[0].host.staged_before(1 << 32)) == []
        assert copy.outcome(tx.id).state == "unknown"


def test_a_copy_is_a_store_of_its_own(tmp_path: Path) -> None:
    with shop(tmp_path) as db:
        with db.transaction() as tx:
            tx.put("totals", "known", 1)
        db.backup(tmp_path / "copy")
        with planstep.open(tmp_path / "copy") as copy:
            assert copy.outcome(tx.id).place == tx.commit.place
            with copy.transaction() as other:
                other.put("totals", "other", 1)
            assert int(other.id.split("-")[0]) > db.stats()["generation"] + 999
            assert db.outcome(other.id).state == "unknown"
            ids = {e._runtime.nodes[0].host.store.store_id for e in (db, copy)}
            assert len(ids) == 2


def test_a_killed_backup_is_no_store(tmp_path: Path) -> None:
    shop(tmp_path).close()
    code = (
        "import os, signal, sys; from pathlib import Path; from planstep.runtime.backup import backup_store\n"
        "die = lambda done, total: os.kill(os.getpid(), signal.SIGKILL)\n"
        "backup_store(Path(sys.argv[1]), Path(sys.argv[2]), die)"
    )
    python(code, tmp_path / "shop", tmp_path / "copy", status=-signal.SIGKILL)
    assert not (tmp_path / "copy").exists()
    leftover = tmp_path / "copy.incomplete"
    assert leftover.exists()
    with pytest.raises(planstep.FormatError):
        planstep.open(leftover)
    with pytest.raises(planstep.FormatError):
        planstep.restore(leftover, tmp_path / "new")
    with planstep.open(tmp_path / "shop") as db:
        db.backup(tmp_path / "copy")
    assert not leftover.exists()
    assert_clean(tmp_path / "copy")


def test_closing_the_engine_ends_a_backup(tmp_path: Path) -> None:
    with shop(tmp_path) as db:
        with pytest.raises(planstep.EngineClosed):
            db.backup(tmp_path / "copy", lambda done, total: db.close())
    assert os.listdir(tmp_path) == ["shop"]


def test_damage_is_not_copied(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "shop") as db:
        db.create_topic("clicks").write(b"needle" * 10)
    for path in (tmp_path / "shop" / "host-0").glob("log-*"):
        data = path.read_bytes()
        if b"needle" in data:
            path.write_bytes(data.replace(b"needle", b"noodle", 1))
    with pytest.raises(planstep.Corruption, match=r"offset 0.*not copied"):
        planstep.restore(tmp_path / "shop", tmp_path / "copy")
    assert os.listdir(tmp_path) == ["shop"]


def test_restore(tmp_path: Path) -> None:
    with shop(tmp_path, hosts=2) as db:
        before = contents(db)
        db.backup(tmp_path / "copy")
        db.write("clicks", "lost")
        with pytest.raises(planstep.StoreInUse):
            planstep.restore(tmp_path / "copy", tmp_path / "shop", force=True)
    with pytest.raises(planstep.AlreadyExists, match="force"):
        planstep.restore(tmp_path / "copy", tmp_path / "shop")
    with pytest.raises(ValueError, match="itself"):
        planstep.restore(tmp_path / "copy", tmp_path / "copy", force=True)
    done = planstep.restore(tmp_path / "copy", tmp_path / "shop", force=True)
    assert done.path == str(tmp_path / "shop") and done.records == 40
    assert sorted(os.listdir(tmp_path)) == ["copy", "shop"]
    for name in ("copy", "shop"):
        assert_clean(tmp_path / name)
        with planstep.open(tmp_path / name, read_only=True) as db:
            assert contents(db) == before
    (tmp_path / "letters").mkdir()
    with pytest.raises(planstep.FormatError, match="not replaced"):
        planstep.restore(tmp_path / "copy", tmp_path / "letters", force=True)


def test_a_backup_of_a_read_only_view(tmp_path: Path) -> None:
    with shop(tmp_path, hosts=2) as db:
        before = contents(db)
    with planstep.open(tmp_path / "shop", read_only=True) as view:
        view.backup(tmp_path / "copy")
        assert contents(view) == before
    with planstep.open(tmp_path / "copy") as copy:
        assert contents(copy) == before


def test_a_backup_that_finds_no_space_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop(tmp_path) as db:
        before = contents(db)
        full = Mock(side_effect=planstep.NoSpace("no room"))
        with monkeypatch.context() as patch:
            patch.setattr("planstep.runtime.backup.DiskStore.commit", full)
            with pytest.raises(planstep.NoSpace):
                db.backup(tmp_path / "copy")
        assert os.listdir(tmp_path) == ["shop"]
        assert contents(db) == before
        db.backup(tmp_path / "copy")


def test_what_a_backup_holds_on_to_is_let_go(tmp_path: Path) -> None:
    """Its lease on files, and its pinned view of the tables' pages, exist only while it runs."""
    with shop(tmp_path) as db:
        leases = tmp_path / "shop" / "host-0" / "leases"
        counts = []
        db.backup(tmp_path / "copy", lambda done, total: counts.append(len(os.listdir(leases))))
        assert counts[0] == 1 and os.listdir(leases) == []


def test_a_source_that_is_open_here_is_said_to_be(tmp_path: Path) -> None:
    with shop(tmp_path):
        with pytest.raises(planstep.StoreInUse):
            planstep.restore(tmp_path / "shop", tmp_path / "copy")
    assert os.listdir(tmp_path) == ["shop"]


def test_nothing_is_replaced_that_holds_the_source(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_table("t").put("k", 1)
        db.backup(tmp_path / "b")
    (tmp_path / "s" / "inside").mkdir()
    inner = tmp_path / "s" / "inside" / "b"
    planstep.restore(tmp_path / "b", inner)
    for source, target in ((inner, tmp_path / "s"), (tmp_path / "b", tmp_path / "b" / "c")):
        with pytest.raises(ValueError, match="nor into"):
            planstep.restore(source, target, force=True)
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with pytest.raises(ValueError, match="nor into"):
        planstep.restore(inner, tmp_path / "link", force=True)
    foreign = tmp_path / "new.incomplete"
    foreign.mkdir()
    (foreign / "mine").write_text("precious")
    with pytest.raises(planstep.AlreadyExists, match="not left by a backup"):
        planstep.restore(tmp_path / "b", tmp_path / "new")
    assert (foreign / "mine").read_text() == "precious"


def test_a_damaged_store_is_what_force_is_for(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_table("t").put("k", 1)
        db.backup(tmp_path / "b")
    (tmp_path / "s" / "host-0" / "meta.pb").write_bytes(b"nothing that was written")
    with pytest.raises(planstep.AlreadyExists):
        planstep.restore(tmp_path / "b", tmp_path / "s")
    planstep.restore(tmp_path / "b", tmp_path / "s", force=True)
    with planstep.open(tmp_path / "s") as db:
        assert db.table("t").get("k") == 1


def test_a_copy_of_memory_has_its_mode(tmp_path: Path) -> None:
    with planstep.open(":memory:", mode="kafka") as db:
        db.create_topic("t", format="utf8").write("a")
        db.backup(tmp_path / "copy")
    with planstep.open(tmp_path / "copy", mode="kafka") as db:
        assert db.topic("t").read().values == ["a"]


# the targets of a copy -----------------------------------------------------------------------------


def all_below(folder: Path) -> list[str]:
    """Lists all files below a folder; only for stores that are not open, whose files change."""
    return sorted(os.fspath(path.relative_to(folder)) for path in folder.rglob("*"))


WITHIN = ["shop/copy", "shop/host-0/table/copy", "shop/../shop/copy", "link/copy", "inner/../copy"]


@pytest.mark.parametrize("to", WITHIN)
def test_a_backup_into_its_own_store_is_refused(tmp_path: Path, to: str) -> None:
    (tmp_path / "link").symlink_to("shop")
    (tmp_path / "inner").symlink_to("shop/host-0")
    with shop(tmp_path) as db:
        with pytest.raises(ValueError, match="is inside the store"):
            db.backup(tmp_path / to)
    with planstep.open(tmp_path / "shop", read_only=True) as view:
        with pytest.raises(ValueError, match="is inside the store"):
            view.backup(tmp_path / to)
    before = all_below(tmp_path)
    assert not [name for name in before if "copy" in name]
    for source in ("shop", "link"):
        with pytest.raises(ValueError, match="is inside the store"):
            backup_store(tmp_path / source, tmp_path / to)
    assert all_below(tmp_path) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_backup_into_its_store_is_refused_wherever_that_is_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with planstep.open("shop") as db:
        fill(db)
    with planstep.open("shop", read_only=read_only) as db:
        (tmp_path / "shop").rename(tmp_path / "moved")
        (tmp_path / "shop").mkdir()
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        with pytest.raises(ValueError, match="is inside the store"):
            db.backup(tmp_path / "moved" / "copy")
        assert db.backup(tmp_path / "shop" / "copy").records == 40
        assert db.backup(tmp_path / "moved.copy").records == 40  # its name only begins alike


@pytest.mark.parametrize("to", ["typo/copy", "typo/again/copy"])
def test_a_copy_makes_no_folder_but_its_own(tmp_path: Path, to: str) -> None:
    with shop(tmp_path) as db:
        with pytest.raises(planstep.IoError, match=r"typo\S* is not there: make it first"):
            db.backup(tmp_path / to)
    for make in (backup_store, planstep.restore):
        with pytest.raises(planstep.IoError, match=r"typo\S* is not there: make it first"):
            make(tmp_path / "shop", tmp_path / to)
    assert os.listdir(tmp_path) == ["shop"]
