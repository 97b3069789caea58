"""Row `shared-model`: machines that share a log, with the real ownership and entries, over a simulated store.

    seeds  ─▶ walk, at random       ─▶ steps  ─┐
    scenes ─▶ search, breadth first ─▶ states ─┼▶ judged at each step: J0 to J8 of worlds/shared/judge.py
    stories                                   ─┘
    rules  ─▶ each removed once, on walks or a story ─▶ the judge has to report it, or the row is violated

The walks have to come to each event of `MUST`: one that never saw a late put would prove little.

Next: ../worlds/shared/world.py.
"""

from collections import Counter
from typing import Any

from ..parallel import gather
from ..worlds.exhaustive.search import search
from ..worlds.shared import object_store, world
from ..worlds.shared.planted import BY_NAME
from ..worlds.shared.scenes import SCENES, SmallShared
from ..worlds.shared.state import Scene
from ..worlds.shared.stories import STORIES
from ..worlds.shared.walk import walk
from .hunts import Hunt, hunt_all, hunts
from .registry import RowOptions, RowResult

WALKS = 4_000
STATES, QUICK_STATES = 250_000, 10_000
QUICK_SCENE = 2_000
TRIED_MAX = 500

MUST = (
    object_store.VOID,
    object_store.AGAIN,
    object_store.REMOVED,
    world.COMMITTED,
    world.FENCED,
    world.IN_DOUBT,
    world.LANDED,
    world.MINE,
    world.RESTORED,
    world.STALE_READ,
    world.TAKER_FENCED,
)

KNOWN: dict[str, int] = {
    "begins-trimmed": 2,
    "cut-floors-believed": 277,
    "exists-is-fenced": 2,
    "new-bytes": 106,
    "no-look-after-begin": 84,
    "no-reader-look": 34,
    "undecided-snapshot": 2,
}
"""The seed that caught a removed rule before, for a quick run; the first one for a rule that is not listed."""


def run(options: RowOptions) -> RowResult:
    seeds = options.seeds(WALKS)
    work: list[Any] = [*seeds]
    if options.runs is None:
        most = QUICK_SCENE if options.quick else None
        work += [(scene, most or states) for scene, states in SCENES]
        work += [*STORIES, *hunts(options, BY_NAME, KNOWN)]
    result = gather(
        options, _work, work, lambda one: options.again(one if isinstance(one, int) else None)
    )
    result.seeds = seeds[0], seeds[-1]
    reached, tried = result.figures.pop("reached"), result.figures.pop("tried")
    result.figures.pop("said", None)
    if options.runs is None:
        states = result.figures.get("states", 0)
        result.reaches([("states", states, QUICK_STATES if options.quick else STATES)])
        for name in MUST:
            result.must(reached[name] > 0, f"no walk has come to it: {name}")
        result.figures |= {
            "rules removed and caught": f"{len(tried)} of {len(BY_NAME)}",
            "walks needed": dict(sorted(tried.items())),
        }
    result.figures["reached"] = dict(sorted(reached.items()))
    return result


def control(options: RowOptions) -> RowResult:
    """Removes each rule once: the judge has to report every one."""
    return hunt_all(options, _work, hunts(options, BY_NAME, KNOWN), "walks needed")


def _work(work: Any) -> RowResult:
    result = RowResult(figures={"reached": Counter(), "tried": Counter()})
    if isinstance(work, int):
        result.add(_walk(work))
    elif isinstance(work, str):
        told = STORIES[work]()
        result.events = len(told.moves)
        result.violations = [f"{work}: {text}" for text in told.wrong]
    else:
        result.add(_hunt(work) if isinstance(work, Hunt) else _search(*work))
    return result


def _walk(seed: int) -> RowResult:
    walked = walk(seed)
    figures = {"reached": walked.reached, "turns": walked.turns, "terms": walked.terms}
    return RowResult(1, walked.steps, walked.faults, walked.violations, figures=figures)


def _search(scene: Scene, most: int) -> RowResult:
    explored = search(SmallShared(scene), most)
    violations = [f"{scene.name}: {text}" for text in explored.violations]
    ended = [scene.name] if explored.exhausted else []
    figures = {"states": explored.states, "exhausted": ended}
    return RowResult(0, explored.transitions, violations=violations, figures=figures)


def _hunt(hunt: Hunt) -> RowResult:
    """Removes a rule, and tells its story, or walks until the judge says what it has to say."""
    rule = BY_NAME[hunt.name]
    seeds = range(hunt.seed, hunt.seed + (1 if rule.story else TRIED_MAX))
    wrong = ""
    for tried, seed in enumerate(seeds, 1):
        with rule.removed():
            wrong = _wrong(rule.story, seed)
        if wrong.startswith(rule.said) and not _wrong(rule.story, seed):
            said = f"{hunt.name}: {rule.mutant.about}: {wrong}"
            return RowResult(figures={"tried": Counter({hunt.name: tried}), "said": [said]})
    return RowResult(violations=[f"{hunt.name}: not caught; the last try said {wrong!r}"])


def _wrong(story: str, seed: int) -> str:
    """Returns what the judge says of a story or a walk, from its "J" on; "" for nothing."""
    if story:
        return "\n".join(STORIES[story]().wrong)
    violations = walk(seed).violations
    return violations[0].partition(": ")[2] if violations else ""
