"""Row `determinism`: plays the same seed in two other processes, under other hash seeds, and compares the bytes.

    PYTHONHASHSEED=1 ─▶ process ─▶ seed, digest of all it changed, saw and counted ─┐
    PYTHONHASHSEED=2 ─▶ process, from the last seed to the first ─▶ …               ─┴▶ equal, seed by seed

It detects a core that iterates over a set, or uses a memory address or a clock; and state that one seed leaves
for the next.

Next: ../worlds/seed.py.
"""

import hashlib
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from ...children import Children, call, environment
from ..worlds.mutants.mutant import Mutant, planted
from ..worlds.seed import MODES, play
from .registry import RowOptions, RowResult

SEEDS = 200
TRANSACTIONS = 200
SECONDS_MAX = 1_200
UNORDERED = Mutant(
    "unordered",
    "a coordinator gives places in the order of a set",
    "coordinator.plan:Coordinator.close",
    "requests = self._live(requests)",
    "by_tx = {request.tx: request for request in self._live(requests)}\n"
    "    requests = [by_tx[tx] for tx in set(by_tx)]",
)


def run(options: RowOptions) -> RowResult:
    return compare(options, MODES)


def control(options: RowOptions) -> RowResult:
    """Plants a coordinator that gives places in the order of a set."""
    options = replace(options, runs=3)
    return compare(options, ("deterministic",), plant=True).planted("B30")


def compare(options: RowOptions, modes: tuple[str, ...], plant: bool = False) -> RowResult:
    seeds = options.seeds(SEEDS)
    result = RowResult(seeds=(seeds[0], seeds[-1]))
    arguments = seeds[0], len(seeds), ",".join(modes), "planted" if plant else ""
    with Children() as children:
        started = [
            children.start(
                call(tell, *arguments, order),
                env={**environment(), "PYTHONHASHSEED": hash_seed},
                stdout=subprocess.PIPE,
                text=True,
            )
            for hash_seed, order in (("1", "forward"), ("2", "backward"))
        ]
        outputs = [child.communicate(timeout=SECONDS_MAX)[0] for child in started]
    digests = [{line.split()[0]: line for line in output.splitlines()} for output in outputs]
    for seed in seeds:
        lines = [one.get(str(seed), "") for one in digests]
        result.runs += 1
        if not all(lines):
            result.violations.append(f"seed {seed} came to no end\n{options.again(seed)}")
        elif lines[0] != lines[1]:
            result.violations.append(
                f"B30: seed {seed} is {lines[0]!r} here and {lines[1]!r} there\n{options.again(seed)}"
            )
        else:
            result.events += int(lines[0].split()[2])
    result.figures["equal"] = result.runs - len(result.violations)
    return result


def tell(first: str, count: str, modes: str, plant: str, order: str) -> None:
    """Prints a line for each seed, in a process of its own."""
    with planted(UNORDERED) if plant else nullcontext():
        seeds = range(int(first), int(first) + int(count))
        for seed in seeds if order == "forward" else reversed(seeds):
            played = play(seed, tuple(modes.split(",")), TRANSACTIONS)
            whole: list[Any] = [played.digest, played.settings, played.violations]
            whole += [sorted(played.faults.items()), sorted(played.reached.items())]
            digest = hashlib.sha256(repr(whole).encode()).hexdigest()
            print(seed, digest, played.events, flush=True)
