"""The topic partition tablet of mode "kafka": appends data at once; markers then commit or abort it.

    offset    0 1 2   3 4     5        6 7     8
             │A A A│ │B B│ │commit A│ │A A│ │abort B│ …      A's second transaction is open: the last
                                       ╰ last stable offset   stable offset is 6, where readers of
                                                              committed data stop

Keys, behind the tablet's prefix:

    b<offset 8>    a batch, or a marker: `rows.Entry`
    p<producer 8>  (epoch, coordinator epoch, first offset of the open transaction or None, last timestamp,
                   ((first, last sequence, offset), … five at most), number of the last marker)   producer_state.py
    o<offset 8>    producer                    open transactions by their first offset
    a<offset 8>    (producer, first, last, last stable offset then)   aborted ones that had data, by their marker
    m              `rows.Bounds`               readers read it first
    x              the topic was dropped

Readers see released turns only, so the high watermark is the end. The last stable offset is the first
offset of the oldest open transaction, or the end. `m` is put last, after the rows that it covers.

In version 1 a transactional batch opens a transaction, whatever its coordinator thinks. A batch that arrives
late, behind its transaction's abort, opens one that no coordinator ends: the partition hangs for its readers
(KAFKA-9144, KAFKA-14053). Kafka does that, and so does this mode. In version 2 the partition first asks
the coordinator and holds the batch in memory meanwhile; a marker that arrives first refuses it. While the
coordinator is still ending the previous transaction, it is asked again every add_partitions_backoff_ms.
Held batches are keyed by (producer, epoch): in version 2 an epoch is one transaction. An answer that arrives
behind that transaction's marker finds the partition at a higher epoch.

Leaves out: segments, replicas, compaction, and producers without numbers. A producer's state is a row of
its own, so opening rebuilds nothing.

Next: proxy/read_filter.py, coordinator/kafka/transactions.py.
"""

from typing import Any, NamedTuple

from ...proto.batch import timestamp_of
from ...proto.kafka.coordinators import coordinator_of
from ...proto.kafka.messages import (
    ABORT,
    COMMIT,
    PLAIN,
    TRANSACTIONAL,
    DropPartition,
    ExpireProducers,
    Marked,
    Marker,
    Produce,
    Register,
    Registered,
    Shell,
    TrimTo,
)
from ...proto.messages import Clean
from ...proto.shell import Answer, Keys, Wake
from ..log_space import TRIM_SLICES_MAX, clean, drop_payload, trim_entries
from ..participant import DROPPED
from .producer_state import (
    UNKNOWN,
    ProducerState,
    check,
    check_marker,
    ended,
    marked_already,
    numbered_before,
)
from .rows import EMPTY, Bounds, Entry

META = b"m"
ASK = "ask"
_GONE = "UNKNOWN_TOPIC_OR_PARTITION"
_PRODUCER_ERRORS = {
    # These would make the producer look for another coordinator of its own, which has not moved.
    "COORDINATOR_LOAD_IN_PROGRESS": "NOT_ENOUGH_REPLICAS",
    "COORDINATOR_NOT_AVAILABLE": "NOT_ENOUGH_REPLICAS",
    "NOT_COORDINATOR": "NOT_ENOUGH_REPLICAS",
    # The producer shall abort: its coordinator then says whether it timed out and may go on, or is fenced.
    "PRODUCER_FENCED": "INVALID_PRODUCER_EPOCH",
}
"""Maps an error of the coordinator to the one that the producer gets, as Kafka's brokers do."""


class Held(NamedTuple):
    """Produce requests of one epoch of a producer, each with its cause, that wait for the coordinator's answer.

    `rests`: a timer is set to ask again; `rested_ms`: the back-off spent so far.
    """

    epoch: int
    requests: tuple[tuple[Produce, Any], ...]
    rests: bool = False
    rested_ms: float = 0


def _at(letter: bytes, number: int) -> bytes:
    return letter + number.to_bytes(8, "big")


