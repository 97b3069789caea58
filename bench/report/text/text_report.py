"""Writes a comparison in words, from its summary alone, for a terminal of 100 columns.

    verification first │ latency and resources, next to the talk's │ rates │ durable writes
    conclusions.py: mode × placement │ the other workloads │ who wins where
    caveats.py: settings │ left out │ limits

Durability full and os never share a table. A missing figure is "–": its run did not verify, or the rate was not
sustained, and the text says which. All figures were measured here, except those marked as published.

Next: conclusions.py; blocks.py, published_figures.py.
"""

import math
from collections.abc import Iterator
from typing import Any

from ...compare.machine import IN_MEMORY
from ...compare.ranking import DURABILITIES, Entry, entries, figure, placed, workloads_of
from ...compare.systems import label, original
from . import published_figures
from .blocks import (
    Block,
    Bullets,
    Paragraph,
    Section,
    Table,
    filled,
    number,
    section,
    text,
)
from .caveats import fineprint
from .conclusions import conclusions
from .durable_writes import who_persists

_PERCENTILES = ("p50", "p95", "p99", "p99_9")
_AT_THAT_RATE = ("write p50", "p99", "e2e p50", "p99")
_RESOURCES = (
    "",
    "placement",
    "transactions",
    "payload, MB/s",
    "CPU cores",
    "to disk, MB/s",
    "over links, MB/s",
    "disk bytes per payload byte",
    "memory at most, MB",
)
_TALK = ("", "transactions", "CPU cores", "disk, MB/s", "network in, MB/s", "network out, MB/s")
_ALL_OF_TALK = frozenset(range(len(published_figures.RESOURCES)))
_RATES = (
    *("", "placement", "durability", "sustained, MB/s", "at most, MB/s"),
    *("write p50, ms", "write p99", "end to end p50, ms", "end to end p99"),
)
BUSY_SHARE = 0.1
"""Share of the machine's processors; more of other work than that distorts figures."""
_COUNTS = ("records", "missing", "duplicated", "out_of_order", "violations")


def words(summary: dict[str, Any]) -> str:
    """Returns the whole report, ending with a newline."""
    systems = summary["systems"]
    parts = [verification(systems), by_spark(summary["spark"]), *latencies(summary)]
    parts += [
        *resources(summary),
        *rates(systems),
        *who_persists(systems),
        *conclusions(summary),
        *fineprint(summary),
    ]
    title = "\n".join(map(filled, titles(summary)))
    return "\n\n".join([title, *map(text, parts)]) + "\n"


def titles(summary: dict[str, Any]) -> list[str]:
    """Returns lines about the runs and the machine."""
    plan, machine = summary["plan"], summary["machine"]
    sync = machine["disk_sync_ms"]
    lines = [
        f"planstep compare: {plan['done']} of {plan['cells']} runs in {summary['seconds']:.0f} s",
        f"on {machine['cpus']} × {machine['cpu_model']}, {machine['memory_mb'] / 1000:.0f} GB, "
        f"{machine['filesystem'] or 'unknown file system'}, {machine['kernel']}, {machine['python']}",
    ]
    if sync:
        lines.append(
            f"a bare durable append of 4 KiB, timed in the same run: p50 {number(sync['p50'])} ms, "
            f"p99 {number(sync['p99'])} ms"
        )
    if machine["filesystem"] in IN_MEMORY:
        lines.append(
            f"{machine['filesystem']} is memory: a sync costs nothing there, and durability full is "
            "none. Give --out a folder on a disk."
        )
    lines += load(summary)
    if summary["interrupted"]:
        lines.insert(0, "INTERRUPTED: what follows is of the runs that had ended by then")
    return [*lines, *plan["notes"]]


