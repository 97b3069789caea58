"""Sets up tests of proof rows."""

from pathlib import Path

import pytest

from planstep.bench.proof.rows.registry import RowOptions


@pytest.fixture
def options(tmp_path: Path) -> RowOptions:
    """Returns the options of a quick row in one process, with everything in the test's folder."""
    return RowOptions(tmp_path, tmp_path, quick=True, workers=1)
