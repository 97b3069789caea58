"""Lists the traces of a comparison: which runs, what each is checked for, whether its files are whole.

    DIR/traces/<run>/run.json     mode, feeds and allowed anomalies (see `judge`): "history", "feeds", "allowed";
                                  an older one without them has those of its system and workload
                     *.parquet    footers only: columns of schema 1, and numbers of rows

Next: loading.py.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from ...compare.systems import ENTRIES
from ...compare.workloads import NAMES, workload
from ..python.kafka import ALLOWED, ALLOWED_ELSEWHERE
from ..trace import SCHEMA, Batch, Lane, Operation, Resources, Transaction

PLACES, KAFKA, NONE = "places", "kafka", "none"
_SQL = {int: "bigint", float: "double", str: "string"}


def _columns(kind: Any) -> dict[str, str]:
    hints = get_type_hints(kind)
    return {
        name: _SQL[next(part for part in _SQL if part in (hint, *getattr(hint, "__args__", ())))]
        for name, hint in hints.items()
    }


_RECORDS = {"lane": "int", **dict.fromkeys(("offset", "source", "ordinal", "tx"), "bigint")}
COLUMNS: dict[str, dict[str, str]] = {
    "transactions": _columns(Transaction),
    "operations": _columns(Operation),
    "batches": _columns(Batch),
    "resources": _columns(Resources),
    "lanes": _columns(Lane),
    "records": _RECORDS,
    "seen": {**_RECORDS, "poll": "bigint", "at": "bigint"},
    "inputs": {name: _RECORDS[name] for name in ("lane", "offset", "source", "ordinal")},
}
"""The columns of schema 1, with Spark's types: nothing is inferred."""
ORDERED = ("operations", "seen", "lanes")
"""Tables whose order in the file matters: they get a column `nth`."""
OPTIONAL = ("inputs",)


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
        found: dict[str, Any] = self.about.get("cell", {})
        return found


def runs(folder: Path) -> list[TracedRun]:
    """Returns the runs with traces. BadTrace where a file is missing or no Parquet of this schema."""
    traces = folder / "traces"
    found = sorted(path for path in traces.glob("*") if path.is_dir())
    if not found:
        raise BadTrace(f"{traces} has no traces: they are kept with --out DIR")
    return [_run(number, path) for number, path in enumerate(found)]


def _run(number: int, folder: Path) -> TracedRun:
    try:
        about = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise BadTrace(f"{folder / 'run.json'}: {error}") from None
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        raise BadTrace(f"{folder / 'run.json'}: not a trace of schema {SCHEMA}")
    cell = about.get("cell", {})
    system, work = cell.get("system", ""), cell.get("workload", "")
    mode = about.get("history") or (ENTRIES[system].history if system in ENTRIES else NONE)
    allowed = about.get("allowed")
    if allowed is None:
        allowed = ALLOWED if mode == KAFKA else ALLOWED_ELSEWHERE
    feeds = about.get("feeds")
    if feeds is None:
        feeds = dict(workload(work).feeds) if work in NAMES else {}
    rows = {}
    for name, columns in COLUMNS.items():
        path = folder / f"{name}.parquet"
        if path.exists() or name not in OPTIONAL:
            rows[name] = _looked_into(path, columns)
    return TracedRun(number, folder.name, folder, mode, tuple(allowed), feeds, about, rows)


def _looked_into(path: Path, columns: Mapping[str, str]) -> int:
    """Returns the footer's number of rows; BadTrace where it cannot be read, or has other columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise BadTrace(f"{path} cannot be read: {error}") from None
    kinds = {"int32": "int", "int64": "bigint", "double": "double", "string": "string"}
    there = {one.name: kinds.get(str(one.type)) for one in footer.schema.to_arrow_schema()}
    missing = [name for name, kind in columns.items() if there.get(name) != kind]
    if missing:
        raise BadTrace(f"{path} has not the columns of schema {SCHEMA}: {', '.join(missing)}")
    return int(footer.num_rows)
