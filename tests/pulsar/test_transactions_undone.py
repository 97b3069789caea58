"""Tests that a coordinator whose turns are undone has exactly the memory and rows of before.

A turn that is not durable never happened: each random step is taken, undone, and at times taken again.
"""

import random
from typing import Any

import pytest
from transactions_kit import Coordinator, step


def memory(c: Coordinator) -> Any:
    """Returns copies of all that a coordinator has in memory only."""
    tablet, ends = c.tablet, c.tablet.ends
    return (
        dict(tablet._counts),
        dict(tablet._deciding),
        dict(tablet._waiters),
        dict(ends.ending),
        dict(ends.waiting),
        ends.on_way,
        tablet.log.buffered,
        tablet.log.batching,
        tablet.log.counters(),
    )


def world(c: Coordinator) -> Any:
    """Returns what the host undoes besides: rows, and what was sent or is to wake the tablet."""
    shell = c.shell
    return dict(c.keys.rows), [*shell.sent], [*shell.timers], shell.now_ms


def undo(c: Coordinator, mark: Any, saved: Any) -> None:
    c.tablet.undo(mark)
    rows, c.shell.sent, c.shell.timers, c.shell.now_ms = saved
    c.keys.rows = dict(rows)
    c.shell.sent, c.shell.timers = [*c.shell.sent], [*c.shell.timers]


@pytest.mark.parametrize("seed", range(30))
def test_undone_turns_leave_no_trace(seed: int) -> None:
    rng = random.Random(seed)
    c = Coordinator(
        log_batching=rng.random() < 0.7,
        participant_requests=rng.choice((1, 3, 1_000)),
        ended_kept=rng.choice((0, 3)),
        max_active_transactions=rng.choice((0, 4)),
    )
    for _ in range(60):
        marks = []
        before = memory(c)
        for _ in range(rng.randrange(1, 4)):  # several inputs of a turn are undone newest first
            marks.append((c.tablet.mark(), world(c), memory(c)))
            step(c, rng)
        if rng.random() < 0.5:
            while marks:
                mark, saved, then = marks.pop()
                undo(c, mark, saved)
                assert memory(c) == then
            assert memory(c) == before
            c.check()
    c.tablet.log.flush()
    c.check()


def test_scenario_9_a_time_out_that_fills_a_batch_leaves_what_the_batch_decides() -> None:
    """A commit waits in the log's buffer; the first time-out's record fills the batch, and so decides it."""
    c = Coordinator(log_batching=True, log_batch_records=2, log_batch_delay_ms=5_000.0)
    assert c.new(1_000) is None and c.new(1_000) == ("", (0, 1))
    assert c.end(1) is None
    end = c.requests
    c.wait(1_001)
    c.tablet.log.flush()
    assert c.answer(end) == ("", None) and c.live() == []
