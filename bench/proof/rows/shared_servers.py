"""Row `shared-servers`: races processes for slots of shared logs on real S3 servers, as `planstep check-log` does.

    each server that `make servers` fetched ─▶ started here ─▶ shared/check_log.py ─▶ one winner a slot, seen by all

The control puts a wire before the server that drops If-None-Match from puts of turns, as servers do that ignore it:
two processes win a slot.

Left out: servers of several nodes, and those of clouds. `planstep check-log URL` races them, with their own keys.

Next: ../s3_servers.py.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....shared.check_log import check_log
from ..s3_servers import SERVERS, S3Server, environment, request, running
from ..s3_wire import wire_to
from .registry import RowOptions, RowResult

SECONDS, SLOTS = 120, 1_000
_CONTROL_SECONDS = 60.0


def run(options: RowOptions) -> RowResult:
    """Races each server; `options.runs` are seconds."""
    seconds = options.of(SECONDS)
    result = RowResult(figures={"servers": 0})
    for server in _here(result):
        with _bucket(server, options.folder / server.name):
            report = check_log("s3://bucket-1/shop", seconds, lambda *progress: None)
        result.figures["servers"] += 1
        result.figures[f"{server.name} append ms p50"] = report.append_ms_p50
        result.runs += report.slots
        result.events += report.lists
        result.must(report.verdict == "passed", f"{server.name}: {report.reason}")
        result.must(report.left is None, f"{server.name}: the log of the race is still there")
        result.reaches([(f"slots of {server.name}", report.slots, SLOTS * seconds // SECONDS)])
    return result


def control(options: RowOptions) -> RowResult:
    result = RowResult()
    for server in _here(result):
        with _bucket(server, options.folder / server.name, unconditional=True):
            report = check_log("s3://bucket-1/shop", _CONTROL_SECONDS, lambda *progress: None)
        result.runs += report.slots
        result.must(report.verdict == "passed", f"{server.name}: {report.reason}")
        return result.planted("processes won slot")
    return result


def _here(result: RowResult) -> list[S3Server]:
    """Returns the servers that can run here; says which are missing if none can."""
    lacking = {server: server.unavailable() for server in SERVERS}
    here = [server for server, why in lacking.items() if not why]
    if not here:
        result.skipped = "; ".join(lacking.values())
    return here


@contextmanager
def _bucket(server: S3Server, home: Path, unconditional: bool = False) -> Iterator[None]:
    """Leads logs in buckets to a new server with a bucket; `unconditional`: its puts of turns have no condition."""
    before = dict(os.environ)
    with running(server, home) as address, wire_to(address) as wire:
        request("PUT", f"{address}/bucket-1")
        if unconditional:
            wire.faults = lambda method, path: "plain" if "/log/" in path else ""
            address = wire.address
        os.environ.update(environment(address))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
