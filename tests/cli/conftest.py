"""Runs the command line in this process, which is quick, with real streams."""

import json
from collections.abc import Callable
from typing import Any

import kit
import pytest

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
def refused(call: Any) -> Callable[..., str]:
    """Runs a command that must fail with one line; returns that line."""

    def refused(*words: object, stdin: bytes = b"") -> str:
        status, out, err = call(*words, stdin=stdin)
        assert (status, out) == (1, ""), (out, err)
        assert err.startswith("planstep: ") and len(err.splitlines()) == 1, err
        return str(err)

    return refused
