"""A comparison in words, from its summary alone: text that reads well at 100 columns.

    verification first │ latency and resources beside the talk's │ who persists what │ mode × placement
    the other workloads │ who wins where │ settings │ what was not possible │ what this cannot show

Durability full and os never meet in a table. A figure that is not there is "–": its run did not verify, or the
rate was not sustained, and the text says which. All has been measured here, but for what is marked as published.

Next: layout.py; published.py.
"""

from collections.abc import Iterator
from typing import Any

from . import published
from .judging import Entry, at_headline, figure, in_words, workloads_of
from .layout import bullets, number, paragraph, section, table
from .machine import IN_MEMORY
from .systems import LABELS

_PERCENTILES = ("p50", "p95", "p99", "p99_9")
_DURABILITIES = {
    "full": "acknowledged when it is on the disk",
    "os": "acknowledged when the operating system has it: a power loss loses it",
}
_COUNTS = ("records", "missing", "duplicated", "out_of_order", "violations")


def words(summary: dict[str, Any]) -> str:
    """All of it, with a line end behind."""
    systems = summary["systems"]
    parts = [_title(summary), *_verification(systems)]
    for durability in _DURABILITIES:
        parts += _latencies(summary, durability)
    for durability in _DURABILITIES:
        parts += _resources(summary, durability)
    parts += _rates(systems)
    parts += _who_persists(systems)
    parts += _fate(summary["shared_fate"])
    for name in workloads_of(systems):
        if name != "reshard":
            parts += _workload(systems, name)
    parts += _wins(summary["who_wins"])
    parts += [*_settings(summary), *_left_out(summary), _limits(summary)]
    return "\n\n".join(parts) + "\n"


def _title(summary: dict[str, Any]) -> str:
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
    if summary["interrupted"]:
        lines.insert(0, "INTERRUPTED: what follows is of the runs that had ended by then")
    return "\n".join(paragraph(line) for line in [*lines, *plan["notes"]])


# verification -------------------------------------------------------------------------------------


def _entries(systems: dict[str, Any]) -> Iterator[tuple[str, str, str, str, Entry]]:
    for name, by_workload in systems.items():
        for workload, by_durability in by_workload.items():
            for durability, placed in by_durability.items():
                for placement, entry in placed.items():
                    yield name, workload, durability, placement, entry


def _verification(systems: dict[str, Any]) -> list[str]:
    """What was read back, and whatever was not as it should be, before any figure."""
    totals: dict[str, list[int]] = {}
    bad, late = [], []
    for name, workload, durability, placement, entry in _entries(systems):
        where = f"{workload}, {_label(name)}, durability {durability}, {placement}"
        total = totals.setdefault(workload, [0] * (1 + len(_COUNTS)))
        total[0] += entry["repeats"]
        total[1] += entry["records"] * entry["repeats"]
        for n, count in enumerate(_COUNTS[1:], 2):
            total[n] += entry[count]
        if entry["status"] == "failed":
            bad.append(f"{where}: FAILED: {entry['reason']}")
        elif entry["status"] == "ok" and not entry["verified"]:
            bad.append(f"{where}: NOT VERIFIED, no figures: {_wrong(entry)}")
            bad += [f"    {problem}" for problem in entry["problems"][:5]]
        elif entry["sustained"] is False:
            late.append(where)
    if not totals:
        return [section("Verification", "Nothing ran to its end.")]
    verdict = (
        "NOT all runs verified. Those below have no figures:"
        if bad
        else "Each run was verified from its store, opened anew: exactly once, in order."
    )
    columns = ("workload", "runs", "records read", *(c.replace("_", " ") for c in _COUNTS[1:]))
    blocks = [verdict, *([bullets(bad)] if bad else [])]
    blocks.append(table(columns, [(workload, *total) for workload, total in totals.items()]))
    if late:
        blocks.append(
            paragraph(
                "Rate not sustained (generator late, or less than 98 % of it): no latencies of"
            )
            + "\n"
            + bullets(late)
        )
    return [section("Verification", *blocks)]