def load(summary: dict[str, Any]) -> list[str]:
    """Returns the load of other work, with a warning where it distorts figures."""
    cpus, before = summary["machine"]["cpus"], summary["machine"].get("busy_cores")
    during = [
        entry["range"]["other_cores"][1]
        for *_, entry in entries(summary["systems"])
        if "other_cores" in entry["range"]
    ]
    if before is None and not during:
        return ["how busy the machine was with other work is not known on this platform"]
    known = [n for n in (before, *during) if n is not None]
    told = (
        f"{number(before)} cores before, at most {number(max(during, default=None))} during a run"
    )
    if max(known) <= BUSY_SHARE * cpus:
        return [f"other work on this machine used {told}, of {cpus}"]
    return [
        f"WARNING: other work on this machine used {told}, of {cpus}: these figures are of a busy machine; "
        "run it again when nothing else runs"
    ]


# verification -------------------------------------------------------------------------------------


def verification(systems: dict[str, Any]) -> Section:
    """Returns the numbers of verified records, and all errors, before any figure."""
    totals: dict[str, list[int]] = {}
    bad, late = [], []
    for name, workload, durability, placement, entry in entries(systems):
        if entry["status"] == "interrupted":
            continue
        where = f"{workload}, {label(name)}, durability {durability}, {placement}"
        total = totals.setdefault(workload, [0] * (1 + len(_COUNTS)))
        total[0] += entry["repeats"]
        total[1] += entry["records"] * entry["repeats"]
        for n, count in enumerate(_COUNTS[1:], 2):
            total[n] += entry[count]
        if failing := _failing(entry):
            bad.append(f"{where}: {failing}")
        elif entry["sustained_repeats"] not in (None, entry["repeats"]):
            late.append(f"{where}: {entry['sustained_repeats']} of {entry['repeats']} runs were")
        bad += [f"{where}, {failing}" for failing in _failing_searches(entry)]
    if not totals:
        return section("Verification", "Nothing ran to its end.")
    verdict = (
        "NOT all runs verified. These have no figures:"
        if bad
        else "Each run was verified from its store, opened anew: exactly once, in order."
    )
    columns = ("workload", "runs", "records read", *(c.replace("_", " ") for c in _COUNTS[1:]))
    blocks: list[Block] = [verdict, *([Bullets(bad)] if bad else [])]
    rows = [(workload, *total) for workload, total in totals.items()]
    blocks.append(Table(columns, rows, zero=frozenset(range(3, len(columns)))))
    blocks += _histories(systems)
    if late:
        about = (
            "Rate not sustained (generator late, less than 98 % of it, or not read ten seconds later): such a run "
            "has no latencies. A median over repeats counts it as slower than any other."
        )
        blocks.append(Bullets(late, about))
    return section("Verification", *blocks)


def _failing(entry: dict[str, Any]) -> str:
    """Returns why a cell has no figures, "" if it has."""
    if entry["status"] == "failed":
        return f"FAILED: {entry['reason']}"
    if entry["status"] == "ok" and not entry["verified"]:
        return f"NOT VERIFIED: {_wrong(entry)}"
    return ""


def _failing_searches(entry: dict[str, Any]) -> Iterator[str]:
    for run in entry["rate_search"] or ():
        if not run["verified"]:
            rate = run["rate_mb_s"]
            speed = "as fast as it goes" if rate is None else f"{rate:g} MB/s"
            yield f"searched at {speed}: NOT VERIFIED: {run['problem']}"


def by_spark(spark: dict[str, Any]) -> Section:
    """Returns Spark's verdict on the traces."""
    title = "Verification, by Spark"
    if not spark["ran"]:
        said = f"Spark did not run: {spark['why_not']}. The verdicts are Python's."
        return section(title, Paragraph(said))
    found = {name: n for check in spark["checks"] for name, n in check["found"].items() if n}
    listed = ", ".join(f"{name} {n:,}" for name, n in found.items()) or "nothing that may not be"
    looked = sum(bool(check["rows"]) for check in spark["checks"])
    agrees = {True: ", as Python did", False: ", which is NOT what Python found"}
    said = (
        f"Spark {spark['version']} ({spark['master']}) judged all traces by itself, {spark['rows_read']:,} rows "
        f"in {spark['seconds']:.0f} s, {looked} checks. It found "
        f"{listed}{agrees.get(spark['agrees_with_python'], '')}."
    )
    differing = spark["disagreements"]
    return section(title, Paragraph(said), *([Bullets(differing)] if differing else []))


