"""Makes a world for each way of running: one host, four hosts, bad links, separate placement, a slow network.

Bad links lose, repeat and reorder frames. Placement "separate" runs on one host, and on two with bad links.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from world import World, world

SETUPS: dict[str, dict[str, Any]] = {
    "one host": {"hosts": 1},
    "four hosts": {"hosts": 4},
    "four hosts, bad links": {"hosts": 4, "faults": 5},
    "separate": {"hosts": 1, "placement": "separate"},
    "separate, bad links": {"hosts": 2, "placement": "separate", "faults": 6},
    "one host, slow network": {"hosts": 1, "rtt_ms": 1.0},
}


@pytest.fixture(params=list(SETUPS))
def w(request: pytest.FixtureRequest) -> Iterator[World]:
    with world(**SETUPS[request.param]) as one:
        yield one
