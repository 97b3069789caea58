"""Implements the hooks of modes whose clients stand outside of the hosts' turns, as those of a broker do.

    begin ─▶ core_client.py around the mode's core, `writing`, client_requests.py, client_transactions.py
    close ─▶ commits under way end and can be read, open transactions are aborted

Such a mode writes data in place before its transaction ends. So it has no places, no snapshots and no tables;
readers wait for the transactions that are open before them. A mode gives its core, errors and messages
(`ClientHooks`), and what it has of its own: identities, groups, positions.

Next: client_transactions.py.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import NotSupported, PlanstepError
from ..host.inputs import Tick
from ..proto.batched_log import BATCHING, switched
from ..proto.ids import PARTITION, host_of, kind_of, tablet_text
from ..proto.log_report import report
from ..proto.messages import AheadSlices, PartitionPart, Parts, Slices
from .administration import LogBatches
from .client_requests import ClientRequests
from .client_schema import ClientSchema
from .client_transactions import PLAIN, ClientTransactions, CommitRequest
from .core_client import Client
from .deferred_signals import Uninterrupted, room_for_a_turn
from .in_place_views import InPlaceViews
from .mode_hooks import ModeHooks
from .processes.owners_schema import OwnersSchema
from .runtime import Runtime
from .writer_numbers import WriterNumbers

if TYPE_CHECKING:
    from .processes.link import Link

LOOK_SECONDS = 0.0005
_CLOSE_SECONDS = 5.0
"""How long closing waits while nothing more ends. It adds up its own rests: in a process that stood still no host
had a turn either."""


class Writing(Protocol):
    """Keeps a mode's open transactions, guarded by the client's lock."""

    @property
    def open(self) -> Mapping[bytes, Any]:
        """From their first request to their ends."""

    @property
    def ended(self) -> Mapping[bytes, str]:
        """The ends of the newest ones, in memory only."""

    def assign(self, tx: bytes, worker: Any) -> None: ...
    def forget(self, tx: bytes) -> None: ...
    def send_ahead(self, tx: bytes, slices: AheadSlices) -> None:
        """Sends batches to their partitions, and does not wait for it. Overloaded: nothing was sent."""

    def flush(self, tx: bytes) -> None:
        """Waits until everything sent is written; raises the error when some of it was refused."""

    def end_flushes(self) -> None:
        """Answers flushes that are done; called after every change, under the client's lock."""

    def commit(self, tx: bytes, batches: Mapping[int, Slices], request: CommitRequest) -> None:
        """Commits, under the client's lock, and does not wait; the answer is `ClientTransactions.answer_call`."""

    def rollback(self, tx: bytes) -> None:
        """Aborts, and does not wait for it."""


class Gathering(NamedTuple):
    """Limits of what a transaction's writes wait for, as a producer's do.

    A batch leaves when it has `bytes`, or after `linger_ms`; at most `requests` of a transaction are on the way.
    """

    bytes: int
    linger_ms: float
    requests: int


