"""Defines the interface of a system under test: topics, transactions over them, state, counters.

    System ─ prepare ─▶ worker()   ─▶ begin() ─▶ Work: read, write, flush, add …, commit
                      ├▶ writer()   ─▶ write()   plain writes, without a transaction
                      ├▶ follower() ─▶ poll()    a reader of committed records that blocks
                      └▶ counters()              costs of all of it so far
    afterwards, closed and reopened read-only:        System.records, System.rows

Workloads see this interface and nothing of any system. A system names each feature that it lacks in `missing`
before anything runs; a call for that feature raises Impossible.

Next: engine.py, sqlite.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

TABLES, SHARED_ROWS, STAGING = "tables", "shared rows", "staging"
TIME_OUT, SAME_NAME = "time-out", "re-initialisation"


class Impossible(Exception):
    """The system does not have this feature."""


class Cancelled(Exception):
    """The transaction ended without effect; `retryable` says that it may run again. `cause`: the error's name."""

    def __init__(self, cause: str, retryable: bool = True) -> None:
        super().__init__(cause)
        self.cause, self.retryable = cause, retryable


class Unknown(Exception):
    """The outcome of the transaction is unknown: it may have been committed."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options to open any system with; a system ignores those that it does not have.

    durability  "full": acknowledged when it is on the disk; "os": when the operating system has it
    placement   "shared" or "separate"
    hosts       number of hosts that tablets are spread over
    rtt         round-trip time between hosts, in seconds
    transaction_timeout_ms   after this, a system with such a time-out aborts an open transaction
    snapshot_transactions    ends between two snapshots of aborted ids, where a mode takes them
    read_only   opens the store for reading only
    server      address of a running server to work with; "": a system with a server starts one in its folder
    """

    durability: str = "full"
    placement: str = "shared"
    hosts: int = 1
    rtt: float = 0.0
    transaction_timeout_ms: int = 60_000
    snapshot_transactions: int = 1_000
    read_only: bool = False
    server: str = ""


class Chunk(NamedTuple):
    """Records [begin, end) of a partition, with the offset of each; offsets may have gaps."""

    values: list[bytes]
    keys: list[bytes | None]
    begin: int
    end: int
    offsets: Sequence[int]


class Certificate(NamedTuple):
    """A commit's reply: its place, or the producer's epoch, where the system has one.

    `published` has offsets by (topic, partition), where the reply has them.
    """

    step: int | None = None
    n: int | None = None
    epoch: int | None = None
    published: Mapping[tuple[str, int], tuple[int, int]] = {}


class Moments(NamedTuple):
    """Phases of a transaction as time.monotonic_ns(); None where the system does not report one."""

    planned: int | None = None
    decided: int | None = None
    visible: int | None = None


class Costs(NamedTuple):
    """Costs of one transaction; None where the system does not count."""

    participants: int | None = None
    requests: float | None = None
    messages: float | None = None
    appends: float | None = None
    syncs: float | None = None
    hops: int | None = None
    hops_visible: int | None = None
    client_bytes: int | None = None
    tablet_bytes: int | None = None


class Counters(NamedTuple):
    """Totals since the system was opened; None where the system does not count.

    `steps` counts durable changes by their cause; `links` counts bytes by link.
    `entries` counts different pairs of a turn and a tablet that appended in it.
    """

    transactions: int = 0
    requests: float | None = None
    messages: float | None = None
    appends: float | None = None
    syncs: int | None = None
    disk_bytes: int | None = 0
    client_bytes: int | None = None
    tablet_bytes: int | None = None
    steps: Mapping[str, int] | None = None
    links: Mapping[str, int] | None = None
    entries: int | None = None

    def since(self, before: "Counters") -> "Counters":
        """Returns the differences from earlier totals of the same system."""
        return Counters(*map(_difference, self, before))

    def per(self, name: str, transactions: int) -> float | None:
        """Returns a total for each of `transactions`; None where it is not counted, or there are none."""
        total: float | None = getattr(self, name)
        return total / transactions if total is not None and transactions else None


def _difference(now: Any, before: Any) -> Any:
    if now is None or before is None:
        return None
    if isinstance(now, Mapping):
        return {name: count - before.get(name, 0) for name, count in now.items()}
    return now - before


class Setting(NamedTuple):
    """A setting's name and value, with its name and default in the product that the mode follows, or ""."""

    name: str
    value: Any
    original_name: str = ""
    original_default: Any = ""


SETTING_KEYS = ("name", "value", "kafka_name", "kafka_default")
"""JSON keys of a setting's four fields. They say "kafka" for every original: Kafka was the only one at first."""


