"""The runtime of the Kafka-style mode: the same face's requests, done Kafka's way.

    write  ─▶ sent at once while few requests are on the way, gathered otherwise, and for linger_ms
    commit ─▶ what is left is sent, positions, EndTxn ─▶ answered when the decision is durable, not when
              markers are written: what it wrote becomes visible after that
    plain writes ─▶ an idempotent producer without transactions

Clients stand outside of the hosts' turns (../core_client.py): each request is an input of a turn, each answer
leaves when the turn is durable. What names topics is the deterministic half: the catalogue.

Next: hooks.py, producer_sessions.py, requests.py, views.py.
"""

import time
from typing import Any, NamedTuple

from ...errors import NotSupported, PlanstepError
from ...host.inputs import Tick
from ...host.modes import coordinator_of, group_of
from ...proto.ids import (
    CATALOGUE,
    GROUPS,
    PARTITION,
    TRANSACTIONS,
    host_of,
    kind_of,
    tablet_id,
    tx_parse,
    tx_text,
)
from ...proto.kafka.messages import Produce
from ...proto.kafka.settings import KafkaSettings
from ...proto.messages import PartitionPart
from ...proxy.kafka import client as core
from ...store import Store
from ..core_client import Client
from ..deferred_signals import Uninterrupted, room_for_a_turn
from ..group_commit import Ending, Waiter
from ..open_transactions import OpenTransaction
from ..outcome import Commit, Outcome
from ..runtime import Runtime
from ..snapshot_reads import Snapshot
from .batches import bounded
from .hooks import PLAIN, KafkaHooks
from .numbers import Numbers
from .producer_sessions import LOOK_SECONDS, Writing
from .requests import Requests
from .schema import KafkaSchema
from .views import KafkaViews

_CLOSE_SECONDS = 5.0


