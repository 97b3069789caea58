"""Runs the client core of mode "kafka" as a simulated process. Next: kafka_world.py."""

from functools import partial
from typing import Any

from ....proto.kafka.coordinators import coordinator_of, group_of
from ....proxy.kafka import client as core
from ....proxy.requests import TIMED_OUT
from . import clients
from .clients import Do, Steps


class Client(clients.Client):
    def _core(self) -> core.Client:
        world: Any = self.world
        return core.Client(
            self.address,
            world.settings,
            partial(coordinator_of, hosts=world.hosts),
            partial(group_of, hosts=world.hosts),
        )

    def open(self, name: str, who: str) -> Steps:
        answer = yield partial(core.Client.init, name=name)
        return None if answer.error else answer.value

    def close(self, handle: int) -> None:
        self.core.drop(handle)

    def begin(self, handle: int, tx: bytes) -> str:
        error: str = self.core.begin(handle, tx)
        return error

    def put(self, handle: int, tx: bytes, batches: dict[int, Any]) -> None:
        self.core.send(handle, tx, batches)

    def plain(self, batches: dict[int, Any]) -> Do:
        return partial(core.Client.plain, batches=batches)

    def dead(self, handle: int) -> bool:
        return self.core.dead(handle) is not None

    def end(self, handle: int, tx: bytes, commit: bool, offsets: Any = None) -> Steps:
        while True:
            if commit:
                answer = yield partial(
                    core.Client.commit, handle=handle, tx=tx, offsets=offsets or {}
                )
            else:
                answer = yield partial(core.Client.abort, handle=handle, tx=tx)
            if answer.error != TIMED_OUT or self.dead(handle):
                break
        if not answer.error:
            return "committed" if commit else "aborted", ""
        known = answer.error != TIMED_OUT and core.UNKNOWN_END not in answer.detail
        return "aborted" if known else "unknown", answer.error
