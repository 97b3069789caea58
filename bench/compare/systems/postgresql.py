"""Drives PostgreSQL as a good user would: topics and tables in a schema of a server.

    worker ─ a connection of its own ─ read: one query          ─┐
           ─ writes: gathered in memory ─ commit: one statement ─┤     server ─ WAL ─ sync
    worker ─ …                                                  ─┘       └ NOTIFY ─▶ followers

A commit of few records is one statement, which calls functions of the database: one round trip. One of many records
takes its offsets, writes by COPY, and commits. `by_statements` sends a statement for each step instead, as programs
do that are not tuned for round trips. A row that a `get` read stays locked to the end of the transaction, which
others wait for. Positions are compared at the commit, as a consumer's are in most systems here.

    durability "full"  a commit waits until its log is synced
    durability "os"    fsync=off: a commit waits until the operating system has its log. A crash of the machine may
                       corrupt the whole database, as PostgreSQL's manual says. synchronous_commit=off is no equal:
                       a commit waits for nothing then, and a crash of the server alone loses some.

Every read is of a locked row, or of a position that the commit compares, and the transaction takes its place while
it holds all its locks. So its places are one order that the whole history can be judged by.

Counted: syncs of the log, by the server; the bytes that its processes passed to write calls, which has the log and
the tables' pages but not what it sends; round trips.

Left out: retention, replicas.

Next: postgresql_store.py.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Any

from ..processes import usage
from .base import (
    STAGING,
    Certificate,
    Chunk,
    Counters,
    Moments,
    Options,
    Poll,
    PollResult,
    Setting,
    System,
    Work,
    Write,
)
from .gathered import Change, GatheredWork, Place, Row, Topic
from .postgresql_server import PostgresqlServer
from .postgresql_session import Session
from .postgresql_statements import StatementSession
from .postgresql_store import Store, errors

SYNCS = "SELECT wal_sync FROM pg_stat_wal"
SYNCS_18 = "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal' AND context = 'normal'"
"""From version 18 on, where that column is gone. No test here has run that version."""
CHUNK = 10_000
"""Records that one read of a partition takes."""
MOMENTS_MAX = 100_000
"""Transactions whose commit times are kept."""


class PostgresqlSystem(System):
    """Topics and tables in a schema of its own, on the server of the options, or on one in `folder`."""

    def __init__(self, folder: Path, options: Options, name: str, by_statements: bool) -> None:
        self.name, self._by_statements = name, by_statements
        self._sessions: list[Session] = []
        self.missing: Mapping[str, str] = {
            STAGING: "PostgreSQL would keep the partition locked from the first write to the commit, since offsets "
            "are dense and in the order of commits: what is not committed waits in the client's memory"
        }
        self._options = options
        folder.mkdir(parents=True, exist_ok=True)
        self._server = (
            None if options.server else PostgresqlServer(folder / "server", options.durability)
        )
        address = options.server if self._server is None else self._server.address
        try:
            self.store = Store(address, folder, options.read_only, options.transaction_timeout_ms)
        except BaseException:
            self._close_server()
            raise
        ((self._fsync,),) = self.store.ask("SELECT current_setting('fsync')")
        if options.durability == "full" and self._fsync == "off":
            self.close()
            raise OSError(
                "this server of PostgreSQL has fsync=off: durability full needs one with fsync=on"
            )
        self._pid = self.store.server()
        self._verifying = self._session()
        self._moments: OrderedDict[str, int] = OrderedDict()

    def _session(self) -> Session:
        session = StatementSession(self.store) if self._by_statements else Session(self.store)
        self._sessions.append(session)
        return session

    def prepare(self, topics: Mapping[str, int], tables: Iterable[str] = ()) -> None:
        self.store.prepare(topics, tables)

    def worker(self, name: str, consumer: str, number: int = 0) -> Callable[[], Work]:
        session, numbers = self._session(), count(1)

        def begin() -> Work:
            change = Change(f"{name}/{number}/{next(numbers)}", consumer)
            return _Work(self, session, change, number)

        return begin

    def writer(self, topic: str) -> Write:
        """Returns a writer that commits each batch in a transaction of its own."""
        session, numbers, target = self._session(), count(), self.store.topic(topic)

        def write(
            values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None
        ) -> None:
            change = Change("plain")
            change.write(target, values, keys, partition, next(numbers))
            session.apply(change)

        return write

    def follower(self, topic: str) -> Poll:
        """Returns a reader that NOTIFY wakes; it also looks by itself when nothing came in the time."""
        target = self.store.topic(topic)
        connection, name = self.store.connect(), f"log_{target.id}"
        with errors():
            connection.execute(f"LISTEN {self.store.schema}_{target.id}")
            connection.execute("UPDATE topics SET followed = true WHERE id = %b", (target.id,))
            # Here, not on the next line, ends what it does not see: commits from now on wake it.
            sql = "SELECT partition, next FROM partitions WHERE topic = %b"
            ends = dict(connection.execute(sql, (target.id,), binary=True).fetchall())
        sql = (
            "SELECT log.partition, log.at, log.value"
            " FROM unnest(%b::bigint[], %b::bigint[]) AS want(partition, at),"
            f" LATERAL (SELECT * FROM {name} WHERE partition = want.partition AND at >= want.at ORDER BY at) AS log"
        )

        def poll(timeout: float) -> list[PollResult]:
            with errors():
                notified = [
                    notify.payload for notify in connection.notifies(timeout=timeout, stop_after=1)
                ]
                behind = {int(word) for words in notified for word in words.split(",") if words}
                wanted = sorted(behind if behind and "" not in notified else ends)
                at = [ends[partition] for partition in wanted]
                rows = connection.execute(sql, (wanted, at), binary=True).fetchall()
            results = []
            for partition, of_partition in groupby(rows, lambda row: row[0]):
                _, offsets, values = zip(*of_partition, strict=True)
                ends[partition] = offsets[-1] + 1
                results.append(PollResult(partition, offsets, list(values)))
            return results

        return poll

    def counters(self) -> Counters:
        """Returns exact ones. Each connection counts its own syncs, and tells now, by a round trip."""
        for session in self._sessions:
            session.tell_statistics()
        return self.sampled()

    def sampled(self) -> Counters:
        return Counters(
            transactions=sum(session.transactions for session in self._sessions),
            requests=sum(session.round_trips for session in self._sessions),
            syncs=self._syncs(),
            disk_bytes=usage(self.pids()).call_bytes,
        )

    def _syncs(self) -> int:
        """Returns how often the server has synced its log, as far as its connections have told."""
        ((syncs,),) = self.store.ask(SYNCS_18 if self.store.version >= 180_000 else SYNCS)
        return int(syncs)

    def pids(self) -> Sequence[int]:
        return () if self._pid is None else (self._pid,)

    def moments(self, tx: str) -> Moments:
        at = self._moments.get(tx)
        return Moments(decided=at, visible=at)

    def commit(self, session: Session, change: Change) -> Certificate:
        """Commits a change, and notes when its reply came: it was decided and visible before that."""
        certificate = session.apply(change)
        self._moments[change.id] = time.monotonic_ns()
        if len(self._moments) > MOMENTS_MAX:
            self._moments.popitem(last=False)
        return certificate

    def settings(self) -> list[Setting]:
        shown = (
            *("server_version", "fsync", "wal_level", "wal_sync_method", "full_page_writes"),
            *("data_checksums", "shared_buffers", "max_wal_size", "commit_delay"),
            *self.store.settings,
        )
        asked = ", ".join(f"current_setting('{name}')" for name in shown)
        (values,) = self.store.ask(f"SELECT {asked}")
        loses = {
            "on": "nothing",
            "off": "nothing of the server alone; of the machine, perhaps the whole database",
        }[self._fsync]
        return [
            *(Setting(name, value) for name, value in zip(shown, values, strict=True)),
            Setting("a_crash_loses", loses),
        ]

    def records(self, topic: str, partition: int) -> Iterator[Chunk]:
        session, offset = self._verifying, 0
        while (chunk := session.take((topic, partition), offset, CHUNK)).values:
            yield chunk
            offset = chunk.end

    def rows(self, table: str) -> dict[str, Any]:
        return self.store.rows(table)

    def position(self, topic: str, consumer: str, partition: int) -> int:
        sql = "SELECT at FROM positions WHERE consumer = %b AND topic = %b AND partition = %b"
        found = self.store.ask(sql, consumer, self.store.topic(topic).id, partition)
        return int(found[0][0]) if found else 0

    def drop(self) -> None:
        if self._server is None:
            self.store.drop()

    def close(self) -> None:
        self.store.close()
        self._close_server()

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()


class _Work(GatheredWork):
    def __init__(
        self, system: PostgresqlSystem, session: Session, change: Change, number: int
    ) -> None:
        super().__init__(change, number)
        self.staging = system.missing[STAGING]
        self._system, self._session = system, session

    def topic(self, name: str) -> Topic:
        return self._system.store.topic(name)

    def take(self, place: Place, at: int | None, most: int) -> Chunk:
        return self._session.take(place, at, most, self.change.consumer)

    def value(self, row: Row) -> Any:
        return self._session.locked(row)

    def commit(self) -> Certificate:
        if not (self._session.open or self.change):
            return Certificate()
        return self._system.commit(self._session, self.change)

    def rollback(self) -> None:
        self._session.rollback()
