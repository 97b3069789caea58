"""Implements the transaction for asyncio: the same names as Transaction, every data method awaitable.

    await tx.read(…) ─▶ waits without a thread      await tx.put(…) ─▶ memory, at once
    await tx.commit() ─▶ the loop goes on while the turn is synced

Calls of several tasks take turns, in the order in which they came. A wait for records, or for a commit that was
sent, is no part of a turn.

A task that is cancelled in `read`, `get`, `write` … leaves the transaction open, and its `async with` rolls it
back. A commit that was sent goes on; `await tx.outcome()` or `db.outcome(id)` tells how it ended.

Next: engine.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from ..api.arguments import seconds, seconds_or_none
from ..api.columns.batch import ReadBatch
from ..api.limits import READ_BYTES
from ..api.optional_packages import is_frame
from ..api.transaction.transaction import Transaction
from ..proto.ids import Place, TxnID
from ..proto.keys import Key
from ..runtime.group_commit import ReplySink
from ..runtime.outcome import Commit, Outcome
from .bridge import AsyncHandle, AsyncMethod, in_loop, in_memory, like, on_thread

if TYPE_CHECKING:
    from .engine import AsyncEngine

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_UNSETTLED = ("open", "planned")


class Inner(Transaction):
    """A transaction that only notes when writes are due to go ahead: sending waits for a sync, on a thread."""

    due = False
    _on_thread = False

    def _send_ahead(self) -> None:
        self.due = not self._on_thread
        if self._on_thread:
            super()._send_ahead()

    def read_once(self, *args: Any, deadline: float) -> tuple[ReadBatch, dict[int, int] | None]:
        """Reads the records that a consumer can have now; with the ends, beyond which to wait for more."""
        return self._read_once(*args, deadline=deadline)

    def on_thread(self, method: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Calls a method of this transaction, in which writes may go ahead."""
        self._on_thread = True
        try:
            method(self, *args, **kwargs)
        finally:
            self._on_thread = False

    def send_due(self) -> None:
        self.on_thread(Inner._send_ahead)


class AsyncCommitHandle:
    """Commits by `await tx.commit()`; then `tx.commit.place` is the place in the one order, None before."""

    __slots__ = ("_commit", "_tx")

    def __init__(
        self, tx: "AsyncTransaction", commit: Callable[[float | None], Awaitable[Commit]]
    ) -> None:
        self._tx = tx
        self._commit = commit

    async def __call__(self, timeout: float | None = None) -> Commit:
        """Commits, and waits until the commit is durable and visible, as CommitHandle does.

        When cancelled or timed out (Undetermined) the commit goes on: `await tx.outcome()` waits for its end.
        """
        return await self._commit(timeout)

    @property
    def place(self) -> Place | None:
        """The place (step, n). A transaction without effects has (S, None): after all of step S."""
        return self._tx.sync.life.place()

    def __repr__(self) -> str:
        return f"<commit of {self._tx!r}>"


