"""Defines Engine, the open store that `planstep.open` returns: it names topics and tables and begins transactions.

    Engine ─▶ transaction(), run(fn), snapshot()        reads and writes, together
           ─▶ topic(name), table(name)                  handles for one statement at a time
           ─▶ outcome(id), stats(), backup(path)        inspection and care, on the caller's thread

Every public call checks that the engine is open, and opens the store anew in a forked child.

Next: transaction/transaction.py.
"""

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..closing import Closing
from ..errors import NotSupported
from ..logs import backup_made
from .administration import EngineAdministration
from .arguments import check_worker
from .columns.batch import ReadBatch
from .columns.codecs import Format
from .context import Context
from .lifetime import Lifetime
from .limits import READ_BYTES
from .names import Names
from .open_engine import Settings
from .retry import run
from .slots import Slot
from .snapshot import SnapshotView
from .tables.table import Table
from .topics.batch_search import Ack, ReaderOptions
from .topics.changelog import Changelog
from .topics.consumer_group import LEASE_SECONDS
from .topics.description import Written
from .topics.process import process
from .topics.process_policy import IN_FLIGHT as PROCESS_IN_FLIGHT
from .topics.process_policy import OnError, ProcessOptions, Progress
from .topics.reader import Reader, window_of
from .topics.topic import Topic
from .transaction.topic_writes import Headers
from .transaction.transaction import Transaction

if TYPE_CHECKING:
    from ..runtime.backup import Backup, Telling
    from ..runtime.runtime import Runtime

T = TypeVar("T")


