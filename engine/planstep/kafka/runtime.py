"""The runtime of the Kafka-style mode: the same face's requests, done Kafka's way.

    write  ─▶ sent at once while few requests are on the way (linger 0), gathered otherwise
    commit ─▶ what is left is sent, positions, EndTxn ─▶ answered when the decision is durable, not when
              markers are written: what it wrote becomes visible after that
    plain writes ─▶ an idempotent producer without transactions

Clients stand outside of the hosts' turns (client.py): each request is an input of a turn, each answer
leaves when the turn is durable. What names topics is the deterministic half: the catalogue.

Next: client.py, producers.py, views.py.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import NotSupported
from ..inputs import Deliver, Released, Tick, Together, each_of
from ..interrupts import Uninterrupted
from ..modes import coordinator_of, group_of
from ..node import Ending, Waiter
from ..outcome import Commit, Outcome
from ..proto.ids import (
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
from ..proto.kafka import (
    Answer,
    DropPartition,
    ExpireProducers,
    Join,
    Leave,
    OffsetCommit,
    SwitchLog,
    TrimTo,
)
from ..proto.messages import PartitionPart
from ..proxy.kafka import UNKNOWN_END
from ..runtime import Runtime
from ..store import Store
from .client import Client
from .errors import kafka_error
from .producers import POOL, Open, Pool, Producer
from .schema import KafkaSchema
from .views import NO_PLACE, KafkaViews, Look

_OUTCOMES_KEPT = 10_000
_EXPIRE_EVERY_MS = 600_000
_LOOK_SECONDS = 0.0005
_CLOSE_SECONDS = 5.0
_PLAIN = (b"", 0, 0)
"""In the place of a writer's numbers: here the client numbers by itself."""


