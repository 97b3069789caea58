"""Makes the first screen: an answer to each question that a reader brings, and what each system promises.

    summary["verdicts"] ─▶ by question ─▶ a line for each durability: standing, sentence, a row for each system
    summary["promises"] ─▶ a table
    summary["machine"]["load"] ─▶ a warning, if the machine was busy

A ratio is a system's figure over this engine's own in the same round: the median, and the lowest and highest. In
the drawing next to it, right of the line means that this engine is better.

Left out: the rule for a verdict (../../compare/verdicts.py has it); a summary without verdicts has no answers.

Next: verdict.py.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...compare.ranking import LOWER, MARGIN, REPEATS_MIN, in_words, workloads_of
from ...compare.verdicts import OWN
from ..text.blocks import Table, number
from .drawing import display_name

STANDINGS = {
    "first": ("▲", "ahead"),
    "level": ("=", "level"),
    "unclear": ("≈", "unclear"),
    "behind": ("▼", "behind"),
    "unknown": ("?", "no verdict"),
}
"""A sign and a word for the standing of this engine."""
_SCALE_MAX = 100.0
_UNITS = {
    "concurrency.1.done_ms.p50": "ms from begin to answer, median",
    "concurrency.transactions_per_second": "transactions a second, at the best number of threads",
    "throughput_mb_s": "MB/s of payload",
    "end_to_end_ms.p50": "ms from due to received, median",
    "killed.first_commit_ms": "ms until the first commit is answered",
    "cpu_ms_per_transaction": "ms of CPU a transaction",
}
_PROMISES = (
    ("tables", "atomic with tables"),
    ("readers", "readers wait"),
    ("zombie", "a worker that was replaced"),
    ("anomalies", "anomalies found here"),
    ("memory_mb", "memory, MB"),
)


class Interval(NamedTuple):
    """A drawn interval: shares of the width, from 0 to 1. `one`: where the ratio is 1."""

    low: float
    median: float
    high: float
    one: float


class Ratio(NamedTuple):
    """A system's row. `side`: how it compares with this engine, "better", "worse", "level" or "no verdict"."""

    system: str
    name: str
    value: str
    ratio: str
    side: str
    interval: Interval | None


class Answer(NamedTuple):
    """An answer at one durability. `standing`: of this engine; `sign` and `word` say it."""

    durability: str
    standing: str
    sign: str
    word: str
    sentence: str
    why: str
    figure: str
    ratios: Sequence[Ratio]


class Question(NamedTuple):
    words: str
    workload: str
    answers: Sequence[Answer]


class Answers(NamedTuple):
    """All answers.

    headline   counts the standings; "" while no question has a verdict
    unasked    (question, why it has no answer), for those whose workload did not run
    """

    headline: str
    questions: Sequence[Question]
    unasked: Sequence[tuple[str, str]]


def answers(summary: dict[str, Any]) -> Answers | None:
    """Returns the answers; None if the summary has no verdicts, or none of their workloads ran."""
    verdicts = summary.get("verdicts") or []
    ran = workloads_of(summary["systems"])
    asked = [one for one in verdicts if one["ratios"] or one["workload"] in ran]
    if not asked:
        return None
    scale = _scale(asked)
    by_question: dict[str, list[dict[str, Any]]] = {}
    for one in asked:
        by_question.setdefault(one["question"], []).append(one)
    questions = [
        Question(group[0]["words"], group[0]["workload"], [_answer(one, scale) for one in group])
        for group in by_question.values()
    ]
    unasked = [(one["words"], one["why"]) for one in verdicts if one not in asked]
    return Answers(_headline(asked), questions, unasked)


def _headline(verdicts: Sequence[dict[str, Any]]) -> str:
    """Counts the standings at the first durability that has any verdict."""
    durability = next((v["durability"] for v in verdicts if v["standing"] != "unknown"), None)
    if durability is None:
        return ""
    mine = [v["standing"] for v in verdicts if v["durability"] == durability]
    counts = {
        words: mine.count(standing)
        for standing, words in (
            *(("first", "ahead in {}"), ("level", "level in {}"), ("behind", "behind in {}")),
            ("unclear", "without a clear standing in {}"),
            ("unknown", "without a verdict in {}"),
        )
    }
    parts = [words.format(n) for words, n in counts.items() if n]
    text = ", ".join(parts[:-1]) + (" and " if parts[1:] else "") + parts[-1]
    many = "question" if len(mine) == 1 else "questions"
    return f"This engine is {text} of {len(mine)} {many}, at durability {durability}."