class Work(ABC):
    """One transaction of one thread. Every method but `flush` and `commit` may raise Cancelled too."""

    id: str

    @abstractmethod
    def read(self, topic: str, partition: int, max_records: int) -> Chunk:
        """Reads a partition's next records for the worker's consumer; its position moves with the commit."""

    @abstractmethod
    def write(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """Writes records to `partition`, or each to the partition of its key."""

    @abstractmethod
    def flush(self) -> None:
        """Returns when the records written so far are durable, staged or in place. Impossible without STAGING."""

    @abstractmethod
    def add(self, table: str, key: str, n: int) -> None:
        """Adds to a counter."""

    @abstractmethod
    def get(self, table: str, key: str) -> Any: ...

    @abstractmethod
    def put(self, table: str, key: str, value: Any) -> None: ...

    @abstractmethod
    def commit(self) -> Certificate:
        """Commits. Cancelled when the transaction had no effect, Unknown when that is not known."""

    @abstractmethod
    def rollback(self) -> None: ...


class PollResult(NamedTuple):
    """Records of one partition that a follower got at once; `offsets` has one for each value."""

    partition: int
    offsets: Sequence[int]
    values: list[bytes]


Write = Callable[[Sequence[bytes], Sequence[bytes | None] | None, int | None], None]
"""Writes values, with keys or None, to a partition, or each to the partition of its key. It returns when the
records are durable and can be read."""
Poll = Callable[[float], list[PollResult]]
"""Waits for records, at most so many seconds."""


class System(ABC):
    """A system under test. Threads share it; a worker, a writer, a follower and the verifier are one thread each.

    `missing` maps each missing feature (TABLES …) to a sentence that says so. `ended_by` lists what ends a
    transaction that a worker left open while others wait for it: TIME_OUT, or SAME_NAME, the next worker of that
    name.
    """

    name: str
    missing: Mapping[str, str]
    ended_by: tuple[str, ...] = ()
    mode: str = ""
    """The mode, if the system is this engine."""
    sends_itself = False
    """Whether records that a transaction has written go ahead of its commit without a flush, in batches."""
    individual = False
    """Whether consumers acknowledge records one by one, in place of a position."""

    @abstractmethod
    def prepare(self, topics: Mapping[str, int], tables: Iterable[str] = ()) -> None:
        """Creates topics, with their numbers of partitions, and tables; those that exist stay."""

    @abstractmethod
    def worker(self, name: str, consumer: str, number: int = 0) -> Callable[[], Work]:
        """Returns a function that begins the transactions of worker `number`, from 0, one after the other.

        Where state is kept in partitions, the number is also the worker's partition. The name stays with the work.
        """

    def fetch_ahead(self, name: str, topic: str, partitions: Sequence[int]) -> None:
        """Tells which partitions the worker of that name will read, for a client that fetches them ahead.

        It returns when such a client has the first one's first records: it runs as it does in a long life.
        """
        return

    @abstractmethod
    def writer(self, topic: str) -> Write:
        """Returns a writer without transactions, in the system's best way: idempotent where it can."""

    @abstractmethod
    def follower(self, topic: str) -> Poll:
        """Returns a reader of committed records of all partitions, from the topic's present end on."""

    @abstractmethod
    def counters(self) -> Counters: ...

    def sampled(self) -> Counters:
        """Returns the counters for a sample amid the work: it holds up no worker, and syncs may lag by a second."""
        return self.counters()

    def pids(self) -> Sequence[int]:
        """Returns the processes of servers that work for this system; their children count as theirs."""
        return ()

    def moments(self, tx: str) -> Moments:
        """Returns the phases of a recent transaction, by its id; `visible` may become known later."""
        return Moments()

    def costs(self, tx: str) -> Costs:
        return Costs()

    def snapshot_bytes(self, topic: str) -> int | None:
        """Returns the size of the stored snapshots of aborted ids; None where the system takes none."""
        return None

    @abstractmethod
    def settings(self) -> list[Setting]: ...

    @abstractmethod
    def records(self, topic: str, partition: int) -> Iterator[Chunk]:
        """Yields all committed records of a partition, in order."""

    @abstractmethod
    def rows(self, table: str) -> dict[str, Any]:
        """Returns all rows of a table, or the equivalent of its state."""

    @abstractmethod
    def position(self, topic: str, consumer: str, partition: int) -> int:
        """Returns the committed position, in a store that is open read-only."""

    def drop(self) -> None:
        """Removes what it has on a server that goes on; all else lies in its folder."""
        return

    @abstractmethod
    def close(self) -> None: ...