class KafkaRuntime(Runtime):
    """Invariants: a producer has one transaction at a time; `_open` holds a transaction from its first
    request to its end; all of this is guarded by the client's lock."""

    mode = "kafka"
    sends_at_once = True
    one_at_a_time = True
    views: KafkaViews

    def __init__(self, stores: list[Store], **settings: Any) -> None:
        self._open: dict[bytes, Open] = {}
        self._ended: dict[bytes, str] = {}  # the newest transactions' ends, in memory only
        self._producers: dict[str, Producer] = {}  # of workers, by transactional id
        self._assigned: dict[bytes, Producer] = {}
        self._pool = Pool()
        self._ready: dict[Producer, list[bytes]] = {}  # calls that wait for it to be initialized
        self._members = 0
        self._writes = not settings.get("read_only")
        self._expire_at = 0
        super().__init__(stores, **settings)
        self.in_order = False  # a commit's positions count only once it has ended
        self.schema = KafkaSchema(self)
        self.client = Client(self, self._proxy)
        if self._writes:
            for node in self.nodes:  # its coordinators go on where they were
                node.inbox.append(Tick())
                self._poke(node)

    def _views(self) -> KafkaViews:
        return KafkaViews(
            self.nodes,
            lambda: self._closed or self._stopped is not None,
            self.settings,
            self.rtt_ms,
        )

    def _tell_clients(self, released: Released) -> None:
        self.client.answered(released.answers)

    def _release(self, node: Any, released: Released) -> None:
        super()._release(node, released)
        if self.watches and released.visible:
            self.watches.wake(released.visible)

    def _raised(self, item: Any, error: BaseException) -> None:
        super()._raised(item, error)
        if isinstance(item, (Deliver, Together)):
            asked = [one for one in each_of(item) if hasattr(one.message, "client")]
            self.client.answered(
                [
                    (
                        one.message.client,
                        Answer(one.message.request, one.target, "UNKNOWN_SERVER_ERROR"),
                        one.cause,
                    )
                    for one in asked
                ]
            )

    # producers -----------------------------------------------------------------------------

    def producer(self, name: str) -> Producer:
        """A new incarnation of a transactional id: its first transaction fences whoever has it."""
        if name.startswith(POOL):
            raise ValueError(
                f"worker {name!r}: names that begin with {POOL!r} are those of transactions without a worker"
            )
        made = Producer(name)
        self._producers[name] = made
        return made

    def assign(self, tx: bytes, worker: "str | Producer | None") -> None:
        """Whose transaction it is. A worker's name stands for its newest incarnation; while that has a
        transaction open, for another one."""
        if isinstance(worker, str):
            found = self._producers.get(worker)
            if (
                found is None
                or found.dead is not None
                or (found.busy and not self._is_ending(found))
                or any(found is other for other in list(self._assigned.values()))
            ):
                found = self.producer(worker)
            worker = found
        if worker is not None:
            self._assigned[tx] = worker

    def ready(self, worker: str) -> None:
        """The worker's producer is initialized: what was left under its transactional id has ended."""
        self._check_open()
        found = self._producers.get(worker)
        if found is not None and found.handle is not None and found.dead is None:
            return
        if found is None or found.dead is not None:
            found = self.producer(worker)
        self._make_ready(found)

    def _make_ready(self, producer: Producer) -> None:
        tx = self.new_tx()
        with self.client.locked():
            waiter = self._waiting[tx] = Waiter(tx, 0, None)
            if producer.handle is not None or producer.dead is not None:  # since it was asked
                self._answers[tx] = Commit(tx, NO_PLACE, {})
            else:
                self._ready.setdefault(producer, []).append(tx)
                self._initialize(producer)
        self.client.deliver()
        self._wait_for(waiter, None)
        waiter.result()

    def _is_ending(self, producer: Producer) -> bool:
        opened = self._open.get(producer.tx) if producer.tx is not None else None
        return opened is None or bool(opened.ending)

    def forget(self, tx: bytes) -> None:
        """A transaction that never asked for anything has ended."""
        self._assigned.pop(tx, None)

    def fence(self, tx: bytes, consumer: str, generation: int, member: str) -> None:
        """The group metadata that go with the positions of this transaction (KIP-447)."""
        with self.client.locked():
            self._opened(tx).group[consumer] = (generation, member)

    def look(self, tx: bytes) -> Look:
        """What a transaction reads with: its producer's consumer keeps positions in memory. First the producer
        is initialized, so that nobody of its name before it can commit what is read; then it waits for
        positions that its former transactions are about to commit."""
        producer = self._assigned.get(tx) if self._writes else None
        if producer is not None and producer.handle is None and producer.dead is None:
            self._make_ready(producer)
        deadline = time.monotonic() + self.settings.max_block_ms / 1000
        while producer is not None and self._is_moving(producer, tx):
            self._check_open()
            if time.monotonic() > deadline:
                raise kafka_error("CONCURRENT_TRANSACTIONS", f"producer {producer.name!r}")
            time.sleep(_LOOK_SECONDS)
        return Look(None if producer is None else producer.positions, stable=True)

    def _is_moving(self, producer: Producer, tx: bytes) -> bool:
        with self.client.locked():
            before = [self._open.get(producer.tx or b""), *producer.waiting]
            return any(
                opened is not None
                and opened.tx != tx
                and opened.ending == "commit"
                and opened.positions
                for opened in before
            )

    def _opened(self, tx: bytes) -> Open:
        """Under the client's lock."""
        found = self._open.get(tx)
        if found is None:
            producer = self._assigned.pop(tx, None) or self._pool.take()
            found = self._open[tx] = Open(tx, producer)
            if producer.tx is None:
                producer.tx = tx
            else:
                producer.waiting.append(found)
            self._initialize(producer)
        return found

    def _initialize(self, producer: Producer) -> None:
        if producer.handle is None and not producer.initializing and producer.dead is None:
            producer.initializing = True
            self.client.init(producer.name, partial(self._initialized, producer))

    def _initialized(self, producer: Producer, error: str, handle: Any, detail: str) -> None:
        producer.initializing = False
        for tx in self._ready.pop(producer, ()):
            done = Commit(tx, NO_PLACE, {}) if not error else kafka_error(error, detail)
            self._answers[tx] = done
        if error:
            producer.dead = (error, detail)
            for opened in [self._open.get(producer.tx or b""), *producer.waiting]:
                if opened is not None:
                    self._end(opened, error, detail)
            return
        producer.handle = handle
        self._go_on(producer)

    def _go_on(self, producer: Producer) -> None:
        """Does what the producer's transaction wants, if it is initialized."""
        opened = self._open.get(producer.tx) if producer.tx is not None else None
        if opened is None or producer.handle is None:
            return
        if not opened.begun:
            opened.begun = True
            error = self.client.begin(producer.handle, opened.tx)
            if error:
                self._end(opened, error, "")
                return
        wants, opened.wants = opened.wants, []
        for want in wants:
            want(producer.handle)

    def _want(self, opened: Open, want: Any) -> None:
        opened.wants.append(want)
        producer = opened.producer
        if producer.dead is not None:
            self._end(opened, *producer.dead)
        elif producer.tx == opened.tx:
            self._go_on(producer)

    # transactions --------------------------------------------------------------------------

    def may_send(self, tx: bytes) -> bool:
        """Fewer requests are on the way than may be: what is written now is sent at once."""
        return self.client.outstanding(tx) < self.settings.max_in_flight

    def send_ahead(self, tx: bytes, slices: dict[int, tuple[int, Any]]) -> None:
        """Sends batches to their partitions, where they are written in place; does not wait for it.

        Overloaded: nothing of it was sent.
        """
        batches = {tablet: pieces for tablet, (_, pieces) in slices.items()}
        self.client.admit(tx, batches, None)
        with self.client.locked():
            opened = self._opened(tx)
            self._want(opened, partial(self._produce, opened, batches))
        self.client.deliver()

    def _produce(self, opened: Open, batches: Any, handle: int) -> None:
        self.client.send(handle, opened.tx, batches)

    def rollback(self, tx: bytes) -> None:
        """Aborts; does not wait for it."""
        if self._closed:
            return
        with self.client.locked():
            self._assigned.pop(tx, None)
            opened = self._open.get(tx)
            if opened is None or opened.ending:
                return
            opened.ending = "abort"
            for consumer, tablet in opened.positions:
                opened.producer.positions.pop((consumer, tablet), None)
            self._want(opened, partial(self._abort, opened))
        self.client.deliver()

    def _abort(self, opened: Open, handle: int) -> None:
        self.client.abort(handle, opened.tx, partial(self._ended_call, opened))

    def commit(self, tx: bytes, parts: dict[int, Any], timeout: float | None = None) -> Commit:
        if any(kind_of(tablet) == CATALOGUE for tablet in parts):
            return super().commit(tx, parts, timeout)
        waiter = self._ask(tx, parts, None, timeout)
        self._wait_for(waiter, timeout)
        if waiter.answer is None:
            raise self._undetermined(tx, timeout)
        return waiter.result()

    def send(
        self, tx: bytes, parts: dict[int, Any], ending: Ending, wait: float | None = 0.0
    ) -> None:
        if any(kind_of(tablet) == CATALOGUE for tablet in parts):
            super().send(tx, parts, ending, wait)
        else:
            self._ask(tx, parts, ending, wait)

    def _ask(
        self, tx: bytes, parts: dict[int, Any], ending: Ending | None, wait: float | None
    ) -> Waiter:
        self._check_open()
        batches, positions, plain = _sorted_out(parts)
        self.client.admit(tx, batches, wait)
        with self.client.locked():
            waiter = self._waiting[tx] = Waiter(tx, 0, ending)
            if plain is not None:
                plain(self, tx, batches)
            else:
                self._commit(tx, batches, positions)
        self.client.deliver()
        if self._stopped is not None:  # since it was asked above
            self._give_up(self._stopped)
            self._answer()
        return waiter

    def _commit(self, tx: bytes, batches: Any, positions: dict[str, dict[int, int]]) -> None:
        opened = self._opened(tx)
        opened.ending = "commit"
        if batches:
            self._want(opened, partial(self._produce, opened, batches))
        offsets = {}
        for consumer, moved in positions.items():
            generation, member = opened.group.get(consumer, (-1, ""))
            offsets[consumer] = (generation, member, tuple(moved.items()))
            for tablet, offset in moved.items():
                opened.positions[consumer, tablet] = offset
        self._want(opened, partial(self._end_commit, opened, offsets))

    def _end_commit(self, opened: Open, offsets: Any, handle: int) -> None:
        self.client.commit(handle, opened.tx, offsets, partial(self._ended_call, opened))

    def _ended_call(self, opened: Open, error: str, value: Any, detail: str) -> None:
        """The client's call has ended: under its lock."""
        if error:
            self._end(opened, error, detail)
            return
        producer = opened.producer
        if opened.ending == "commit":
            producer.positions.update(opened.positions)
            self._ended_as(opened.tx, "committed")
            details = {tablet: span for tablet, span in value[1].items()}
            answer = Commit(opened.tx, NO_PLACE, details, self.names.of_tablet, value[0])
            self._answer_call(opened.tx, answer)
        else:
            self._ended_as(opened.tx, "aborted")
        self._free(opened)

    def _end(self, opened: Open, error: str, detail: str) -> None:
        """Its end is an error, of the producer's or its own."""
        for key in opened.positions:
            opened.producer.positions.pop(key, None)
        unknown = error == "REQUEST_TIMED_OUT" or detail == UNKNOWN_END
        state = "undetermined" if unknown else "aborted"
        self._ended_as(opened.tx, state)
        if error == "REQUEST_TIMED_OUT" and opened.producer.dead is None and opened.ending:
            # What it asked for goes on: nobody else may write under this incarnation meanwhile.
            opened.producer.dead = (error, detail)
            if opened.producer.handle is not None:
                self.client.drop(opened.producer.handle)
        if opened.ending == "commit":
            if state == "undetermined":
                self._answer_call(
                    opened.tx, self._undetermined(opened.tx, self.settings.max_block_ms / 1000)
                )
            else:
                self._answer_call(opened.tx, kafka_error(error, detail))
        elif not opened.ending:
            return  # its owner will hear of it when it commits
        self._free(opened)

    def _free(self, opened: Open) -> None:
        producer = opened.producer
        self._open.pop(opened.tx, None)
        self.client.let_go(opened.tx)
        if producer.dead is None and producer.handle is not None:
            producer.dead = self.client.dead(producer.handle)
        if producer.tx != opened.tx:
            producer.waiting = [other for other in producer.waiting if other is not opened]
            return
        producer.tx = None
        if producer.dead is not None:
            for other in list(producer.waiting):
                if other.ending:
                    self._end(other, *producer.dead)
        elif producer.waiting:
            following = producer.waiting.pop(0)
            producer.tx = following.tx
            self._go_on(producer)
            return
        if producer.pooled:
            self._pool.give(producer)

    def _answer_call(self, tx: bytes, answer: Commit | BaseException) -> None:
        if isinstance(answer, Commit):
            self.committed += 1
        else:
            self.conflicts += 1
            cause = getattr(answer, "name", type(answer).__name__)
            self.aborted[cause] = self.aborted.get(cause, 0) + 1
        self._answers[tx] = answer

    def _ended_as(self, tx: bytes, state: str) -> None:
        self._ended[tx] = state
        while len(self._ended) > _OUTCOMES_KEPT:
            del self._ended[next(iter(self._ended))]

    def outcome(self, tx: bytes | str) -> Outcome:
        """What this engine remembers: the log knows producers and epochs, not transactions."""
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        state = self._ended.get(tx)
        if state is None:
            state = "open" if tx in self._open or tx in self._waiting else "unknown"
        return Outcome(tx_text(tx), state, None, 0, ())

    def statement(self, parts: dict[int, Any]) -> dict[int, Any]:
        """A write by itself is a plain one: no transaction."""
        return {
            tablet: part._replace(producer=_PLAIN) if isinstance(part, PartitionPart) else part
            for tablet, part in parts.items()
        }

    # plain requests ------------------------------------------------------------------------

    def _write_plain(self, tx: bytes, batches: Any) -> None:
        self.client.plain(tx, batches, partial(self._ended_plain, tx))

    def _ended_plain(self, tx: bytes, error: str, value: Any, detail: str) -> None:
        self.client.let_go(tx)
        if error:
            self._answer_call(tx, kafka_error(error, detail))
        else:
            self._answer_call(tx, Commit(tx, NO_PLACE, value, self.names.of_tablet))

    def _trim(self, tablet: int, offset: int, tx: bytes, batches: Any) -> None:
        self.client.ask(tx, tablet, partial(_trim_to, offset), partial(self._ended_ask, tx))

    def _ended_ask(self, tx: bytes, error: str, value: Any, detail: str) -> None:
        if error:
            self._answer_call(tx, kafka_error(error, detail))
        else:
            self._answers[tx] = Commit(tx, NO_PLACE, {0: value})

    def request(self, target: int, make: Any) -> Any:
        """One request of an administrator or group member, waited for; its answer's value."""
        self._check_open()
        tx = self.new_tx()
        with self.client.locked():
            waiter = self._waiting[tx] = Waiter(tx, 0, None)
            self.client.ask(tx, target, make, partial(self._ended_ask, tx))
        self.client.deliver()
        self._wait_for(waiter, None)
        return waiter.result().details[0]

    def commit_positions(self, consumer: str, offsets: dict[int, int | None]) -> None:
        """Moves or forgets positions outside of transactions, as an administrator does."""
        moved = tuple(offsets.items())

        def make(client: int, request: int) -> OffsetCommit:
            return OffsetCommit(client, request, consumer, -1, "", moved)

        self.request(group_of(consumer, self.hosts), make)
        for producer in list(self._producers.values()):
            for tablet in offsets:
                producer.positions.pop((consumer, tablet), None)

    def join(self, consumer: str, name: str) -> tuple[int, str]:
        """A member joins a group: (generation, member)."""
        with self.client.locked():
            self._members += 1
            member = f"{name or 'reader'}-{self.generation}-{self._members}"
        return self.rejoin(consumer, member), member

    def rejoin(self, consumer: str, member: str) -> int:
        """The generation that a member belongs to now."""
        made = self.request(
            group_of(consumer, self.hosts),
            lambda client, request: Join(client, request, consumer, member),
        )
        generation: int = made[0]
        return generation

    def leave(self, consumer: str, member: str) -> None:
        """A member leaves, or is let go; does not wait for it."""
        if self._closed:
            return
        tx = self.new_tx()
        target = group_of(consumer, self.hosts)

        def make(client: int, request: int) -> Leave:
            return Leave(client, request, consumer, member)

        with self.client.locked():
            self.client.ask(tx, target, make, lambda *_: None)
        self.client.deliver()

    def switch_log_batching(self, on: bool) -> None:
        for tablet in self._coordinators():
            self.tell(tablet, SwitchLog(on))

    def _coordinators(self) -> list[int]:
        kinds = (TRANSACTIONS, GROUPS)
        return [tablet_id(kind, number, 0) for kind in kinds for number in range(self.hosts)]

    def stats(self) -> dict[str, Any]:
        """As in every mode; `coordinator_logs`: the buffered writers' counters (coordinator/batched_log.py), of
        transaction and of group coordinators, all hosts together."""
        found = super().stats()
        logs: dict[str, dict[str, Any]] = {"transactions": {}, "groups": {}}
        for tablet in self._coordinators():
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

    def tidy(self, now_ms: int) -> None:
        """Producers that were idle for producer_id_expiration_ms are forgotten; looked at now and then."""
        if now_ms < self._expire_at:
            return
        self._expire_at = now_ms + _EXPIRE_EVERY_MS
        oldest = ExpireProducers(now_ms - self.settings.producer_id_expiration_ms)
        for topic in list(self.names.topics.values()):
            for tablet in topic.partitions:
                self.tell(tablet, oldest)
        for tablet in self._coordinators():
            if kind_of(tablet) == GROUPS:
                self.tell(tablet, oldest)

    def drop_partitions(self, tablets: tuple[int, ...]) -> None:
        for tablet in tablets:
            self.tell(tablet, DropPartition())

    def coordinator_of(self, name: str) -> int:
        return coordinator_of(name, self.hosts)

    def group_of(self, group: str) -> int:
        return group_of(group, self.hosts)

    def close(self) -> None:
        """Commits under way go on to their end, and open transactions are aborted, as Kafka's producer does when
        it is closed: else readers would wait for the time-out of what nobody can end."""
        if not self._closed:
            for tx in list(self._open):
                self.rollback(tx)
            deadline = time.monotonic() + _CLOSE_SECONDS
            while (self._open or self._waiting) and self._stopped is None:
                if time.monotonic() > deadline:
                    break
                time.sleep(_LOOK_SECONDS)
        with Uninterrupted():
            self.client.close()
        super().close()


