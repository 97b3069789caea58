"""Judges the history of a run from its trace alone: it neither asks nor trusts an engine.

    Trace ─▶ History (columns) ─┬─▶ certificate.py   places: rows, real time, positions, offsets; rows without
                                ├─▶ delivery.py      the store's records: exactly once, in order, whole
                                └─▶ logs.py          the follower's reads, the order of logs; when data in
                                                     place could be read
                                                │
                                            Findings

It is pure Python, loops over ints: bench/micro/bench_check.py judges a million transactions.

Next: findings.py, the names; history.py; generate.py, histories to try it on.
"""

from collections.abc import Collection, Mapping

from ..trace import Trace, without_gc
from .certificate import check_certificate, check_unordered_reads
from .delivery import check_delivery
from .feeds import Offsets, Starts
from .findings import Findings
from .history import History
from .logs import ALLOWED, ALLOWED_ELSEWHERE, check_logs, check_reader, readable

PLANNED, IN_PLACE, NONE = "planned", "in-place", "none"
MODES = (PLANNED, IN_PLACE, NONE)
_FORMER = {"places": PLANNED, "kafka": IN_PLACE}
"""The words of older traces for kinds of history."""

__all__ = [
    "ALLOWED",
    "ALLOWED_ELSEWHERE",
    "IN_PLACE",
    "MODES",
    "NONE",
    "PLANNED",
    "Findings",
    "judge",
    "kind_of_history",
]


def kind_of_history(word: str) -> str:
    """Returns one of MODES for a trace's word, also for an older trace's; any other word as it is."""
    return _FORMER.get(word, word)


def judge(
    trace: Trace,
    *,
    mode: str = NONE,
    feeds: Mapping[str, str] | None = None,
    offsets: Offsets | None = None,
    starts: Starts | None = None,
    stored: Collection[str] | None = None,
    allowed: tuple[str, ...] | None = None,
) -> Findings:
    """Returns all that is wrong with a history.

    mode     the kind of history. "planned": commits returned (step, n), so the whole certificate is checked, and
             nothing is allowed; "in-place": data lies in logs before its transaction ends, so there are neither
             places nor rows; "none": neither, and nothing is allowed (a system without places)
    feeds    {"output topic": "input topic/consumer"}: each consumed record of the input is in the output once. An
             input record's identity is (partition, offset); or, if `trace.records` has the input's records too, the
             identity in them (chains pass it on); or, where `offsets` names the partition, (partition, number among
             these)
    offsets  {("input topic", partition): ascending offsets of its records}, of inputs with gaps
    starts   {("input topic/consumer", partition): position before the run}, if it was not 0
    stored   the topics that were read into `trace.records`; None: every topic that a transaction produced to, and
             those of `feeds`. Records that are missing there are lost

    allowed  anomalies that the system's model allows; None: for "in-place" those of Kafka's (logs.ALLOWED)

    ValueError for a trace that has a transaction twice, or for another mode.
    """
    mode = kind_of_history(mode)
    if mode not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    if allowed is None:
        allowed = ALLOWED if mode == IN_PLACE else ALLOWED_ELSEWHERE
    findings = Findings(allowed)
    findings.looked_at["transactions"] = len(trace.transactions)
    with without_gc():
        history = History(trace, places=mode == PLANNED)
        check_delivery(history, findings, feeds or {}, offsets or {}, starts or {}, stored)
        if mode == PLANNED:
            check_certificate(history, findings, starts or {})
        else:
            check_logs(history, findings)
        check_unordered_reads(history, findings, mode == PLANNED)
        if mode == IN_PLACE:
            findings.readable = readable(history)
        check_reader(history, findings)
        del history  # frees millions of tuples before the collector runs again
    return findings
