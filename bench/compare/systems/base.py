"""What a system under test must do, whichever it is: topics, transactions over them, state, counters.

    System ─ prepare ─ load ─▶ worker() ─▶ begin() ─▶ Work: read, write, flush, add …, commit
                             ├▶ writer()     plain writes, without a transaction
                             ├▶ follower()   a reader of committed records that blocks
                             └▶ counters()   what all of it cost so far
    afterwards, closed and opened anew to look only:  System.records, System.rows

Workloads see this interface and nothing of any system. What a system cannot do it says in `missing`
before anything runs; a call for it raises Impossible.

Next: engine.py, sqlite.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...judges.python import ALLOWED_ELSEWHERE

TABLES, SNAPSHOTS, SHARED_ROWS, STAGING = "tables", "snapshots", "shared rows", "staging"
TIME_OUT, SAME_NAME = "time-out", "re-initialisation"


class Impossible(Exception):
    """The system has nothing of the kind."""


class Cancelled(Exception):
    """The transaction has ended without effect; `retryable`: run it again. `cause`: the error's name."""

    def __init__(self, cause: str, retryable: bool = True) -> None:
        super().__init__(cause)
        self.cause, self.retryable = cause, retryable


class Unknown(Exception):
    """Whether the transaction counts is not known."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a system is opened, of any kind; what one has not it ignores.

    durability  "full": acknowledged when it is on the disk; "os": when the operating system has it
    placement   "shared" or "separate"
    hosts       that tablets are spread over
    rtt         seconds there and back
    transaction_timeout_ms   after which a system that does such things ends a transaction that is open
    read_only   to look only
    """

    durability: str = "full"
    placement: str = "shared"
    hosts: int = 1
    rtt: float = 0.0
    transaction_timeout_ms: int = 60_000
    read_only: bool = False


class Taken(NamedTuple):
    """Records [begin, end) of a partition, with the offset of each; offsets may have gaps."""

    values: list[bytes]
    keys: list[bytes | None]
    begin: int
    end: int
    offsets: Sequence[int]


class Certificate(NamedTuple):
    """What a commit's reply says: a place, or the producer's epoch, where there is one; offsets by (topic,
    partition) where the reply has them."""

    step: int | None = None
    n: int | None = None
    epoch: int | None = None
    published: Mapping[tuple[str, int], tuple[int, int]] = {}


class Moments(NamedTuple):
    """time.monotonic_ns() of a transaction's phases; None where the system does not tell."""

    planned: int | None = None
    decided: int | None = None
    visible: int | None = None


class Costs(NamedTuple):
    """Of one transaction; None where the system does not count."""

    participants: int | None = None
    requests: float | None = None
    messages: float | None = None
    appends: float | None = None
    syncs: float | None = None
    hops: int | None = None
    hops_visible: int | None = None
    client_bytes: int | None = None
    tablet_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the system was opened. `steps`: durable changes by what caused them; `links`: bytes by link."""

    transactions: int = 0
    requests: float | None = None
    messages: float | None = None
    appends: float | None = None
    syncs: int | None = None
    disk_bytes: int = 0
    client_bytes: int | None = None
    tablet_bytes: int | None = None
    steps: Mapping[str, int] | None = None
    links: Mapping[str, int] | None = None


class Setting(NamedTuple):
    """A setting as it is used here; its name and its default in what the mode follows, "" where there is none."""

    name: str
    value: Any
    original_name: str = ""
    original_default: Any = ""


SETTING_KEYS = ("name", "value", "kafka_name", "kafka_default")
"""How the JSON names a setting's four, whatever the mode follows: the names are older than a second such mode."""


class Work(ABC):
    """One transaction of one thread. Every method but `flush` and `commit` may raise Cancelled too."""

    id: str

    @abstractmethod
    def read(self, topic: str, partition: int, max_records: int, timeout: float = 0.0) -> Taken:
        """The next records of a partition for the worker's consumer; its position moves with the commit."""

    @abstractmethod
    def write(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """To a partition, or each record by its key."""

    @abstractmethod
    def flush(self) -> None:
        """Returns when what was written is durable, on the side or in place. Impossible without STAGING."""

    @abstractmethod
    def add(self, table: str, key: str, n: int) -> None:
        """Adds to a counter."""

    @abstractmethod
    def get(self, table: str, key: str) -> Any: ...

    @abstractmethod
    def put(self, table: str, key: str, value: Any) -> None: ...

    @abstractmethod
    def commit(self) -> Certificate:
        """Cancelled when it did not, Unknown when that is not known."""

    @abstractmethod
    def rollback(self) -> None: ...


class Worker(ABC):
    """Who runs transactions, one after the other, under a name that stays with the work."""

    @abstractmethod
    def begin(self) -> Work: ...

    @abstractmethod
    def close(self) -> None: ...


class PlainWriter(ABC):
    """Writes without transactions, as the system does that best: idempotent where it has such a thing."""

    @abstractmethod
    def write(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None
    ) -> None:
        """Returns when they are durable and can be read."""


class Shown(NamedTuple):
    """What a follower got of one partition at once; `offsets` of each value."""

    partition: int
    offsets: Sequence[int]
    values: list[bytes]


class Follower(ABC):
    """A reader of committed records of all partitions of a topic, from where it ends now."""

    @abstractmethod
    def poll(self, timeout: float) -> list[Shown]:
        """Waits for records, at most `timeout` seconds."""


class System(ABC):
    """Threads share it; workers, writers and followers are each of one thread.

    `missing` maps what it does not have (TABLES …) to a sentence that says so. `ended_by`: where others wait for
    what a worker leaves open, what ends it: TIME_OUT; SAME_NAME, the next worker of that name.
    """

    name: str
    missing: Mapping[str, str]
    history: str = "none"
    """What its histories can be held to: one of judges.python.MODES."""
    allowed: tuple[str, ...] = ALLOWED_ELSEWHERE
    """Anomalies that its model allows."""
    ended_by: tuple[str, ...] = ()
    mode: str = ""
    """This engine's, if it is one."""

    @abstractmethod
    def prepare(self, topics: Mapping[str, int], tables: Iterable[str] = ()) -> None:
        """Makes topics (with partitions) and tables; what is there already stays."""

    @abstractmethod
    def load(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
    ) -> None:
        """Many records at once, before the clock runs."""

    @abstractmethod
    def worker(self, name: str, consumer: str, number: int = 0) -> Worker:
        """`number`: of the workers, from 0: where state is in partitions, its state is there."""

    @abstractmethod
    def writer(self, topic: str) -> PlainWriter: ...

    @abstractmethod
    def follower(self, topic: str) -> Follower: ...

    @abstractmethod
    def counters(self) -> Counters: ...

    def moments(self, tx: str) -> Moments:
        """Of a transaction of late, by its id; what is visible later may not be known at once."""
        return Moments()

    def costs(self, tx: str) -> Costs:
        return Costs()

    @abstractmethod
    def settings(self) -> list[Setting]: ...

    @abstractmethod
    def records(self, topic: str, partition: int) -> Iterator[Taken]:
        """All committed records of a partition, in order."""

    @abstractmethod
    def rows(self, table: str) -> dict[str, Any]:
        """All rows of a table, or what its state comes to."""

    @abstractmethod
    def position(self, topic: str, consumer: str, partition: int) -> int:
        """Committed."""

    @abstractmethod
    def close(self) -> None: ...