def _wrong(entry: Entry) -> str:
    counts = [f"{entry[c]:,} {c.replace('_', ' ')}" for c in _COUNTS[1:] if entry[c]]
    counts += [f"{name} {count:,}" for name, count in entry["violations_by"].items() if count]
    return ", ".join(counts) or "the verifier said no"


# the talk's tables --------------------------------------------------------------------------------


def _placed(
    systems: dict[str, Any], workload: str, durability: str
) -> Iterator[tuple[str, str, Entry]]:
    """(system, placement, entry), all that ran to its end."""
    for name, by_workload in systems.items():
        for placement, entry in by_workload.get(workload, {}).get(durability, {}).items():
            if entry["status"] == "ok":
                yield name, placement, entry


def _latencies(summary: dict[str, Any], durability: str) -> list[str]:
    rows: list[tuple[Any, ...]] = [
        (_label(name), placement, *_latency(entry, "write_ms"), *_latency(entry, "end_to_end_ms"))
        for name, placement, entry in _placed(summary["systems"], "reshard", durability)
    ]
    if not rows:
        return []
    settings = summary["settings"]
    rows += [(name, "", *write, *end) for name, write, end in published.LATENCIES]
    shown = [percentile.replace("_", ".") for percentile in _PERCENTILES]
    columns = ("ms", "placement", *shown, *(f"e2e {name}" for name in shown))
    rate = settings["rate_mb_s"]
    return [
        section(
            f"reshard: latency at {'full speed' if rate is None else f'{rate:g} MB/s'}, "
            f"durability {durability}",
            paragraph(
                f"{settings['partitions']} partitions, a commit every {settings['commit_interval_s']:g} s; "
                f"{_DURABILITIES[durability]}. Write: from when a batch was due to when it was durable, "
                "on the side or in place. End to end (e2e): from when it was due to its receipt by a "
                "reader of committed records. Medians over repeats."
            ),
            table(columns, rows, left=2),
            paragraph(f"{published.HARDWARE}; at {published.RATE}."),
        )
    ]


def _latency(entry: Entry, name: str) -> list[float | None]:
    return [figure(entry, f"{name}.{percentile}") for percentile in _PERCENTILES]


def _resources(summary: dict[str, Any], durability: str) -> list[str]:
    rows: list[tuple[Any, ...]] = []
    for workload, transactions in (("reshard", "with"), ("plain", "without")):
        for name, placement, entry in _placed(summary["systems"], workload, durability):
            if entry["verified"]:
                rows.append(
                    (
                        *(_label(name), placement, transactions, entry["throughput_mb_s"]),
                        *(entry["cpu_cores"], entry["disk_mb_s"], entry["network_mb_s"]),
                        *(entry["disk_bytes_per_payload_byte"], entry["memory_peak_mb"]),
                    )
                )
    if not rows:
        return []
    columns = ("", "placement", "tx", "MB/s", "cores", "disk", "network", "disk/B", "memory")
    talk = [
        (name, kind, cores, disk, into, out)
        for name, kind, cores, disk, into, out in published.RESOURCES
    ]
    return [
        section(
            f"reshard: resources, durability {durability}",
            paragraph(
                "tx: with or without transactions. MB/s of payload through; CPU cores; MB/s to disk and "
                "over links (client to tablet, tablet to tablet; both are memory here); bytes to disk "
                "per byte of payload; MB of memory at its most, all of it one process."
            ),
            table(columns, rows, left=3),
            paragraph(
                f"For scale, at {published.RESOURCES_RATE}, of all hosts. {published.HARDWARE}."
            ),
            table(("", "tx", "cores", "disk", "network in", "network out"), talk, left=2),
        )
    ]


