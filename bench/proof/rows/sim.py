"""Row `sim`: plays seeds of the simulated worlds, faults on and then healed, and checks the invariants.

    seeds ─▶ spread over processes ─▶ ../worlds/seed.play: mode by the seed, the rest drawn ─▶ counted
                                  └▶ the first that fail: shrunk, with the plan and the last events

Each class of faults has to strike often, or the row says so: odds that are too small prove nothing. It lists
transitions of state tables that no seed took.

Next: ../worlds/seed.py.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ....proto.messages import PartitionPart
from ....tablets.partition import Partition
from ..parallel import gather
from ..simulator.attached_world import CLASSES as ATTACHED_CLASSES
from ..simulator.client_world import CLASSES as IN_PLACE_CLASSES
from ..simulator.faults import CLASSES
from ..worlds.kafka.coverage import TABLES as KAFKA_TABLES
from ..worlds.online_invariants import TABLES
from ..worlds.pulsar.coverage import TABLES as PULSAR_TABLES
from ..worlds.result import Played
from ..worlds.seed import IN_PLACE, MODES, play
from ..worlds.shrink import shrink
from ..worlds.swarm import draw
from .registry import SHARE, RowOptions, RowResult

SEEDS = 10_000
TRANSACTIONS = 200
OF_A_CLASS = 1_000
SHRUNK = 3


def run(options: RowOptions) -> RowResult:
    seeds = options.seeds(SEEDS)
    result = gather(options, _play, seeds)
    result.seeds = seeds[0], seeds[-1]
    of_mode, reached = result.figures["seeds"], result.figures["reached"]
    _explain(options, result, result.figures["failed"])
    tables = TABLES | KAFKA_TABLES | PULSAR_TABLES
    transitions = [f"{table}: {one}" for table, several in tables.items() for one in several]
    unreached = [one for one in transitions if not reached[one]]
    result.figures = {
        **{f"{mode}_seeds": times for mode, times in sorted(of_mode.items())},
        "transactions": result.runs * TRANSACTIONS,
        "transitions": f"{len(transitions) - len(unreached)} of {len(transitions)}",
        "unreached": unreached,
    }
    if result.runs >= SEEDS // SHARE:
        _struck(result, of_mode)
    return result


def _play(seed: int) -> RowResult:
    played = play(seed, MODES, TRANSACTIONS)
    faults = Counter({f"{played.mode}: {name}": n for name, n in played.faults.items()})
    figures = {
        "seeds": Counter([played.mode]),
        "reached": played.reached,
        "failed": [played] if played.violations else [],
    }
    return RowResult(1, played.events, faults, figures=figures)


def _struck(result: RowResult, of_mode: Counter[str]) -> None:
    """Checks that every class of each mode struck often: a thousand times in a full run.

    A shorter run needs that share of it. The classes of modes with data in place come in bunches and have few of
    the seeds, so they need the share of their mode's seeds. So do those of processes that share a store, always.
    """
    least = {
        mode: OF_A_CLASS * (result.runs if mode == "deterministic" else times) // SEEDS
        for mode, times in of_mode.items()
    }
    if result.runs >= SEEDS:
        least = {**dict.fromkeys(least, OF_A_CLASS), "attached": least.get("attached", 0)}
    names = [*result.faults]
    for mode in IN_PLACE:
        if of_mode[mode]:
            names += [f"{mode}: {name}" for name in IN_PLACE_CLASSES]
    if of_mode["attached"]:
        names += [f"attached: {name}" for name in ATTACHED_CLASSES]
    if of_mode["deterministic"]:
        names += [f"deterministic: {name}" for name in CLASSES]
    result.reaches(
        (f"faults {name!r}", result.faults[name], least[name.split(":")[0]])
        for name in dict.fromkeys(names)
    )


def _explain(options: RowOptions, result: RowResult, failed: list[Played]) -> None:
    shrunk = 0
    for played in sorted(failed, key=lambda played: played.seed):
        if played.mode == "deterministic" and shrunk < SHRUNK:
            options.tell(f"shrinking seed {played.seed}")
            result.violations.append(_shrunk(options, played.seed))
            shrunk += 1
        else:
            result.violations.append(played.report(options.again(played.seed)))


def _shrunk(options: RowOptions, seed: int) -> str:
    _, smallest = shrink(draw(seed, TRANSACTIONS))
    return smallest.report(options.again(seed), "  shrunk to the smallest run that still fails")


@contextmanager
def planted() -> Iterator[None]:
    """Plants a partition that does not compare a consumer's position with a range's begin."""
    check = Partition.check

    def blind(self: Partition, body: Any, early: bool) -> Any:
        return check(self, PartitionPart(*body)._replace(ranges=()), early)

    with patch.object(Partition, "check", blind):
        yield


def control(options: RowOptions) -> RowResult:
    """Plays seeds in this process, where the planted bug is."""
    result = RowResult()
    with planted():
        for seed in range(options.seed, options.seed + 3):
            played = play(seed, ("deterministic",), TRANSACTIONS)
            result.add(RowResult(1, played.events, played.faults))
            if played.violations:
                result.violations.append(_shrunk(options, seed))
                break
    return result.planted("B14", "B18", "B21")
