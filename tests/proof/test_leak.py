"""Row `leak`: what grows is named, what stays flat is not; a soak of seconds with a leak in it."""

from pathlib import Path

import pytest

from planstep.bench.proof.leak import BOUNDS, Sample, control, grown
from planstep.bench.proof.rows import Asked

SECONDS, SEGMENT = 100.0, 1 << 20


def samples(name: str = "", a_second: float = 0.0) -> list[Sample]:
    made = []
    for at in range(100):
        one = {"at": float(at), "transactions": 10.0 * at, **dict.fromkeys(BOUNDS, 5.0)}
        if name:
            one[name] += a_second * at
        made.append(one)
    return made


def test_flat_is_clean() -> None:
    assert list(grown(samples(), SECONDS, SEGMENT)) == []


@pytest.mark.parametrize("name", BOUNDS)
def test_what_grows_is_named(name: str) -> None:
    bound = BOUNDS[name]
    room = bound.constant + 1000 * bound.transaction + bound.segments * SEGMENT
    assert [text.split()[0] for text in grown(samples(name, room / 30), SECONDS, SEGMENT)] == [name]
    assert list(grown(samples(name, room / 100), SECONDS, SEGMENT)) == []


def test_what_only_a_reader_kept_may_come_and_go() -> None:
    made = samples()
    for one in made[36:60]:
        one["log_bytes"] = 1e12
    assert list(grown(made, SECONDS, SEGMENT)) == []


def test_a_soak_that_does_nothing_proves_nothing() -> None:
    made = samples()
    for one in made:
        one["transactions"] = 7.0
    assert list(grown(made, SECONDS, SEGMENT)) == ["nothing was done"]
    assert "too few samples" in next(grown(made[:10], SECONDS, SEGMENT))


def test_snapshots_that_nobody_closes_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    found = control(Asked(tmp_path, tmp_path / "memory", quick=True, runs=6))
    assert any("snapshots has grown" in text for text in found.violations)
    assert found.faults["reader killed"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["memory"]
