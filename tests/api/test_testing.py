"""Tests planstep.testing, and the fixture that pytest discovers by itself."""

from pathlib import Path

import pytest
from kit import python

import planstep
from planstep import testing


def transfer(tx: planstep.Transaction) -> None:
    tx.put("accounts", "a", tx.get("accounts", "a", 100) - 1)
    tx.put("accounts", "b", tx.get("accounts", "b", 0) + 1)
    tx.write("log", b"1")


def total(db: planstep.Engine) -> tuple[int, int, int]:
    accounts = db.table("accounts")
    return accounts.get("a", 100), accounts.get("b", 0), db.topic("log").describe().records


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_program_that_is_right_comes_through(hosts: int) -> None:
    with testing.engine(conflicts=0.3, lost_answers=0.1, seed=3, hosts=hosts) as db:
        db.create_table("accounts")
        db.create_topic("log")
        done = lost = 0
        for _ in range(60):
            tx = None

            def remember(begun: planstep.Transaction) -> None:
                nonlocal tx
                tx = begun
                transfer(begun)

            try:
                db.run(remember)
                done += 1
            except planstep.Undetermined:
                assert tx is not None
                lost += 1
                done += tx.outcome(20).state == "committed"
        assert lost > 2 and total(db) == (100 - done, done, done)


def test_the_faults_are_the_seeds() -> None:
    def conflicts(seed: int) -> list[int]:
        numbers = []
        with testing.engine(conflicts=0.5, seed=seed) as db:
            db.create_table("t")
            for i in range(40):
                try:
                    with db.transaction() as tx:
                        tx.get("t", 1)
                        tx.put("t", 1, i)
                except planstep.Conflict:
                    numbers.append(i)
        return numbers

    assert conflicts(1) == conflicts(1) != conflicts(2)
    assert 5 < len(conflicts(1)) < 35


@pytest.mark.parametrize("hosts", [1, 3])
def test_after_a_crash_what_was_committed_is_there(hosts: int) -> None:
    with testing.engine(hosts=hosts) as db:
        table = db.create_table("t")
        table.put("k", 1)
        open_one = db.transaction()
        open_one.put("t", "k", 2)
        again = testing.crash(db)
        with pytest.raises(planstep.EngineClosed):
            open_one.commit()
        assert db.closed and again.table("t").get("k") == 1
        again.table("t").put("k", 3)
        third = testing.crash(again)
        assert third.table("t").get("k") == 3
    assert third.closed
    with planstep.open(":memory:") as other, pytest.raises(planstep.NotSupported):
        testing.crash(other)
    with pytest.raises(ValueError, match="share"), testing.engine(conflicts=2):
        pass


@pytest.mark.planstep(conflicts=1.0)
def test_the_fixture(planstep_db: planstep.Engine) -> None:
    planstep_db.create_table("t").put("k", 1)  # no condition: nothing to conflict with
    with pytest.raises(planstep.Conflict, match="seeded"), planstep_db.transaction() as tx:
        tx.get("t", "k")
        tx.put("t", "k", 2)


def test_the_fixture_is_found_and_says_its_seed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(planstep_db):\n    assert planstep_db.closed\n"
    )
    words = ["-q", "--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(tmp_path)]
    program = f"import sys, pytest; sys.exit(pytest.main({words}))"
    assert "planstep_db: {'seed': " in python(program, status=1, cwd=tmp_path).stdout
    python("import sys, pytest_planstep; sys.exit('planstep' in sys.modules)")
