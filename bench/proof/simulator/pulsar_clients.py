"""Runs the client core of mode "pulsar" as a simulated process. Next: pulsar_world.py."""

from functools import partial
from typing import Any

from ....proto.pulsar.messages import NO_TXN
from ....proxy.pulsar import client as core
from ....proxy.pulsar.states import State
from . import clients
from .clients import Do, Steps

_TRIES = 20
Acks = list[tuple[int, str, tuple[tuple[int, int], ...], int | None]]
"""(tablet, subscription, ranges, or a position), …."""


class Client(clients.Client):
    """A handle is a producer's name: of one incarnation, since a partition drops numbers that a name has used."""

    begun: bytes | None = None
    """The transaction that it began last, until it ends."""

    def _core(self) -> core.Client:
        world: Any = self.world
        return core.Client(self.address, world.settings, world.coordinators)

    def open(self, name: str, who: str) -> Steps:
        return who
        yield

    def close(self, handle: str) -> None:
        pass

    def begin(self, handle: str, tx: bytes) -> str:
        self.core.begin(tx)
        self.begun = tx
        return ""

    def crash(self) -> None:
        """Ends the process; it may have asked for a transaction whose id it never learns."""
        if self.alive and self.begun is not None and self.core.id(self.begun) == NO_TXN:
            self.world.faulted["client dead before the answer to NewTxn"] += 1
        super().crash()

    def put(self, handle: str, tx: bytes, batches: dict[int, Any]) -> None:
        self.core.send(tx, handle, batches)

    def plain(self, batches: dict[int, Any]) -> Do:
        return partial(core.Client.plain, producer=f"plain{self.number}", batches=batches)

    def dead(self, handle: str) -> bool:
        return False

    def end(self, handle: str, tx: bytes, commit: bool, offsets: Acks | None = None) -> Steps:
        """Acknowledges `offsets` as well, before it commits; forgets the transaction."""
        for tablet, subscription, ranges, position in offsets or ():
            self.core.acknowledge(tx, tablet, subscription, ranges, position)
        do = core.Client.commit if commit else core.Client.abort
        for _ in range(_TRIES):
            answer = yield partial(do, tx=tx)
            unknown = answer.error in (core.UNDETERMINED, core.TIMED_OUT)
            if not unknown or self.core.state(tx) not in (State.COMMITTING, State.ABORTING):
                break
        self.core.drop(tx)
        self.begun = None
        if not answer.error:
            return "committed" if commit else "aborted", ""
        return "unknown" if commit and unknown else "aborted", answer.error
