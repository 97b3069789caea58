"""Tests row `shared-servers`: its control is noticed, on an emulator too, and what is not here is said."""

import os
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from planstep.bench.compare.systems import apache_kafka_jars
from planstep.bench.proof import s3_servers
from planstep.bench.proof.rows import shared_servers
from planstep.bench.proof.rows.registry import RowOptions
from planstep.bench.proof.rows.shared_servers import Carrier
from planstep.bench.proof.s3_servers import BY_NAME, SERVERS, S3Server


def carrier_of(server: S3Server, unconditional: bool) -> Carrier:
    log = partial(shared_servers._bucket, server, unconditional)
    return Carrier(server.name, server.unavailable, log)


EMULATOR = """
import logging, sys
from moto.server import main
logging.getLogger("werkzeug").setLevel(logging.ERROR)
host, port = sys.argv[1].split(":")
main(["-H", host, "-p", port])
"""


def test_servers_that_are_not_here_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_servers, "folder", lambda: tmp_path)
    monkeypatch.setattr(apache_kafka_jars, "unavailable", lambda: "no broker")
    buckets = "versitygw is not here: make servers; minio is not here: make servers"
    lacking = [
        (shared_servers.run, f"{buckets}; Kafka: no broker"),
        (shared_servers.control, buckets),
    ]
    for call, words in lacking:
        assert call(RowOptions(folder=tmp_path, runs=1)).skipped == words


@pytest.mark.skipif(
    not all(map(find_spec, ("moto", "flask_cors", "obstore"))), reason="moto or obstore is missing"
)
def test_a_wire_that_drops_the_condition_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, "-c", EMULATOR]
    moto = S3Server("moto", "", "", lambda program, address, data: [*words, address])
    monkeypatch.setattr(s3_servers, "folder", lambda: tmp_path)
    monkeypatch.setattr(shared_servers, "UNCONDITIONAL", (carrier_of(moto, True),))
    moto.program.touch()
    before = dict(os.environ)
    result = shared_servers.control(RowOptions(folder=tmp_path / "row", negative=True))
    assert [text for text in result.violations if "of 5 processes won slot" in text]
    assert dict(os.environ) == before


@pytest.mark.skipif("PLANSTEP_SERVER" not in os.environ, reason="make servers runs it")
def test_a_real_server_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = BY_NAME[os.environ["PLANSTEP_SERVER"]]
    if why := server.unavailable():
        pytest.skip(why)
    monkeypatch.setattr(shared_servers, "CARRIERS", (carrier_of(server, False),))
    monkeypatch.setattr(shared_servers, "UNCONDITIONAL", (carrier_of(server, True),))
    result = shared_servers.run(RowOptions(folder=tmp_path, runs=10))
    assert result.violations == []
    assert result.runs > 0
    result = shared_servers.control(RowOptions(folder=tmp_path / "control", negative=True))
    assert len(result.violations) == 1


@pytest.mark.peer
@pytest.mark.skipif(bool(shared_servers._lacking_kafka()), reason="make peers brings the broker")
def test_a_real_broker_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_servers, "CARRIERS", shared_servers.CARRIERS[-1:])
    result = shared_servers.run(RowOptions(folder=tmp_path, runs=10))
    assert result.violations == []
    assert result.runs > 10 and result.figures["Kafka append ms p50"] > 0


def test_without_go_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_servers, "folder", lambda: tmp_path)
    monkeypatch.setattr(s3_servers.shutil, "which", lambda name: None)
    assert {s3_servers.fetch(server) for server in SERVERS} == {
        "skipped: there is no Go here to build it with"
    }
