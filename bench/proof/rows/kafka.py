"""Row `kafka`: runs mode "kafka" under kills, pauses and zombies; only anomalies that Kafka allows may appear.

    seeds ─▶ simulated worlds (../worlds/kafka/seed.py) ─┐
    lives of the real engine, kill -9 (killed_lives.py) ─┴▶ the same finder ─▶ forbidden: a violation
                                                                             └▶ allowed: counted, by its name

A send is a batch of one transaction for one partition. The protocol's version decides what is allowed: writes
interleave in both; torn and lost ones only in version 1, and only if requests arrive late. ARCHITECTURE.md
says why.

Next: killed_lives.py.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..parallel import gather
from ..worlds.in_place.anomalies import ALLOWED
from ..worlds.kafka.coverage import TABLES, UNREACHABLE, unreached
from ..worlds.kafka.seed import play
from ..worlds.kafka.swarm import USED_WRONGLY, WITH_LATE_REQUESTS, draw_settings
from .killed_lives import Lives, Way, kill_lives
from .registry import RowOptions, RowResult

SEEDS = 340
SENDS = 200_000
KILLS, KILLS_QUICK = 20, 3
SENDS_KILLED = 20_000
TRANSACTIONS = 200
CONTROL_SEEDS = 6
STORES = ((1, "shared", 2), (3, "separate", 1))
"""(hosts, placement, protocol version) of the real engine's stores."""
_SETTINGS = {
    "transaction_timeout_ms": 5_000,
    "abort_scan_ms": 100,
    "marker_retry_ms": 20,
    "retry_backoff_ms": 5,
    "concurrent_backoff_ms": 2,
    "add_partitions_backoff_ms": 2,
}
Item = int | Lives


def run(options: RowOptions) -> RowResult:
    """Plays simulated seeds and kills of the real engine, each counted as a run; a single run is a seed."""
    kills = _kills(options)
    seeds = options.seeds(SEEDS)
    if options.runs is not None:
        seeds = seeds[: options.runs - kills]
    items: list[Item] = [*_lives(options, kills), *seeds]
    result = gather(
        options, _work, items, lambda item: options.again(item if isinstance(item, int) else None)
    )
    result.seeds = seeds[0], seeds[-1]
    sums: dict[str, Counter[str]] = defaultdict(Counter, result.figures)
    sends, reached = sums["sends"], sums["reached"]
    missing = unreached(reached)
    result.figures = {
        "simulated_sends": sends["simulated"],
        "real_sends": sends["real"],
        "transactions": dict(sums["transactions"]),
        "allowed": {
            kind_of(*kind): _counts(kind, sums) for kind in ((1, ""), (1, "late"), (2, ""))
        },
        "transitions": f"{sum(map(len, TABLES.values())) - len(missing)} of "
        f"{sum(map(len, TABLES.values()))}, {len(UNREACHABLE)} cannot be",
        "unreached": [transition for transition in missing if transition not in UNREACHABLE],
    }
    for transition in UNREACHABLE:
        result.must(transition not in reached, f"{transition}: it was said that nobody takes it")
    result.reaches([("kills of the real engine", result.faults["kill -9"], kills)])
    if options.runs is None:
        share = SEEDS // len(seeds)
        result.reaches(
            (
                ("simulated sends", sends["simulated"], SENDS // share),
                ("sends of the real engine", sends["real"], SENDS_KILLED // share),
            )
        )
    return result


def control(options: RowOptions) -> RowResult:
    """Judges version 1 with late EndTxn by the rules of version 2: transactions must be torn."""
    total = RowResult()
    for seed in range(options.seed, options.seed + (options.runs or CONTROL_SEEDS)):
        settings = draw_settings(seed)
        faults = replace(settings.faults, late=0.3, any_late=False)
        settings = replace(settings, version=1, late="ends", faults=faults, strict=True)
        result, _, _ = play(seed, TRANSACTIONS, settings)
        wrong = [f"seed {seed}: {text}" for text in result.violations]
        total.add(RowResult(1, faults=result.faults, violations=wrong))
    return total.planted("torn transaction")


def kind_of(version: int, late: str) -> str:
    """Returns the name of the worlds that allow the same anomalies."""
    return f"version {version}, requests late" if late else f"version {version}"


def _kills(options: RowOptions) -> int:
    """Returns the number of kills; of a given number of runs, the same share as in a full one, and at least one."""
    if options.runs is None:
        return KILLS_QUICK if options.quick else KILLS
    return max(1, options.runs * KILLS // (SEEDS + KILLS)) if options.runs > 1 else 0


def _lives(options: RowOptions, kills: int) -> Iterator[Lives]:
    """Yields the stores, each with its share of the kills."""
    sends = 400 if options.quick else 1_200
    for number, (hosts, placement, version) in enumerate(STORES):
        own = kills // len(STORES) + (number < kills % len(STORES))
        folder = os.fspath(options.folder / f"store-{number}")
        if own:
            settings = _SETTINGS | {"protocol_version": version}
            worlds = kind_of(version, "")
            yield Lives(
                folder, options.seed, own, sends, hosts, placement, worlds, "kafka", settings
            )


def _work(item: Item) -> RowResult:
    """Plays one item, in a process of its own; the figures are counters."""
    if isinstance(item, Lives):
        return kill_lives(item, Way())
    result, work, anomalies = play(item, TRANSACTIONS)
    settings = result.settings
    late = "late" if settings["version"] == 1 and settings["late"] else ""
    return RowResult(
        1,
        result.events,
        result.faults,
        [f"seed {item}: {text}" for text in result.violations],
        figures={
            "sends": Counter(simulated=sum(len(tx.sends) for tx in work.history.txs)),
            "transactions": Counter(tx.end for tx in work.history.txs),
            "reached": result.reached,
            kind_of(settings["version"], late): anomalies,
        },
    )


def _counts(kind: tuple[int, str], sums: dict[str, Counter[str]]) -> dict[str, Any]:
    """Returns how often each anomaly that may happen there did."""
    anomalies = sums[kind_of(*kind)]
    names = (*WITH_LATE_REQUESTS, "partition that hangs", *USED_WRONGLY) if kind[1] else ALLOWED
    return {name: anomalies[name] for name in dict.fromkeys((*names, *sorted(anomalies)))}
