"""Closes an engine: with the last of its opens, in any thread, or with the process.

    close() ─▶ linger flushed ─▶ opens left? ─ no ─▶ closed ─▶ runtime closed ─▶ waiting threads go on

Next: engine.py.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import EngineClosed, PlanstepError
from ..logs import lost_at_exit, store_closed
from ..runtime.deferred_signals import room_for_a_turn
from ..runtime.wait_primitives import Latch

if TYPE_CHECKING:
    from .context import Context
    from .slots import Slot


class Lifetime:
    """Closes one engine. Invariant: the runtime is closed once, by the thread that closed the last open."""

    def __init__(self, context: "Context", slot: "Slot", backing_up: threading.RLock) -> None:
        """`backing_up` is held by a backup under way."""
        self.context = context
        self.opens = 1
        self._slot = slot
        self._backing_up = backing_up
        self.at_end: Callable[[], object] | None = None
        """Called once the engine is closed."""
        self._closer = 0  # the thread that closes the engine
        self._began = 0.0  # when that began
        self._ending = False  # True while it does so
        self._ended = Latch()

    def close(self) -> None:
        """Closes one open of the engine: see Engine.close."""
        context = self.context
        if context.forked:
            context.close_adopted()
            return
        room_for_a_turn()
        last = self.opens == 1 and not context.closed
        unpublished = context.lingering.flush() if last else []
        try:
            self._close_once()
        finally:
            for late in unpublished:
                if context.closed:
                    late.error.add_note(
                        f"raised by the last flush: {late.writer} was not published"
                    )
                    raise late.error

    def _close_once(self) -> None:
        with self._slot.lock:
            if not self.context.closed:
                self.opens -= 1
                if self.opens:
                    return
            last = self._begin_closing()
        if not last and not self._is_waited_for():
            self._ended.wait()
        if last or not (self._ending or self.context.runtime.shutdown.ended):  # interrupted twice
            self._end()

    def _begin_closing(self) -> bool:
        """Marks the engine as closing, under the slot's lock; returns False if it is marked already."""
        if self.context.closed:
            return False
        # What needs memory comes before the first mark: without any, the engine is open as before.
        self._closer, self._began = threading.get_ident(), time.monotonic()
        self.context.closed = True
        self.context.usable = False
        self._slot.engine, self._slot.closing = None, self
        return True

    def _end(self) -> None:
        context, runtime = self.context, self.context.runtime
        interrupted: BaseException | None = None
        self._ending = True
        try:
            while not runtime.shutdown.ended:
                try:
                    context.drop()
                    with self._backing_up:  # a backup notices, and stops
                        runtime.close()
                except BaseException as error:  # a signal's handler may raise anything
                    if interrupted is not None or isinstance(
                        error, (PlanstepError, RecursionError)
                    ):
                        raise  # the second time: only `close` or the end of the process can finish it
                    interrupted = error
            context.groups.close(
                EngineClosed("the engine was closed before the batch had its turn")
            )
        finally:
            try:
                if self.at_end is not None:
                    self.at_end()
            finally:  # the path opens again, whatever that raised
                self._ending = False
                self._slot.closing = None
                self._ended.set()
            store_closed(context.path, runtime, time.monotonic() - self._began)
        if interrupted is not None:
            raise interrupted

    def _is_waited_for(self) -> bool:
        """Returns whether closing waits for this thread, which therefore must not wait for closing."""
        return self._closer == threading.get_ident() or self.context.runtime.owns_this_thread()

    def wait_closed(self) -> None:
        """Waits until the engine is closed; EngineClosed where closing waits for this thread."""
        if self._is_waited_for():
            raise EngineClosed(
                f"the engine of {self.context.path!r} is being closed, and waits for this callback of a "
                "future: open it again outside of callbacks"
            )
        self._ended.wait()

    def close_at_exit(self) -> None:
        """Closes the engine no matter how many opens are left, and logs records that could not be published."""
        if self.context.forked:
            return
        for late in self.context.lingering.flush():
            lost_at_exit(self.context.path, late.writer, late.error)
        if self._slot.lock.acquire(timeout=1.0):
            try:
                last = self._begin_closing()
            finally:
                self._slot.lock.release()
            if last:
                self._end()
