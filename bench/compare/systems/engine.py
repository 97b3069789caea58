"""Drives this engine in one of its modes, by its public face only.

    Work.add, get, put   rows of tables, in the same transaction; in a mode without tables: keys of the worker's
                         own changelog
    Work.flush           returns when writes are acknowledged, staged or in place

Next: sqlite.py.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import planstep

from .base import (
    TABLES,
    Cancelled,
    Certificate,
    Chunk,
    Costs,
    Counters,
    Moments,
    Options,
    Poll,
    PollResult,
    Setting,
    System,
    Unknown,
    Work,
    Write,
)

T = TypeVar("T")
STATE_PARTITIONS = 256
"""Partitions of a changelog, one for each worker: the most workers that `planstep compare` allows."""
_READ_BYTES = 64 << 20
_READ = 50_000
_ENDS_S = 60.0
"""Seconds that an answered commit may take to reach all participants: a verifier misses what comes later."""
_ENDED = ("InvalidTxnStatus", "AlreadyTimedOut")
"""Pulsar's refusals of a commit whose transaction the coordinator has aborted: its time-out was over."""


class EngineMode(NamedTuple):
    """Data of one of the engine's modes. `missing`, `ended_by`: see System.

    `settings` makes the value that `planstep.open` takes under the mode's name from the options; None if there is
    none. `originals` maps each listed setting to its name and default in the product that the mode follows.
    Without `group_commit` each turn serves one input, so each has syncs of its own. `has_ends` tells whether a
    commit that was answered has not reached all participants yet. `individual`: see System.
    """

    name: str
    missing: Mapping[str, str] = {}
    ended_by: tuple[str, ...] = ()
    settings: Callable[[Options], object] = lambda options: None
    originals: Mapping[str, tuple[str, str | int]] = {}
    group_commit: bool = True
    has_ends: Callable[[planstep.Engine], bool] = lambda db: False
    individual: bool = False


def opens(system: str, mode: EngineMode) -> Callable[[Path, Options], System]:
    """Returns a function that opens a store in that mode, as the system of that name."""
    return lambda folder, options: EngineSystem(folder, options, system, mode)


class EngineSystem(System):
    def __init__(self, folder: Path, options: Options, name: str, mode: EngineMode) -> None:
        self.name, self.mode = name, mode.name
        self.missing, self.ended_by, self._originals = mode.missing, mode.ended_by, mode.originals
        self.individual = mode.individual
        self._rows, self._has_ends = TABLES not in mode.missing, mode.has_ends
        self._options = options
        self._settings = mode.settings(options)
        arguments: dict[str, Any] = {
            name: getattr(options, name) for name in ("durability", "placement", "rtt", "read_only")
        }
        if not options.read_only:
            arguments |= {"mode": mode.name, "hosts": options.hosts}
            arguments["group_commit"] = mode.group_commit
        if self._settings is not None:
            arguments[mode.name] = self._settings
        self.db = planstep.open(folder / "store", **arguments)
        # A verifier asks for thousands of partitions one by one, and each answer has all of them.
        self._positions = cache(lambda topic, consumer: self.db.topic(topic).position(consumer))
        self._parts = cache(lambda topic: self.db.topic(topic).describe().partitions)

    def prepare(self, topics: Mapping[str, int], tables: Iterable[str] = ()) -> None:
        for name, partitions in topics.items():
            self.db.create_topic(name, partitions=partitions, exist_ok=True)
        for name in tables:
            if not self._rows:
                self.db.create_topic(
                    name, partitions=STATE_PARTITIONS, format="msgpack", exist_ok=True
                )
            else:
                self.db.create_table(name, exist_ok=True)

    def worker(self, name: str, consumer: str, number: int = 0) -> Callable[[], Work]:
        @cache
        def state(table: str) -> planstep.Changelog:
            return self.db.changelog(table, number % STATE_PARTITIONS)

        @cache
        def consume(topic: str) -> None:
            """Creates the consumer; one with a position is created by its first read."""
            if self.individual:
                self.db.topic(topic).create_consumer(consumer, kind="individual", exist_ok=True)

        def begin() -> Work:
            tx = _call(self.db.transaction, worker=name)
            return _Work(tx, consumer, None if self._rows else state, consume)

        return begin

    def writer(self, topic: str) -> Write:
        handle = self.db.topic(topic)

        def write(
            values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None
        ) -> None:
            _call(handle.write_batch, values, keys, partition=partition)

        return write

    def follower(self, topic: str) -> Poll:
        handle = self.db.topic(topic)
        ends = {part.partition: part.end for part in handle.describe().partitions}

        def poll(timeout: float) -> list[PollResult]:
            batch = handle.read(ends, max_records=_READ, max_bytes=_READ_BYTES, timeout=timeout)
            ends.update(batch.ends)
            results = []
            values = iter(batch.values)
            for partition, segments in groupby(batch.segments, key=lambda one: one.partition):
                offsets = [s.offset + i for s in segments for i in range(s.hi - s.lo)]
                results.append(PollResult(partition, offsets, [next(values) for _ in offsets]))
            return results

        return poll

    # counters ------------------------------------------------------------------------------

    def counters(self) -> Counters:
        stats = self.db.stats()
        store, costs = stats["store"], stats["costs"]
        return Counters(
            transactions=stats["transactions"]["committed"],
            requests=costs["requests"],
            messages=costs["messages"],
            appends=costs["appends"],
            syncs=store["syncs"],
            disk_bytes=store["log_bytes"] + store["checkpoint_bytes"] + store["rewritten_bytes"],
            client_bytes=costs["client_bytes"],
            tablet_bytes=costs["tablet_bytes"],
            steps={
                f"{kind}: {message}": times
                for kind, messages in stats["steps"].items()
                for message, times in messages.items()
            },
            links=stats["links"],
            entries=costs["entries"],
        )

    def moments(self, tx: str) -> Moments:
        try:
            return Moments(*self.db.phases(tx))
        except ValueError:
            return Moments()

    def costs(self, tx: str) -> Costs:
        try:
            costs = self.db.costs(tx)
        except ValueError:
            return Costs()
        participants = len(self.db.outcome(tx).participants) if self._rows else 0
        return Costs(
            participants or None, **{name: getattr(costs, name) for name in Costs._fields[1:]}
        )

    def snapshot_bytes(self, topic: str) -> int | None:
        try:
            return sum(part.snapshot_bytes for part in self.db.buffer_stats(topic))
        except planstep.NotSupported:
            return None

    def settings(self) -> list[Setting]:
        settings = [
            Setting(name, getattr(self._options, name))
            for name in ("durability", "placement", "hosts", "rtt")
        ]
        if self._settings is not None:
            settings += [
                Setting(name, getattr(self._settings, name), *original)
                for name, original in self._originals.items()
            ]
        return settings

    # afterwards ----------------------------------------------------------------------------

    def records(self, topic: str, partition: int) -> Iterator[Chunk]:
        handle = self.db.topic(topic)
        offset = self._parts(topic)[partition].start
        while batch := handle.read({partition: offset}, max_records=_READ, max_bytes=_READ_BYTES):
            yield _chunk(batch, partition, offset)
            offset = batch.ends[partition]

    def rows(self, table: str) -> dict[str, Any]:
        if self._rows:
            return {str(key): value for key, value in self.db.table(table).scan()}
        rows: dict[str, Any] = {}
        for partition in range(STATE_PARTITIONS):
            last: dict[str, Any] = {}
            for chunk in self.records(table, partition):
                last.update(zip(map(str, chunk.keys), chunk.values, strict=True))
            for key, value in last.items():  # workers that share a key hold a part of its sum each
                rows[key] = rows[key] + value if key in rows else value
        return rows

    def position(self, topic: str, consumer: str, partition: int) -> int:
        return self._positions(topic, consumer)[partition]

    def close(self) -> None:
        if not self._options.read_only:
            until = time.monotonic() + _ENDS_S  # a verifier that only reads would not see them
            while self._has_ends(self.db) and time.monotonic() < until:
                time.sleep(0.005)
        self.db.close()


