"""Writes what the servers of peers took: to start, to warm, and in memory. Next: blocks.py."""

from typing import Any

from ...compare.systems import label
from .blocks import Bullets, Paragraph, Section, Table, section

_COLUMNS = ("", "dur.", "version", "start, s", "warm, s", "transactions", "memory, MB")
_LONG = (
    *("", "durability", "version", "to start, s", "to warm, s"),
    *("transactions until warm", "memory at its end, MB"),
)
_FIGURES = ("durability", "version", "start_s", "warm_s", "warm_transactions", "memory_mb")


def servers(summary: dict[str, Any]) -> list[Section]:
    """Returns a table of the servers that ran, and those that did not start; nothing without any server."""
    kept = summary.get("servers") or []
    if not kept:
        return []
    rows = [(label(one["name"]), *(one.get(name) for name in _FIGURES)) for one in kept]
    failed = [
        f"{label(one['name'])}, durability {one['durability']}: {one['failed']}"
        for one in kept
        if one.get("failed")
    ]
    about = (
        "A server is started and warmed once, and kept for all runs. Start: until its first answer. Warm: until "
        "its latency is level. The runs' figures leave both out."
    )
    notes = [Bullets(failed, "These did not start:")] if failed else []
    return [section("Servers of peers", Paragraph(about), Table(_COLUMNS, rows, 3, _LONG), *notes)]
