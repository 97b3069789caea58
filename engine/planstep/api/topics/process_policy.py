"""Decides what `process` does next: it notes what ran and what failed, and isolates the poison record.

    batch fails ─▶ half of it ─▶ a quarter ─▶ … ─▶ one record ─▶ on_error ─▶ stop · skip · dead letter · retry
    snapshot too old ─▶ a warning, and again ─▶ too old again ──────┘           a pause, longer each time ─┘

    stop          ProcessingError names topic, partition, offset
    skip          the record is consumed without effect
    dead letter   the record is moved to another topic, in the transaction that consumes it; with
                  max_redeliver_count it is handed back so many times before, and others go on meanwhile

`_bad` narrows the failure down to one record, which gets a verdict. From then on it is read alone, and
consumed by a transaction that does not run fn. `ProcessPolicy` knows neither threads nor tasks: process.py and
aio/process.py drive it.

Next: process.py.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ...errors import (
    Aborted,
    Conflict,
    Dropped,
    EngineClosed,
    ForkedProcess,
    HostStopped,
    IoError,
    LeaseLost,
    NoSpace,
    Overloaded,
    ProcessingError,
    ProtocolError,
    SnapshotTooOld,
    Undetermined,
)
from ...logs import contended, snapshot_too_old
from ...runtime.wait_primitives import Latch, once_free
from ..arguments import brief, check_worker, whole
from ..columns.batch import ReadBatch
from ..columns.codecs import check_format
from ..names import Names
from ..retry import never_run
from ..transaction.topic_writes import pack_headers
from ..transaction.transaction import Transaction
from .batch_search import ReaderOptions
from .leased_transaction import Leased, LeasedLifecycle, LeasedTransaction
from .reader import Reader
from .topic import Topic

if TYPE_CHECKING:
    import asyncio

    from ..context import Context

IN_FLIGHT = 1
_PAUSE_MIN, _PAUSE_MAX = 0.1, 30.0
"""Least and most seconds before fn runs again after on_error said "retry": about twice as long each time."""
_CONFLICT_PAUSE_MAX = 0.25
"""The longest back-off in seconds, as in db.run: after three conflicts of a batch it about doubles each time."""
_CONTENDED = 20
"""After so many conflicts of a batch the log gets a warning; the retries go on for as long as it takes."""
OnError: TypeAlias = Literal["stop", "skip", "dead_letter"] | Callable[[ProcessingError], str]
_AGAIN = (Conflict, ProtocolError, LeaseLost, Overloaded)
_NOT_ITS_FAULT = (
    Dropped,
    EngineClosed,
    ForkedProcess,
    HostStopped,
    IoError,
    NoSpace,
    Undetermined,
)
_CHOICES = ("stop", "skip", "dead_letter", "retry")


class Misused(Exception):
    """Wraps an error of the function itself, not of a record: it ends `process`."""


def refuse_rolled_back(tx: Transaction) -> None:
    """Raises Misused if the function rolled its transaction back: the batch would come again for ever."""
    if tx.life.state == "rolled back":
        raise Misused from TypeError(
            "the function rolled its transaction back, so process would deliver this batch again for ever; "
            "return to consume it, or raise an exception so that on_error decides"
        )


class Progress(NamedTuple):
    """The progress of `process`, which also returns it at the end."""

    records: int
    """consumed, in committed transactions"""
    transactions: int
    """committed"""
    conflicts: int
    """batches that were run again because another transaction committed first"""
    skipped: int
    """poison records that were consumed without effect"""
    dead_lettered: int
    """poison records that were moved"""
    seconds: float
    """since it began"""
    lag: int
    """records that are not consumed yet"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions(ReaderOptions):
    """The options of one call of process, and of its workers' readers; see Engine.process."""

    workers: int
    on_error: OnError | None
    dead_letter: str | None
    max_redeliver_count: int | None
    progress: bool | Callable[[Progress], Any]
    stop: "threading.Event | asyncio.Event | None"
    worker: str | None
    attempts: int | None


