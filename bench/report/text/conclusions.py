"""Writes the sections of the text report that explain the figures; text_report.py calls this.

    mode_by_placement   workload reshard in its own mode and another one, each in two placements: what causes the
                        difference
    of_workload         each other workload's own figures
    wins                who wins

The modes are this engine's and the one it is set against. The placements: tablets share a host and its fate
(`fate`), or each acts as a server of its own.

Next: ../../compare/ranking.py, which computes who wins; caveats.py, the sections after these.
"""

from collections.abc import Iterator
from typing import Any

from ...compare.curves import PARTS
from ...compare.ranking import (
    DURABILITIES,
    Entry,
    Side,
    figure,
    in_words,
    placed,
    shared_fates,
    sides,
    workloads_of,
)
from ...compare.systems import column, label, modes_among, where
from ...compare.workloads import workload as of
from .blocks import Block, Bullets, Paragraph, Section, Table, number, section
from .curves import by_threads

_IN_WORDS = ("write_ms.p50", "commit_ms.p50", "end_to_end_ms.p50", "end_to_end_ms.p99", "cpu_cores")
"""Figures of the corners that are also put in words."""
_TEXT_MAX = 20
_FIRST = {
    "interval": "The first table has commits every 100 ms, or at the shortest interval that ran. ",
    "small": "The first table has one thread. ",
    "contention": "The first table has the hot consumer, which every system supports. ",
    "held-open": "The first table has the quick transactions. ",
    "plain-beside": "In the first table, write and e2e are of plain writes next to transactions; commit is of the "
    "transactions. ",
}
"""The part of a workload that its first table shows, for workloads with several."""
_COLUMNS = (
    *("", "placement", "MB/s", "tx/s", "cancel."),
    *("write", "p99", "commit", "p99", "e2e", "p99"),
)
_LONG = (
    *("", "placement", "MB/s", "transactions/s", "cancelled", "write p50, ms", "write p99"),
    *("commit p50, ms", "commit p99", "end to end p50, ms", "end to end p99"),
)
_LATENCIES = tuple(
    f"{name}.{p}" for name in ("write_ms", "commit_ms", "end_to_end_ms") for p in ("p50", "p99")
)


def conclusions(summary: dict[str, Any]) -> list[Section]:
    systems = summary["systems"]
    parts = [part for effects in shared_fates(systems) for part in mode_by_placement(effects)]
    for name in workloads_of(systems):
        if name != "reshard":
            parts += of_workload(systems, name)
    return [*parts, wins(summary)]


def mode_by_placement(effects: dict[str, Any]) -> list[Section]:
    parts: list[Section] = []
    both = home, other = sides(effects)
    corners = [corner for side in both for corner in side.corners()]
    short = [f"{side.mode.short} {at}" for side in both for at in ("shared", "sep.")]
    full = [f"{side.mode.style}, {at}" for side in both for at in ("shared", "separate")]
    columns = ("", *short, "protocol", "fate")
    long = ("", *full, "made by the protocol", "made by shared fate")
    for durability in DURABILITIES:
        rows = effects.get(durability)
        if not rows:
            continue
        body = [
            (
                in_words(name),
                *(row[c] for c in corners),
                *(_with_sign(row[c]) for c in ("protocol", "fate")),
            )
            for name, row in rows.items()
        ]
        about = Paragraph(
            f"{home.mode.in_full} and {other.mode.in_full}. shared: a host's tablets share its turns, and their "
            "fate. sep(arate): each tablet acts as a server of its own. protocol: the effect of the mode at the "
            "same placement. fate: the effect of the placement in the same mode. Each is averaged over both "
            f"cases. Their sum is the difference between {other.as_meant()} and {home.as_meant()}. The two other "
            "placements are shorter runs, unless --placement names them."
        )
        known = (name for name in _IN_WORDS if name in rows and rows[name]["difference"])
        sentences = [split(name, rows[name], both) for name in known]
        blocks: list[Block] = [*([] if parts else [about]), Table(columns, body, long=long)]
        blocks += [Bullets(sentences)] if sentences else []
        title = f"reshard: {home.mode.style} and {other.mode.style} × placement"
        parts.append(section(f"{title}, durability {durability}", *blocks))
    return parts


