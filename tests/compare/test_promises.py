"""Tests the table of promises: every mode's words, and what was found in the runs beside them."""

from typing import Any

import pytest

from planstep.bench.compare.promises import promises
from planstep.bench.compare.ranking import DURABILITIES
from planstep.bench.compare.systems import MODES


def entry(**more: Any) -> dict[str, Any]:
    """Makes an entry of two clean runs."""
    clean: dict[str, Any] = {"missing": 0, "duplicated": 0, "out_of_order": 0, "repeats": 2}
    clean |= {"violations_by": {}, "allowed_by": {}, "judged": {"records": 9}}
    return clean | {"memory_peak_mb": 60.0} | more


def row(system: str = "kafka", **placements: dict[str, Any]) -> dict[str, Any]:
    """Returns the only row of a comparison in which one system ran once in each of these placements."""
    (one,) = promises({system: {"reshard": {"full": placements}}})
    return one


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_mode_says_what_it_promises(mode: Any) -> None:
    assert set(mode.promises.durable) == set(DURABILITIES)
    assert all((*mode.promises.durable.values(), *mode.promises[1:]))


def test_a_clean_system_has_its_mode_s_words() -> None:
    (mode,) = (mode for mode in MODES if mode.name == "kafka")
    told = row(separate=entry(), shared=entry(memory_peak_mb=90.0))
    assert (told["system"], told["placement"]) == ("kafka", "separate"), "as it is meant to run"
    assert (told["durable"], told["zombie"]) == (mode.promises.durable, mode.promises.zombie)
    assert (told["anomalies"], told["runs"], told["memory_mb"]) == ("none found", 4, 90.0)


def test_anomalies_are_added_up_and_told_apart() -> None:
    told = row(
        separate=entry(allowed_by={"G0": 2}, violations_by={"torn": 1}),
        shared=entry(allowed_by={"G0": 1000}, missing=3),
    )
    assert told["allowed"] == {"G0": 1002}
    assert told["forbidden"] == {"torn": 1, "lost": 3}
    assert told["anomalies"] == (
        "found, and forbidden: lost 3, torn 1; found, and allowed by its model: G0 1,002"
    )


def test_nothing_is_clean_that_nobody_looked_at() -> None:
    told = row("sqlite", shared=entry(judged={}, memory_peak_mb=None))
    assert told["anomalies"] == "not looked for: no history to judge"
    assert told["memory_mb"] is None
