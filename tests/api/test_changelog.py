"""Tests that a changelog's view holds exactly the commits, in every mode, after any change and any restore."""

from collections.abc import Iterator
from typing import Any

import pytest

import planstep

PLACES: list[dict[str, Any]] = [
    {"mode": "kafka"},
    {"mode": "kafka", "placement": "separate"},
    {"mode": "kafka", "hosts": 3, "protocol_version": 2},
    {"mode": "deterministic"},
    {"mode": "deterministic", "rtt": 0.002},
]


@pytest.fixture(params=PLACES, ids=lambda place: "-".join(map(str, place.values())))
def db(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    with planstep.open(":memory:", **request.param) as engine:
        engine.create_topic("state", partitions=2, format="json")
        yield engine


def test_a_value_that_was_given_is_the_callers_own(db: planstep.Engine) -> None:
    log = db.changelog("state", worker="w")
    put: Any = {"n": 1, "of": (1, 2)}
    with db.transaction(worker="w") as tx:
        log.put(tx, "k", put)
        put["n"] = 50
        log.get(tx, "k")["n"] = 60
    tx = db.transaction(worker="w")
    value = log.get(tx, "k")
    value["n"] += 1
    log.put(tx, "k", value)
    tx.rollback()
    dict(log.items())["k"]["n"] = 70
    assert dict(log.items()) == {"k": {"n": 1, "of": [1, 2]}}
    log.restore()
    assert dict(log.items()) == {"k": {"n": 1, "of": [1, 2]}}


def test_restoring_sees_the_commit_just_before(db: planstep.Engine) -> None:
    log = db.changelog("state", worker="w")
    for n in range(10):
        with db.transaction(worker="w") as tx:
            log.add(tx, "n", 1)
        if n % 2:
            log.restore()
        else:
            log = db.changelog("state", worker="w")
        assert dict(log.items()) == {"n": n + 1}


def test_what_was_not_answered_in_time_counts_as_it_ended(db: planstep.Engine) -> None:
    log = db.changelog("state", worker="w")
    for n in range(10):
        tx = db.transaction(worker="w")
        log.add(tx, "n", 1)
        try:
            tx.commit(1e-6)
        except planstep.Undetermined:
            pass
        with db.transaction(worker="w") as tx:
            assert log.get(tx, "n") == n + 1


@pytest.mark.parametrize("value", [object(), {1}, float("nan"), b"bytes"])
def test_what_does_not_fit_is_said_at_once(db: planstep.Engine, value: Any) -> None:
    log = db.changelog("state")
    with db.transaction() as tx:
        with pytest.raises(TypeError, match="state"):
            log.put(tx, "k", [value])
        with pytest.raises(TypeError, match="state"):
            log.put(tx, "\ud800", 1)
        log.put(tx, "k", 1)
    assert dict(log.items()) == {"k": 1}


@pytest.mark.parametrize("tx", [None, 1, "tx"])
def test_no_transaction_is_a_type_error(db: planstep.Engine, tx: Any) -> None:
    log = db.changelog("state")
    with pytest.raises(TypeError, match="transaction"):
        log.put(tx, "k", 1)
    with pytest.raises(TypeError, match="transaction"):
        log.get(tx, "k")


def test_another_engines_transaction_is_refused(db: planstep.Engine) -> None:
    log = db.changelog("state")
    with planstep.open(":memory:") as other:
        other.create_topic("state", format="json")
        tx = other.transaction()
        with pytest.raises(ValueError, match="another engine"):
            log.put(tx, "k", 1)
        tx.rollback()
    assert not len(log)