def _rates(systems: dict[str, Any]) -> list[str]:
    rows = []
    for name, workload, durability, placement, entry in _entries(systems):
        if workload == "reshard" and entry["rate_search"]:
            most = [run["throughput_mb_s"] for run in entry["rate_search"] if not run["rate_mb_s"]]
            rate = entry["highest_sustained_mb_s"]
            rows.append(
                (_label(name), placement, durability, rate, *most[:1], len(entry["rate_search"]))
            )
    if not rows:
        return []
    columns = ("MB/s", "placement", "durability", "sustained", "as fast as it goes", "runs")
    return [
        section(
            "reshard: highest sustained rate",
            paragraph(
                "Found in short runs, to about a tenth. Sustained: at least 98 % of what was offered got "
                "through, and the generator was on time."
            ),
            table(columns, rows, left=3),
        )
    ]


def _who_persists(systems: dict[str, Any]) -> list[str]:
    """By count: durable changes a transaction, from the headline runs (spread ones, if asked for)."""
    counted = [
        (name, entry)
        for durability in ("full", "os")
        for name, entry in at_headline(systems, "reshard", durability)
        if entry["steps"]
    ]
    shown: dict[str, Entry] = {}
    for name, entry in counted:
        shown.setdefault(name, entry)
    if not shown:
        return []
    causes = list(dict.fromkeys(cause for entry in shown.values() for cause in entry["steps"]))
    rows = [
        (cause, *(entry["steps"].get(cause) for entry in shown.values()))
        for cause in sorted(causes)
    ]
    total = ("in all", *(sum(entry["steps"].values()) for entry in shown.values()))
    return [
        section(
            "reshard: who persists what, by count",
            "Durable changes a transaction, by who makes them and why.",
            table(("", *map(_label, shown)), [*rows, total]),
            "The talk's table of the same, published:",
            table(("", "Kafka", "YDB"), published.WHO_PERSISTS, left=3),
        )
    ]


def _fate(fate: dict[str, Any] | None) -> list[str]:
    if not fate:
        return []
    parts = []
    for durability in _DURABILITIES:
        rows = fate.get(durability)
        if not rows:
            continue
        columns = ("", "det. shared", "det. sep.", "kafka shared", "kafka sep.", "protocol", "fate")
        corners = (
            "deterministic_shared",
            "deterministic_separate",
            "kafka_shared",
            "kafka_separate",
        )
        body = [
            (
                in_words(name),
                *(row[c] for c in corners),
                _signed(row["protocol"]),
                _signed(row["fate"]),
            )
            for name, row in rows.items()
        ]
        parts.append(
            section(
                f"reshard: mode × placement, durability {durability}",
                paragraph(
                    "shared: a host's tablets share its turns, and their fate; sep(arate): each stands for "
                    "a server of its own. protocol: the other mode in the same place; fate: the other "
                    "place in the same mode; each averaged over both, together they are kafka-style "
                    "separate less deterministic shared."
                ),
                table(columns, body),
                bullets(_split(name, row) for name, row in rows.items() if row["difference"]),
            )
        )
    return parts


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{number(abs(value))}"


def _split(name: str, row: dict[str, float]) -> str:
    """In words; in percent only where both pull in one direction."""
    whole, protocol, fate = row["difference"], row["protocol"], row["fate"]
    less = "more" if whole > 0 else "less"
    said = f"{in_words(name)}: kafka-style separate has {number(abs(whole))} {less} than deterministic shared; "
    if protocol * fate >= 0:
        share = round(100 * protocol / whole)
        return said + f"{share} % of that is protocol, {100 - share} % shared fate."
    return said + (
        f"protocol alone makes {_signed(protocol)}, shared fate alone {_signed(fate)}: they pull in "
        "opposite directions."
    )


# the other workloads ------------------------------------------------------------------------------


