"""Opens a store read-only for a topic's records, as a task of Spark does, beside tables of two sizes.

    closed store    the log is behind the checkpoint           ─▶ CPU of an open, whatever the table holds
    log to replay   5,000 transactions since the checkpoint    ─▶ the same, with their replay

The times are CPU of the process. No time is asserted; tests/store/test_page_reader.py counts the pages looked at.
"""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.bench.proof.disks.no_sockets import NO_SOCKETS
from planstep.spark.picture import opened_view

SIZES = (1_000, 500_000)
_TRANSACTIONS = 5_000


def _made(folder: Path, rows: int, replayed: bool) -> Path:
    made, copy = folder / "made.planstep", folder / "copy.planstep"
    with planstep.open(made, hosts=1, durability="os") as db:
        db.create_topic("clicks", partitions=4, format="json").write({"ms": 1})
        db.create_table("totals").load((n, {"name": f"n{n}", "v": n}) for n in range(rows))
    if not replayed:
        return made
    with planstep.open(made, durability="os") as db:
        for n in range(_TRANSACTIONS):
            with db.transaction() as tx:
                tx.write("clicks", {"ms": n}, key=f"u{n % 10}")
                tx.put("totals", n % rows, {"v": -n})
        shutil.copytree(made, copy, ignore=NO_SOCKETS)  # as a kill would leave it
    return copy


def _opened(path: Path) -> int:
    with opened_view(str(path)) as (_, view):
        return sum(end for _, end in view.bounds("clicks").values())


@pytest.mark.benchmark(group="opens of a reader", timer=time.process_time)
@pytest.mark.parametrize("rows", SIZES, ids=lambda rows: f"{rows} rows")
@pytest.mark.parametrize("replayed", (False, True), ids=("closed", "log to replay"))
def test_open(benchmark: Any, tmp_path: Path, rows: int, replayed: bool) -> None:
    path = _made(tmp_path, rows, replayed)
    records = benchmark.pedantic(_opened, args=(path,), rounds=20, warmup_rounds=1)
    assert records == 1 + replayed * _TRANSACTIONS
