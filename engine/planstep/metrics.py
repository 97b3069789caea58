"""Exports `db.stats()` and the lag of every consumer to Prometheus, at each scrape.

    planstep.metrics.register(db)          pip install "planstep[metrics]"
    scrape ─▶ db.stats(), levels of topics ─▶ families, each engine with its label `store`

It counts nothing of its own, so it costs nothing between scrapes. Closed engines are left out. Several engines
may share a registry.

    planstep_transactions_total {store, outcome, cause}    committed; aborted by cause; failed by error
    planstep_turn_seconds, planstep_turn_transactions,     histograms: a turn, how many it answered,
    planstep_sync_seconds, planstep_turn_bytes             its write and sync, bytes it appended
    planstep_<counter>_total {store}                       counters of the stores: syncs, log_bytes, …
    planstep_consumer_lag_records {store, topic, consumer} and planstep_consumer_missed_records
    planstep_topic_records {store, topic}
    planstep_step, planstep_waiting_transactions, planstep_checkpoint_age_seconds,
    planstep_memory_bytes {store, kind}, planstep_disk_bytes {store, kind},
    planstep_open_snapshots, planstep_oldest_snapshot_seconds

Where several processes have a store, its owner exports all of this. A process that is attached exports only what is
its own, so that sums over processes count nothing twice:

    planstep_memory_bytes, planstep_open_snapshots, planstep_oldest_snapshot_seconds; in modes "kafka" and "pulsar",
    where each process has a client, also planstep_transactions_total and planstep_waiting_transactions
    planstep_owns {store}                                   1 in the process that owns the store, else 0
    planstep_attached_processes, planstep_attached_total    of the owner: processes now, and since it owns the store
    planstep_link_connected, planstep_link_owners_lost_total, planstep_link_waiting_transactions
                                                            of an attached one: is there an owner, how many it has
                                                            lost, transactions sent over the link and not answered

Of a replicated store's shared log, behind `planstep_shared_log_`:

    append_seconds (histogram), requests_total {store, kind}, sent_bytes_total, received_bytes_total,
    mine_after_doubt_total, void_records_total, fences_total, term, floor, waiting_seconds, role {store, role},
    lag_turns, lag_seconds, lag_bytes

Of the buffered writers of coordinators' logs, with Pulsar's names behind `planstep_` in place of `pulsar_`:

    planstep_txn_tc_bufferedwriter_*                  {store, coordinator}: batch_records, batch_size_bytes,
    planstep_txn_group_bufferedwriter_*               batch_oldest_record_delay_seconds (histograms),
    planstep_txn_pending_ack_store_bufferedwriter_*   {store, host}: … flush_trigger_max_records_total, …

Next: cli/stats.py.
"""

import weakref
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .errors import MissingExtra, PlanstepError
from .proto.batched_log import BYTES_BUCKETS, DELAY_MS_BUCKETS, RECORDS_BUCKETS, TRIGGERS
from .runtime.statistics import TopicLevel, levels

if TYPE_CHECKING:
    from .api.engine import Engine

_HISTOGRAMS = (
    ("seconds", "turn_seconds", "Seconds that a turn took, its sync included."),
    ("transactions", "turn_transactions", "Transactions that a turn answered."),
    ("sync_seconds", "sync_seconds", "Seconds of writing and syncing a turn."),
    ("bytes", "turn_bytes", "Bytes that a turn appended to the log."),
)
_WRITERS = {
    "transactions": ("txn_tc", "coordinator"),
    "groups": ("txn_group", "coordinator"),
    "pending_acks": ("txn_pending_ack_store", "host"),
}
_WRITER_HISTOGRAMS = (
    ("batch_records", "batch_records", RECORDS_BUCKETS, 1),
    ("batch_bytes", "batch_size_bytes", BYTES_BUCKETS, 1),
    ("batch_oldest_delay_ms", "batch_oldest_record_delay_seconds", DELAY_MS_BUCKETS, 1000),
)
_SHARED_COUNTERS = {
    "sent_bytes": "Bytes that were sent to the shared log.",
    "received_bytes": "Bytes that were received from the shared log.",
    "mine_after_doubt": "Turns whose place was one's own, after an answer that did not say so.",
    "void_records": "Records of the shared log that are part of no turn.",
    "fences": "1 once another machine has taken the store over.",
}
_SHARED_GAUGES = {
    "term": "The term of the store's owner.",
    "floor": "The first turn that the shared log has not trimmed.",
    "waiting_seconds": "Seconds that the append under way has waited, 0 without.",
    "lag_turns": "Turns that a follower knows of and has not taken, or that an owner has not shipped yet.",
    "lag_bytes": "Bytes that an owner has not shipped yet, in mode async.",
    "lag_seconds": "Seconds since a follower had all turns, or since an owner has a turn that is not shipped.",
}
_OWNS = "1 in the process that owns the store."
_collectors: "weakref.WeakKeyDictionary[Any, _Collector]" = weakref.WeakKeyDictionary()


