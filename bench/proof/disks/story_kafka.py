"""What users do in mode kafka: one worker's transactions over two topics, told as they happen.

    seed ─▶ create ─▶ transactions │ checkpoints │ closing, reopening │ kills ─▶ say(event)

A commit is answered before its markers are written, and what is decided becomes visible a moment later, also
behind a reopening. So who looks first lets the worker have one more transaction: that waits for the end of
the one before, or aborts it.

It leaves out trims and positions: offsets hold markers too, and how many is no promise.

Next: ../rows/powerloss.py.
"""

import copy
import time
from functools import partial
from typing import Any

from ....api.engine import Engine
from .engines import Shown
from .user_story import PARTITIONS, STEPS, Story

TOPICS = ("in", "out")
WAITS = 5.0
_WORKER = "w"


class KafkaStory(Story):
    """Invariant: `held` is what the engine shows, a moment later at the latest."""

    def play(self, steps: int = STEPS) -> None:
        """Ends with a kill."""
        self.db = self.opened()
        self.say(("opened", {}))
        self.create()
        plan = ["transaction"] * steps + ["checkpoint"] * 3 + ["close", "kill"]
        self.rng.shuffle(plan)
        for what in plan:
            getattr(self, what)()
        self.kill()

    def create(self) -> None:
        for topic in TOPICS:
            after = {**self.held, topic: [[] for _ in range(PARTITIONS)]}
            self.did(after, partial(self._create, topic))

    def _create(self, topic: str) -> None:
        self.db.create_topic(topic, PARTITIONS, format="utf8")

    def transaction(self) -> None:
        rng, after = self.rng, copy.deepcopy(self.held)
        written = [(topic, rng.randrange(PARTITIONS), self.value()) for topic in TOPICS]
        for topic, to, value in written:
            after[topic][to].append(value)

        def call() -> None:
            with self.db.transaction(worker=_WORKER) as tx:
                for topic, to, value in written:
                    tx.write(topic, value, partition=to)

        self.did(after, call)

    def reopen(self) -> None:
        self.db = self.opened()
        found = settled(self.db, lambda found: bool(found == self.held))
        assert found == self.held, "reopened, it shows something else"
        self.say(("opened", found))


def shown_kafka(db: Engine) -> Shown:
    """Of each topic of the story's, the committed values of each partition."""
    found: Shown = {}
    for topic in sorted(set(db.topics()) & set(TOPICS)):
        batches = [
            db.topic(topic).read(partition=to, max_records=10_000) for to in range(PARTITIONS)
        ]
        found[topic] = [[str(value) for value in batch.values] for batch in batches]
    return found


def settled(db: Engine, is_right: Any) -> Shown:
    """What it shows when nothing of the worker's is under way any more."""
    db.create_topic("end", 1, format="utf8", exist_ok=True)
    with db.transaction(worker=_WORKER) as tx:
        tx.write("end", "x")
    deadline = time.monotonic() + WAITS
    while True:
        found = shown_kafka(db)
        if is_right(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.005)
