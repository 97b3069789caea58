"""Runs the contract of systems on a real Kafka broker, and tests its own properties. They share one broker."""

import pytest
from contract import SystemContract
from peers import needs

pytestmark = needs("apache-kafka")


@pytest.fixture
def name() -> str:
    return "apache-kafka"


class TestApacheKafka(SystemContract):
    """Runs the contract."""
