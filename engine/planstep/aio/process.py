"""Implements `process` for asyncio: several tasks run an async function over all batches of a topic.

The same Course as with threads decides what to do with a batch that fails: api/topics/process_policy.py.

Next: engine.py.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ..api.columns.batch import ReadBatch
from ..api.topics.process import Minding, check_workers, report
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
        """Returns the next batch, however long that takes; None when the course ends."""
        return await self._wait()


class _Worker:
    def __init__(self, course: ProcessPolicy, fn: _Fn, reader: _Reader) -> None:
        self._course = course
        self._fn = fn
        self._reader = reader
        self._pending: deque[tuple[asyncio.Future[Commit], ReadBatch, bool]] = deque()

    async def run(self) -> None:
        course, pending = self._course, self._pending
        try:
            while not course.stopping:
                leased = await (self._reader.read() if pending else self._reader.wait())
                if leased is not None:
                    await self._one(leased)
                elif not pending:
                    break
                while pending and (
                    leased is None
                    or len(pending) >= course.options.in_flight
                    or pending[0][0].done()
                ):
                    await self._settle()
            while pending:
                await self._settle()
        except BaseException as error:
            course.stop(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            await self._reader.close()

    async def _one(self, leased: AsyncLeased) -> None:
        tx, batch = leased
        poison = self._course.verdict(batch)
        try:
            if poison is None:
                value = self._fn(tx, batch)
                if not isawaitable(value):
                    wrong = TypeError("process of an engine of asyncio takes an async function")
                    raise Misused from wrong
                await value
                refuse_rolled_back(tx.sync)
            else:
                self._course.move_poison(tx.sync, batch, poison)
            if tx.sync.life.state == "open":
                tx.submit()
            if tx.future is not None:
                self._pending.append((tx.future, batch, poison is not None))
            elif tx.sync.life.state == "committed":
                self._course.committed(batch)
        except BaseException as error:
            if tx.sync.life.state == "open":
                await tx.rollback()
            if not isinstance(error, Exception):
                raise
            await self._failed(batch, error, poison is not None)

    async def _settle(self) -> None:
        future, batch, buried = self._pending.popleft()
        try:
            await future
        except Exception as error:
            await self._failed(batch, error, buried)
        else:
            self._course.committed(batch)

    async def _failed(self, batch: ReadBatch, error: BaseException, buried: bool) -> None:
        call = self._reader.bridge.call  # it may ask on_error
        await self._pause(await call(self._course.failed, batch, error, buried))

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._course.stopping:
            await asyncio.sleep(min(left, _STOP_SECONDS))


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
    course = await bridge.call(ProcessPolicy, sync.context, topic, consumer, options)
    tasks: list[asyncio.Task[None]] = []
    try:
        for number in range(options.workers):
            reader = course.reader(number)
            worker = _Worker(course, fn, _Reader(engine, reader))
            tasks.append(asyncio.create_task(worker.run(), name=reader.name))
        minding = Minding(course)
        running = set(tasks)
        while running:
            _, running = await asyncio.wait(
                running, timeout=minding.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if minding.look():
                report(options.progress, await bridge.call(course.progress), False)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    finally:
        course.end()
        for reader in course.readers:
            reader.close()
    if course.error is not None:
        raise course.error
    done = await bridge.call(course.progress)
    report(options.progress, done, True)
    return done
