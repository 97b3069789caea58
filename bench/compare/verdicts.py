"""Answers the questions that a reader brings, each with a sentence, a ratio and its interval.

    round 0   this engine 0.87 │ A 0.47 │ B 1.33      each system's figure over this engine's own of the same round:
    round 1   this engine 0.91 │ A 0.46 │ B 1.40      they ran minutes apart at most, so what the machine did
    round 2   …                                       meanwhile met both
    ratio of A: the median of the rounds, [lowest, highest]

With n rounds that interval holds the true median with probability 1 − 2^(1 − n): 94 % for five, 75 % for three.
A system is ahead of another only if the interval of their ratio excludes 1, and its median is off by 5 %. Else
they are level; where their interval reaches beyond 4/5 or 5/4, it is not clear who is ahead. A system that did
not verify, did not sustain the offered rate, or shares too few rounds with this engine, takes no part; `why`
names it.

Next: promises.py, what each system promises; ranking.py, every single figure.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from .cell import INTERRUPTED, OK, Result
from .ranking import DURABILITIES, HIGHER, LOWER, MARGIN, REPEATS_MIN
from .systems import MODES, headline, label, where

FIRST, LEVEL, UNCLEAR, BEHIND, UNKNOWN = "first", "level", "unclear", "behind", "unknown"
WIDE = 1.25
"""A ratio that reaches beyond this, or its inverse, may hide a difference that matters."""
OWN = MODES[0].systems[0].name
"""This engine's own mode, to which all ratios refer."""


def _one_at_a_time(result: Result) -> float | None:
    """Returns the time from a transaction's begin to its reply, with one thread."""
    one = result.extra.get("concurrency", {}).get("1", {})
    return (one.get("done_ms") or {}).get("p50")


def _many_at_once(result: Result) -> float | None:
    """Returns the transactions a second with the number of threads that suits the system best."""
    points = result.extra.get("concurrency", {}).values()
    return max((point["transactions_per_second"] for point in points), default=None)


def _end_to_end(result: Result) -> float | None:
    return result.end_to_end_ms["p50"] if result.end_to_end_ms else None


def _goes_on(result: Result) -> float | None:
    """Returns the time until a commit is answered after a kill, in the way that is quickest for the system."""
    ways = [way for way in result.extra.get("killed", {}).values() if isinstance(way, dict)]
    return min((way["first_commit_ms"] for way in ways), default=None)


class Question(NamedTuple):
    """A question of a reader, with the workload and the figure that answer it.

    figure  its name in the JSON                read   reads it from a run; None where the run has none
    says    "answers it in {} ms", the answer   bare   "in {} ms", another system's value behind that
    times   what so many times the value is, as in "1.8 times as long"
    late    the answer of a run that did not sustain its rate; None: it has none
    """

    id: str
    words: str
    workload: str
    figure: str
    better: str
    read: Callable[[Result], float | None]
    says: str
    bare: str
    times: str
    late: float | None = math.inf


QUESTIONS = (
    Question(
        "small-one",
        "Which is fastest for one small transaction at a time?",
        *("small", "concurrency.1.done_ms.p50", LOWER, _one_at_a_time),
        *("answers one small transaction in {} ms", "in {} ms", "as long"),
    ),
    Question(
        "small-many",
        "Which commits the most small transactions a second?",
        *("small", "concurrency.transactions_per_second", HIGHER, _many_at_once),
        *("commits {} small transactions a second at most", "{}", "as many"),
    ),
    Question(
        "move",
        "Which moves the most data, exactly once?",
        *("move", "throughput_mb_s", HIGHER, lambda result: result.throughput_mb_s),
        *("moves {} MB/s exactly once", "{}", "as much"),
    ),
    Question(
        "end-to-end",
        "Which brings a record to its reader soonest, at the offered rate?",
        *("reshard", "end_to_end_ms.p50", LOWER, _end_to_end),
        *("brings a record to its reader in {} ms", "in {} ms", "as long"),
    ),
    Question(
        "fault",
        "Which goes on soonest after a crash?",
        *("faults", "killed.first_commit_ms", LOWER, _goes_on),
        *("answers its first commit {} ms after a kill -9", "after {} ms", "as long"),
    ),
    Question(
        "cost",
        "Which needs the least CPU, at the offered rate?",
        *("reshard", "cpu_ms_per_transaction", LOWER),
        lambda result: result.cpu_ms_per_transaction,
        *("uses {} ms of CPU a transaction", "{} ms", "as much"),
        late=None,  # it did other work than the rest
    ),
)


