"""Tests that an engine's end wakes all waiters; if an interrupt prevents that, they notice the end by
themselves. A delay of centuries delays nothing else."""

from queue import SimpleQueue

import pytest
from kit import background, until

from planstep.runtime.timers import Delays
from planstep.runtime.wait_primitives import Latch


class Interrupted(SimpleQueue[None]):
    """A queue whose `put` is interrupted before it takes the entry."""

    def put(self, item: None, block: bool = True, timeout: float | None = None) -> None:
        raise KeyboardInterrupt


def test_all_that_wait_are_woken_and_nobody_waits_after() -> None:
    latch = Latch()
    assert not latch.wait(0) and not latch.is_set()
    with background(*[latch.wait] * 3) as waiting:
        latch.set()
    assert [waiter.result() for waiter in waiting] == [True] * 3
    assert latch.wait() and latch.wait(0) and latch.is_set()


def test_who_cannot_be_woken_looks() -> None:
    latch = Latch()
    latch._queue = Interrupted()
    with background(latch.wait), pytest.raises(KeyboardInterrupt):
        latch.set()
    assert latch.is_set() and latch.wait()


def test_a_delay_of_centuries_keeps_no_other_waiting() -> None:
    delays, made = Delays(), Latch()
    delays.after(2.0**53, made.set)
    until(lambda: delays._changed._waiters)  # type: ignore[attr-defined]
    delays.after(1, made.set)
    assert made.wait(20)
    delays.close()
