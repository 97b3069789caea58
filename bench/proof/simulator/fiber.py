"""Runs calls that block, in the virtual time of a simulated world: one of them, or the world, at a time.

    world ── resume ─▶ the call, in a thread of its own ── pause ─▶ the world goes on
                          └ an end or an error ─▶ resume returns or raises

So real code that waits for a shared log runs unchanged, and the same seed gives the same order of events.

Next: acting.py.
"""

import threading
from collections.abc import Callable
from typing import Any

_here = threading.local()
_LOOK_MS = 0.3


class Killed(BaseException):
    """Unwinds a call whose process is gone. No code between may take it for an error."""


def current() -> "Fiber | None":
    """Returns the fiber that runs this code; None for the world."""
    fiber: Fiber | None = getattr(_here, "fiber", None)
    return fiber


class Fiber:
    """A call under way. Invariant: either the world's thread runs, or one fiber's."""

    def __init__(self, call: Callable[..., object], *args: Any) -> None:
        self.done = self.killed = False
        self._call, self._args = call, args
        self._error: BaseException | None = None
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def resume(self) -> None:
        """Runs the call until it pauses or ends; raises its error. Does nothing once it has ended."""
        if self.done:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._turn.release()
        self._back.acquire()
        if self.done:
            self._thread.join()
            error, self._error = self._error, None
            if error is not None:
                raise error

    def kill(self) -> None:
        """Ends the call where it pauses."""
        self.killed = True
        if self._thread is None:
            self.done = True
        self.resume()

    def pause(self) -> None:
        """Lets the world go on; the fiber's own thread calls this. Killed."""
        if not self.killed:
            self._back.release()
            self._turn.acquire()
        if self.killed:
            raise Killed

    def _run(self) -> None:
        _here.fiber = self
        try:
            self._call(*self._args)
        except Killed:
            pass
        except BaseException as error:
            if not self.killed:
                self._error = error
        self.done = True
        self._back.release()


class FiberLock:
    """A lock between fibers, which wait for it in virtual time (threading.Lock)."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        self._wait = wait
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        waited = 0.0
        while self._held:
            if not blocking or 0 <= timeout * 1000 <= waited:
                return False
            self._wait(_LOOK_MS)
            waited += _LOOK_MS
        self._held = True
        return True

    def release(self) -> None:
        assert self._held
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
