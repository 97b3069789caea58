"""Runs the contract of systems on this engine's modes."""

from contextlib import closing
from pathlib import Path

import pytest
from contract import SharedRowsContract, SystemContract

import planstep
from planstep.bench.compare.systems import open_system
from planstep.bench.compare.systems.base import SHARED_ROWS, TABLES, Options, System


class TestModes(SystemContract):
    @pytest.fixture(params=["deterministic", "kafka", "kafka-v1", "pulsar", "pulsar-batched"])
    def name(self, request: pytest.FixtureRequest) -> str:
        name: str = request.param
        return name


class TestDeterministic(SharedRowsContract):
    @pytest.fixture
    def name(self) -> str:
        return "deterministic"


@pytest.mark.parametrize(
    "name", ["kafka", "kafka-v1", "pulsar", "pulsar-parts", "pulsar-segmented"]
)
def test_modes_without_tables_say_what_they_have_not(system: System) -> None:
    assert set(system.missing) == {TABLES, SHARED_ROWS}


def test_thousands_of_partitions_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_system("kafka", tmp_path, Options())) as system:
        system.prepare({"in": 50})
    consumers: list[str] = []
    whole = planstep.Topic.position

    def position(topic: planstep.Topic, consumer: str) -> dict[int, int]:
        consumers.append(consumer)
        return whole(topic, consumer)

    monkeypatch.setattr(planstep.Topic, "position", position)
    with closing(open_system("kafka", tmp_path, Options(read_only=True))) as system:
        assert [system.position("in", "one", n) for n in range(50)] == [0] * 50
        assert list(system.records("in", 49)) == []
    assert consumers == ["one"]
