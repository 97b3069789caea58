"""Compares the store with what transactions wrote: each output exactly once, in order, whole or not at all.

    expected          a committed transaction's PRODUCE: its number of records in that partition;
                      in a topic that is fed: each consumed record of the input, once
    stored            `trace.records`, read by the verifier; a record's identity names its transaction

        expected  stored
    T1    3  2    3  2    whole
    T2    3  2    2  2    one is lost
    T3    3  2    3  0    torn: one partition has its part, another has none of it
    T4    -  -    1  -    of an aborted one, and visible

A record that names no transaction (-1) belongs to the one that consumed its origin. Source and ordinal together
name a record once in a topic, and the ordinals of a source grow in a partition.

If commits returned offsets, records must lie there. A lost one moves all later ones: that is one
"inconsistent offset", counted where the distance changes.

Left out: records that a plain writer should have written (-1 in a topic that nothing feeds): only their repeats and
order are checked.

Next: feeds.py.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..trace import PRODUCE, TOPIC
from . import findings as names
from .feeds import ORDINALS, Fed, Offsets, Starts
from .findings import Findings
from .history import ABSENT, IS_ABORTED, IS_UNDETERMINED, History, Log


def check_delivery(
    history: History,
    findings: Findings,
    feeds: Mapping[str, str],
    offsets: Offsets,
    starts: Starts,
    stored: Collection[str] | None,
) -> None:
    """Checks the store's records; for the parameters see `judge`."""
    produced = [*history.produced, *(o.lane for o in history.others if o.op == PRODUCE)]
    written = dict.fromkeys((*(history.lanes[lane].name for lane in produced), *feeds))
    topics: dict[str, list[int]] = {
        name: [] for name in written if stored is None or name in stored
    }
    for number, lane in enumerate(history.lanes):
        if lane.kind == TOPIC and lane.name in topics:
            topics[lane.name].append(number)
    delivery = _Delivery(history, findings, topics)
    for name in topics:
        fed = Fed(history, feeds[name], offsets, starts) if name in feeds else None
        delivery.check_topic(name, fed)
    delivery.note_missing()


NOT_COUNTED = -2
"""Takes the place of the owner of a record that is already noted."""


class _Part(NamedTuple):
    """The number of a transaction's `records` that one place has."""

    stored: int
    records: int
    where: str


