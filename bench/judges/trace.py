"""Defines the trace of a benchmark run: transactions, operations and records, as Parquet files for the judges.

    run.json               schema 1; the cell, settings, seed, machine, bytes by link, durable steps
    transactions.parquet   one row for each that was begun
    operations.parquet     what they read, consumed, wrote and produced
    batches.parquet        pieces of work, from their due times to the times when they were read
    records.parquet        all records of the store at the end, read by the verifier
    inputs.parquet         … and of the topics that others are made of; may be missing
    seen.parquet           records that the follower got during the run, in its order
    lanes.parquet          the lane behind each number in `operations.lane`, `records.lane`, `seen.lane`
    resources.parquet      CPU, memory, bytes, every quarter of a second

Times are nanoseconds since the run's zero, by one monotonic clock. `tx` numbers the run's transactions from 0
in the order in which they were begun; each attempt is one. A record begins with its identity, 24 bytes:

    source   the partition of the input record which a transaction made into this one; a generated record's source
    ordinal  … and the number there; a generated record's own
    tx       number of the transaction that wrote it, -1 where records are passed on as they are

So a reader knows the transaction of a record without asking the engine, and a checker need not trust either.

Next: python/history.py, which judges it; ../compare/run_cell.py, which saves it.
"""

import gc
import json
import struct
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from planstep.errors import MissingExtra

SCHEMA = 1
IDENTITY_BYTES = 24
_IDENTITY = struct.Struct("<qqq")

CONSUME, PRODUCE, READ, WRITE = "consume", "produce", "read", "write"
COMMITTED, ABORTED, UNDETERMINED = "committed", "aborted", "undetermined"
TOPIC, CONSUMER, ROW = "topic", "consumer", "row"
INDIVIDUAL = "individual"


class Lane(NamedTuple):
    """A sequence with an order of its own: a partition, a consumer's positions in a partition, a row.

    TOPIC: name and partition. CONSUMER: "topic/consumer" and partition; the key is INDIVIDUAL where records are
    acknowledged one by one. ROW: table, -1, and the key as text.
    """

    kind: str
    name: str
    partition: int = -1
    key: str = ""


class Transaction(NamedTuple):
    """A transaction. `id` is the system's own; `step`, `n` its place if it has one, else `epoch` the producer's.

    begin       when its owner began
    staged      when the last of its writes was durable, staged or in place; None: with the commit
    proposed    when its owner asked for the commit
    planned     when its place was durable
    decided     when its outcome was durable
    visible     when others could read all of it
    reply       when its owner knew the outcome

    None where a system has no such moment, or does not report it. `participants`: number of tablets. `cause`: why
    it aborted. `requests` … `tablet_bytes`: its costs, None where the system does not count.
    """

    tx: int
    id: str
    worker: str
    outcome: str
    step: int | None = None
    n: int | None = None
    epoch: int | None = None
    participants: int | None = None
    begin: int | None = None
    staged: int | None = None
    proposed: int | None = None
    planned: int | None = None
    decided: int | None = None
    visible: int | None = None
    reply: int | None = None
    cause: str | None = None
    requests: float | None = None
    messages: float | None = None
    appends: float | None = None
    syncs: float | None = None
    hops: int | None = None
    hops_visible: int | None = None
    client_bytes: int | None = None
    tablet_bytes: int | None = None


class Operation(NamedTuple):
    """An operation of a transaction. Its fields depend on `op`:

    CONSUME   lane of CONSUMER, [begin, end) of offsets
    PRODUCE   lane of TOPIC, [begin, end) of offsets if the commit returned them, else -1, -1; `records`
    READ      lane of ROW; `version`: number of the transaction that wrote the value, -1: the initial one, or none
    WRITE     lane of ROW
    """

    tx: int
    op: str
    lane: int
    begin: int = -1
    end: int = -1
    records: int = 0
    version: int = -1


class Batch(NamedTuple):
    """A piece of work: `records` from `lane` (TOPIC), from `begin` on, `bytes` of payload.

    intended    when it was due
    written     when it was durable: staged, in place, or, without these, committed
    published   when it was visible
    read        when the last of its records had come to the follower

    None where that did not happen, or was not observed. `tx` is -1 for plain writes.
    """

    tx: int
    worker: str
    lane: int
    begin: int
    records: int
    bytes: int
    intended: int
    written: int | None = None
    published: int | None = None
    read: int | None = None


class Resources(NamedTuple):
    """Totals since the run's zero, except `rss_bytes`, which is current."""

    at: int
    cpu_seconds: float
    rss_bytes: int
    disk_bytes: int
    syncs: int
    client_bytes: int
    tablet_bytes: int


class Records:
    """Records by column: identities (see the module) and places. `at`, `poll`: only for the follower's."""

    __slots__ = ("at", "lane", "offset", "ordinal", "poll", "source", "tx")

    def __init__(self) -> None:
        self.lane = array("i")
        self.offset = array("q")
        self.source = array("q")
        self.ordinal = array("q")
        self.tx = array("q")
        self.poll = array("q")
        self.at = array("q")

    def __len__(self) -> int:
        return len(self.offset)

    def add(
        self,
        lane: int,
        offsets: Iterable[int],
        values: Sequence[bytes],
        poll: int = -1,
        at: int = -1,
    ) -> None:
        """Adds consecutive records of one partition."""
        count = len(values)
        sources, ordinals, txs = identities(values)
        self.lane.extend([lane] * count)
        self.offset.extend(offsets)
        self.source.extend(sources)
        self.ordinal.extend(ordinals)
        self.tx.extend(txs)
        if poll >= 0:
            self.poll.extend([poll] * count)
            self.at.extend([at] * count)


