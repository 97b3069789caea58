"""Topic, Table, SnapshotView and Writer for asyncio: the same names, every data method awaitable.

What commits does so through the loop (transaction.py); what may read from disk, or change the schema,
runs on a thread of the bridge.

Next: engine.py.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..api.arguments import seconds
from ..api.columns.batch import ReadBatch
from ..api.limits import LOOK_BYTES
from ..api.snapshot import SnapshotView
from ..api.tables.table import Table
from ..api.topics.description import Written
from ..api.topics.topic import Topic
from ..api.topics.topic_read import read_now
from ..api.topics.writer import LINGER_BYTES, LINGER_RECORDS, Partitioner, Writer
from ..api.transaction.topic_writes import Headers
from ..proto.ids import Place
from ..proto.keys import Key
from ..runtime.outcome import Commit
from .bridge import Bridge, in_loop, on_thread, step_by_step
from .transaction import AsyncTransaction

if TYPE_CHECKING:
    from ..runtime.catalog import TopicInfo
    from .engine import AsyncEngine

T = TypeVar("T")


class AsyncTopic:
    """A topic by name; see Topic."""

    def __init__(self, engine: "AsyncEngine", sync: Topic) -> None:
        self._engine = engine
        self.bridge = engine.bridge
        self.sync = sync
        self.name = sync.name

    def _info(self) -> "TopicInfo":
        context = self._engine.sync.context
        context.check()
        return context.topic(self.name)

    def _statement(self) -> AsyncTransaction:
        context = self._engine.sync.context
        context.check()
        context.drop()
        return AsyncTransaction(self._engine, statement=True)

    @property
    def format(self) -> str:
        return self.sync.format

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return self.sync.partitions

    async def write(
        self,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> Written:
        """Writes one record in a transaction of its own; returns where it is."""
        info = self._info()
        async with self._statement() as tx:
            await tx.write(self.name, value, key, headers, partition)
            done = await tx.commit()
        ((tablet, published),) = done.details.items()
        return Written(info.partitions.index(tablet), published[0], done.place)

    async def write_batch(
        self,
        values: Any,
        keys: Any = None,
        headers: Any = None,
        partition: int | Sequence[int] | None = None,
        *,
        key: str | None = None,
        value: str | None = None,
    ) -> Place:
        """Writes many records, or a table of columns, in one transaction of their own."""
        async with self._statement() as tx:
            await tx.write_batch(self.name, values, keys, headers, partition, key=key, value=value)
            return (await tx.commit()).place

    def writer(
        self,
        producer: str | bytes | None = None,
        dedupe: bool = True,
        linger_records: int = LINGER_RECORDS,
        linger_bytes: int = LINGER_BYTES,
        linger: float | None = None,
        partitioner: Partitioner | None = None,
    ) -> "AsyncWriter":
        """A buffered writer whose records are numbered, so that repeats are published once."""
        self._engine.sync.context.check_writable()
        self._info()
        inner = _Inner(
            self._engine.sync.context,
            self.name,
            producer,
            dedupe=dedupe,
            linger_records=linger_records,
            linger_bytes=linger_bytes,
            linger=linger,
            partitioner=partitioner,
        )
        return AsyncWriter(self.bridge, inner)

    describe = in_loop(Topic.describe)

    async def read(
        self,
        start: int | Mapping[int, int] = 0,
        partition: int | None = None,
        max_records: int | None = None,
        max_bytes: int = LOOK_BYTES,
        timeout: float = 0.0,
    ) -> ReadBatch:
        """As Topic.read: waits up to `timeout` seconds for records, and holds no thread."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds("timeout", timeout)
        seen: dict[int, int] | None = None
        while True:
            batch, ends = await self.bridge.call(
                read_now,
                self._engine.sync.context,
                self.name,
                start,
                partition,
                max_records,
                max_bytes,
            )
            left = deadline - loop.time()
            if batch or left <= 0:
                return batch
            if ends == seen:  # else they may have moved behind the read: it looks once more
                await self.bridge.published(tuple(ends), ends, left)
            seen = ends

    create_consumer = on_thread(Topic.create_consumer)
    consumers = on_thread(Topic.consumers)
    consumer = in_loop(Topic.consumer)
    drop_consumer = on_thread(Topic.drop_consumer)
    seek = on_thread(Topic.seek)
    position = in_loop(Topic.position)
    lag = in_loop(Topic.lag)
    alter = on_thread(Topic.alter)
    trim = on_thread(Topic.trim)
    to_arrow = on_thread(Topic.to_arrow)
    to_pandas = on_thread(Topic.to_pandas)

    iter_batches = step_by_step(Topic.iter_batches)

    iter_arrow = step_by_step(Topic.iter_arrow)

    def __repr__(self) -> str:
        return f"<AsyncTopic {self.name!r}>"


