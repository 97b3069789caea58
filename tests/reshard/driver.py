"""Runs the job on small segments, and prints its next action, so that a test can kill it there.

usage: driver.py STORE HOSTS EVENTS MODE PLACEMENT

prints load, reshard, count, checkpoint, rewriting, … and done at the end
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import planstep
from planstep.reshard import events, job
from planstep.store import checkpointing, disk_store
from planstep.store.tables import table


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())  # whole lines, from any thread


def any_two(live: dict[str, int], sizes: dict[str, int], bytes_max: int) -> list[str]:
    """Chooses files to rewrite far beyond need: all that the job wrote, two at a time."""
    chosen = [name for name in sorted(live) if name in sizes and name.startswith("log-")]
    return chosen[:2] if len(chosen) > 1 else []


def announcing(word: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **more: Any) -> Any:
        say(word)
        return fn(*args, **more)

    return wrapped


def keep_up(db: planstep.Engine) -> None:
    """Does the service thread's work more often."""
    while not db.closed:
        for node in db._runtime.nodes:
            try:
                if node.host.store.checkpoint_due(time.monotonic()):
                    node.host.store.checkpoint()
            except planstep.PlanstepError:
                return  # closed meanwhile
        time.sleep(0.005)


def main() -> None:
    store, hosts, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    mode, placement = sys.argv[4], sys.argv[5]
    size = 1 << 18 if count else 1 << 22
    disk_store.SEGMENT_BYTES = size
    checkpointing.CHECKPOINT_BYTES = size // 4
    checkpointing.choose = any_two
    table.Table.checkpoint = announcing("checkpoint", table.Table.checkpoint)
    checkpointing.rewrite = announcing("rewriting", checkpointing.rewrite)
    with planstep.open(store, hosts=hosts, mode=mode, placement=placement) as db:
        threading.Thread(target=keep_up, args=(db,), daemon=True).start()
        job.run(
            db,
            events.demo() if count == 0 else events.generated(count, 5),
            workers=2,
            batch=100 if count else 1000,
            partitions=4,
            progress=lambda phase, done, total: say(phase),
        )
    say("done")


if __name__ == "__main__":
    main()