def _with_sign(value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{number(abs(value))}"


def split(name: str, row: dict[str, float], both: tuple[Side, Side]) -> str:
    """Puts a difference in words; in percent only where both parts have the same sign."""
    whole, protocol, fate = row["difference"], row["protocol"], row["fate"]
    home, other = (side.as_meant() for side in both)
    less = "more" if whole > 0 else "less"
    text = f"{in_words(name)}: {other} has {number(abs(whole))} {less} than {home}. "
    if protocol * fate >= 0:
        share = round(100 * protocol / whole)
        return text + f"The protocol makes {share} % of that, shared fate {100 - share} %."
    effects = (
        f"The protocol alone makes {_with_sign(protocol)}, shared fate alone {_with_sign(fate)}: "
    )
    return text + effects + "the effects are opposite."


# the other workloads ------------------------------------------------------------------------------


def of_workload(systems: dict[str, Any], workload: str) -> list[Section]:
    parts: list[Section] = []
    for durability in DURABILITIES:
        entries = list(placed(systems, workload, durability))
        if not entries:
            continue
        rows = [
            (
                *(label(name), placement, entry["throughput_mb_s"]),
                *(entry["transactions_per_second"], entry["cancelled"] or None),
                *(figure(entry, latency) for latency in _LATENCIES),
            )
            for name, placement, entry in entries
        ]
        blocks: list[Block] = [Table(_COLUMNS, rows, left=2, long=_LONG)]
        blocks += [*by_threads(entries), *_extras(entries)]
        if not parts:
            about = of(workload).about
            about = f"{about[0].upper()}{about[1:]}. {_FIRST.get(workload, '')}"
            blocks.insert(0, Paragraph(f"{about}Latencies are in ms, p50 and then p99."))
        parts.append(section(f"{workload}, durability {durability}", *blocks))
    return parts


def _extras(entries: list[tuple[str, str, Entry]]) -> list[Block]:
    """Returns figures of this workload only: a row for each figure, a column for each system, long texts below."""
    twice = len({name for name, _, _ in entries}) < len(entries)
    leaves_by_name = {
        column(name) + f" {placement}" * twice: dict(_leaves(_without_parts(entry["extra"])))
        for name, placement, entry in entries
        if entry["verified"] and entry["extra"]
    }
    names = dict.fromkeys(name for leaves in leaves_by_name.values() for name in leaves)
    rows, notes = [], []
    for name in names:
        values = [leaves.get(name) for leaves in leaves_by_name.values()]
        if name.startswith("published"):
            continue  # it belongs to no system
        if all(not isinstance(value, str) or len(value) <= _TEXT_MAX for value in values):
            rows.append((name, *values))
            continue
        systems: dict[str, list[str]] = {}
        for who, value in zip(leaves_by_name, values, strict=True):
            if value is not None:
                systems.setdefault(number(value), []).append(who)
        notes += [f"{', '.join(all_)}, {name}: {text}" for text, all_ in systems.items()]
    blocks: list[Block] = [Table(("", *leaves_by_name), rows)] if rows else []
    return [*blocks, *([Bullets(notes)] if notes else [])]


def _without_parts(extra: dict[str, Any]) -> dict[str, Any]:
    """Returns the extra figures without those that by_threads shows."""
    return {name: value for name, value in extra.items() if name != PARTS}


def _leaves(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Flattens a tree: {"a": {"b_c": 1}} ─▶ ("a: b c", 1); latencies become p50 and p99."""
    for name, value in tree.items():
        path = f"{above}: {name}" if above else str(name)
        path = path.replace("_", " ")
        if isinstance(value, dict) and "p50" in value:
            yield f"{path} p50, p99", f"{number(value['p50'])}, {number(value['p99'])}"
        elif isinstance(value, dict):
            yield from _leaves(value, path)
        elif isinstance(value, (list, tuple)):
            yield path, ", ".join(map(number, value))
        else:
            yield path, value


def wins(summary: dict[str, Any]) -> Section:
    """Lists, for each workload and durability, a line for each order of systems."""
    who_wins, modes = summary["who_wins"], modes_among(summary["systems"])
    *before, last = (f"{mode.durable} ({mode.style})" for mode in modes)
    about = Paragraph(
        "A rule decides. It compares runs of the same workload and durability that verified and sustained the "
        "rate. A system wins a figure if the ranges over repeats do not overlap and the medians differ by 5 %. "
        "A single run wins nothing; --repeat 3 makes more. Write latencies are not compared, since a durable "
        f"write is then {', '.join(before)} or {last}. The figures follow the order of the names. Where several "
        "systems are in front, the rule cannot rank them."
    )
    if not who_wins:
        return section("Who wins where", about, "By that rule, no system wins.")
    blocks: list[Block] = [about]
    for workload, durability in dict.fromkeys((w["workload"], w["durability"]) for w in who_wins):
        lines, runs = orders(who_wins, workload, durability)
        blocks.append(Bullets(lines, f"{workload}, durability {durability}, {runs} runs each"))
    return section("Who wins where", *blocks)


def orders(who_wins: list[dict[str, Any]], workload: str, durability: str) -> tuple[list[str], int]:
    """Returns a line for each order of systems, and the least number of runs behind it."""
    lines: dict[str, list[str]] = {}
    runs = []
    for won in who_wins:
        if (won["workload"], won["durability"]) == (workload, durability):
            front, rest = (
                " and ".join(
                    label(name) + where(name, won["placements"][name]) for name in won[part]
                )
                for part in ("best", "behind")
            )
            figures = " : ".join(map(number, (*won["best"].values(), *won["behind"].values())))
            line = lines.setdefault(f"{front} before {rest}", [])
            line.append(f"{in_words(won['figure'])} {figures}")
            runs.append(won["runs"])
    return [f"{order}: {'; '.join(texts)}" for order, texts in lines.items()], min(runs, default=0)
