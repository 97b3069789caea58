"""Row `mutants`: plants bugs in the real cores, one at a time; the simulated worlds must detect each.

    mutant ─▶ planted ─▶ play(seed) for seed after seed ─▶ wrong, and without the bug it is not ─▶ caught
                                                    └ none of 500 ─▶ a violation: the worlds have a hole

A quick run begins with the seed that caught the mutant before (`KNOWN`), and goes on searching if that one no
longer does. A seed that is wrong without any bug catches nothing: row `sim` reports it.

Next: ../worlds/mutants/mutant.py, ../worlds/seed.py.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median

from ..parallel import gather
from ..worlds.mutants import attached, deterministic, kafka, pulsar
from ..worlds.mutants.mutant import Mutant, planted
from ..worlds.result import Played
from ..worlds.seed import play
from .registry import RowOptions, RowResult

MUTANTS = deterministic.MUTANTS + kafka.MUTANTS + pulsar.MUTANTS + attached.MUTANTS
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
SEEDS, QUICK_SEEDS = 500, 60
TRANSACTIONS, QUICK_TRANSACTIONS = 200, 60
PUBLISHED_LEAST = 12
CONTROL_SEEDS = 10

KNOWN: dict[str, tuple[int, int]] = {
    "taken-before-durable": (28, 60),
    "prepared-forgotten": (2, 60),
    "false-vote-kept": (3, 60),
    "waiter-not-woken": (3, 60),
    "proposed-twice": (3, 60),
    "first-slice-lost": (4, 60),
    "seek-unseen": (15, 200),
    "offsets-by-batch": (2, 60),
    "told-before-durable": (28, 60),
    "reads-unordered": (12, 200),
    "zero-offset": (2, 60),
    "voted-too-early": (3, 60),
    "early-false-lost": (12, 60),
    "blockers-cut-short": (106, 200),
    "published-unordered": (12, 60),
    "range-off-by-one": (3, 60),
    "acknowledged-twice": (64, 200),
    "offset-reused": (2, 60),
    "trimmed-too-far": (59, 200),
    "update-lost": (3, 60),
    "version-ignored": (2, 60),
    "answered-early": (2, 60),
    "sent-before-durable": (7, 60),
    "undone-in-part": (22, 60),
    "snapshot-unserved": (12, 60),
    "epoch-unchecked": (40, 60),
    "zombie-unfenced": (6, 60),
    "marker-repeated": (26, 200),
    "never-timed-out": (3, 60),
    "ids-again": (7, 60),
    "told-failed": (1, 200),
    "recovered-too-late": (2, 200),
    "late-ack-taken": (2, 200),
    "poison-logged": (8, 200),
    "parts-counted": (60, 200),
    "part-frees-all": (54, 200),
    "gap-unseen": (40, 200),
    "call-never-ends": (5, 200),
    "snapshot-stays-at-work": (1, 200),
    "old-mark-trusted": (1, 200),
    "again-unlooked": (1, 200),
    "again-unsaid": (1, 200),
    "second-again-unsaid": (3, 200),
    "answered-to-the-gone": (1, 200),
    "stage-outlives-link": (1, 200),
    "stages-wait": (1, 200),
    "rest-unsent": (25, 200),
    "lane-to-two": (1, 200),
    "given-too-late": (169, 200),
    "lanes-outlive-link": (2, 200),
    "ids-of-two": (1, 200),
}
"""(seed, transactions) that caught it before; (1, `QUICK_TRANSACTIONS`) for a mutant not listed."""


@dataclass(frozen=True)
class Hunt:
    """One mutant and the seeds to try, in this order."""

    mutant: Mutant
    seeds: tuple[int, ...]
    transactions: int


@dataclass
class Hunted:
    """The result. `seed`: that caught it, None if none did; `tried`: how many seeds were played."""

    seed: int | None = None
    why: str = ""
    tried: int = 0
    events: int = 0
    wrong_anyway: int = 0
    faults: Counter[str] = field(default_factory=Counter)


def run(options: RowOptions) -> RowResult:
    mutants = MUTANTS if options.runs is None else MUTANTS[: options.runs]
    return _judge(options, [_hunt(options, mutant) for mutant in mutants])


def control(options: RowOptions) -> RowResult:
    """Plants a mutant that changes nothing: no seed catches it, and the row has to say so."""
    seeds = tuple(range(options.seed, options.seed + CONTROL_SEEDS))
    return _judge(options, [Hunt(SAME, seeds, QUICK_TRANSACTIONS)]).planted("same: not caught")


SAME = Mutant(
    "same",
    "nothing: an empty queue is written otherwise",
    "tablets.participant:Participant._plan",
    "queue: Queue = space.get(QUEUE) or ()",
    "queue: Queue = space.get(QUEUE) or tuple()",
)


def _hunt(options: RowOptions, mutant: Mutant) -> Hunt:
    if not options.quick:
        return Hunt(mutant, tuple(range(options.seed, options.seed + SEEDS)), TRANSACTIONS)
    first, transactions = KNOWN.get(mutant.name, (1, QUICK_TRANSACTIONS))
    seeds = dict.fromkeys((first, *range(options.seed, options.seed + QUICK_SEEDS)))
    return Hunt(mutant, tuple(seeds), transactions)


def _judge(options: RowOptions, hunts: list[Hunt]) -> RowResult:
    result = gather(options, _count, hunts)
    tried = result.figures.pop("tried")
    most, slowest = max(tried, default=(0, ""))
    result.figures |= {
        "seeds needed, median": int(median(n for n, _ in tried)) if tried else 0,
        "seeds needed, most": f"{most} ({slowest})" if tried else 0,
    }
    if len(hunts) == len(MUTANTS):
        published = result.figures["re-creating published bugs"]
        result.reaches([("re-creating published bugs", published, PUBLISHED_LEAST)])
    result.seeds = (min(min(h.seeds) for h in hunts), max(max(h.seeds) for h in hunts))
    return result


def _count(hunt: Hunt) -> RowResult:
    mutant, hunted = hunt.mutant, hunt_down(hunt)
    caught = hunted.seed is not None
    result = RowResult(1, hunted.events, hunted.faults)
    result.must(caught, f"{mutant.name}: not caught by {hunted.tried} seeds: {mutant.about}")
    result.figures = {
        "caught": int(caught),
        "re-creating published bugs": int(caught and bool(mutant.source)),
        "seeds wrong without a bug": hunted.wrong_anyway,
        "tried": [(hunted.tried, mutant.name)] * caught,
    }
    return result


def hunt_down(hunt: Hunt) -> Hunted:
    hunted = Hunted()
    mode = hunt.mutant.mode
    for seed in hunt.seeds:
        with planted(hunt.mutant):
            why = _play(seed, mode, hunt.transactions, hunted)
        hunted.tried += 1
        if why:
            if _wrong_anyway(seed, mode, hunt.transactions):
                hunted.wrong_anyway += 1
                continue
            hunted.seed, hunted.why = seed, why.splitlines()[0][:160]
            break
    return hunted


def _play(seed: int, mode: str, transactions: int, hunted: Hunted) -> str:
    """Plays a seed; returns what is wrong, "" if nothing. An error in the world's own code counts too."""
    try:
        played: Played = play(seed, (mode,), transactions)
    except Exception as error:
        return f"the world ended with {error!r}"
    hunted.events += played.events
    hunted.faults.update(played.faults)
    return played.violations[0] or "wrong" if played.violations else ""


@lru_cache(None)
def _wrong_anyway(seed: int, mode: str, transactions: int) -> bool:
    return bool(_play(seed, mode, transactions, Hunted()))
