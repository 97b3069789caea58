"""Wakes threads up, by means that an interrupt cannot leave locked.

    Signal    one waiter, many that set         for the engine's own threads
    Latch     many waiters, set for ever        for the end of an engine
    Bell      many waiters, all are woken       for reads that wait for a host
    Watches   many waiters, by partition        for reads that wait for records
    CommitFuture                                the result of `submit`

threading.Event and Condition are Python code around a lock. A KeyboardInterrupt in the middle of it, on the main
thread, leaves the lock taken for ever, and the engine's thread that sets it next blocks for ever.
queue.SimpleQueue is one step, and so is a plain lock in a `with`.

Next: group_commit.py.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from .deferred_signals import Uninterrupted
from .outcome import Commit

_LOOK_SECONDS = 0.5
_LOOKS_AT_LOCK = 100

Wake = Callable[[], None]


def wait_for(
    queue: "SimpleQueue[None]", seconds: float | None, block: Uninterrupted | None = None
) -> bool:
    """Waits until something is put, or a signal comes whose handler `block` defers; returns False after `seconds`
    without either."""
    try:
        if block is None or not block.tells(queue):
            queue.get(timeout=seconds)
        return True
    except Empty:
        return False
    finally:
        if block is not None:
            block.tells(None)


def once_free(lock: threading.Lock) -> threading.Lock:
    """Returns a lock, most often when nobody has it, so that taking it does not wait. For locks that many threads
    take for a moment.

    A thread that waited for a lock has it before it has the interpreter back. Until then all others begin to wait
    for it too, and from then on each step of each thread costs a switch: 64 workers of `process` did half as much.
    """
    if lock.locked():
        for _ in range(_LOOKS_AT_LOCK):
            time.sleep(0)  # the holder goes on
            if not lock.locked():
                break
    return lock


class Signal:
    """Is set by any thread, and waited for by one, which checks everything after `wait`."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        if self._queue.empty():
            self._queue.put(None)

    def wait(self, seconds: float) -> None:
        """Waits until it is set, at most `seconds`, and clears it."""
        wait_for(self._queue, seconds)


class Latch:
    """Is set once; many threads wait for it. They also check it themselves: an interrupt may keep it from waking
    them."""

    __slots__ = ("_queue", "_set")

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._queue.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until it is set, at most `seconds`; returns whether it is."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._set:
            remaining = _LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if remaining <= 0:
                break
            if wait_for(self._queue, min(remaining, _LOOK_SECONDS)):
                self._queue.put(None)  # for the next waiter
        return self._set


class Bell:
    """Wakes all threads that listen."""

    __slots__ = ("listening",)

    def __init__(self) -> None:
        self.listening: dict[SimpleQueue[None], None] = {}

    def ring(self) -> None:
        for queue in list(self.listening):
            queue.put(None)

    @contextmanager
    def listen(self) -> "Iterator[SimpleQueue[None]]":
        """Gives a queue that gets an item with every ring from now on."""
        queue: SimpleQueue[None] = SimpleQueue()
        self.listening[queue] = None
        try:
            yield queue
        finally:
            self.listening.pop(queue, None)


class Watches:
    """Wakes the callers that wait for a partition when it publishes."""

    def __init__(self, before: "Watches | None" = None) -> None:
        """`before`: those in whose place it comes; their callers go on waiting here."""
        self.watched: dict[int, dict[Wake, None]] = {}
        self.lock: threading.Lock = threading.Lock()
        if before is not None:
            self.watched, self.lock = before.watched, before.lock

    @contextmanager
    def watch(self, tablets: Iterable[int], wake: Wake) -> Iterator[None]:
        """Calls `wake`, on a thread of the engine, when one of the partitions publishes.

        Look at their ends after this has begun, not before. Records published by a transaction that an older
        engine left wake nobody: look again now and then.
        """
        tablets = tuple(tablets)
        try:
            self.add(tablets, wake)
            yield
        finally:
            self.remove(tablets, wake)

    def add(self, tablets: Iterable[int], wake: Wake) -> None:
        """Calls `wake` when one of the partitions publishes, until `remove`."""
        with Uninterrupted(), self.lock:
            for tablet in tablets:
                self.watched.setdefault(tablet, {})[wake] = None

    def remove(self, tablets: Iterable[int], wake: Wake) -> None:
        with Uninterrupted(), self.lock:
            for tablet in tablets:
                waiting = self.watched.get(tablet, {})
                waiting.pop(wake, None)
                if not waiting:
                    self.watched.pop(tablet, None)

    def again(self) -> None:
        """Goes on at another owner of the store, where this process is attached to one."""

    def wake(self, published: Iterable[int]) -> None:
        with self.lock:
            woken = {wake: None for tablet in published for wake in self.watched.get(tablet, ())}
        for wake in woken:
            wake()


class CommitFuture(Future[Commit]):
    """A future that can be interrupted anywhere while waiting, without delaying its end.

    A finished one is read without its lock: its result is written before its state. It cannot be cancelled, as a
    commit cannot be withdrawn.
    """

    def __init__(self) -> None:
        super().__init__()
        self._state = RUNNING
        self._wakes: list[SimpleQueue[None]] = []
        """Those of threads in `exception`."""
        self._done_callbacks: list[Callable[[CommitFuture], object]] = [CommitFuture._wake]

    def end_here(self, answer: Commit | BaseException) -> bool:
        """Ends it, and returns True, unless it has ended, or code of others would run: a callback, or a wait for
        several futures. On the main thread the caller is Uninterrupted."""
        with self._condition:
            if self.done() or len(self._done_callbacks) > 1 or self._waiters:
                return False
            if isinstance(answer, BaseException):
                self._exception = answer
            else:
                self._result = answer
            self._state = FINISHED
        self._wake()
        return True

    def _wake(self) -> None:
        for queue in self._wakes:
            queue.put(None)

    def result(self, timeout: float | None = None) -> Commit:
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._result is not None
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            deadline = time.monotonic() + (
                threading.TIMEOUT_MAX / 2 if timeout is None else timeout
            )
            queue: SimpleQueue[None] = SimpleQueue()
            with Uninterrupted():
                self._wakes.append(queue)
            while not self.done():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise TimeoutError
                wait_for(queue, min(remaining, _LOOK_SECONDS))
        error: BaseException | None = self._exception
        return error

    def done(self) -> bool:
        return bool(self._state == FINISHED)
