"""Implements Topic, Table, SnapshotView and Writer for asyncio: the same names, every data method awaitable.

Methods that commit wait in the loop (transaction.py); methods that may read from disk or change the schema run
on a thread of the bridge.

Next: engine.py.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from ..api.arguments import seconds
from ..api.columns.batch import ReadBatch
from ..api.limits import LOOK_BYTES
from ..api.snapshot import SnapshotView
from ..api.tables.table import Table
from ..api.topics.description import Written
from ..api.topics.topic import Topic, read_now, written
from ..api.topics.writer import Writer
from ..closing import AsyncClosing
from ..proto.ids import Place
from ..proto.keys import Key
from .bridge import (
    AsyncHandle,
    AsyncMethod,
    Method,
    in_loop,
    in_memory,
    like,
    on_thread,
    step_by_step,
    wrapped,
)
from .transaction import AsyncTransaction, Inner

if TYPE_CHECKING:
    from .engine import AsyncEngine

P = ParamSpec("P")
T = TypeVar("T")


class _Inner(Writer):
    """A writer that only notes when a flush is due: the flush waits for a sync, so it runs on a thread."""

    due = False

    def _flush_full(self) -> None:
        self.due = True

    def write_at_once(self, *record: Any, **options: Any) -> int | None:
        """Writes a record, or returns None at once while a flush holds the lock."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self.write(*record, **options)
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


class _Topic(Topic):
    _writer_kind = _Inner


def in_transaction(
    method: Method[P, Place],
    write: Callable[Concatenate[AsyncTransaction, str, P], Coroutine[Any, Any, None]],
) -> AsyncMethod[P, Place]:
    """Makes the awaitable form of a method that is one write: it commits a transaction of its own."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Place:
        tx: AsyncTransaction = self._begin()
        async with tx:
            await write(tx, self.name, *args, **kwargs)
            return (await tx.commit()).place

    return call


class AsyncWriter(AsyncHandle[_Inner], AsyncClosing):
    """A buffered writer of one topic; see Writer. Tasks may share it."""

    def __init__(self, topic: "AsyncTopic", sync: Writer) -> None:
        assert isinstance(sync, _Inner)
        super().__init__(topic.engine, sync)

    @property
    def topic(self) -> str:
        return self.sync.topic

    @property
    def buffered(self) -> int:
        """The number of records that wait for a flush."""
        return self.sync.buffered

    @like(Writer.write)
    async def write(self, *record: Any, **options: Any) -> int:
        number = None if self.bridge.may_wait else self.sync.write_at_once(*record, **options)
        if number is None:  # a flush has the lock, and waits for a sync
            number = await self.bridge.call(self.sync.write, *record, **options)
        if self.sync.due:
            await self.bridge.call(self.sync.flush_due)
        return number

    flush = on_thread(Writer.flush)
    close = on_thread(Writer.close)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.bridge.call(self.sync.__exit__, kind, error, trace)


class AsyncTopic(AsyncHandle[Topic]):
    """A topic by name; see Topic."""

    def __init__(self, engine: "AsyncEngine", sync: Topic) -> None:
        super().__init__(engine, _Topic(engine.sync.context, sync.name))
        self.name = sync.name

    def _begin(self) -> AsyncTransaction:
        context = self.engine.sync.context
        context.check()
        context.drop()
        return AsyncTransaction(self.engine, Inner(context, statement=True))

    @property
    def format(self) -> str:
        return self.sync.format

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self.sync.partitions

    @like(Topic.write)
    async def write(self, *record: Any, **options: Any) -> Written:
        async with self._begin() as tx:
            info = self.engine.sync.context.topic(self.name)
            await tx.write(self.name, *record, **options)
            done = await tx.commit()
        return written(info, done)

    write_batch = in_transaction(Topic.write_batch, AsyncTransaction.write_batch)
    writer = wrapped(Topic.writer, AsyncWriter)
    describe = in_loop(Topic.describe)

    async def read(
        self,
        start: int | Mapping[int, int] = 0,
        partition: int | None = None,
        max_records: int | None = None,
        max_bytes: int = LOOK_BYTES,
        timeout: float = 0.0,
    ) -> ReadBatch:
        """Reads as Topic.read does; waits up to `timeout` seconds for records, without a thread."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds("timeout", timeout)
        context, before = self.engine.sync.context, None
        read = partial(read_now, context, self.name, start, partition, max_records, max_bytes)
        while True:
            batch, ends = await self.bridge.call(read)
            remaining = deadline - loop.time()
            if batch or remaining <= 0:
                return batch
            if ends == before:  # else they may have moved behind the read: it looks once more
                await self.bridge.published(ends, remaining)
            before = ends

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


class AsyncTable(AsyncHandle[Table]):
    """A table by name; see Table."""

    def __init__(self, engine: "AsyncEngine", sync: Table) -> None:
        super().__init__(engine, sync)
        self.name = sync.name

    def _begin(self) -> AsyncTransaction:
        self.engine.sync.context.check_writable()
        return self.engine.transaction()

    @property
    def format(self) -> str:
        return self.sync.format

    @overload
    async def get(self, key: Key, default: None = None) -> Any | None: ...
    @overload
    async def get(self, key: Key, default: T) -> T: ...
    async def get(self, key: Key, default: Any = None) -> Any:
        """Returns the row's value, `default` when there is none."""
        return await self.bridge.read_memory(self.sync.get, key, default)

    put = in_transaction(Table.put, AsyncTransaction.put)
    put_if_absent = in_transaction(Table.put_if_absent, AsyncTransaction.put_if_absent)
    delete = in_transaction(Table.delete, AsyncTransaction.delete)
    add = in_transaction(Table.add, AsyncTransaction.add)
    max = in_transaction(Table.max, AsyncTransaction.max)
    min = in_transaction(Table.min, AsyncTransaction.min)
    describe = in_loop(Table.describe)
    to_pandas = on_thread(Table.to_pandas)
    scan = on_thread(Table.scan)
    count = on_thread(Table.count)
    load = on_thread(Table.load)

    scan_arrow = step_by_step(Table.scan_arrow)


class AsyncSnapshotView(AsyncHandle[SnapshotView], AsyncClosing):
    """A view of the whole store as of one step; see SnapshotView."""

    def __init__(self, engine: "AsyncEngine", sync: SnapshotView) -> None:
        super().__init__(engine, sync)
        self.step = sync.step

    @overload
    async def get(self, table: str, key: Key, default: None = None) -> Any | None: ...
    @overload
    async def get(self, table: str, key: Key, default: T) -> T: ...
    async def get(self, table: str, key: Key, default: Any = None) -> Any:
        """Returns the row's value, `default` when there is none."""
        return await self.bridge.read_memory(self.sync.get, table, key, default)

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

    close = in_memory(SnapshotView.close)
