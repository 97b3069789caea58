"""Describes users' actions as steps, which are data, and plays them on the real engine; each is done whole or not.

    step.plan(held) ─▶ held becomes the content that a user sees once the step is acknowledged
                    └▶ the call that brings it about, on the engine of a player

    Player: steps ─▶ begin: what will be shown ─▶ the call ─▶ acknowledged ─▶ held    each is passed to `say`, as
                                                                                      is an opened engine's content

Actions without a visible effect, a checkpoint or a rewriting, are steps too. `states` computes the content after
each step without an engine. So a play that a kill ended can be resumed: the store holds the state of the steps that
had returned, or of one more. Each step may be repeated, because nobody knows whether it had begun.

Next: scripts.py, the lists of steps.
"""

import copy
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ....api.engine import Engine
from ....errors import Conflict
from ....runtime.backup import restore
from ....store import checkpointing
from ..patching import exchange
from .contents import difference
from .engines import (
    WORKER,
    Content,
    abandon,
    content_of,
    end_what_was_open,
    positions,
    stores_of,
    wait_stable,
)
from .modes import CONSUMER
from .recorder import Event

ROWS = "rows"
Call = Callable[["Player"], object]


class Step(Protocol):
    def plan(self, held: Content) -> Call:
        """Changes `held` to the content after the step; returns the step's call."""


class CreateTopic(NamedTuple):
    name: str
    partitions: int

    def plan(self, held: Content) -> Call:
        held.setdefault(self.name, [[0, []] for _ in range(self.partitions)])
        held.setdefault(positions(self.name), [0] * self.partitions)
        name, partitions = self
        return lambda p: p.db.create_topic(name, partitions, format="utf8", exist_ok=True)


class CreateTable(NamedTuple):
    shards: int

    def plan(self, held: Content) -> Call:
        held.setdefault(ROWS, {})
        return lambda player: player.db.create_table(ROWS, self.shards, exist_ok=True)


class CreateConsumer(NamedTuple):
    """Creates an individual consumer; one that was not created is cumulative."""

    topic: str

    def plan(self, held: Content) -> Call:
        topic = self.topic
        return lambda p: p.db.topic(topic).create_consumer(CONSUMER, "individual", exist_ok=True)


class DropTopic(NamedTuple):
    name: str

    def plan(self, held: Content) -> Call:
        del held[self.name], held[positions(self.name)]
        return lambda player: player.db.drop_topic(self.name)


class Read(NamedTuple):
    """Asks for up to `many` of the next records."""

    topic: str
    partition: int
    many: int

    def values(self, held: Content) -> list[str]:
        start, values = held[self.topic][self.partition]
        begin = held[positions(self.topic)][self.partition] - start
        records: list[str] = values[begin:][: self.many]
        return records


class Transact(NamedTuple):
    """Carries out a transaction: reads; writes (topic, partition, value), the first `ahead` of them staged before
    the commit; adds to rows, puts, deletes.

    `ends`: "committed"; "rolled back"; "refused", by a condition that does not hold.
    """

    writes: tuple[tuple[str, int, str], ...] = ()
    read: Read | None = None
    ahead: int = 0
    adds: tuple[tuple[Any, int], ...] = ()
    puts: tuple[tuple[Any, Any], ...] = ()
    deletes: tuple[Any, ...] = ()
    ends: str = "committed"

    def plan(self, held: Content) -> Call:
        values = self.read.values(held) if self.read else []
        if self.ends == "committed":
            self._change(held, len(values))
        return lambda player: self._call(player, values)

    def _change(self, held: Content, count: int) -> None:
        if self.read is not None:
            held[positions(self.read.topic)][self.read.partition] += count
        for topic, partition, value in self.writes:
            held[topic][partition][1].append(value)
        for key, amount in self.adds:
            held[ROWS][str(key)] = held[ROWS].get(str(key), 0) + amount
        for key, value in self.puts:
            held[ROWS][str(key)] = value
        for key in self.deletes:
            held[ROWS].pop(str(key), None)

    def _call(self, player: "Player", expected: list[str]) -> None:
        refused = (Conflict,) if self.ends == "refused" else ()
        with suppress(*refused), player.db.transaction(worker=WORKER) as tx:
            if self.read is not None:
                wait_stable(player.db)
                topic, partition, many = self.read
                batch = tx.read(topic, CONSUMER, max_records=many, partition=partition)
                assert list(batch.values) == expected, f"read {batch.values}, and not {expected}"
            self._write(tx)
            if self.ends == "rolled back":
                tx.rollback()
            if self.ends == "refused":  # set directly: the interface refuses a consumed range
                tablet = player.db.context.topic(self.writes[0][0]).partitions[0]
                tx.contents.conditions.consume(tablet, CONSUMER, 0, 1)

    def _write(self, tx: Any) -> None:
        for n, (topic, partition, value) in enumerate(self.writes):
            tx.write(topic, value, partition=partition)
            if n < self.ahead:
                tx.flush()
        for key, amount in self.adds:
            tx.add(ROWS, key, amount)
        for key, value in self.puts:
            tx.put(ROWS, key, value)
        for key in self.deletes:
            tx.delete(ROWS, key)


