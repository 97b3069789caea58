"""Computes the drawings' figures from the traces in Python: columns of Arrow and NumPy, no loop over records.

    DIR/traces/<run>/*.parquet ─▶ {"source": "python", "runs": {run: latencies, throughput, phases, …}}

Spark compares its own percentiles with those of the results (bench/judges/spark); it draws nothing. A latency
is here only if a trace has all the events that the workload counted, and no others:

    write        batch: written − intended             reshard, plain, at a rate
    commit       transaction: reply − proposed         reshard, chain, plain-beside
    visible      transaction: visible − proposed       the same
    end to end   record: seen − intended of its batch  reshard, plain, at a rate

In other cases, or if the rate was not sustained, it is None. The other workloads time a part of their transactions
only, and report that in `extra`.

Next: page.py.
"""

import json
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any

from planstep.errors import MissingExtra

from ...compare.cell import LATENCIES
from ...compare.measure import PERCENTILES
from ...compare.ranking import entries
from ...judges.trace import ABORTED, COMMITTED, SCHEMA, UNDETERMINED

try:
    import numpy as np
    from pyarrow import parquet
except ImportError as error:
    raise MissingExtra(error.name or "pyarrow", "bench") from None

SCHEMA_VERSION = 1
CURVE = (
    *(0.001, 0.002, 0.005, 0.01),
    *(n / 50 for n in range(1, 50)),
    *(0.99, 0.995, 0.998, 0.999, 1.0),
)
"""Shares of the points of a distribution's curve."""
BUCKET_S = 0.5
MOMENTS = ("begin", "staged", "proposed", "planned", "decided", "visible", "reply")
_COSTS = (
    *("requests", "messages", "appends", "syncs", "hops", "hops_visible"),
    *("client_bytes", "tablet_bytes", "participants"),
)
_AT_A_RATE = {"reshard": ("write_ms", "end_to_end_ms"), "plain": ("write_ms", "end_to_end_ms")}
_OF_ALL = {
    workload: ("commit_ms", "visible_ms") for workload in ("reshard", "chain", "plain-beside")
}
_ORDINALS = 1 << 40
"""More than a partition has records, to combine partition and ordinal in one number."""
Columns = dict[str, Any]


def figures(folder: Path, summary: Mapping[str, Any] | None) -> dict[str, Any]:
    """Computes figures of all traces that `summary` names, or, without a summary, of those in `folder`.

    A trace that is missing or unreadable is named in `left_out`, with the reason.
    """
    runs, left_out = {}, {}
    for path in _traces(folder / "traces", summary):
        name = path.name
        try:
            runs[name] = of_run(path, summary)
        except (OSError, ValueError, KeyError) as error:  # pyarrow's are ValueErrors
            left_out[name] = f"{type(error).__name__}: {error}"
    about = {"schema_version": SCHEMA_VERSION, "source": "python"}
    return {**about, "runs": runs, "left_out": left_out}


def _traces(traces: Path, summary: Mapping[str, Any] | None) -> Iterator[Path]:
    if summary is None:
        yield from sorted(path for path in traces.glob("*") if path.is_dir())
    else:
        for *_, entry in entries(summary["systems"]):
            yield from (traces / Path(trace).name for trace in entry["traces"])


def of_run(path: Path, summary: Mapping[str, Any] | None) -> dict[str, Any]:
    """Computes the figures of one run. OSError, ValueError, KeyError if it is no trace of this schema."""
    about = json.loads((path / "run.json").read_text())
    if about["schema"] != SCHEMA:
        raise ValueError(f"schema {about['schema']}, not {SCHEMA}")
    cell = about["cell"]
    transactions, batches = _read(path, "transactions"), _read(path, "batches")
    outcomes = transactions["outcome"]
    committed = {name: column[outcomes == COMMITTED] for name, column in transactions.items()}
    has = timed(about, entry_of(summary, cell))
    counts = {name: int((outcomes == name).sum()) for name in (COMMITTED, ABORTED, UNDETERMINED)}
    return {
        **{name: cell[name] for name in ("workload", "system", "repeat")},
        **{name: cell["options"][name] for name in ("durability", "placement")},
        "outcomes": counts,
        "latencies": {
            name: _latency(name, path, committed, batches) if name in has else None
            for name in LATENCIES
        },
        "throughput": {"bucket_s": BUCKET_S, "points": _throughput(committed, batches)},
        "phases": _phases(committed, batches),
        "costs": {name: _mean(committed[name]) for name in _COSTS},
        "resources": {"points": _resources(_read(path, "resources"))},
    }


