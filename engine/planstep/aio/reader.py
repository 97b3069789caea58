"""Implements the reader for asyncio: it returns batches of one consumer, each with a transaction to consume it.

    async with db.reader("clicks", consumer="resharder") as reader:
        async for tx, batch in reader:
            await tx.write_batch("by-user", batch.values, keys=batch.keys)
            tx.submit()

The leases are those of api/topics/consumer_group.py, so threads and tasks may read for one consumer.
Waiting takes no thread. Next: process.py.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..api.arguments import seconds
from ..api.columns.batch import ReadBatch
from ..api.topics.batch_search import Wait
from ..api.topics.leased_transaction import Leased, LeasedTransaction
from ..api.topics.reader import Reader
from ..closing import AsyncClosing
from ..errors import TransactionClosed
from ..runtime.group_commit import ReplySink
from ..runtime.outcome import Commit
from .bridge import AsyncHandle, in_memory, on_thread
from .transaction import AsyncTransaction, Inner, in_turn

if TYPE_CHECKING:
    from .engine import AsyncEngine


class AsyncLeased(NamedTuple):
    """A batch, and the transaction that consumes it: commit it, submit it, or roll it back."""

    tx: AsyncTransaction
    batch: ReadBatch

    async def nack(self) -> None:
        """Rolls back, and hands the batch back for a time; see Leased.nack."""
        assert isinstance(self.tx, _AsyncLeasedTransaction)
        await self.tx.nack()


class _LeasedInner(LeasedTransaction, Inner):
    """A leased transaction that waits in the event loop, not on a thread."""


class _AsyncLeasedTransaction(AsyncTransaction):
    sync: _LeasedInner
    nack = in_turn(in_memory(LeasedTransaction.nack))

    async def _send(self, parts: Any, timeout: float | None) -> Commit:
        tx = self.sync

        def send(ending: ReplySink) -> None:
            tx.life.hand(parts, ending)
            self._sent = True

        tx.life.group.tidy()
        return await self.bridge.ended(tx.life.tx, send, timeout)


class AsyncReader(AsyncHandle[Reader], AsyncClosing):
    """Reads batches for one consumer; several tasks may share it. See Reader."""

    def __init__(self, engine: "AsyncEngine", sync: Reader) -> None:
        super().__init__(engine, sync)
        self.topic = sync.topic
        self.consumer = sync.consumer
        self.max_records = sync.max_records
        self.max_bytes = sync.max_bytes

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def partitions(self) -> list[int]:
        """The partitions that this reader leases now; none for an individual consumer."""
        return self.sync.partitions

    @property
    def in_flight(self) -> int:
        """The number of batches whose transactions have not ended."""
        return self.sync.in_flight

    async def read(self, timeout: float = 0.0) -> AsyncLeased | None:
        """Returns the next batch and its transaction, None when there is nothing to read within `timeout` seconds.

        It waits for room, and for submitted batches, as Reader.read does.
        """
        deadline = time.monotonic() + seconds("timeout", timeout)
        return await self._next(Wait(deadline, self.sync.member.lapsed))

    async def _wait(self) -> AsyncLeased | None:
        return await self._next(Wait(None, self.sync.member.lapsed))

    async def _next(self, wait: Wait) -> AsyncLeased | None:
        while True:
            leased, pause = await self._try(wait)
            if leased is not None or not pause:
                return leased
            bridge = self.bridge
            future: asyncio.Future[None] = bridge.loop.create_future()
            bridge.waiting[future] = None
            try:
                wake = partial(bridge.post, future, None, None)
                with self.sync.group.watch(self.sync.member, wake):
                    leased, pause = await self._try(wait)  # what came before the watch began
                    if leased is not None or not pause:
                        return leased
                    await asyncio.wait([future], timeout=pause)
            finally:
                bridge.waiting.pop(future, None)
                future.cancel()

    async def _try(self, wait: Wait) -> tuple[AsyncLeased | None, float]:
        batches: list[Leased] = []

        def read() -> float:
            leased, pause = self.sync.search.attempt(wait, _LeasedInner)
            if leased is not None:
                batches.append(leased)
            return pause

        try:
            pause = await self.bridge.call(read)
        except asyncio.CancelledError:
            for tx, _ in batches:  # read, and nobody there to take it
                tx.rollback()
            raise
        for tx, batch in batches:
            assert isinstance(tx, _LeasedInner)
            return AsyncLeased(_AsyncLeasedTransaction(self.engine, tx), batch), pause
        return None, pause

    idle = on_thread(Reader.idle)
    keep_alive = in_memory(Reader.keep_alive)
    close = in_memory(Reader.close)

    async def __aiter__(self) -> AsyncIterator[AsyncLeased]:
        while not self.sync.closed:
            try:
                leased = await self._wait()
            except TransactionClosed:
                return  # closed meanwhile
            if leased is None:
                return
            yield leased
