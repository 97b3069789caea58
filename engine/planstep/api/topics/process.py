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
_TELL_SECONDS = 1.0
_Fn = Callable[[Transaction, ReadBatch], Any]


class _Worker(threading.Thread):
    def __init__(
        self, course: ProcessPolicy, fn: _Fn, reader: PollingReader, ended: "SimpleQueue[None]"
    ) -> None:
        super().__init__(name=reader.name, daemon=True)
        self._course = course
        self._fn = fn
        self._reader = reader
        self._ended = ended
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
                    or len(self._pending) >= course.options.in_flight
                    or self._pending[0][0].done()
                ):
                    self._settle()
            while self._pending:
                self._settle()
        except BaseException as error:
            course.stop(error)
        finally:
            reader.close()
            self._ended.put(None)

    def _one(self, leased: Leased) -> None:
        tx, batch = leased
        poison = self._course.verdict(batch)
        try:
            if poison is None:
                value = self._fn(tx, batch)
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


def process(
    context: "Context",
    fn: _Fn,
    topic: str,
    consumer: str,
    options: ProcessOptions,
) -> Progress:
    """See Engine.process."""
    check_workers(fn, options.workers)
    course = ProcessPolicy(context, topic, consumer, options)
    ended: SimpleQueue[None] = SimpleQueue()  # an item for each worker
    threads: list[_Worker] = []
    try:
        for number in range(options.workers):
            threads.append(_Worker(course, fn, course.reader(number), ended))
        for thread in threads:
            thread.start()
        minding = Minding(course)
        while any(thread.is_alive() for thread in threads):
            wait_for(ended, minding.seconds)
            if minding.look():
                report(options.progress, course.progress(), False)
    finally:
        # Also for KeyboardInterrupt: what runs is finished, then all of it is raised.
        course.end()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        for reader in course.readers:
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

    def __init__(self, course: ProcessPolicy) -> None:
        self._course = course
        self._stop = stop = course.options.stop
        self._progress = progress = course.options.progress
        self._told = self._renewed = time.monotonic()
        self._renew_seconds = course.readers[0].group.lease_seconds / 4
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
            for reader in self._course.readers:  # one that has closed has nothing to renew
                reader.group.renew(reader.member)
        due = bool(self._progress) and now - self._told >= _TELL_SECONDS
        if due:
            self._told = now
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
