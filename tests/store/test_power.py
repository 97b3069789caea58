"""Cuts the power at every point of recorded runs; each image opens and holds everything acknowledged.

More of it, also through the whole face and with LMDB's own writes: `planstep check powerloss`.
"""

from pathlib import Path

import pytest

from planstep.bench.proof.rows.powerloss import Task, images_of

SEEDS = 3


@pytest.mark.parametrize("durability", ["full", "os"])
def test_the_power_goes_at_every_point(quick_path: Path, durability: str) -> None:
    images = 0
    for seed in range(SEEDS):
        task = Task(seed, "bare", durability, 1, 0, quick_path, durability, every_point=True)
        found = images_of(task)
        assert found.violations == []
        images += found.runs
    assert images >= 330, images
