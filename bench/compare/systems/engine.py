"""Drives this engine in one of its modes, by its public face only.

    Work.add, get, put   rows of tables, in the same transaction; in a mode without tables: keys of the worker's
                         own changelog
    Work.flush           returns when writes are acknowledged, staged or in place

The entry names the mode, and what it lacks: engine_mode.py. Next: sqlite.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import planstep

from .base import (
    TABLES,
    Cancelled,
    Certificate,
    Costs,
    Counters,
    Follower,
    Moments,
    Options,
    PlainWriter,
    Setting,
    Shown,
    System,
    Taken,
    Unknown,
    Work,
    Worker,
)
from .engine_mode import EngineMode

T = TypeVar("T")
STATE_PARTITIONS = 256
"""Partitions of a changelog, one for each worker: the most workers that `planstep compare` allows."""
_READ_BYTES = 64 << 20
_READ = 50_000


class EngineSystem(System):
    def __init__(self, folder: Path, options: Options, name: str, mode: EngineMode) -> None:
        self.name, self.mode = name, mode.name
        self.missing, self.history, self.allowed = mode.missing, mode.history, mode.allowed
        self.ended_by = mode.ended_by
        self._originals = mode.originals
        self._rows = TABLES not in mode.missing
        self._options = options
        self._known: dict[tuple[str, str, str], dict[int, int]] = {}
        self.told = mode.settings(options)
        chosen: dict[str, Any] = (
            {} if options.read_only else {"mode": mode.name, "hosts": options.hosts}
        )
        if self.told is not None:
            chosen[mode.name] = self.told
        self.db = planstep.open(
            folder / "store",
            read_only=options.read_only,
            durability=_literal(options.durability),
            placement=_literal(options.placement),
            rtt=options.rtt,
            **chosen,
        )

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

    def load(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
    ) -> None:
        self.db.topic(topic).write_batch(values, keys, partition=partition)

    def worker(self, name: str, consumer: str, number: int = 0) -> Worker:
        return _Worker(self.db, name, consumer, number, self._rows)

    def writer(self, topic: str) -> PlainWriter:
        return _PlainWriter(self.db.topic(topic))

    def follower(self, topic: str) -> Follower:
        return _Follower(self.db.topic(topic))

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
        )

    def moments(self, tx: str) -> Moments:
        try:
            return Moments(*self.db.phases(tx))
        except ValueError:
            return Moments()

    def costs(self, tx: str) -> Costs:
        try:
            found = self.db.costs(tx)
        except ValueError:
            return Costs()
        return Costs(
            self._participants(tx), **{name: getattr(found, name) for name in Costs._fields[1:]}
        )

    def _participants(self, tx: str) -> int | None:
        if not self._rows:
            return None
        return len(self.db.outcome(tx).participants) or None

    def settings(self) -> list[Setting]:
        found = [
            Setting(name, getattr(self._options, name))
            for name in ("durability", "placement", "hosts", "rtt")
        ]
        if self.told is not None:
            found += [
                Setting(name, getattr(self.told, name), *original)
                for name, original in self._originals.items()
            ]
        return found

    # afterwards ----------------------------------------------------------------------------

    def records(self, topic: str, partition: int) -> Iterator[Taken]:
        handle = self.db.topic(topic)
        at = self._of_all(self._starts, topic, "")[partition]
        while batch := handle.read({partition: at}, max_records=_READ, max_bytes=_READ_BYTES):
            yield _taken(batch, partition, at)
            at = batch.ends[partition]

    def rows(self, table: str) -> dict[str, Any]:
        if self._rows:
            return {str(key): value for key, value in self.db.table(table).scan()}
        found: dict[str, Any] = {}
        for partition in range(STATE_PARTITIONS):
            last: dict[str, Any] = {}
            for taken in self.records(table, partition):
                last.update(zip(map(str, taken.keys), taken.values, strict=True))
            for key, value in last.items():  # workers that share a key hold a part of its sum each
                found[key] = found[key] + value if key in found else value
        return found

    def position(self, topic: str, consumer: str, partition: int) -> int:
        return self._of_all(self._positions, topic, consumer)[partition]

    def _of_all(
        self, find: Callable[[str, str], dict[int, int]], topic: str, consumer: str
    ) -> dict[int, int]:
        """Returns offsets of all partitions; cached when read-only, since thousands of look-ups take minutes."""
        if not self._options.read_only:
            return find(topic, consumer)
        key = find.__name__, topic, consumer
        if key not in self._known:
            self._known[key] = find(topic, consumer)
        return self._known[key]

    def _positions(self, topic: str, consumer: str) -> dict[int, int]:
        return self.db.topic(topic).position(consumer)

    def _starts(self, topic: str, _: str) -> dict[int, int]:
        return {part.partition: part.start for part in self.db.topic(topic).describe().partitions}

    def close(self) -> None:
        self.db.close()


def _literal(value: Any) -> Any:
    """Passes a string on untyped; `open` checks it."""
    return value


def _taken(batch: planstep.ReadBatch, partition: int, at: int) -> Taken:
    offsets = [offset for _, offset in batch.offsets]
    begin = offsets[0] if offsets else at
    return Taken(batch.values, batch.keys, begin, batch.ends.get(partition, at), offsets)


def _told(call: Callable[..., T], *args: Any, **named: Any) -> T:
    """Calls the engine and raises its errors as those of the interface."""
    try:
        return call(*args, **named)
    except planstep.ProtocolError as error:
        fenced = isinstance(error, planstep.ProducerFenced)
        raise Cancelled(error.name, error.retryable or fenced) from error
    except (planstep.Conflict, planstep.Overloaded, planstep.SnapshotTooOld) as error:
        raise Cancelled(type(error).__name__) from error
    except planstep.Aborted as error:
        raise Cancelled(type(error).__name__, retryable=False) from error
    except planstep.Undetermined as error:
        raise Unknown(str(error)) from error


class _Worker(Worker):
    def __init__(
        self, db: planstep.Engine, name: str, consumer: str, number: int, rows: bool
    ) -> None:
        self.db, self.name, self.consumer, self.rows = db, name, consumer, rows
        self.number = number % STATE_PARTITIONS
        self._states: dict[str, planstep.Changelog] = {}

    def begin(self) -> Work:
        return _Work(self, _told(self.db.transaction, worker=self.name))

    def state(self, table: str) -> planstep.Changelog:
        """Returns the worker's own changelog, in place of a table."""
        found = self._states.get(table)
        if found is None:
            found = self._states[table] = self.db.changelog(table, self.number)
        return found

    def close(self) -> None:
        self._states.clear()