def in_turn(method: AsyncMethod[P, R]) -> AsyncMethod[P, R]:
    """Makes a method of AsyncTransaction wait until the calls of other tasks have ended."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async with self._turn:
            return await method(self, *args, **kwargs)

    return call


class AsyncTransaction(AsyncHandle[Inner]):
    """One transaction of an event loop.

    `async with db.transaction() as tx:` commits at the end, and rolls back on an error or when cancelled.
    Tasks may share it, as in `asyncio.gather(*(tx.write("t", v) for v in values))`: one call runs after the
    other, and what comes after the commit is TransactionClosed.
    """

    def __init__(self, engine: "AsyncEngine", sync: Inner) -> None:
        super().__init__(engine, sync)
        self._sent = False  # to the engine: from then on it has an outcome
        self.future: asyncio.Future[Commit] | None = None
        self._turn = asyncio.Lock()

    @property
    def id(self) -> str:
        """The transaction's id, such as "3-17": `db.outcome(id)` finds it, also after reopening."""
        return self.sync.id

    @property
    def txn_id(self) -> TxnID | None:
        """Mode "pulsar": the id that a coordinator has given; see Transaction.txn_id."""
        return self.sync.txn_id

    @property
    def commit(self) -> AsyncCommitHandle:
        """The handle that commits, by `await tx.commit()`; afterwards `tx.commit.place` is the place (step, n)."""
        return AsyncCommitHandle(self, self._commit)

    def submit(self) -> "asyncio.Future[Commit]":
        """Commits without waiting; the future returns the Commit, or raises as `commit` does.

        Cancelling the future ends the wait, not the commit. It comes after the calls of other tasks.
        """
        if self._turn.locked():
            ending = self._commit(None)
        else:
            ending = self._ended(self.sync.life.send(), None)
        task = asyncio.ensure_future(ending)
        task.add_done_callback(self._task_ended)
        self.future = task
        return task

    def _task_ended(self, task: "asyncio.Future[Commit]") -> None:
        if not task.cancelled():
            task.exception()  # looked at: the transaction knows it, whether or not somebody asks the future
        if self.sync.life.state == "open":  # while it waited for its turn
            self.sync.life.leave()
        elif task.cancelled() and not self._sent:  # before it began
            self._give_up()

    def _give_up(self) -> None:
        self.sync.life.state = "aborted"
        self.sync.life.take_back()

    rollback = in_turn(in_memory(Transaction.rollback))

    async def outcome(self, timeout: float | None = None) -> Outcome:
        """Tells how the transaction ended; waits for its end, at most `timeout` seconds, once it was sent."""
        loop = asyncio.get_running_loop()
        limit = seconds_or_none("timeout", timeout)
        deadline = None if limit is None else loop.time() + limit
        pause = 0.001
        while True:
            outcome = self.sync.outcome(0.0)
            if outcome.state not in _UNSETTLED or self.sync.life.state == "open":
                return outcome
            if deadline is not None and loop.time() >= deadline:
                return outcome
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)

    async def _commit(self, timeout: float | None) -> Commit:
        limit = seconds_or_none("timeout", timeout)  # before it is sent
        async with self._turn:
            parts = self.sync.life.send()
        return await self._ended(parts, limit)

    async def _ended(self, parts: Any, timeout: float | None) -> Commit:
        life = self.sync.life
        if parts is None and self.bridge.runtime.fresh is not None:
            await self.bridge.call(life.confirm)
        if parts is not None:
            try:
                life.result = await self._send(parts, timeout)
            except BaseException as error:
                life.failed(error)
                if not self._sent:
                    self._give_up()
                raise
        assert life.result is not None
        life.state = "committed"
        return life.result

    async def _send(self, parts: Any, timeout: float | None) -> Commit:
        tx = self.sync.life.tx

        def send(ending: ReplySink) -> None:
            self.bridge.runtime.transactions.send(tx, parts, ending)
            self._sent = True

        return await self.bridge.ended(tx, send, timeout)

    async def __aenter__(self) -> Self:
        self.sync.life.check_open()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if (
            self.sync.life.state != "open" or self.future is not None
        ):  # submitted: it ends in its turn
            return
        try:
            if error is None:
                await self._commit(None)
        finally:
            try:
                async with self._turn:  # a call of another task may go on on a thread
                    pass
            finally:
                self.sync.life.leave()

    # topics --------------------------------------------------------------------------------

    async def read(
        self,
        topic: str,
        consumer: str,
        *,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
        timeout: float = 0.0,
        partition: int | None = None,
        exact: bool = False,
    ) -> ReadBatch:
        """Reads as Transaction.read does; waits up to `timeout` seconds for records, without a thread."""
        tx = self.sync
        if exact:
            self.bridge.runtime.hooks.check_exact()
        deadline = time.monotonic() + seconds("timeout", timeout)
        before: dict[int, int] | None = None
        while True:
            async with self._turn:
                batch, ends = await self.bridge.call(
                    tx.read_once,
                    topic,
                    consumer,
                    max_records,
                    max_bytes,
                    partition,
                    exact,
                    deadline=deadline,
                )
            if ends is None:
                return batch
            if ends == before:  # else they may have moved behind the read: it looks once more
                await self.bridge.published(ends, deadline - time.monotonic())
            before = ends

    consume = in_turn(in_loop(Transaction.consume))
    pending = in_turn(on_thread(Transaction.pending))

    @in_turn
    async def flush(self) -> None:
        """Makes the topic writes so far durable at their partitions, and waits until they are."""
        await self.bridge.call(self.sync.on_thread, Transaction.flush)

    @in_turn
    @like(Transaction.write)
    async def write(self, *record: Any, **options: Any) -> None:
        self.sync.write(*record, **options)
        if self.sync.due:
            await self.bridge.call(self.sync.send_due)

    @in_turn
    @like(Transaction.write_batch)
    async def write_batch(self, topic: str, values: Any, *rest: Any, **options: Any) -> None:
        tx = self.sync
        if is_frame(values):
            write = partial(tx.on_thread, Transaction.write_batch, topic, values)
            await self.bridge.call(write, *rest, **options)
            return
        tx.write_batch(topic, values, *rest, **options)
        if tx.due:
            await self.bridge.call(tx.send_due)

    # tables --------------------------------------------------------------------------------

    @overload
    async def get(self, table: str, key: Key, default: None = None) -> Any | None: ...
    @overload
    async def get(self, table: str, key: Key, default: T) -> T: ...
    async def get(self, table: str, key: Key, default: Any = None) -> Any:
        """Returns the row's value, own writes included; `default` when there is none."""
        async with self._turn:
            return await self.bridge.read_memory(self.sync.get, table, key, default)

    scan = in_turn(on_thread(Transaction.scan))

    put = in_turn(in_memory(Transaction.put))
    put_if_absent = in_turn(in_memory(Transaction.put_if_absent))
    delete = in_turn(in_memory(Transaction.delete))
    add = in_turn(in_memory(Transaction.add))
    max = in_turn(in_memory(Transaction.max))
    min = in_turn(in_memory(Transaction.min))
