"""Takes snapshots of up to a million aborted ids over a real store, in each way, and recovers from them.

    SIZE markers, appended by a loader ─▶ snapshot ─▶ 1,000 aborts more ─▶ snapshot ─▶ reopened: load

The face would take half an hour to make a million aborted transactions (workload aborts has up to 10,000). Beside
the three ways of mode "pulsar" stands mode "kafka", which writes one index row an abort and never rewrites it.
`bytes_an_end` is of 2,000 ends, of which every second one is an abort.

Next: instructions.py.
"""

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.measure import own_bytes
from planstep.proto.pulsar.messages import ABORT
from planstep.proto.pulsar.settings import PulsarSettings
from planstep.tablets.pulsar.aborted import Aborted
from planstep.tablets.pulsar.rows import Entry, numbered
from planstep.tablets.pulsar.snapshots import WAYS, Snapshots, SnapshotSettings, load, stored

from .one_tablet import OneTablet

SIZES = (10, 1_000, 10_000, 100_000, 440_000, 1_000_000)
INDEX = "index rows (kafka)"
_A_TURN = 10_000
_ENDS, _MORE = 2_000, 1_000


def _aborts(tablet: OneTablet, aborted: Aborted, leasts: range, index: bool) -> None:
    for least in leasts:
        if index:
            tablet.space.put(numbered(b"a", least), (least, least, least, least))
        else:
            tablet.space.put(numbered(b"b", least), Entry(0, 0, 1, ABORT, 0, least, "", -1))
            aborted.add(0, least, least)


def _abort_all(tablet: OneTablet, aborted: Aborted, begin: int, end: int, index: bool) -> None:
    for first in range(begin, end, _A_TURN):
        last = min(end, first + _A_TURN)
        tablet.run(partial(_aborts, tablet, aborted, range(first, last), index))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return round(1000 * (time.perf_counter() - began), 2)


def measured(folder: Path, size: int, way: str) -> dict[str, Any]:
    """Makes `size` aborted ids; returns what their snapshots and recovery take."""
    figures = _written(folder, size, way)
    gc.collect()
    return {**figures, **_recovered(folder, size + _MORE, way == INDEX)}


def _written(folder: Path, size: int, way: str) -> dict[str, Any]:
    tablet, aborted, index = OneTablet(folder), Aborted(), way == INDEX
    sealed = PulsarSettings().snapshot_segment_bytes
    snapshots = Snapshots(
        tablet.space, SnapshotSettings(WAYS[0] if index else way, sealed, 1 << 40)
    )

    def take() -> None:
        tablet.run(lambda: snapshots.take(aborted, aborted.last + 1))
        while snapshots.unfinished:
            tablet.run(lambda: snapshots.go_on(aborted, aborted.last + 1))

    _abort_all(tablet, aborted, 0, size, index)
    figures: dict[str, Any] = {}
    if not index:
        figures["first_ms"] = _timed(take)
    before = tablet.log_bytes
    _abort_all(tablet, aborted, size, size + _MORE, index)
    of_markers = tablet.log_bytes - before
    written = snapshots.bytes
    if index:
        figures["bytes_an_end"] = round(of_markers / _ENDS, 1)
    else:
        figures["next_ms"] = _timed(take)
        figures["bytes_an_end"] = round((snapshots.bytes - written) / _ENDS, 1)
        tablet.run(lambda: figures.update(snapshot_bytes=getattr(stored(tablet.space), "bytes", 0)))
        limit = PulsarSettings().message_bytes_max
        figures["refused"] = way == "single" and figures["snapshot_bytes"] > limit
    tablet.store.close()
    return figures


def _recovered(folder: Path, count: int, index: bool) -> dict[str, Any]:
    figures, memory, again = dict[str, Any](), own_bytes(), list[Any]()
    figures["open_ms"] = _timed(lambda: again.append(OneTablet(folder)))

    def first_read() -> None:
        space = again[0].space
        again.append(space.scan(b"a", b"b") if index else load(space))

    figures["load_ms"] = _timed(lambda: again[0].run(first_read))
    figures["memory_mb"] = round((own_bytes() - memory) / 1e6, 1)
    known = len(again[1]) if index else len(again[1][0])
    assert known == count, "all ids, no more"
    again[0].store.close()
    return figures


@pytest.mark.benchmark(group="snapshots of aborted ids")
@pytest.mark.parametrize("way", (*WAYS, INDEX))
@pytest.mark.parametrize("size", SIZES)
def test_snapshots(benchmark: Any, tmp_path: Path, size: int, way: str) -> None:
    figures = benchmark.pedantic(measured, args=(tmp_path / "s", size, way), rounds=1)
    benchmark.extra_info.update(figures)