def _trim_to(offset: int, client: int, request: int) -> TrimTo:
    return TrimTo(client, request, offset)


def _sorted_out(parts: dict[int, Any]) -> tuple[dict[int, Any], dict[str, dict[int, int]], Any]:
    """(batches, positions by consumer, what to do instead of a transaction) of a transaction's parts."""
    batches: dict[int, Any] = {}
    positions: dict[str, dict[int, int]] = {}
    plain: Callable[[KafkaRuntime, bytes, Any], None] | None = None
    for tablet, part in parts.items():
        if kind_of(tablet) != PARTITION:
            raise NotSupported('mode "kafka" has no tables: mode "deterministic" has them')
        assert isinstance(part, PartitionPart)
        if part.acks:
            raise NotSupported(
                'mode "kafka" has no individual consumers: mode "deterministic" has them'
            )
        if part.trim is not None:
            plain = partial(_call, KafkaRuntime._trim, tablet, part.trim)
        if part.producer is not None:
            plain = KafkaRuntime._write_plain
        if part.slices:
            batches[tablet] = part.slices
        for consumer, _, end in part.ranges:
            positions.setdefault(consumer, {})[tablet] = end
    return batches, positions, plain


def _call(method: Any, tablet: int, offset: int, runtime: KafkaRuntime, tx: bytes, _: Any) -> None:
    method(runtime, tablet, offset, tx, _)
