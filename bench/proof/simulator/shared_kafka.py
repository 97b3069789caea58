"""Simulates an engine in mode "kafka" on machines that share a log; its clients go to the machine that led last.

    client ─▶ line ─▶ the leader, or a machine that has led before ─▶ inbox ─▶ turn

Clients are processes of their own: they outlive an engine, and wait while none is up.

Next: ../worlds/replicated/kafka.py.
"""

import random
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from ....errors import IoError, StoreClosed
from ....host.inputs import Input, Released
from ....shared.settings import Replicate
from .acting import UP, Machine
from .bucket import Ways
from .client_world import NONE, Faults
from .clients import Client, Process
from .fate import Fate, Fates
from .kafka_world import KafkaWorld

_WAIT_MS = 5.0
_PATIENCE_MS = 10_000.0
"""How long faults may keep all machines from opening the store."""


class SharedKafkaWorld(Fate, KafkaWorld):
    """A world of one host, which is that of whichever machine acts; a client's event acts at the leader."""

    def __init__(
        self, seed: int, folder: Path, machines: int, log: Replicate, **drawn: Any
    ) -> None:
        self._route = random.Random(f"{seed}/route")
        self.rare = 0.1
        """How often a request goes to another machine than the one that led last."""
        self.begin_engines(seed, folder, machines, log)
        KafkaWorld.__init__(self, seed, 1, faults=NONE, **drawn)
        self.divide()
        self.begin_fate(seed)
        self.kept_up = True

    def begin_ticks(self) -> None:
        self.after(0.0, self._tick, 0)

    def strike(self, faults: Faults, ways: Ways, fates: Fates) -> None:
        """Turns faults on."""
        self.faults = faults
        self.lines.lose, self.lines.repeat, self.lines.slow = (
            faults.lose,
            faults.repeat,
            faults.slow,
        )
        self.bucket.ways, self.fates = ways, fates

    # clients -----------------------------------------------------------------------------------

    def after(self, delay_ms: float, call: Callable[..., None], *args: Any) -> None:
        owner = getattr(getattr(call, "func", call), "__self__", None)
        if isinstance(owner, (Client, Process)) or hasattr(owner, "feeding"):
            self.of_world(delay_ms, self._of_client, call, *args)
        else:
            super().after(delay_ms, call, *args)

    def _of_client(self, call: Callable[..., None], *args: Any) -> None:
        """Runs a client's event once an engine is up."""
        if self.leading is None:
            self.of_world(_WAIT_MS, self._of_client, call, *args)
            return
        with self.at(self.leading):
            call(*args)

    def request(self, client: Client, items: list[Any]) -> None:
        with self.at(None):
            super().request(client, items)

    def _arrive(
        self, number: int, item: Input, until: float = inf, life: int | None = None
    ) -> None:
        if self.acting is not None:
            super()._arrive(number, item, until, life)
            return
        up = [machine for machine in self.machines if machine.status == UP]
        machine = self.leading
        if up and (machine is None or self._route.random() < self.rare):
            machine = self._route.choice(up)
        if machine is not None:
            with self.at(machine):
                super()._arrive(number, item, until, life)

    def pass_ms(self, ms: float) -> None:
        """Lets time pass, and longer if no engine is up then; the leader acts afterwards."""
        super().pass_ms(ms)
        began = self.now
        while self.leading is None:
            if self.now > began + _PATIENCE_MS:
                self.spare()
            assert self.now < began + 10 * _PATIENCE_MS, "J8: no machine opens the store"
            super().pass_ms(_WAIT_MS)
        self.act(self.leading)

    # turns ---------------------------------------------------------------------------------------

    def give(self, item: Input) -> None:
        self._arrive(0, item)

    def _turn(self, number: int) -> None:
        if self.acting is not None and self.acting.status == UP:
            super()._turn(number)

    def _sync(self, number: int, life: int, batch: list[tuple[float, Input]]) -> None:
        if self.acting is not None and self.acting.status == UP:
            self.task(self._synced, number, life, batch)

    def _synced(self, number: int, life: int, batch: list[tuple[float, Input]]) -> None:
        try:
            super()._sync(number, life, batch)
        except StoreClosed as error:
            self.ended_with([], error)
        except IoError:  # at a turn behind which the host is lost
            self.lose_engine()

    def _make_durable(self, number: int, accepted: list[tuple[float, Input]]) -> None:
        try:
            super()._make_durable(number, accepted)
        except IoError:  # a full disk, in the reserve, too; a local write before the append
            self._redeliver(number, accepted, 10.0)

    def _fail(self, number: int, inputs: list[Input], now_ms: int) -> None:
        """Does nothing: the turn is not begun."""

    def _release(self, number: int, released: Released) -> None:
        hook = self.after_turn
        if self.acting is not self.leading:
            self.after_turn = lambda host: None  # a newer owner's state has been looked at
        try:
            super()._release(number, released)
        finally:
            self.after_turn = hook

    def crash(self, number: int) -> None:
        self.lose_engine()

    def ended(self, machine: Machine) -> None:
        """Clients go on elsewhere."""

    def finish_inbox(self) -> None:
        batch, self.inboxes[0] = self.inboxes[0], []
        try:
            self._make_durable(0, [item for item in batch if self.now <= item[0]])
        except StoreClosed as error:
            self.ended_with([], error)

    def heal(self) -> None:
        super().heal()
        self.spare()