def _histories(systems: dict[str, Any]) -> list[Block]:
    """Returns how much of the histories was checked, and the anomalies that a system's model allows."""
    looked: dict[str, int] = {}
    allowed: dict[str, dict[str, int]] = {}
    for name, _, _, _, entry in entries(systems):
        for what, n in entry["judged"].items():
            looked[what] = looked.get(what, 0) + n
        for what, n in entry["allowed_by"].items():
            of = allowed.setdefault(name, {})
            of[what] = of.get(what, 0) + n
    if not looked:
        return []
    said = ", ".join(f"{n:,} {_LOOKED_AT.get(what, what)}" for what, n in looked.items() if n)
    told = f"Their histories were held to their certificates: {said}."
    for name, counts in allowed.items():
        found = ", ".join(f"{what} {n:,}" for what, n in counts.items())
        told += f" Found and allowed, as {original(name)} allows it, in {label(name)}: {found}."
    return [Paragraph(told)]


_LOOKED_AT = {
    "records": "records in stores",
    "reads": "reads of rows",
    "ranges": "ranges of positions",
    "published": "ranges of offsets",
    "seen": "records shown to readers",
}


def _wrong(entry: Entry) -> str:
    counts = [f"{entry[c]:,} {c.replace('_', ' ')}" for c in _COUNTS[1:] if entry[c]]
    counts += [f"{name} {count:,}" for name, count in entry["violations_by"].items() if count]
    said = ", ".join(counts) or "the verifier said no"
    return "; for example: ".join([said, *entry["problems"][:1]])


# the talk's tables --------------------------------------------------------------------------------


def latencies(summary: dict[str, Any]) -> list[Section]:
    """Returns a table for each durability, explained in the first; then the published figures in their own."""
    parts: list[Section] = []
    settings = summary["settings"]
    rate = settings["rate_mb_s"]
    if rate is None:
        return _no_latencies(summary["systems"])
    for durability, meaning in DURABILITIES.items():
        shown = list(placed(summary["systems"], "reshard", durability))
        rows: list[tuple[Any, ...]] = [
            (
                label(name),
                placement,
                *_latency(entry, "write_ms"),
                *_latency(entry, "end_to_end_ms"),
            )
            for name, placement, entry in shown
        ]
        if not rows:
            continue
        about = [f"{durability}: {meaning}."]
        if not parts:
            partitions = max(entry["partitions"] for _, _, entry in shown)
            about.append(
                f"{partitions} partitions, a commit every "
                f"{settings['commit_interval_s']:g} s. Write: from when a batch was due to when it was "
                "durable, on the side or in place; not the same thing in each system, so never a contest. End to "
                "end (e2e): from when it was due to its receipt by a reader of committed records. Medians over "
                "repeats."
            )
        blocks: list[Block] = [Paragraph(" ".join(about))]
        names = [percentile.replace("_", ".") for percentile in _PERCENTILES]
        columns = ("ms", "placement", *names, f"e2e {names[0]}", *names[1:])
        long = ("ms", "placement", *(f"write {n}" for n in names))
        long += tuple(f"end to end {n}" for n in names)
        blocks.append(Table(columns, rows, 2, long))
        parts.append(
            section(f"reshard: latency at {rate:g} MB/s, durability {durability}", *blocks)
        )
    return [*parts, _published()] if parts else []


def _published() -> Section:
    """Returns the talk's latencies, without a durability, since it does not say when a log was flushed."""
    names = [percentile.replace("_", ".") for percentile in _PERCENTILES]
    rows = [(name, *write, *end) for name, write, end in published_figures.LATENCIES]
    columns = ("ms", *names, f"e2e {names[0]}", *names[1:])
    long = ("ms", *(f"write {n}" for n in names), *(f"end to end {n}" for n in names))
    about = (
        f"To look at, not to compare; {published_figures.HARDWARE}; at {published_figures.RATE}. "
        f"{published_figures.FLUSHES_UNKNOWN}"
    )
    return section(
        "Latency as published, on other hardware",
        Paragraph(about),
        Table(columns, rows, 1, long, frozenset(range(len(rows)))),
    )


