"""Tests restoring over an existing store while other processes use it: kills midway, their leftovers, readers."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, Child, python

import planstep
from planstep.store.files import Files


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Makes a store with "new" in it, and a backup from when it had only "old"."""
    with planstep.open(tmp_path / "shop") as db:
        db.create_table("t").put("k", "old")
        db.backup(tmp_path / "monday")
        db.table("t").put("k", "new")
    return tmp_path / "shop"


def held(path: Path) -> Any:
    with planstep.open(path, read_only=True) as db:
        return db.table("t").get("k")


KILLED = """
import os, signal, sys
import planstep
from planstep.runtime import unfinished
from planstep.store.files import Files

def die(*given):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[3] == "between":  # the names are not exchanged, so one goes before the other comes
    Files.exchange = lambda *given: False
    rename = Files.rename
    def last(files, source, target):
        if os.fspath(target) == os.path.realpath(sys.argv[2]):
            die()
        rename(files, source, target)
    Files.rename = last
else:  # as soon as something is removed at the end
    remove, files = unfinished.shutil.rmtree, []
    def one_less(path, *given, **more):
        for root, _, names in os.walk(path):
            for name in names:
                os.unlink(os.path.join(root, name))
                die()
    unfinished.shutil.rmtree = one_less
planstep.restore(sys.argv[1], sys.argv[2], force=True)
"""


def killed(shop: Path, where: str) -> None:
    python(KILLED, shop.with_name("monday"), shop, where, status=-signal.SIGKILL)


def test_a_kill_while_the_earlier_store_is_removed(shop: Path) -> None:
    killed(shop, "removing")
    assert held(shop) == "old"
    with planstep.open(shop) as db:
        db.table("t").put("k", "newer")
    planstep.restore(shop.with_name("monday"), shop, force=True)
    assert held(shop) == "old"
    assert sorted(os.listdir(shop.parent)) == ["monday", "shop"]


def test_a_kill_between_two_names_is_told_and_no_empty_store_is_made(shop: Path) -> None:
    killed(shop, "between")
    assert not shop.exists()
    for settings in ({}, {"create": False}, {"read_only": True}):
        with pytest.raises(
            planstep.FormatError, match=r"shop\.replaced .*restore again, or rename"
        ):
            planstep.open(shop, **settings)
    assert not shop.exists()
    rest = shop.with_name("shop.replaced")
    assert str(shop) in (rest / "replaced.txt").read_text()
    rest.rename(shop)
    assert held(shop) == "new"


def test_after_a_kill_between_two_names_it_can_be_restored_again(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(shop, "between")
    planstep.restore(shop.with_name("monday"), shop, force=True)
    assert held(shop) == "old"
    monkeypatch.setattr(Files, "exchange", lambda *_: False)
    planstep.restore(shop.with_name("monday"), shop, force=True)
    assert held(shop) == "old"
    assert sorted(os.listdir(shop.parent)) == ["monday", "shop"]


@pytest.mark.parametrize("exchanged", [True, False])
@pytest.mark.parametrize("missing", ["host-0/meta.pb", "host-0/table"])
def test_a_half_deleted_rest_does_not_block(
    shop: Path, monkeypatch: pytest.MonkeyPatch, exchanged: bool, missing: str
) -> None:
    """The leftovers are of a restore that was killed while it removed the earlier store."""
    rest = shop.with_name("shop.replaced")
    shutil.copytree(shop, rest)
    path = rest / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not exchanged:
        monkeypatch.setattr(Files, "exchange", lambda *_: False)
    planstep.restore(shop.with_name("monday"), shop, force=True)
    assert held(shop) == "old"


def test_a_whole_store_of_that_name_is_never_removed(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = shop.with_name("shop.replaced")
    shutil.copytree(shop, rest)
    monkeypatch.setattr(Files, "exchange", lambda *_: False)
    for _ in range(2):
        planstep.restore(shop.with_name("monday"), shop, force=True)
        assert (held(shop), held(rest)) == ("old", "new")
    assert sorted(os.listdir(shop.parent)) == ["monday", "shop", "shop.replaced"]


@pytest.mark.parametrize(
    ("call", "of"),
    [("rename", "copy"), ("sync_folder", "shop.incomplete")],
    ids=["without an exchange", "an exchange that is not durable"],
)
def test_what_fails_is_taken_back(
    shop: Path, monkeypatch: pytest.MonkeyPatch, call: str, of: str
) -> None:
    whole = getattr(Files, call)

    def fails(files: Files, path: Path, *more: Path) -> None:
        if path.name == of:
            raise planstep.IoError("no")
        whole(files, path, *more)

    monkeypatch.setattr(Files, call, fails)
    if call == "rename":
        monkeypatch.setattr(Files, "exchange", lambda *_: False)
    with pytest.raises(planstep.IoError):
        planstep.restore(shop.with_name("monday"), shop, force=True)
    assert held(shop) == "new"
    assert sorted(os.listdir(shop.parent)) == ["monday", "shop"]
    assert os.listdir(shop) == ["host-0"]


def test_names_are_exchanged_in_one_step(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    (other / "inside").mkdir(parents=True)
    if not Files().exchange(one, other):
        pytest.skip("this system, or its file system, cannot")
    assert os.listdir(one) == ["inside"] and os.listdir(other) == []
    with pytest.raises(planstep.IoError):
        Files().exchange(one, tmp_path / "nowhere")


# readers -----------------------------------------------------------------------------------------

LOOK = """
import sys, planstep
with planstep.open(sys.argv[1], read_only=True) as db:
    print(db.table("t").get("k"), flush=True)
    sys.stdin.readline()
    print(db.table("t").get("k"), flush=True)
"""


def test_beside_live_readers_nothing_is_replaced(shop: Path) -> None:
    with Child(LOOK, shop) as reader:
        assert reader.line() == "new"
        process = f"process {reader.process.pid}"
        with pytest.raises(planstep.StoreInUse, match=f"read by {process}") as refused:
            planstep.restore(shop.with_name("monday"), shop, force=True)
        assert refused.value.readers == (refused.value.pid,) == (reader.process.pid,)
        words = "restore", "--force", shop.with_name("monday"), shop
        assert process in python(PLANSTEP, *words, status=1).stderr
        reader.tell()
        assert reader.line() == "new"
        reader.end()
    planstep.restore(shop.with_name("monday"), shop, force=True)
    assert held(shop) == "old"


def test_a_reader_that_comes_while_it_is_restored_keeps_what_it_sees(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader opens after the first look at the leases."""
    exchange = Files.exchange
    views = []

    def late(files: Files, one: Path, other: Path) -> bool:
        if not views:
            views.append(planstep.open(shop, read_only=True))
        return exchange(files, one, other)

    if not Files().exchange(shop, shop.with_name("monday")):
        pytest.skip("this system, or its file system, cannot")
    Files().exchange(shop, shop.with_name("monday"))
    monkeypatch.setattr(Files, "exchange", late)
    with pytest.raises(planstep.StoreInUse, match=f"process {os.getpid()}"):
        planstep.restore(shop.with_name("monday"), shop, force=True)
    assert views[0].table("t").get("k") == "new"
    views[0].close()
    assert held(shop) == "new"
    planstep.restore(shop.with_name("monday"), shop, force=True)
    assert held(shop) == "old"
