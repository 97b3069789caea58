"""Tests a link in place of a folder inside a store: it is refused before anything at its target is touched.

A copy of the files would hold the link and not its target, two such copies would share a host, and a missing
disk would look like an empty store.
"""

import os
from pathlib import Path

import pytest

import planstep
from planstep.runtime.backup import backup_store
from planstep.store.verify import verify

LINKED = [("host-0", 1), ("host-0", 2), ("host-1", 2), ("host-0/table", 1), ("host-1/leases", 2)]


def picture(folder: Path) -> dict[str, tuple[int, int]]:
    states = {os.fspath(path): path.lstat() for path in folder.rglob("*")}
    return {path: (state.st_size, state.st_mtime_ns) for path, state in states.items()}


def linked(store: Path, what: str, hosts: int) -> Path:
    """Replaces a folder by a link to its new place."""
    with planstep.open(store, hosts=hosts) as db:
        db.create_table("t", shards=4).load({n: n for n in range(20)})
    away = store.with_name("away")
    (store / what).rename(away)
    (store / what).symlink_to(away)
    return away


@pytest.mark.parametrize(("what", "hosts"), LINKED)
def test_a_link_in_place_of_a_folder_is_refused(tmp_path: Path, what: str, hosts: int) -> None:
    store = tmp_path / "s"
    away = linked(store, what, hosts)
    before = picture(away)
    words = f"{what} is a link in place of a folder"
    for read_only in (True, False):
        with pytest.raises(planstep.IoError, match=words):
            planstep.open(store, read_only=read_only)
    for make in (backup_store, planstep.restore):
        with pytest.raises(planstep.IoError, match=words):
            make(store, tmp_path / "copy")
    host = store / what.split("/")[0]
    assert [words in problem.what for problem in verify(host)] == [True]
    assert picture(away) == before
    assert sorted(os.listdir(tmp_path)) == ["away", "s"]


@pytest.mark.parametrize("behind", ["nothing", "an empty folder"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_no_store_is_made_behind_a_link(tmp_path: Path, behind: str, hosts: int) -> None:
    """The link leads to a place where a disk is not mounted."""
    store, away = tmp_path / "s", tmp_path / "away"
    store.mkdir()
    (store / "host-0").symlink_to(away)
    if behind == "an empty folder":
        away.mkdir()
    with pytest.raises(planstep.IoError, match="host-0 is a link in place of a folder"):
        planstep.open(store, hosts=hosts)
    assert os.listdir(store) == ["host-0"] and not (away.exists() and os.listdir(away))


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize(("what", "hosts"), LINKED)
def test_what_is_restored_in_its_place_touches_nothing_behind_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, hosts: int, exchange: bool
) -> None:
    with planstep.open(tmp_path / "b") as db:
        db.create_table("t").put(1, "restored")
    store = tmp_path / "s"
    away = linked(store, what, hosts)
    names = sorted(os.listdir(away))
    if not exchange:
        monkeypatch.setattr("planstep.store.files.Files.exchange", lambda *_: False)
    planstep.restore(tmp_path / "b", store, force=True)
    assert sorted(os.listdir(tmp_path)) == ["away", "b", "s"]
    assert sorted(os.listdir(away)) == names
    with planstep.open(store) as db:
        assert db.table("t").get(1) == "restored"


def test_the_store_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "elsewhere")
    with planstep.open(tmp_path / "s", hosts=2) as db:
        db.create_table("t").put(1, 1)
        db.backup(tmp_path / "copy")
    with planstep.open(tmp_path / "s", read_only=True) as db:
        assert db.table("t").get(1) == 1
