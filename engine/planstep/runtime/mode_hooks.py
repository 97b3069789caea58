"""Hooks that a mode may override; a runtime has one object of them. The defaults are mode "deterministic"'s.

    face, cli, reshard, spark ─ has_tables? join, fence … ─▶ runtime.hooks ─┬ ModeHooks: writers have no identities
                                                                            └ client_hooks.py ─▶ kafka/hooks.py

No caller asks which mode it is. A mode also makes its runtime's parts: views, schema, transactions, outcomes.

Next: transactions.py.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import NotSupported
from ..proto.ids import TxnID
from ..proto.messages import Parts
from ..proto.request_rules import RequestRules
from .administration import Administration, LogBatches
from .identity import ByName, Identity
from .outcomes import Outcomes
from .schema import Schema
from .snapshot_reads import Views
from .transactions import Transactions

if TYPE_CHECKING:
    from .processes.link import Link
    from .runtime import Runtime

CUMULATIVE, INDIVIDUAL = "cumulative", "individual"


class Redelivery(NamedTuple):
    """Gives the times after which a batch is handed out again. Its reader handed it back for `nack_seconds`, or has
    had it for `ack_timeout_seconds`, which is infinite for never."""

    nack_seconds: float
    ack_timeout_seconds: float


class ModeHooks:
    """Answers the face's questions about its mode; a mode may override each method and attribute."""

    mode = "deterministic"
    streams_writes = False
    """Writes of a transaction leave as they are written, before its commit."""
    reads_may_wait = False
    """Reads may wait for other transactions to end, or for their own producer, even with one host."""
    has_tables = True
    """The same transactions write tables and topics."""
    has_places = True
    """Commits have places in one order, and reads are as of a step of it."""
    request_rules: RequestRules | None = None
    """What clients send to tablets, in modes that have some."""
    acks: tuple[str, ...] = (CUMULATIVE, INDIVIDUAL)
    """The kinds of consumers: what one has consumed is a position, or any records."""
    redelivery: Redelivery | None = None
    """Batches may be handed back for a time, and held only for a time."""
    by_name: ByName | None = None
    """Lists open transactions where they are known by their writers' names, not by their own ids. `ready` ends
    one there."""

    by_txn_id = False
    """Coordinators give transactions ids of their own and list those that have not ended (`administration`)."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime

    # parts of the runtime in this mode ------------------------------------------------------

    def views(self) -> Views:
        runtime = self.runtime
        return Views(runtime.nodes, runtime.turns.check_open, runtime.rtt_ms)

    def schema(self) -> Schema:
        return Schema(self.runtime)

    def transactions(self) -> Transactions:
        return Transactions(self.runtime)

    def outcomes(self) -> Outcomes:
        return Outcomes(self.runtime)

    def begin(self) -> None:
        """Begins the mode's part once the runtime is complete except for its threads."""

    def own(self) -> None:
        """Begins the owner's part: this process has become the owner of a store to which it was attached."""

    def schema_over(self, link: "Link") -> Schema:
        """Makes the schema of a process that is attached: it changes names over the link."""
        return self.runtime.schema

    def reconnected(self) -> None:
        """Goes on with another owner of the store, this process or another one."""

    def name_here(self, name: str) -> str:
        """Returns the default name of workers in this process. Where names fence, two processes share none."""
        return name

    def client_left(self, incarnation: str) -> None:
        """Ends what a process that is gone has left open under names of its own; does not wait for that."""

    def takes(self, tablet: int) -> bool:
        """Returns whether clients send requests to this tablet."""
        return False

    def close(self) -> None:
        """Ends what the mode has under way while its hosts still take turns: the engine closes."""

    def stats(self) -> dict[str, Any]:
        """Returns the mode's own counters, for `db.stats()` beside those of statistics.py."""
        return {}

    # questions of the face ------------------------------------------------------------------

    @property
    def protocol_version(self) -> int | None:
        """The version in use of a protocol that has several versions, else None."""
        return None

    def assign(self, tx: bytes, worker: Any) -> None:
        """Assigns a transaction to a worker, in modes whose writers have identities."""

    def forget(self, tx: bytes) -> None:
        """Forgets a transaction that has ended without any request."""

    def may_send(self, tx: bytes, waiting_bytes: int, outboxes: Mapping[str, Any]) -> bool:
        """Returns whether to send now what a transaction has gathered: `waiting_bytes`, in a column per partition
        in each topic's outbox."""
        return False

    def statement(self, parts: Parts) -> Parts:
        """Returns the parts of a single write outside of a transaction, as this mode commits them."""
        return parts

    def fence(self, tx: bytes, consumer: str, generation: int, member: str) -> None:
        """Adds group metadata to the positions that a transaction commits."""

    def join(self, consumer: str, name: str) -> tuple[int, str] | None:
        """Joins a consumer group: returns (generation, member), None in a mode without groups."""
        return None

    def rejoin(self, consumer: str, member: str) -> int:
        raise AssertionError("no groups here")

    def leave(self, consumer: str, member: str) -> None:
        """Takes a member out of its group."""

    def producer(self, name: str) -> Any:
        """Makes a producer of this name, in modes whose writers have identities."""
        return None

    def made_up(self, producer: bytes) -> None:
        """Notes a writer's producer that has no name: nobody goes on under it in another process."""

    def take_over(self, producer: Any) -> None:
        """Ends what an earlier producer left open under this one's name."""

    def check_producer(self, producer: Any) -> None:
        """Raises the error of a producer that another one of its name has fenced: it can commit nothing more."""

    def ready(self, worker: str, alone: bool = False) -> None:
        """Ends what an earlier writer left open under this name, where writers have identities. `alone`: also what
        this engine has open under it."""

    def wait_stable(self, tablet: int) -> None:
        """Waits until everything committed in a partition can be read, in modes where that takes a while."""

    def check_exact(self) -> None:
        """Raises NotSupported in modes where a transaction cannot depend on the end of a log."""

    def one_at_a_time(self, individual: bool) -> bool:
        """Returns whether a reader of such a consumer has one transaction at a time."""
        return False

    def check_exclusive(self, busy: str = "") -> None:
        """Raises NotSupported in modes without exclusive consumers; else ConsumerBusy, if `busy` tells of another
        reader."""
        raise NotSupported(
            f'mode "{self.mode}" has no exclusive consumers: mode "pulsar" has them; here the readers of a '
            "consumer share its partitions"
        )

    def check_ack_each(self, individual: bool) -> None:
        """Raises NotSupported where records are not acknowledged one by one."""
        raise NotSupported(
            f'mode "{self.mode}" has no requests that acknowledge: mode "pulsar" has them'
        )

    def acknowledge_each(self, tx: bytes, tablet: int, consumer: str, offsets: list[int]) -> None:
        """Makes a transaction acknowledge these records one by one when it commits."""

    def check_individual(self) -> None:
        """Raises NotSupported in modes without individual consumers."""
        if INDIVIDUAL not in self.acks:
            raise NotSupported(
                f'mode "{self.mode}" has no individual consumers: mode "deterministic" has them'
            )

    def tidy(self, now_ms: int) -> None:
        """Forgets what a mode keeps for a limited time; called about once a second."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (where, what) for rows that contradict each other, or their log; for `planstep verify`."""
        return iter(())

    def log_batches(self) -> list[LogBatches]:
        """Reports on the logs of coordinators and subscriptions, in modes that have them."""
        raise self._no_logs()

    def switch_log_batching(self, on: bool, logs: str) -> None:
        """Switches the buffered writers of "transactions", "pending acks" or "both", durably."""
        raise self._no_logs()

    def _no_logs(self) -> NotSupported:
        return NotSupported(
            f'mode "{self.mode}" has no logs of coordinators: "kafka" and "pulsar" have them'
        )

    def txn_id(self, tx: bytes) -> TxnID | None:
        """Returns the id that a coordinator has given a transaction of this engine, in modes where one does."""
        return None

    @property
    def administration(self) -> Administration:
        """Looks into coordinators and partitions that keep transactions, in modes that have them."""
        raise NotSupported(
            f'mode "{self.mode}" keeps no transactions at coordinators and partitions as mode "pulsar" does'
        )

    def transactional_ids(self, only_open: bool) -> list[Identity]:
        raise NotSupported(f'mode "{self.mode}" has no transactional ids: "kafka" has them')

    def retire(self, producer: Any) -> None:
        """Tells that the owner of a producer begins no further transaction with it."""

    def flush(self, tx: bytes) -> None:
        """Waits until staged writes are durable, in modes where sending does not wait for that itself."""