def entry_of(summary: Mapping[str, Any] | None, cell: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the summary's entry of a run's cell, or {}."""
    entry: Any = (summary or {}).get("systems", {})
    options = cell["options"]
    for key in (cell["system"], cell["workload"], options["durability"], options["placement"]):
        entry = entry.get(key, {})
    return dict(entry)


def timed(about: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the latencies that a run has, by its run.json and the entry of its cell."""
    cell = about.get("cell")
    late = False in (about.get("sustained"), entry.get("sustained"))
    if not cell or late or entry.get("verified") is False:
        return ()
    workload = cell["workload"]
    at_a_rate = _AT_A_RATE.get(workload, ()) if cell["shape"]["rate"] is not None else ()
    return (*at_a_rate, *_OF_ALL.get(workload, ()))


# reading ------------------------------------------------------------------------------------------


def _read(path: Path, name: str, columns: list[str] | None = None) -> Columns:
    """Reads columns. Numbers with nulls become floats with NaN, exact for runs shorter than a hundred days."""
    table = parquet.read_table(path / f"{name}.parquet", columns=columns)
    return {column: table[column].to_numpy() for column in table.column_names}


def _floats(values: Any) -> Any:
    return np.asarray(values, dtype=float)  # a column of only nulls comes as objects


def _known(values: Any) -> Any:
    numbers = _floats(values)
    return numbers[~np.isnan(numbers)]


def _mean(values: Any) -> float | None:
    known = _known(values)
    return round(float(known.mean()), 4) if known.size else None


# latencies ----------------------------------------------------------------------------------------


def _latency(name: str, path: Path, committed: Columns, batches: Columns) -> dict[str, Any] | None:
    if name == "write_ms":
        times = _since(batches["written"], batches["intended"])
    elif name == "commit_ms":
        times = _since(committed["reply"], committed["proposed"])
    elif name == "visible_ms":
        times = _since(committed["visible"], committed["proposed"])
    else:
        lanes = _read(path, "lanes", ["partition"])["partition"]
        times = _end_to_end(_read(path, "seen", ["source", "ordinal", "at"]), batches, lanes)
    return distribution(times)


def _since(then: Any, before: Any) -> Any:
    return _known(_floats(then) - _floats(before)) / 1e6


def _end_to_end(polled: Columns, batches: Columns, partitions: Any) -> Any:
    """Assigns each record to its batch: the last that begins at it or before."""
    if not batches["lane"].size or not polled["at"].size:
        return np.empty(0)
    begins = partitions[batches["lane"]] * _ORDINALS + batches["begin"]
    order = np.argsort(begins, kind="stable")
    wanted = polled["source"] * _ORDINALS + polled["ordinal"]
    batch = order[np.maximum(0, np.searchsorted(begins[order], wanted, side="right") - 1)]
    inside = (wanted >= begins[batch]) & (wanted < begins[batch] + batches["records"][batch])
    return (polled["at"] - batches["intended"][batch])[inside] / 1e6


def distribution(milliseconds: Any) -> dict[str, Any] | None:
    """Returns the same as Latencies.summary(), by nearest rank, with a curve; None for no values."""
    ordered = np.sort(milliseconds)
    count = len(ordered)
    if not count:
        return None

    def at(share: float) -> float:
        return round(float(ordered[min(count - 1, max(0, ceil(share * count) - 1))]), 3)

    return {
        "count": count,
        **{name: at(share) for name, share in PERCENTILES},
        "max": round(float(ordered[-1]), 3),
        "curve": [[share, at(share)] for share in CURVE],
    }


# over time ----------------------------------------------------------------------------------------


def _throughput(committed: Columns, batches: Columns) -> list[list[float]]:
    """Counts payload in the bucket of its commit's reply, or for plain writes of the write."""
    reply, moment = _floats(committed["reply"]), _floats(batches["written"]).copy()
    order = np.argsort(committed["tx"])
    numbers, replies = committed["tx"][order], reply[order]
    within = batches["tx"] >= 0
    moment[within] = np.nan
    if numbers.size:
        place = np.minimum(np.searchsorted(numbers, batches["tx"]), numbers.size - 1)
        of_answered = within & (numbers[place] == batches["tx"])
        moment[of_answered] = replies[place[of_answered]]
    known, answered = ~np.isnan(moment), _known(reply)
    if not known.any() and not answered.size:
        return []
    bucket = BUCKET_S * 1e9
    last = max(moment[known].max(initial=0.0), answered.max(initial=0.0))
    count = int(last // bucket) + 1
    buckets = (moment[known] // bucket).astype(int)
    size = np.bincount(buckets, weights=batches["bytes"][known], minlength=count)
    times = np.bincount((answered // bucket).astype(int), minlength=count)
    return [
        [n * BUCKET_S, round(float(size[n]) / 1e6 / BUCKET_S, 4), float(times[n]) / BUCKET_S]
        for n in range(count)
    ]


def _resources(rows: Columns) -> list[list[float]]:
    """Returns rates between consecutive moments; memory as of each moment."""
    seconds = np.diff(rows["at"]) / 1e9
    usable = seconds > 0

    def rate(values: Any, unit: float = 1.0) -> Any:
        return np.diff(values)[usable] / seconds[usable] / unit

    columns = (
        rows["at"][1:][usable] / 1e9,
        rate(rows["cpu_seconds"]),
        rows["rss_bytes"][1:][usable] / 1e6,
        rate(rows["disk_bytes"], 1e6),
        rate(rows["syncs"]),
        rate(rows["client_bytes"] + rows["tablet_bytes"], 1e6),
    )
    return [[round(float(value), 4) for value in row] for row in zip(*columns, strict=True)]


# phases -------------------------------------------------------------------------------------------


def _phases(committed: Columns, batches: Columns) -> dict[str, Any]:
    """Returns medians of committed transactions, in ms since their begin, and an example of median length."""
    medians = {}
    for name in MOMENTS[1:]:
        summary = distribution(_since(committed[name], committed["begin"]))
        medians[name] = summary["p50"] if summary else None
    length = _floats(committed["reply"]) - _floats(committed["begin"])
    whole = np.flatnonzero(~np.isnan(length))
    example = None
    if whole.size:
        order = whole[np.lexsort((committed["tx"][whole], length[whole]))]
        example = _example(int(order[ceil(0.5 * order.size) - 1]), committed, batches)
    return {"moments": list(MOMENTS), "medians_ms": medians, "example": example}


def _example(row: int, committed: Columns, batches: Columns) -> dict[str, Any]:
    tx, begin = int(committed["tx"][row]), float(committed["begin"][row])

    def since(value: Any) -> float | None:
        missing = value is None or value != value
        return None if missing else round((float(value) - begin) / 1e6, 3)

    mine = (batches["tx"] == tx).nonzero()[0]
    names = ("intended", "written", "published", "read")
    pieces = [{name: since(batches[name][n]) for name in names} for n in mine]
    return {
        "tx": tx,
        "moments": {name: since(committed[name][row]) for name in MOMENTS},
        "batches": sorted(pieces, key=lambda piece: piece["intended"] or 0.0),
    }
