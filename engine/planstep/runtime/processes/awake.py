"""Waits for sockets without sleeping, for a moment, as long as that pays.

    nothing has come ─▶ looks again and again, 0.3 ms ─ it came ─▶ does so the next time, too
                                                       └ it did not ─▶ sleeps, and so the next 16, 32 … 64 times

A commit over a link has two such waits: the sender's for its answer, the owner's for the next input. A processor
that slept needs 30 us to be woken, and then runs the same code at half its speed for a while, as its caches and its
predictions are another process's. Awake, the two cost a commit some 80 us, asleep 250 to 310.

On a busy machine, whoever looks may keep from running whom it waits for. That is a wait that did not pay: one in
64 is tried there. With one processor none is.

Next: link.py.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Ready = TypeVar("Ready", bound=list[Any])

_AWAKE_SECONDS = 0.0003
_SLEEPS, _SLEEPS_MOST = 16, 64


class Awake:
    """One thread's waits of one kind."""

    def __init__(self) -> None:
        self._sleeps = 0
        """How many of the next waits sleep."""
        self._next = _SLEEPS
        self._never = _processors() < 2

    def wait(self, look: Callable[[float | None], Ready], seconds: float | None) -> Ready:
        """Returns what `look(timeout in seconds)` finds within `seconds`; None for without an end."""
        if self._never or (seconds is not None and seconds <= _AWAKE_SECONDS):
            return look(seconds)
        if self._sleeps:
            self._sleeps -= 1
            return look(seconds)
        until = time.perf_counter() + _AWAKE_SECONDS
        while not (ready := look(0)):
            if time.perf_counter() >= until:
                break
        else:
            self._next = _SLEEPS
            return ready
        self._sleeps, self._next = self._next, min(2 * self._next, _SLEEPS_MOST)
        return look(seconds)


@contextmanager
def interrupting_nobody() -> Iterator[None]:
    """Within, this thread interrupts no other when it is woken, where the system knows that (Linux). Nor do threads
    that it begins there.

    An owner that answers several processes would be interrupted by each of them otherwise. With four, of 16 commits
    in flight each, a commit took a process 76 us of a processor, and takes 65.
    """
    changed = _policy("SCHED_OTHER", "SCHED_BATCH")
    try:
        yield
    finally:
        if changed:
            _policy("SCHED_BATCH", "SCHED_OTHER")


def _policy(before: str, after: str) -> bool:
    """Gives this thread another policy if it has the first; returns whether it did."""
    try:
        if os.sched_getscheduler(0) != getattr(os, before):
            return False
        os.sched_setscheduler(0, getattr(os, after), os.sched_param(0))
    except (AttributeError, OSError):  # not on macOS; forbidden
        return False
    return True


def _processors() -> int:
    """Returns how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
