"""Writes the few lines that `planstep compare` prints at its end; text_report.py has all the rest.

    head      runs, time, machine; what did not verify; a warning where the machine was busy
    middle    a verdict for each question; without verdicts, each system's medians; what was left out
    end       where the report is, how to repeat the comparison, how to see everything

The middle takes as many blocks as there is room for, the most important first, and counts the others.

Next: text_report.py.
"""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...compare.options import ComparisonOptions
from ...compare.progress import in_minutes
from ...compare.ranking import DURABILITIES, figure, placed, workloads_of
from ...compare.result_folder import REPORT, RESULTS
from ...compare.summary import settings
from ...compare.systems import label
from .blocks import WIDTH, Bullets, Table, fill, plain, shell
from .caveats import command, left_out
from .changes import in_a_line, in_short
from .text_report import failures, spark_verdict, warnings

LINES = 25
_FAILURES_MAX = 4
_STANDINGS = {"first": "ahead", "level": "level", "unclear": "unclear", "behind": "behind"}
"""The standing of this engine, in a word."""
_MARGIN = 8
_COLUMNS = ("", "placement", "MB/s", "tx/s", "commit p50", "p99", "end to end p50", "p99")
_FIGURES = (
    *("throughput_mb_s", "transactions_per_second"),
    *("commit_ms.p50", "commit_ms.p99", "end_to_end_ms.p50", "end_to_end_ms.p99"),
)
_DEFAULTS = settings(ComparisonOptions())
Block = Sequence[str]
"""Lines that stand together."""


def terminal(summary: dict[str, Any], out: Path | None) -> str:
    """Returns LINES lines at most, of WIDTH, ending with a newline; `out` is the folder of the results, or None."""
    head, end = _head(summary, out is not None), _end(summary, out)
    middle = _fitting(list(_middle(summary)), LINES - len(head) - len(end) - 2)
    return "\n\n".join("\n".join(part) for part in (head, middle, end) if part) + "\n"


def _fitting(blocks: list[Block], room: int) -> list[str]:
    """Returns the lines of the first blocks that fit, and how many blocks are left out."""
    lines: list[str] = []
    for n, block in enumerate(blocks):
        follows = n < len(blocks) - 1
        if len(lines) + len(block) + follows > room:
            return [*lines, f"… and {len(blocks) - n} more: --details"] if room > 0 else []
        lines += block
    return lines


# the head -----------------------------------------------------------------------------------------


def _head(summary: dict[str, Any], kept: bool) -> list[str]:
    plan, machine = summary["plan"], summary["machine"]
    verified = " verified" if summary["verified"] and plan["done"] else ""
    missing = plan["cells"] - plan["done"]
    left = f" ({missing} were left out)" if missing and not summary["interrupted"] else ""
    of = "" if left else f" of {plan['cells']}"
    texts = [
        f"{'INTERRUPTED: ' * summary['interrupted']}planstep compare: {plan['done']}{of} runs"
        f"{verified}{left} in {in_minutes(summary['seconds'])}, on {machine['cpus']} × {machine['cpu_model']}, "
        f"{machine['filesystem'] or 'unknown file system'}"
    ]
    if failed := failures(summary["systems"]):
        texts.append("NOT all runs verified. These have no figures:")
        texts += [f"- {line}" for line in failed[:_FAILURES_MAX]]
        if len(failed) > _FAILURES_MAX:
            texts.append(f"- and {len(failed) - _FAILURES_MAX} more: --details")
    spark = summary["spark"]
    if spark["ran"] or kept:
        texts += [spark_verdict(spark), *(f"- {line}" for line in spark["disagreements"][:1])]
    texts += warnings(summary)
    return [line for text in texts for line in fill(_at_most_two_lines(text)).splitlines()]


def _at_most_two_lines(text: str) -> str:
    return textwrap.shorten(text, 2 * WIDTH - 15, placeholder=" …")


# the middle ---------------------------------------------------------------------------------------


def _middle(summary: dict[str, Any]) -> Iterator[Block]:
    verdicts = [one for one in summary["verdicts"] if one["standing"] in _STANDINGS]
    if verdicts:
        yield from _verdicts(verdicts)
    else:
        yield from _medians(summary["systems"])
    ran = workloads_of(summary["systems"])
    for one in summary["verdicts"]:
        if one["standing"] not in _STANDINGS and one["workload"] in ran:
            asked = f"{one['words']} Durability {one['durability']}: {one['sentence']}"
            yield fill(asked, " " * _MARGIN, "–".ljust(_MARGIN)).splitlines()
    if summary["since"]:
        yield from _changes(summary["since"])
    yield from (fill(note, "  ", "- ").splitlines() for note in summary["plan"]["notes"])
    for section in left_out(summary):
        for block in section.blocks:
            if isinstance(block, Bullets):
                yield from (fill(line, "  ", "- ").splitlines() for line in block.lines)


def _verdicts(verdicts: list[dict[str, Any]]) -> Iterator[Block]:
    """Yields the sentences of the first durability, and a line for each other one."""
    by_durability: dict[str, list[dict[str, Any]]] = {}
    for one in verdicts:
        by_durability.setdefault(one["durability"], []).append(one)
    (first, own), *others = by_durability.items()
    about = f"Durability {first}: {DURABILITIES[first]}. "
    about += "First word: this engine's standing. A ratio is that of the median round."
    yield fill(about).splitlines()
    for one in own:
        standing = f"{_STANDINGS[one['standing']]:<{_MARGIN}}"
        yield fill(one["sentence"], " " * _MARGIN, standing).splitlines()
    for durability, those in others:
        parts = [
            f"{word} in {', '.join(asked)}"
            for standing, word in _STANDINGS.items()
            if (asked := [one["question"] for one in those if one["standing"] == standing])
        ]
        yield fill(f"Durability {durability}: {'; '.join(parts)}.").splitlines()


def _medians(systems: dict[str, Any]) -> Iterator[Block]:
    """Yields a table for each workload and durability that has figures."""
    for workload in workloads_of(systems):
        for durability in DURABILITIES:
            rows = [
                (label(name), placement, *(figure(entry, name_) for name_ in _FIGURES))
                for name, placement, entry in placed(systems, workload, durability)
                if entry["verified"]
            ]
            if rows:
                columns = (f"{workload}, {durability}", *_COLUMNS[1:])
                yield plain(Table(columns, rows, left=2)).splitlines()


def _changes(since: dict[str, Any]) -> Iterator[Block]:
    """Yields how many figures changed, then the largest changes, those for the worse first."""
    doubts = " Compare with care: --details says why." if since["warnings"] else ""
    yield fill(in_short(since) + doubts).splitlines()
    for row in since["changed"]:
        yield fill(in_a_line(row), "  ", "- ").splitlines()


# the end ------------------------------------------------------------------------------------------


def _end(summary: dict[str, Any], out: Path | None) -> list[str]:
    page = summary["report"]["html"]
    if out is None:
        where = "Nothing was kept: --out DIR keeps a report with drawings. --details prints every figure."
    else:
        rest = f"--details, or {REPORT} there"
        where = f"Report: {out / (page or RESULTS)}\nEvery figure: {rest}"  # a path is never broken
    again = shell(command(summary["settings"], _DEFAULTS))
    return [*where.splitlines(), "To repeat the comparison:", *again.splitlines()]