class _Work(Work):
    def __init__(self, worker: _Worker, tx: planstep.Transaction) -> None:
        self._worker = worker
        self._tx = tx
        self._rows = worker.rows
        self.id = tx.id

    def read(self, topic: str, partition: int, max_records: int, timeout: float = 0.0) -> Taken:
        batch = _told(
            self._tx.read,
            topic,
            self._worker.consumer,
            max_records=max_records,
            max_bytes=_READ_BYTES,
            timeout=timeout,
            partition=partition,
        )
        return _taken(batch, partition, -1)

    def write(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        _told(self._tx.write_batch, topic, values, keys, partition=partition)

    def flush(self) -> None:
        _told(self._tx.flush)

    def add(self, table: str, key: str, n: int) -> None:
        if self._rows:
            self._tx.add(table, key, n)
        else:
            _told(self._worker.state(table).add, self._tx, key, n)

    def get(self, table: str, key: str) -> Any:
        if self._rows:
            return _told(self._tx.get, table, key)
        return _told(self._worker.state(table).get, self._tx, key)

    def put(self, table: str, key: str, value: Any) -> None:
        if self._rows:
            self._tx.put(table, key, value)
        else:
            _told(self._worker.state(table).put, self._tx, key, value)

    def commit(self) -> Certificate:
        done = _told(self._tx.commit)
        placed = done.place.n is not None or self._rows
        return Certificate(
            done.place.step if placed else None,
            done.place.n,
            done.epoch,
            {where: span for where, span in done.published.items() if span is not None},
        )

    def rollback(self) -> None:
        if self._tx.outcome(0.0).state == "open":
            self._tx.rollback()


class _PlainWriter(PlainWriter):
    def __init__(self, topic: planstep.Topic) -> None:
        self._topic = topic

    def write(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None
    ) -> None:
        _told(self._topic.write_batch, values, keys, partition=partition)


class _Follower(Follower):
    def __init__(self, topic: planstep.Topic) -> None:
        self._topic = topic
        self._ends = {part.partition: part.end for part in topic.describe().partitions}

    def poll(self, timeout: float) -> list[Shown]:
        batch = self._topic.read(
            self._ends, max_records=_READ, max_bytes=_READ_BYTES, timeout=timeout
        )
        if not batch:
            return []
        self._ends.update(batch.ends)
        shown = []
        values = iter(batch.values)
        for partition, segments in groupby(batch.segments, key=lambda segment: segment.partition):
            offsets = [s.offset + i for s in segments for i in range(s.hi - s.lo)]
            shown.append(Shown(partition, offsets, [next(values) for _ in offsets]))
        return shown
