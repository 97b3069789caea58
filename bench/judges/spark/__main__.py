"""Judges a comparison's folder with Spark: python -m planstep.bench.judges.spark DIR [--master URL] [--json].

    DIR/traces/, DIR/results.json ─▶ DIR/spark.json {"spark", "figures"}      stderr: a line for each job

Exit status: 0 when nothing forbidden was found and Python's checker agrees; 1 when that is not so, or a
trace cannot be judged; 3 when Spark cannot start, with the reason as the last line.

Next: prove.py.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from ...compare.progress import in_minutes
from ...compare.result_folder import replace_file
from ..spark_process import CANNOT_START, RESULT, WRONG
from .folders import BadTrace, runs
from .progress import START_S, expected_s
from .prove import prove
from .session import NoSpark, start


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m planstep.bench.judges.spark",
        description="Judge the runs of `planstep compare --out DIR` with Spark; write DIR/spark.json.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--master", metavar="URL", help="URL of a cluster; default: local[*]")
    parser.add_argument("--memory", metavar="SIZE", default="2g", help="memory of Spark's driver")
    parser.add_argument("--json", action="store_true", help="print the result on stdout, too")
    parser.add_argument("--attended", action="store_true", help="end when stdin does")
    options = parser.parse_args(arguments)
    if options.attended:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    if not options.folder.is_dir():
        return _say(WRONG, f"{options.folder} is no folder")
    home = options.folder.resolve()
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".spark-", dir=None if "," in str(home) else home))
    except OSError as error:
        return _say(WRONG, f"{options.folder} cannot be written to: {error}")
    tell = partial(print, file=sys.stderr, flush=True)
    try:
        tell(f"Spark: start, about {in_minutes(_expected_s(options.folder))} left")
        spark = start("planstep compare", scratch, options.master, options.memory)
        try:
            report = prove(spark, options.folder, tell)
        finally:
            spark.stop()
    except NoSpark as error:
        return _say(CANNOT_START, str(error))
    except BadTrace as error:
        return _say(WRONG, str(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    replace_file(options.folder / RESULT, json.dumps(report, indent=1) + "\n")
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    return _say(*_verdict(report["spark"]))


def _expected_s(folder: Path) -> float:
    """Returns the seconds until the end; without the rows where a trace cannot be judged, which is told later."""
    try:
        return expected_s(sum(sum(run.rows.values()) for run in runs(folder)))
    except BadTrace:
        return START_S


def _verdict(verdict: dict[str, Any]) -> tuple[int, str]:
    counts = Counter[str]()
    for check in verdict["checks"]:
        counts.update(check["found"])
    words = [f"{n} × {name}" for name, n in counts.items()] + verdict["disagreements"][:5]
    read = f"{verdict['rows_read']:,} rows in {verdict['seconds']:.0f} s"
    return (WRONG, f"{read}: {'; '.join(words)}") if words else (0, f"{read}: nothing is wrong")


def _say(status: int, text: str) -> int:
    print(text, file=sys.stderr, flush=True)
    return status


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, since nobody would read the result; Java ends with it."""
    while os.read(0, 1 << 10):
        pass
    os._exit(WRONG)


if __name__ == "__main__":
    sys.exit(main())
