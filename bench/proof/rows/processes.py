"""Row `processes`: processes have one store open; its owner and the others are killed, again and again.

    process 0   owns ─── kill -9     opens again: attaches ──────── stopped ─ goes on ────
    process 1   attached ──┴─ owns ───────────────── kill -9    …
    process 2   attached ──── attached, hands in again ─┴─ owns ──
       ⋮              what all lives were told, with times of one clock
                               ▼
    histories   strictly serializable, in real time too, over all processes and owners
    copies      each record copied once, however often its partition moved

What was acknowledged is there, once: positions, counts and lists say so. Whoever was killed asks in its next life
how its transactions ended. A change of owner begins one generation. At the end nothing is left of anybody.

A variant is a line of VARIANTS. Negative controls: readers that trust a mark that was read a while ago; owners
that do once more what is handed in once more; owners that give a partition to two processes.

Left out: takeovers by other machines, which row `shared-kill9` has.

Next: struck_processes.py, which strikes; struck_history.py, struck_copies.py.
"""

import random
from dataclasses import replace
from typing import NamedTuple

from ....api.open_engine import Mode, Placement
from ...judges.python.findings import REAL_TIME, REPEATED
from ..disks.forked import Silent
from ..disks.modes import MODES
from ..disks.sharers import SharedStore
from ..parallel import gather
from .registry import RowOptions, RowResult
from .struck_copies import Copies, CopiesOneByOne
from .struck_history import Histories
from .struck_processes import Processes, Work

STRIKES = 1_000
_CONTROL_STRIKES = 25


class Variant(NamedTuple):
    """Processes that share a store. `strikes`: of a thousand. `settings`: a variant of the mode's."""

    kind: type[Processes]
    strikes: int
    processes: int = 8
    mode: Mode = "deterministic"
    hosts: int = 1
    placement: Placement = "shared"
    settings: str = ""
    replicated: bool = False


VARIANTS = {
    "one host": Variant(Histories, 200),
    "three hosts": Variant(Histories, 125, 5, hosts=3),
    "separate": Variant(Histories, 100, 5, hosts=3, placement="separate"),
    "replicated": Variant(Histories, 125, 5, replicated=True),
    "group": Variant(Copies, 100, 4),
    "group, one by one": Variant(CopiesOneByOne, 100, 4),
    "kafka": Variant(Copies, 150, 4, "kafka", settings="version 2"),
    "pulsar": Variant(CopiesOneByOne, 100, 4, "pulsar", settings="single"),
}
assert {*MODES} == {variant.mode for variant in VARIANTS.values()}, "a mode that is not struck"

CONTROLS = (
    ("one host", "old mark", f": {REAL_TIME}: "),
    ("one host", "again", f": {REPEATED}: "),
    ("kafka", "two hands", " times too often"),
)
"""(variant, planted bug, words of the violation)."""


def run(options: RowOptions) -> RowResult:
    strikes = options.of(STRIKES)
    whole = sum(variant.strikes for variant in VARIANTS.values())
    works, before = [], 0
    for number, (name, variant) in enumerate(VARIANTS.items()):
        until = before + variant.strikes
        share = strikes * until // whole - strikes * before // whole
        before = until
        if share:
            seed = 1_000 * options.seed + number
            works.append(Work(name, options.folder, options.memory, share, seed))
    result = gather(options, strike_again, works)
    result.figures["checker_seconds"] = round(result.figures.get("checker_seconds", 0.0), 1)
    result.reaches([("strikes", result.runs, strikes)])
    for what in ("committed", "told_by_outcome", "looks", "copied", "moves"):
        result.must(result.figures.get(what, 0) > 0 or options.runs is not None, f"no {what}")
    if options.runs is None:
        owners = result.faults["kill of the owner"]
        result.reaches([("kills of owners", owners, strikes // 4)])
    return result


def control(options: RowOptions) -> RowResult:
    """Plants readers that trust an old mark, and owners that do again what they have done, or share badly."""
    result = RowResult(seeds=(options.seed, options.seed))
    for variant, bug, expected in CONTROLS:
        strikes = options.runs or _CONTROL_STRIKES
        work = Work(variant, options.folder, options.memory, strikes, 1_000 * options.seed, bug)
        one = strike_again(work).planted(expected)
        if not one.violations:
            return one
        result.add(one)
    return result


def processes_of(work: Work) -> Processes:
    variant = VARIANTS[work.name]
    place = work.folder / f"processes-{work.label}"
    of = variant.mode, variant.hosts, variant.placement, variant.settings, variant.replicated
    return variant.kind(work, SharedStore(place, *of), variant.processes)


def strike_again(work: Work) -> RowResult:
    """Strikes the processes of one store again and again, and judges what they have done."""
    processes = processes_of(work)
    try:
        processes.begin()
        for number in range(work.strikes):
            processes.strike(random.Random(f"{work.seed}/{number}"))
            if processes.wrongs:
                break
        else:
            processes.finish()
        if processes.wrongs and not work.planted:
            wrong = [f"{work.label}: {text}" for text in processes.wrongs]
            return replace(processes.result, violations=wrong)
        return processes.judged()
    except Silent as silent:
        return RowResult(violations=[f"{work.name}: {silent}"])
    finally:
        processes.end()