class Ratio(NamedTuple):
    """The ratio of two systems' figures over their common rounds; `high` may be infinite."""

    median: float
    low: float
    high: float
    repeats: int

    @property
    def above(self) -> bool:
        """Returns True if it is clearly above 1: enough rounds, all of them above, the median by MARGIN."""
        enough = self.repeats >= REPEATS_MIN
        return enough and self.low > 1 and self.median * (1 - MARGIN) >= 1

    @property
    def wide(self) -> bool:
        """Returns True if it reaches so far from 1 that being level would say nothing."""
        return self.high > WIDE or self.low < 1 / WIDE


class _Standing(NamedTuple):
    """One system's figure in each round; `why` says why it takes no part, or is ""."""

    system: str
    placement: str
    rounds: dict[int, float]
    why: str

    @property
    def value(self) -> float:
        return median(self.rounds.values())

    @property
    def name(self) -> str:
        named = f"{label(self.system)}{where(self.system, self.placement)}"
        return f"this engine ({named})" if self.system == OWN else named

    def common(self, other: "_Standing") -> list[int]:
        """Returns the rounds in which both have a figure."""
        return [n for n in self.rounds if n in other.rounds]

    def over(self, other: "_Standing") -> Ratio:
        """Returns the ratio of this system's figure to the other's. They have a common round, at least."""
        ratios = [_ratio(self.rounds[n], other.rounds[n]) for n in self.common(other)]
        return Ratio(median(ratios), min(ratios), max(ratios), len(ratios))


