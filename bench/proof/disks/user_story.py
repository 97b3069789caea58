"""What users do, through the whole face: transactions over topics, a table and positions, told as they happen.

    seed ─▶ create ─▶ transactions │ trims │ checkpoints │ closing, reopening │ kills ─▶ say(event)

Each transaction writes what only it writes, so a store shows at a glance which of them it holds: `held` is
what it must show then. Told are `begin` with what it will show, `acknowledged`, `opened`, `kept`.

Next: story_kafka.py, the same of mode kafka; strace.py, in a process of its own, with LMDB's own writes.
"""

import copy
import random
from collections.abc import Callable
from typing import Any

from ....api.engine import Engine
from .engines import CONSUMER, Shown, abandon, shown, stores_of
from .recorder import Event

PARTITIONS = 2
STEPS = 24


class Story:
    """Invariant: `held` is what the engine shows."""

    def __init__(
        self, seed: int, opened: Callable[[], Engine], say: Callable[[Event], None]
    ) -> None:
        self.rng = random.Random(f"story {seed}")
        self.opened, self.say = opened, say
        self.held: Shown = {}
        self.number = 0

    def play(self, steps: int = STEPS) -> None:
        """Ends with a kill, or with closing."""
        self.db = self.opened()
        self.say(("opened", shown(self.db)))
        self.create()
        plan = ["transaction"] * steps + ["trim"] * 3 + ["checkpoint"] * 3 + ["close", "kill"]
        self.rng.shuffle(plan)
        for what in plan:
            getattr(self, what)()
        if self.rng.random() < 0.5:
            self.db.close()
        else:
            abandon(self.db)

    def did(self, after: Shown, call: Callable[[], Any]) -> None:
        self.say(("begin", copy.deepcopy(after)))
        call()
        self.say(("acknowledged",))
        self.held = after

    def create(self) -> None:
        held = self.held
        empty = [[0, []] for _ in range(PARTITIONS)]
        zero = [0] * PARTITIONS
        after = {**held, "in": copy.deepcopy(empty), "positions": zero}
        self.did(after, lambda: self.db.create_topic("in", PARTITIONS, format="utf8"))
        after = {**after, "out": copy.deepcopy(empty)}
        self.did(after, lambda: self.db.create_topic("out", PARTITIONS, format="utf8"))
        after = {**after, "rows": {}}
        self.did(after, lambda: self.db.create_table("rows", 2))

    def value(self) -> str:
        self.number += 1
        return f"{self.number}:" + "x" * self.rng.choice([0, 3, 200, 200, 1500, 6000])

    def transaction(self) -> None:
        """Reads on, writes what it read elsewhere, counts it; and new records and rows beside."""
        rng, after = self.rng, copy.deepcopy(self.held)
        partition = rng.randrange(PARTITIONS)
        ahead = rng.random() < 0.2
        many = rng.randrange(4)
        written: list[tuple[str, int, str]] = []
        for _ in range(rng.randrange(1, 3)):
            written.append(("in", rng.randrange(PARTITIONS), self.value()))
        start, values = after["in"][partition]
        begin = after["positions"][partition]
        taken = values[begin - start :][:many]
        after["positions"][partition] = begin + len(taken)
        written += [("out", rng.randrange(PARTITIONS), value) for value in taken]
        for topic, to, value in written:
            after[topic][to][1].append(value)
        keys = [f"k{rng.randrange(8)}" for _ in range(rng.randrange(1, 3))]
        gone = rng.choice(sorted(after["rows"])) if rng.random() < 0.2 and after["rows"] else None
        for key in keys:
            after["rows"][key] = self.number
        if gone is not None:
            after["rows"].pop(gone, None)

        def call() -> None:
            with self.db.transaction() as tx:
                if many:
                    batch = tx.read("in", CONSUMER, max_records=many, partition=partition)
                    assert list(batch.values) == taken, "a read returned something else"
                for topic, to, value in written:
                    tx.write(topic, value, partition=to)
                    if ahead:
                        tx.flush()
                for key in keys:
                    tx.put("rows", key, self.number)
                if gone is not None:
                    tx.delete("rows", gone)

        self.did(after, call)

    def trim(self) -> None:
        after = copy.deepcopy(self.held)
        topic, partition = self.rng.choice(["in", "out"]), self.rng.randrange(PARTITIONS)
        start, values = after[topic][partition]
        end = after["positions"][partition] if topic == "in" else start + len(values)
        if end <= start:
            return
        offset = self.rng.randint(start + 1, end)
        after[topic][partition] = [offset, values[offset - start :]]
        self.did(after, lambda: self.db.topic(topic).trim(offset, partition))

    def checkpoint(self) -> None:
        for store in stores_of(self.db):
            store.checkpoint()
        self.say(("kept", 0))

    def close(self) -> None:
        self.db.close()
        self.reopen()

    def kill(self) -> None:
        abandon(self.db)
        self.reopen()

    def reopen(self) -> None:
        self.db = self.opened()
        found = shown(self.db)
        assert found == self.held, "reopened, it shows something else"
        self.say(("opened", found))