def _workload(systems: dict[str, Any], workload: str) -> list[str]:
    parts = []
    for durability in _DURABILITIES:
        rows, extras = [], []
        for name, placement, entry in _placed(systems, workload, durability):
            rows.append(
                (
                    *(_label(name), placement, entry["throughput_mb_s"]),
                    *(entry["transactions_per_second"], entry["cancelled"] or None),
                    *(figure(entry, f"write_ms.{p}") for p in ("p50", "p99")),
                    *(figure(entry, f"commit_ms.{p}") for p in ("p50", "p99")),
                    *(figure(entry, f"end_to_end_ms.{p}") for p in ("p50", "p99")),
                )
            )
            if entry["verified"] and entry["extra"]:
                extras.append(f"{_label(name)}, {placement}: {_flat(entry['extra'])}")
        if rows:
            columns = ("", "placement", "MB/s", "tx/s", "cancel.", "write", "p99", "commit", "p99")
            blocks = [table((*columns, "e2e", "p99"), rows, left=2)]
            if extras:
                blocks.append(bullets(extras))
            if workload == "interval":
                blocks.append(paragraph(f"Published, on other hardware: {published.INTERVAL}."))
            parts.append(section(f"{workload}, durability {durability}", *blocks))
    return parts


def _flat(tree: dict[str, Any]) -> str:
    """{"a": {"b": 1}, "c": 2} ─▶ "a (b 1), c 2"."""
    return ", ".join(
        f"{str(name).replace('_', ' ')} ({_flat(value)})"
        if isinstance(value, dict)
        else f"{str(name).replace('_', ' ')} {number(value)}"
        for name, value in tree.items()
    )


# conclusions --------------------------------------------------------------------------------------


def _wins(who_wins: list[dict[str, Any]]) -> list[str]:
    about = paragraph(
        "By rule: same workload, same durability, verified, rate sustained; ranges over repeats do not "
        "overlap, or single runs are a fifth apart. Several names in front: no telling them apart."
    )
    if not who_wins:
        return [section("Who wins where", about, "Nobody, by that rule.")]
    blocks = [about]
    for workload, durability in dict.fromkeys((w["workload"], w["durability"]) for w in who_wins):
        sentences = [
            won["sentence"]
            for won in who_wins
            if (won["workload"], won["durability"]) == (workload, durability)
        ]
        blocks.append(f"{workload}, durability {durability}\n" + bullets(sentences))
    return [section("Who wins where", *blocks)]


def _settings(summary: dict[str, Any]) -> list[str]:
    """Each system's, Kafka's default beside; from its first entry that has them."""
    blocks = [paragraph(_flat({k: v for k, v in summary["settings"].items() if v is not None}))]
    for name, by_workload in summary["systems"].items():
        listed = next(
            (
                placed["settings"]
                for by_durability in by_workload.values()
                for by_placement in by_durability.values()
                for placed in by_placement.values()
                if placed["settings"]
            ),
            None,
        )
        if listed:
            rows = [(s["name"], s["value"], s["kafka_name"], s["kafka_default"]) for s in listed]
            columns = (_label(name), "here", "Kafka's name", "Kafka's default")
            blocks.append(table(columns, rows, left=4))
    return [section("Settings", *blocks)]


def _left_out(summary: dict[str, Any]) -> list[str]:
    said: dict[str, None] = {
        f"{workload}, {_label(name)}: {entry['reason']}": None
        for name, workload, _, _, entry in _entries(summary["systems"])
        if entry["status"] == "impossible"
    }
    said |= {f"{left['what']}: {left['why']}": None for left in summary["plan"]["left_out"]}
    return [section("What was not possible, or left out", bullets(said))] if said else []


def _limits(summary: dict[str, Any]) -> str:
    rtt = summary["settings"]["rtt_ms"]
    network = (
        f"There is no network: a wait of {rtt:g} ms there and back stands for it, of any number of bytes."
        if rtt
        else "There is no network: a message costs no time. --rtt MS gives it some."
    )
    return section(
        "What this cannot show",
        bullets(
            [
                f"{LABELS['kafka']} follows Kafka's protocol, states and client rules in this engine; it "
                "is not Kafka. It says something about the protocol, nothing about Kafka's brokers.",
                "One machine, one disk, no replicas: nothing here is about scaling or fail-over.",
                network,
                "All of it is Python, generator and readers included, and they share the processors "
                "with the system under test: ratios say more than absolute figures.",
                "Seconds, not days: no growth over time, no compaction of weeks of data.",
            ]
        ),
    )


def _label(name: str) -> str:
    return LABELS.get(name, name)
