"""Explains a summary's figures: the 2 × 2 of mode and placement, each workload's own figures, who wins.

Next: ../../compare/ranking.py, which ranks; caveats.py.
"""

from collections.abc import Iterator
from typing import Any

from ...compare.ranking import (
    DURABILITIES,
    Entry,
    Side,
    figure,
    in_words,
    placed,
    sides,
    workloads_of,
)
from ...compare.systems import MODES, column, label, where
from ...compare.workloads import workload as of
from . import published_figures
from .blocks import Block, Bullets, Paragraph, Section, Table, number, section

_SAID = ("write_ms.p50", "commit_ms.p50", "end_to_end_ms.p50", "end_to_end_ms.p99", "cpu_cores")
"""Figures of the corners that are also put in words."""
_TEXT_MAX = 20
_FIRST = {
    "interval": "First of commits every 100 ms, or of the shortest interval there was time for. ",
    "transfer": "First of the few. ",
    "contention": "First of the hot consumer, which every system has. ",
    "held-open": "First of the quick ones. ",
    "plain-beside": "First the plain writes beside transactions (write, e2e), and the transactions "
    "(commit). ",
}
"""The part of a workload that its first table shows, for workloads with several."""
_LONG = (
    "",
    "placement",
    "MB/s",
    "transactions/s",
    "cancelled",
    "write p50, ms",
    "write p99",
    "commit p50, ms",
    "commit p99",
    "end to end p50, ms",
    "end to end p99",
)


def conclusions(summary: dict[str, Any]) -> list[Section]:
    systems = summary["systems"]
    parts = mode_by_placement(summary["shared_fate"])
    for name in workloads_of(systems):
        if name != "reshard":
            parts += of_workload(systems, name)
    return [*parts, wins(summary["who_wins"])]


def mode_by_placement(fate: dict[str, Any] | None) -> list[Section]:
    parts: list[Section] = []
    both = home, other = sides(fate)
    corners = [corner for side in both for corner in side.corners()]
    short = [f"{side.mode.short} {at}" for side in both for at in ("shared", "sep.")]
    full = [f"{side.mode.style}, {at}" for side in both for at in ("shared", "separate")]
    columns = ("", *short, "protocol", "fate")
    long = ("", *full, "made by the protocol", "made by shared fate")
    for durability in DURABILITIES:
        rows = (fate or {}).get(durability)
        if not rows:
            continue
        body = [
            (
                in_words(name),
                *(row[c] for c in corners),
                _signed(row["protocol"]),
                _signed(row["fate"]),
            )
            for name, row in rows.items()
        ]
        about = Paragraph(
            f"{home.mode.in_full} and {other.mode.in_full}. shared: a host's tablets share its turns, and their "
            "fate; sep(arate): each stands for a server of its own. protocol: the other mode in the same "
            "place; fate: the other place in the same mode; each averaged over both. Together they are "
            f"what {other.as_meant()} has more than {home.as_meant()}. The two others are shorter "
            "runs, if not asked for."
        )
        sentences = [
            split(name, rows[name], both)
            for name in _SAID
            if name in rows and rows[name]["difference"]
        ]
        blocks: list[Block] = [*([] if parts else [about]), Table(columns, body, long=long)]
        blocks += [Bullets(sentences)] if sentences else []
        parts.append(section(f"reshard: mode × placement, durability {durability}", *blocks))
    return parts


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{number(abs(value))}"


def split(name: str, row: dict[str, float], both: tuple[Side, Side]) -> str:
    """Puts a difference in words; in percent only where both parts have the same sign."""
    whole, protocol, fate = row["difference"], row["protocol"], row["fate"]
    home, other = (side.as_meant() for side in both)
    less = "more" if whole > 0 else "less"
    said = f"{in_words(name)}: {other} has {number(abs(whole))} {less} than {home}; "
    if protocol * fate >= 0:
        share = round(100 * protocol / whole)
        return said + f"{share} % of that is protocol, {100 - share} % shared fate."
    return said + (
        f"protocol alone makes {_signed(protocol)}, shared fate alone {_signed(fate)}: they pull in "
        "opposite directions."
    )


