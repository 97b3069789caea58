"""Makes this folder's kits importable by name, and makes a comparison of all workloads with its figures."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def summary() -> dict[str, Any]:
    """Returns the summary of all workloads, at both durabilities."""
    import comparisons

    return comparisons.summary(*comparisons.outcome(durability="both", find_rate=True))


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns the figures of that comparison; tests must not change them."""
    import comparisons

    from planstep.bench.report.html.figures import figures

    folder = tmp_path_factory.mktemp("all")
    asked, outcome = comparisons.outcome(durability="both", find_rate=True)
    comparisons.save_traces(folder, outcome)
    return figures(folder, comparisons.summary(asked, outcome))
