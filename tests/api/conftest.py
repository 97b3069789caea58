"""Runs each test of the face on a store in memory, on one on disk, and on one of two hosts."""

import kit
import pytest

import planstep

db = kit.everywhere


@pytest.fixture
def shop(db: planstep.Engine) -> planstep.Engine:
    db.create_topic("clicks", partitions=4)
    db.create_topic("by-user", partitions=3)
    db.create_table("totals")
    return db