# the other workloads ------------------------------------------------------------------------------


def of_workload(systems: dict[str, Any], workload: str) -> list[Section]:
    parts: list[Section] = []
    columns = (
        "",
        "placement",
        "MB/s",
        "tx/s",
        "cancel.",
        "write",
        "p99",
        "commit",
        "p99",
        "e2e",
        "p99",
    )
    for durability in DURABILITIES:
        shown = list(placed(systems, workload, durability))
        if not shown:
            continue
        rows = [
            (
                *(label(name), placement, entry["throughput_mb_s"]),
                *(entry["transactions_per_second"], entry["cancelled"] or None),
                *(figure(entry, f"write_ms.{p}") for p in ("p50", "p99")),
                *(figure(entry, f"commit_ms.{p}") for p in ("p50", "p99")),
                *(figure(entry, f"end_to_end_ms.{p}") for p in ("p50", "p99")),
            )
            for name, placement, entry in shown
        ]
        blocks: list[Block] = [Table(columns, rows, left=2, long=_LONG), *_extras(shown)]
        if not parts:
            blocks.insert(0, Paragraph(_about(workload)))
        if workload == "interval":
            blocks.append(Paragraph(f"Published, on other hardware: {published_figures.INTERVAL}."))
        parts.append(section(f"{workload}, durability {durability}", *blocks))
    return parts


def _about(workload: str) -> str:
    about = of(workload).about
    return f"{about[0].upper()}{about[1:]}. {_FIRST.get(workload, '')}Latencies, ms: p50, then p99."


def _extras(shown: list[tuple[str, str, Entry]]) -> list[Block]:
    """Returns figures of this workload only: a row for each figure, a column for each system, long texts below."""
    twice = len({name for name, _, _ in shown}) < len(shown)
    found = [
        (
            f"{column(name)} {placement}" if twice else column(name),
            dict(_leaves(entry["extra"])),
        )
        for name, placement, entry in shown
        if entry["verified"] and entry["extra"]
    ]
    names = dict.fromkeys(name for _, leaves in found for name in leaves)
    rows, notes = [], []
    for name in names:
        values = [leaves.get(name) for _, leaves in found]
        long = [value for value in values if isinstance(value, str) and len(value) > _TEXT_MAX]
        if name.startswith("published"):
            continue  # it belongs to no system
        if not long:
            rows.append((name, *values))
            continue
        said: dict[str, list[str]] = {}
        for (who, _), value in zip(found, values, strict=True):
            if value is not None:
                said.setdefault(number(value), []).append(who)
        notes += [f"{', '.join(all_)}, {name}: {text}" for text, all_ in said.items()]
    blocks: list[Block] = [Table(("", *(who for who, _ in found)), rows)] if rows else []
    return [*blocks, *([Bullets(notes)] if notes else [])]


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


def wins(who_wins: list[dict[str, Any]]) -> Section:
    """Lists, for each workload and durability, a line for each order of systems."""
    *before, last = (f"{mode.durable} ({mode.style})" for mode in MODES)
    about = Paragraph(
        "By rule: same workload, same durability, verified, rate sustained; ranges over repeats do not "
        "overlap and medians are 5 % apart. A single run wins nothing: --repeat 3 makes more. Write latencies "
        f"are not compared: what is durable then is {', '.join(before)} or {last}. "
        "Figures in the order of the names; several in front: no telling them apart."
    )
    if not who_wins:
        return section("Who wins where", about, "Nobody, by that rule.")
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
            said = f"{in_words(won['figure'])} {figures}"
            lines.setdefault(f"{front} before {rest}", []).append(said)
            runs.append(won["runs"])
    return [f"{order}: {'; '.join(said)}" for order, said in lines.items()], min(runs, default=0)
