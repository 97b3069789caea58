"""Short plays on the real engine, a step at a time, that a kill may end anywhere and that can be taken up again.

    opened ─ step ─▶ D1 ─ step ─▶ D2 … ─▶ closed        D: a digest of all that a user can read

A step is one thing that a user asks for, whole or not at all: after a kill what is there is the digest of the
steps that had returned, or of one more. What changes nothing that a user sees, a checkpoint or a rewriting,
is a step as well. From there the play goes on, to the digest that it has without a kill.

Next: bench/proof/rows/killpoints.py.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....api import open_engine
from ....errors import Conflict, PlanstepError
from ....runtime.backup import restore
from ....store import checkpointing
from ..patching import exchange

_STABLE_SECONDS = 30.0
Step = Callable[["Stage"], None]


class Stage:
    """An engine while a play is on. `mode` and the rest are its settings."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = settings
        self.kafka = settings.get("mode") == "kafka"
        self.backup = folder.with_name("backup")
        self.db: Any = None
        self.open()

    def open(self) -> None:
        self.db = open_engine.open(self.folder, **self.settings)
        if self.kafka:  # what an earlier one left open is ended first
            self.db.context.runtime.hooks.ready("w")

    def transaction(self) -> Any:
        return self.db.transaction(worker="w" if self.kafka else None)

    def checkpoint(self) -> None:
        for node in self.db.context.runtime.nodes:
            node.host.store.checkpoint()

    def wait_stable(self) -> None:
        """Mode "kafka" answers a commit before all of it can be read, records and positions."""
        for info in self.db.context.runtime.names.topics.values() if self.kafka else ():
            for tablet in info.partitions:
                self.db.context.runtime.hooks.wait_stable(tablet)
                until = time.monotonic() + _STABLE_SECONDS
                while self.db.context.runtime.views.committed(tablet, "c")[1]:
                    if time.monotonic() > until:
                        raise TimeoutError("a position waits for its transaction's end")
                    time.sleep(0.001)

    def digest(self) -> str:
        runtime = self.db.context.runtime
        dump: list[Any] = []
        self.wait_stable()
        for name, info in sorted(runtime.names.topics.items()):
            topic = self.db.topic(name)
            for p in range(len(info.partitions)):
                batch = topic.read(0, partition=p, max_records=10_000)
                position = topic.position("c")[p]
                offsets = batch.offsets
                if self.kafka:  # markers have offsets too: what counts is which records are left
                    position, offsets = sum(at < position for _, at in offsets), []
                dump.append((name, p, position, offsets, [bytes(v) for v in batch.values]))
        for name in sorted(runtime.names.tables):
            with self.db.snapshot() as view:
                dump.append((name, list(view.scan(name))))
        return hashlib.sha256(repr(dump).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Play:
    name: str
    settings: dict[str, Any]
    steps: tuple[Step, ...]


def _create(stage: Stage) -> None:
    stage.db.create_topic("t", partitions=3, format="bytes", exist_ok=True)


def _table(stage: Stage) -> None:
    stage.db.create_table("rows", shards=3, exist_ok=True)


def _checkpoint(stage: Stage) -> None:
    stage.checkpoint()


def _reopen(stage: Stage) -> None:
    stage.db.close()
    stage.open()


def _write(*partitions: int, size: int = 100, times: int = 1, sent: bool = False) -> Step:
    """Records to these partitions in one transaction; `sent`: ahead of the commit."""

    def step(stage: Stage) -> None:
        with stage.transaction() as tx:
            for p in partitions:
                for i in range(times):
                    tx.write("t", b"%d.%d " % (p, i) + b"x" * size, partition=p)
            if sent:
                tx.flush()
                tx.write("t", b"behind", partition=partitions[0])

    return step


def _consume(begin: int) -> Step:
    """A record is read, counted, and something made of it."""

    def step(stage: Stage) -> None:
        with stage.transaction() as tx:
            if stage.kafka:
                stage.wait_stable()
                batch = tx.read("t", consumer="c", partition=0, max_records=1)
                at = batch.offsets[0][1]
            else:
                at = begin
                tx.consume("t", "c", 0, at, at + 1)
            tx.write("t", b"from %d" % begin, partition=1)
            if not stage.kafka:
                tx.add("rows", "n", 1)
                tx.put("rows", ("of", begin), begin)

    return step


def _conflict(stage: Stage) -> None:
    """Nothing of it counts. Its condition is given as it is: the face refuses what was consumed before."""
    try:
        with stage.transaction() as tx:
            tablet = stage.db.context.topic("t").partitions[0]
            tx.contents.conditions.consume(tablet, "c", 0, 1)
            tx.write("t", b"never", partition=2)
            tx.add("rows", "n", 1)
    except Conflict:
        pass


def _roll_back(stage: Stage) -> None:
    try:
        with stage.transaction() as tx:
            tx.write("t", b"never", partition=1)
            tx.write("t", b"never", partition=2)
            tx.flush()
            raise _Given
    except _Given:
        pass


class _Given(Exception):
    pass


def _delete(stage: Stage) -> None:
    with stage.transaction() as tx:
        tx.delete("rows", ("of", 0))
        tx.put("rows", "k", "v")


def _trim(to: int) -> Step:
    return lambda stage: _ignore(stage.db.topic("t").trim(to, partition=0))


def _seek(to: int) -> Step:
    return lambda stage: _ignore(stage.db.topic("t").seek("c", to, partition=0))


def _ignore(value: object) -> None:
    pass


def _drop(stage: Stage) -> None:
    try:
        stage.db.drop_topic("t")
    except PlanstepError:
        if "t" in stage.db.context.runtime.names.topics:
            raise


def _back_up(stage: Stage) -> None:
    """Beside the store; what has the name is complete."""
    if not stage.backup.exists():
        stage.db.backup(stage.backup)


def _restore(stage: Stage) -> None:
    """In the place of what was written since."""
    stage.db.close()
    restore(stage.backup, stage.folder, force=True)
    stage.open()


def _rewrite(stage: Stage) -> None:
    """Far more is copied than is worth it."""

    def any_two(live: dict[str, int], sizes: dict[str, int], bytes_max: int) -> list[str]:
        chosen = [name for name in sorted(live) if name in sizes and name.startswith("log-")]
        return chosen[:2]

    exchange(checkpointing, "choose", any_two)
    stage.checkpoint()


_ROLL = 40_000
"""Three of these fill a segment."""

PLAYS = (
    Play("one partition", {}, (_create, _write(0), _write(0), _write(0))),
    Play("several partitions", {}, (_create, _write(0, 1, 2), _write(0, 1, 2), _checkpoint)),
    Play(
        "consume, produce, table",
        {},
        (_create, _table, _write(0, times=3), _consume(0), _checkpoint, _consume(1), _conflict),
    ),
    Play(
        "three hosts",
        {"hosts": 3},
        (_create, _table, _write(0, 1, 2), _consume(0), _checkpoint, _write(0, 1, 2), _conflict),
    ),
    Play("sent ahead", {"hosts": 3}, (_create, _write(0, 1, sent=True), _roll_back, _write(1))),
    Play("rows", {}, (_create, _table, _write(0, times=2), _consume(0), _delete, _checkpoint)),
    Play("create and drop", {}, (_create, _write(0, 1), _drop, _create, _write(2), _checkpoint)),
    Play(
        "segments",
        {},
        (_create, *[_write(0, size=_ROLL)] * 7, _checkpoint, _write(1, size=_ROLL)),
    ),
    Play(
        "trim, seek, segments go",
        {},
        (
            _create,
            *[_write(0, size=_ROLL)] * 6,
            _trim(5),
            _checkpoint,
            _seek(5),
            _write(0),
            _checkpoint,
        ),
    ),
    Play(
        "rewriting",
        {},
        (
            _create,
            *[_write(0, 1, size=_ROLL // 2)] * 6,
            _checkpoint,
            _trim(3),
            _rewrite,
            _write(1),
        ),
    ),
    Play("closed and opened", {}, (_create, _write(0), _reopen, _write(0, 1), _reopen)),
    Play(
        "restored",
        {},
        (
            _create,
            _table,
            _write(0, times=2),
            _consume(0),
            _back_up,
            _write(1),
            _restore,
            _write(0),
        ),
    ),
    Play(
        "restored, two hosts",
        {"hosts": 2},
        (_create, _write(0, 1, 2), _back_up, _write(1), _restore, _write(0)),
    ),
    Play(
        "tablets apart",
        {"placement": "separate"},
        (_create, _table, _write(0, 1), _consume(0), _conflict, _checkpoint, _reopen),
    ),
    Play(
        "kafka",
        {"mode": "kafka"},
        (_create, _write(0, 1, 2), _consume(0), _roll_back, _checkpoint, _write(1, 2), _reopen),
    ),
    Play(
        "kafka, three hosts",
        {"mode": "kafka", "hosts": 3},
        (_create, _write(0, 1, 2), _consume(0), _roll_back, _checkpoint, _write(1, 2)),
    ),
)