class ProcessPolicy:
    """Decides what to do next, for all workers of one `process`. Threads share it.

    `_bad` holds, by partition, (begin, end) of a range with a record that made fn fail, and half of its size.
    """

    def __init__(
        self, context: "Context", topic: str, consumer: str, options: ProcessOptions
    ) -> None:
        on_error, dead_letter = options.on_error, options.dead_letter
        if on_error is None:
            on_error = "stop" if dead_letter is None else "dead_letter"
        if not callable(on_error) and on_error not in _CHOICES[:3]:
            raise ValueError(
                f'on_error={brief(on_error)}: choose "stop", "skip", "dead_letter" or a function'
            )
        if on_error == "dead_letter" and dead_letter is None:
            raise ValueError(
                'on_error="dead_letter" needs the topic to move records to: dead_letter='
            )
        if options.attempts is not None:
            whole("attempts", options.attempts, 1)
        if options.max_redeliver_count is not None:
            whole("max_redeliver_count", options.max_redeliver_count, 1)
            if dead_letter is None or on_error in ("stop", "skip"):
                raise ValueError(
                    'max_redeliver_count is for on_error="dead_letter", or a function, and dead_letter='
                )
        self.context = context
        self.topic = topic
        self.consumer = consumer
        self.on_error = on_error
        self.dead_letter = dead_letter
        self.options = options
        self.ended = Latch()
        self.readers: list[PollingReader] = []
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._bad: dict[int, tuple[int, int, int]] = {}
        self._verdicts: dict[tuple[int, int], ProcessingError] = {}
        self._calls: dict[tuple[int, int], int] = {}  # of on_error
        self._too_old: set[tuple[int, int]] = set()  # batches that have been warned of
        self._tries: dict[tuple[int, int], int] = {}
        self._records = self._transactions = self._conflicts = 0
        self._skipped = self._moved = 0
        if dead_letter is not None:
            self._prepare(dead_letter)

    def _prepare(self, dead_letter: str) -> None:
        form = check_format(self.context.topic(self.topic).format)
        if dead_letter == self.topic:
            raise ValueError("dead_letter names the very topic that is processed")
        if dead_letter not in self.context.runtime.names.topics:
            Names(self.context).create_topic(dead_letter, format=form, exist_ok=True)
        its_form = self.context.topic(dead_letter).format
        if its_form not in (form, "bytes"):
            raise ValueError(
                f"dead_letter topic {dead_letter!r} has format {its_form!r}; {self.topic!r} has {form!r}: "
                'records are moved as they are, so it needs that or "bytes"'
            )

    def limit(self, partition: int, begin: int, most: int, redeliveries: int) -> int:
        """Limits the records to read at `begin`: in the range of a batch that failed, to half of that batch.

        A record with a verdict is read alone. So is, in the end, one that a worker held for too long.
        """
        if redeliveries and self.options.max_redeliver_count is not None:
            most = max(1, most // 2)
        for number, offset in list(self._verdicts):
            if number == partition and offset >= begin:
                most = min(most, max(1, offset - begin))
        bad = self._bad.get(partition)
        if bad is None or not bad[0] <= begin < bad[1]:
            return most
        return min(most, bad[2])

    def verdict(self, batch: ReadBatch) -> ProcessingError | None:
        """Returns the error of a poison record that is to be skipped or moved, None for a batch to run."""
        if len(batch) > 1:
            return None
        at, most = _where(batch), self.options.max_redeliver_count
        if most is not None and batch.redeliveries > most:
            with once_free(self._lock):
                late = TimeoutError(f"no worker ended it, of {batch.redeliveries} that had it")
                poison = ProcessingError(
                    self.topic, *at, self.consumer, late, attempt=batch.redeliveries
                )
                poison.choice = "dead_letter"
                self._verdicts.setdefault(at, poison)
        return self._verdicts.get(at)

    def hold(
        self, tx: Transaction, batch: ReadBatch, error: BaseException, of_poison: bool
    ) -> None:
        """Makes the rollback of a record that failed hand it back for a time."""
        assert isinstance(tx.life, LeasedLifecycle)
        tx.life.back = self._back(batch, error, of_poison)

    def _back(self, batch: ReadBatch, error: BaseException, of_poison: bool) -> float | None:
        """Returns the seconds for which a record that failed is handed back; None if it is not."""
        if self.options.max_redeliver_count is None or of_poison or len(batch) > 1:
            return None
        if isinstance(error, (*_AGAIN, *_NOT_ITS_FAULT, SnapshotTooOld, Misused)):
            return None
        redelivery = self.context.runtime.hooks.redelivery
        return 0.0 if redelivery is None else redelivery.nack_seconds

    def failed(self, batch: ReadBatch, error: BaseException, of_poison: bool) -> float:
        """Decides what to do after fn or the commit raised; returns the seconds to wait. May set `stopping`.

        `of_poison`: the error came not from fn, but from the transaction that should skip or move the record.
        """
        at = _where(batch)
        held = self._back(batch, error, of_poison)
        pause = self._decide(batch, error, of_poison)
        if pause is None:  # in a while again: by itself, or by this worker
            by_itself = held is not None and self.context.runtime.hooks.redelivery is not None
            return 0.0 if by_itself else self._retry_pause(self._calls[at])
        if held:
            self.readers[0].group.release(*at)
        return pause

    def _decide(self, batch: ReadBatch, error: BaseException, of_poison: bool) -> float | None:
        """Decides, and returns the seconds to wait; None when the record is to be handed out again."""
        at = _where(batch)
        with once_free(self._lock):
            pause = self._decide_alone(batch, error, of_poison)
            if pause is not None:
                return pause
            # The rollback hands a record back before this counts: another worker's failure may be counted first.
            attempt = max(self._calls.get(at, 0), batch.redeliveries) + 1
            self._calls[at] = attempt
            place = self.topic, *at, self.consumer
            poison = ProcessingError(*place, error, records=len(batch), attempt=attempt)
        choice = self.on_error(poison) if callable(self.on_error) else self.on_error
        most = self.options.max_redeliver_count or 0
        if choice == "dead_letter" and len(batch) == 1 and attempt <= most:
            return None
        with once_free(self._lock):
            return self._carry_out(batch, poison, choice)

    def _decide_alone(
        self, batch: ReadBatch, error: BaseException, of_poison: bool
    ) -> float | None:
        """Handles errors that on_error is not asked about, and returns the pause; None when it must be asked."""
        at = _where(batch)
        if of_poison and not isinstance(error, _AGAIN):
            self._stop(error)  # the dead letters cannot be written: dropped, say
        elif (
            isinstance(error, _NOT_ITS_FAULT)
            or (isinstance(error, ProtocolError) and error.fenced)
            or type(error) is Aborted  # the turn could not be made durable
            or not isinstance(error, Exception)
        ):
            self._stop(error)
        elif isinstance(error, _AGAIN) and getattr(error, "retryable", True):
            return self._retry(at, error)
        elif isinstance(error, Misused):
            self._stop(error.__cause__ or error)
        elif isinstance(error, SnapshotTooOld) and at not in self._too_old:
            self._too_old.add(at)
            snapshot_too_old(self._place(*at), error)
        elif not isinstance(error, SnapshotTooOld) and len(batch) > 1:
            self._halve(batch)
        elif at not in self._verdicts:  # else it ran once more before the verdict was known
            return None
        return 0.0

    def _retry(self, at: tuple[int, int], error: Exception) -> float:
        """Counts a conflict of a batch, and returns the pause before it runs again."""
        self._conflicts += 1
        tries = self._tries[at] = self._tries.get(at, 0) + 1
        if tries == self.options.attempts:
            error.add_note(f"process gave up after {tries} attempts")
            self._stop(error)
        if tries == _CONTENDED:
            contended(self._place(*at), tries, error)
        if tries <= 3:  # at once: it may have run ahead of one that failed
            return 0.0
        grown = 0.001 * 2.0 ** min(tries, 20)
        return random.uniform(0.5, 1.0) * min(grown, _CONFLICT_PAUSE_MAX)

    def _carry_out(self, batch: ReadBatch, poison: ProcessingError, choice: str) -> float:
        """Carries out the choice of on_error, and returns the pause after it."""
        if never_run(choice):
            self._stop(
                TypeError("on_error is a plain function, with asyncio too: it is not awaited")
            )
        elif choice not in _CHOICES:
            self._stop(
                ValueError(f"on_error returned {brief(choice)}: {', '.join(_CHOICES)} are possible")
            )
        elif choice == "dead_letter" and self.dead_letter is None:
            self._stop(
                ValueError("on_error returned 'dead_letter': name its topic with dead_letter=")
            )
        elif choice == "stop":
            self._stop(poison)
        elif choice == "retry":
            return self._retry_pause(poison.attempt)
        elif len(batch) > 1:
            self._halve(batch)  # it was too slow: no record of it is to blame yet
        else:
            poison.choice = choice
            self._verdicts[_where(batch)] = poison
        return 0.0

    def _retry_pause(self, attempt: int) -> float:
        grown = _PAUSE_MIN * 2.0 ** min(attempt - 1, 20)
        return random.uniform(0.5, 1.0) * min(grown, _PAUSE_MAX)

    def _place(self, partition: int, offset: int) -> str:
        return f"a batch of topic {self.topic!r}, partition {partition}, offset {offset}"

    def _halve(self, batch: ReadBatch) -> None:
        partition, offset = _where(batch)
        self._bad[partition] = (offset, batch.ends[partition], len(batch) // 2)

    def move_poison(self, tx: Transaction, batch: ReadBatch, poison: ProcessingError) -> None:
        """Moves the poison record to the dead letters if that was chosen; `tx` consumes it in any case."""
        if poison.choice != "dead_letter":
            return
        assert self.dead_letter is not None
        segment = batch.segments[0]
        key, value = (segment.batch.part(column, segment.lo, segment.hi)[0] for column in (0, 1))
        assert value is not None
        headers = {
            **batch.headers[0],
            "planstep-topic": self.topic,
            "planstep-partition": str(poison.partition),
            "planstep-offset": str(poison.offset),
            "planstep-consumer": self.consumer,
            "planstep-attempt": str(poison.attempt),
            "planstep-error": f"{type(poison.__cause__).__name__}: {poison.__cause__}"[:2000],
        }
        assert isinstance(tx, LeasedTransaction)
        tx.write_raw(self.dead_letter, value, key, pack_headers(headers, self.dead_letter))

    def committed(self, batch: ReadBatch) -> None:
        at = partition, _ = _where(batch)
        with once_free(self._lock):
            self._records += len(batch)
            self._transactions += 1
            self._tries.pop(at, None)
            self._calls.pop(at, None)
            self._too_old.discard(at)
            poison = self._verdicts.pop(at, None) if len(batch) == 1 else None
            if poison is not None:
                moved = poison.choice == "dead_letter"
                self._moved += moved
                self._skipped += not moved
            bad = self._bad.get(partition)
            if bad is not None and (poison is not None or batch.ends[partition] >= bad[1]):
                del self._bad[partition]

    def stop(self, error: BaseException) -> None:
        with once_free(self._lock):
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        self.error = self.error or error
        self.end()

    def reader(self, number: int) -> "PollingReader":
        """Makes a worker's reader; its default name differs from those of other topics and consumers."""
        options = self.options
        of = check_worker(self.topic, "topic"), check_worker(self.consumer, "consumer")
        default = self.context.runtime.hooks.name_here(f"{of[0]}.{of[1]}")
        name = check_worker(options.worker) or default
        if options.workers > 1 or options.worker is None:
            name = f"{name}-{number}"
        reader = PollingReader(self.context, self.topic, self.consumer, options, name)
        reader.search.policy = self
        self.readers.append(reader)
        return reader

    @property
    def stopping(self) -> bool:
        return self.ended.is_set()

    def end(self) -> None:
        """Makes the workers finish their batches and begin no others; wakes the waiting ones."""
        self.ended.set()
        for reader in list(self.readers):
            reader.group.wake()

    def progress(self) -> Progress:
        lag = 0 if self.context.closed else Topic(self.context, self.topic).lag(self.consumer)
        return Progress(
            self._records,
            self._transactions,
            self._conflicts,
            self._skipped,
            self._moved,
            time.monotonic() - self._began,
            lag,
        )


class PollingReader(Reader):
    """A worker's reader: it reads less where a batch has failed, and waits until the policy ends."""

    def wait(self) -> Leased | None:
        """Returns the next batch, however long that takes; None when the policy ends."""
        return self._wait()


def _where(batch: ReadBatch) -> tuple[int, int]:
    return batch.segments[0].partition, batch.segments[0].offset
