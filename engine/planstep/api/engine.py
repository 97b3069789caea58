"""The engine: what `planstep.open` gives. It names topics and tables and begins transactions.

    Engine ─▶ transaction(), run(fn), snapshot()        reads and writes, together
           ─▶ topic(name), table(name)                  handles for one statement at a time
           ─▶ outcome(id), stats(), backup(path)        admin.py: what happened, looking after it

Every public call checks that the engine is open and that this is the process which opened it.

Next: transaction/transaction.py.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import EngineClosed, PlanstepError
from ..logs import lost_at_exit, store_closed
from ..runtime.deferred_signals import room_for_a_turn
from ..runtime.wait_primitives import Latch
from .admin import Operations
from .arguments import check_worker, shown
from .columns.batch import ReadBatch
from .limits import READ_BYTES
from .names import Naming
from .open_engine import Settings, Slot
from .retry import RETRIED, Attempts, Losers, refuse_unrun
from .snapshot import SnapshotView
from .topics.changelog import Changelog
from .topics.consumer_group import LEASE_SECONDS, Group
from .topics.group_state import Member
from .topics.linger_timer import Lingering
from .topics.process import process
from .topics.process_policy import IN_FLIGHT as PROCESS_IN_FLIGHT
from .topics.process_policy import OnError, Progress
from .topics.reader import Reader, window_of
from .topics.topic import Written
from .transaction.consume import Turns
from .transaction.read_set import Conditions
from .transaction.topic_writes import Headers
from .transaction.transaction import Transaction

if TYPE_CHECKING:
    from ..runtime.catalog import TopicInfo
    from ..runtime.runtime import Runtime
    from ..runtime.snapshot_reads import Snapshot

T = TypeVar("T")


class Engine(Naming, Operations):
    """An open store. Threads share it; each takes its own transactions.

    Invariants: closed once the last open is closed; never usable in a forked child.
    """

    def __init__(self, path: str, runtime: "Runtime", settings: Settings, slot: Slot) -> None:
        super().__init__(path, runtime, settings)
        self._slot = slot
        self._opened = 1
        self._closer = 0  # the thread that closes it
        self._ending = False  # it is at it
        self._ended = Latch()
        self._turns: Turns = {}
        self._keyless_turns: dict[int, Any] = {}
        self._consuming: dict[bytes, Conditions] = {}
        runtime.chores.reading = self._lowest_read
        runtime.chores.leases = self._end_leases
        self._groups: dict[tuple[int, str], Group] = {}
        self._groups_lock = threading.Lock()
        self._losers = Losers()
        self._lingering = Lingering()
        self._anonymous: list[bytes] = []  # producers of writers that had no name, and were closed
        self._dropped: deque[Snapshot] = deque()
        self._abandoned: deque[bytes] = deque()
        self._backing_up = threading.RLock()
        if not settings.read_only:
            runtime.begin_chores()

    # transactions --------------------------------------------------------------------------

    def transaction(self, worker: str | None = None) -> Transaction:
        """Begins a transaction. In a `with` it commits at the end and rolls back on an error.

        `worker`: mode "kafka": the transactional id to write under, taken from whoever has it, while that
        one has a transaction open; None: one of a pool. No other mode needs identities.
        """
        self._check()
        self._drop()
        return Transaction(self, check_worker(worker))

    def _statement(self) -> Transaction:
        """The transaction of a statement of its own."""
        tx = self.transaction()
        tx._alone = True
        return tx

    def _look(self) -> SnapshotView:
        """What is there, as well as the mode can see it at once: as of one step, or each partition now."""
        self._check()
        self._drop()
        return SnapshotView(self)

    def run(
        self,
        fn: Callable[[Transaction], T],
        attempts: int | None = None,
        deadline: float = 30.0,
        worker: str | None = None,
    ) -> T:
        """Runs `fn(tx)`, commits, and returns fn's value; after Conflict or Overloaded, once more.

        SnapshotTooOld is logged the first time, and raised the second.

        `fn` may run several times, each time with a new transaction: keep effects elsewhere out of
        it. Between attempts it waits, longer each time, at most a quarter of a second; of those that
        lost the same the oldest waits least. The last error is raised when `deadline` seconds have
        passed, or after `attempts` if they are limited. Other errors are raised at once, Undetermined
        too: `fn` must not run twice when the first may count.
        """
        if not callable(fn):
            raise TypeError(f"run takes a function of the transaction, not {shown(fn)}")
        with Attempts(attempts, deadline, self._losers) as tried:
            while True:
                tx = self.transaction(worker)
                try:
                    with tx:
                        value = fn(tx)
                        refuse_unrun(value, "run")
                    if tx._future is not None:
                        tx._future.result()
                    return value
                except RETRIED as error:
                    time.sleep(tried.pause_after(error, tx._ended_by(error)))

    def snapshot(self) -> SnapshotView:
        """A view of everything as of the last released step; close it, or use it in a `with`.

        NotSupported in mode "kafka": what is read from two partitions there belongs to no common moment.
        """
        self._runtime.schema.check_snapshots()
        return self._look()

    def reader(
        self,
        topic: str,
        consumer: str,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
        in_flight: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
        name: str = "",
        until_idle: bool = False,
    ) -> Reader:
        """A reader of batches, each with its transaction; it shares the topic with other readers.

        max_records    of a batch, at most; `max_bytes` about
        in_flight      batches whose transactions may be under way at once: 4 if not given; in mode "kafka" 1, and
                       more is NotSupported
        lease_seconds  silent for so long, it loses its partitions and what it has not committed; the
                       first reader of a consumer decides for all
        name           for logs and messages
        until_idle     iterating over it ends when all that is there is consumed; else it waits for more
        """
        if name != "":
            check_worker(name, "a reader's name")
        window = window_of(self._runtime, in_flight)
        limits = (max_records, max_bytes, window, lease_seconds)
        return Reader(self, topic, consumer, *limits, name, until_idle)

    def process(
        self,
        fn: Callable[[Transaction, ReadBatch], Any],
        topic: str,
        consumer: str,
        workers: int = 1,
        in_flight: int = PROCESS_IN_FLIGHT,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
        on_error: OnError | None = None,
        dead_letter: str | None = None,
        until_idle: bool = False,
        progress: bool | Callable[[Progress], Any] = False,
        stop: threading.Event | None = None,
        worker: str | None = None,
        attempts: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Progress:
        """Runs `fn(tx, batch)` over the topic's records, each counted exactly once; returns what it did.

        fn           writes its results through `tx`; process commits. It runs again after a Conflict,
                     and on smaller batches after an error: keep effects elsewhere out of it
        workers      threads; partitions are shared out among them, a batch is of one partition
        in_flight    batches of a worker that are read or being committed at once; with more than 1, a function
                     that reads rows which it also writes conflicts with the batch before
        on_error     what to do with the one record on which fn fails: "stop" (if not given) raises
                     ProcessingError, "skip" consumes it, "dead_letter" moves it; or a function of the
                     ProcessingError that returns one of these, or "retry": then the record runs again
                     after 0.1 s, and each time after about twice as long, up to 30 s; `error.attempt` counts.
                     It is asked about a whole batch whose snapshot was too old twice (SnapshotTooOld)
        dead_letter  the topic to move such records to, with headers that say whence and why; made if
                     missing; given alone it means on_error="dead_letter"
        until_idle   return when all that is there is consumed; else go on until `stop` or Ctrl-C
        progress     True: a line a second on stderr; or a function of Progress, called from this thread
        stop         an Event: once it is set the workers finish their batches, and process returns
        worker       the workers' name, in threads and logs; mode "kafka": the transactional id, with -0, -1 …
                     behind it if there are several; it fences whoever worked under it before
        attempts     runs of one batch that may end in a Conflict, one after the other: then it is raised. If not
                     given, the batch runs again for as long as it takes, up to 0.25 s apart, warned of once
        """
        return process(
            self,
            fn,
            topic,
            consumer,
            workers,
            in_flight,
            max_records,
            max_bytes,
            on_error,
            dead_letter,
            until_idle,
            progress,
            stop,
            worker,
            attempts,
            lease_seconds,
        )

    def changelog(self, topic: str, partition: int = 0, worker: str | None = None) -> Changelog:
        """State of one partition, kept in a keyed topic of format msgpack or json; see topics/changelog.py.

        `worker`: mode "kafka": the transactional id whose unfinished transaction is ended first.
        """
        return Changelog(self, topic, partition, worker)

    def _anonymous_producer(self) -> bytes:
        """A name for a writer without one. They are used again: partitions keep a row for each."""
        try:
            return self._anonymous.pop()
        except IndexError:
            return os.urandom(16)

    def _end_leases(self) -> None:
        for key, group in list(self._groups.items()):
            group.tidy()
            with self._groups_lock:
                if group.empty and self._groups.get(key) is group:
                    del self._groups[key]

    def _join(
        self, topic: str, consumer: str, lease_seconds: float, name: str, in_flight: int
    ) -> tuple[Group, Member]:
        info = self._topic(topic)
        joined = self._runtime.hooks.join(consumer, name)
        group, member = self._join_group(info, consumer, lease_seconds, name, in_flight)
        if joined is not None:
            member.generation, member.id = joined
            group.generation = max(group.generation, member.generation)
            member.producer = self._runtime.hooks.producer(name or member.id)
        return group, member

    def _join_group(
        self, info: "TopicInfo", consumer: str, lease_seconds: float, name: str, in_flight: int
    ) -> tuple[Group, Member]:
        with self._groups_lock:
            group = self._groups.get((info.id, consumer))
            if group is None or group.empty:
                group = Group(self._runtime, info, consumer, lease_seconds)
                self._groups[info.id, consumer] = group
            return group, group.join(name, in_flight)

    def write(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> Written:
        """Writes one record in a transaction of its own; returns where it is."""
        return self.topic(topic).write(value, key, headers, partition)

    # the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the engine when every `open` of it has been closed: finishes what was submitted, and
        flushes writers that linger; the error of such a flush is raised once the engine is closed.

        Does nothing on a closed engine, and in a forked child. Where another thread is closing it,
        waits for that, except in a future's callback: closing waits for those.
        """
        if self._pid != os.getpid():
            return
        room_for_a_turn()
        unpublished = self._lingering.flush() if self._opened == 1 and not self._closed else []
        try:
            self._close_once()
        finally:
            for writer in unpublished:
                error = writer._late
                if error is not None and self._closed:
                    error.add_note(f"raised by the last flush: {writer!r} was not published")
                    raise error

    def _close_once(self) -> None:
        with self._slot.lock:
            if not self._closed:
                self._opened -= 1
                if self._opened:
                    return
            last = self._begin_closing()
        if not last and not self._is_waited_for():
            self._ended.wait()
        if last or not (self._ending or self._runtime.ended):  # interrupted twice
            self._end()

    def _begin_closing(self) -> bool:
        """Under the slot's lock; False when somebody closes it already, or has."""
        if self._closed:
            return False
        self._closed, self._closer = True, threading.get_ident()
        self._slot.engine, self._slot.closing = None, self
        return True

    def _end(self) -> None:
        began = time.monotonic()
        interrupted: BaseException | None = None
        self._ending = True
        try:
            while not self._runtime.ended:
                try:
                    self._drop()
                    with self._backing_up:  # a backup notices, and stops
                        self._runtime.close()
                except BaseException as error:  # a signal's handler may raise whatever it likes
                    if interrupted is not None or isinstance(
                        error, (PlanstepError, RecursionError)
                    ):
                        raise  # a second time: `close` again, or the end of the process, is the end
                    interrupted = error
            for group in list(self._groups.values()):
                group.close(EngineClosed("the engine was closed before the batch had its turn"))
        finally:
            self._ending = False
            self._slot.closing = None
            self._ended.set()
            store_closed(self.path, self._runtime, time.monotonic() - began)
        if interrupted is not None:
            raise interrupted

    def _is_waited_for(self) -> bool:
        """Whether closing waits for this thread, which hence must not wait for closing."""
        return self._closer == threading.get_ident() or self._runtime.owns_this_thread()

    def _wait_closed(self) -> None:
        if self._is_waited_for():
            raise EngineClosed(
                f"the engine of {self.path!r} is being closed, and waits for this callback of a "
                "future: open it again outside of callbacks"
            )
        self._ended.wait()

    def _close_at_exit(self) -> None:
        if self._pid != os.getpid():
            return
        for writer in self._lingering.flush():
            lost_at_exit(self.path, repr(writer), writer._late)
        if self._slot.lock.acquire(timeout=1.0):
            try:
                last = self._begin_closing()
            finally:
                self._slot.lock.release()
            if last:
                self._end()

    def __enter__(self) -> "Engine":
        self._check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Engine {self.path!r}{' closed' if self._closed else ''}>"

    # what the rest of the face asks --------------------------------------------------------

    def _lowest_read(self, tablet: int) -> int | None:
        """The lowest offset that open transactions mean to consume in a partition."""
        floors = [conditions.floor(tablet) for conditions in list(self._consuming.values())]
        return min((floor for floor in floors if floor is not None), default=None)

    def _keyless(self, topic: "TopicInfo") -> int:
        """Where one transaction's records without key go: transactions take turns."""
        turns = self._keyless_turns.setdefault(topic.id, count())
        return int(next(turns)) % len(topic.partitions)

    def _drop(self) -> None:
        """Unpins the snapshots of transactions that nobody ended, and takes back what they sent."""
        while self._abandoned:
            try:
                self._runtime.transactions.rollback(self._abandoned.popleft())
            except IndexError:  # another thread was faster
                break
        while self._dropped:
            try:
                self._dropped.popleft().close()
            except IndexError:  # another thread was faster
                return