class Engine(EngineAdministration, Closing):
    """An open store. Threads share it; each takes its own transactions.

    Invariant: closed once the last open is closed. In a forked child it opens the store anew (context.py).
    """

    def __init__(self, path: str, runtime: "Runtime", settings: Settings, slot: Slot) -> None:
        self._opened = Context(path, runtime, settings)
        self.path = path
        self._backing_up = threading.RLock()
        self.lifetime = Lifetime(self._opened, slot, self._backing_up)
        if not settings.read_only:
            runtime.maintenance.begin()

    @property
    def context(self) -> Context:
        return self._opened.here() if self._opened.forked else self._opened

    @property
    def _runtime(self) -> "Runtime":
        return self.context.runtime

    @property
    def _names(self) -> Names:
        return Names(self.context)

    @property
    def mode(self) -> str:
        """The commit protocol of the store: "deterministic", "kafka" or "pulsar"."""
        return self._runtime.mode

    @property
    def turn(self) -> int:
        """The number of the store's last turn, a batch of commits. A follower's snapshot with at_least= this number
        has all that was committed here by now. NotSupported where the store is not replicated.
        """
        self.context.look()
        if self.context.settings.replicate is None:
            raise NotSupported("turns have numbers to compare where the store is replicated")
        return self._runtime.nodes[0].host.store.last_turn

    @property
    def owner(self) -> int | None:
        """The id of the process that owns the store: this one's own, or that of the one to which it is attached.

        None where it is not known, or the engine is read-only: that asks nobody.
        """
        self.context.check()
        link = self._runtime.link
        if link is not None:
            return link.owner or None
        return None if self.context.settings.read_only else os.getpid()

    @property
    def closed(self) -> bool:
        return self.context.closed

    # transactions --------------------------------------------------------------------------

    def transaction(self, worker: str | None = None) -> Transaction:
        """Begins a transaction. In a `with` it commits at the end and rolls back on an error.

        `worker`: mode "kafka": the transactional id to write under, taken from its holder if that has a
        transaction open; None: an id from a pool. No other mode needs identities.
        """
        opened = self._opened  # a property costs a call
        return (self.context if opened.forked else opened).begin(worker)

    def run(
        self,
        fn: Callable[[Transaction], T],
        attempts: int | None = None,
        deadline: float = 30.0,
        worker: str | None = None,
    ) -> T:
        """Runs `fn(tx)`, commits, and returns fn's value; runs it again after Conflict or Overloaded.

        SnapshotTooOld is logged the first time, and raised the second.

        `fn` may run several times, each time with a new transaction: keep other effects out of
        it. Between attempts it waits, longer each time, at most a quarter of a second; of transactions that
        lost to the same conflict the oldest waits least. The last error is raised when `deadline` seconds have
        passed, or after `attempts` if they are limited. Other errors are raised at once, Undetermined
        too: `fn` must not run twice when the first run may count.
        """
        return run(self.context, fn, attempts, deadline, worker)

    def snapshot(self) -> SnapshotView:
        """Opens a view of everything as of the last released step; close it, or use it in a `with`.

        NotSupported in modes "kafka" and "pulsar", where reads of two partitions have no common moment.
        """
        return self.context.snapshot()

    def write(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> Written:
        """Writes one record in a transaction of its own; returns its partition and offset."""
        return self.topic(topic).write(value, key, headers, partition)

    # reading on ----------------------------------------------------------------------------

    def reader(
        self,
        topic: str,
        consumer: str,
        *,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
        in_flight: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
        name: str = "",
        until_idle: bool = False,
        ack: Ack = "list",
    ) -> Reader:
        """Makes a reader of batches, each with its transaction; it shares the topic with other readers.

        max_records    of a batch, at most; `max_bytes` about
        in_flight      batches whose transactions may be under way at once: 4 if not given. In mode "kafka", and
                       for cumulative consumers in mode "pulsar", it is 1, and more is NotSupported
        lease_seconds  after so long without a call it loses its partitions and its uncommitted batches; the
                       first reader of a consumer decides for all
        name           for logs and messages
        until_idle     iterating over it ends when every record there is consumed; else it waits for more
        ack            mode "pulsar", individual consumers: "list" acknowledges a batch with one request, "each"
                       with one for each record, to see what that costs
        """
        if name != "":
            check_worker(name, "a reader's name")
        options = ReaderOptions(
            max_records=max_records,
            max_bytes=max_bytes,
            in_flight=window_of(self.context, topic, consumer, in_flight),
            lease_seconds=lease_seconds,
            until_idle=until_idle,
            ack=ack,
        )
        return Reader(self.context, topic, consumer, options, name)

    def process(
        self,
        fn: Callable[[Transaction, ReadBatch], Any],
        topic: str,
        consumer: str,
        *,
        workers: int = 1,
        in_flight: int = PROCESS_IN_FLIGHT,
        max_records: int = 1000,
        max_bytes: int = READ_BYTES,
        on_error: OnError | None = None,
        dead_letter: str | None = None,
        max_redeliver_count: int | None = None,
        until_idle: bool = False,
        progress: bool | Callable[[Progress], Any] = False,
        stop: threading.Event | None = None,
        worker: str | None = None,
        attempts: int | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Progress:
        """Runs `fn(tx, batch)` over the topic's records, each counted exactly once; returns its progress.

        fn           writes its results through `tx`; process commits. It runs again after a Conflict,
                     and on smaller batches after an error: keep other effects out of it
        workers      threads; they share the partitions, and a batch is of one partition
        in_flight    batches of a worker that are read or being committed at once; with more than 1, a function
                     that reads rows which it also writes conflicts with the batch before
        on_error     what to do with the one record on which fn fails: "stop" (if not given) raises
                     ProcessingError, "skip" consumes it, "dead_letter" moves it; or a function of the
                     ProcessingError that returns one of these, or "retry": then the record runs again
                     after 0.1 s, and each time after about twice as long, up to 30 s; `error.attempt` counts.
                     It is called for a whole batch whose snapshot was too old twice (SnapshotTooOld)
        dead_letter  the topic to move such records to, with headers that name their origin and the error; made
                     if missing; given alone it means on_error="dead_letter"
        max_redeliver_count
                     how often a record is handed out again before it moves to `dead_letter`: mode "pulsar" after
                     nack_redelivery_delay_ms, while the worker goes on, others after a pause as for "retry"
        until_idle   return when every record there is consumed; else go on until `stop` or Ctrl-C
        progress     True: a line a second on stderr; or a function of Progress, called from this thread
        stop         an Event: once it is set the workers finish their batches, and process returns
        worker       the workers' name, in threads and logs; mode "kafka": the transactional id, with -0, -1 …
                     appended if there are several; it fences the last holder of the id
        attempts     runs of one batch that may end in a Conflict, one after the other: then it is raised. If not
                     given, the batch runs again for as long as it takes, up to 0.25 s apart, with one warning
        """
        options = ProcessOptions(
            workers=workers,
            in_flight=in_flight,
            max_records=max_records,
            max_bytes=max_bytes,
            on_error=on_error,
            dead_letter=dead_letter,
            max_redeliver_count=max_redeliver_count,
            until_idle=until_idle,
            progress=progress,
            stop=stop,
            worker=worker,
            attempts=attempts,
            lease_seconds=lease_seconds,
        )
        return process(self.context, fn, topic, consumer, options)

    def changelog(self, topic: str, partition: int = 0, worker: str | None = None) -> Changelog:
        """Opens the state of one partition, kept in a keyed topic of format msgpack or json: topics/changelog.py.

        `worker`: mode "kafka": the transactional id whose unfinished transaction is ended first, even this
        engine's: open the changelog before the transaction that is to use it.
        """
        return Changelog(self.context, topic, partition, worker)

    # names ---------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        format: Format | None = None,
        exist_ok: bool = False,
        retention: timedelta | float | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Creates a topic of `partitions` logs (1 if not given), for ever.

        format           type of the values: "bytes" (if not given), "utf8", "json", "msgpack"
        exist_ok         accept a topic of that name; AlreadyExists still if it has another number
                         of partitions or another format than given here; its retention stays
        retention        removes records older than this: a timedelta, or seconds; None keeps them
        retention_bytes  removes a partition's oldest batches while it holds more than this; None keeps them

        Trimming happens in the background, about once a second, in whole batches.
        """
        return self._names.create_topic(
            name, partitions, format, exist_ok, retention, retention_bytes
        )

    def create_table(
        self,
        name: str,
        shards: int | None = None,
        format: Format | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Creates a table of `shards` key spaces (4 if not given), for ever.

        format    type of the values: "msgpack" (if not given), "json", "utf8", "bytes"
        exist_ok  as in create_topic
        """
        return self._names.create_table(name, shards, format, exist_ok)

    def drop_topic(self, name: str, missing_ok: bool = False) -> None:
        """Drops a topic with all its records and positions.

        Its space comes back in the background, once no snapshot is older than the drop. The name is free at once.

        A transaction on it that gets its place later raises Dropped, without effect. In modes "kafka" and
        "pulsar" it may have sent records to it before. Then its commit succeeds, with what it wrote elsewhere.
        """
        self._names.drop_topic(name, missing_ok)

    def drop_table(self, name: str, missing_ok: bool = False) -> None:
        """Drops a table with all its rows, as drop_topic does."""
        self._names.drop_table(name, missing_ok)

    def topics(self) -> dict[str, Topic]:
        """Returns all topics by name, in order of name."""
        return self._names.topics()

    def tables(self) -> dict[str, Table]:
        """Returns all tables by name, in order of name."""
        return self._names.tables()

    def topic(self, name: str) -> Topic:
        """Returns the topic of that name; UnknownName suggests the nearest."""
        return self._names.topic(name)

    def table(self, name: str) -> Table:
        """Returns the table of that name; UnknownName suggests the nearest."""
        return self._names.table(name)

    # operation -----------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Returns counters since the engine was opened, and its present state: keys in runtime/statistics.py.

        hosts, generation, step, transactions (by outcome and cause), turns (histograms), store,
        per_host, memory, checkpoint_age_seconds, snapshots, disk_bytes.
        """
        self.context.check()
        return self._runtime.stats()

    def backup(self, path: "str | os.PathLike[str]", progress: "Telling | None" = None) -> "Backup":
        """Copies everything as of the last step to `path`, a new folder, while writers go on.

        The copy is a store of its own: open it, or `planstep.restore` it. It is verified before it
        gets its name; `progress(done, total)` counts records. AlreadyExists when `path` is there,
        Corruption when a record is damaged, NoSpace; then there is nothing at `path`. ValueError when
        `path` is inside the store, IoError when the folder that is to contain it is missing.
        """
        from ..runtime.backup import backup_runtime

        def tell(done: int, total: int) -> None:
            self.context.check()
            if progress is not None:
                progress(done, total)

        with self._backing_up:
            self.context.check()
            began = time.monotonic()
            copy = backup_runtime(self._runtime, Path(path), tell)
        backup_made(self.path, copy, time.monotonic() - began)
        return copy

    # the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the engine when every `open` of it has been closed.

        It finishes submitted transactions and flushes writers that linger; an error of such a flush is
        raised once the engine is closed.

        Does nothing on a closed engine, and in a forked child. While another thread closes it, this
        waits, except in a future's callback: closing waits for those.
        """
        self.lifetime.close()

    def __enter__(self) -> Self:
        self.context.check()
        return self

    def __repr__(self) -> str:
        return f"<Engine {self.path!r}{' closed' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        return self._names.html()
