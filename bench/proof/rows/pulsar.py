"""Row `pulsar`: kills the real engine in mode "pulsar"; only anomalies that Pulsar allows may appear.

    lives of the real engine, kill -9 (killed_lives.py) ─▶ the finder of row `kafka` ─▶ forbidden: a violation
       └─▶ what no end may leave: pending rows, live transactions     └▶ allowed: counted, by its name

A send is a batch of one transaction for one partition, an acknowledgement what one transaction has read for a
consumer. Nobody is fenced: rivals of one name both go on, and their acknowledgements conflict. Cumulative ones that
overlap do not, if the first has ended before the second comes: inputs are used twice, as in Pulsar. So it is, too,
where a killed process's commit was decided and its successor reads before the position has moved. ARCHITECTURE.md
says why. Individual acknowledgements count each input once.

Left out: simulated worlds, which are row `sim`.

Next: killed_lives.py.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import planstep
from planstep.proto.batch import Batch
from planstep.proto.ids import host_of, tablet_prefix
from planstep.tablets.pulsar import rows

from ..disks.pulsar_ends import left
from ..parallel import gather
from ..worlds.in_place.anomalies import ALLOWED, NOT_TOLD, TWO_HANDS, WAITS, Entry
from .killed_lives import Lives, Way, kill_lives
from .registry import RowOptions, RowResult

REQUESTS = 200_000
"""Sends and acknowledgements."""
KILLS, KILLS_QUICK = 24, 3
_CONTROL_KILLS = 2
_PATIENCE_S = 20.0
NAMES = (*ALLOWED, WAITS, NOT_TOLD, TWO_HANDS)
"""Anomalies that are allowed everywhere."""
USED_TWICE = "input used twice"
_SETTINGS = {
    "transaction_timeout_ms": 1_500,
    "retry_backoff_ms": 5,
    "request_timeout_ms": 2_000,
    "end_retry_ms": 20,
    "snapshot_transactions": 50,
    "snapshot_interval_ms": 200,
    "ack_log_index_min_lag": 20,
    "deduplication": True,
}
"""Nobody ends what a killed life left open but its time-out, so that is short."""


@dataclass(frozen=True)
class Store:
    """A store to kill, with consumers of a kind."""

    hosts: int
    placement: str
    kind: str
    rivals: float = 0.05
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} consumers" + " with rivals" * (self.rivals > 0)


_BATCHED = {"log_batching": True, "ack_log_batching": True}
_SEGMENTS = {"snapshots": "segmented", "snapshot_segment_bytes": 1_024}
STORES = (
    Store(1, "shared", "individual"),
    Store(1, "shared", "cumulative", 0.0, settings={"ended_kept": 1_000, "snapshots": "parts"}),
    Store(1, "shared", "cumulative", settings=_SEGMENTS),
    Store(3, "separate", "individual", settings=_BATCHED | _SEGMENTS),
)


def run(options: RowOptions) -> RowResult:
    """Kills each store's processes, a kill is a run."""
    kills = options.of(KILLS, KILLS_QUICK)
    total = options.of(REQUESTS)
    result = gather(options, _work, list(_lives(options, kills, total)))
    sums: dict[str, Counter[str]] = defaultdict(Counter, result.figures)
    sends, acks = sums["sends"]["real"], sums["acks"]["real"]
    result.figures = {
        "sends": sends,
        "acks": acks,
        "transactions": dict(sums["transactions"]),
        "allowed": {
            str(store): {name: sums[str(store)][name] for name in _allowed(store)}
            for store in STORES
        },
    }
    result.reaches([("kills of the real engine", result.faults["kill -9"], kills)])
    if options.runs is None:
        result.reaches([("sends and acknowledgements", sends + acks, total)])
    return result


def control(options: RowOptions) -> RowResult:
    """Judges overlapping cumulative acknowledgements as if they conflicted: inputs must be used twice."""
    store = replace(STORES[2], rivals=0.3)
    lives = _life_of(options, 0, store, options.runs or _CONTROL_KILLS, 2_000, NAMES)
    return _work(lives).planted(USED_TWICE)


def _lives(options: RowOptions, kills: int, total: int) -> Iterator[Lives]:
    """Yields the stores, each with its share of the kills."""
    requests = 600 if options.runs is not None else total * 5 // (4 * kills)  # some end early
    for number, store in enumerate(STORES):
        own = kills // len(STORES) + (number < kills % len(STORES))
        if own:
            yield _life_of(options, number, store, own, requests, _allowed(store))


def _life_of(
    options: RowOptions,
    number: int,
    store: Store,
    kills: int,
    requests: int,
    allowed: tuple[str, ...],
) -> Lives:
    return Lives(
        os.fspath(options.folder / f"store-{number}"),
        options.seed,
        kills,
        requests,
        store.hosts,
        store.placement,
        str(store),
        "pulsar",
        _SETTINGS | store.settings,
        store.kind,
        store.rivals,
        allowed,
    )


def _allowed(store: Store) -> tuple[str, ...]:
    return (*NAMES, USED_TWICE) if store.kind == "cumulative" else NAMES


def _work(lives: Lives) -> RowResult:
    """Lives one store's lives, in a process of its own."""
    return kill_lives(lives, Way(_entries, _left))


# the judge -----------------------------------------------------------------------------------


def _entries(stores: Any, tablet: int) -> Iterator[Entry]:
    """Yields a partition's entries, with its transaction's id as the producer: a marker ends that one."""
    store, prefix = stores[host_of(tablet)], tablet_prefix(tablet) + b"b"
    for key, row in store.scan(prefix, prefix + b"\xff" * 9):
        entry = rows.Entry(*row)
        data = store.read_payload(entry.address, entry.length) if entry.length else b""
        values: Any = Batch.decode(data).values if data else []
        txn = entry.most << 64 | entry.least
        yield Entry(int.from_bytes(key[-8:], "big"), entry.records, txn, entry.kind, values)


def _left(db: planstep.Engine) -> list[str]:
    """Returns what is left of transactions once all have had the time to end."""
    until = time.monotonic() + _PATIENCE_S
    while (found := list(left(db))) and time.monotonic() < until:
        time.sleep(0.05)
    return found
