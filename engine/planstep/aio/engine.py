"""The engine for asyncio: what `planstep.open_async` gives.

    async with planstep.open_async("shop.planstep") as db:
        async with db.transaction() as tx:
            await tx.write("clicks", b"…")

The same engine as `planstep.open` gives for that path, as one event loop sees it: threads and loops may
share it. Methods have the names of Engine; those that touch data are awaitable, those that only name
something (`topic`, `table`, `transaction`, `snapshot`) are not.

Next: bridge.py.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Generator
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..api.arguments import check_worker
from ..api.columns.batch import ReadBatch
from ..api.columns.codecs import Format
from ..api.engine import Engine
from ..api.limits import READ_BYTES
from ..api.open_engine import Durability, Mode, Placement, ProtocolVersion, Trace
from ..api.open_engine import open as open_sync
from ..api.retry import RETRIED, Attempts
from ..api.topics.batch_search import Limits
from ..api.topics.changelog import Changelog
from ..api.topics.consumer_group import LEASE_SECONDS
from ..api.topics.description import Written
from ..api.topics.process_policy import IN_FLIGHT as PROCESS_IN_FLIGHT
from ..api.topics.process_policy import OnError, Progress
from ..api.transaction.lifecycle import ended_by
from ..api.transaction.topic_writes import Headers
from ..proto.kafka.settings import KafkaSettings
from .bridge import Bridge, on_thread
from .handles import AsyncSnapshotView, AsyncTable, AsyncTopic
from .process import process
from .reader import AsyncReader
from .transaction import AsyncTransaction

T = TypeVar("T")


class AsyncEngine:
    """An open store, for the tasks of one event loop. Invariant: closed once, by `close`."""

    def __init__(self, sync: Engine) -> None:
        self.sync = sync
        self.bridge = Bridge(sync.context.runtime)
        self._closed = False

    @property
    def path(self) -> str:
        return self.sync.path

    @property
    def mode(self) -> str:
        """The commit protocol of the store: "deterministic" or "kafka"."""
        return self.sync.mode

    # transactions --------------------------------------------------------------------------

    def transaction(self, worker: str | None = None) -> AsyncTransaction:
        """Begins a transaction. In an `async with` it commits at the end and rolls back on an error;
        `worker` as in Engine.transaction."""
        self.sync.context.check()
        self.sync.context.drop()
        return AsyncTransaction(self, check_worker(worker))

    async def run(
        self,
        fn: Callable[[AsyncTransaction], Awaitable[T]],
        attempts: int | None = None,
        deadline: float = 30.0,
        worker: str | None = None,
    ) -> T:
        """Runs `await fn(tx)`, commits, and returns fn's value; after Conflict once more; see Engine.run."""
        with Attempts(attempts, deadline, self.sync.context.losers) as tried:
            while True:
                tx = self.transaction(worker)
                try:
                    async with tx:
                        value = fn(tx)
                        if not isawaitable(value):
                            raise TypeError("db.run of an async engine takes an async function")
                        result = await value
                    if tx.future is not None:
                        await tx.future
                    return result
                except RETRIED as error:
                    await asyncio.sleep(tried.pause_after(error, ended_by(tx.sync.life, error)))

    async def changelog(
        self, topic: str, partition: int = 0, worker: str | None = None
    ) -> Changelog:
        """State of one partition, kept in a keyed topic; see Engine.changelog. Its methods are in memory
        and not awaited; they take this engine's transactions."""
        return await self.bridge.call(self.sync.changelog, topic, partition, worker)

    def snapshot(self) -> AsyncSnapshotView:
        """A view of everything as of the last released step; use it in an `async with`."""
        self.sync.context.check()
        self.sync.context.drop()
        self.sync.context.runtime.schema.check_snapshots()
        return AsyncSnapshotView(self)

    def reader(
        self,
        topic: str,
        consumer: str,
        *,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
        in_flight: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
        name: str = "",
        until_idle: bool = False,
    ) -> AsyncReader:
        """A reader of batches, each with its transaction; see Engine.reader."""
        made = self.sync.reader(
            topic,
            consumer,
            max_records=max_records,
            max_bytes=max_bytes,
            in_flight=in_flight,
            lease_seconds=lease_seconds,
            name=name,
            until_idle=until_idle,
        )
        return AsyncReader(self, made)

    async def process(
        self,
        fn: Callable[[AsyncTransaction, ReadBatch], Awaitable[Any]],
        topic: str,
        consumer: str,
        *,
        workers: int = 1,
        in_flight: int = PROCESS_IN_FLIGHT,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
        on_error: OnError | None = None,
        dead_letter: str | None = None,
        until_idle: bool = False,
        progress: bool | Callable[[Progress], Any] = False,
        stop: asyncio.Event | threading.Event | None = None,
        worker: str | None = None,
        attempts: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Progress:
        """Runs `await fn(tx, batch)` over the topic's records, each counted once; see Engine.process.

        The workers are tasks. Cancelled, it cancels them: what was not submitted is rolled back.
        """
        return await process(
            self,
            fn,
            topic,
            consumer,
            workers=workers,
            limits=Limits(max_records, max_bytes, in_flight),
            on_error=on_error,
            dead_letter=dead_letter,
            until_idle=until_idle,
            progress=progress,
            stop=stop,
            worker=worker,
            attempts=attempts,
            lease_seconds=lease_seconds,
        )

    async def write(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> Written:
        """Writes one record in a transaction of its own; returns where it is."""
        return await self.topic(topic).write(value, key, headers, partition)

    outcome = on_thread(Engine.outcome)
    resolve = on_thread(Engine.resolve)
    costs = on_thread(Engine.costs)
    phases = on_thread(Engine.phases)
    transactional_ids = on_thread(Engine.transactional_ids)
    switch_log_batching = on_thread(Engine.switch_log_batching)
    transactions = on_thread(Engine.transactions)
    open_transactions = on_thread(Engine.open_transactions)
    recorded = on_thread(Engine.recorded)
    stats = on_thread(Engine.stats)
    backup = on_thread(Engine.backup)

    # names ---------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        format: Format | None = None,
        exist_ok: bool = False,
        retention: timedelta | float | None = None,
        retention_bytes: int | None = None,
    ) -> AsyncTopic:
        """Creates a topic; see Engine.create_topic."""
        made = await self.bridge.call(
            self.sync.create_topic,
            name,
            partitions,
            format,
            exist_ok,
            retention,
            retention_bytes,
        )
        return AsyncTopic(self, made)

    async def create_table(
        self,
        name: str,
        shards: int | None = None,
        format: Format | None = None,
        exist_ok: bool = False,
    ) -> AsyncTable:
        """Creates a table; see Engine.create_table."""
        made = await self.bridge.call(self.sync.create_table, name, shards, format, exist_ok)
        return AsyncTable(self, made)

    drop_topic = on_thread(Engine.drop_topic)
    drop_table = on_thread(Engine.drop_table)

    def topics(self) -> dict[str, AsyncTopic]:
        """All topics by name, in order of name."""
        return {name: AsyncTopic(self, topic) for name, topic in self.sync.topics().items()}

    def tables(self) -> dict[str, AsyncTable]:
        """All tables by name, in order of name."""
        return {name: AsyncTable(self, table) for name, table in self.sync.tables().items()}

    def topic(self, name: str) -> AsyncTopic:
        """The topic of that name; UnknownName suggests the nearest."""
        return AsyncTopic(self, self.sync.topic(name))

    def table(self, name: str) -> AsyncTable:
        """The table of that name; UnknownName suggests the nearest."""
        return AsyncTable(self, self.sync.table(name))

    # the end -------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed or self.sync.closed

    async def close(self) -> None:
        """Closes this opening of the store, the engine with the last one. Does nothing a second time."""
        if self._closed:
            return
        self.bridge.check()
        self._closed = True
        try:
            await self.bridge.call(self.sync.close)
        finally:
            self.bridge.wake_all()
            self.bridge.close()

    async def __aenter__(self) -> "AsyncEngine":
        self.sync.context.check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"


class Opening:
    """What `open_async` gives: await it, or use it in an `async with`."""

    def __init__(self, path: str | os.PathLike[str], settings: dict[str, Any]) -> None:
        self._open = partial(open_sync, path, **settings)
        self._engine: AsyncEngine | None = None

    if not TYPE_CHECKING:  # type checkers know already that it has none

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"the store is not open yet, so it has no {name!r}: write `async with "
                "planstep.open_async(…) as db:`, or `db = await planstep.open_async(…)`"
            )

    async def _opened(self) -> AsyncEngine:
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(None, self._open)
        try:
            sync = await asyncio.shield(job)
        except asyncio.CancelledError:
            job.add_done_callback(_close_unwanted)
            raise
        return AsyncEngine(sync)

    def __await__(self) -> Generator[Any, None, AsyncEngine]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncEngine:
        self._engine = await self._opened()
        return self._engine

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._engine is not None:
            await self._engine.close()


