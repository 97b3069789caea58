"""Tests how `planstep follow` begins and ends: signals at any moment, a closed pipe, a log that is away."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, Child

import planstep

# A signal comes to the process itself, at the moment that a test wants.
EARLY = """
import os, signal, sys, threading
from planstep.cli import main

def strike(*_):
    os.kill(os.getpid(), int(os.environ["NUMBER"]))

class Finder:
    def find_spec(self, name, *_):
        if name == os.environ["AT"]:
            strike()

sys.meta_path.insert(0, Finder())
main()
"""

UNREACHABLE = """
import sys
import planstep.shared.registry as registry
from planstep.errors import LogUnreachable
from planstep.cli import main

opener, failing = registry.OPENERS["file"], [3]

def opened(*args):
    if failing[0]:
        failing[0] -= 1
        raise LogUnreachable("the line is cut")
    return opener(*args)

registry.OPENERS["file"] = opened
import planstep.cli.followers as followers
followers._AGAIN_SECONDS = 0.05
main()
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[planstep.Engine]:
    with planstep.open(tmp_path / "a", replicate=(tmp_path / "log").as_uri()) as db:
        db.create_table("t").put("k", 1)
        yield db


@pytest.fixture
def words(owner: planstep.Engine, tmp_path: Path) -> tuple[Any, ...]:
    return "follow", (tmp_path / "log").as_uri(), tmp_path / "f"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("at", ["typer", "planstep.cli.followers", "planstep.api.follower"])
def test_a_signal_while_it_is_loaded_ends_it_as_later(
    words: tuple[Any, ...], number: signal.Signals, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBER", str(int(number)))
    monkeypatch.setenv("AT", at)
    with Child(EARLY, *words, stderr=subprocess.PIPE) as child:
        out, err = child.process.communicate(timeout=60)
        assert (child.process.returncode, err) == (0, ""), out


def test_a_reader_of_its_lines_that_leaves_ends_it_in_silence(words: tuple[Any, ...]) -> None:
    script = ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", sys.executable, "-c"]
    ended = subprocess.run(
        [*script, PLANSTEP, *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("following: turn")


def test_a_log_that_does_not_answer_at_first_is_waited_for(words: tuple[Any, ...]) -> None:
    with Child(UNREACHABLE, *words, stderr=subprocess.PIPE) as child:
        assert child.line().startswith("following: turn")
        child.process.send_signal(signal.SIGINT)
        assert child.process.wait(60) == 0
        said = child.process.stderr.read()
    assert said.count("the line is cut") == 1 and "tries again" in said, said
