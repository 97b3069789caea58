"""Runs the contract of systems on this engine's modes."""

from contextlib import closing
from pathlib import Path

import pytest
from contract import SharedRowsContract, SystemContract, numbered

import planstep
from planstep.bench.compare.systems import open_system
from planstep.bench.compare.systems.base import SHARED_ROWS, TABLES, Cancelled, Options, System
from planstep.bench.compare.systems.engine import EngineSystem


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


@pytest.mark.parametrize("name", ["pulsar"])
def test_a_transaction_that_its_coordinator_ended_first_is_run_again(system: System) -> None:
    """A coordinator's time-out does the same, where it comes before the worker's own."""
    assert isinstance(system, EngineSystem)
    work = system.worker("w", "c")()
    work.write("out", numbered(0, 1), partition=0)
    work.flush()
    system.db.abort_transaction(work.id)
    with pytest.raises(Cancelled, match="InvalidTxnStatus") as cancelled:
        work.commit()
    assert cancelled.value.retryable


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
