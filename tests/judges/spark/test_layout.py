"""Tests what Arrow reads of a trace before Spark does."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from planstep.bench.judges.spark.folders import TracedRun
from planstep.bench.judges.spark.layout import Layout
from planstep.bench.judges.trace import CONSUME, PRODUCE, READ, WRITE


def test_a_file_of_several_row_groups(tmp_path: Path) -> None:
    """A million transactions have some; each keeps the words that it has."""
    ops = [WRITE, WRITE, PRODUCE, READ, CONSUME, WRITE]
    lanes = pa.array([0, 0, 1, 0, 2, 0], pa.int32())
    operations = {"tx": [0, 1, 2, 3, 4, 5], "op": ops, "lane": lanes}
    pq.write_table(pa.table(operations), tmp_path / "operations.parquet", row_group_size=2)
    outcomes = {
        "tx": [0, 1, 2],
        "step": [1, None, 2],
        "outcome": ["committed", "aborted", "aborted"],
    }
    pq.write_table(pa.table(outcomes), tmp_path / "transactions.parquet", row_group_size=1)
    layout = Layout(TracedRun(0, "one", tmp_path, "deterministic", (), {}, {}, {}))
    assert layout.written == {1}
    assert layout.has_reads
    assert layout.hot(2) == {0}
    assert layout.size == 6
    assert not layout.is_settled
