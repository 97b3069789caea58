"""Tests an on_error that returns "retry": it waits, and knows the number of attempts."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import kit
import pytest
from kit import background

import planstep
from planstep.api.topics import process_policy

db = kit.each_mode
ATTEMPTS = 12


def decide(attempts: list[int]) -> Callable[[planstep.ProcessingError], str]:
    def on_error(error: planstep.ProcessingError) -> str:
        attempts.append(error.attempt)
        return "retry" if error.attempt < ATTEMPTS else "dead_letter"

    return on_error


def check(pauses: list[float], attempts: list[int], letter: planstep.ReadBatch) -> None:
    assert attempts == list(range(1, ATTEMPTS + 1))
    assert letter.values == [b"bad"] and letter.headers[0]["planstep-attempt"] == str(ATTEMPTS)
    pauses = [pause for pause in pauses if pause]
    assert len(pauses) == ATTEMPTS - 1
    for n, pause in enumerate(pauses):
        longest = min(0.1 * 2**n, 30.0)
        assert longest / 2 <= pause <= longest
    assert pauses != [min(0.1 * 2**n, 30.0) for n in range(len(pauses))], "no jitter"


def test_retries_wait_longer_each_time(db: planstep.Engine, pauses: list[float]) -> None:
    db.create_topic("in").write_batch([b"good", b"bad", b"good"])
    db.create_topic("out")
    attempts: list[int] = []

    def run(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.write_batch("out", batch.values)
        if b"bad" in batch.values:
            raise ValueError

    done = db.process(
        run, "in", "c", on_error=decide(attempts), dead_letter="dead", until_idle=True
    )
    assert (done.records, done.dead_lettered) == (3, 1)
    assert db.topic("out").read().values == [b"good", b"good"]
    check(pauses, attempts, db.topic("dead").read())


async def test_retries_of_asyncio_do_too(pauses: list[float]) -> None:
    async with planstep.open_async(":memory:") as db:
        await (await db.create_topic("in")).write_batch([b"good", b"bad", b"good"])
        attempts: list[int] = []

        async def run(tx: planstep.AsyncTransaction, batch: planstep.ReadBatch) -> None:
            if b"bad" in batch.values:
                raise ValueError

        await db.process(
            run, "in", "c", on_error=decide(attempts), dead_letter="dead", until_idle=True
        )
        check(pauses, attempts, await db.topic("dead").read())


@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_a_pause_ends_with_the_process(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause ends with the process, however long it is: an hour here."""
    monkeypatch.setattr(process_policy, "_PAUSE_MIN", 3600.0)
    monkeypatch.setattr(process_policy, "_PAUSE_MAX", 3600.0)
    stop = threading.Event()
    failure = threading.Event()

    def on_error(error: planstep.ProcessingError) -> str:
        failure.set()
        return "retry"

    def fail(tx: object, batch: planstep.ReadBatch) -> Any:
        raise ValueError

    async def main() -> None:
        async with planstep.open_async(":memory:") as db:
            await (await db.create_topic("in")).write(b"bad")
            await db.process(fail, "in", "c", on_error=on_error, stop=stop)

    def run() -> None:
        if face == "tasks":
            asyncio.run(main())
            return
        with planstep.open(":memory:") as db:
            db.create_topic("in").write(b"bad")
            db.process(fail, "in", "c", on_error=on_error, stop=stop)

    with background(run):
        assert failure.wait(30)
        stop.set()
