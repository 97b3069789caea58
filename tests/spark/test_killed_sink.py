"""Tests a sink's process that is killed while it commits, in each mode; another one then repeats the batch.

Row `spark` of `planstep check` does so with a Spark, and kills its other processes, too.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from sink_kit import staged

import planstep
from planstep.api.open_engine import Mode
from planstep.bench.proof.spark.kills import DRIVER, JAVA, NO_FENCE, VARIABLE, Kill

SINK = Path(__file__).parent / "sources" / "killed_sink.py"
CASES: list[tuple[str, Mode, str]] = [
    *(("df", m, p) for m in get_args(Mode) for p in ("in the transaction", "committed")),
    ("stream", "deterministic", "committed"),  # it commits by the same code
    ("stream", "kafka", "in the transaction"),
]


def commit(path: str, kills: Path, kind: str = "df") -> int:
    environment = {**os.environ, VARIABLE: str(kills)}
    program = [sys.executable, SINK, path, kind]
    return subprocess.run(program, env=environment, timeout=120).returncode


def values(path: str) -> list[int]:
    with planstep.open(path) as db:
        for tablet in db.context.topic("t").partitions:
            db.context.runtime.hooks.wait_stable(tablet)
        return sorted(map(int, db.topic("t").read(max_records=9999).values))


def make(path: str, mode: Mode, kills: Path, phase: str) -> None:
    with planstep.open(path, mode=mode, hosts=2) as db:
        db.create_topic("t", partitions=2, format="utf8")
    kills.mkdir()
    for name in (DRIVER, JAVA):
        Path(kills, name).write_text("0")
    Kill(0, phase, "self").save(kills)


@pytest.mark.parametrize("kind, mode, phase", CASES)
def test_the_batch_counts_once(
    path: str, tmp_path: Path, mode: Mode, phase: str, kind: str
) -> None:
    make(path, mode, tmp_path / "kills", phase)
    assert commit(path, tmp_path / "kills", kind) == -signal.SIGKILL
    assert len(staged(path)) == 1
    assert commit(path, tmp_path / "kills", kind) == 0
    assert values(path) == list(range(1000)) and staged(path) == []


def test_without_a_fence_it_counts_twice(path: str, tmp_path: Path) -> None:
    """Else this file proves nothing."""
    make(path, "kafka", tmp_path / "kills", "committed")
    Path(tmp_path, "kills", NO_FENCE).touch()
    assert commit(path, tmp_path / "kills") == -signal.SIGKILL
    assert commit(path, tmp_path / "kills") == 0
    assert len(values(path)) == 2000
