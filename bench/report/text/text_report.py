"""Writes a comparison in words, from its summary alone, for a terminal of 100 columns.

    verification first │ latency, resources, servers │ rates and their curves │ durable writes
    conclusions.py: mode × placement │ the other workloads │ who wins where
    published.py: what others published │ caveats.py: settings │ left out │ limits

Durability full and os never share a table. A missing figure is "–": its run did not verify, or the rate was not
sustained, and the text says which. All figures were measured here, except those that published.py adds.

Next: conclusions.py; blocks.py, published.py.
"""

import math
from collections import Counter
from typing import Any

from ...compare.machine import IN_MEMORY
from ...compare.ranking import DURABILITIES, Entry, entries, figure, placed, workloads_of
from ...compare.systems import ENTRIES, label, narrow
from .blocks import Block, Bullets, Paragraph, Section, Table, fill, number, section, text
from .caveats import left_out, limits, settings
from .changes import changes
from .conclusions import conclusions
from .curves import rate_curves
from .durable_writes import who_persists
from .published import published
from .servers import servers

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
_RATES = (
    *("", "placement", "durability", "sustained, MB/s", "at most, MB/s"),
    *("write p50, ms", "write p99", "end to end p50, ms", "end to end p99"),
)
_COUNTS = ("records", "missing", "duplicated", "out_of_order", "violations")


def words(summary: dict[str, Any]) -> str:
    """Returns the whole report, ending with a newline."""
    systems = summary["systems"]
    parts = [verification(systems), by_spark(summary["spark"]), *latencies(summary)]
    parts += [
        *resources(summary),
        *servers(summary),
        *rates(systems),
        *rate_curves(summary),
        *who_persists(systems),
        *conclusions(summary),
        *changes(summary),
        *published(systems),
        *settings(summary),
        *left_out(summary),
        limits(summary),
    ]
    title = "\n".join(map(fill, titles(summary)))
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
            f"a durable append of 4 KiB without an engine, timed in the same run: p50 {number(sync['p50'])} ms, "
            f"p99 {number(sync['p99'])} ms"
        )
    if machine["filesystem"] in IN_MEMORY:
        lines.append(
            f"{machine['filesystem']} is memory: a sync costs nothing there, and nothing survives a power loss. "
            "Give --out a folder on a disk."
        )
    lines += load(summary)
    if summary["interrupted"]:
        lines.insert(0, "INTERRUPTED: the report has only the runs that had ended by then")
    return [*lines, *plan["notes"]]


def load(summary: dict[str, Any]) -> list[str]:
    """Returns the load of other work, with a warning where it distorts figures; nothing for results without it."""
    measured = summary["machine"].get("load")
    return [f"{'WARNING: ' if measured['busy'] else ''}{measured['sentence']}"] if measured else []


def warnings(summary: dict[str, Any]) -> list[str]:
    """Returns what makes all figures doubtful: a machine that was busy with other work."""
    return [line for line in load(summary) if line.startswith("WARNING")]


# verification -------------------------------------------------------------------------------------


def verification(systems: dict[str, Any]) -> Section:
    """Returns the numbers of verified records, and all errors, before any figure."""
    totals: dict[str, Counter[str]] = {}
    late = []
    for name, workload, durability, placement, entry in entries(systems):
        if entry["status"] == "interrupted":
            continue
        repeats, sustained = entry["repeats"], entry["sustained_repeats"]
        counts = {count: entry[count] for count in _COUNTS} | {"runs": repeats}
        counts["records"] *= repeats
        totals.setdefault(workload, Counter()).update(counts)
        if entry["status"] == "ok" and entry["verified"] and sustained not in (None, repeats):
            where = _cell(name, workload, durability, placement)
            late.append(f"{where}: {sustained} of {repeats} runs sustained it")
    if not totals:
        return section("Verification", "No run has ended.")
    blocks: list[Block] = [
        "Each run was verified from its store, opened anew: exactly once, in order."
    ]
    if failed := failures(systems):
        blocks = ["NOT all runs verified. These have no figures:", Bullets(failed)]
    columns = ("workload", "runs", "records read", *(c.replace("_", " ") for c in _COUNTS[1:]))
    rows = [(workload, *(of[c] for c in ("runs", *_COUNTS))) for workload, of in totals.items()]
    blocks.append(Table(columns, rows, zero=frozenset(range(3, len(columns)))))
    blocks += _histories(systems)
    if late:
        about = (
            "These runs did not sustain the offered rate. Their generator was late, less than 98 % got through, "
            "or the reader was more than ten seconds behind. No latency is reported where most repeats did not "
            "sustain it. Otherwise the median counts such a repeat as slower than all others."
        )
        blocks.append(Bullets(late, about))
    return section("Verification", *blocks)


