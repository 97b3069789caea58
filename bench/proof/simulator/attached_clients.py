"""Calls the runtimes of processes that share a store, as the face does, and keeps what their clients are told.

    commit ─▶ here: the process whose code runs ─▶ waits in a fiber of it, or is called back ─▶ results
    commit_ahead ─▶ a piece staged ─▶ the next … ─▶ commit

A client dies with its process: what it is told then does not count.

Next: attached_world.py.
"""

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ....errors import Dropped, PlanstepError, Undetermined
from ....host.inputs import StageInput
from ....proto.batch import encode_batch
from ....proto.ids import COORDINATOR_ID, tablet_prefix
from ....proto.messages import PartitionPart
from ....proto.reasons import TabletDropped, kept_as
from ....proxy.deterministic import Result
from ....runtime.outcome import Commit
from ....store.layers import Changes
from ....tablets.participant import DROPPED
from .fiber import current
from .one_folder import Folder
from .process import CLOSING, GONE, Process, ProcessFiber
from .timeline import Timeline

_OUTCOME = tablet_prefix(COORDINATOR_ID) + b"o"
_SHOWN = 20


class Client:
    """Takes a commit's answer (group_commit.ReplySink)."""

    def __init__(self, told: Callable[[Any], None]) -> None:
        self._told = told

    def set_result(self, result: Commit) -> None:
        self._told(result)

    def set_exception(self, error: BaseException) -> None:
        self._told(error)


