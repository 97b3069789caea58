"""Names are one catalogue for all processes: what one makes or drops, the others know at their next call."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from process_kit import Other

import planstep


def test_processes_make_the_same_names_at_the_same_time(tmp_path: Path) -> None:
    """Each worker of a service does so when it starts."""
    with planstep.open(tmp_path / "s") as db, ExitStack() as alive:
        others = [alive.enter_context(Other(tmp_path / "s")) for _ in range(3)]
        make = (
            "[(db.create_topic(f't{n}', exist_ok=True).name, db.create_table(f'n{n}', exist_ok=True).name) "
            "for n in range(40)]"
        )
        names = [(f"t{n}", f"n{n}") for n in range(40)]
        making = [other.begin(make) for other in others]
        assert eval(make, {"db": db}) == names
        assert [made() for made in making] == [names] * 3


def test_a_name_of_another_process_is_there_at_once(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        for _ in range(20):
            db.create_topic("t")
            with pytest.raises(planstep.AlreadyExists, match="topic 't' exists already"):
                other("db.create_topic('t')")
            other.run("db.drop_topic('t', missing_ok=True)")
            assert list(db.topics()) == []
            other.run("db.create_table('n')")
            db.drop_table("n")
            assert other("list(db.tables())") == []