class KafkaRuntime(Runtime):
    """What the face asks for, handed to those who do it: producer_sessions.py, requests.py, views.py."""

    hooks_type = KafkaHooks
    settings: KafkaSettings
    views: KafkaViews

    def __init__(self, stores: list[Store], **settings: Any) -> None:
        self.writes = not settings.get("read_only")
        self.lingering: dict[bytes, float] = {}  # tx → since when what it wrote waits, ms
        super().__init__(stores, **settings)
        self.in_order = False  # a commit's positions count only once it has ended
        try:
            self.schema = KafkaSchema(self)
            made = core.Client(self._proxy, self.settings, self.coordinator_of, self.group_of)
            self.client = Client(self, self._proxy, made, Produce)
            self.writing = Writing(self)
            self.client.pumped = self.writing.end_flushes
            self.requests = Requests(self)
            self.numbers = Numbers(self)
            self.turns.clients = self.client
            if self.writes:
                for node in self.nodes:  # its coordinators go on where they were
                    self.turns.put(node, Tick())
        except BaseException:
            self._end_threads()
            raise

    def _views(self) -> KafkaViews:
        return KafkaViews(
            self.nodes, self.turns.check_open, self.settings, self.rtt_ms, self.writes
        )

    # transactions --------------------------------------------------------------------------

    def look(self, tx: bytes) -> Snapshot:
        return self.writing.look(tx) if self.writes else self.views.snapshot()

    def last_sequence(self, snap: Snapshot, tablet: int, producer: bytes) -> int | None:
        return self.numbers.last(snap, tablet, producer)

    def send_ahead(self, tx: bytes, slices: dict[int, tuple[int, Any]]) -> None:
        room_for_a_turn()
        self.lingering.pop(tx, None)
        self.writing.send_ahead(tx, slices)

    def rollback(self, tx: bytes) -> None:
        self.lingering.pop(tx, None)
        self.writing.rollback(tx)

    def commit(self, tx: bytes, parts: dict[int, Any], timeout: float | None = None) -> Commit:
        if any(kind_of(tablet) == CATALOGUE for tablet in parts):
            return super().commit(tx, parts, timeout)
        if any(part.producer not in (None, PLAIN) for part in parts.values()):
            return self.numbers.commit(tx, parts, timeout)
        return self._waited(tx, self._ask(tx, _sorted_out(parts), None, timeout), timeout)

    def commit_moving(
        self, tx: bytes, parts: dict[int, PartitionPart], group: str, timeout: float | None
    ) -> Commit:
        """A writer's transaction: its records, and the numbers behind them as a group's positions."""
        batches: dict[int, Any] = {tablet: part.slices for tablet, part in parts.items()}
        moved = {tablet: part.producer[2] + 1 for tablet, part in parts.items() if part.producer}
        asked = _Asked(batches, {group: moved}, False, None)
        return self._waited(tx, self._ask(tx, asked, None, timeout), timeout)

    def _waited(self, tx: bytes, waiter: Waiter, timeout: float | None) -> Commit:
        self.threads.wait_for(waiter, timeout)
        if waiter.answer is None:
            raise self.undetermined(tx, timeout)
        return waiter.result()

    def send(
        self, tx: bytes, parts: dict[int, Any], ending: Ending, wait: float | None = 0.0
    ) -> None:
        if any(kind_of(tablet) == CATALOGUE for tablet in parts):
            super().send(tx, parts, ending, wait)
        else:
            self._ask(tx, _sorted_out(parts), ending, wait)

    def _ask(self, tx: bytes, asked: "_Asked", ending: Ending | None, wait: float | None) -> Waiter:
        self.turns.check_open()
        room_for_a_turn()
        self.lingering.pop(tx, None)
        batches = bounded(asked.batches, self.settings.batch_bytes)
        try:
            self.client.admit(tx, batches, wait)
            with self.client.locked():
                waiter = self.replies.waiting[tx] = Waiter(tx, 0, ending)
                if asked.trim is not None:
                    self.requests.trim(tx, *asked.trim)
                elif asked.plain:
                    self.requests.write(tx, batches)
                else:
                    self.writing.commit(tx, batches, asked.positions)
        except (PlanstepError, RecursionError):
            raise
        except BaseException:
            if (
                tx not in self.replies.waiting
            ):  # interrupted before it was sent: nobody else would end it
                self.rollback(tx)
            raise
        self.asked()
        return waiter

    def asked(self) -> None:
        """Hosts are told of a call, and it is told if the engine has stopped since it was asked for."""
        self.client.deliver()
        if self.turns.stopped is not None:
            self.replies.give_up(self.turns.stopped)
            self.replies.answer()

    def answer_call(self, tx: bytes, answer: Commit | BaseException) -> None:
        """A call has ended: under the client's lock; whoever holds it delivers."""
        if isinstance(answer, Commit):
            self.turns.committed += 1
        else:
            self.count_aborted(getattr(answer, "name", type(answer).__name__))
        self.replies.answers[tx] = answer

    def count_aborted(self, cause: str) -> None:
        self.turns.conflicts += 1
        self.turns.aborted[cause] = self.turns.aborted.get(cause, 0) + 1

    def outcome(self, tx: bytes | str) -> Outcome:
        """What this engine remembers: the log knows producers and epochs, not transactions."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        state = self.writing.ended.get(tx)
        if state is None:
            state = "open" if tx in self.writing.open or tx in self.replies.waiting else "unknown"
        return Outcome(tx_text(tx), state, None, 0, ())

    def transactions(self, limit: int = 100) -> list[Outcome]:
        raise _unknown_transactions()

    def open_transactions(self) -> list[OpenTransaction]:
        raise _unknown_transactions()

    def resolve(self, tx: bytes | str) -> Outcome:
        raise _unknown_transactions()

    def coordinators(self) -> list[int]:
        kinds = (TRANSACTIONS, GROUPS)
        return [tablet_id(kind, number, 0) for kind in kinds for number in range(self.hosts)]

    def stats(self) -> dict[str, Any]:
        """As in every mode; `coordinator_logs`: the buffered writers' counters (proto/batched_log.py), of
        transaction and of group coordinators, all hosts together."""
        found = super().stats()
        logs: dict[str, dict[str, Any]] = {"transactions": {}, "groups": {}}
        for tablet in self.coordinators():
            node = self.nodes[host_of(tablet)]
            counters = None if node.down else node.host.log_counters(tablet)
            total = logs["transactions" if kind_of(tablet) == TRANSACTIONS else "groups"]
            for name, value in (counters or {}).items():
                known = total.get(name)
                if known is None:
                    total[name] = value
                elif isinstance(value, list):
                    total[name] = [a + b for a, b in zip(known, value, strict=True)]
                else:
                    total[name] = known + value
        return {**found, "coordinator_logs": logs}

    def coordinator_of(self, name: str) -> int:
        return coordinator_of(name, self.hosts)

    def group_of(self, group: str) -> int:
        return group_of(group, self.hosts)

    def close(self) -> None:
        """Commits under way go on to their end, and open transactions are aborted, as Kafka's producer does when
        it is closed: else readers would wait for the time-out of what nobody can end."""
        if not self.turns.closed:
            for tx in list(self.writing.open):
                self.rollback(tx)
            deadline = time.monotonic() + _CLOSE_SECONDS
            while (self.writing.open or self.replies.waiting) and self.turns.stopped is None:
                if time.monotonic() > deadline:
                    break
                time.sleep(LOOK_SECONDS)
        with Uninterrupted():
            self.client.close()
        super().close()


def _unknown_transactions() -> NotSupported:
    return NotSupported(
        'in mode "kafka" the log knows producers and epochs, not transactions: '
        "db.transactional_ids() tells how they stand, `planstep tx resolve` ends one"
    )


class _Asked(NamedTuple):
    """A transaction's parts, as this mode does them."""

    batches: dict[int, Any]
    positions: dict[str, dict[int, int]]
    plain: bool
    """Without a transaction."""
    trim: tuple[int, int] | None
    """(tablet, offset): nothing else then."""


def _sorted_out(parts: dict[int, Any]) -> _Asked:
    batches: dict[int, Any] = {}
    positions: dict[str, dict[int, int]] = {}
    plain, trim = False, None
    for tablet, part in parts.items():
        if kind_of(tablet) != PARTITION:
            raise NotSupported('mode "kafka" has no tables: mode "deterministic" has them')
        assert isinstance(part, PartitionPart)
        if part.acks:
            raise NotSupported(
                'mode "kafka" has no individual consumers: mode "deterministic" has them'
            )
        if part.trim is not None:
            trim = (tablet, part.trim)
        plain = plain or part.producer is not None
        if part.slices:
            batches[tablet] = part.slices
        for consumer, _, end in part.ranges:
            positions.setdefault(consumer, {})[tablet] = end
    return _Asked(batches, positions, plain, trim)
