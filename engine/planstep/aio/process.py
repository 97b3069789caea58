"""Implements `process` for asyncio: several tasks run an async function over all batches of a topic.

The same ProcessPolicy as with threads decides what to do with a batch that fails: api/topics/process_policy.py.

Next: engine.py.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ..api.columns.batch import ReadBatch
from ..api.topics.process import CallerDuties, check_workers, report
from ..api.topics.process_policy import (
    Misused,
    ProcessOptions,
    ProcessPolicy,
    Progress,
    refuse_rolled_back,
)
from ..runtime.outcome import Commit
from .reader import AsyncLeased, AsyncReader
from .transaction import AsyncTransaction

if TYPE_CHECKING:
    from .engine import AsyncEngine

_STOP_SECONDS = 0.1
"""A worker that pauses checks this often whether it has to stop."""
_Fn = Callable[[AsyncTransaction, ReadBatch], Awaitable[Any]]


class _Reader(AsyncReader):
    async def wait(self) -> AsyncLeased | None:
        """Returns the next batch, however long that takes; None when the policy ends."""
        return await self._wait()


class _Worker:
    def __init__(self, policy: ProcessPolicy, fn: _Fn, reader: _Reader) -> None:
        self._policy = policy
        self._fn = fn
        self._reader = reader
        self._pending: deque[tuple[asyncio.Future[Commit], ReadBatch, bool]] = deque()

    async def run(self) -> None:
        policy, pending = self._policy, self._pending
        try:
            while not policy.stopping:
                leased = await (self._reader.read() if pending else self._reader.wait())
                if leased is not None:
                    await self._run_batch(leased)
                elif not pending:
                    break
                while pending and (
                    leased is None
                    or len(pending) >= policy.options.in_flight
                    or pending[0][0].done()
                ):
                    await self._await_oldest()
            while pending:
                await self._await_oldest()
        except BaseException as error:
            policy.stop(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            await self._reader.close()

    async def _run_batch(self, leased: AsyncLeased) -> None:
        tx, batch = leased
        poison = self._policy.verdict(batch)
        try:
            if poison is None:
                value = self._fn(tx, batch)
                if not isawaitable(value):
                    wrong = TypeError("process of an engine of asyncio takes an async function")
                    raise Misused from wrong
                await value
                refuse_rolled_back(tx.sync)
            else:
                self._policy.move_poison(tx.sync, batch, poison)
            if tx.sync.life.state == "open":
                tx.submit()
            if tx.future is not None:
                self._pending.append((tx.future, batch, poison is not None))
            elif tx.sync.life.state == "committed":
                self._policy.committed(batch)
        except BaseException as error:
            if tx.sync.life.state == "open":
                self._policy.hold(tx.sync, batch, error, poison is not None)
                await tx.rollback()
            if not isinstance(error, Exception):
                raise
            await self._failed(batch, error, poison is not None)

    async def _await_oldest(self) -> None:
        future, batch, of_poison = self._pending.popleft()
        try:
            await future
        except Exception as error:
            await self._failed(batch, error, of_poison)
        else:
            self._policy.committed(batch)

    async def _failed(self, batch: ReadBatch, error: BaseException, of_poison: bool) -> None:
        call = self._reader.bridge.call  # it may ask on_error
        await self._pause(await call(self._policy.failed, batch, error, of_poison))

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0 and not self._policy.stopping:
            await asyncio.sleep(min(remaining, _STOP_SECONDS))


async def process(
    engine: "AsyncEngine",
    fn: _Fn,
    topic: str,
    consumer: str,
    options: ProcessOptions,
) -> Progress:
    """See AsyncEngine.process."""
    check_workers(fn, options.workers)
    bridge, sync = engine.bridge, engine.sync
    policy = await bridge.call(ProcessPolicy, sync.context, topic, consumer, options)
    tasks: list[asyncio.Task[None]] = []
    try:
        for number in range(options.workers):
            reader = policy.reader(number)
            worker = _Worker(policy, fn, _Reader(engine, reader))
            tasks.append(asyncio.create_task(worker.run(), name=reader.name))
        duties = CallerDuties(policy)
        running = set(tasks)
        while running:
            _, running = await asyncio.wait(
                running, timeout=duties.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if duties.perform():
                report(options.progress, await bridge.call(policy.progress), False)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    finally:
        policy.end()
        for reader in policy.readers:
            reader.close()
    if policy.error is not None:
        raise policy.error
    done = await bridge.call(policy.progress)
    report(options.progress, done, True)
    return done
