"""A store is opened before a fork, and used in the children: they attach to its owner."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import until

import planstep
from planstep.errors import ForkedProcess


def in_a_fork(work: Callable[[], object]) -> None:
    """Runs `work` in a forked child, which must end well."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_handles_of_the_parent_are_used_in_the_children(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        topic, table = db.create_topic("t"), db.create_table("n")
        table.put("k", 1)

        def work() -> None:
            table.put("k", (table.get("k") or 0) + 1)
            topic.write(b"%d" % os.getpid())
            with db.transaction() as tx:
                tx.add("n", "k", 10)
            db.close()

        for _ in range(3):
            in_a_fork(work)
        assert table.get("k") == 34
        assert len(topic.read().values) == 3


def test_children_own_the_store_once_the_parent_has_closed_it(tmp_path: Path) -> None:
    db = planstep.open(tmp_path / "s", durability="os")
    db.create_table("n").put("k", 1)
    db.close()
    in_a_fork(lambda: planstep.open(tmp_path / "s").table("n").put("k", 2))
    with planstep.open(tmp_path / "s") as db:
        assert db.table("n").get("k") == 2


def test_what_the_parent_has_begun_stays_its_own(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t")
        tx, view, writer = db.transaction(), db.snapshot(), db.topic("t").writer()
        tx.write("t", b"a")

        def work() -> None:
            for call in tx.commit, lambda: view.read("t"), lambda: writer.write(b"x"):
                with pytest.raises(ForkedProcess, match="begin it here"):
                    call()
            assert db.topic("t").read().values == []

        in_a_fork(work)
        tx.commit()
        assert db.topic("t").read().values == [b"a"]
        view.close()
        writer.close()


def test_a_store_in_memory_is_not_shared() -> None:
    with planstep.open(":memory:") as db:
        db.create_topic("t")

        def work() -> None:
            with pytest.raises(ForkedProcess, match="memory"):
                db.topic("t").write(b"x")

        in_a_fork(work)


def test_children_that_end_without_closing_leave_no_leases(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        table = db.create_table("n")
        for n in range(20):
            in_a_fork(lambda n=n: table.put("k", n))  # type: ignore[misc]
        until(lambda: not os.listdir(tmp_path / "s" / "host-0" / "leases"))
