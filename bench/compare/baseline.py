"""Compares a comparison with an earlier one: which figures changed, and what makes them hard to compare.

    OLD.json ─▶ read ─┐          before   ├─ 0.80 ─┤
    summary ──────────┴▶ since   now                   ├─── 0.95 ───┤     changed: the intervals do not overlap,
                                                                          and the medians differ by 5 %

Repeats of two comparisons ran hours or months apart, so none belongs to another: the ratio is that of the medians,
and a figure of fewer than three runs has not changed. Results of schema 1 are read too: transfer is small there.

Left out: figures without an interval, as a highest rate and most of what a workload has in `extra`.

Next: ../report/text/changes.py.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .cell import LATENCIES, OK
from .ranking import HIGHER, LOWER, MARGIN, REPEATS_MIN, Entry, entries, figure
from .result_folder import RESULTS
from .summary import KIND, SCHEMA_VERSION
from .verdicts import UNKNOWN

_ALWAYS = {
    **{f"{name}.{p}": LOWER for name in LATENCIES for p in ("p50", "p99")},
    "disk_bytes_per_payload_byte": LOWER,
    "network_bytes_per_payload_byte": LOWER,
    "memory_peak_mb": LOWER,
    "cpu_ms_per_transaction": LOWER,
    "requests_per_transaction": LOWER,
    "messages_per_transaction": LOWER,
    "appends_per_transaction": LOWER,
    "syncs_per_transaction": LOWER,
}
_PACED = _ALWAYS | {"cpu_cores": LOWER}
_UNLIMITED = _ALWAYS | {"throughput_mb_s": HIGHER, "transactions_per_second": HIGHER}
_PARTS, _PER_SECOND = "concurrency", "transactions_per_second"
"""Figures by number of threads."""
_WORK = ("offered_mb_s", "partitions", "hosts")
"""Figures of an entry that must be equal, or it did other work."""
_MACHINE = (*("cpus", "cpu_model", "memory_mb", "filesystem", "kernel", "architecture", "python"),)
_MEMORY_SHARE, _SYNC_FACTOR = 0.05, 2.0
"""Differences of memory, and of a bare durable append, that need no warning."""
_CHOICES = (
    *("workloads", "systems", "durability", "placement", "duration_s", "repeat", "seed"),
    *("quick", "thorough", "peers", "find_rate"),
)
"""Settings that choose what runs, how long and how often: cells say that themselves."""


class Interval(NamedTuple):
    """A figure over its repeats; `high` is infinite if a repeat did not sustain the rate."""

    median: float
    low: float
    high: float
    repeats: int
    better: str

    def json(self) -> dict[str, Any]:
        high = None if math.isinf(self.high) else self.high
        return {"median": self.median, "low": self.low, "high": high, "repeats": self.repeats}


def read(path: Path) -> dict[str, Any]:
    """Reads the results of a comparison: results.json, or the folder that holds it.

    ValueError, with what to give instead, if it holds none, or none whose runs have ended.
    """
    file = path / RESULTS if path.is_dir() else path
    try:
        old = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"--baseline {file}: {error.strerror}; name a {RESULTS}") from None
    except ValueError:
        raise ValueError(f"--baseline {file} is no JSON; name a {RESULTS}") from None
    if not isinstance(old, dict) or old.get("kind") != KIND:
        raise ValueError(
            f"--baseline {file} holds no comparison; name the {RESULTS} that planstep compare --out DIR wrote"
        )
    if "systems" not in old:
        raise ValueError(f"--baseline {file}: no run of that comparison had ended")
    version = old.get("schema_version")
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise ValueError(
            f"--baseline {file} has schema {version}; this version reads 1 to {SCHEMA_VERSION}"
        )
    try:
        readable = _of_schema_1(old) if version == 1 else old
        since(readable, readable, path)  # finds what is missing now, not after minutes of measuring
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise ValueError(
            f"--baseline {file} is damaged: a part of its results is missing"
        ) from None
    return readable


def _of_schema_1(old: dict[str, Any]) -> dict[str, Any]:
    """Renames transfer to small. Its own figures were of several threads, small's are of one: they are left out."""
    systems = {}
    for name, by_workload in old["systems"].items():
        systems[name] = {("small" if w == "transfer" else w): of for w, of in by_workload.items()}
        for by_placement in by_workload.get("transfer", {}).values():
            for entry in by_placement.values():
                entry["range"] = {}
    return old | {"systems": systems}