class Partition:
    """Keeps one partition's log and its producers' states.

    Invariants: entries tile [start, end), but the entry that holds the start may begin before it.
    start <= last stable offset <= end, and none of them ever falls. The last stable offset is the end exactly
    while no transaction is open. `o` has a row exactly for each producer whose state has `opened`.
    """

    __slots__ = ("held", "id", "shell", "space")

    def __init__(self, tablet: int, space: Keys, shell: Shell) -> None:
        self.id = tablet
        self.space = space
        self.shell = shell
        self.held: dict[int, Held] = {}  # by producer; replaced, never changed, for `mark`

    def mark(self) -> Any:
        """Returns the state that is in memory only, for `undo`."""
        return self.held

    def undo(self, mark: Any) -> None:
        self.held = mark

    def handle(self, message: Any) -> None:
        kind = type(message)
        if kind is Produce:
            self._produce(message)
        elif kind is Marker:
            self._marker(message)
        elif kind is Registered:
            self._registered(message)
        elif kind is Wake:
            self._rested(*message.detail)
        elif kind is TrimTo:
            self._trim(message)
        elif kind is ExpireProducers:
            self._expire(message.before_ms)
        elif kind is DropPartition:
            self.space.put(DROPPED, 1)
            for producer in self.held:
                self._refuse(producer, _GONE)
        elif kind is Clean:
            clean(self.space, message.keys)
        else:
            raise AssertionError(f"tablet {self.id:#x} got {message!r}")

    def _bounds(self) -> Bounds:
        row = self.space.get(META)
        return EMPTY if row is None else tuple.__new__(Bounds, row)

    def _state(self, producer: int) -> ProducerState:
        row = self.space.get(_at(b"p", producer))
        return UNKNOWN if row is None else ProducerState(*row)

    def _answer(self, request: Any, error: str, value: Any = None) -> None:
        self.shell.send(request.client, Answer(request.request, self.id, error, value))

    # data ----------------------------------------------------------------------------------

    def _produce(self, message: Produce) -> None:
        if self.space.get(DROPPED) is not None:
            self._answer(message, _GONE)
            return
        state = self._state(message.producer)
        if (
            message.name is not None
            and message.version >= 2
            and (state.opened is None or state.epoch != message.epoch)  # not registered yet
        ):
            self._hold(message, message.name)
        else:
            self._append(message, state)

    def _append(self, message: Produce, state: ProducerState) -> None:
        space, producer = self.space, message.producer
        start, end, stable = self._bounds()
        transactional = message.name is not None
        result = check(
            state,
            message.epoch,
            message.sequence,
            message.records,
            end,
            timestamp_ms=timestamp_of(message.data),
            transactional=transactional,
            version=message.version,
        )
        if isinstance(result, str):
            self._answer(message, result)
            return
        if isinstance(result, int):
            self._answer(message, "", result)  # a duplicate
            return
        data, records = message.data, message.records
        address = space.append_payload(data)
        kind = TRANSACTIONAL if transactional else PLAIN
        row = (address, len(data), records, producer, message.epoch, message.sequence, kind)
        space.put(_at(b"b", end), row)
        space.put(_at(b"p", producer), tuple(result))
        if result.opened != state.opened:
            space.put(_at(b"o", end), producer)
        behind = end + records
        space.put(META, (start, behind, stable if transactional or stable < end else behind))
        self.shell.appended(visible=not transactional)
        self._answer(message, "", end)

    # version 2: ask the coordinator before a transaction's first batch ------------------------

    def _hold(self, message: Produce, name: str) -> None:
        held = self.held.get(message.producer)
        if held is not None and message.epoch < held.epoch:
            self._answer(message, "INVALID_PRODUCER_EPOCH")
            return
        if held is not None and message.epoch > held.epoch:
            self._refuse(message.producer, "INVALID_PRODUCER_EPOCH")
            held = None
        held = held or Held(message.epoch, ())
        held = held._replace(requests=(*held.requests, (message, self.shell.cause)))
        self.held = {**self.held, message.producer: held}
        # Ask with every request: the earlier question or its answer may have been lost.
        self._ask(name, message.producer, message.epoch)

    def _ask(self, name: str, producer: int, epoch: int) -> None:
        question = Register(self.id, name, producer, epoch)
        self.shell.send(coordinator_of(name, self.shell.hosts), question)

    def _rest(self, message: Registered, held: Held) -> bool:
        """Schedules another question while the coordinator still ends the previous transaction.

        Returns whether the requests keep waiting: not once the back-off time is used up.
        """
        settings = self.shell.settings
        left_ms = settings.add_partitions_backoff_max_ms - held.rested_ms
        if held.rests or left_ms <= 0:
            return held.rests
        delay_ms = min(settings.add_partitions_backoff_ms, left_ms)
        rests = held._replace(rests=True, rested_ms=held.rested_ms + delay_ms)
        self.held = {**self.held, message.producer: rests}
        detail = message.name, message.producer, message.epoch
        self.shell.later(delay_ms, Wake(ASK, detail))
        return True

    def _rested(self, name: str, producer: int, epoch: int) -> None:
        held = self.held.get(producer)
        if held is not None and held.epoch == epoch and held.rests:
            self.held = {**self.held, producer: held._replace(rests=False)}
            self._ask(name, producer, epoch)

    def _registered(self, message: Registered) -> None:
        held = self.held.get(message.producer)
        if held is None or held.epoch != message.epoch:
            return  # refused by a marker, answered before, or asked before a crash
        if message.error == "CONCURRENT_TRANSACTIONS" and self._rest(message, held):
            return
        if message.error:
            self._refuse(message.producer, _PRODUCER_ERRORS.get(message.error, message.error))
            return
        requests = sorted(self._let_go(message.producer), key=lambda item: item[0].sequence)
        for request, cause in requests:
            self.shell.cause = cause
            self._append(request, self._state(message.producer))

    def _let_go(self, producer: int) -> tuple[tuple[Produce, Any], ...]:
        held = self.held.get(producer)
        if held is None:
            return ()
        self.held = {key: value for key, value in self.held.items() if key != producer}
        return held.requests

    def _refuse(self, producer: int, error: str) -> None:
        """Answers all held requests of the producer with `error`."""
        cause = self.shell.cause
        for request, own in self._let_go(producer):
            self.shell.cause = own
            self._answer(request, error)
        self.shell.cause = cause

    # markers -------------------------------------------------------------------------------

    def _marker(self, message: Marker) -> None:
        if self.space.get(DROPPED) is not None:
            error = _GONE
        else:
            state, error = self._state(message.producer), ""
            if not numbered_before(state, message.number):
                epochs = message.epoch, message.coordinator_epoch
                error = check_marker(state, *epochs, message.version)
                if not error:
                    self._end(message, state)
        marked = Marked(
            self.id, message.name, message.producer, message.epoch, error, message.number
        )
        self.shell.send(message.source, marked)

    def _end(self, message: Marker, state: ProducerState) -> None:
        space, producer = self.space, message.producer
        transition = state, message.epoch, message.coordinator_epoch, message.number
        if marked_already(state, message.epoch, message.version):
            after = ended(*transition)
            # No marker is written and no held batch refused: those belong to the next transaction.
            if after != state:
                space.put(_at(b"p", producer), tuple(after))
            return
        held = self.held.get(producer)
        if held is not None and held.epoch < message.epoch:
            # Batches of the marker's own epoch are the next transaction's: the producer got it at Prepare.
            self._refuse(producer, "INVALID_TXN_STATE")
        # A marker without data takes an offset like any other: as in Kafka.
        start, end, stable = self._bounds()
        kind = COMMIT if message.commit else ABORT
        row = (0, 0, 1, producer, message.epoch, -1, kind, message.coordinator_epoch)
        space.put(_at(b"b", end), row)
        behind = end + 1
        if state.opened is not None:
            space.delete(_at(b"o", state.opened))
            if state.opened == stable:  # else an older one is open
                first = space.scan(_at(b"o", stable + 1), _at(b"o", end), limit=1)
                stable = int.from_bytes(first[0][0][1:], "big") if first else behind
            if not message.commit:
                space.put(_at(b"a", end), (producer, state.opened, end, stable))
        elif stable == end:
            stable = behind
        space.put(_at(b"p", producer), tuple(ended(*transition, self.shell.now_ms)))
        space.put(META, (start, behind, stable))
        self.shell.appended(visible=True)

    # trimming, expiry, cleaning ------------------------------------------------------------

    def _trim(self, message: TrimTo) -> None:
        """Trims the log, but never beyond the last stable offset: an open transaction keeps its data."""
        space = self.space
        if space.get(DROPPED) is not None:
            self._answer(message, _GONE)
            return
        start, end, stable = self._bounds()
        offset = min(message.offset, stable)
        if offset > start:
            start = trim_entries(space, offset, TRIM_SLICES_MAX, self.removed)
            space.put(META, (start, end, stable))
        self._answer(message, "", start)

    def _expire(self, before_ms: int) -> None:
        space = self.space
        for key, row in space.scan(b"p", b"q"):
            state = ProducerState(*row)
            if state.opened is None and state.timestamp_ms < before_ms:
                space.delete(key)
        for producer, held in self.held.items():
            if all(timestamp_of(request.data) < before_ms for request, _ in held.requests):
                self._refuse(producer, "REQUEST_TIMED_OUT")

    def removed(self, key: bytes, value: Any) -> None:
        """Frees what belongs to an entry that is deleted."""
        drop_payload(self.space, key, value)
        # An aborted transaction's row is deleted with its marker: all its data lies before that.
        if Entry(*value).kind == ABORT and self.space.get(b"a" + key[1:]) is not None:
            self.space.delete(b"a" + key[1:])
