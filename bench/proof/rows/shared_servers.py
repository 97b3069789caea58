"""Row `shared-servers`: races processes for slots of shared logs on real servers, as `planstep check-log` does.

    each server that `make servers` or `make peers` fetched ─▶ shared/check_log.py ─▶ one winner a slot, seen by all

The control puts a wire before an S3 server that drops If-None-Match from puts of turns, as servers do that
ignore it: two processes win a slot.

Left out: servers of several nodes, and those of clouds. `planstep check-log URL` races them, with their own keys.

Next: ../s3_servers.py.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ....shared.check_log import check_log
from ...compare.systems import apache_kafka_jars
from ...compare.systems.base import Options
from ..s3_servers import SERVERS, S3Server, environment, request, running
from ..s3_wire import wire_to
from .registry import RowOptions, RowResult

SECONDS, SLOTS = 120, 500
_CONTROL_SECONDS = 60.0


def run(options: RowOptions) -> RowResult:
    """Races each server; `options.runs` are seconds."""
    seconds = options.of(SECONDS)
    result = RowResult(figures={"servers": 0})
    for carrier in _here(result, CARRIERS):
        name = carrier.name
        with carrier.log(options.folder / name) as url:
            report = check_log(url, seconds, lambda *progress: None)
        result.figures["servers"] += 1
        result.figures[f"{name} append ms p50"] = report.append_ms_p50
        result.runs += report.slots
        result.events += report.lists
        result.must(report.verdict == "passed", f"{name}: {report.reason}")
        result.must(report.left is None, f"{name}: the log of the race is still there")
        result.reaches([(f"slots of {name}", report.slots, SLOTS * seconds // SECONDS)])
    return result


def control(options: RowOptions) -> RowResult:
    result = RowResult()
    for carrier in _here(result, UNCONDITIONAL):
        with carrier.log(options.folder / carrier.name) as url:
            report = check_log(url, _CONTROL_SECONDS, lambda *progress: None)
        result.runs += report.slots
        result.must(report.verdict == "passed", f"{carrier.name}: {report.reason}")
        return result.planted("processes won slot")
    return result


@contextmanager
def _bucket(server: S3Server, unconditional: bool, home: Path) -> Iterator[str]:
    """Leads logs in buckets to a new server with a bucket; `unconditional`: its puts of turns have no condition."""
    before = dict(os.environ)
    with running(server, home) as address, wire_to(address) as wire:
        request("PUT", f"{address}/bucket-1")
        if unconditional:
            wire.faults = lambda method, path: "plain" if "/log/" in path else ""
            address = wire.address
        os.environ.update(environment(address))
        try:
            yield "s3://bucket-1/shop"
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def _topic(home: Path) -> Iterator[str]:
    from ...compare.systems.apache_kafka_server import KafkaServer

    with closing(KafkaServer(home, Options(durability="os"))) as server:
        yield f"kafka://{server.bootstrap}/shop?allow_weak=true"


class Carrier(NamedTuple):
    """A server. `log` runs it, with its data in a folder, and yields the URL of a log there."""

    name: str
    unavailable: Callable[[], str]
    """Says what this machine lacks to run it; "" if nothing."""
    log: Callable[[Path], AbstractContextManager[str]]


def _carriers(unconditional: bool) -> Iterator[Carrier]:
    for server in SERVERS:
        yield Carrier(server.name, server.unavailable, partial(_bucket, server, unconditional))


def _lacking_kafka() -> str:
    why = apache_kafka_jars.unavailable()
    return why and f"Kafka: {why}"


CARRIERS = (*_carriers(False), Carrier("Kafka", _lacking_kafka, _topic))
UNCONDITIONAL = tuple(_carriers(True))


def _here(result: RowResult, carriers: tuple[Carrier, ...]) -> list[Carrier]:
    """Returns the servers that can run here; says which are missing if none can."""
    lacking = {carrier: carrier.unavailable() for carrier in carriers}
    here = [carrier for carrier, why in lacking.items() if not why]
    if not here:
        result.skipped = "; ".join(lacking.values())
    return here
