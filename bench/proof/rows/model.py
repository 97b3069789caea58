"""Row `model`: explores every interleaving of a few transactions at two tablets, with the real hosts and cores.

In mode "pulsar" the tablets are a coordinator and a partition, without their hosts.

    scenes ─▶ explore, a process each ─▶ states, judged ─▶ violations, each with the moves that led there
                                     └▶ what was reached: the false invariants, which must be broken

An exploration that never saw an abort would prove little. So each of `FALSE` is a false claim, and the row is
violated if no state refutes it.

Next: ../worlds/exhaustive/search.py.
"""

import time
from collections import Counter
from typing import Any

from ..parallel import gather
from ..worlds.exhaustive import pulsar_world as pulsar
from ..worlds.exhaustive.pulsar_invariants import SmallPulsar
from ..worlds.exhaustive.scene import Scene
from ..worlds.exhaustive.search import ABORTS, EARLY, SHARED_STEP, UNHEARD, WAITS, explore, search
from ..worlds.exhaustive.world import ASKED, BETWEEN, TWICE
from ..worlds.mutants.deterministic import MUTANTS
from ..worlds.mutants.mutant import planted
from .registry import RowOptions, RowResult

STATES, QUICK_STATES = 100_000, 5_000
CONFLICT = ("consume", "consume", "read")

SCENES: tuple[tuple[Scene, int], ...] = (
    # (scene, states at most); a scene that ends below it was explored completely
    (Scene("two hosts, a crash", 2, 0, 1, CONFLICT, repeats=0, losses=0), 120_000),
    (Scene("two hosts, a repeat", 2, 0, 1, CONFLICT, crashes=0, losses=0), 120_000),
    (Scene("two hosts, a crash, a repeat", 2, 0, 1, CONFLICT, losses=0), 300_000),
    (Scene("three hosts", 3, 1, 2, CONFLICT, crashes=0, repeats=0, losses=0), 60_000),
    (Scene("three hosts, a crash", 3, 1, 2, CONFLICT[1:], repeats=0, losses=0), 60_000),
    (Scene("both tablets vote", 2, 1, 0, ("consume", "next", "count"), repeats=0), 40_000),
    (Scene("two transactions, a crash, a repeat, a loss", 2, 0, 1, CONFLICT[1:]), 60_000),
    (Scene("tablets apart", 1, 0, 0, CONFLICT[1:], separate=True, losses=0), 15_000),
)
QUICK: tuple[tuple[Scene, int], ...] = (
    (Scene("two transactions, a crash, a repeat", 2, 0, 1, CONFLICT[1:], losses=0), 12_000),
    (Scene("two hosts", 2, 0, 1, CONFLICT, crashes=0, repeats=0, losses=0), 5_000),
)
PULSAR: tuple[tuple[pulsar.Scene, int], ...] = (
    (pulsar.Scene("pulsar", crashes=0, repeats=0, timeouts=0), 10_000),
    (pulsar.Scene("pulsar, a crash", repeats=0, timeouts=0), 60_000),
    (pulsar.Scene("pulsar, a time-out", crashes=0, repeats=0), 60_000),
    (pulsar.Scene("pulsar, a repeat", crashes=0, timeouts=0), 40_000),
    (pulsar.Scene("pulsar, all faults", losses=1), 40_000),
    (pulsar.Scene("pulsar, one client aborts", (True, False), losses=1), 40_000),
)
QUICK_PULSAR = ((pulsar.Scene("pulsar, all faults"), 10_000),)

FALSE: dict[str, str] = {
    "no transaction ever aborts": ABORTS,
    "a vote never arrives twice": TWICE,
    "no participant ever asks how its transaction ended": ASKED,
    "no crash falls between a plan and its execution": BETWEEN,
    "two transactions never share a step": SHARED_STEP,
    "no planned transaction waits for an earlier one": WAITS,
    "nothing commits that nobody waits for": UNHEARD,
    "no acknowledgement ever conflicts": pulsar.CONFLICT,
    "no transaction ever times out": pulsar.EXPIRED,
    "no message comes behind its transaction's end": pulsar.LATE_SEND,
    "no coordinator crashes between a decision and its end": pulsar.BETWEEN,
    "no partition hears of an end twice": pulsar.END_AGAIN,
}
FALSE_THERE = {
    "a vote never comes before its plan": EARLY,
    "every end that is asked for again is known": pulsar.UNKNOWN,
    "a client never opens two transactions": pulsar.TWO_IDS,
    "no commit comes behind a time-out": pulsar.LATE_END,
}
"""Refuted in a full run: the first one needs three hosts."""
_FAULTS = {"crash", "deliver, and crash behind the sync", "deliver twice", "lose"}


def run(options: RowOptions) -> RowResult:
    scenes: tuple[tuple[Any, int], ...]
    scenes = (*QUICK, *QUICK_PULSAR) if options.quick else (*SCENES, *PULSAR)
    if options.runs is not None:
        scenes = tuple((scene, min(most, options.runs)) for scene, most in scenes)
    began = time.monotonic()
    result = gather(options, _explore, scenes)
    result.seeds = None
    seconds = time.monotonic() - began
    reached: Counter[str] = result.figures["reached"]
    claims = FALSE if options.quick else {**FALSE, **FALSE_THERE}
    if options.runs is None:
        result.reaches([("states", result.runs, QUICK_STATES if options.quick else STATES)])
        for claim, name in claims.items():
            result.must(reached[name] > 0, f"never seen: {name}. So {claim!r} may be true")
    result.figures = {
        "scenes": len(scenes),
        "exhausted": "; ".join(sorted(result.figures["exhausted"])) or "none",
        "false invariants reached": sum(name in reached for name in claims.values()),
        "states per second": round(result.runs / seconds) if seconds else 0,
        **dict(sorted(reached.items())),
    }
    return result


BUG = next(mutant for mutant in MUTANTS if mutant.name == "vote-not-awaited")


def control(options: RowOptions) -> RowResult:
    """Plants a participant that does not wait for the last vote."""
    with planted(BUG):
        return _explore((QUICK[-1][0], 5_000)).planted("was decided True")


def _explore(work: tuple[Scene | pulsar.Scene, int]) -> RowResult:
    scene, most = work
    if isinstance(scene, pulsar.Scene):
        explored = search(SmallPulsar(scene), most)
    else:
        explored = explore(scene, most)
    return RowResult(
        explored.states,
        explored.transitions,
        Counter({fault: n for fault, n in explored.faults.items() if fault in _FAULTS}),
        [f"{explored.scene}: {text}" for text in explored.violations],
        figures={
            "reached": Counter(explored.reached),
            "exhausted": [explored.scene] if explored.exhausted else [],
        },
    )
