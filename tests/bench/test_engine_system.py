"""This engine's modes as systems: the contract."""

from contextlib import closing
from pathlib import Path

import pytest
from contract import *  # noqa: F403

import planstep
from planstep.bench.systems import open_system
from planstep.bench.systems.base import Options


@pytest.fixture(params=["deterministic", "kafka", "kafka-v1"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_thousands_of_partitions_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_system("kafka", tmp_path, Options())) as system:
        system.prepare({"in": 50})
    asked: list[str] = []
    whole = planstep.Topic.position

    def position(topic: planstep.Topic, consumer: str) -> dict[int, int]:
        asked.append(consumer)
        return whole(topic, consumer)

    monkeypatch.setattr(planstep.Topic, "position", position)
    with closing(open_system("kafka", tmp_path, Options(read_only=True))) as system:
        assert [system.position("in", "one", n) for n in range(50)] == [0] * 50
        assert list(system.records("in", 49)) == []
    assert asked == ["one"]
