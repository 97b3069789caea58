"""What the store holds against what should be there: each output exactly once, in order, whole or not at all.

    should be there   a committed transaction's PRODUCE: so many records in that partition;
                      of a topic that is fed: each record of the input that was consumed, once
    is there          `trace.records`, read by the verifier; whose a record is its identity says

          should  is
    T1    3  2    3  2    whole
    T2    3  2    2  2    one is lost
    T3    3  2    3  0    torn: one partition has its part, another has nothing of it
    T4    -  -    1  -    of an aborted one, and visible

A record that names no transaction (-1) belongs to the one that consumed its origin. Source and ordinal together
name a record once in a topic, and the ordinals of a source grow in a partition.

Where commits told offsets, records lie there. One that is lost moves all behind it: that is one
"inconsistent offset", counted where the distance changes.

What it leaves out: what a plain writer should have written (-1 in a topic that nothing feeds): such records are
looked at for repeats and order only.

Next: feeds.py.
"""

from array import array
from collections.abc import Collection, Mapping

from ..trace import PRODUCE, TOPIC
from .feeds import ORDINALS, Fed, Offsets, Starts
from .findings import (
    ABORTED_VISIBLE,
    FOREIGN,
    INCONSISTENT_OFFSET,
    LOST,
    REORDERED,
    REPEATED,
    TORN,
    Findings,
)
from .history import INDEX, IS_ABORTED, IS_UNDETERMINED, History


def check_delivery(
    history: History,
    findings: Findings,
    feeds: Mapping[str, str],
    offsets: Offsets,
    starts: Starts,
    stored: Collection[str] | None,
) -> None:
    """For the parameters see `judge`."""
    produced = [*history.produced]
    produced += {history.operations[i][2]: None for i in history.others_of(PRODUCE)}
    names = {history.lanes[lane].name: None for lane in produced} | dict.fromkeys(feeds)
    topics: dict[str, list[int]] = {name: [] for name in names if stored is None or name in stored}
    for number, lane in enumerate(history.lanes):
        if lane.kind == TOPIC and lane.name in topics:
            topics[lane.name].append(number)
    delivery = _Delivery(history, findings, topics)
    for name in topics:
        fed = Fed(history, feeds[name], offsets, starts) if name in feeds else None
        delivery.look(name, fed)
    delivery.settle()


NOT_COUNTED = -2
"""In place of an owner: noted already."""


