"""Explains the report to newcomers: how to read it, the protocols drawn, the words.

Next: protocols.py.
"""

from typing import Any

from ...compare.systems import MODES, about
from ..text.blocks import Bullets, Paragraph
from .content import Chapter, Glossary, Heading, Key
from .drawing import line_style
from .protocols import about as how_drawn
from .protocols import protocols

_TERMS = (
    (
        "record",
        "a value that is written. Here it carries an identity, which names its transaction to every reader.",
    ),
    ("partition", "a log of its own. Its records have an order, and numbers: offsets."),
    ("transaction", "reads, writes and moved positions that take effect together, or not at all."),
    (
        "exactly once",
        "each consumed record has its result once: none is lost, none is there twice, even after failures.",
    ),
    (
        "commit interval",
        "the time between two commits of a worker. A record waits for the next one, half an interval on average.",
    ),
    (
        "durable hop",
        "a change that must be on the disk before the next one can begin. Hops in series add up.",
    ),
    ("sync", "the disk's confirmation that data is durable. Several changes can share one."),
    (
        "tablet",
        "a small state machine with rows of its own: a partition, a shard of a table, a coordinator.",
    ),
    (
        "placement",
        "shared: a host's tablets go to disk together, and fail together. Separate: each tablet acts as on a "
        "server of its own.",
    ),
    *(term for mode in MODES for term in mode.terms),
    (
        "p50, p99, p99.9",
        "percentiles: 50, 99 and 99.9 percent of the values are no larger. p50 is the median.",
    ),
    (
        "sustained",
        "the offered rate got through, on time. Otherwise no latency is reported, since it would only grow with "
        "the length of the run.",
    ),
)


def read_first(summary: dict[str, Any]) -> Chapter:
    systems = summary["systems"]
    modes = [m for m in MODES if {system.name for system in m.systems} & {*systems}] or MODES
    lead = "This chapter takes three minutes. It explains the terms for readers who know none of the systems."
    bullets = [
        "Latency counts from when work was due, by a schedule fixed before the run. So it includes the time that "
        "work waits for a busy worker.",
        "Figures are medians over repeats. “–” marks a missing figure: its run did not verify, or did not sustain "
        "the rate. The text says which.",
        "Figures that others published are in a chapter of their own, since they are from other hardware.",
        *(mode.is_not for mode in modes if mode.is_not),
    ]
    return Chapter(
        0,
        "read-first",
        "How to read this",
        lead,
        [
            Bullets(bullets),
            Key([(line_style(name).name, name, about(name)) for name in systems]),
            Heading("How each of them commits", "protocols"),
            Paragraph(
                "All modes make a transaction's records readable together, and only after its commit. "
                f"{' '.join(mode.commits for mode in modes)}"
            ),
            Paragraph(how_drawn(modes)),
            *protocols(modes),
            Heading("Words", "glossary"),
            Glossary(_TERMS),
        ],
    )
