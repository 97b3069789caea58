"""Writes what changed since an earlier comparison: `--baseline`.

Next: ../../compare/baseline.py, which finds it.
"""

from collections.abc import Iterator
from typing import Any

from ...compare.ranking import in_words
from ...compare.systems import label, where
from .blocks import Block, Bullets, Paragraph, Section, Table, number, section

_COLUMNS = ("figure", "then", "now", "now / then", "")


def changes(summary: dict[str, Any]) -> list[Section]:
    """Returns a section; none without a baseline."""
    found = summary.get("since")
    if not found:
        return []
    about = (
        "A figure changed if the intervals [lowest, highest] of its repeats do not overlap, and the medians "
        "differ by 5 %. The repeats of two comparisons are not paired, so this says less than a ratio within one."
    )
    blocks: list[Block] = [Paragraph(f"{in_short(found)} {about}")]
    if found["warnings"]:
        blocks.append(Bullets(found["warnings"], "Compare with care:"))
    if found["verdicts"]:
        lines = [
            f"{one['question']}, durability {one['durability']}: {one['before']} then, {one['now']} now"
            for one in found["verdicts"]
        ]
        blocks.append(Bullets(lines, "Questions in which this engine's standing changed:"))
    blocks += _tables(found["changed"])
    if found["left_out"]:
        lines = [f"{one['what']}: {one['why']}" for one in found["left_out"]]
        blocks.append(Bullets(lines, "Not compared:"))
    return [section("What changed since an earlier comparison", *blocks)]


def _tables(changed: list[dict[str, Any]]) -> Iterator[Block]:
    """Yields a table for each workload and durability."""
    for place in dict.fromkeys((row["workload"], row["durability"]) for row in changed):
        rows = [
            (
                *(_system(row), in_words(row["figure"])),
                *(_interval(row["before"]), _interval(row["now"])),
                *(number(row["ratio"]), row["standing"]),
            )
            for row in changed
            if (row["workload"], row["durability"]) == place
        ]
        yield Table((", ".join(place), *_COLUMNS), rows, left=2)


def in_short(found: dict[str, Any]) -> str:
    """Says in a sentence how many figures changed."""
    changed = found["changed"]
    worse = sum(row["standing"] == "worse" for row in changed)
    return (
        f"Since {found['baseline']} (version {found['planstep']}) {len(changed)} of "
        f"{len(changed) + found['same']} figures changed: "
        f"{len(changed) - worse} better, {worse} worse."
    )


def in_a_line(row: dict[str, Any]) -> str:
    """Says one change, as in "worse: commit latency p50, ms, of SQLite in small, full: 0.8 ─▶ 0.95"."""
    return (
        f"{row['standing']}: {in_words(row['figure'])} of {_system(row)} in {row['workload']}, "
        f"{row['durability']}: {number(row['before']['median'])} ─▶ {number(row['now']['median'])}"
    )


def _system(row: dict[str, Any]) -> str:
    return label(row["system"]) + where(row["system"], row["placement"])


def _interval(of: dict[str, Any]) -> str:
    high = "∞" if of["high"] is None else number(of["high"])
    return f"{number(of['median'])} [{number(of['low'])}, {high}]"
