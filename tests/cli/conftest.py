"""Runs the command line in this process, which is quick, with real streams."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def call(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Runs `planstep WORDS`; returns (exit status, stdout, stderr)."""
    from planstep.cli import main

    def call(*words: object, stdin: bytes = b"") -> tuple[int, str, str]:
        source = tmp_path / "stdin"
        source.write_bytes(stdin)
        monkeypatch.setattr(sys, "argv", ["planstep", *map(str, words)])
        capfd.readouterr()
        with source.open("rb") as file, pytest.raises(SystemExit) as ended:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return call


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
