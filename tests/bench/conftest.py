"""The kits of this folder are imported by name; a store of the system that a fixture `name` names."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.systems import SYSTEMS
from planstep.bench.compare.systems.base import Options, System

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("contract")


@pytest.fixture
def opened(name: str, tmp_path: Path) -> Iterator[Callable[..., System]]:
    """Opens the same store each time; the one before is closed."""
    systems: list[System] = []

    def make(**options: object) -> System:
        if systems:
            systems.pop().close()
        systems.append(SYSTEMS[name](tmp_path, Options(**options)))
        return systems[-1]

    yield make
    for system in systems:
        system.close()


@pytest.fixture
def system(opened: Callable[..., System]) -> System:
    system = opened()
    system.prepare({"in": 4, "out": 4}, ("state",))
    return system


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """See comparing.py, which needs the command line's packages."""
    from comparing import caller

    return caller(monkeypatch)


# for the report ---------------------------------------------------------------------------


@pytest.fixture
def summary() -> dict[str, Any]:
    """Of all workloads, at both durabilities."""
    import comparisons

    return comparisons.summary(*comparisons.outcome(durability="both", find_rate=True))


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Its figures; not to be changed."""
    import comparisons

    from planstep.bench.report.html.figures import figures

    folder = tmp_path_factory.mktemp("all")
    asked, outcome = comparisons.outcome(durability="both", find_rate=True)
    comparisons.save_traces(folder, outcome)
    return figures(folder, comparisons.summary(asked, outcome))