def _no_latencies(systems: dict[str, Any]) -> list[Section]:
    if "reshard" not in workloads_of(systems):
        return []
    about = "As fast as it goes nothing is due at any time, so nothing is late: --rate MB/s has latencies."
    return [section("reshard: no latency at full speed", Paragraph(about))]


def _latency(entry: Entry, name: str) -> list[float | None]:
    return [figure(entry, f"{name}.{percentile}") for percentile in _PERCENTILES]


def resources(summary: dict[str, Any]) -> list[Section]:
    parts: list[Section] = []
    columns = ("", "placement", "tx", "MB/s", "cores", "disk", "network", "disk/B", "memory")
    for durability in DURABILITIES:
        rows = [
            (
                *(label(name), placement, transactions, entry["throughput_mb_s"]),
                *(entry["cpu_cores"], entry["disk_mb_s"], entry["network_mb_s"]),
                *(entry["disk_bytes_per_payload_byte"], entry["memory_peak_mb"]),
            )
            for workload, transactions in (("reshard", "with"), ("plain", "without"))
            for name, placement, entry in placed(summary["systems"], workload, durability)
            if entry["verified"]
        ]
        if not rows:
            continue
        blocks: list[Block] = [Table(columns, rows, 3, _RESOURCES)]
        if not parts:
            about = Paragraph(
                "tx: with or without transactions. MB/s of payload through; CPU cores; MB/s to disk and "
                "over links (client to tablet, tablet to tablet; both are memory here); bytes to disk "
                "per byte of payload; MB of memory at its most, all of it one process."
            )
            talk = ("", "tx", "cores", "disk", "network in", "network out")
            blocks = [
                about,
                *blocks,
                Paragraph(f"The talk's, of all hosts, at {published_figures.RESOURCES_RATE}:"),
                Table(talk, published_figures.RESOURCES, 2, _TALK, _ALL_OF_TALK),
                Paragraph(f"{published_figures.HARDWARE}."),
            ]
        parts.append(section(f"reshard: resources, durability {durability}", *blocks))
    return parts


def _is_rate(offered: float | None, rate: float | None) -> bool:
    """Returns True if the rates are equal up to rounding."""
    return offered is not None and rate is not None and math.isclose(offered, rate, rel_tol=0.005)


def rates(systems: dict[str, Any]) -> list[Section]:
    rows = []
    for name, workload, durability, placement, entry in entries(systems):
        if workload == "reshard" and entry["rate_search"]:
            most = [run["throughput_mb_s"] for run in entry["rate_search"] if not run["rate_mb_s"]]
            rate = entry["highest_sustained_mb_s"]
            tried = [(run["rate_mb_s"], run) for run in entry["rate_search"]]
            at_rate = [
                run for of, run in [*tried, (entry["offered_mb_s"], entry)] if _is_rate(of, rate)
            ]
            latencies = [
                figure(at_rate[0], f"{kind}.{percentile}") if at_rate else None
                for kind in ("write_ms", "end_to_end_ms")
                for percentile in ("p50", "p99")
            ]
            rows.append((label(name), placement, durability, rate, *most[:1], *latencies))
    if not rows:
        return []
    columns = ("MB/s", "placement", "dur.", "sustained", "at most", *_AT_THAT_RATE)
    return [
        section(
            "reshard: highest sustained rate",
            Paragraph(
                "Found in short runs, to about a tenth. Sustained: at least 98 % of what was offered got "
                "through, and the generator was on time. At most: as fast as it goes. Latencies, ms, at the "
                "rate that was sustained."
            ),
            Table(columns, rows, 3, _RATES),
        )
    ]
