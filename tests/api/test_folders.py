"""Tests folders that lost a part, got another store's part, or were damaged: a typed error, and nothing is
created."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.store.verify import verify


def filled(path: Path, hosts: int = 1, rows: int = 20) -> Path:
    with planstep.open(path, hosts=hosts) as db:
        table = db.create_table("t")
        db.create_topic("u", partitions=hosts).write_batch(
            [b"x"] * 9, keys=[bytes([n]) for n in range(9)]
        )
        for n in range(rows):
            table.put(n, "x" * 50)
    return path


def refused(path: Path, message: str) -> None:
    before = sorted(p for p in path.rglob("*") if p.is_dir())
    for read_only in (True, False):
        with pytest.raises((planstep.FormatError, planstep.Corruption), match=message):
            planstep.open(path, read_only=read_only)
    after = sorted(p for p in path.rglob("*") if p.is_dir() and p.name != "leases")
    assert after == [p for p in before if p.name != "leases"]


@pytest.mark.parametrize("closed", [True, False])
def test_a_store_without_its_meta_is_not_a_new_one(tmp_path: Path, closed: bool) -> None:
    filled(tmp_path / "s")
    (tmp_path / "s" / "host-0" / "meta.pb").unlink()
    if not closed:
        (tmp_path / "s" / "host-0" / "table" / "data.mdb").unlink()
    refused(tmp_path / "s", r"meta\.pb is missing")
    assert verify(tmp_path / "s" / "host-0")


def test_a_missing_host_is_not_made_anew(tmp_path: Path) -> None:
    filled(tmp_path / "s", hosts=3)
    shutil.rmtree(tmp_path / "s" / "host-1")
    refused(tmp_path / "s", "host-1 is missing: the store has 3 hosts")
    assert not (tmp_path / "s" / "host-1").exists()


def test_making_a_store_goes_on_where_a_crash_ended_it(tmp_path: Path) -> None:
    planstep.open(tmp_path / "s", hosts=3).close()
    shutil.rmtree(tmp_path / "s" / "host-2")  # no turn was taken, so not all hosts need be there
    with planstep.open(tmp_path / "s") as db:
        db.create_table("t").put("k", 1)


def test_a_host_of_another_store_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "s", hosts=2)
    filled(tmp_path / "other", hosts=2, rows=60)
    shutil.rmtree(tmp_path / "s" / "host-1")
    shutil.copytree(tmp_path / "other" / "host-1", tmp_path / "s" / "host-1")
    refused(tmp_path / "s", "host of another store")


def use(path: Path) -> None:
    with planstep.open(path) as db:
        list(db.table("t").scan())
        list(db.topic("u").read())
        db.table("t").put(99, 1)


@pytest.mark.parametrize("size", [100, 4096, 5000, 8192, 12_288])
def test_tables_that_are_cut_off(tmp_path: Path, size: int) -> None:
    data = filled(tmp_path / "s") / "host-0" / "table" / "data.mdb"
    with data.open("r+b") as file:
        file.truncate(size)
    assert verify(tmp_path / "s" / "host-0")
    with pytest.raises(planstep.Corruption):
        use(tmp_path / "s")


def zeroed(data: bytearray, at: int) -> None:
    data[at : at + 200] = bytes(200)


def flipped(data: bytearray, at: int) -> None:
    for n in range(at, min(at + 2000, len(data)), 97):
        data[n] ^= 0x5A


@pytest.mark.parametrize("damage", [zeroed, flipped])
def test_damaged_tables(tmp_path: Path, damage: Callable[[bytearray, int], None]) -> None:
    """Damage at any place gives a typed error, or hits unreferenced bytes; `verify` never fails."""
    file = filled(tmp_path / "s") / "host-0" / "table" / "data.mdb"
    whole = file.read_bytes()
    named = 0
    for at in range(0, len(whole), 1500):
        data = bytearray(whole)
        damage(data, at)
        (tmp_path / "d").mkdir()
        shutil.copytree(tmp_path / "s", tmp_path / "d" / str(at))
        copy = tmp_path / "d" / str(at)
        (copy / "host-0" / "table" / "data.mdb").write_bytes(data)
        named += bool(verify(copy / "host-0"))
        try:
            use(copy)
        except planstep.PlanstepError:
            pass
        shutil.rmtree(tmp_path / "d")
    assert named


@pytest.mark.parametrize("mode", ["deterministic", "kafka"])
def test_the_logs_of_two_hosts_exchanged(tmp_path: Path, mode: Any) -> None:
    """Another host's records do not pass for unwritten space: later turns are missing, so it is refused."""
    with planstep.open(tmp_path / "s", hosts=2, mode=mode) as db:
        db.create_topic("u", partitions=2).write_batch(
            [b"x"] * 8, keys=[b"%d" % n for n in range(8)]
        )
        without = shutil.ignore_patterns("spare", "reserve", "lock.socket")
        shutil.copytree(tmp_path / "s", tmp_path / "killed", ignore=without)
    for log in (tmp_path / "killed").rglob("log-*"):
        os.truncate(log, len(log.read_bytes().rstrip(b"\0")) + 100)
    logs = [next((tmp_path / "killed" / f"host-{n}").glob("log-*")) for n in range(2)]
    logs[0].rename(tmp_path / "held")
    logs[1].rename(logs[0])
    (tmp_path / "held").rename(logs[1])
    assert all(verify(tmp_path / "killed" / f"host-{n}") for n in range(2))
    refused(tmp_path / "killed", "of another store, or of another place")


@pytest.mark.parametrize("host", [0, 1])
def test_a_host_put_back_is_missed_by_the_others(tmp_path: Path, host: int) -> None:
    """The restored host has forgotten messages that it sent or received, so others would wait for ever."""
    filled(tmp_path / "s", hosts=2)
    shutil.copytree(tmp_path / "s" / f"host-{host}", tmp_path / "older")
    with planstep.open(tmp_path / "s") as db:
        db.topic("u").write_batch([b"y"] * 9, keys=[bytes([n]) for n in range(9)])
    shutil.rmtree(tmp_path / "s" / f"host-{host}")
    shutil.copytree(tmp_path / "older", tmp_path / "s" / f"host-{host}")
    refused(tmp_path / "s", f"host {host} has lost turns")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_root_makes_in_a_users_store_is_that_users(tmp_path: Path) -> None:
    """Else `sudo planstep ...` locks the user out."""
    store, user = tmp_path / "s", 65534
    with planstep.open(store) as db:
        db.create_topic("t")
    for path in (store, *store.rglob("*")):
        os.chown(path, user, user)
    with planstep.open(store) as db:
        for _ in range(5):
            db.topic("t").write(bytes(5 << 20))
        made = [path for path in store.rglob("*") if not path.is_socket()]
        assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(user, user)}
    made = list(store.rglob("*"))
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(user, user)}
    assert sum(path.name.startswith("log-") for path in made) > 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_a_user_links_into_a_store_stays_roots(tmp_path: Path) -> None:
    store, secret = tmp_path / "s", tmp_path / "secret"
    with planstep.open(store):
        pass
    for path in (store, *store.rglob("*")):
        os.chown(path, 65534, 65534)
    for text in ("", "root:x"):
        secret.write_text(text)
        for name in ("lock", "released"):
            (store / "host-0" / name).unlink()
            os.link(secret, store / "host-0" / name)
        with suppress(planstep.PlanstepError), planstep.open(store):
            pass
        assert secret.stat().st_uid == 0
