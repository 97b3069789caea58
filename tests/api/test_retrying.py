"""Tests the retries of `run`: they last until its deadline, and the oldest loser goes first."""

import asyncio
import heapq
import itertools
import random
import time
from pathlib import Path
from typing import Any

import pytest
from kit import in_threads

import planstep
from planstep.api.retry import Attempts, Losers

CONTENDERS = 64


def lost(key: str = "k") -> planstep.Conflict:
    return planstep.Conflict(kind="table", name="totals", part=0, key=key)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the clock of the retries, in seconds, and removes their jitter."""
    now = [0.0]
    monkeypatch.setattr("planstep.api.retry.time.monotonic", lambda: now[0])
    monkeypatch.setattr("planstep.api.retry.random.uniform", lambda low, high: high)
    return now


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.api.retry._PAUSE_MAX", 0.001)


def test_run_ends_by_its_deadline_only(shop: planstep.Engine, impatient: None) -> None:
    calls = []

    def fn(tx: planstep.Transaction) -> None:
        calls.append(tx.id)
        n: int = tx.get("totals", "n", 0)
        if len(calls) <= 25:
            shop.table("totals").add("n", 10)
        tx.put("totals", "n", n + 1)

    shop.run(fn, deadline=600)
    assert len(calls) == 26 and shop.table("totals").get("n") == 251
    assert shop.context.losers._of == {}


def test_a_coroutine_ends_by_its_deadline_only(tmp_path: Path, impatient: None) -> None:
    calls = []

    async def main() -> None:
        async with planstep.open_async(tmp_path / "s") as db:
            totals = await db.create_table("totals")

            async def fn(tx: planstep.AsyncTransaction) -> None:
                calls.append(tx.id)
                n: int = await tx.get("totals", "n", 0)
                if len(calls) <= 25:
                    await totals.add("n", 10)
                await tx.put("totals", "n", n + 1)

            await db.run(fn, deadline=600)
            assert await totals.get("n") == 251 and db.sync.context.losers._of == {}

    asyncio.run(main())
    assert len(calls) == 26


def test_a_conflict_that_is_not_retryable_is_raised_at_once(shop: planstep.Engine) -> None:
    calls = []

    def fn(tx: planstep.Transaction) -> None:
        calls.append(tx.id)
        error = planstep.Conflict(kind="topic", name="t", part=0, producer=b"p", foreign=True)
        tx.life.failure = error
        raise error

    with pytest.raises(planstep.Conflict):
        shop.run(fn)
    assert len(calls) == 1


def test_the_oldest_loser_waits_least(clock: list[float]) -> None:
    losers = Losers()
    tried = [Attempts(None, 600, losers) for _ in range(5)]
    clock[0] = 0.01
    for one in tried:  # by age
        one.pause_after(lost(), True)
    pauses = [one.pause_after(lost(), True) for one in reversed(tried)][::-1]
    assert pauses == sorted(set(pauses)) and pauses[0] < pauses[1] / 1.9
    tried[0].__exit__(None, None, None)  # it has won
    assert tried[1].pause_after(lost(), True) == 0  # now the oldest of a crowd that makes progress
    assert tried[4].pause_after(lost("another"), True) == 0  # alone there
    for one in tried[1:]:
        one.__exit__(None, None, None)
    assert losers._of == {}


def test_who_loses_alone_waits_longer_each_time(clock: list[float]) -> None:
    one = Attempts(None, 600, Losers())
    pauses = []
    for _ in range(12):
        clock[0] += 0.002
        pauses.append(one.pause_after(lost(), True))
        clock[0] += pauses[-1]
    assert pauses[0] == 0 and pauses[1] == pytest.approx(0.002) and pauses[-1] == 0.25
    assert pauses == sorted(pauses)


def test_the_deadline_ends_it_whatever_it_waits_for(clock: list[float]) -> None:
    one = Attempts(None, 3, Losers())
    with pytest.raises(planstep.Conflict) as caught:
        for _ in range(10_000):
            clock[0] += 0.01 + one.pause_after(lost(), True)
    assert 2 < clock[0] < 3 and "gave up after" in caught.value.__notes__[0]


def test_none_of_many_gives_up_on_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,560 runs by 64 contenders, in simulated time: a commit counts if no other commit came since its attempt
    began."""
    now, draw = [0.0], random.Random(1)
    monkeypatch.setattr("planstep.api.retry.time.monotonic", lambda: now[0])
    monkeypatch.setattr("planstep.api.retry.random.uniform", draw.uniform)
    losers, order = Losers(), itertools.count()
    events: list[tuple[float, int, Any, float]] = []
    remaining = [40] * CONTENDERS
    counted, tries = -1.0, []

    def begin(who: int, at: float, one: Attempts, tried: int) -> None:
        takes = draw.uniform(0.8, 1.2) * 0.005
        heapq.heappush(events, (at + takes, next(order), (who, one, tried + 1), at))

    for who in range(CONTENDERS):
        begin(who, 0.0, Attempts(None, 30, losers), 0)
    while events:
        now[0], _, (who, one, tried), began = heapq.heappop(events)
        if began <= counted:
            begin(who, now[0] + one.pause_after(lost(), True), one, tried)
            continue
        counted = now[0]
        one.__exit__(None, None, None)
        tries.append(tried)
        remaining[who] -= 1
        if remaining[who]:
            begin(who, now[0], Attempts(None, 30, losers), 0)
    tries.sort()
    assert remaining == [0] * CONTENDERS and len(tries) == 2560 and losers._of == {}
    assert sum(tries) < 20 * len(tries) and tries[-1] > 20  # more than once might


def test_threads_on_one_row_all_get_through(shop: planstep.Engine) -> None:
    def count(tx: planstep.Transaction) -> None:
        n: int = tx.get("totals", "n", 0)
        time.sleep(0.0005)  # all of them are at it
        tx.put("totals", "n", n + 1)

    def work() -> None:
        for _ in range(8):
            shop.run(count, deadline=600)

    in_threads([work] * CONTENDERS)
    assert shop.table("totals").get("n") == CONTENDERS * 8
    assert shop.context.losers._of == {}
