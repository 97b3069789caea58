"""Runs the command line in this process, which is quick, with real streams."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kit
import pytest

import planstep

call = kit.call


@pytest.fixture
def done(call: Any) -> Callable[..., str]:
    """Runs a command that must succeed; returns its output."""

    def done(*words: object, stdin: bytes = b"") -> str:
        status, out, err = call(*words, stdin=stdin)
        assert status == 0, err
        return str(out)

    return done


@pytest.fixture
def fields(done: Any) -> Callable[..., Any]:
    """Runs a command with --json; returns its one object."""
    return lambda *words, stdin=b"": json.loads(done(*words, "--json", stdin=stdin))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Makes a store of two topics with records, two consumers of one of them, and a table with rows."""
    store = tmp_path / "shop"
    with planstep.open(store) as db:
        clicks = db.create_topic("clicks", partitions=2, format="utf8")
        clicks.write_batch(["a", "b", "c"], partition=0)
        clicks.write_batch(["d"], partition=1)
        db.create_topic("single", format="utf8").write_batch(["x", "y"])
        clicks.create_consumer("mailer", kind="individual", start="latest")
        with db.transaction() as tx:
            tx.read("clicks", consumer="resharder", max_records=3)
        db.create_table("totals").load([(user, 1) for user in ("ada", "bob", "eve")])
    return store


@pytest.fixture
def refused(call: Any) -> Callable[..., str]:
    """Runs a command that must fail with one line; returns that line."""

    def refused(*words: object, stdin: bytes = b"") -> str:
        status, out, err = call(*words, stdin=stdin)
        assert (status, out) == (1, ""), (out, err)
        assert err.startswith("planstep: ") and len(err.splitlines()) == 1, err
        return str(err)

    return refused
