"""Tests that overwritten versions are kept for open snapshots, within limits of bytes and time."""

import threading
from pathlib import Path

import pytest

import planstep
from planstep.errors import SnapshotTooOld
from planstep.host.versions import History, Retired


def row(step: int) -> tuple[int, int, bytes]:
    return (step, 0, b"v%d" % step)


def overwrite(history: History, step: int, now_ms: int = 0) -> None:
    """Commits one step, which overwrites the row of the step before."""
    history.release(step, [(b"k", row(step - 1), step)], now_ms)
    history.forget(None, now_ms)


def test_nothing_is_kept_that_nobody_can_ask_for() -> None:
    history = History()
    for step in range(1, 50):
        overwrite(history, step)
    assert history.bytes == 0 and not history.keys_between(b"", b"z")


def test_a_snapshot_sees_its_version() -> None:
    history = History()
    history.release(3)
    pinned = history.open()
    for step in range(4, 10):
        overwrite(history, step)
    assert history.value_at(b"k", row(9), pinned.step) == row(3)
    assert history.value_at(b"k", row(9), 9) == row(9)
    pinned.close()
    overwrite(history, 10)
    assert history.bytes == 0


@pytest.mark.parametrize("limit", ["bytes", "time"])
def test_beyond_its_limits_a_snapshot_is_too_old(limit: str) -> None:
    history = History(bytes_max=500) if limit == "bytes" else History(ms_max=1_000)
    history.release(1)
    pinned = history.open()
    overwrite(history, 2)
    assert history.value_at(b"k", row(2), pinned.step) == row(1)
    for step in range(3, 30):
        overwrite(history, step, now_ms=100 * step)
    with pytest.raises(SnapshotTooOld):
        history.value_at(b"k", row(29), pinned.step)
    assert history.value_at(b"k", row(29), 29) == row(29)
    assert history.bytes <= 500 or limit == "time"


def test_a_version_is_found_while_older_ones_are_forgotten() -> None:
    """`forget` shortens the list while a reader searches it."""
    history = History(lock=threading.RLock())
    history.release(1)
    oldest, pinned = history.open(), history.open(50)
    for step in range(2, 101):
        overwrite(history, step)
    entered, go_on = threading.Event(), threading.Event()

    class Slow(tuple[int, int, bytes]):
        def __getitem__(self, at: object) -> object:
            entered.set()
            assert go_on.wait(0.05) is not None
            return super().__getitem__(at)

    history._versions[b"k"] = [(Slow(old), step) for old, step in history._versions[b"k"]]
    found: list[object] = []
    reader = threading.Thread(
        target=lambda: found.append(history.value_at(b"k", row(100), pinned.step))
    )
    reader.start()
    assert entered.wait(60)
    oldest.close()
    history.forget()
    go_on.set()
    reader.join()
    assert found == [row(50)]


def test_a_snapshot_that_is_overtaken_as_it_opens_gets_the_newer_step() -> None:
    """The clock is read after the step, and before it is pinned."""
    history = History(clock=lambda: overtake() or 0.0)

    def overtake() -> None:
        if history.released == 1:
            history.release(2, [(b"k", row(1), 2)])

    history.release(1)
    pinned = history.open()
    assert pinned.step == 2 and history.pins()[0] == 1


def test_a_pin_that_nobody_holds_is_no_pin() -> None:
    """A signal's handler may raise before a snapshot's owner has it."""
    history = History()
    history.release(1)
    pinned = history.open()
    history.open()
    assert history.pins()[0] == 1
    pinned.close()
    assert history.pins()[0] == 0


def test_no_snapshot_of_a_view_that_is_retired_as_it_opens() -> None:
    history = History(clock=lambda: float(history.retire(lambda: None)))
    with pytest.raises(Retired):
        history.open()
    assert list(history._pins) == []


def test_a_snapshot_that_opens_while_a_turn_is_shown_waits_for_its_step() -> None:
    history = History(lock=threading.RLock())
    history.release(1)
    steps: list[int] = []
    opener = threading.Thread(target=lambda: steps.append(history.open().step))

    def show() -> None:
        assert history.open().step == 1  # a handler on the very thread that shows it
        opener.start()
        opener.join(0.05)
        assert not steps

    history.release(2, show=show)
    opener.join()
    assert steps == [2]


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_scan_never_leaves_out_a_row_whose_version_is_forgotten(hosts: int) -> None:
    with planstep.open(":memory:", hosts=hosts) as db:
        table = db.create_table("t", shards=1)
        for i in range(5):
            table.put(f"k{i}", i)
        with db.snapshot() as view:
            assert len(list(view.scan("t"))) == 5
            table.delete("k2")
            for node in db._runtime.nodes:
                node.host.history.bytes_max = 0
            for i in range(50):  # until every host has had a turn since
                table.put(f"other{i}", 0)
                table.put("k4", i)
            with pytest.raises(SnapshotTooOld):
                list(view.scan("t"))
            with pytest.raises(SnapshotTooOld):
                view.get("t", "k2")


def test_a_snapshot_that_is_older_than_its_hosts_start_is_too_old(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", hosts=3) as db:
        table = db.create_table("t", shards=3)
        for i in range(9):
            table.put(i, "old")
        with db.snapshot() as view:
            for i in range(9):
                table.put(i, "new")
            for host in (1, 2):
                db._runtime.stop_host(host)
                db._runtime.start_host(host)
            seen = []
            for i in range(9):
                try:
                    seen.append(view.get("t", i))
                except SnapshotTooOld:
                    seen.append("too old")
            assert set(seen) <= {"old", "too old"} and "too old" in seen
            with pytest.raises(SnapshotTooOld):
                list(view.scan("t"))
        assert [table.get(i) for i in range(9)] == ["new"] * 9
