"""Writes a coordinator's log alone over a real store at rising rates: batched or plain, with turns for many or one.

    due records ─▶ a turn: all that are due, or one ─▶ log: an entry each, or a buffer for 1 ms ─▶ sync

The whole engine reaches some 500 to 1,000 transactions a second on a core, so PIP-160's rates are out of its reach
(workload log-batching). A log alone reaches them. `extra_info` has the counts of one record.

Next: bench_snapshots.py.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from planstep.bench.compare.measure import Latencies, cpu_seconds
from planstep.proto.batched_log import BatchedLog, LogSettings, Position

from .one_tablet import OneTablet

RATES = (100, 300, 1_000, 3_000, 10_000)
SECONDS = 2.0
_RECORD = (1, 0, 123_456, ("orders/7", 1_000_000), 1_700_000_000_000)
_SUSTAINED_SHARE = 0.98


def offered(folder: Path, rate: int, batching: bool, grouped: bool) -> dict[str, Any]:
    """Offers records for SECONDS; returns figures, each count for one record."""
    tablet = OneTablet(folder)
    shell: Any = tablet
    log = BatchedLog(tablet.space, shell, LogSettings(batching, 512, 4 << 20, 1.0))
    count, latencies = int(rate * SECONDS), Latencies()
    taken: list[int] = []
    bytes_before, syncs_before, cpu = tablet.log_bytes, tablet.syncs, cpu_seconds()
    begin = time.monotonic_ns()
    due = [begin + n * 1_000_000_000 // rate for n in range(count)]
    sent, flush_at = 0, 0

    def append(numbers: range) -> None:
        for number in numbers:

            def done(error: str, at: Position | None, number: int = number) -> None:
                taken.append(number)

            log.append(_RECORD, done)

    while len(latencies.values) < count and time.monotonic_ns() - begin < 1.5e9 * SECONDS:
        now, reached = time.monotonic_ns(), sent
        tablet.now_ms = now // 1_000_000
        while reached < count and due[reached] <= now and (grouped or reached == sent):
            reached += 1
        if flush_at and now >= flush_at:
            flush_at = 0
            tablet.run(log.flush)
        elif reached > sent:
            tablet.run(partial(append, range(sent, reached)))
            sent = reached
            if log.buffered and not flush_at:
                flush_at = now + 1_000_000
        else:
            time.sleep(0.000_05)
        for number in taken:  # durable now
            latencies.add(time.monotonic_ns() - due[number])
        taken.clear()
    seconds, done = (time.monotonic_ns() - begin) / 1e9, max(1, len(latencies.values))
    sustained = done >= _SUSTAINED_SHARE * count and seconds < 1.05 * SECONDS
    figures = {
        "sustained": sustained,
        "per_second": round(done / seconds),
        "records_per_entry": round(done / tablet.appends, 2),
        "syncs": round((tablet.syncs - syncs_before) / done, 3),
        "bytes": round((tablet.log_bytes - bytes_before) / done, 1),
        "cpu_us": round(1e6 * (cpu_seconds() - cpu) / done, 1),
        "ms": latencies.summary() if sustained else None,
    }
    tablet.store.close()
    return figures


@pytest.mark.benchmark(group="a coordinator's log alone")
@pytest.mark.parametrize("grouped", (True, False), ids=("turns for all", "turns for one"))
@pytest.mark.parametrize("batching", (False, True), ids=("plain", "batched"))
@pytest.mark.parametrize("rate", RATES)
def test_log(benchmark: Any, tmp_path: Path, rate: int, batching: bool, grouped: bool) -> None:
    figures = benchmark.pedantic(offered, args=(tmp_path / "s", rate, batching, grouped), rounds=1)
    assert figures["records_per_entry"] >= 1
    benchmark.extra_info.update(figures)
