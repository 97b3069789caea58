"""Makes this folder's kits importable by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import planstep

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("conversation", "face_kit")

PLACES = [(1, "shared", 1), (1, "separate", 2), (4, "shared", 2), (4, "separate", 1)]


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}-v{place[2]}")
def db(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    hosts, placement, version = request.param
    from face_kit import create, opened

    with opened(hosts=hosts, placement=placement, protocol_version=version) as db:
        create(db)
        yield db
