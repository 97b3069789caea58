"""Waking threads up, in ways that an interrupt cannot leave locked.

    Signal    one waiter, many that set         for the engine's own threads
    Latch     many waiters, set for ever        for the end of an engine
    Bell      many waiters, all are woken       for reads that wait for a host
    Watches   many waiters, by partition        for reads that wait for records
    CommitFuture                                what `submit` gives

threading.Event and Condition are Python code around a lock: KeyboardInterrupt in the middle of it, on the
main thread, leaves the lock to nobody, and the engine's thread that sets it next stands still for ever.
queue.SimpleQueue is one step, and a plain lock in a `with` is.

Next: group_commit.py.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures._base import FINISHED
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from .deferred_signals import Uninterrupted
from .outcome import Commit

_LOOK_SECONDS = 0.5

Wake = Callable[[], None]


def wait_for(
    queue: "SimpleQueue[None]", seconds: float | None, block: Uninterrupted | None = None
) -> bool:
    """Waits until something is put, or a signal comes whose handler `block` puts off; False after so many
    seconds."""
    try:
        if block is None or not block.tells(queue):
            queue.get(timeout=seconds)
        return True
    except Empty:
        return False
    finally:
        if block is not None:
            block.tells(None)


class Signal:
    """Set by anybody, waited for by one thread, which looks at everything after `wait`."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        if self._queue.empty():
            self._queue.put(None)

    def wait(self, seconds: float) -> None:
        """Until set, or so many seconds; it is not set any more."""
        wait_for(self._queue, seconds)


class Latch:
    """Set once, waited for by any number, who look by themselves too: an interrupt may keep it from waking them."""

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
        """Whether it is set, at last, or after so many seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._set:
            left = _LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                break
            if wait_for(self._queue, min(left, _LOOK_SECONDS)):
                self._queue.put(None)  # for the next who waits
        return self._set


class Bell:
    """Wakes all that listen."""

    __slots__ = ("listening",)

    def __init__(self) -> None:
        self.listening: dict[SimpleQueue[None], None] = {}

    def ring(self) -> None:
        for queue in list(self.listening):
            queue.put(None)

    @contextmanager
    def listen(self) -> "Iterator[SimpleQueue[None]]":
        """A queue that gets something with every ring from now on."""
        queue: SimpleQueue[None] = SimpleQueue()
        self.listening[queue] = None
        try:
            yield queue
        finally:
            self.listening.pop(queue, None)


class Watches:
    """Who is to be woken when a partition publishes."""

    def __init__(self) -> None:
        self.watched: dict[int, dict[Wake, None]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def watch(self, tablets: Iterable[int], wake: Wake) -> Iterator[None]:
        """Calls `wake`, on a thread of the engine, when one of the partitions publishes.

        Look at their ends after this began, not before. What is published by a transaction that an
        older engine left is not told: look again now and then.
        """
        tablets = tuple(tablets)
        try:
            with Uninterrupted(), self._lock:
                for tablet in tablets:
                    self.watched.setdefault(tablet, {})[wake] = None
            yield
        finally:
            with Uninterrupted(), self._lock:
                for tablet in tablets:
                    waiting = self.watched.get(tablet, {})
                    waiting.pop(wake, None)
                    if not waiting:
                        self.watched.pop(tablet, None)

    def end(self) -> None:
        """The engine is closed."""

    def wake(self, published: Iterable[int]) -> None:
        with self._lock:
            woken = {wake: None for tablet in published for wake in self.watched.get(tablet, ())}
        for wake in woken:
            wake()


class CommitFuture(Future[Commit]):
    """A future whose waiting can be interrupted anywhere, and whose end is not held up by it.

    Once it is finished it is read without its lock: its end is written before its state.
    """

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
                self.add_done_callback(lambda _: queue.put(None))
            while not self.done():  # a callback that raises SystemExit keeps the later ones from it
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                wait_for(queue, min(left, _LOOK_SECONDS))
        error: BaseException | None = self._exception
        return error

    def done(self) -> bool:
        return bool(self._state == FINISHED)
