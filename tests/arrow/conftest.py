from collections.abc import Iterator
from pathlib import Path

import pytest

import planstep


@pytest.fixture(params=["memory", "disk", "two hosts"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[planstep.Engine]:
    path = str(tmp_path / "shop.planstep") if request.param == "disk" else ":memory:"
    with planstep.open(path, hosts=2 if request.param == "two hosts" else None) as engine:
        yield engine
