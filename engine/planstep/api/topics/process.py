"""Implements `process`: worker threads run a function over all batches of a topic, exactly once.

    workers ─ read ─▶ fn(tx, batch) ─ submit ─▶ …         Conflict: the batch is read again
                          │ raises
                          ▼
    half of the batch ─▶ a quarter ─▶ … ─▶ one record: the poison
                                             ├ on_error="stop"    ProcessingError names topic, partition, offset
                                             ├ on_error="skip"    consumed without effect
                                             └ dead_letter="t"    moved there, in the same transaction

The writes of fn for a failed batch are rolled back, so fn runs again for half of it; its effects outside of the
store happen again, too. process_policy.py decides what to do next; this module has the threads.

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
_TELL_SECONDS = 1.0


class _Worker(threading.Thread):
    def __init__(self, run: "_Run", reader: PollingReader, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._run = run
        self._course = run.course
        self._reader = reader
        self._pending: deque[tuple[Future[Commit], ReadBatch, bool]] = deque()

    def run(self) -> None:
        course, reader = self._course, self._reader
        try:
            while not course.stopping:
                leased = reader.read() if self._pending else reader.wait()
                if leased is not None:
                    self._one(leased)
                elif not self._pending:
                    break
                while self._pending and (
                    leased is None
                    or len(self._pending) >= self._run.in_flight
                    or self._pending[0][0].done()
                ):
                    self._settle()
            while self._pending:
                self._settle()
        except BaseException as error:
            course.stop(error)
        finally:
            reader.close()
            self._run.ended.put(None)

    def _one(self, leased: Leased) -> None:
        tx, batch = leased
        poison = self._course.verdict(batch)
        try:
            if poison is None:
                value = self._run.fn(tx, batch)
                try:
                    refuse_unrun(value, "process")
                except TypeError as error:
                    raise Misused from error
                refuse_rolled_back(tx)
            else:
                self._course.move_poison(tx, batch, poison)
            if tx.life.state == "open":
                tx.submit()
            if tx.life.future is not None:
                self._pending.append((tx.life.future, batch, poison is not None))
        except BaseException as error:
            if tx.life.state == "open":
                tx.rollback()
            self._pause(self._course.failed(batch, error, poison is not None))

    def _settle(self) -> None:
        future, batch, buried = self._pending.popleft()
        try:
            future.result()
        except Exception as error:
            self._pause(self._course.failed(batch, error, buried))
        else:
            self._course.committed(batch)

    def _pause(self, seconds: float) -> None:
        if seconds:
            self._course.ended.wait(seconds)


class _Run:
    """One call of `process`, with threads."""

    def __init__(
        self, course: ProcessPolicy, fn: Callable[[Any, ReadBatch], Any], in_flight: int
    ) -> None:
        self.course = course
        self.fn = fn
        self.in_flight = in_flight
        self.ended: SimpleQueue[None] = SimpleQueue()


def process(
    context: "Context",
    fn: Callable[[Transaction, ReadBatch], Any],
    topic: str,
    consumer: str,
    options: ProcessOptions,
) -> Progress:
    """See Engine.process."""
    check_workers(fn, options.workers)
    course = ProcessPolicy(context, topic, consumer, options)
    run = _Run(course, fn, options.in_flight)
    threads: list[_Worker] = []
    readers: list[PollingReader] = []
    try:
        for number in range(options.workers):
            name = course.worker_name(number)
            reader = course.reader(name)
            readers.append(reader)
            threads.append(_Worker(run, reader, name))
        for thread in threads:
            thread.start()
        minding = Minding(course, readers)
        while any(thread.is_alive() for thread in threads):
            wait_for(run.ended, minding.seconds)
            if minding.look():
                report(options.progress, course.progress(), False)
    finally:
        # Also for KeyboardInterrupt: what runs is finished, then all of it is raised.
        course.end()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        for reader in readers:
            reader.close()
    if course.error is not None:
        raise course.error
    done = course.progress()
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


class Minding:
    """The duties of the caller's thread in `process`: renews leases, checks `stop`, reports progress."""

    def __init__(self, course: ProcessPolicy, readers: list[PollingReader]) -> None:
        self._course = course
        self._readers = readers
        self._stop = stop = course.options.stop
        self._progress = progress = course.options.progress
        self._told = self._renewed = time.monotonic()
        self._renew_seconds = readers[0].lease_seconds / 4
        self.seconds = min(
            self._renew_seconds,
            _TELL_SECONDS if progress else inf,
            _STOP_SECONDS if stop is not None else inf,
        )
        """About how often `look` must be called."""

    def look(self) -> bool:
        """Renews leases and checks `stop` where due; returns True when it is time to report."""
        now = time.monotonic()
        if self._stop is not None and self._stop.is_set():
            self._course.end()
        if now - self._renewed >= self._renew_seconds:
            self._renewed = now
            for reader in self._readers:  # one that has closed has nothing to renew
                reader.renew()
        if not self._progress or now - self._told < _TELL_SECONDS:
            return False
        self._told = now
        return True


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