class ClientHooks(ModeHooks, ABC):
    """Answers the face in a mode with clients outside of turns."""

    streams_writes = True
    reads_may_wait = True
    has_tables = False
    has_places = False
    client: Client[Any]
    writing: Writing
    requests: ClientRequests
    numbers: WriterNumbers
    client_transactions: ClientTransactions
    """The runtime's `transactions`, with this kind of mode's type; so is `in_place_views`."""
    in_place_views: InPlaceViews

    def __init__(self, runtime: Runtime, gathering: Gathering) -> None:
        super().__init__(runtime)
        self.gathering = gathering
        self._coordinators: dict[int, None] = {}
        self.lingering: dict[bytes, float] = {}  # tx → since when its writes wait, ms

    @property
    def writes(self) -> bool:
        """This process writes: as the store's owner, or over a link to it."""
        return not self.runtime.read_only or self.runtime.link is not None

    @abstractmethod
    def error(self, name: str, where: str = "") -> PlanstepError:
        """Makes the exception for an error name of the protocol's; `where` says what it is about."""

    @abstractmethod
    def new_client(self) -> Client[Any]:
        """Makes the client around the mode's core."""

    @abstractmethod
    def make_parts(self) -> None:
        """Makes `writing`, `requests`, `numbers` and the mode's other parts, which use `client`."""

    # parts of the runtime -------------------------------------------------------------------

    def views(self) -> InPlaceViews:
        return self.in_place_views

    def transactions(self) -> ClientTransactions:
        self.client_transactions = ClientTransactions(self)
        return self.client_transactions

    def begin(self) -> None:
        runtime = self.runtime
        self.client = self.new_client()
        self.make_parts()
        self.client.pumped = self.writing.end_flushes
        runtime.turns.client = self.client
        runtime.turns.clients[self.client.address] = self.client
        if not runtime.read_only:
            self.own()

    def own(self) -> None:
        for node in self.runtime.nodes:  # its coordinators resume their work
            self.runtime.turns.put(node, Tick())

    @abstractmethod
    def schema(self) -> ClientSchema: ...

    def schema_over(self, link: "Link") -> OwnersSchema:
        return OwnersSchema(self.runtime, link, self.schema())

    def reconnected(self) -> None:
        self.client.lost()

    def takes(self, tablet: int) -> bool:
        if kind_of(tablet) == PARTITION:
            return self.runtime.names.has_tablet(tablet)
        if tablet not in self._coordinators:
            self._coordinators = dict.fromkeys(self.coordinators())
        return tablet in self._coordinators

    @abstractmethod
    def coordinators(self) -> list[int]:
        """Returns the tablets of all coordinators."""

    def close(self) -> None:
        """Lets commits under way end, and aborts open transactions, as Kafka's producer does when it is closed.

        Else readers would wait for the time-outs of transactions that no client can end. Processes that only read
        would not see, until an owner opens the store again, what was committed and is not told everywhere.
        """
        if not self.runtime.turns.closed:
            for tx in list(self.writing.open):
                self.runtime.transactions.rollback(tx)
            self._wait_for_ends()
        with Uninterrupted():
            self.client.close()

    def _wait_for_ends(self) -> None:
        turns, patience, least = self.runtime.turns, _CLOSE_SECONDS, math.inf
        while patience > 0 and turns.stopped is None and (left := self._under_way()):
            # Below the least so far: what comes and goes, as trims that fail, must not keep it waiting.
            patience = _CLOSE_SECONDS if left < least else patience - LOOK_SECONDS
            least = min(least, left)
            time.sleep(LOOK_SECONDS)

    def _under_way(self) -> int:
        """Counts what has not ended: transactions, calls that wait, and tablets not told of an end."""
        untold = sum(map(self.up, self.untold()))
        return len(self.writing.open) + len(self.runtime.replies.waiting) + untold

    def untold(self) -> list[int]:
        """Returns the tablets that are yet to hear how a transaction ended whose caller was answered."""
        return []

    def up(self, tablet: int) -> bool:
        """Returns whether a tablet's host runs."""
        return not self.runtime.nodes[host_of(tablet)].down

    def log_counters(self, tablets: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Returns the counters of each tablet's buffered writer (proto/batched_log.py), numbered from 0; none in a
        process that only reads."""
        in_use = [(number, self.in_use(tablet)) for number, tablet in enumerate(tablets)]
        return {number: tablet.log.counters() for number, tablet in in_use if tablet is not None}

    def in_use(self, tablet: int) -> Any:
        """Returns a tablet with its memory, None while its host is stopped or has not used it."""
        node = self.runtime.nodes[host_of(tablet)]
        return None if node.down else node.host.in_use(tablet)

    @abstractmethod
    def logs(self) -> Iterator[tuple[str, str, int, bytes, bool]]:
        """Yields (logs of a sort, their owner, its tablet, its prefix, batched by the settings?) for each log."""

    def log_batches(self) -> list[LogBatches]:
        batches = []
        for logs, owner, tablet, prefix, setting in self.logs():
            if self.up(tablet):
                rows = self.in_place_views.rows(tablet)
                known = self.writes or rows.get(BATCHING) is not None
                batching = switched(rows, setting) if known else None
                batches.append(LogBatches(logs, owner, report(rows, batching, prefix)))
        return batches

    def partition_words(self, tablet: int) -> str:
        """Names a partition as errors do: "topic 'clicks', partition 3"."""
        kind, name, part = self.runtime.names.of_tablet(tablet)
        known = name != f"{tablet:#x}"
        return f"{kind} {name!r}, partition {part}" if known else tablet_text(tablet)

    # questions of the face ------------------------------------------------------------------

    def check_exact(self) -> None:
        raise NotSupported(
            f'mode "{self.mode}" has no conditions: exact=True needs mode "deterministic", which checks at the '
            "commit that there was no more"
        )

    def assign(self, tx: bytes, worker: Any) -> None:
        room_for_a_turn()
        self.writing.assign(tx, worker)

    def forget(self, tx: bytes) -> None:
        self.writing.forget(tx)

    def flush(self, tx: bytes) -> None:
        room_for_a_turn()
        self.writing.flush(tx)

    def wait_until_shown(self, tablet: int, seconds: float, error: str) -> None:
        """Waits until the transactions that have written so far have ended; raises the error after `seconds`."""
        self.runtime.look()
        end = self.in_place_views.whole_log(tablet)[1]
        deadline = time.monotonic() + seconds
        while self.in_place_views.log_bounds(tablet)[1] < end:
            self.runtime.turns.check_open()
            if time.monotonic() > deadline:
                raise self.error(error, self.partition_words(tablet))
            time.sleep(LOOK_SECONDS)
            self.runtime.look()

    def may_send(self, tx: bytes, waiting_bytes: int, outboxes: Mapping[str, Any]) -> bool:
        """Returns whether fewer requests than allowed are on the way, and batches are full or have lingered. Each
        write asks this; no timer sends them."""
        size, linger_ms, requests = self.gathering
        if self.client.outstanding(tx) >= requests:
            return False
        if not linger_ms:
            return True
        columns = sum(len(outbox.columns) for outbox in outboxes.values())
        if waiting_bytes >= columns * size:
            return True
        now_ms = 1000 * time.monotonic()
        return now_ms - self.lingering.setdefault(tx, now_ms) >= linger_ms

    def statement(self, parts: Parts) -> Parts:
        """Marks the parts of a single write as plain: no transaction."""
        return {
            tablet: part._replace(producer=PLAIN) if isinstance(part, PartitionPart) else part
            for tablet, part in parts.items()
        }