def _cell(name: str, workload: str, durability: str, placement: str) -> str:
    return f"{workload}, {label(name)}, durability {durability}, {placement}"


def failures(systems: dict[str, Any]) -> list[str]:
    """Returns each cell without figures and each search that did not verify, with the reason."""
    lines = []
    for *cell, entry in entries(systems):
        if entry["status"] == "failed":
            lines.append(f"{_cell(*cell)}: FAILED: {entry['reason']}")
        elif entry["status"] == "ok" and not entry["verified"]:
            counts = [f"{entry[c]:,} {c.replace('_', ' ')}" for c in _COUNTS[1:] if entry[c]]
            counts += [f"{name} {n:,}" for name, n in entry["violations_by"].items() if n]
            errors = ", ".join(counts) or "the verifier refused it"
            example = "; for example: ".join([errors, *entry["problems"][:1]])
            lines.append(f"{_cell(*cell)}: NOT VERIFIED: {example}")
        for run in entry["rate_search"] or ():
            if not run["verified"]:
                rate = run["rate_mb_s"]
                speed = "as fast as it goes" if rate is None else f"at {rate:g} MB/s"
                lines.append(f"{_cell(*cell)}, {speed}: NOT VERIFIED: {run['problem']}")
    return lines


def by_spark(spark: dict[str, Any]) -> Section:
    """Returns Spark's verdict on the traces."""
    differing = [Bullets(spark["disagreements"])] if spark["disagreements"] else []
    return section("Verification, by Spark", Paragraph(spark_verdict(spark)), *differing)


def spark_verdict(spark: dict[str, Any]) -> str:
    """Puts Spark's verdict in a few sentences."""
    if not spark["ran"]:
        return f"Spark did not run: {spark['why_not']}. The verdicts are those of Python's checker."
    counts = {name: n for check in spark["checks"] for name, n in check["found"].items() if n}
    anomalies = ", ".join(f"{name} {n:,}" for name, n in counts.items()) or "no forbidden anomaly"
    checks = sum(bool(check["rows"]) for check in spark["checks"])
    agrees = {
        True: " It agrees with Python's checker.",
        False: " It does NOT agree with Python's checker.",
    }
    return (
        f"Spark {spark['version']} ({spark['master']}) judged all traces with code of its own: {checks} checks, "
        f"{spark['rows_read']:,} rows, {spark['seconds']:.0f} s. It found {anomalies}."
        f"{agrees.get(spark['agrees_with_python'], '')}"
    )


def _histories(systems: dict[str, Any]) -> list[Block]:
    """Returns how much of the histories was checked, and the anomalies that a system's model allows."""
    checked = Counter[str]()
    allowed: dict[str, Counter[str]] = {}
    for name, *_, entry in entries(systems):
        checked.update(entry["judged"])
        if entry["judged"]:
            allowed.setdefault(name, Counter()).update(entry["allowed_by"])
    if not checked:
        return []
    counts = ", ".join(f"{n:,} {_CHECKED.get(what, what)}" for what, n in checked.items() if n)
    about = f"The checker also judged the histories: {counts}."
    found = dict.fromkeys(what for counter in allowed.values() for what in counter)
    if not found:
        return [Paragraph(about)]
    names = [name for name in systems if name in allowed]
    rows = [(what, *(_allowed(allowed[name], name, what) for name in names)) for what in found]
    about += (
        " It found anomalies that a mode allows, as the product does whose protocol it follows. Where a mode "
        "forbids one, it would be an error."
    )
    columns = ("allowed anomaly", *map(narrow, names))
    return [Paragraph(about), Table(columns, rows, long=("allowed anomaly", *map(label, names)))]


