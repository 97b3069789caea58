"""Makes a comparison of all workloads with its figures."""

from typing import Any

import comparisons
import pytest

from planstep.bench.report.html.figures import figures as figures_of


@pytest.fixture
def summary() -> dict[str, Any]:
    """Returns the summary of all workloads, at both durabilities."""
    made = comparisons.summary(*comparisons.outcome(durability="both", find_rate=True))
    return made | {"curves": comparisons.curves()}


@pytest.fixture(scope="session")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns the figures of that comparison; tests must not change them."""
    folder = tmp_path_factory.mktemp("all")
    options, outcome = comparisons.outcome(durability="both", find_rate=True)
    comparisons.save_traces(folder, outcome)
    return figures_of(folder, comparisons.summary(options, outcome))
