"""Row `shared`: plays seeds of worlds in which several machines share the log of one store, and judges them.

    seeds   ─▶ ../worlds/replicated/seed.play, spread over processes ─▶ counted; violations with their seed
    planted ─▶ each bug in turn, seed after seed ─▶ the judge has to report it, or the row is violated

The stores are real, in memory; so are the ownership, the log of an object store, and what opens a store. Simulated
are the objects, time, and what runs turns.

Next: ../worlds/replicated/seed.py.
"""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from ..parallel import gather
from ..simulator import bucket, fate
from ..worlds.replicated.kafka import play_kafka
from ..worlds.replicated.planted import BY_NAME
from ..worlds.replicated.seed import play
from .hunts import Hunt, hunt_all, hunts
from .registry import SHARE, RowOptions, RowResult

SEEDS, QUICK_SEEDS = 10_000, 60
TRANSACTIONS = 100
KAFKA_EVERY = 6
"""One seed of so many is of mode kafka, the others of mode deterministic."""
OF_A_CLASS = 1_000
TRIED_MAX = 500
MUST = (
    "a BEGIN is void",
    "a deleted turn is there again",
    "engine: Fenced",
    "engine: Fenced, in doubt",
    "engine: LogUnreachable, in doubt",
    "engine: StoreClosed, in doubt",
    "opening: Fenced",
    "opening: OwnedElsewhere",
    "read confirmed",
    "read: Fenced",
    "restored",
    "snapshot made",
)
"""Events that a full run has to come to."""
KNOWN: dict[str, int] = {
    "begins-trimmed": 56,
    "floor-after-deletion": 74,
    "leftovers-kept": 115,
    "no-begin": 56,
    "unconfirmed-read": 39,
}
"""The seed that caught a planted bug before, for a quick run; the first one for a bug that is not listed."""


def run(options: RowOptions) -> RowResult:
    seeds = options.seeds(SHARE * QUICK_SEEDS if options.quick else SEEDS)
    work: list[Any] = [*seeds]
    if options.runs is None:
        work += hunts(options, BY_NAME, KNOWN)
    result = gather(
        options,
        partial(_work, options.memory),
        work,
        lambda one: options.again(one if isinstance(one, int) else None),
    )
    result.seeds = seeds[0], seeds[-1]
    reached, tried = result.figures.pop("reached"), result.figures.pop("tried")
    result.figures.pop("said", None)
    if options.runs is None:
        result.figures["planted and caught"] = f"{len(tried)} of {len(BY_NAME)}"
        result.figures["seeds needed"] = dict(sorted(tried.items()))
    if result.runs >= SEEDS:
        classes = (*bucket.CLASSES, *fate.CLASSES)
        result.reaches((f"faults {name!r}", result.faults[name], OF_A_CLASS) for name in classes)
        for name in MUST:
            result.must(reached[name] > 0, f"no seed has come to it: {name}")
    result.figures["reached"] = dict(sorted(reached.items()))
    return result


def control(options: RowOptions) -> RowResult:
    """Plants each bug once: the judge has to report every one."""
    return hunt_all(
        options, partial(_work, options.memory), hunts(options, BY_NAME, KNOWN), "seeds needed"
    )


def _work(folder: Path, work: Any) -> RowResult:
    result = RowResult(figures={"reached": Counter(), "tried": Counter()})
    result.add(_hunt(folder, work) if isinstance(work, Hunt) else _play(folder, work))
    return result


def _play(folder: Path, seed: int) -> RowResult:
    kafka = seed % KAFKA_EVERY == 0
    played = play_kafka(seed, folder) if kafka else play(seed, folder, TRANSACTIONS)
    violations = [played.report()] if played.violations else []
    figures = {"reached": played.reached, "kafka_seeds": int(kafka)}
    return RowResult(1, played.events, played.faults, violations, figures=figures)


def _hunt(folder: Path, hunt: Hunt) -> RowResult:
    """Plants a bug, and plays seeds until the judge says what it has to say."""
    rule = BY_NAME[hunt.name]
    wrong: list[str] = []
    for tried, seed in enumerate(range(hunt.seed, hunt.seed + TRIED_MAX), 1):
        with rule.removed():
            wrong = play(seed, folder, TRANSACTIONS).violations
        if wrong and wrong[0].startswith(rule.said):
            said = f"{hunt.name}: {rule.mutant.about}: {wrong[0]}"
            return RowResult(figures={"tried": Counter({hunt.name: tried}), "said": [said]})
    return RowResult(violations=[f"{hunt.name}: not caught; the last try said {wrong!r}"])
