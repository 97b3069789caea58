"""Tests process on a row that others change all the time: it goes on with longer pauses, and logs that once."""

import logging

import kit
import pytest

import planstep

db = kit.each_mode
CONFLICTS = 130


def check(done: planstep.Progress, pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    assert (done.records, done.conflicts) == (3, CONFLICTS)
    assert pauses[:3] == [0.0, 0.0, 0.0] and len(pauses) == CONFLICTS
    late = pauses[12:]
    assert all(0.125 <= pause <= 0.25 for pause in late) and len(set(late)) > 1, "no jitter"
    assert max(pauses[3:6]) < min(late)
    (warning,) = [r for r in caplog.records if getattr(r, "event", "") == "contended"]
    assert warning.levelno == logging.WARNING and "'in', partition 0" in warning.getMessage()


def test_conflicts_never_end_a_process(
    db: planstep.Engine, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    tables = db.mode == "deterministic"
    db.create_topic("in").write_batch([b"1", b"2", b"3"])
    if tables:
        db.create_table("n").put("hot", 0)

    def run(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        if not tables and len(pauses) < CONFLICTS:
            raise planstep.ProtocolError("of another member", retryable=True)
        if tables:
            tx.put("n", "seen", tx.get("n", "hot"))
            if len(pauses) < CONFLICTS:
                db.table("n").add("hot", 1)

    done = db.process(run, "in", "c", until_idle=True, on_error="skip")
    check(done, pauses, caplog)


async def test_nor_one_of_asyncio(pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    async with planstep.open_async(":memory:") as db:
        await (await db.create_topic("in")).write_batch([b"1", b"2", b"3"])
        table = await db.create_table("n")
        await table.put("hot", 0)

        async def run(tx: planstep.AsyncTransaction, batch: planstep.ReadBatch) -> None:
            await tx.put("n", "seen", await tx.get("n", "hot"))
            if len(pauses) < CONFLICTS:
                await table.add("hot", 1)

        done = await db.process(run, "in", "c", until_idle=True, on_error="skip")
        check(done, pauses, caplog)