def _chunk(batch: planstep.ReadBatch, partition: int, at: int) -> Chunk:
    offsets = [offset for _, offset in batch.offsets]
    begin = offsets[0] if offsets else at
    return Chunk(batch.values, batch.keys, begin, batch.ends.get(partition, at), offsets)


def _call(call: Callable[..., T], *args: Any, **keywords: Any) -> T:
    """Calls the engine and raises its errors as those of the interface."""
    try:
        return call(*args, **keywords)
    except planstep.ProtocolError as error:
        ended = isinstance(error, planstep.ProducerFenced) or error.name in _ENDED
        raise Cancelled(error.name, error.retryable or ended) from error
    except (planstep.Conflict, planstep.Overloaded, planstep.SnapshotTooOld) as error:
        raise Cancelled(type(error).__name__) from error
    except planstep.Aborted as error:
        raise Cancelled(type(error).__name__, retryable=False) from error
    except planstep.Undetermined as error:
        raise Unknown(str(error)) from error


class _Work(Work):
    """A transaction. `state` opens the worker's changelog in place of a table; None: the mode has tables. `consume`
    makes the consumer ready for a topic."""

    def __init__(
        self,
        tx: planstep.Transaction,
        consumer: str,
        state: Callable[[str], planstep.Changelog] | None,
        consume: Callable[[str], None],
    ) -> None:
        self.id, self._tx, self._consumer, self._state = tx.id, tx, consumer, state
        self._consume = consume

    def read(self, topic: str, partition: int, max_records: int) -> Chunk:
        self._consume(topic)
        batch = _call(
            self._tx.read,
            topic,
            self._consumer,
            max_records=max_records,
            max_bytes=_READ_BYTES,
            partition=partition,
        )
        return _chunk(batch, partition, -1)

    def write(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        _call(self._tx.write_batch, topic, values, keys, partition=partition)

    def flush(self) -> None:
        _call(self._tx.flush)

    def add(self, table: str, key: str, n: int) -> None:
        if self._state is None:
            self._tx.add(table, key, n)
        else:
            _call(self._state(table).add, self._tx, key, n)

    def get(self, table: str, key: str) -> Any:
        if self._state is None:
            return _call(self._tx.get, table, key)
        return _call(self._state(table).get, self._tx, key)

    def put(self, table: str, key: str, value: Any) -> None:
        if self._state is None:
            self._tx.put(table, key, value)
        else:
            _call(self._state(table).put, self._tx, key, value)

    def commit(self) -> Certificate:
        receipt = _call(self._tx.commit)
        placed = receipt.place.n is not None or self._state is None
        return Certificate(
            receipt.place.step if placed else None,
            receipt.place.n,
            receipt.epoch,
            {where: span for where, span in receipt.published.items() if span is not None},
        )

    def rollback(self) -> None:
        if self._tx.outcome(0.0).state == "open":
            self._tx.rollback()
