"""Connects an event loop to the engine's threads.

    commit ─▶ inbox ─▶ turn ─▶ its answers, in a deque ─one call_soon_threadsafe─▶ futures of the loop
    calls that may block ─▶ a few threads of the bridge's own     a wait for records ─▶ no thread at all

A turn that ends hundreds of commits wakes the loop once. A call that blocks for a bounded time (a schema change,
reading from disk, waiting for a host) runs on a thread. Even a cancelled task waits until it returns, so that no
call of a transaction goes on unnoticed.

Next: transaction.py.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
)

from ..errors import EngineClosed, Overloaded
from ..runtime.group_commit import ReplySink
from ..runtime.outcome import Commit, undetermined
from ..runtime.runtime import Runtime

if TYPE_CHECKING:
    from .engine import AsyncEngine

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")
Method: TypeAlias = Callable[Concatenate[Any, P], R]
AsyncMethod: TypeAlias = Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]

_END = object()
_THREADS = 8
_ADMISSION_SECONDS = 30.0
_LOOK_SECONDS = 5.0
"""A waiting reader looks again after this long even if it was not woken: see Watches."""


@dataclass(slots=True, eq=False)
class _LoopReplySink:
    """Ends a future of the loop from a thread of the engine."""

    bridge: "Bridge"
    future: "asyncio.Future[Commit]"

    def set_result(self, result: Commit, /) -> None:
        self.bridge.post(self.future, result, None)

    def set_exception(self, error: BaseException, /) -> None:
        self.bridge.post(self.future, None, error)


class Bridge:
    """Connects one engine to one event loop.

    Invariant: while `_called` is true a call of `_deliver` is scheduled, which will see all items in `_due`.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.loop = asyncio.get_running_loop()
        self.waiting: dict[asyncio.Future[Any], None] = {}  # readers
        self.may_wait = (
            runtime.hosts > 1
            or runtime.async_clients
            or runtime.hooks.reads_may_wait
            or runtime.fresh is not None
        )
        self._due: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._called = False
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    # from the engine's threads -------------------------------------------------------------

    def post(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._due.append((future, result, error))
        if not self._called:
            self._called = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

    def _deliver(self) -> None:
        self._called = False
        while self._due:
            future, result, error = self._due.popleft()
            if future.done():
                continue  # whoever waited was cancelled
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    # from the loop -------------------------------------------------------------------------

    def check(self) -> None:
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError(
                "this engine was opened in another event loop; open it in each (they share it)"
            )

    async def ended(
        self, tx: bytes, send: Callable[[ReplySink], None], timeout: float | None
    ) -> Commit:
        """Sends a commit, retries while that raises Overloaded, and waits for the answer.

        Undetermined after `timeout` seconds. If the task is cancelled after the send, the commit goes on.
        """
        self.check()
        future: asyncio.Future[Commit] = self.loop.create_future()
        ending = _LoopReplySink(self, future)
        started = self.loop.time()
        pause = 0.001
        while True:
            try:
                send(ending)
                break
            except Overloaded:
                limit = _ADMISSION_SECONDS if timeout is None else timeout
                if self.loop.time() - started + pause > limit:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            self.runtime.replies.unheard(tx)
            raise undetermined(tx, timeout) from None
        except asyncio.CancelledError:
            self.runtime.replies.unheard(tx)
            raise

    async def published(self, ends: dict[int, int], seconds: float) -> None:
        """Waits until a partition grows beyond its end, or for so many seconds; holds no thread."""
        self.check()
        future: asyncio.Future[None] = self.loop.create_future()
        runtime = self.runtime
        wake = partial(self.post, future, None, None)
        self.waiting[future] = None
        try:
            with runtime.turns.watches.watch(tuple(ends), wake):
                if not any(runtime.views.end(tablet) > end for tablet, end in ends.items()):
                    if runtime.turns.stopped is not None:
                        runtime.turns.check_open()  # nothing comes any more
                    await asyncio.wait([future], timeout=min(seconds, _LOOK_SECONDS))
        finally:
            self.waiting.pop(future, None)
            future.cancel()

    async def call(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a function that may block on a thread. Even a cancelled task waits until it returns."""
        self.check()
        if self._closed:
            raise EngineClosed("the engine is closed; open it again")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="planstep-async")
        job = self.loop.run_in_executor(self._pool, partial(fn, *args, **kwargs))
        cancelled: asyncio.CancelledError | None = None
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            if not job.cancelled():
                job.exception()  # looked at: nobody else will
            raise cancelled
        return job.result()

    async def read_memory(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a function that reads memory: at once, or on a thread where it may wait for another host."""
        if self.may_wait:
            return await self.call(fn, *args, **kwargs)
        return fn(*args, **kwargs)

    def wake_all(self) -> None:
        for future in list(self.waiting):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False)


class AsyncHandle(Generic[W]):
    """Wraps an object of the synchronous API, `sync`, for the tasks of an event loop."""

    def __init__(self, engine: "AsyncEngine", sync: W) -> None:
        self.engine = engine
        self.bridge = engine.bridge
        self.sync = sync

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"


def on_thread(method: Method[P, R]) -> AsyncMethod[P, R]:
    """Makes the awaitable form of a method that may block: it runs on a thread."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bridge: Bridge = self.bridge
        return await bridge.call(method, self.sync, *args, **kwargs)

    return call


def in_loop(method: Method[P, R]) -> AsyncMethod[P, R]:
    """Makes the awaitable form of a method that reads the engine's memory; see `Bridge.read_memory`."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        bridge: Bridge = self.bridge
        return await bridge.read_memory(method, self.sync, *args, **kwargs)

    return call


def in_memory(method: Method[P, R]) -> AsyncMethod[P, R]:
    """Makes the awaitable form of a method that never waits: it runs at once, in the loop."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self.sync, *args, **kwargs)

    return call


def step_by_step(method: Method[P, Iterator[R]]) -> Method[P, AsyncIterator[R]]:
    """Makes the `async for` form of a method that returns an iterator; its steps run on a thread."""

    @wraps(method)
    async def steps(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        bridge: Bridge = self.bridge
        iterator = await bridge.call(method, self.sync, *args, **kwargs)
        while (item := await bridge.call(next, iterator, _END)) is not _END:
            yield cast(R, item)

    return steps


def wrapped(method: Method[P, R], kind: Callable[[Any, R], W]) -> Method[P, W]:
    """Makes a method that wraps the result of the synchronous method in a class of this package."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> W:
        return kind(self, method(self.sync, *args, **kwargs))

    show(call, method, kind)
    return call


def wrapped_on_thread(method: Method[P, R], kind: Callable[[Any, R], W]) -> AsyncMethod[P, W]:
    """Makes an awaitable method, on a thread, that wraps its result as `wrapped` does."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> W:
        bridge: Bridge = self.bridge
        return kind(self, await bridge.call(method, self.sync, *args, **kwargs))

    show(call, method, kind)
    return call


def like(method: Method[P, Any]) -> Callable[[Callable[..., R]], Method[P, R]]:
    """Gives the decorated method the parameters and the docstring of `method`, but keeps its result type."""

    def same(own: Callable[..., R]) -> Method[P, R]:
        result = own.__annotations__["return"]
        call = wraps(method)(own)
        show(call, method, result)
        return call

    return same


def show(call: Callable[..., Any], method: Callable[..., Any], result: Any) -> None:
    """Makes `help` and the reference show the parameters of `method`, and the type `result`."""
    call.__annotations__ = {**method.__annotations__, "return": result}
    vars(call)["__signature__"] = signature(method).replace(return_annotation=result)
