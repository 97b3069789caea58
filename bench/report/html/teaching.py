"""Explains the report to newcomers: how to read it, the protocols drawn, the words.

Next: protocols.py.
"""

from typing import Any

from ...compare.ranking import DURABILITIES
from ...compare.systems import MODES, about
from ..text.blocks import Bullets, Paragraph
from .content import Chapter, Glossary, Heading, Key
from .drawing import look
from .protocols import protocols

_ALL = {2: "Both", 3: "All three", 4: "All four", 5: "All five"}
_TERMS = (
    (
        "record",
        "what is written: here with an identity, so a reader knows whose it is without asking anybody.",
    ),
    ("partition", "a log of its own; records in it have an order, and numbers: offsets."),
    ("transaction", "reads, writes and moved positions that count together, or not at all."),
    (
        "exactly once",
        "what was consumed has its results there once: none lost, none twice, whoever failed between.",
    ),
    (
        "commit interval",
        "a worker commits every so often. A record waits for it, half an interval on average.",
    ),
    (
        "durable hop",
        "a change that has to be on the disk before the next one can begin. Hops in series add up.",
    ),
    ("sync", "the disk's word that it has it. Several changes can share one."),
    (
        "tablet",
        "a small state machine with rows of its own: a partition, a shard of a table, a coordinator.",
    ),
    (
        "placement",
        "shared: a host's tablets go to disk together, and fail together. Separate: each as on a server of "
        "its own.",
    ),
    *(term for mode in MODES for term in mode.terms),
    (
        "p50, p99, p99.9",
        "of a hundred (thousand) values, so many were no larger. p50 is the median, half of them.",
    ),
    (
        "sustained",
        "the offered rate got through, on time. Where it did not there are no latencies: they would grow as "
        "long as one looks.",
    ),
)


def read_first(summary: dict[str, Any]) -> Chapter:
    systems = summary["systems"]
    lead = "For those who know neither system: three minutes that the rest of this page relies on."
    bullets = [
        "Latency counts from when work was due, by a schedule fixed before the run, not from when somebody got "
        "to it: waiting is part of it.",
        "Figures are medians over repeats. “–” is a figure that is not there: its run did not verify, or did not "
        "sustain the rate; the text says which.",
        f"Durability full: {DURABILITIES['full']}. Durability os: {DURABILITIES['os']}. The two never share "
        "a drawing or a table.",
        "Striped rows marked “published” are of the talk that this comparison reproduces, on other hardware: to "
        "look at, not to compare with.",
        *(mode.is_not for mode in MODES if mode.is_not),
    ]
    return Chapter(
        0,
        "read-first",
        "How to read this",
        lead,
        [
            Bullets(bullets),
            Key([(look(name).name, name, about(name)) for name in systems]),
            Heading("How each of them commits", "protocols"),
            Paragraph(
                f"{_ALL[len(MODES)]} do the same: make a transaction's records readable together, once, and not "
                f"before. {' '.join(mode.commits for mode in MODES)}"
            ),
            protocols(list(systems)),
            Heading("Words", "glossary"),
            Glossary(_TERMS),
        ],
    )
