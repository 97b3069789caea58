"""Tests opening, sharing, closing, forking, and commits whose caller has gone."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from kit import python

import planstep


def test_the_same_path_is_the_same_engine(tmp_path: Path) -> None:
    one = planstep.open(tmp_path / "s")
    two = planstep.open(os.path.join(tmp_path, ".", "s"), mode="deterministic", hosts=1)
    assert one is two
    one.close()
    assert not two.closed
    two.create_topic("t")
    two.close()
    assert two.closed
    two.close()
    three = planstep.open(tmp_path / "s")
    assert three is not one and list(three.topics()) == ["t"]
    three.close()


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s"):
        for settings, message in (
            ({"hosts": 2}, "hosts=1, not 2"),
            ({"durability": "os"}, "durability='full', not 'os'"),
            ({"read_only": True}, "read_only=False, not True"),
            ({"trace": "off"}, "trace='summary', not 'off'"),
        ):
            with pytest.raises(planstep.WrongMode, match=message):
                planstep.open(tmp_path / "s", **settings)
    with pytest.raises(planstep.WrongMode, match="hosts=1, not 2"):
        planstep.open(tmp_path / "s", hosts=2)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"rtt": -1}, ValueError, "seconds"),
        ({"rtt": float("inf")}, ValueError, "seconds"),
        ({"protocol_version": 3}, ValueError, "1 or 2"),
        ({"kafka": {"linger_ms": 5}}, TypeError, "KafkaSettings"),
        ({"kafka": planstep.KafkaSettings(linger_ms=-1)}, ValueError, "linger_ms"),
        ({"kafka": planstep.KafkaSettings(isolation="none")}, ValueError, "read_committed"),
        (
            {"kafka": planstep.KafkaSettings(producer_id_expiration_ms=1000)},
            ValueError,
            "delivery_timeout_ms",
        ),
        ({"pulsar": {"coordinators": 2}}, TypeError, "PulsarSettings"),
        ({"pulsar": planstep.PulsarSettings(snapshots="many")}, ValueError, "segmented"),
        ({"pulsar": planstep.PulsarSettings(log_batch_records=1)}, ValueError, "log_batch_records"),
        ({"mode": "Deterministic"}, ValueError, "choose one of"),
        ({"durability": "none"}, ValueError, "'full', 'os'"),
        ({"placement": "far"}, ValueError, "'shared', 'separate'"),
        ({"trace": "all"}, ValueError, "'summary', 'messages'"),
        ({"group_commit": 1}, TypeError, "True or False"),
        ({"hosts": 0}, ValueError, "1 to 255"),
        ({"hosts": True}, ValueError, "1 to 255"),
        ({"hosts": 2, "durability": "os"}, planstep.NotSupported, "hosts=1"),
        ({"wait": -1}, ValueError, "seconds"),
        ({"read_only": True}, planstep.NotSupported, "read_only"),
    ],
)
def test_settings(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        planstep.open(":memory:", **settings)


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes"])
def test_paths(path: Any) -> None:
    with pytest.raises(ValueError, match="no path"):
        planstep.open(path)


def test_a_missing_store_is_not_created_when_told_so(tmp_path: Path) -> None:
    with pytest.raises(planstep.PlanstepError):
        planstep.open(tmp_path / "typo", create=False)
    assert not (tmp_path / "typo").exists()


def test_a_missing_store_suggests_the_nearest(tmp_path: Path) -> None:
    planstep.open(tmp_path / "shop.planstep").close()
    for settings in ({"create": False}, {"read_only": True}):
        with pytest.raises(
            planstep.FormatError, match=r"no store at .*did you mean '.*shop\.planstep'"
        ):
            planstep.open(tmp_path / "shop.planstp", **settings)
    with pytest.raises(planstep.FormatError, match="without read_only and create=False"):
        planstep.open(tmp_path / "other", read_only=True)


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "p1.py").write_text("x = 1")
    with pytest.raises(planstep.FormatError, match=r"p1\.py is a file; a store is a folder"):
        planstep.open(tmp_path / "p1.py")


def test_a_file_system_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planstep.open(tmp_path / "s").close()
    really = os.open

    def refuse(path: Any, flags: int, *mode: Any, **more: Any) -> int:
        if os.fspath(path).endswith("lock") and flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return really(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(planstep.IoError, match="Read-only file system; read_only=True opens"):
        planstep.open(tmp_path / "s")


def test_every_memory_store_is_its_own() -> None:
    with planstep.open(":memory:") as one, planstep.open(":memory:") as two:
        one.create_topic("t")
        assert one is not two and not two.topics()


def test_a_closed_engine_says_so(shop: planstep.Engine) -> None:
    tx, view = shop.transaction(), shop.snapshot()
    tx.put("totals", "k", 1)
    topic, table = shop.topic("clicks"), shop.table("totals")
    writer = topic.writer()
    writer.write(b"x")
    shop.close()
    for call in (
        lambda: shop.create_topic("t"),
        lambda: shop.create_table("t"),
        shop.topics,
        shop.tables,
        lambda: shop.topic("clicks"),
        lambda: shop.table("totals"),
        shop.transaction,
        lambda: shop.run(lambda tx: None),
        shop.snapshot,
        lambda: shop.write("clicks", b""),
        lambda: shop.outcome("1-1"),
        lambda: shop.resolve("1-1"),
        shop.transactions,
        shop.stats,
        shop.__enter__,
        tx.commit,
        tx.submit,
        tx.rollback,
        tx.outcome,
        lambda: view.get("totals", "k"),
        lambda: topic.write(b""),
        topic.read,
        topic.describe,
        lambda: table.get("k"),
        lambda: table.put("k", 1),
        lambda: writer.write(b"y"),
        writer.flush,
    ):
        with pytest.raises(planstep.EngineClosed, match="open it again"):
            call()
    view.close()


def test_a_forked_child_is_told(shop: planstep.Engine) -> None:
    tx = shop.transaction()
    shop.table("totals").put("k", 1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        answers = []
        for call in (shop.transaction, tx.commit, shop.snapshot, shop.topics, shop.stats):
            try:
                call()
            except planstep.ForkedProcess:
                answers.append("forked")
            except BaseException as error:
                answers.append(repr(error))
        shop.close()  # closes only what the child has opened
        with planstep.open(":memory:") as own:
            own.create_table("t").put("k", 1)
            answers.append(repr(own.table("t").get("k")))
        os.write(write, ",".join(answers).encode())
        os._exit(0)
    os.close(write)
    told = {":memory:": 5}.get(
        shop.path, 1
    )  # a folder is opened again: only the transaction stays the parent's
    with os.fdopen(read) as pipe:
        assert pipe.read() == "forked," * told + "1"
    os.waitpid(child, 0)
    assert shop.table("totals").get("k") == 1


def test_another_process_is_refused_and_a_forgotten_close_loses_nothing(tmp_path: Path) -> None:
    program = (
        "import planstep, sys\n"
        "try:\n"
        "    db = planstep.open(sys.argv[1])\n"
        "    db.create_table('t', exist_ok=True).put('k', 1)\n"
        "except planstep.StoreInUse as error:\n"
        "    print('in use by', error.pid)\n"
    )
    with planstep.open(tmp_path / "s", share=False):
        assert python(program, tmp_path / "s").stdout == f"in use by {os.getpid()}\n"
    python(program, tmp_path / "s")
    with planstep.open(tmp_path / "s", create=False) as db:
        assert db.table("t").get("k") == 1


def test_an_interrupted_commit_goes_on(
    shop: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, here = shop._runtime, threading.current_thread()
    turn, interrupted = runtime.turns.turn, threading.Event()

    def interrupt(*args: Any) -> None:
        if threading.current_thread() is here:
            interrupted.set()
            raise KeyboardInterrupt
        interrupted.wait(60)  # else the answer may be there before anybody waits for it
        turn(*args)

    tx = shop.transaction()
    tx.put("totals", "k", 1)
    with monkeypatch.context() as patch:
        patch.setattr(runtime.turns, "turn", interrupt)
        if runtime.hosts > 1:
            patch.setattr("planstep.runtime.group_commit.Waiter.wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tx.commit()
        with pytest.raises(planstep.TransactionClosed):
            tx.rollback()
    assert tx.outcome(5).state == "committed"
    assert tx.commit.place == tx.outcome().place
    assert shop.table("totals").get("k") == 1


def test_a_host_that_is_down_leaves_a_commit_undetermined(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", hosts=2) as db:
        topic = db.create_topic("t", partitions=4)
        db.create_table("n", shards=2)
        with db.transaction() as tx:
            for p in range(4):
                tx.write("t", b"x", partition=p)
            tx.add("n", "k", 1)
        assert topic.describe().records == 4
        db._runtime.stop_host(1)
        tx = db.transaction()
        for p in range(4):
            tx.write("t", b"y", partition=p)
        with pytest.raises(planstep.Undetermined, match=tx.id):
            tx.commit(timeout=0.05)
        assert tx.commit.place is None
        db._runtime.start_host(1)
        outcome = tx.outcome(10)
        assert outcome.state == "committed" and tx.commit.place == outcome.place
        assert topic.describe().records == 8


def test_read_only_looks_and_never_writes(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("clicks").write_batch([b"a", b"b"])
        db.create_table("totals").put("k", 1)
        with db.transaction() as tx:
            tx.read("clicks", "c", max_records=1)
        done = tx.id
    with pytest.raises(planstep.FormatError):
        planstep.open(tmp_path / "none", read_only=True)
    with planstep.open(tmp_path / "s", read_only=True) as db:
        assert db.topic("clicks").read().values == [b"a", b"b"]
        assert db.topic("clicks").lag("c") == 1
        assert db.outcome(done).state == "committed"
        with db.transaction() as tx:
            assert tx.get("totals", "k") == 1
            assert tx.read("clicks", "c").values == [b"b"]
            with pytest.raises(planstep.NotSupported, match="read_only"):
                tx.commit()
            tx.rollback()
        with db.transaction() as tx:
            assert tx.scan("totals") == [("k", 1)]
        for call in (
            lambda: db.create_topic("t"),
            lambda: db.create_table("t"),
            lambda: db.write("clicks", b"x"),
            lambda: db.table("totals").put("k", 2),
            lambda: db.topic("clicks").writer(),
            lambda: db.resolve("1-1"),
            lambda: db.transaction().write("clicks", b"x"),
            lambda: db.transaction().delete("totals", "k"),
        ):
            with pytest.raises(planstep.NotSupported, match="read_only"):
                call()


def test_importing_is_light() -> None:
    program = (
        "import sys, planstep\n"
        "heavy = {'asyncio', 'pandas', 'numpy', 'pyarrow', 'typer', 'rich', 'pyspark'}\n"
        "print(sorted(heavy & set(sys.modules)), 'planstep.spark' in sys.modules)"
    )
    assert python(program).stdout.strip() == "[] False"
    assert planstep.__version__


def test_what_is_recorded_of_a_transaction(tmp_path: Path) -> None:
    """The outcome is always recorded, participants unless the trace is off, messages only on request."""
    for trace in ("off", "summary", "messages"):
        with planstep.open(tmp_path / trace, trace=trace, hosts=2) as db:
            db.create_table("t", shards=2)
            with db.transaction() as tx:
                for n in range(9):
                    tx.put("t", n, n)
            outcome = db.outcome(tx.id)
            assert outcome.state == "committed" and outcome.place == tx.commit.place
            assert len(outcome.participants) == (0 if trace == "off" else 2)
            assert bool(db.recorded(tx.id)) == (trace == "messages")
        with planstep.open(tmp_path / trace, read_only=True) as db:
            assert db.outcome(tx.id) == outcome


def test_a_store_runs_out_of_numbers_for_tablets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.tablets.catalogue.TABLETS_MAX", 20)
    with planstep.open(":memory:") as db:
        db.create_topic("a", partitions=12)
        with pytest.raises(planstep.Aborted, match=r"needs 12 tablets .* and 7 are left"):
            db.create_topic("b", partitions=12)
        db.create_table("c", shards=7)
        with pytest.raises(planstep.Aborted, match="0 are left"):
            db.create_table("d", shards=1)
        db.table("c").put("k", 1)