class Clients(Timeline):
    """The clients of all processes. Invariant: a transaction is answered once, while its process lives.

    `answered` is called with every answer, as in world.py.
    """

    folder: Folder

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.violations: list[str] = []
        self.results: dict[bytes, Result] = {}
        self.asked_at: dict[bytes, float] = {}
        self.told_at: dict[bytes, float] = {}
        self.process_of: dict[bytes, Process] = {}
        self.given_up: dict[bytes, None] = {}
        self.ahead: dict[bytes, tuple[list[Any], dict[int, Any]]] = {}
        self._staged_at: dict[
            bytes, tuple[int, int]
        ] = {}  # the owner's generation, the process's link
        self._staged_lost: dict[bytes, None] = {}
        self.answered: Callable[[Result], None] = lambda result: None
        self._calls = random.Random(f"{seed}/calls")

    def wrong(self, text: str) -> None:
        if len(self.violations) < 20:
            self.violations.append(f"{text} (at {self.now:.1f} ms)")

    def here(self) -> Process | None:
        """Returns the process whose code runs now, None for the world's."""
        fiber = current()
        return fiber.process if isinstance(fiber, ProcessFiber) else None

    def _begin(self) -> tuple[Process, bytes]:
        process = self.here()
        assert process is not None, "a client calls from its process"
        tx = process.runtime.new_tx()
        if tx in self.asked_at:
            self.wrong(f"B2: the id {tx.hex()} is given out twice")
        self.asked_at[tx] = self.now
        self.process_of[tx] = process
        return process, tx

    def commit(self, parts: dict[int, Any]) -> bytes:
        """Commits a transaction of the process whose code runs; its result comes to `results`."""
        process, tx = self._begin()
        parts = {tablet: _with_batches(part) for tablet, part in parts.items()}
        if self._calls.random() < 0.5:
            process.spawn(self._wait, process, tx, parts)
        else:
            self._send(process, tx, parts)
        return tx

    def _wait(self, process: Process, tx: bytes, parts: dict[int, Any]) -> None:
        """Commits, and waits: this fiber may run the owner's turns, or receive for the others."""
        try:
            self._told(tx, process.runtime.transactions.commit(tx, parts))
        except PlanstepError as error:
            self._told(tx, error)

    def _send(self, process: Process, tx: bytes, parts: dict[int, Any]) -> None:
        try:
            sink = Client(partial(self._told, tx))
            process.runtime.transactions.send(tx, parts, sink)
        except PlanstepError as error:
            self._told(tx, error)

    def commit_ahead(self, ahead: list[Any], parts: dict[int, Any]) -> bytes:
        """Stages the pieces of `ahead` one by one, then commits; rolls back if a piece is not staged."""
        process, tx = self._begin()
        ahead = [{t: (n, _batches(slices)) for t, (n, slices) in one.items()} for one in ahead]
        self._staged_at[tx] = self.folder.store.generation, process.links
        self.ahead[tx] = ahead[1:], {t: _with_batches(part) for t, part in parts.items()}
        self._stage(process, tx, ahead[0])
        return tx

    def _stage(self, process: Process, tx: bytes, piece: Any) -> None:
        turns = process.runtime.turns
        try:
            turns.enqueue(StageInput(tx, piece), Client(partial(self._staged, tx)), 0.0)
            turns.poke(process.runtime.nodes[0])
        except PlanstepError as error:
            self._staged(tx, error)

    def _staged(self, tx: bytes, answer: Any) -> None:
        process = self.process_of[tx]
        more, parts = self.ahead.pop(tx, ([], None))
        if process.status == GONE or parts is None:
            return
        if isinstance(answer, BaseException):
            self._told(tx, answer)
            process.runtime.transactions.rollback(tx)
        elif more:
            self.ahead[tx] = more[1:], parts
            self._stage(process, tx, more[0])
        else:
            pause_ms = self._calls.uniform(0, self._calls.choice((0, 0, 50)))
            self.after(pause_ms, self._commit_staged, process, tx, parts)

    def _commit_staged(self, process: Process, tx: bytes, parts: dict[int, Any]) -> None:
        if process.status != GONE:
            self._send(process, tx, parts)

    def rollback(self, tx: bytes) -> None:
        """Gives up a transaction whose staging is under way."""
        if self.ahead.pop(tx, None) is not None:
            self.given_up[tx] = None
            self.process_of[tx].runtime.transactions.rollback(tx)

    def _told(self, tx: bytes, answer: Any) -> None:
        process = self.process_of[tx]
        if process.status == GONE:
            return
        if tx in self.results:
            self.wrong(f"B12: {tx.hex()} is answered twice")
        match answer:
            case Commit():
                result = Result(tx, answer.place.step, answer.place.n or 0)
                result.details = answer.details
            case Undetermined():
                if process.status != CLOSING:
                    self.wrong(f"B37: {tx.hex()} of a process that goes on has no end: {answer}")
                self.given_up[tx] = None
                return
            case Dropped():
                result = Result(tx, reason=kept_as(0, TabletDropped()))
            case _:
                result = Result(tx, reason=(0, "failed"))
        self.results[tx] = result
        self.told_at[tx] = self.now
        self.answered(result)

    def unanswered(self) -> list[bytes]:
        """Returns transactions whose client waits, in a process that goes on."""
        known = {**self.results, **self.given_up}
        return [
            tx
            for tx in self.asked_at
            if tx not in known and self.process_of[tx].status not in (GONE, CLOSING)
        ]

    def note_lost(self, generation: int, changes: Changes) -> None:
        """Notes which transactions a turn decides whose data, sent ahead, went with an owner or a link."""
        for tx, staged_at in self._staged_at.items():
            now = generation, self.process_of[tx].links
            if staged_at != now and _OUTCOME + tx in changes:
                self._staged_lost[tx] = None

    def may_abort(self, tx: bytes) -> bool:
        """Returns whether what a transaction had sent ahead was gone by its decision, with an owner or a link."""
        return tx in self._staged_lost

    def forgets(self, tablet: int, begin: int) -> bool:
        """Returns whether the log begins at an offset or later. A commit that had records from there on, and was
        handed in again, is answered without them."""
        row = super().read(tablet, b"m")
        return super().read(tablet, DROPPED) is not None or row is None or row[2] >= max(begin, 1)


def _batches(slices: Iterable[tuple[bytes, int]]) -> tuple[tuple[bytes, int], ...]:
    """Makes each payload of a workload a batch, as frames carry no other; Disk.read_payload takes it out again."""
    return tuple((encode_batch([data] * count), count) for data, count in slices)


def _with_batches(part: Any) -> Any:
    is_published = isinstance(part, PartitionPart) and part.slices
    return part._replace(slices=_batches(part.slices)) if is_published else part
