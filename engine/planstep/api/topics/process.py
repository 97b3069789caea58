"""Implements `process`: worker threads run a function over all batches of a topic, exactly once.

    workers ─ read ─▶ fn(tx, batch) ─ submit ─▶ …         Conflict: the batch is read again
                          └ raises ─▶ rolled back; process_policy.py decides what to do next

When fn fails on a batch it runs again for half of it; its effects outside of the store happen again, too.

Next: process_policy.py.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from inspect import signature
from math import inf
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from ...runtime.outcome import Commit
from ...runtime.wait_primitives import wait_for
from ..arguments import whole
from ..columns.batch import ReadBatch
from ..retry import refuse_unrun
from ..transaction.transaction import Transaction
from .leased_transaction import Leased
from .process_policy import (
    Misused,
    PollingReader,
    ProcessOptions,
    ProcessPolicy,
    Progress,
    refuse_rolled_back,
)

if TYPE_CHECKING:
    from ..context import Context

_STOP_SECONDS = 0.1
"""The caller's `stop` event is checked this often: it cannot wake this thread."""
_REPORT_SECONDS = 1.0
_Fn = Callable[[Transaction, ReadBatch], Any]


class _Worker(threading.Thread):
    def __init__(
        self, policy: ProcessPolicy, fn: _Fn, reader: PollingReader, ended: "SimpleQueue[None]"
    ) -> None:
        super().__init__(name=reader.name, daemon=True)
        self._policy = policy
        self._fn = fn
        self._reader = reader
        self._ended = ended
        self._pending: deque[tuple[Future[Commit], ReadBatch, bool]] = deque()

    def run(self) -> None:
        policy, reader = self._policy, self._reader
        try:
            while not policy.stopping:
                leased = reader.read() if self._pending else reader.wait()
                if leased is not None:
                    self._run_batch(leased)
                elif not self._pending:
                    break
                while self._pending and (
                    leased is None
                    or len(self._pending) >= policy.options.in_flight
                    or self._pending[0][0].done()
                ):
                    self._await_oldest()
            while self._pending:
                self._await_oldest()
        except BaseException as error:
            policy.stop(error)
        finally:
            reader.close()
            self._ended.put(None)

    def _run_batch(self, leased: Leased) -> None:
        tx, batch = leased
        poison = self._policy.verdict(batch)
        try:
            if poison is None:
                value = self._fn(tx, batch)
                try:
                    refuse_unrun(value, "process")
                except TypeError as error:
                    raise Misused from error
                refuse_rolled_back(tx)
            else:
                self._policy.move_poison(tx, batch, poison)
            if tx.life.state == "open":
                if self._policy.options.in_flight > 1:
                    tx.submit()
                else:
                    tx.commit()  # it would wait anyway, so it may run the turn itself
                    self._policy.committed(batch)
                    return
            if tx.life.future is not None:
                self._pending.append((tx.life.future, batch, poison is not None))
        except BaseException as error:
            if tx.life.state == "open":
                self._policy.hold(tx, batch, error, poison is not None)
                tx.rollback()
            self._pause(self._policy.failed(batch, error, poison is not None))

    def _await_oldest(self) -> None:
        future, batch, of_poison = self._pending.popleft()
        try:
            future.result()
        except Exception as error:
            self._pause(self._policy.failed(batch, error, of_poison))
        else:
            self._policy.committed(batch)

    def _pause(self, seconds: float) -> None:
        if seconds:
            self._policy.ended.wait(seconds)


def process(
    context: "Context",
    fn: _Fn,
    topic: str,
    consumer: str,
    options: ProcessOptions,
) -> Progress:
    """See Engine.process."""
    check_workers(fn, options.workers)
    policy = ProcessPolicy(context, topic, consumer, options)
    ended: SimpleQueue[None] = SimpleQueue()  # an item for each worker
    threads: list[_Worker] = []
    try:
        for number in range(options.workers):
            threads.append(_Worker(policy, fn, policy.reader(number), ended))
        for thread in threads:
            thread.start()
        duties = CallerDuties(policy)
        running = len(threads)
        # Counted, since a thread that has put its item may be alive for a moment; a dead one counts anyway.
        while running and any(thread.is_alive() for thread in threads):
            running -= wait_for(ended, duties.seconds)
            if duties.perform():
                report(options.progress, policy.progress(), False)
    finally:
        # Also for KeyboardInterrupt: what runs is finished, then all of it is raised.
        policy.end()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        for reader in policy.readers:
            reader.close()
    if policy.error is not None:
        raise policy.error
    done = policy.progress()
    report(options.progress, done, True)
    return done


def check_workers(fn: Any, workers: Any) -> None:
    whole("workers", workers, 1)
    if not callable(fn):
        raise TypeError("process takes a function of (tx, batch)")
    try:
        signature(fn).bind(None, None)
    except ValueError:
        pass  # built in: it does not say
    except TypeError as error:
        raise TypeError(f"process takes a function of (tx, batch): {error}") from None


class CallerDuties:
    """The duties of the caller's thread in `process`: renews leases, checks `stop`, reports progress."""

    def __init__(self, policy: ProcessPolicy) -> None:
        self._policy = policy
        self._stop = stop = policy.options.stop
        self._progress = progress = policy.options.progress
        self._reported = self._renewed = time.monotonic()
        self._renew_seconds = policy.readers[0].group.lease_seconds / 4
        self.seconds = min(
            self._renew_seconds,
            _REPORT_SECONDS if progress else inf,
            _STOP_SECONDS if stop is not None else inf,
        )
        """About how often `perform` must be called."""

    def perform(self) -> bool:
        """Renews leases and checks `stop` where due; returns True when it is time to report."""
        now = time.monotonic()
        if self._stop is not None and self._stop.is_set():
            self._policy.end()
        if now - self._renewed >= self._renew_seconds:
            self._renewed = now
            for reader in self._policy.readers:  # one that has closed has nothing to renew
                reader.group.renew(reader.member)
        due = bool(self._progress) and now - self._reported >= _REPORT_SECONDS
        if due:
            self._reported = now
        return due


def report(progress: bool | Callable[[Progress], Any], done: Progress, last: bool) -> None:
    if callable(progress):
        progress(done)
    elif progress:
        rate = done.records / done.seconds if done.seconds else 0.0
        line = (
            f"{done.records:,} records in {done.transactions:,} transactions, {done.lag:,} to go, "
            f"{rate:,.0f}/s, {done.conflicts:,} conflicts"
        )
        end = "\n" if last or not sys.stderr.isatty() else "\r"
        print(line.ljust(100), end=end, file=sys.stderr, flush=True)