def verdicts(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Returns a verdict for each question and durability that ran; docs/compare.md has the fields.

    A question whose workload did not run has one verdict of standing UNKNOWN, which says how to run it.
    """
    found = []
    ran_at = {result.cell.options.durability for result in results}
    first = next((one for one in DURABILITIES if one in ran_at), "full")
    for question in QUESTIONS:
        own = [
            result
            for result in results
            if result.cell.workload == question.workload and result.status != INTERRUPTED
        ]
        for durability in DURABILITIES:
            ran = [result for result in own if result.cell.options.durability == durability]
            if ran:
                found.append(_answer(question, durability, ran))
        if not own:
            why = (
                f"workload {question.workload} did not run; --workload {question.workload} runs it"
            )
            found.append(_row(question, first, UNKNOWN, [], [], why))
    return found


def _answer(question: Question, durability: str, ran: list[Result]) -> dict[str, Any]:
    """Answers a question from the runs of its workload at one durability."""
    able: list[_Standing] = []
    unable: list[_Standing] = []
    for one in _standings(question, ran):
        (unable if one.why else able).append(one)
    able.sort(key=lambda one: one.value, reverse=question.better == HIGHER)
    own = next((one for one in able if one.system == OWN), None)
    ratios = [] if own is None else [_ratio_row(one, own) for one in able]
    shared = [] if own is None else [_too_few(one, own) for one in able]
    unable += [one for one in shared if one.why]
    able = [one for one in shared if not one.why]
    reasons = list(_reasons(unable))
    if own is None or len(able) < 2:
        alone = ["there is nothing to compare with"] if not reasons else []
        return _row(question, durability, UNKNOWN, [], ratios, "; ".join([*reasons, *alone]))
    standing, first, sentence = _stand(question, able, own)
    row = _row(question, durability, standing, first, ratios, "; ".join(reasons))
    return row | {"sentence": sentence}


def _too_few(one: _Standing, own: _Standing) -> _Standing:
    """Returns a system with its reason if it shares too few rounds with this engine."""
    shared = len(one.common(own))
    why = f"shares {shared} of the {REPEATS_MIN} rounds with this engine that a verdict needs"
    return one if shared >= REPEATS_MIN else one._replace(why=why)


def _stand(
    question: Question, able: list[_Standing], own: _Standing
) -> tuple[str, list[_Standing], str]:
    """Returns the standing of this engine, the systems that nobody beats, and the sentence; `able`: the best first.

    Only pairs of one round decide. The order by value does not, since systems may have run in other rounds.
    """
    rivals = [one for one in able if one.system != OWN]
    ahead = [one for one in rivals if _worse(question, own, one).above]
    beaten = [one for one in rivals if _worse(question, one, own).above]
    level = [one for one in rivals if one not in ahead and one not in beaten]
    if ahead:
        best = ahead[0]
        able = [one for one in able if len(one.common(best)) >= REPEATS_MIN and one != best]
        first = [best, *(one for one in able if not _worse(question, one, best).above)]
        sentence = _difference(question, best, own)
        return BEHIND, first, sentence + _as_well("Ahead as well", ahead[1:])
    if not level:
        return FIRST, [own], _difference(question, own, rivals[0])
    unclear = [one for one in level if _worse(question, one, own).wide]
    standing = UNCLEAR if unclear else LEVEL
    named, *rest = unclear or level
    sentence = _no_difference(question, own, named, standing)
    sentence += _as_well("As unclear" if unclear else "Level as well", rest)
    return standing, [one for one in able if one == own or one in level], sentence


def _reasons(unable: list[_Standing]) -> Iterator[str]:
    """Yields why systems take no part; those with the same reason in one clause."""
    for why in dict.fromkeys(one.why for one in unable):
        yield f"{', '.join(one.name for one in unable if one.why == why)} {why}"


def _standings(question: Question, ran: list[Result]) -> Iterator[_Standing]:
    """Yields each system at its headline placement, else at the first that ran."""
    placed: dict[str, dict[str, list[Result]]] = {}
    for result in ran:
        by_placement = placed.setdefault(result.cell.system, {})
        by_placement.setdefault(result.cell.options.placement, []).append(result)
    for system, by_placement in placed.items():
        at = headline(system)
        placement = at if at in by_placement else next(iter(by_placement))
        yield _Standing(system, placement, *_rounds(question, by_placement[placement]))


def _rounds(question: Question, results: list[Result]) -> tuple[dict[int, float], str]:
    """Returns the figure by round, and why the system takes no part, or ""."""
    for result in results:
        if result.status != OK or not result.verified:
            return {}, f"gave no figure: {result.reason or 'a run did not verify'}"
    late = [result.cell.repeat for result in results if result.sustained is False]
    if 2 * len(late) > len(results):
        return {}, "did not sustain the rate"
    values = {result.cell.repeat: question.read(result) for result in results}
    values |= dict.fromkeys(late, question.late)
    rounds = {n: value for n, value in values.items() if value is not None}
    if not rounds:
        return {}, "gave no such figure"
    few = f"ran {len(rounds)} of {REPEATS_MIN} times that a verdict needs (--repeat {REPEATS_MIN})"
    return rounds, few if len(rounds) < REPEATS_MIN else ""


def _ratio_row(one: _Standing, own: _Standing) -> dict[str, Any]:
    shared = len(one.common(own))
    ratio = one.over(own) if shared else None
    ends = ("median", "low", "high")
    return {
        "system": one.system,
        "placement": one.placement,
        "value": _finite(one.value),
        "ratio": {name: _finite(getattr(ratio, name)) for name in ends} if ratio else None,
        "repeats": shared,
    }


def _worse(question: Question, one: _Standing, best: _Standing) -> Ratio:
    """Returns how many times worse `one` is than `best`: above 1 if it is worse, whatever is better."""
    return one.over(best) if question.better == LOWER else best.over(one)


def _difference(question: Question, best: _Standing, other: _Standing) -> str:
    """Says by how much `best` is ahead of `other`, which is the next if `best` is this engine."""
    ratio = _worse(question, other, best)
    said, bare = _said(question, best), question.bare.format(_amount(other.value))
    many = f"{_times(ratio.median)} times ({_times(ratio.low)} to {_times(ratio.high)})"
    if question.better == LOWER:
        named = f"{other.name}{', the next,' if best.system == OWN else ''}"
        return _capital(f"{said}, {named} {bare}: {many} {question.times}.")
    named = f"{other.name} with {bare}{' (the next)' if best.system == OWN else ''}"
    return _capital(f"{said}, {many} {question.times} as {named}.")


def _no_difference(question: Question, own: _Standing, other: _Standing, standing: str) -> str:
    """Says that nobody is ahead of the two, or that it is not clear who is."""
    ratio = other.over(own)
    bare = question.bare.format(_amount(other.value))
    low, high = _times(ratio.low), _times(ratio.high)
    clear = f"no clear difference ({low} to {high} times {question.times})"
    if standing == UNCLEAR:
        clear = f"not clear: between {low} and {high} times {question.times}"
    return _capital(f"{_said(question, own)}, {other.name} {bare}: {clear}.")


def _said(question: Question, one: _Standing) -> str:
    return f"{one.name} {question.says.format(_amount(one.value))}"


def _as_well(words: str, others: list[_Standing]) -> str:
    return f" {words}: {', '.join(one.name for one in others)}." if others else ""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _row(
    question: Question,
    durability: str,
    standing: str,
    first: list[_Standing],
    ratios: list[dict[str, Any]],
    why: str,
) -> dict[str, Any]:
    return {
        "question": question.id,
        "words": question.words,
        "sentence": f"No verdict: {why}." if standing == UNKNOWN else "",
        "workload": question.workload,
        "durability": durability,
        "figure": question.figure,
        "better": question.better,
        "first": [one.system for one in first],
        "standing": standing,
        "ratios": ratios,
        "why": why,
    }


def _ratio(value: float, other: float) -> float:
    if math.isinf(value) and math.isinf(other):
        return 1.0
    return value / other if other else math.inf


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else round(value, 4)


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(ratio: float) -> str:
    """Writes a ratio with as many digits as it deserves; an endless one is of a run that fell behind its rate."""
    if math.isinf(ratio):
        return "endless"
    return f"{ratio:.2f}" if ratio < 1.2 else f"{ratio:.1f}" if ratio < 20 else f"{ratio:,.0f}"