def _answer(verdict: dict[str, Any], scale: tuple[float, float]) -> Answer:
    sign, word = STANDINGS.get(verdict["standing"], STANDINGS["unknown"])
    return Answer(
        verdict["durability"],
        verdict["standing"],
        sign,
        word,
        verdict["sentence"],
        verdict["why"] if verdict["why"] not in verdict["sentence"] else "",
        _UNITS.get(verdict["figure"]) or in_words(verdict["figure"]),
        [_row(one, verdict["better"], scale) for one in verdict["ratios"]],
    )


def _row(one: dict[str, Any], better: str, scale: tuple[float, float]) -> Ratio:
    system, span = one["system"], _span(one["ratio"])
    name, value = display_name(system, one["placement"]), number(_float(one["value"]))
    if system == OWN:
        return Ratio(system, name, value, "this engine", "", None)
    if span is None:
        return Ratio(system, name, value, "–", "no verdict", None)
    median, low, high = span
    ratio = f"{_times(median)} × ({_times(low)}–{_times(high)})"
    return Ratio(system, name, value, ratio, _side(one, better), _interval(span, better, scale))


def _side(one: dict[str, Any], better: str) -> str:
    span = _span(one["ratio"])
    if span is None or one["repeats"] < REPEATS_MIN:
        return "no verdict"
    median, low, high = span
    off = max(median, 1 / median if median else math.inf) >= 1 + MARGIN
    if not off or low <= 1 <= high:
        return "level"
    return "worse" if (median > 1) == (better == LOWER) else "better"


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _span(ratio: dict[str, float | None] | None) -> tuple[float, float, float] | None:
    """Returns (median, low, high), infinite where the JSON has null; None without a ratio."""
    if ratio is None:
        return None
    median, low, high = (
        math.inf if (value := ratio[name]) is None else float(value)
        for name in ("median", "low", "high")
    )
    return median, low, high


def _times(ratio: float) -> str:
    if math.isinf(ratio):
        return "∞"
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:,.3g}" if ratio < 1000 else f"{ratio:,.0f}"


def _advantages(ratios: Iterable[float], better: str) -> list[float]:
    """Returns how many times better this engine is, within the scale."""
    shares = (ratio if better == LOWER else 1 / ratio if ratio else math.inf for ratio in ratios)
    return [min(_SCALE_MAX, max(1 / _SCALE_MAX, share)) for share in shares]


def _scale(verdicts: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Returns the least and the largest advantage of all ratios: one scale serves all questions."""
    values = [0.5, 2.0]
    for verdict in verdicts:
        for one in verdict["ratios"]:
            values += _advantages(_span(one["ratio"]) or (), verdict["better"])
    return min(values) / 1.1, max(values) * 1.1


def _interval(
    span: tuple[float, float, float], better: str, scale: tuple[float, float]
) -> Interval:
    width = math.log(scale[1] / scale[0])
    median, *ends = _advantages(span, better)
    places = [math.log(value / scale[0]) / width for value in (min(ends), median, max(ends), 1.0)]
    return Interval(*(round(place, 4) for place in places))


def promises(summary: dict[str, Any]) -> Table | None:
    """Returns the table of promises; None if the summary has none."""
    rows = summary.get("promises") or []
    if not rows:
        return None
    named = [(key, words) for key, words in _PROMISES if any(row.get(key) for row in rows)]
    columns = ("system", "once it has answered, by durability", *(words for _, words in named))
    body = [
        (
            display_name(row["system"], row["placement"]),
            "\n".join(f"{name}: {text}" for name, text in row["durable"].items()),
            *(row.get(key) for key, _ in named),
        )
        for row in rows
    ]
    return Table(columns, body, left=len(columns))