def open_async(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool | None = None,
    wait: float = 0,
    mode: Mode | None = None,
    hosts: int | None = None,
    durability: Durability | None = None,
    placement: Placement | None = None,
    trace: Trace | None = None,
    switch_interval: float | None = 0.0005,
    rtt: float | None = None,
    protocol_version: ProtocolVersion | None = None,
    kafka: KafkaSettings | None = None,
    snapshot_seconds: float | None = None,
    snapshot_bytes: int | None = None,
) -> Opening:
    """Opens the store at `path` for asyncio; settings as in `open`.

    `async with planstep.open_async(path) as db:` closes it at the end, `await planstep.open_async(path)`
    leaves that to `await db.close()`. It belongs to the event loop that it was opened in.
    """
    return Opening(
        path,
        {
            "create": create,
            "read_only": read_only,
            "wait": wait,
            "mode": mode,
            "hosts": hosts,
            "durability": durability,
            "placement": placement,
            "trace": trace,
            "switch_interval": switch_interval,
            "rtt": rtt,
            "protocol_version": protocol_version,
            "kafka": kafka,
            "snapshot_seconds": snapshot_seconds,
            "snapshot_bytes": snapshot_bytes,
        },
    )


def _close_unwanted(job: "asyncio.Future[Engine]") -> None:
    if not job.cancelled() and job.exception() is None:
        job.result().close()