class AsyncTable:
    """A table by name; see Table."""

    def __init__(self, engine: "AsyncEngine", sync: Table) -> None:
        self._engine = engine
        self.bridge = engine.bridge
        self.sync = sync
        self.name = sync.name

    @property
    def format(self) -> str:
        return self.sync.format

    @overload
    async def get(self, key: Key, default: None = None) -> Any | None: ...
    @overload
    async def get(self, key: Key, default: T) -> T: ...
    async def get(self, key: Key, default: Any = None) -> Any:
        """The row's value, `default` when there is none."""
        return await self.bridge.look(self.sync.get, key, default)

    async def put(self, key: Key, value: Any) -> Place:
        """Writes a row, whatever is there; like all writes here, a transaction of its own."""
        async with self._begin() as tx:
            await tx.put(self.name, key, value)
            return (await tx.commit()).place

    async def put_if_absent(self, key: Key, value: Any) -> Place:
        """Writes a row if none is there."""
        async with self._begin() as tx:
            await tx.put_if_absent(self.name, key, value)
            return (await tx.commit()).place

    async def delete(self, key: Key) -> Place:
        """Removes a row; nothing happens when there is none."""
        async with self._begin() as tx:
            await tx.delete(self.name, key)
            return (await tx.commit()).place

    async def add(self, key: Key, n: int | float) -> Place:
        """Adds to the number in a row, 0 when absent."""
        async with self._begin() as tx:
            await tx.add(self.name, key, n)
            return (await tx.commit()).place

    async def max(self, key: Key, n: int | float) -> Place:
        """Raises the number in a row to `n` if it is below."""
        async with self._begin() as tx:
            await tx.max(self.name, key, n)
            return (await tx.commit()).place

    async def min(self, key: Key, n: int | float) -> Place:
        """Lowers the number in a row to `n` if it is above."""
        async with self._begin() as tx:
            await tx.min(self.name, key, n)
            return (await tx.commit()).place

    def _begin(self) -> AsyncTransaction:
        self._engine.sync.context.check_writable()
        return self._engine.transaction()

    describe = in_loop(Table.describe)
    to_pandas = on_thread(Table.to_pandas)
    scan = on_thread(Table.scan)
    count = on_thread(Table.count)
    load = on_thread(Table.load)

    scan_arrow = step_by_step(Table.scan_arrow)

    def __repr__(self) -> str:
        return f"<AsyncTable {self.name!r}>"


class AsyncSnapshotView:
    """A view of the whole store as of one step; see SnapshotView."""

    def __init__(self, engine: "AsyncEngine") -> None:
        self.bridge = engine.bridge
        self.sync = SnapshotView(engine.sync.context)
        self.step = self.sync.step

    @overload
    async def get(self, table: str, key: Key, default: None = None) -> Any | None: ...
    @overload
    async def get(self, table: str, key: Key, default: T) -> T: ...
    async def get(self, table: str, key: Key, default: Any = None) -> Any:
        """The row's value, `default` when there is none."""
        return await self.bridge.look(self.sync.get, table, key, default)

    scan = on_thread(SnapshotView.scan)
    count = on_thread(SnapshotView.count)
    consumer = in_loop(SnapshotView.consumer)
    position = in_loop(SnapshotView.position)
    bounds = in_loop(SnapshotView.bounds)
    read = on_thread(SnapshotView.read)
    to_arrow = on_thread(SnapshotView.to_arrow)
    to_pandas = on_thread(SnapshotView.to_pandas)

    iter_batches = step_by_step(SnapshotView.iter_batches)

    iter_arrow = step_by_step(SnapshotView.iter_arrow)

    scan_arrow = step_by_step(SnapshotView.scan_arrow)

    async def close(self) -> None:
        """Lets go of the step. A second close does nothing."""
        self.sync.close()

    async def __aenter__(self) -> "AsyncSnapshotView":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sync.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"


class _Inner(Writer):
    """A flush waits for a sync: a write that makes it due says so, and it runs on a thread."""

    due = False

    def _flush_full(self) -> None:
        self.due = True

    def write_at_once(self, *item: Any) -> int | None:
        """Writes a record; None where a flush is under way."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self.write(*item)
        finally:
            self._lock.release()

    def flush_due(self) -> None:
        with self._lock:
            if self.due:
                self.due = False
                try:
                    self.flush()
                except Exception as error:
                    self._late = error  # the record is in the buffer: the next call raises it


class AsyncWriter:
    """A buffered writer of one topic; see Writer. Tasks may share it."""

    def __init__(self, bridge: Bridge, inner: _Inner) -> None:
        self.bridge = bridge
        self.sync = inner

    @property
    def topic(self) -> str:
        return self.sync.topic

    @property
    def buffered(self) -> int:
        """Records that wait for a flush."""
        return self.sync.buffered

    async def write(
        self,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        sequence: int | None = None,
    ) -> int:
        """Buffers one record and returns its number; flushes when enough has gathered."""
        sync, item = self.sync, (value, key, headers, partition, sequence)
        number = None if self.bridge.several else sync.write_at_once(*item)
        if number is None:  # a flush has the lock, and waits for a sync
            number = await self.bridge.call(sync.write, *item)
        if self.sync.due:
            await self.bridge.call(self.sync.flush_due)
        return number

    async def flush(self) -> Commit | None:
        """Publishes what is buffered, in one transaction; None when there was nothing new."""
        return await self.bridge.call(self.sync.flush)

    async def close(self) -> None:
        """Flushes and closes. When the flush fails the writer stays open."""
        await self.bridge.call(self.sync.close)

    async def __aenter__(self) -> "AsyncWriter":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.bridge.call(self.sync.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"
