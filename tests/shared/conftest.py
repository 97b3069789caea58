"""Gives these tests each kind of shared log."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from kafka_kit import InPartition, InTopic, needs_kafka
from s3_kit import InBucket, moto_server, use_server
from shared_kit import ROOT, Backing, InFolder, InMemory

from planstep.bench.proof.s3_servers import BY_NAME, running
from planstep.bench.proof.s3_wire import Wire, wire_to
from planstep.shared.runs import RunWriter


@pytest.fixture(params=["memory", "runs", "folder", "bucket"])
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of shared log: in memory, with runs of few turns too, in a folder, in a bucket."""
    return str(request.param)


@pytest.fixture
def backing(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backing]:
    """An empty log of each kind."""
    if kind == "runs":
        request.getfixturevalue("short_runs")
    if kind in ("memory", "runs"):
        yield InMemory()
    elif kind == "bucket":
        yield request.getfixturevalue("bucket")
    else:
        folder = InFolder(tmp_path / "shop")
        yield folder
        folder.close()


@pytest.fixture(
    params=[
        "memory",
        "folder",
        "bucket",
        "partition",
        pytest.param("topic", marks=needs_kafka()),
    ]
)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty log of each kind: in objects, in a partition of Kafka in memory, and in one of a real broker."""
    if request.param == "memory":
        yield InMemory()
    elif request.param == "partition":
        yield InPartition()
    else:
        yield request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Kafka broker. It does not sync each record, as brokers do not."""
    from planstep.bench.compare.systems.apache_kafka_server import KafkaServer
    from planstep.bench.compare.systems.base import Options

    with KafkaServer(tmp_path_factory.mktemp("broker"), Options("os")) as server:
        yield server.bootstrap


@pytest.fixture
def topic(broker: str) -> Iterator[InTopic]:
    """An empty log in a topic of a real broker."""
    topic = InTopic(broker)
    yield topic
    topic.close()


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each two turns are a run, which is there before the next turn, and all readers fetch ahead."""
    monkeypatch.setattr("planstep.shared.runs.RUN_TURNS", 2)
    monkeypatch.setattr("planstep.shared.objects_log.FAR", 0)
    monkeypatch.setattr(RunWriter, "_put_behind", RunWriter._put)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[InFolder]:
    """An empty log in a folder."""
    folder = InFolder(tmp_path / "shop")
    yield folder
    folder.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server: an emulator, or the real one that `make servers` names."""
    name = os.environ.get("PLANSTEP_SERVER", "moto")
    for package in ("obstore", "moto", "flask_cors") if name == "moto" else ("obstore",):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if name == "moto":
        with moto_server() as address:
            yield address
        return
    if lacking := BY_NAME[name].unavailable():
        pytest.skip(lacking)
    with running(BY_NAME[name], tmp_path_factory.mktemp(name)) as address:
        yield address


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> InBucket:
    """An empty log in a bucket."""
    use_server(monkeypatch, server)
    return InBucket(server, ROOT)


@pytest.fixture
def wire(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A wire to the S3 server, on which nothing goes wrong yet, and which obstore uses."""
    with wire_to(server) as wire:
        use_server(monkeypatch, wire.address)
        yield wire
