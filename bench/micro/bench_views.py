"""Opens later views of a store that another process writes to, one transaction on, beside logs of two lengths.

    newer   reads the turns since the last view                          ─▶ the same, whatever is in the log
    open    looks at the tables, and at the whole log behind them        ─▶ grows with the log

`extra_info` has how many times longer an open takes. No time is asserted; tests/store/test_tail.py counts bytes.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from planstep.bench.children import Children
from planstep.store.readers.readonly import ReadOnlyStore

LENGTHS = (20, 2_000)
_ROUNDS = 200
_LOOKS = 10
_OWNER = """
import sys
import planstep

with planstep.open(sys.argv[1], durability="os") as db:
    db.create_topic("clicks", partitions=4)
    db.create_table("totals")
    for n, line in enumerate(sys.stdin):
        for _ in range(int(line)):
            with db.transaction() as tx:
                tx.write("clicks", b"y" * 100, key=f"u{n % 10}")
                tx.add("totals", n % 100, 1)
        print(flush=True)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Any]:
    words = [sys.executable, "-c", _OWNER, str(tmp_path / "s.planstep")]
    with Children() as children:
        yield children.start(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _write(owner: Any, transactions: int) -> None:
    print(transactions, file=owner.stdin, flush=True)
    owner.stdout.readline()


@pytest.mark.benchmark(group="one transaction on")
@pytest.mark.parametrize("length", LENGTHS, ids=lambda length: f"{length} turns in the log")
def test_newer(benchmark: Any, owner: Any, tmp_path: Path, length: int) -> None:
    _write(owner, length)
    views = [ReadOnlyStore.open(tmp_path / "s.planstep" / "host-0")]

    def one_on() -> None:
        if len(views) > 1:
            views.pop(0).close()
        _write(owner, 1)

    benchmark.pedantic(
        lambda: views.append(views[-1].newer()), setup=one_on, rounds=_ROUNDS, warmup_rounds=1
    )
    for view in views:
        view.close()
    began = time.perf_counter()
    for _ in range(_LOOKS):
        ReadOnlyStore.open(tmp_path / "s.planstep" / "host-0").close()
    took = (time.perf_counter() - began) / _LOOKS
    benchmark.extra_info["open_ratio"] = round(took / median(benchmark.stats.stats.data), 1)