def identity(source: int, ordinal: int, tx: int = -1) -> bytes:
    """Returns the first bytes of a record, its identity."""
    return _IDENTITY.pack(source, ordinal, tx)


def identities(values: Sequence[bytes]) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Returns (sources, ordinals, txs) of records. ValueError for a record without identity."""
    head = array("q")
    head.frombytes(b"".join([value[:IDENTITY_BYTES] for value in values]))
    if len(head) != 3 * len(values):
        raise ValueError("a record without identity: shorter than 24 bytes")
    return head[0::3], head[1::3], head[2::3]


@contextmanager
def without_gc() -> Iterator[None]:
    """Turns off garbage collection in the block: it would scan millions of rows that stay, again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@dataclass
class Trace:
    """The trace of a run so far. Threads share it: each change is one `append`.

    Invariant: a transaction's operations are there once its row is.
    """

    transactions: list[Transaction] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    resources: list[Resources] = field(default_factory=list)
    records: Records = field(default_factory=Records)
    seen: Records = field(default_factory=Records)
    inputs: Records = field(default_factory=Records)
    """Input records, without `tx`: they were there before the run."""
    lanes: list[Lane] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    """The content of run.json."""

    def __post_init__(self) -> None:
        self._numbers = {lane: n for n, lane in enumerate(self.lanes)}
        self._lock = threading.Lock()
        self._next_tx = 0

    def lane(self, kind: str, name: str, partition: int = -1, key: str = "") -> int:
        """Returns the number of a lane; a new lane gets one."""
        lane = Lane(kind, name, partition, key)
        with self._lock:
            number = self._numbers.setdefault(lane, len(self.lanes))
            if number == len(self.lanes):
                self.lanes.append(lane)
        return number

    def next_tx(self) -> int:
        """Returns the number of a new transaction."""
        with self._lock:
            self._next_tx += 1
            return self._next_tx - 1

    # to and from Parquet -------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Writes the trace to a folder. MissingExtra without pyarrow."""
        pa, pq = _arrow()
        folder.mkdir(parents=True, exist_ok=True)
        tables = {name: _table(pa, kind, getattr(self, name)) for name, kind in ROWS.items()}
        for name, columns in RECORDS.items():
            tables[name] = _columns(pa, getattr(self, name), columns)
        for name, table in tables.items():
            pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
        about = json.dumps({"schema": SCHEMA, **self.about}, indent=1)
        (folder / "run.json").write_text(about + "\n")

    @classmethod
    @without_gc()
    def load(cls, folder: Path) -> "Trace":
        """Reads a trace. ValueError for another schema; OSError where a file is missing."""
        _, pq = _arrow()
        about = json.loads((folder / "run.json").read_text())
        if about.pop("schema", None) != SCHEMA:
            raise ValueError(f"{folder}: not a trace of schema {SCHEMA}")
        trace = cls(about=about)
        for name, kind in ROWS.items():
            columns = pq.read_table(folder / f"{name}.parquet").to_pydict()
            rows = zip(*(columns[field] for field in kind._fields), strict=True)
            getattr(trace, name).extend(map(kind._make, rows))
        for name in RECORDS:
            if name == "inputs" and not (folder / "inputs.parquet").exists():
                continue  # an older run has none
            table = pq.read_table(folder / f"{name}.parquet")
            for column in table.column_names:
                getattr(getattr(trace, name), column).extend(table[column].to_pylist())
        trace.__post_init__()
        trace._next_tx = max((row.tx + 1 for row in trace.transactions), default=0)
        return trace


ROWS: dict[str, Any] = {
    "transactions": Transaction,
    "operations": Operation,
    "batches": Batch,
    "resources": Resources,
    "lanes": Lane,
}
"""The tables that hold rows of these classes."""
_INPUT = ("lane", "offset", "source", "ordinal")
RECORDS = {"records": (*_INPUT, "tx"), "seen": (*_INPUT, "tx", "poll", "at"), "inputs": _INPUT}
"""The tables that hold records, with their columns: all are int64, except `lane`, an int32."""


def column_types(kind: Any) -> dict[str, type]:
    """Returns the type of each field of a class of rows: int, float or str, None left out."""
    return {
        name: next(one for one in (int, float, str) if one in (hint, *get_args(hint)))
        for name, hint in get_type_hints(kind).items()
    }


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("traces", "bench") from None
    return pa, pq


def _table(pa: Any, kind: Any, rows: Sequence[tuple[Any, ...]]) -> Any:
    types = {int: pa.int64(), float: pa.float64(), str: pa.string()}
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(kind._fields)
    wanted = column_types(kind).items()
    return pa.table(
        {n: pa.array(one, types[t]) for (n, t), one in zip(wanted, columns, strict=True)}
    )


def _columns(pa: Any, records: Records, names: Iterable[str]) -> Any:
    types = {"lane": pa.int32()}
    return pa.table(
        {name: pa.array(getattr(records, name), types.get(name, pa.int64())) for name in names}
    )