def register(db: "Engine", registry: Any = None) -> None:
    """Adds an engine to a prometheus_client registry, its default one if none is given.

    Raises MissingExtra with the pip line if prometheus_client is not installed. Registering twice counts once.
    """
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingExtra("prometheus_client", "metrics") from error
    if registry is None:
        registry = prometheus_client.REGISTRY
    collector = _collectors.get(registry)
    if collector is None:
        collector = _collectors[registry] = _Collector()
        registry.register(collector)
    collector.engines.add(db)


class _Collector:
    """Collects for one registry: each family appears once, with the samples of all engines."""

    def __init__(self) -> None:
        self.engines: weakref.WeakSet[Engine] = weakref.WeakSet()

    def describe(self) -> list[Any]:
        return []  # otherwise registering would scrape

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        families = _Families(CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily)
        for engine in sorted(self.engines, key=lambda engine: engine.path):
            try:
                engine.context.check()
                runtime = engine.context.runtime
                stats = runtime.stats(ask=False)
                topics = {} if "link" in stats else levels(runtime)
            except PlanstepError:
                continue  # closed
            store = {"store": engine.path}
            if "link" in stats:
                families.add_attached(store, stats, clients=not runtime.has_places)
            else:
                families.add_stats(store, stats)
                families.add_owner(store, stats.get("processes"))
            if "shared_log" in stats:
                families.add_shared_log(store, stats["shared_log"])
            for logs, by_owner in stats.get("coordinator_logs", {}).items():
                family, owner = _WRITERS[logs]
                for number, counters in by_owner.items():
                    families.add_log({**store, owner: str(number)}, family, counters)
            for topic, level in topics.items():
                families.add_topic({**store, "topic": topic}, level)
        yield from families.by_name.values()


