"""Writes the published figures, from other hardware, in sections of their own: no table has both kinds.

    reshard ran    the talk's latencies, resources, who persists what
    interval ran   what a commit interval costs, as Confluent has published it

Next: published_figures.py.
"""

from typing import Any

from ...compare.ranking import workloads_of
from . import published_figures as talk
from .blocks import Paragraph, Section, Table, section

_LATENCY = (
    *("ms", "write p50", "write p95", "write p99", "write p99.9"),
    *("end to end p50", "end to end p95", "end to end p99", "end to end p99.9"),
)
_LATENCY_SHORT = ("ms", "p50", "p95", "p99", "p99.9", "e2e p50", "p95", "p99", "p99.9")
_RESOURCES = (
    "",
    "transactions",
    "CPU cores",
    "disk, MB/s",
    "network in, MB/s",
    "network out, MB/s",
)
_RESOURCES_SHORT = ("", "tx", "cores", "disk", "network in", "network out")
_DIFFERS = "Do not compare these figures with those measured here, since the hardware differs."


def published(systems: dict[str, Any]) -> list[Section]:
    """Returns the published figures of the workloads that ran."""
    ran = workloads_of(systems)
    sections = [_latencies(), _resources(), _who()] if "reshard" in ran else []
    return [*sections, *([_interval()] if "interval" in ran else [])]


def _table(columns: tuple[str, ...], rows: list[Any], left: int, long: tuple[str, ...]) -> Table:
    return Table(columns, rows, left, long, frozenset(range(len(rows))))


def _latencies() -> Section:
    """Returns the talk's latencies, without a durability, since it does not say when a log was flushed."""
    rows = [(name, *write, *end) for name, write, end in talk.LATENCIES]
    about = f"{_DIFFERS} They are {talk.HARDWARE}, at {talk.RATE}. {talk.FLUSHES_UNKNOWN}"
    table = _table(_LATENCY_SHORT, rows, 1, _LATENCY)
    return section("Latency as published, on other hardware", Paragraph(about), table)


def _resources() -> Section:
    about = f"{_DIFFERS} They are {talk.HARDWARE}, at {talk.RESOURCES_RATE}. Each is the sum over all hosts."
    table = _table(_RESOURCES_SHORT, list(talk.RESOURCES), 2, _RESOURCES)
    return section("Resources as published, on other hardware", Paragraph(about), table)


def _who() -> Section:
    """Returns the talk's table of who persists what, which names a component, not a number."""
    about = (
        "The component that has it on disk, by the talk. The rows are those that are counted here."
    )
    table = Table(talk.WHO_COLUMNS, talk.WHO_PERSISTS, 3)
    return section("Who persists what, as published", Paragraph(about), table)


def _interval() -> Section:
    return section("Commit intervals as published, on other hardware", f"{talk.INTERVAL}.")
