"""Runs each test of the face on a store in memory, on one on disk, and on one of two hosts."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import planstep


@pytest.fixture(params=["memory", "disk", "two hosts"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[planstep.Engine]:
    path = str(tmp_path / "shop.planstep") if request.param == "disk" else ":memory:"
    with planstep.open(path, hosts=2 if request.param == "two hosts" else None) as engine:
        yield engine


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds; fails after a time-out."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.001)

    return wait


@pytest.fixture
def shop(db: planstep.Engine) -> planstep.Engine:
    db.create_topic("clicks", partitions=4)
    db.create_topic("by-user", partitions=3)
    db.create_table("totals")
    return db
