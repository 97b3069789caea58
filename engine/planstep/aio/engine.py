"""Implements the engine for asyncio, which `planstep.open_async` returns.

    async with planstep.open_async("shop.planstep") as db:
        async with db.transaction() as tx:
            await tx.write("clicks", b"…")

It wraps the engine that `planstep.open` returns for that path, so threads and event loops may share a store.
Methods have the names of Engine. Those that touch data are awaitable; those that only name something (`topic`,
`table`, `transaction`, `snapshot`) are not.

Next: bridge.py.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from ..api.arguments import check_worker
from ..api.columns.batch import ReadBatch
from ..api.engine import Engine
from ..api.limits import READ_BYTES
from ..api.open_engine import open as open_sync
from ..api.retry import RETRIED, Attempts, is_own
from ..api.topics.changelog import Changelog
from ..api.topics.consumer_group import LEASE_SECONDS
from ..api.topics.description import Written
from ..api.topics.process_policy import IN_FLIGHT as PROCESS_IN_FLIGHT
from ..api.topics.process_policy import OnError, ProcessOptions, Progress
from ..closing import AsyncClosing
from .bridge import Bridge, like, on_thread, show, wrapped, wrapped_on_thread
from .handles import AsyncSnapshotView, AsyncTable, AsyncTopic
from .process import process
from .reader import AsyncReader
from .transaction import AsyncTransaction, Inner

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncEngine(AsyncClosing):
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
        """The commit protocol of the store: "deterministic", "kafka" or "pulsar"."""
        return self.sync.mode

    @property
    def turn(self) -> int:
        """The number of the store's last turn, as `Engine.turn`."""
        return self.sync.turn

    @property
    def owner(self) -> int | None:
        """The id of the process that owns the store, as `Engine.owner`."""
        return self.sync.owner

    # transactions --------------------------------------------------------------------------

    def transaction(self, worker: str | None = None) -> AsyncTransaction:
        """Begins a transaction. In an `async with` it commits at the end and rolls back on an error.

        `worker` is as in Engine.transaction.
        """
        self.sync.context.check()
        self.sync.context.drop()
        return AsyncTransaction(self, Inner(self.sync.context, check_worker(worker)))

    async def run(
        self,
        fn: Callable[[AsyncTransaction], Awaitable[T]],
        attempts: int | None = None,
        deadline: float = 30.0,
        worker: str | None = None,
    ) -> T:
        """Runs `await fn(tx)`, commits, and returns fn's value; retries after Conflict. See Engine.run."""
        with Attempts(attempts, deadline, self.sync.context.losers) as tried:
            while True:
                tx = None
                try:
                    tx = self.transaction(worker)
                    async with tx:
                        value = fn(tx)
                        if not isawaitable(value):
                            raise TypeError("db.run of an async engine takes an async function")
                        result = await value
                    if tx.future is not None:
                        await tx.future
                    return result
                except RETRIED as error:
                    own = is_own(None if tx is None else tx.sync, error)
                    await asyncio.sleep(tried.pause_after(error, own))

    async def changelog(
        self, topic: str, partition: int = 0, worker: str | None = None
    ) -> Changelog:
        """Opens the changelog of one partition, which keeps state in a keyed topic; see Engine.changelog.

        The changelog's methods work in memory and are not awaited; they take this engine's transactions.
        """
        return await self.bridge.call(self.sync.changelog, topic, partition, worker)

    snapshot = wrapped(Engine.snapshot, AsyncSnapshotView)
    reader = wrapped(Engine.reader, AsyncReader)

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
        max_redeliver_count: int | None = None,
        until_idle: bool = False,
        progress: bool | Callable[[Progress], Any] = False,
        stop: asyncio.Event | threading.Event | None = None,
        worker: str | None = None,
        attempts: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Progress:
        """Runs `await fn(tx, batch)` over the topic's records, each counted once; see Engine.process.

        The workers are tasks. Cancelling it cancels them, and rolls back the batches that were not submitted.
        """
        options = ProcessOptions(
            workers=workers,
            in_flight=in_flight,
            max_records=max_records,
            max_bytes=max_bytes,
            on_error=on_error,
            dead_letter=dead_letter,
            max_redeliver_count=max_redeliver_count,
            until_idle=until_idle,
            progress=progress,
            stop=stop,
            worker=worker,
            attempts=attempts,
            lease_seconds=lease_seconds,
        )
        return await process(self, fn, topic, consumer, options)

    @like(Engine.write)
    async def write(self, topic: str, *record: Any, **options: Any) -> Written:
        return await self.topic(topic).write(*record, **options)

    outcome = on_thread(Engine.outcome)
    resolve = on_thread(Engine.resolve)
    costs = on_thread(Engine.costs)
    phases = on_thread(Engine.phases)
    transactional_ids = on_thread(Engine.transactional_ids)
    slow_transactions = on_thread(Engine.slow_transactions)
    abort_transaction = on_thread(Engine.abort_transaction)
    abort_left_open = on_thread(Engine.abort_left_open)
    coordinator_stats = on_thread(Engine.coordinator_stats)
    buffer_stats = on_thread(Engine.buffer_stats)
    pending_acks = on_thread(Engine.pending_acks)
    position_state = on_thread(Engine.position_state)
    switch_log_batching = on_thread(Engine.switch_log_batching)
    log_batches = on_thread(Engine.log_batches)
    transactions = on_thread(Engine.transactions)
    open_transactions = on_thread(Engine.open_transactions)
    recorded = on_thread(Engine.recorded)
    stats = on_thread(Engine.stats)
    backup = on_thread(Engine.backup)

    # names ---------------------------------------------------------------------------------

    create_topic = wrapped_on_thread(Engine.create_topic, AsyncTopic)
    create_table = wrapped_on_thread(Engine.create_table, AsyncTable)
    drop_topic = on_thread(Engine.drop_topic)
    drop_table = on_thread(Engine.drop_table)

    def topics(self) -> dict[str, AsyncTopic]:
        """Returns all topics by name, in order of name."""
        return {name: AsyncTopic(self, topic) for name, topic in self.sync.topics().items()}

    def tables(self) -> dict[str, AsyncTable]:
        """Returns all tables by name, in order of name."""
        return {name: AsyncTable(self, table) for name, table in self.sync.tables().items()}

    topic = wrapped(Engine.topic, AsyncTopic)
    table = wrapped(Engine.table, AsyncTable)

    # the end -------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed or self.sync.closed

    async def close(self) -> None:
        """Closes this opening of the store, and with the last one the engine. A second close does nothing."""
        if self._closed:
            return
        self.bridge.check()
        self._closed = True
        try:
            await self.bridge.call(self.sync.close)
        finally:
            self.bridge.wake_all()
            self.bridge.close()

    async def __aenter__(self) -> Self:
        self.sync.context.check()
        return self

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"


class Opening:
    """A store that `open_async` will open: await it, or use it in an `async with`."""

    def __init__(self, opener: Callable[[], Engine]) -> None:
        self._open = opener
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

    async def __aexit__(self, *exc: object) -> None:
        if self._engine is not None:
            await self._engine.close()


def _opening(opener: Callable[P, Engine]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Gives the decorated function the parameters of `opener`."""

    def same(own: Callable[..., R]) -> Callable[P, R]:
        show(own, opener, own.__annotations__["return"])
        return own

    return same


@_opening(open_sync)
def open_async(path: str | os.PathLike[str], **settings: Any) -> Opening:
    """Opens the store at `path` for asyncio; settings as in `open`.

    `async with planstep.open_async(path) as db:` closes it at the end; after `await planstep.open_async(path)`
    close it with `await db.close()`. The engine belongs to the event loop that it was opened in.
    """
    return Opening(partial(open_sync, path, **settings))


def _close_unwanted(job: "asyncio.Future[Engine]") -> None:
    if not job.cancelled() and job.exception() is None:
        job.result().close()
