"""Puts curves into tables: offered rate against latency and cost, number of threads against throughput.

    summary["curves"]["rate"]         ─▶ a row for each system and rate
    entry["extra"]["concurrency"]     ─▶ a table for each figure, a column for each number of threads

Next: durable_writes.py.
"""

from collections.abc import Sequence
from typing import Any

from ...compare.curves import PARTS
from ...compare.ranking import DURABILITIES, Entry
from ...compare.systems import label
from .blocks import Block, Paragraph, Section, Table, section

_RATE = ("", "placement", "MB/s", "e2e p50", "p99", "commit", "CPU ms", "syncs", "bytes")
_RATE_LONG = (
    *("", "placement", "offered, MB/s", "end to end p50, ms", "end to end p99", "commit p50, ms"),
    *("CPU, ms a transaction", "syncs a transaction", "disk bytes per payload byte"),
)
_THREADS = (
    ("transactions a second", ("transactions_per_second",)),
    ("a whole transaction p50, ms", ("done_ms", "p50")),
    ("a whole transaction p99, ms", ("done_ms", "p99")),
    ("CPU of one, ms", ("cpu_ms",)),
    ("disk bytes of one", ("disk_bytes",)),
    ("syncs of one", ("syncs",)),
)


def rate_curves(summary: dict[str, Any]) -> list[Section]:
    """Returns a section for each durability at which rates were searched."""
    about = Paragraph(
        "The runs of the search for the highest rate, by rate; one without latencies was not sustained. CPU ms and "
        "syncs are of a transaction, which holds what a worker gets in a commit interval. Bytes are those on the "
        "disk for each byte of payload."
    )
    sections: list[Section] = []
    for durability in DURABILITIES:
        rows = [
            (
                *(label(curve["system"]), curve["placement"], point["rate_mb_s"]),
                *(_at(point, "end_to_end_ms", "p50"), _at(point, "end_to_end_ms", "p99")),
                *(_at(point, "commit_ms", "p50"), point["cpu_ms_per_transaction"]),
                *(point["syncs_per_transaction"], point["disk_bytes_per_payload_byte"]),
            )
            for curve in summary["curves"]["rate"]
            if curve["durability"] == durability
            for point in curve["points"]
        ]
        if rows:
            table = Table(_RATE, rows, left=2, long=_RATE_LONG)
            blocks: list[Block] = [table] if sections else [about, table]
            sections.append(section(f"reshard: curves, durability {durability}", *blocks))
    return sections


def by_threads(entries: Sequence[tuple[str, str, Entry]]) -> list[Table]:
    """Returns a table for each figure, where a workload has parts that differ in their threads."""
    rows = [
        (label(name), placement, entry["extra"][PARTS])
        for name, placement, entry in entries
        if entry["verified"] and PARTS in entry["extra"]
    ]
    if not rows:
        return []
    threads = list(rows[0][2])
    return [
        Table(
            (words, "placement", *(f"{count} thr." for count in threads)),
            [
                (name, at, *(_at(parts.get(count, {}), *path) for count in threads))
                for name, at, parts in rows
            ],
            left=2,
            long=(words, "placement", *(_threads(count) for count in threads)),
        )
        for words, path in _THREADS
    ]


def _threads(count: str) -> str:
    return "1 thread" if count == "1" else f"{count} threads"


def _at(tree: dict[str, Any], *path: str) -> Any:
    """Returns what is there; None if anything on the way is missing."""
    found: Any = tree
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found
