"""Opens stores of mode "kafka" in each placement, of one host and four, in both versions of the protocol."""

from collections.abc import Iterator

import pytest
from face_kit import PLACES, new_store

import planstep


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}-v{place[2]}")
def db(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    hosts, placement, version = request.param
    with new_store(hosts=hosts, placement=placement, protocol_version=version) as db:
        yield db
