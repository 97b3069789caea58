"""Runs the contract of systems on a real Kafka broker, and tests its own properties. They share one broker."""

from pathlib import Path

import pytest
from contract import SystemContract
from peers import long, needs, taken_port

from planstep.bench.compare.cell import OK, Cell
from planstep.bench.compare.run_cell import run_cell
from planstep.bench.compare.systems.base import SAME_NAME, TIME_OUT, Options
from planstep.bench.compare.workloads.base import Shape
from planstep.bench.compare.workloads.faults_dropped import UNDISTURBED

pytestmark = needs("apache-kafka")


@pytest.fixture
def name() -> str:
    return "apache-kafka"


class TestApacheKafka(SystemContract):
    """Runs the contract."""

    counts_disk_bytes = False


@long
def test_a_broker_whose_port_was_taken_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from planstep.bench.compare.systems.apache_kafka_server import KafkaServer

    with taken_port(monkeypatch) as port, KafkaServer(tmp_path, Options()) as server:
        assert f":{port}#" not in server.address


@long
def test_work_goes_on_after_the_broker_is_killed(tmp_path: Path) -> None:
    options = Options(placement="separate", transaction_timeout_ms=1000)
    shape = Shape(partitions=2, workers=2, duration=0.1)
    result = run_cell(Cell("faults", "apache-kafka", options, shape), tmp_path / "cell")
    assert (result.status, result.verified, result.problems) == (OK, True, [])
    dropped, killed = result.extra["dropped"], result.extra["killed"]
    assert set(dropped) == {UNDISTURBED, TIME_OUT, SAME_NAME}
    assert dropped[TIME_OUT]["comes_late"] == dropped[SAME_NAME]["comes_late"] == "PRODUCER_FENCED"
    assert {way: killed[way]["kills"] for way in (TIME_OUT, SAME_NAME)} == {
        TIME_OUT: 1,
        SAME_NAME: 2,
    }
    assert killed["acknowledged"] > 0 and killed["lost"] == killed["repeated"] == 0
