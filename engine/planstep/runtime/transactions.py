"""Commits transactions in mode "deterministic": queues each at host 0, runs or awaits its turn, returns the answer.

    commit ─▶ host 0's inbox ─▶ a turn, which this thread may run ─▶ its answer
    submit, send ─▶ the same, without waiting         send_ahead ─▶ payloads durable before their commit

Next: outcomes.py.
"""

from concurrent.futures import Future
from typing import TYPE_CHECKING

from ..errors import Aborted, Undetermined
from ..host.inputs import Commit as CommitInput
from ..host.inputs import Rollback, StageInput
from ..proto.ids import tx_text
from ..proto.messages import AheadSlices, Parts
from .group_commit import ReplySink, Waiter
from .outcome import Commit, undetermined
from .snapshot_reads import Snapshot
from .wait_primitives import CommitFuture

if TYPE_CHECKING:
    from .runtime import Runtime


class Transactions:
    """Sends a transaction's requests to the hosts; a mode may do it its own way."""

    def __init__(self, runtime: "Runtime") -> None:
        self._nodes = runtime.nodes
        self._turns = runtime.turns
        self._threads = runtime.threads
        self._replies = runtime.replies
        self._views = runtime.views

    def submit(self, tx: bytes, parts: Parts) -> "Future[Commit]":
        """Commits without waiting; the service thread runs the turn if no other thread does.

        Overloaded when there is no room for its bytes within 30 s.
        """
        future = CommitFuture()
        self.send(tx, parts, future, None)
        return future

    def send(
        self,
        tx: bytes,
        parts: Parts,
        ending: ReplySink,
        wait: float | None = 0.0,
        attended: bool = False,
    ) -> Waiter:
        """Commits as `submit` does, and hands the answer to `ending`; Overloaded after `wait` seconds.

        `attended`: the caller goes on to `ThreadPool.attend`, so nobody else is woken to run the turn.
        """
        waiter = self._turns.enqueue(CommitInput(tx, parts), ending, wait)
        if not attended:
            self._turns.poke(self._nodes[0])
        return waiter

    def snapshot(self, tx: bytes) -> Snapshot:
        """Returns the snapshot that a transaction reads in."""
        return self._views.snapshot()

    def commit(self, tx: bytes, parts: Parts, timeout: float | None = None) -> Commit:
        """Commits and waits. Raises Conflict, Aborted, Overloaded, or Undetermined after `timeout` seconds. Without
        a time-out it is Undetermined once another process that owns the store was silent for long.

        MemoryError: it was not sent.

        With one host `timeout` applies while waiting for another thread's turn, not to a turn of this thread.
        """
        try:
            waiter = self._turns.enqueue(CommitInput(tx, parts), None, timeout)
            self._threads.wait_for(waiter, timeout)
        except BaseException:  # interrupted, or it was not sent
            self._replies.unheard(tx)
            raise
        if waiter.answer is None:
            self._replies.unheard(tx)
            raise undetermined(tx, timeout, self._turns.doubt())
        return waiter.result()

    def send_ahead(self, tx: bytes, slices: AheadSlices) -> None:
        """Stages payloads at their partitions before the commit; returns when they are durable.

        `slices`: (number of the first, ((batch, records), …)) by partition's tablet. Aborted,
        NoSpace, Overloaded: none of it is there, and the transaction cannot go on.
        """
        waiter = self._turns.enqueue(StageInput(tx, slices), None, None)
        self._threads.wait_for(waiter, None)
        if waiter.answer is None:
            raise Aborted(f"transaction {tx_text(tx)} was not committed: {self._turns.doubt()}")
        self.without_doubt(waiter)

    def without_doubt(self, waiter: Waiter) -> None:
        """Raises a waiter's error; Aborted for Undetermined: work before a commit has no outcome to ask for."""
        try:
            waiter.result()
        except Undetermined as error:
            self._turns.check_open()
            raise Aborted(f"transaction {tx_text(waiter.tx)} was not committed: {error}") from error

    def rollback(self, tx: bytes) -> None:
        """Takes back what was staged, without waiting for it."""
        if not self._turns.closed:
            self._turns.put(self._nodes[0], Rollback(tx))

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        """Returns the last number that a producer gave a record of a partition."""
        return self._views.last_sequence(snap, tablet, producer)
