"""Tests that a busy machine is found out: by other work, by its host, and by how long work waits."""

import time
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.pressure import BUSY_SHARE, Moment, between, load, moment, watch

NEVER: dict[str, float] = {}


def test_two_moments_make_rates() -> None:
    before = Moment(10.0, 100.0, 5.0, {"cpu": 1.0, "io": 2.0})
    after = Moment(12.0, 103.0, 5.5, {"cpu": 2.5, "io": 2.0, "memory": 7.0})
    assert between(before, after) == {
        "busy_cores": 1.5,
        "steal": 0.25,
        "psi": {"cpu": 0.75, "io": 0.0, "memory": None},
    }


def test_what_a_platform_does_not_tell_is_none() -> None:
    nothing = Moment(1.0, None, None, NEVER)
    told = between(nothing, nothing._replace(at=2.0))
    assert told == {
        "busy_cores": None,
        "steal": None,
        "psi": dict.fromkeys(("cpu", "io", "memory")),
    }
    told = load({"cpus": 2, "busy_cores": None, "load": {"before": told}}, {})
    assert told["busy"] is False and "not known on this platform" in told["sentence"]


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="/proc tells what processors did")
def test_work_is_seen() -> None:
    before, began = moment(), time.process_time()
    while time.process_time() - began < 0.3:
        pass
    after = moment()
    assert before.busy_s is not None and after.busy_s is not None
    assert after.busy_s - before.busy_s > 0.2
    watched = watch(0.05)
    assert set(watched) == {"load1", "busy_cores", "steal", "psi"} and watched["busy_cores"] >= 0


def systems(**ranges: list[float | None]) -> dict[str, Any]:
    return {"a": {"small": {"full": {"shared": {"range": ranges}}}}}


def machine(busy: float, steal: float = 0.0) -> dict[str, Any]:
    before = {"load1": 1.0, "busy_cores": busy, "steal": steal, "psi": {}}
    return {"cpus": 2, "busy_cores": busy, "load": {"before": before}}


def test_a_quiet_machine_is_no_reason_for_a_warning() -> None:
    told = load(machine(0.1), systems(other_cores=[0.0, 0.15], steal_cores=[0.0, 0.0]))
    assert told["busy"] is False
    assert told["sentence"] == (
        "Other work on this machine used 0.10 of 2 cores before, and at most 0.15 during a run."
    )
    assert told["before"]["load1"] == 1.0


@pytest.mark.parametrize(
    "before, during",
    [
        (machine(1.0), {}),
        (machine(0.0), {"other_cores": [0.0, 2 * BUSY_SHARE + 0.01]}),
        (machine(0.0, steal=0.5), {}),
        (machine(0.0), {"steal_cores": [0.0, 0.9]}),
    ],
)
def test_a_busy_machine_is_named(before: dict[str, Any], during: dict[str, Any]) -> None:
    told = load(before, systems(**during))
    assert told["busy"] is True
    assert told["sentence"].endswith(
        "too much for reliable figures. Run it again when nothing else runs."
    )


def test_the_highest_of_all_runs_counts() -> None:
    told = load(machine(0.0), systems(pressure_cpu=[0.1, 0.7], steal_cores=[0.0, 0.4]))
    assert told["during"] == {
        "busy_other_cores_max": None,
        "steal_max": 0.4,
        "psi_max": {"cpu": 0.7, "io": None, "memory": None},
    }
    assert "its host took up to 0.40 of them away" in told["sentence"]