class _Delivery:
    """By transaction × lanes + lane: `told`, how many records its owner said; `first`, from which offset on,
    where a commit told that; `got`, how many different ones are there."""

    def __init__(
        self, history: History, findings: Findings, topics: Mapping[str, list[int]]
    ) -> None:
        self.history, self.findings, self.topics = history, findings, topics
        self.width = len(history.lanes)
        self.told: dict[int, int] = {}
        self.first: dict[int, int] = {}
        self.got: dict[int, int] = {}
        self.missing: list[tuple[str, int, int]] = []  # topic, origin, who consumed it
        self.judged = {lane: None for lanes in topics.values() for lane in lanes}
        operations, produced = history.operations, history.produced
        for lane in self.judged:
            for key in produced.get(lane, ()):
                self._tell(*operations[key & INDEX])
        for index in history.others_of(PRODUCE, IS_UNDETERMINED):
            if operations[index][2] in self.judged:
                self._tell(*operations[index])

    def _tell(
        self, tx: int, op: str, lane: int, begin: int, end: int, records: int, version: int
    ) -> None:
        key = tx * self.width + lane
        if begin >= 0:
            self.first.setdefault(key, begin)
            records = end - begin
        before = self.told.get(key)
        self.told[key] = records if before is None else before + records

    def look(self, topic: str, fed: Fed | None) -> None:
        """Reads what is there of a topic."""
        known: set[int] = set()
        if fed is not None:
            self._owners(topic, fed)
        for lane in self.topics[topic]:
            self._lane(lane, known)
            self._told_offsets(lane)
        if fed is None:
            return
        self.missing += [
            (topic, origin, tx) for origin, tx in fed.expected.items() if origin not in known
        ]
        self._doubtful(topic, fed, known)

    def _owners(self, topic: str, fed: Fed) -> None:
        """Whose records are by what was consumed; those of nobody are noted, and not looked at again."""
        history, note = self.history, self.findings.note
        records = history.trace.records
        if history.owner is records.tx:
            history.owner = array("q", records.tx)
        owner, expected, doubtful = history.owner, fed.expected, fed.doubtful
        sources, ordinals = records.source, records.ordinal
        for lane in self.topics[topic]:
            for i in history.stored.get(lane, ()):
                origin = sources[i] * ORDINALS + ordinals[i]
                named = owner[i]
                if origin in expected:
                    if named < 0:
                        owner[i] = expected[origin]
                elif origin in doubtful:
                    if named < 0:
                        owner[i] = doubtful[origin]
                elif not (0 <= named < history.size and history.outcome[named] == IS_ABORTED):
                    owner[i] = NOT_COUNTED
                    tx = fed.given_up.get(origin, -1)
                    name = FOREIGN if tx < 0 else ABORTED_VISIBLE
                    note(name, f"{{}}, made of what {_whose(tx)} consumed", self._text(i))

    def _lane(self, lane: int, known: set[int]) -> None:
        """Each record: may it be there, is it there once, does it follow its predecessor?"""
        history, note, text = self.history, self.findings.note, self._text
        records, outcome, size, width = (
            history.trace.records,
            history.outcome,
            history.size,
            self.width,
        )
        sources, ordinals, owner = records.source, records.ordinal, history.owner
        told, got = self.told, self.got
        last: dict[int, int] = {}  # ordinal by source
        for i in history.stored.get(lane, ()):
            tx = owner[i]
            if tx >= 0:
                key = tx * width + lane
                if key in told:
                    pass
                elif tx < size and outcome[tx] == IS_ABORTED:
                    note(ABORTED_VISIBLE, "{}", text(i))
                    continue
                elif records.tx[i] >= 0:
                    note(FOREIGN, "{}, which did not write there", text(i))
                    continue
            elif tx == NOT_COUNTED:
                continue
            source, ordinal = sources[i], ordinals[i]
            origin = source * ORDINALS + ordinal
            if origin in known:
                note(REPEATED, "{}, is there again", text(i))
                continue
            known.add(origin)
            if ordinal < last.get(source, ordinal):
                note(REORDERED, "{}, is behind its successor {}", text(i), last[source])
            last[source] = ordinal
            if tx >= 0:
                got[key] = got.get(key, 0) + 1

    def _told_offsets(self, lane: int) -> None:
        first, width, owner = self.first, self.width, self.history.owner
        offsets = self.history.trace.records.offset
        whose, shift = -1, 0
        for i in self.history.stored.get(lane, ()):
            tx = owner[i]
            if tx == whose or tx < 0:
                continue
            whose = tx
            begin = first.get(tx * width + lane)
            if begin is None or offsets[i] - begin == shift:
                continue
            shift = offsets[i] - begin
            if shift:
                text = "{}, was told {} for its first one there"
                self.findings.note(INCONSISTENT_OFFSET, text, self._text(i), begin)

    def _doubtful(self, topic: str, fed: Fed, known: set[int]) -> None:
        """Undetermined transactions of which nothing but what they consumed is known: whole, or not there."""
        there: dict[int, list[int]] = {}
        for origin, tx in fed.doubtful.items():
            if origin not in fed.expected:
                there.setdefault(tx, []).append(origin in known)
        for tx, parts in there.items():
            if any(parts) and not all(parts):
                text = "of transaction {}, which is undetermined, {} holds {} of {} records"
                self.findings.note(TORN, text, tx, topic, sum(parts), len(parts))

    def settle(self) -> None:
        """What is not there, once all topics were read."""
        history, findings, width = self.history, self.findings, self.width
        outcome, got, told = history.outcome, self.got, self.told
        short: dict[int, list[int]] = {}
        for key, records in told.items():
            there = got.get(key, 0)
            if there < records:
                short.setdefault(key // width, []).append(key)
            elif there > records:
                text = "transaction {} wrote {} records to {}, and {} are there"
                where = history.where(key % width)
                findings.add(FOREIGN, there - records, text, key // width, records, where, there)
        whole = {key // width: None for key in got if key // width in short} if short else {}
        for tx, keys in short.items():
            for key in keys:
                records, there = told[key], got.get(key, 0)
                what = (tx, there, records, history.where(key % width))
                if outcome[tx] == IS_UNDETERMINED:
                    if tx in whole:
                        text = (
                            "of transaction {}, which is undetermined, {} of {} records are in {}"
                        )
                        findings.note(TORN, text, *what)
                elif not there and tx in whole:
                    text = "of transaction {}, {} of {} records are in {}, and others elsewhere"
                    findings.note(TORN, text, *what)
                else:
                    text = "of transaction {}, {} of {} records are in {}"
                    findings.add(LOST, records - there, text, *what)
        for topic, origin, tx in self.missing:
            if tx not in short:
                source, ordinal = divmod(origin, ORDINALS)
                text = "{} has no record {} of {}, consumed by {}"
                findings.note(LOST, text, topic, ordinal, source, _whose(tx))
        findings.looked_at["records"] = sum(len(history.stored.get(n, ())) for n in self.judged)

    def _text(self, i: int) -> str:
        """A record in words."""
        records = self.history.trace.records
        lane, offset = self.history.where(records.lane[i]), records.offset[i]
        origin = f"record {records.ordinal[i]} of {records.source[i]}"
        return f"{lane} at {offset}: {origin}, of {_whose(self.history.owner[i])}"


def _whose(tx: int) -> str:
    return f"transaction {tx}" if tx >= 0 else "nobody"
