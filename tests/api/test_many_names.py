"""Tests hundreds of names: each new one costs as much as the first, and all openers see the same names."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kit import in_threads

import planstep
from planstep.api.open_engine import Mode
from planstep.errors import Undetermined
from planstep.runtime.catalog import Names

SOME = 60


def steps(call: Callable[[int], Any], begin: int) -> int:
    """Counts the calls, of Python and C functions, that this thread makes for SOME of them."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        for n in range(begin, begin + SOME):
            call(n)
    finally:
        sys.setprofile(before)
    return count


# Mode "kafka" has no tables, and looks for a new consumer's position among all groups' rows: see ARCHITECTURE.md.
NAMED: list[tuple[Mode, str]] = [
    *(("deterministic", what) for what in ("topic", "table", "consumer", "drop")),
    ("kafka", "topic"),
    ("kafka", "drop"),
]


@pytest.mark.parametrize(("mode", "what"), NAMED)
def test_the_thousandth_name_costs_what_the_first_did(
    mode: Mode, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planstep.open(":memory:", mode=mode) as db:

        def make(n: int) -> Any:
            if what == "table":
                return db.create_table(f"t{n}", 1)
            topic = db.create_topic(f"t{n}")
            if what == "consumer":
                topic.create_consumer(f"c{n}")
            if what == "drop":
                db.drop_topic(f"t{n}")
            return topic

        if what == "drop":
            monkeypatch.setattr(db._runtime.maintenance, "run", lambda now_ms=None: None)
        steps(make, 0)
        first = steps(make, SOME)
        for n in range(10 * SOME, 16 * SOME):
            make(n)
        assert steps(make, 20 * SOME) < 1.5 * first


def test_what_is_known_of_names_is_what_a_look_at_all_would_find(
    shop: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same() -> None:
        known, fresh = shop._runtime.names, Names(shop._runtime.nodes[0].host.store)
        for name in ("topics", "tables", "consumers", "dropped"):
            assert getattr(known, name) == getattr(fresh, name)

    monkeypatch.setattr(shop._runtime.maintenance, "run", lambda now_ms=None: None)
    topic = shop.create_topic("t", 3, format="json", retention_bytes=1 << 20)
    topic.create_consumer("one", kind="individual")
    topic.create_consumer("all")
    same()
    topic.alter(retention_bytes=None)
    topic.drop_consumer("one")
    same()
    shop.drop_topic("t")
    assert shop._runtime.names.dropped
    same()
    shop.create_topic("t").create_consumer("all")
    shop.drop_table("totals")
    same()
    with pytest.raises(planstep.UnknownName):
        shop.table("totals")


def test_a_name_that_came_after_all_is_seen(
    shop: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The creator got no answer, and the creation committed only later."""
    commit, calls = shop._runtime.transactions.commit, list[Any]()

    def lost(tx: bytes, parts: Any, *more: Any) -> Any:
        calls.append((tx, parts))
        raise Undetermined("made to be lost")

    monkeypatch.setattr(shop._runtime.transactions, "commit", lost)
    with pytest.raises(Undetermined):
        shop.create_topic("late")
    monkeypatch.setattr(shop._runtime.transactions, "commit", commit)
    commit(*calls[0])
    shop.create_topic("another")
    assert {"late", "another"} <= set(shop.topics())


def test_names_are_made_by_many_threads_at_once(shop: planstep.Engine) -> None:
    def work(number: int) -> None:
        for n in range(20):
            shop.create_topic(f"own-{number}-{n}")
            shop.create_topic(f"shared-{n}", exist_ok=True)
            assert len(shop.topics()) >= n
            shop.drop_topic(f"own-{number}-{n}")

    in_threads(partial(work, n) for n in range(6))
    assert sorted(shop.topics()) == sorted(
        ["by-user", "clicks", *(f"shared-{n}" for n in range(20))]
    )