def _allowed(counts: Counter[str], system: str, anomaly: str) -> int | str:
    model = ENTRIES[system].allowed if system in ENTRIES else ()
    return counts[anomaly] if anomaly in model or counts[anomaly] else "forbidden"


_CHECKED = {
    "records": "records in stores",
    "reads": "reads of rows",
    "ranges": "ranges of positions",
    "published": "ranges of offsets",
    "seen": "records that readers got",
}


# the talk's tables --------------------------------------------------------------------------------


def latencies(summary: dict[str, Any]) -> list[Section]:
    """Returns a table for each durability, explained in the first."""
    parts: list[Section] = []
    settings = summary["settings"]
    rate = settings["rate_mb_s"]
    if rate is None and "reshard" in workloads_of(summary["systems"]):
        note = "At full speed no work has a due time, so there is no latency. Use --rate MB/s to get latencies."
        return [section("reshard: no latency at full speed", Paragraph(note))]
    for durability, meaning in DURABILITIES.items():
        entries = list(placed(summary["systems"], "reshard", durability))
        rows = [
            (
                label(name),
                placement,
                *_latency(entry, "write_ms"),
                *_latency(entry, "end_to_end_ms"),
            )
            for name, placement, entry in entries
        ]
        if not rows:
            continue
        about = [f"{durability}: {meaning}."]
        if not parts:
            partitions = max(entry["partitions"] for _, _, entry in entries)
            about.append(
                f"{partitions} partitions, a commit every {settings['commit_interval_s']:g} s. "
                "Write: from when a batch was due until it was durable, staged or in place. "
                "Its meaning differs by system, so write latencies are not ranked. "
                "End to end (e2e): from when a batch was due until a reader of committed records had it. "
                "All figures are medians over repeats."
            )
        columns, long = _latency_columns("ms", "placement")
        table = Table(columns, rows, 2, long)
        title = f"reshard: latency at {rate:g} MB/s, durability {durability}"
        parts.append(section(title, Paragraph(" ".join(about)), table))
    return parts


def _latency_columns(*first: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns headings after the `first`, short and long."""
    names = [percentile.replace("_", ".") for percentile in _PERCENTILES]
    long = (*first, *(f"write {n}" for n in names), *(f"end to end {n}" for n in names))
    return (*first, *names, f"e2e {names[0]}", *names[1:]), long


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
                "tx: with or without transactions. MB/s: payload that got through. disk: MB/s written to disk. "
                "network: MB/s from client to tablet and from tablet to tablet; both are memory here. disk/B: "
                "bytes to disk per byte of payload. memory: the peak of the whole process, in MB."
            )
            blocks.insert(0, about)
        parts.append(section(f"reshard: resources, durability {durability}", *blocks))
    return parts


def rates(systems: dict[str, Any]) -> list[Section]:
    rows = []
    for name, workload, durability, placement, entry in entries(systems):
        if workload == "reshard" and entry["rate_search"]:
            most = [run["throughput_mb_s"] for run in entry["rate_search"] if not run["rate_mb_s"]]
            rate = entry["highest_sustained_mb_s"]
            runs = [(run["rate_mb_s"], run) for run in entry["rate_search"]]
            at_rate = [  # equal up to rounding
                run
                for offered, run in [*runs, (entry["offered_mb_s"], entry)]
                if offered
                and rate
                and run["sustained"]
                and math.isclose(offered, rate, rel_tol=0.005)
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
                "Short runs found these rates, to about a tenth. Sustained: at least 98 % of the offered rate got "
                "through, and the generator was on time. At most: as fast as it goes. Latencies, in ms, are those "
                "at the sustained rate."
            ),
            Table(columns, rows, 3, _RATES),
        )
    ]
