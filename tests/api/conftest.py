"""Runs each test of the face on a store in memory, on one on disk, and on one of two hosts."""

import kit
import pytest

import planstep
from planstep.aio import process as tasks
from planstep.api.topics import process as threads

db = kit.everywhere


@pytest.fixture
def shop(db: planstep.Engine) -> planstep.Engine:
    db.create_topic("clicks", partitions=4)
    db.create_topic("by-user", partitions=3)
    db.create_table("totals")
    return db


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Notes the pauses of workers of process, which do not wait."""
    seconds: list[float] = []

    async def note(worker: object, pause: float) -> None:
        seconds.append(pause)

    monkeypatch.setattr(threads._Worker, "_pause", lambda worker, pause: seconds.append(pause))
    monkeypatch.setattr(tasks._Worker, "_pause", note)
    return seconds
