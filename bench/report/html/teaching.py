"""For those who know neither system: how to read the report, the protocols drawn, the words.

Next: protocols.py.
"""

from typing import Any

from ...compare.ranking import DURABILITIES
from ..text.blocks import Bullets, Paragraph
from .content import Chapter, Drawn, Glossary, Heading, Key
from .drawing import look
from .protocols import protocols

_WHAT = {
    "deterministic": "this engine's own protocol, in the style of YDB: every transaction gets a place in one order",
    "kafka": "this engine following Kafka's protocol, version 2; it is not Kafka",
    "kafka-v1": "the same with protocol version 1, which Python clients of Kafka speak",
    "sqlite": "one SQLite file, as many would use it instead: one transaction a COMMIT",
    "sqlite-64": "the same; up to 64 waiting transactions share a COMMIT",
}
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
    (
        "plan step",
        "deterministic mode: a tick of virtual time, given by the coordinator. A transaction's place is its "
        "step and its number there: the order in which everybody executes.",
    ),
    (
        "staged",
        "deterministic mode: durable on the side, under the transaction's id, in no log yet.",
    ),
    (
        "marker",
        "Kafka-style mode: an entry in the log that says whether what lies before it counts.",
    ),
    (
        "last stable offset",
        "Kafka-style mode: readers of committed records stop before the first record whose transaction is "
        "still open, whoever committed behind it.",
    ),
    (
        "fencing",
        "Kafka-style mode: who takes a worker's name ends what the former one left open; it can commit no "
        "more.",
    ),
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
        "Kafka-style is Kafka's protocol in this engine. A number says something about the protocol, nothing about "
        "Kafka's brokers.",
    ]
    return Chapter(
        0,
        "read-first",
        "How to read this",
        lead,
        [
            Bullets(bullets),
            Key([(look(name).name, name, _WHAT.get(name, "")) for name in systems]),
            Heading("How each of them commits", "protocols"),
            Paragraph(
                "All three do the same: make a transaction's records readable together, once, and not before. "
                "Deterministic: records wait on the side; a coordinator gives the transaction a place in one "
                "order, and each partition publishes at that place. Readers need no filter, and an open "
                "transaction delays nobody. Kafka-style: records go straight into the log; a coordinator's "
                "decision is followed by a marker in each partition, and readers stop where something is still "
                "open. SQLite: one writer at a time, everything in one file."
            ),
            Drawn(protocols(list(systems))),
            Heading("Words", "glossary"),
            Glossary(_TERMS),
        ],
    )
