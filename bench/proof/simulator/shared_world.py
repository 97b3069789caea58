"""Simulates an engine in mode "deterministic" on machines that share a log.

Next: ../worlds/replicated/seed.py.
"""

from pathlib import Path
from typing import Any

from ....errors import IoError, StoreClosed
from ....host.inputs import Commit, Input, Released, Rollback, StageInput
from ....proto.ids import tx_id
from ....proxy.deterministic import Result
from ....shared.settings import Replicate
from .acting import UP, Machine
from .bucket import Ways
from .fate import Fate, Fates
from .faults import HEALED, Faults
from .world import World


class SharedWorld(Fate, World):
    """A world of one host, which is that of whichever machine acts."""

    mode = "deterministic"

    def __init__(
        self, seed: int, folder: Path, machines: int, settings: Replicate, **drawn: Any
    ) -> None:
        self.begin_engines(seed, folder, machines, settings)
        World.__init__(self, seed, 1, HEALED, **drawn)
        self.divide()
        self.begin_fate(seed)

    def strike(self, faults: Faults, ways: Ways, fates: Fates) -> None:
        """Turns faults on."""
        self._set_faults(faults)
        self.bucket.ways, self.fates = ways, fates

    def begin_ticks(self) -> None:
        self.after(self._random.uniform(0, self.tick_ms), self._tick, 0)

    def _begin(self) -> bytes:
        self.counter += 1
        tx = tx_id(self.stores[0].generation, self.counter)
        assert tx not in self.asked_at, f"the id {tx!r} is given out twice"
        self.asked_at[tx] = self.now
        return tx

    def give(self, item: Input) -> None:
        self._put(0, item)

    def deliver(self, tablet: int, message: Any) -> None:
        if not self.away[0]:
            super().deliver(tablet, message)

    def _turn(self, number: int) -> None:
        if self.acting is not None and self.acting.status == UP:
            self.task(super()._turn, number)

    def _durable(self, number: int, inputs: list[Input]) -> Released | None:
        try:
            return super()._durable(number, inputs)
        except StoreClosed as error:
            self.ended_with(inputs, error)
        except IoError:  # a full disk, in the reserve, too; a local write before the append
            self._answer_failed(number, [item for item in inputs if not self._is_answered(item)])
        return None

    def _is_answered(self, item: Input) -> bool:
        return isinstance(item, (Commit, StageInput)) and item.tx in self.results

    def _fail(self, number: int, inputs: list[Input], now_ms: int) -> None:
        """Does nothing: the turn is not begun."""

    def refuse(self, inputs: list[Any]) -> None:
        for item in inputs:
            if isinstance(item, (Commit, StageInput)) and item.tx not in self.results:
                self.ahead.pop(item.tx, None)
                self._answer(Result(item.tx, reason=(0, "failed")))

    def finish_inbox(self) -> None:
        while self.inboxes[0] or self.nodes[0].proxy.staging:
            self._forget_clients()  # no answer makes them commit what is withdrawn here
            inputs, self.inboxes[0] = self.inboxes[0], []
            inputs += map(Rollback, [*self.nodes[0].proxy.staging])
            released = self._durable(0, inputs)
            if released is not None:
                self._release(0, self.lives[0], released)
            elif self.acting is None or self.acting.status != UP:
                return

    def ended(self, machine: Machine) -> None:
        self._forget_clients()

    def _forget_clients(self) -> None:
        """Forgets what clients of the acting machine's engine are about to stage and to commit."""
        lives = {store.generation for store in self.stores}
        for tx in [tx for tx in self.ahead if int.from_bytes(tx[:4], "big") in lives]:
            del self.ahead[tx]

    def crash(self, number: int, away_ms: float | None = None) -> None:
        self.lose_engine()

    def heal(self) -> None:
        self._set_faults(HEALED)
        self.spare()

    def under_way(self) -> str:
        leading = self.leading
        assert leading is not None, "no engine is up"
        if leading.busy:
            return "a call"
        with self.at(leading):
            return super().under_way()
