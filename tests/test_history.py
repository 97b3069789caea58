"""Overwritten versions are kept for open snapshots, within limits of bytes and of time."""

import pytest

from planstep.errors import SnapshotTooOld
from planstep.history import History


def row(step: int) -> tuple[int, int, bytes]:
    return (step, 0, b"v%d" % step)


def overwrite(history: History, step: int, now_ms: int = 0) -> None:
    """Step by step: each writes the key that the one before wrote."""
    history.install([(b"k", row(step - 1), step)], now_ms)
    history.release(step, None, now_ms)


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
    assert history.value_at(b"k", row(9), pinned) == row(3)
    assert history.value_at(b"k", row(9), 9) == row(9)
    history.close(pinned)
    overwrite(history, 10)
    assert history.bytes == 0


@pytest.mark.parametrize("limit", ["bytes", "time"])
def test_beyond_its_limits_a_snapshot_is_too_old(limit: str) -> None:
    history = History(bytes_max=500) if limit == "bytes" else History(ms_max=1_000)
    history.release(1)
    pinned = history.open()
    overwrite(history, 2)
    assert history.value_at(b"k", row(2), pinned) == row(1)
    for step in range(3, 30):
        overwrite(history, step, now_ms=100 * step)
    with pytest.raises(SnapshotTooOld):
        history.value_at(b"k", row(29), pinned)
    assert history.value_at(b"k", row(29), 29) == row(29)
    assert history.bytes <= 500 or limit == "time"
