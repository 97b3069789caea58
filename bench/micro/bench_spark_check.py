"""Judges with Spark: a comparison of small runs, which costs what any one costs; a million transactions.

    fixed       8 runs of 400 transactions in a fresh Spark: 27 s of CPU, most of it planning and compiling
    a million   of about four operations each

PLANSTEP_BENCH_TRANSACTIONS sets another number. Both include compilation by Spark's Java, not Spark's start. Java's
CPU seconds are told, and how many cores it kept busy: wall time alone says nothing on a shared machine.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.judges.python import IN_PLACE, NONE, PLANNED
from planstep.bench.judges.python.generate import FEEDS, Mix, generate
from planstep.bench.judges.spark.loading import Traces
from planstep.bench.judges.spark.prove import Proof, settings
from planstep.bench.judges.spark.session import end, java_pid, start
from planstep.bench.judges.trace import without_gc

TRANSACTIONS = int(os.environ.get("PLANSTEP_BENCH_TRANSACTIONS", "1000000"))
SMALL, MODES = 400, (PLANNED, PLANNED, IN_PLACE, NONE) * 2


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Any]:
    folder = tmp_path / "spark"
    folder.mkdir()
    session = start("bench", folder)
    yield session
    end(session)


def save(folder: Path, transactions: int, *modes: str) -> Path:
    for seed, mode in enumerate(modes):
        with without_gc():
            trace = generate(transactions, seed=seed + 1, mix=Mix(consumed_max=2))
            trace.about |= {"history": mode, "feeds": FEEDS}
            trace.save(folder / "traces" / f"run-{seed}")
    return folder


def java_cpu_s(spark: Any) -> float:
    """Returns the CPU seconds of the session's Java since it started."""
    fields = Path(f"/proc/{java_pid(spark)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.benchmark(group="judging with Spark")
@pytest.mark.parametrize(
    ("transactions", "modes"),
    [
        pytest.param(SMALL, MODES, id="fixed"),
        pytest.param(TRANSACTIONS, (PLANNED,), id=f"{TRANSACTIONS:,} transactions"),
    ],
)
def test_judge(
    benchmark: Any, spark: Any, tmp_path: Path, transactions: int, modes: tuple[str, ...]
) -> None:
    traces = Traces.of(spark, save(tmp_path, transactions, *modes))
    proof = Proof(traces, None, lambda line: None)

    def check() -> None:
        with settings(spark):
            proof.read()
            proof.check()
            proof.percentiles()

    before_s = java_cpu_s(spark)
    benchmark.pedantic(check, rounds=1)
    cpu_s = java_cpu_s(spark) - before_s
    traces.close()
    forbidden = {
        run.name: set(proof.by_run().get(run.name, ())) - {*run.allowed} for run in traces.runs
    }
    assert not any(forbidden.values()), forbidden
    benchmark.extra_info.update({job["name"]: job["seconds"] for job in proof.jobs})
    benchmark.extra_info |= {
        "java_cpu_s": round(cpu_s, 1),
        "cores_busy": round(cpu_s / sum(job["seconds"] for job in proof.jobs), 2),
        "load": os.getloadavg()[0],
    }
