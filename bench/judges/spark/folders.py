"""Lists the traces of a comparison: which runs, what each is checked for, whether its files are whole.

    DIR/traces/<run>/run.json     kind, feeds and allowed anomalies (see `judge`): "history", "feeds", "allowed";
                                  an older one without them has those of its system and workload
                     *.parquet    footers only: columns of schema 1, and numbers of rows

Next: layout.py.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...compare.systems import ENTRIES
from ...compare.workloads import NAMES, workload
from ..python import ALLOWED, ALLOWED_ELSEWHERE, IN_PLACE, NONE, kind_of_history
from ..trace import RECORDS, ROWS, SCHEMA, column_types

_SQL = {int: "bigint", float: "double", str: "string"}
COLUMNS: dict[str, dict[str, str]] = {
    name: {column: _SQL[of] for column, of in column_types(kind).items()}
    for name, kind in ROWS.items()
} | {
    name: {column: "int" if column == "lane" else "bigint" for column in columns}
    for name, columns in RECORDS.items()
}
"""The columns of schema 1, with Spark's types: nothing is inferred."""
ORDERED = ("operations", "seen", "lanes")
"""Tables whose order in the file matters: they get a column `nth`."""


class BadTrace(ValueError):
    """A trace that cannot be judged: names the file and the problem."""


class TracedRun(NamedTuple):
    """A run with a trace. `allowed`: anomalies that its system's model allows; `rows` by table, by footers."""

    number: int
    name: str
    folder: Path
    mode: str
    allowed: tuple[str, ...]
    feeds: Mapping[str, str]
    about: dict[str, Any]
    rows: Mapping[str, int]

    @property
    def cell(self) -> dict[str, Any]:
        cell: dict[str, Any] = self.about.get("cell", {})
        return cell


def runs(folder: Path) -> list[TracedRun]:
    """Returns the runs with traces. BadTrace where a file is missing or no Parquet of this schema."""
    traces = folder / "traces"
    folders = sorted(path for path in traces.glob("*") if path.is_dir())
    if not folders:
        raise BadTrace(f"{traces} has no traces: `planstep compare --out DIR` keeps them")
    return [_run(number, path) for number, path in enumerate(folders)]


def scratch_of(folder: Path) -> Path:
    """Makes a folder for scratch files within a comparison's, which Spark's tasks see.

    Elsewhere if that cannot be written to, or Spark would split its path at a comma.
    """
    home = folder.resolve()
    here = os.access(home, os.W_OK) and "," not in str(home)
    return Path(tempfile.mkdtemp(prefix=".spark-", dir=home if here else None))


def _run(number: int, folder: Path) -> TracedRun:
    try:
        about = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise BadTrace(f"{folder / 'run.json'}: {error}") from None
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        raise BadTrace(f"{folder / 'run.json'}: not a trace of schema {SCHEMA}")
    cell = about.get("cell", {})
    system = cell.get("system", "")
    default = ENTRIES[system].history if system in ENTRIES else NONE
    mode = kind_of_history(about.get("history") or default)
    allowed = about.get("allowed")
    if allowed is None:
        allowed = ALLOWED if mode == IN_PLACE else ALLOWED_ELSEWHERE
    feeds = about.get("feeds")
    if feeds is None:
        feeds = workload(cell["workload"]).feeds if cell.get("workload") in NAMES else {}
    rows = {}
    for name, columns in COLUMNS.items():
        path = folder / f"{name}.parquet"
        if path.exists() or name != "inputs":  # an older run has none
            rows[name] = _count_rows(path, columns)
    return TracedRun(number, folder.name, folder, mode, tuple(allowed), feeds, about, rows)


def _count_rows(path: Path, columns: Mapping[str, str]) -> int:
    """Returns the footer's number of rows; BadTrace where it cannot be read, or has other columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise BadTrace(f"{path} cannot be read: {error}") from None
    kinds = {"int32": "int", "int64": "bigint", "double": "double", "string": "string"}
    types = {one.name: kinds.get(str(one.type)) for one in footer.schema.to_arrow_schema()}
    missing = [name for name, kind in columns.items() if types.get(name) != kind]
    if missing:
        raise BadTrace(f"{path} lacks columns of schema {SCHEMA}: {', '.join(missing)}")
    return int(footer.num_rows)
