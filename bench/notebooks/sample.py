"""Holds the traces of a small comparison, which come with the package, so that notebook 03 need not run one.

    planstep compare, all workloads at a rate ─▶ RESULTS/ ─▶ pack ─▶ sample.tar.xz ─▶ unpack(folder)

The folder is then as `planstep compare --out` leaves it: results.json and traces/. Left out: the report, stores,
paths, and the kernel of the machine. Parquet is written without compression, so
that xz does that: a third of the size. To make the sample anew, on an idle machine, compare and pack:

    planstep compare OPTIONS --out RESULTS                        OPTIONS: see below; five minutes
    python -m planstep.bench.notebooks.sample RESULTS

Next: ../judges/trace.py, what a trace holds.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).with_name("sample.tar.xz")
OPTIONS = (
    "--workload reshard,plain,interval,chain,small,contention,held-open,plain-beside,faults,log-batching,aborts "
    "--rate 0.4 --partitions 8 --commit-interval 0.2 --duration 2 "
    "--durability full --repeat 1 --no-find-rate --no-spark"
)
"""The options of `planstep compare` that made the sample. Runs at full speed, as of move, are too large for it."""


def unpack(folder: Path) -> Path:
    """Unpacks the sample into a folder; returns the comparison's folder there."""
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "sample"


def pack(results: Path, target: Path = SAMPLE) -> None:
    """Makes the sample of a comparison's folder. OSError where a file cannot be read or written."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "sample"
        for path in (results / "results.json", *sorted((results / "traces").rglob("*"))):
            if path.is_file():
                _copy(path, copy / path.relative_to(results))
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for path in sorted(copy.rglob("*")):
                if path.is_file():
                    archive.add(path, path.relative_to(scratch), filter=_anonymous)


def _copy(path: Path, copy: Path) -> None:
    import pyarrow.parquet as pq

    copy.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        copy.write_text(json.dumps(_without_machine(json.loads(path.read_text()))))
        return
    table = pq.read_table(path)
    whole = [field.name for field in table.schema if str(field.type) in ("int32", "int64")]
    pq.write_table(
        table,
        copy,
        compression="NONE",
        use_dictionary=[name for name in table.column_names if name not in whole],
        column_encoding=dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
        write_statistics=False,
    )


def _without_machine(content: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in content.items() if key != "report"}
    if "machine" in kept:
        kept["machine"] = {k: v for k, v in kept["machine"].items() if k != "kernel"}
    return kept


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
