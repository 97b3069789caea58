"""Tests that an attached process goes on in the very folder that it has open, wherever that is by now."""

import os
import shutil
from pathlib import Path

import pytest
from kit import until
from process_kit import Other

import planstep

ROWS = 50


def _copy_over(store: Path) -> None:
    """Renames the store, and puts a copy of its files in its place: both have the same id."""
    store.rename(store.with_name("moved"))
    shutil.copytree(store.with_name("moved"), store, ignore=shutil.ignore_patterns("*.socket"))


def _switch(store: Path) -> None:
    """Has the link to the store lead to a copy of it."""
    shutil.copytree(
        store.resolve(), store.with_name("copy"), ignore=shutil.ignore_patterns("*.socket")
    )
    os.unlink(store)
    os.symlink(store.with_name("copy"), store)


@pytest.mark.parametrize("hosts", [1, 3])
@pytest.mark.parametrize("way", ["renamed", "a copy in its place", "a link to a copy", "relative"])
@pytest.mark.parametrize("owned", [False, True], ids=["nobody has the copy", "the copy is open"])
def test_who_is_attached_owns_the_folder_that_it_has_open(
    tmp_path: Path, way: str, hosts: int, owned: bool
) -> None:
    store = tmp_path / "s"
    if way == "a link to a copy":
        (tmp_path / "real").mkdir()
        os.symlink(tmp_path / "real", store)
    with Other(store, hosts=hosts) as owner:
        owner.run("db.create_table('n'); db.table('n').put('from', 'owner')")
        with Other(tmp_path / "t") as attached:
            attached.run(f"db.close(); os.chdir({str(tmp_path)!r}); db = planstep.open('s')")
            attached.run("db.table('n').put('first', 1)")
            if way == "relative":
                attached.run("os.chdir('/')")
            elif way == "renamed":
                store.rename(tmp_path / "moved")
            else:
                (_switch if "link" in way else _copy_over)(store)
            copy = planstep.open(store) if owned and store.exists() and way != "relative" else None
            owner.run("db.close()")
            attached.run(f"for n in range({ROWS}): db.table('n').put(n, n)")
            assert attached("len(db.table('n').scan())") == ROWS + 2
            until(lambda: attached("db.owner") == attached.pid)
            attached.run("db.close()")
            if copy is not None:
                assert not [row for row in copy.table("n").scan() if row[0] == 0]
                copy.close()
            attached.run(f"db = planstep.open({str(tmp_path / 't')!r})")
        owner.run(f"db = planstep.open({str(tmp_path / 't')!r})")
    where = {"relative": store, "a link to a copy": tmp_path / "real"}.get(way, tmp_path / "moved")
    with planstep.open(where) as db:
        assert len(db.table("n").scan()) == ROWS + 2


def test_a_folder_that_was_removed_ends_the_attached(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as owner, Other(tmp_path / "s") as attached:
        owner.run("db.create_table('n')")
        attached.run("db.table('n').put(1, 1)")
        shutil.rmtree(tmp_path / "s")
        owner.run("db.close()")
        with pytest.raises(
            (planstep.StoreClosed, planstep.Undetermined), match="moved, removed or replaced"
        ):
            attached.run("db.table('n').put(2, 2)")