class _Delivery:
    """Counts by lane and transaction: `claims` by the owner, and `stored`, different ones in the store.

    `first` has the first offset, -1 if the commit returned none.
    """

    def __init__(
        self, history: History, findings: Findings, topics: Mapping[str, list[int]]
    ) -> None:
        self.history, self.findings, self.topics = history, findings, topics
        self.claims: dict[int, Counter[int]] = {}
        self.first: dict[int, dict[int, int]] = {}
        self.stored: dict[int, dict[int, int]] = {}
        self.missing: list[tuple[str, int, int]] = []  # topic, origin, its consumer
        self.of_aborted: set[int] = set()  # origins of noted records of aborted ones
        for lane in [lane for lanes in topics.values() for lane in lanes]:
            ranges = history.produced.get(lane, [])
            self.claims[lane], self.stored[lane] = Counter(), {}
            for _, tx, _, _, records in ranges:
                self.claims[lane][tx] += records
            # Of several ranges of one transaction the first has the first offset.
            self.first[lane] = {tx: begin for _, tx, begin, _, _ in reversed(ranges)}
        for tx, _, lane, _, _, records, _ in history.others_of(PRODUCE, IS_UNDETERMINED):
            if lane in self.claims:
                self.claims[lane][tx] += records

    def check_topic(self, topic: str, fed: Fed | None) -> None:
        """Checks the stored records of a topic."""
        origins_stored: set[int] = set()
        self.of_aborted.clear()
        for lane in self.topics[topic]:
            log = self.history.stored.get(lane)
            if log is not None:
                pairs = zip(log.source, log.ordinal, strict=True)
                origins = [source * ORDINALS + ordinal for source, ordinal in pairs]
                if fed is not None and not fed.explains(log, origins):
                    self._owners(lane, log, origins, fed)
                self._lane(lane, log, origins, origins_stored)
        if fed is not None:
            self.missing += [
                (topic, origin, tx)
                for origin, tx in fed.expected.items()
                if origin not in origins_stored and origin not in self.of_aborted
            ]
            self._doubtful(topic, fed, origins_stored)

    def _owners(self, lane: int, log: Log, origins: list[int], fed: Fed) -> None:
        """Finds each record's owner by consumption; notes records without one, which are not checked further."""
        log.owner = owner = array("q", log.tx)
        expected, doubtful = fed.expected, fed.doubtful
        for i, origin in enumerate(origins):
            of_aborted = owner[i] < 0 and fed.of_aborted(origin)
            if not of_aborted and (origin in expected or origin in doubtful):
                if owner[i] < 0:
                    owner[i] = expected[origin] if origin in expected else doubtful[origin]
            elif of_aborted or self.history.outcome_of(owner[i]) != IS_ABORTED:
                if of_aborted:
                    self.of_aborted.add(origin)
                tx = fed.given_up.get(origin, -1)
                name = names.FOREIGN if tx < 0 else names.ABORTED_VISIBLE
                text = "{} was made of a record that {} consumed"
                self.findings.note(name, text, self._text(lane, log, i), _whose(tx))
                owner[i] = NOT_COUNTED

    def _lane(self, lane: int, log: Log, origins: list[int], origins_stored: set[int]) -> None:
        """Checks each record: is it allowed, is it there once, does it follow its predecessor?"""
        note, text = self.findings.note, self._text
        claims, first = self.claims[lane], self.first[lane]
        last: dict[int, int] = {}  # ordinal by source
        left_out: list[int] = []
        whose, shift, counts = -1, 0, True
        columns = zip(log.owner, origins, log.source, log.ordinal, log.offset, strict=True)
        for i, (tx, origin, source, ordinal, offset) in enumerate(columns):
            if tx != whose or not counts:
                whose, counts = tx, tx in claims or self._counts(lane, log, i)
                begin = first.pop(tx, -1)  # of its first record: the rest may not be adjacent
                if begin >= 0 and offset - begin != shift:
                    shift = offset - begin
                    if shift:  # all later records have it too: noted when it changes
                        what = "{}: its commit returned {} for its first record there"
                        note(names.INCONSISTENT_OFFSET, what, text(lane, log, i), begin)
            if not counts:
                left_out.append(tx)
                continue
            if origin in origins_stored:
                note(names.REPEATED, "{} is stored a second time", text(lane, log, i))
                left_out.append(tx)
                continue
            origins_stored.add(origin)
            if ordinal < last.get(source, ordinal):
                what = "{} is stored after its successor {}"
                note(names.REORDERED, what, text(lane, log, i), last[source])
            last[source] = ordinal
        got = Counter(log.owner)
        got.subtract(left_out)
        self.stored[lane] = {tx: records for tx, records in got.items() if tx >= 0 and records > 0}

    def _counts(self, lane: int, log: Log, i: int) -> bool:
        """Returns True if a record that no PRODUCE covers counts; notes it if not."""
        tx = log.owner[i]
        if tx < 0:
            return tx != NOT_COUNTED
        if self.history.outcome_of(tx) == IS_ABORTED:
            self.findings.note(names.ABORTED_VISIBLE, "{}", self._text(lane, log, i))
            return False
        # The trace may not have its writes; or its consumption names it as the owner.
        known = self.history.outcome_of(tx) != ABSENT
        if known and (tx not in self.history.producers or log.tx[i] < 0):
            return True
        self.findings.note(
            names.FOREIGN, "{}: that transaction did not write there", self._text(lane, log, i)
        )
        return False

    def _doubtful(self, topic: str, fed: Fed, origins_stored: set[int]) -> None:
        """Checks undetermined transactions known only by what they consumed: they must be whole, or absent."""
        by_tx: dict[int, list[bool]] = {}
        for origin, tx in fed.doubtful.items():
            if origin not in fed.expected:
                by_tx.setdefault(tx, []).append(origin in origins_stored)
        for tx, parts in by_tx.items():
            if any(parts) and not all(parts):
                text = "of the undetermined transaction {}, {} has {} of {} records"
                self.findings.note(names.TORN, text, tx, topic, sum(parts), len(parts))

    def note_missing(self) -> None:
        """Notes missing records, once all topics were checked."""
        history, findings = self.history, self.findings
        short = self._short()
        for tx, parts in short.items():
            self._lacks(tx, parts)
        for topic, origin, tx in self.missing:
            if tx not in short:
                source, ordinal = divmod(origin, ORDINALS)
                text = "{} has no record {} of {}, consumed by {}"
                findings.note(names.LOST, text, topic, ordinal, source, _whose(tx))
        logs = (history.stored.get(lane, ()) for lane in self.claims)
        findings.looked_at["records"] = sum(map(len, logs))

    def _short(self) -> dict[int, list[_Part]]:
        """Returns transactions with fewer records in a place than their owners wrote; notes those with more."""
        short: dict[int, list[_Part]] = {}
        for lane, claims in self.claims.items():
            counts = self.stored[lane]
            if counts == claims:
                continue
            where = self.history.where(lane)
            for tx, records in claims.items():
                stored = counts.get(tx, 0)
                if stored < records:
                    short.setdefault(tx, []).append(_Part(stored, records, where))
                elif stored > records:
                    text = "transaction {} wrote {} records to {}, and {} are there"
                    more = stored - records
                    self.findings.add(names.FOREIGN, more, text, tx, records, where, stored)
        return short

    def _lacks(self, tx: int, parts: list[_Part]) -> None:
        """Notes a transaction with missing records: torn, lost, or undetermined without effect."""
        findings = self.findings
        somewhere = any(tx in counts for counts in self.stored.values())
        if self.history.outcome[tx] == IS_UNDETERMINED:
            for part in parts if somewhere else ():
                text = "of the undetermined transaction {}, {} of {} records are in {}"
                findings.note(names.TORN, text, tx, *part)
            return
        for stored, records, where in parts:
            if somewhere and not stored:
                text = (
                    "of transaction {}, none of {} records is in {}, but other partitions have some"
                )
                findings.note(names.TORN, text, tx, records, where)
            else:
                text = "of transaction {}, {} of {} records are in {}"
                findings.add(names.LOST, records - stored, text, tx, stored, records, where)

    def _text(self, lane: int, log: Log, i: int) -> str:
        """Describes a record in words."""
        record = f"record {log.ordinal[i]} of {log.source[i]}, by {_whose(log.owner[i])}"
        return f"{self.history.where(lane)} at {log.offset[i]}: {record}"


def _whose(tx: int) -> str:
    return f"transaction {tx}" if tx >= 0 else "nobody"
