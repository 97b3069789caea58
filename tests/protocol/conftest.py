"""One world per way of running: one host; four; four over links that lose, repeat and reorder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from world import World, world


@pytest.fixture(params=["one host", "four hosts", "four hosts, bad links"])
def w(request: pytest.FixtureRequest) -> Iterator[World]:
    hosts = 1 if request.param == "one host" else 4
    with world(hosts, faults=5 if "bad" in request.param else None) as made:
        yield made