class _Families:
    """Holds the families of one scrape, each created with its first sample."""

    def __init__(self, counter: Any, gauge: Any, histogram: Any) -> None:
        self.by_name: dict[str, Any] = {}
        self._counter, self._gauge, self._histogram = counter, gauge, histogram

    def _add(self, kind: Any, name: str, text: str, labels: dict[str, str], *value: Any) -> None:
        family = self.by_name.get(name)
        if family is None:
            family = self.by_name[name] = kind(f"planstep_{name}", text, labels=list(labels))
        family.add_metric(list(labels.values()), *value)

    def _add_histogram(
        self, name: str, text: str, labels: dict[str, str], held: dict[str, Any]
    ) -> None:
        buckets = [(str(float(bound)), n) for bound, n in held["buckets"].items()]
        buckets.append(("+Inf", held["count"]))
        self._add(self._histogram, name, text, labels, buckets, held["sum"])

    def add_stats(self, store: dict[str, str], stats: dict[str, Any]) -> None:
        """Adds one engine's `db.stats()`."""
        for key, name, text in _HISTOGRAMS:
            self._add_histogram(name, text, store, stats["turns"][key])
        for name, n in stats["store"].items():
            text = f"Of the stores since they were opened: {name.replace('_', ' ')}."
            self._add(self._counter, name, text, store, n)
        for name, text, value in _gauges(stats):
            self._add(self._gauge, name, text, store, value)
        text = "Bytes allocated on disk, by purpose."
        self._add_sizes("disk_bytes", text, store, stats["disk_bytes"])
        self._add_transactions(store, stats["transactions"])
        self._add_own(store, stats)

    def _add_transactions(self, store: dict[str, str], counts: dict[str, Any]) -> None:
        for outcome, cause, n in _transactions(counts):
            labels = {**store, "outcome": outcome, "cause": cause}
            text = "Transactions that ended, by outcome and cause."
            self._add(self._counter, "transactions", text, labels, n)
        text = "Transactions sent and not answered."
        self._add(self._gauge, "waiting_transactions", text, store, counts["waiting"])

    def _add_own(self, store: dict[str, str], stats: dict[str, Any]) -> None:
        """Adds what each process has of its own."""
        text = "Bytes in memory, by what they are for."
        self._add_sizes("memory_bytes", text, store, _memory(stats))
        snapshots = stats["snapshots"]
        self._add(
            self._gauge, "open_snapshots", "Snapshots that are open.", store, snapshots["open"]
        )
        text = "Age of the oldest open snapshot, 0 without."
        oldest = snapshots["oldest_seconds"]
        self._add(self._gauge, "oldest_snapshot_seconds", text, store, oldest)

    def _add_sizes(
        self, name: str, text: str, store: dict[str, str], sizes: dict[str, int]
    ) -> None:
        for kind, n in sizes.items():
            self._add(self._gauge, name, text, {**store, "kind": kind}, n)

    def add_owner(self, store: dict[str, str], processes: dict[str, Any] | None) -> None:
        """Adds who is attached; `processes` is None where nobody can attach."""
        if processes is None:
            return
        self._add(self._gauge, "owns", _OWNS, store, 1)
        text = "Processes that are attached to the store's owner."
        self._add(self._gauge, "attached_processes", text, store, processes["attached"])
        text = "Processes that were attached since this one owns the store."
        self._add(self._counter, "attached", text, store, processes["served"])

    def add_attached(self, store: dict[str, str], stats: dict[str, Any], clients: bool) -> None:
        """Adds what an attached process counts and its owner does not. `clients`: these count commits."""
        self._add_own(store, stats)
        counts, link = stats["transactions"], stats["link"]
        if clients:
            self._add_transactions(store, counts)
        self._add(self._gauge, "owns", _OWNS, store, 0)
        text = "1 while this process has a link to the store's owner."
        self._add(self._gauge, "link_connected", text, store, int(link["connected"]))
        text = "Owners of the store that this process has lost."
        self._add(self._counter, "link_owners_lost", text, store, link["owners_lost"])
        text = "Transactions sent over the link and not answered."
        self._add(self._gauge, "link_waiting_transactions", text, store, counts["waiting"])

    def add_shared_log(self, store: dict[str, str], stats: dict[str, Any]) -> None:
        """Adds what was counted of a replicated store's shared log; an owner and a follower have other numbers."""
        role = {**store, "role": stats["role"]}
        self._add(self._gauge, "shared_log_role", "1 for the engine's role.", role, 1)
        for kind, n in stats["requests"].items():
            text = "Requests to the shared log, by kind."
            self._add(self._counter, "shared_log_requests", text, {**store, "kind": kind}, n)
        if (held := stats.get("append_seconds")) is not None:
            text = "Seconds that a turn took to get into the shared log."
            self._add_histogram("shared_log_append_seconds", text, store, held)
        for kind, texts in ((self._counter, _SHARED_COUNTERS), (self._gauge, _SHARED_GAUGES)):
            for name, text in texts.items():
                if name in stats:
                    self._add(kind, f"shared_log_{name}", text, store, stats[name])

    def add_log(self, labels: dict[str, str], family: str, counters: dict[str, Any]) -> None:
        """Adds the counters of one buffered writer (proto/batched_log.py)."""
        family += "_bufferedwriter_"
        for key, name, bounds, unit in _WRITER_HISTOGRAMS:
            counts = list(accumulate(counters[key]))
            texts = [*(str(bound / unit) for bound in bounds), "+Inf"]
            text = f"Of the batches written to the log: {name.replace('_', ' ')}."
            buckets, total = list(zip(texts, counts, strict=True)), counters[key + "_sum"] / unit
            self._add(self._histogram, family + name, text, labels, buckets, total)
        for trigger in TRIGGERS:
            name = family + "flush_trigger_" + trigger.replace("max_bytes", "max_size")
            text = "Batches written to the log for this reason."
            self._add(self._counter, name, text, labels, counters[trigger])

    def add_topic(self, labels: dict[str, str], level: TopicLevel) -> None:
        """Adds a topic's number of records and its consumers' lags."""
        self._add(self._gauge, "topic_records", "Records in a topic.", labels, level.records)
        for consumer, (lag, missed) in level.consumers.items():
            of_consumer = {**labels, "consumer": consumer}
            text = "Records that a consumer has not consumed."
            self._add(self._gauge, "consumer_lag_records", text, of_consumer, lag)
            text = "Records that were trimmed before a consumer had consumed them."
            self._add(self._gauge, "consumer_missed_records", text, of_consumer, missed)


def _transactions(counts: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    yield "committed", "", counts["committed"]
    for cause, n in sorted(counts["aborted"].items()):
        yield "aborted", cause, n
    for error, n in sorted(counts["failed"].items()):
        yield "failed", error, n


def _gauges(stats: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    yield "step", "The last released step.", stats["step"]
    age = stats["checkpoint_age_seconds"]
    if age is not None:
        yield "checkpoint_age_seconds", "Seconds since the last checkpoint.", age


def _memory(stats: dict[str, Any]) -> dict[str, int]:
    return {name[:-6]: n for name, n in stats["memory"].items() if name.endswith("_bytes")}
