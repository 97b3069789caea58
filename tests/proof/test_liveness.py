"""Tests row liveness: the other hosts go on without a dead one; a host that hears no frame stops them."""

from pathlib import Path

import pytest

from planstep.bench.proof.rows import liveness
from planstep.bench.proof.rows.registry import Asked


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path, tmp_path, runs=15, workers=1)


@pytest.mark.again
def test_new_work_commits_beside_a_dead_host(asked: Asked) -> None:
    found = liveness.run(asked)
    assert found.violations == []
    assert found.runs == 15
    assert found.figures["committed"] >= 15 * liveness.NEW
    assert found.figures["waiting_for_the_dead"] > 0
    assert found.most["slowest_virtual_s"] < 60


def test_lost_frames_for_ever_are_noticed(asked: Asked) -> None:
    assert any("B37" in text for text in liveness.control(asked).violations)