class Trim(NamedTuple):
    topic: str
    partition: int
    to: int

    def plan(self, held: Content) -> Call:
        start, values = held[self.topic][self.partition]
        held[self.topic][self.partition] = [self.to, values[self.to - start :]]
        at = held[positions(self.topic)]
        at[self.partition] = max(at[self.partition], self.to)  # a trimmed record is not next
        return lambda player: player.db.topic(self.topic).trim(self.to, self.partition)


class TrimUnseen(NamedTuple):
    """Trims offsets at which readers are shown nothing, such as those of aborted records and markers."""

    topic: str
    partition: int
    to: int

    def plan(self, held: Content) -> Call:
        return self._call

    def _call(self, player: "Player") -> None:
        wait_stable(player.db)
        player.db.topic(self.topic).trim(self.to, self.partition)


class Seek(NamedTuple):
    topic: str
    partition: int
    to: int

    def plan(self, held: Content) -> Call:
        held[positions(self.topic)][self.partition] = self.to
        topic, partition, to = self
        return lambda player: player.db.topic(topic).seek(CONSUMER, to, partition=partition)


class Checkpoint(NamedTuple):
    """Checkpoints every host; with `rewrites`, from then on it copies far more than is worth it."""

    rewrites: bool = False

    def plan(self, held: Content) -> Call:
        return self._call

    def _call(self, player: "Player") -> None:
        if self.rewrites:
            exchange(checkpointing, "choose", _any_two)
        for store in stores_of(player.db):
            store.checkpoint()
        player.say(("kept", 0))


def _any_two(live: dict[str, int], sizes: dict[str, int], bytes_max: int) -> list[str]:
    return [name for name in sorted(live) if name in sizes and name.startswith("log-")][:2]


class Reopen(NamedTuple):
    """Opens the store again, after a close or after a kill."""

    killed: bool = False

    def plan(self, held: Content) -> Call:
        return self._call

    def _call(self, player: "Player") -> None:
        if self.killed:
            abandon(player.db)
        else:
            player.db.close()
        player.open()
        player.check()


class BackUp(NamedTuple):
    """Makes a backup next to the store; a backup that has its name is complete."""

    def plan(self, held: Content) -> Call:
        return lambda player: player.backup.exists() or player.db.backup(player.backup)


class Restore(NamedTuple):
    """Replaces the store by the backup, so the last record of each `undone` partition is gone."""

    undone: tuple[tuple[str, int], ...]

    def plan(self, held: Content) -> Call:
        for topic, partition in self.undone:
            held[topic][partition][1].pop()
        return self._call

    def _call(self, player: "Player") -> None:
        player.db.close()
        restore(player.backup, player.folder, force=True)
        player.open()


def plan_step(step: Step, held: Content) -> tuple[Content, Call]:
    """Returns (the content after the step, the step's call); `held` stays as it is."""
    after = copy.deepcopy(held)
    return after, step.plan(after)


def states(steps: Iterable[Step]) -> list[Content]:
    """Returns the content before the first step, and after each."""
    held: Content = {}
    return [held, *(held := plan_step(step, held)[0] for step in steps)]


class Player:
    """Plays steps on an engine, with its store in `folder` and the backup next to it. Invariant: `held` is the
    acknowledged content, which is what the engine shows.
    """

    def __init__(
        self,
        folder: Path,
        opened: Callable[[], Engine],
        say: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.folder, self.backup = folder, folder.with_name("backup")
        self.opened, self.say = opened, say
        self.held: Content = {}
        self.open()

    def open(self) -> None:
        self.db = self.opened()
        end_what_was_open(self.db)

    def play(self, steps: Iterable[Step]) -> None:
        """Carries out all steps, then abandons the engine as a killed process would."""
        self.check()
        for step in steps:
            self.carry_out(step)
        abandon(self.db)

    def carry_out(self, step: Step) -> None:
        after, call = plan_step(step, self.held)
        if after == self.held:
            call(self)
            return
        self.say(("begin", after))
        call(self)
        self.say(("acknowledged",))
        self.held = after

    def check(self) -> None:
        """Raises AssertionError if the engine shows anything but `held`."""
        content = content_of(self.db)
        assert content == self.held, f"it shows {difference(self.held, content)}"
        self.say(("opened", content))
