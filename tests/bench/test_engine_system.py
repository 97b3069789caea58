"""This engine's modes as systems: the contract."""

import pytest
from contract import *  # noqa: F403


@pytest.fixture(params=["deterministic", "kafka", "kafka-v1"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found
