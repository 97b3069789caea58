"""Tests that commits make no more calls than the figures of docs/performance.md and 3 %, and runs each case."""

import subprocess
import sys
from pathlib import Path

import pytest

from planstep.bench.micro import instructions
from planstep.bench.micro.cases import CASES, Calls


@pytest.mark.parametrize(
    ("case", "most"),
    [
        ("deterministic", Calls(calls=113, c_calls=199, entries=38, files=36)),
        ("single", Calls(calls=282, c_calls=358, entries=87, files=52)),
        # Its threads meet differently each time.
        ("kafka", Calls(calls=690, c_calls=800, entries=165, files=58)),
    ],
)
def test_a_commit_takes_no_more_calls_than_it_did(case: str, most: Calls) -> None:
    counted = instructions.calls_of(case)
    assert counted.calls <= most.calls
    assert counted.entries <= most.entries
    assert counted.files <= most.files
    if sys.version_info[:2] == (3, 11):  # the figures are of this one
        assert counted.c_calls <= most.c_calls


def test_mode_pulsar_takes_at_most_1_4_times_mode_kafkas_calls() -> None:
    kafka, pulsar = (instructions.calls_of(case) for case in ("kafka small 1", "pulsar small"))
    assert pulsar.calls + pulsar.c_calls <= 1.4 * (kafka.calls + kafka.c_calls)


@pytest.mark.parametrize("case", CASES)
def test_each_case_runs(case: str) -> None:
    instructions.run_case(case, "work", 2)


def test_a_case_that_a_revision_cannot_run_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(name: str, root: Path | None = None) -> int:
        if root is not None:
            raise subprocess.CalledProcessError(1, "python")
        return 1_000

    monkeypatch.setattr(instructions, "instructions_of", counted)
    found = instructions.count("face", Path())
    assert (found["instructions"], found["before"], found["ratio"]) == (1_000, None, None)


@pytest.mark.skipif(not (Path(__file__).parents[2] / ".git").exists(), reason="no repository")
def test_another_revision_runs_the_same_cases() -> None:
    with instructions.package_of("HEAD") as root:
        found = instructions.run_case("single", "calls", root=root)
        assert '"calls"' in found.stdout
    with pytest.raises(SystemExit, match="git has no"), instructions.package_of("none"):
        pass
