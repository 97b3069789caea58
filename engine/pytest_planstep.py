"""The pytest fixture `planstep_db`: an engine in memory, with faults by a seed. See planstep/testing.py.

    def test_it(planstep_db): ...

    @pytest.mark.planstep(conflicts=0.3, hosts=3)
    def test_it_under_conflicts(planstep_db): ...

pytest finds it by itself once planstep is installed; nothing of planstep is imported before it is used.
Next: planstep/testing.py.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "planstep(conflicts, lost_answers, seed, hosts): settings of the fixture planstep_db",
    )


@pytest.fixture
def planstep_db(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A planstep engine in memory; @pytest.mark.planstep(...) sets faults, seed and hosts."""
    from planstep import testing

    marker = request.node.get_closest_marker("planstep")
    settings = {
        "seed": zlib.crc32(request.node.nodeid.encode()),
        **(marker.kwargs if marker else {}),
    }
    request.node.add_report_section("setup", "planstep", f"planstep_db: {settings}")
    with testing.engine(**settings) as db:
        yield db