def since(summary: dict[str, Any], old: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns what changed since `old`, which `read` returned for `path`. Fields: docs/compare.md."""
    before = {tuple(cell): entry for *cell, entry in entries(old["systems"])}
    changed: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    same = 0
    for *cell, entry in entries(summary["systems"]):
        former = before.get(tuple(cell))
        why = "it did not run then" if former is None else _incomparable(former, entry)
        if former is None or why:
            left_out.append({"what": ", ".join(cell), "why": why})
            continue
        then, now = _figures(old, cell, former), _figures(summary, cell, entry)
        for name in now:
            row = _compared(then.get(name), now[name])
            if row is not None and row["standing"]:
                system, workload, durability, placement = cell
                where = {"system": system, "workload": workload, "durability": durability}
                changed.append(where | {"placement": placement, "figure": name} | row)
            elif row is not None:
                same += 1
    changed.sort(key=lambda row: (row["standing"] != "worse", -_distance(row)))
    return {
        "baseline": str(path),
        "planstep": old["machine"].get("planstep"),
        "schema_version": old["schema_version"],
        "warnings": list(_warnings(summary, old)),
        "changed": changed,
        "same": same,
        "verdicts": _verdicts(summary, old),
        "left_out": left_out,
    }


def _incomparable(before: Entry, now: Entry) -> str:
    """Returns why two entries cannot be compared, or ""."""
    for entry, when in ((before, "then"), (now, "now")):
        if entry["status"] != OK or not entry["verified"]:
            return f"it has no figures {when}"
        if entry["repeats"] < REPEATS_MIN:
            return f"it ran {entry['repeats']} of the {REPEATS_MIN} times that an interval needs {when}"
    for name in _WORK:
        if before[name] != now[name]:
            return f"{name} was {before[name]}, and is {now[name]}"
    if not before["range"]:
        return "its figures were of several threads then, and are of one now"
    return ""


def _figures(of: dict[str, Any], cell: list[str], entry: Entry) -> dict[str, Interval]:
    """Returns an entry's figures that have an interval, those by number of threads included."""
    found = {}
    for name, better in (_PACED if entry["offered_mb_s"] else _UNLIMITED).items():
        value, ends = figure(entry, name), entry["range"].get(name)
        if value is not None and ends is not None:
            high = math.inf if ends[1] is None else ends[1]
            found[name] = Interval(value, ends[0], high, entry["repeats"], better)
    system, _, durability, placement = cell
    curves = (of.get("curves") or {}).get(_PARTS, ()) if _PARTS in entry["extra"] else ()
    for curve in curves:
        if (curve["system"], curve["durability"], curve["placement"]) == (
            *(system, durability, placement),
        ):
            for point in curve["points"]:
                middle, low, high = (point[_PER_SECOND][end] for end in ("median", "low", "high"))
                name = f"{_PARTS}.{point['threads']}.{_PER_SECOND}"
                found[name] = Interval(middle, low, high, entry["repeats"], HIGHER)
    return found


def _compared(before: Interval | None, now: Interval) -> dict[str, Any] | None:
    """Compares a figure; `standing` is "" if it did not change. None if it was not there, or is 0."""
    if before is None or before.median <= 0 or now.median <= 0:
        return None
    ratio = now.median / before.median
    off = abs(now.median - before.median) >= MARGIN * max(now.median, before.median)
    standing = ""
    if off and (before.high < now.low or now.high < before.low):
        standing = "worse" if (ratio > 1) == (now.better == LOWER) else "better"
    intervals = {"before": before.json(), "now": now.json()}
    return {"better": now.better, **intervals, "ratio": round(ratio, 4), "standing": standing}


def _distance(row: dict[str, Any]) -> float:
    return abs(math.log(row["now"]["median"] / row["before"]["median"]))


def _verdicts(summary: dict[str, Any], old: dict[str, Any]) -> list[dict[str, str]]:
    """Returns the questions in which this engine's standing is another than then."""
    then = {(v["question"], v["durability"]): v["standing"] for v in old.get("verdicts", ())}
    return [
        {"question": v["question"], "durability": v["durability"]}
        | {"before": former, "now": v["standing"]}
        for v in summary.get("verdicts", ())
        if (former := then.get((v["question"], v["durability"]), UNKNOWN)) != v["standing"]
        and UNKNOWN not in (former, v["standing"])
    ]


# what makes them hard to compare ------------------------------------------------------------------


def _warnings(summary: dict[str, Any], old: dict[str, Any]) -> Iterator[str]:
    yield from _other_machine(old["machine"], summary["machine"])
    then, now = old["settings"], summary["settings"]
    if words := _differing([n for n in then if n in now and n not in _CHOICES], then, now):
        yield f"Settings differ: {words}."
    if words := "; ".join(_other_lengths(old["systems"], summary["systems"])):
        yield f"Runs had another length: {words}."
    if old["interrupted"]:
        yield "The earlier comparison was interrupted."
    if old["schema_version"] != SCHEMA_VERSION:
        yield (
            f"The earlier results have schema {old['schema_version']}, these {SCHEMA_VERSION}: figures whose "
            "meaning changed are left out."
        )


def _other_machine(then: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    memory, memory_now = then["memory_mb"], now["memory_mb"]
    alike = {"memory_mb"} if abs(memory - memory_now) <= _MEMORY_SHARE * memory else set()
    if now["kernel"].startswith(then["kernel"]):  # kept results have no name of its build
        alike.add("kernel")
    if words := _differing([name for name in _MACHINE if name not in alike], then, now):
        yield f"The machine differs: {words}."
    sync, sync_now = ((of.get("disk_sync_ms") or {}).get("p50") for of in (then, now))
    if sync and sync_now and not 1 / _SYNC_FACTOR <= sync_now / sync <= _SYNC_FACTOR:
        yield f"A bare durable append took {sync:g} ms then, and takes {sync_now:g} ms now."
    for machine, when in ((then, "then"), (now, "now")):
        if (machine.get("load") or {}).get("busy"):
            yield f"The machine was busy with other work {when}."


def _differing(names: list[str], then: dict[str, Any], now: dict[str, Any]) -> str:
    differing = [name for name in names if then.get(name) != now.get(name)]
    return "; ".join(f"{name} {then.get(name)}, now {now.get(name)}" for name in differing)


def _other_lengths(then: dict[str, Any], now: dict[str, Any]) -> dict[str, None]:
    before = {tuple(cell): entry["duration_s"] for *cell, entry in entries(then)}
    pairs = (
        (workload, before.get((system, workload, *rest)), entry["duration_s"])
        for system, workload, *rest, entry in entries(now)
    )
    return dict.fromkeys(
        f"{workload} {former:g} s, now {latter:g} s"
        for workload, former, latter in pairs
        if former is not None and former != latter
    )
