"""Checks that a plan's runs fit on the disk and in memory; byte counts are estimates.

    rate × duration ─▶ input, made before the clock runs ─▶ its output
    one run at a time; with --keep-stores all of them
    servers of peers, which may all run at once

It also checks that each worker has something to do.

Left out: writes of other programs; the few MB that a system keeps for itself.

Next: harness.py.
"""

import shutil
import tempfile
from pathlib import Path

from .cell import Cell
from .kept_servers import room_of_servers
from .machine import memory_bytes
from .plan import Plan
from .time_plans import offered_mb
from .workloads import WORKLOADS

_TRACE_BYTES = 250
"""Bytes in the trace for each record."""
_RARE_S = 10.0
"""Longest time between a worker's records, in seconds, unless the run is longer: rarer ones would stall it."""


def check_room(plan: Plan, out: Path | None) -> None:
    """Checks disk, memory and the rate before anything runs. ValueError for too little room, or too low a rate."""
    for cell in plan.cells:
        _check_rate(cell)
    place = (out or Path(tempfile.gettempdir())).absolute()
    place = next(folder for folder in (place, *place.parents) if folder.exists())
    disk = list(map(_on_disk, plan.cells))
    needed = sum(disk) if any(cell.keep_store for cell in plan.cells) else max(disk)
    servers = room_of_servers(cell for block in plan.blocks for cell in block.cells)
    needed += 1e6 * servers.disk
    _check(needed, servers.disk, shutil.disk_usage(place).free, f"are free on the disk of {place}")
    needed = max(map(_in_memory, plan.cells)) + 1e6 * servers.memory
    _check(needed, servers.memory, memory_bytes(), "of memory are there")


def _check(needed: float, servers_mb: float, available: int, what: str) -> None:
    if needed > available:
        beside, way = "", "lower --rate or --duration"
        if servers_mb:
            beside = f", {servers_mb / 1e3:.3g} GB of them for servers"
            way += ", or run fewer at once: --durability full, or fewer --systems"
        raise ValueError(
            f"a run needs about {needed / 1e9:.3g} GB{beside}, but only {available / 1e9:.3g} GB {what}: {way}"
        )


def _check_rate(cell: Cell) -> None:
    shape, size = cell.shape, cell.shape.record_size or 100
    if shape.rate is None or not WORKLOADS[cell.workload].shares_rate:
        return
    if shape.workers * size / 1e6 / shape.rate > max(shape.duration, _RARE_S):
        raise ValueError(
            f"--rate {shape.rate:g} is less than a record of {size} bytes from each of "
            f"{shape.workers} workers in {shape.duration:g} s"
        )


def _on_disk(cell: Cell) -> float:
    room = WORKLOADS[cell.workload].room
    return room.on_disk * 1e6 * offered_mb(cell) if room else 0.0


def _in_memory(cell: Cell) -> float:
    per_byte = _TRACE_BYTES / (cell.shape.record_size or 100)
    room = WORKLOADS[cell.workload].room
    return (room.in_memory + per_byte) * 1e6 * offered_mb(cell) if room else 0.0
