"""Opens stores of mode "kafka" in each placement and version of the protocol, and makes single tablets."""

from collections.abc import Iterator

import pytest
from coordinator_kit import Coordinator
from face_kit import PLACES, new_store
from partition_kit import Log

import planstep


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}-v{place[2]}")
def db(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    hosts, placement, version = request.param
    with new_store(hosts=hosts, placement=placement, protocol_version=version) as db:
        yield db


@pytest.fixture
def log() -> Log:
    """Returns a partition alone, for requests of version 1."""
    return Log()


@pytest.fixture
def c() -> Coordinator:
    """Returns a transaction coordinator alone."""
    return Coordinator()
