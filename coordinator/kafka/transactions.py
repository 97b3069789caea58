"""The transaction coordinator tablet of mode "kafka": gives out producer ids and epochs, and ends transactions.

    InitProducer ─▶ Empty     AddPartitions, AddOffsets, Register ─▶ Ongoing
    EndTxn ─▶ Prepare* ─▶ answer; Marker to each partition ──Marked from all──▶ Complete*
    every abort_scan_ms: Ongoing for too long ─▶ PrepareEpochFence ─▶ PrepareAbort

It logs before it applies: it checks a request and appends the new state to the log
(../../proto/batched_log.py); only the log's callback puts the row and answers. Until then the id is
pending: other requests get CONCURRENT_TRANSACTIONS. States and the EndTxn tables are in states.py.

Keys, behind the tablet's prefix:

    t<name>       states.Transaction, the logged state of a transactional id: ../logged_rows.py
    i             the next block of producer ids (1,000 each, as KRaft's controller hands out)
    l, L          the log: ../../proto/batched_log.py

A host's restart forgets what a broker has in memory only. That is the row's fields from `generation` on, and
the state that `mark` and `undo` cover: pending states, failed fences, markers on their way, the rest of the
block of ids.

Leaves out: load in progress (a host answers once it has started), version 0, two-phase commit (KIP-939).

Next: ../logged_rows.py.
"""

from collections.abc import Callable
from typing import Any

from ...proto.batched_log import FLUSH, BatchedLog
from ...proto.ids import host_of, kind_of
from ...proto.kafka.messages import (
    NO_SPACE,
    AddOffsets,
    AddPartitions,
    EndTxn,
    InitProducer,
    Marked,
    Register,
    Registered,
    Shell,
    SwitchLog,
)
from ...proto.shell import Answer, Keys, Wake
from ..logged_rows import Then, TransactionRows
from ..markers import MARKERS, Markers
from .ends import ROWS, Ends
from .states import (
    AT_REST,
    CONCURRENT,
    DEAD,
    EMPTY,
    END,
    EPOCH_MAX,
    FENCE,
    FENCED,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    Transaction,
    check_move,
    end_1,
    end_2,
    exhausted,
    usable,
)

SCAN, EXPIRE, JOIN = "scan", "expire", "join"
EXPIRE_EVERY_MS = 3_600_000
UNMAPPED = "INVALID_PRODUCER_ID_MAPPING"


class Transactions:
    """Handles the requests for the transactional ids of one tablet.

    Invariants: a decision (Prepare*) is in the log before any message tells it. An epoch of a producer id is
    never given to two producers. The highest, used to fence one, is never given.
    """

    __slots__ = ("_joining", "id", "markers", "rows", "shell")

    def __init__(self, tablet: int, space: Keys, shell: Shell) -> None:
        self.id = tablet
        self.shell = shell
        self.rows = TransactionRows(host_of(tablet), space, shell, ROWS, shell.settings.log)
        self.markers = Markers(self.rows, shell, Ends(tablet, shell))
        self._joining: dict[
            tuple[str, int, int, int], tuple[tuple[Register, Callable[[str], None]], ...]
        ] = {}

    @property
    def log(self) -> BatchedLog:
        """The log, for its counters and to switch its batching."""
        return self.rows.log

    def begin(self) -> None:
        """Sends the markers of decided transactions and starts the scans, in the host's first turn.

        Ongoing transactions are left to their producers, or to the time-out.
        """
        for name, row in self.rows.scan(PREPARED):
            self.markers.send(name, row)
        self.shell.later(self.shell.settings.abort_scan_ms, Wake(SCAN))
        self.shell.later(EXPIRE_EVERY_MS, Wake(EXPIRE))

    def mark(self) -> Any:
        return self.rows.mark(), self.markers.mark()

    def undo(self, mark: Any) -> None:
        rows, markers = mark
        self._joining.clear()  # it never outlives a turn
        self.rows.undo(rows)
        self.markers.undo(markers)

    def handle(self, message: Any) -> None:
        kind = type(message)
        if kind is InitProducer:
            self._init(message)
        elif kind is AddPartitions:
            self._add(message, message.partitions, 1, lambda error: self._answer(message, error))
        elif kind is AddOffsets:
            added = (message.coordinator,)
            self._add(message, added, 1, lambda error: self._answer(message, error))
        elif kind is EndTxn:
            self._end(message)
        elif kind is Register:
            self._register(message)
        elif kind is Marked:
            self.markers.marked(message)
        elif kind is Wake:
            self._wake(message)
        elif kind is SwitchLog:
            self.rows.switch(message.batching)
        else:
            raise AssertionError(f"transaction coordinator got {message!r}")

    def _wake(self, wake: Wake) -> None:
        if wake.what == FLUSH:
            self.log.wake(wake.detail)
        elif wake.what == JOIN:
            self._join(wake.detail)
        elif wake.what == MARKERS:
            self.markers.resend()
        elif wake.what == SCAN:
            self.shell.later(self.shell.settings.abort_scan_ms, Wake(SCAN))
            self._abort_old()
        else:
            assert wake.what == EXPIRE, wake
            self.shell.later(EXPIRE_EVERY_MS, Wake(EXPIRE))
            self._expire()

    def _answer(self, message: Any, error: str, value: Any = None) -> None:
        self.shell.send(message.client, Answer(message.request, self.id, error, value))

    # InitProducer --------------------------------------------------------------------------

    def _init(self, message: InitProducer) -> None:
        name, now = message.name, self.shell.now_ms
        if name is None:
            self._answer(message, "", (self.rows.new_id(), 0))
            return
        if not usable(name):
            self._answer(message, "INVALID_REQUEST")
            return
        if not 0 < message.timeout_ms <= self.shell.settings.transaction_max_timeout_ms:
            self._answer(message, "INVALID_TRANSACTION_TIMEOUT")
            return
        if name in self.rows.pending:
            self._answer(message, CONCURRENT)
            return
        row = self.rows.get(name)
        if row is None:
            new = Transaction(self.rows.new_id(), 0, EMPTY, message.timeout_ms, -1, now)
            new = new._replace(generation=self.shell.epoch)
            self.rows.append(name, None, new, lambda error, new: self._given(message, error, new))
            return
        self._init_again(message, name, row)

    def _init_again(self, message: InitProducer, name: str, row: Transaction) -> None:
        """Handles InitProducer of an id that has a row: fences its producer, or lets it continue."""
        if message.producer >= 0 and message.producer != row.producer:
            # The previous producer id may continue from its last epoch: the answer with the new id may be lost.
            if message.producer != row.previous or not exhausted(message.epoch):
                self._answer(message, FENCED)
                return
        if row.state in PREPARED:
            self._answer(message, CONCURRENT)
            return
        if row.state == ONGOING:
            # No producer gets the raised epoch: the client asks again, which raises it once more.
            # As in Kafka, the request's epoch is not checked here.
            self._fence(name, row, lambda error, _: self._answer(message, error or CONCURRENT))
            return
        new = self._raised(message, row)
        if new is None:
            self._answer(message, FENCED)
            return
        self.rows.append(name, row.state, new, lambda error, new: self._given(message, error, new))

    def _raised(self, message: InitProducer, row: Transaction) -> Transaction | None:
        """Returns the row with the next producer id and epoch, or None if another producer took over meanwhile."""
        goes_on = message.producer >= 0  # KIP-360: it continues under the next epoch
        if exhausted(row.epoch) and (not goes_on or message.epoch == row.epoch):
            producer, epoch, last = self.rows.new_id(), 0, row.epoch if goes_on else -1
            row = row._replace(previous=row.producer)
        elif not goes_on:
            producer, epoch, last = row.producer, row.epoch + 1, -1
        elif message.epoch == row.epoch:
            producer, epoch, last = row.producer, row.epoch + 1, row.epoch
        elif message.epoch == row.last_epoch:  # a repeat, whose answer was lost
            producer, epoch, last = row.producer, row.epoch, row.last_epoch
        else:
            return None
        return row._replace(
            producer=producer,
            epoch=epoch,
            last_epoch=last,
            state=EMPTY,
            timeout_ms=message.timeout_ms,
            start_ms=-1,
            update_ms=self.shell.now_ms,
        )

    def _given(self, message: InitProducer, error: str, row: Transaction) -> None:
        self._answer(message, error, None if error else (row.producer, row.epoch))

    # AddPartitions, AddOffsets, Register ---------------------------------------------------

    def _add(
        self, message: Any, added: tuple[int, ...], version: int, answer: Callable[[str], None]
    ) -> None:
        name = message.name
        if not usable(name):
            answer("INVALID_REQUEST")
            return
        row = self.rows.get(name)
        if name in self.rows.pending or (row is not None and row.state in PREPARED):
            # Checked before the producer id: a producer that ran out of epochs got its next id at
            # Prepare, and the row does not have that id yet (KAFKA-18660).
            answer(CONCURRENT)
        elif row is None or row.producer != message.producer:
            answer(UNMAPPED)
        elif row.epoch != message.epoch:
            answer(FENCED)
        elif row.state == ONGOING and {*row.partitions}.issuperset(added):
            answer("")
        else:
            begun = row.start_ms if row.state == ONGOING else self.shell.now_ms
            new = row._replace(
                state=ONGOING,
                partitions=tuple(sorted({*row.partitions, *added})),
                start_ms=begun,
                update_ms=self.shell.now_ms,
                version=version,
            )
            self.rows.append(name, row.state, new, lambda error, _: answer(error), NO_SPACE)

    def _register(self, message: Register) -> None:
        def answer(error: str) -> None:
            who = message.name, message.producer, message.epoch
            self.shell.send(message.source, Registered(self.id, *who, error))

        # A broker registers all partitions of a produce request at once: requests that arrive together
        # share an append. Group coordinators register alone.
        key = message.name, message.producer, message.epoch, kind_of(message.source)
        requests = self._joining.get(key, ())
        self._joining[key] = (*requests, (message, answer))
        if not requests:
            self.shell.soon(Wake(JOIN, key))

    def _join(self, key: tuple[str, int, int, int]) -> None:
        requests = self._joining.pop(key, ())

        def answer(error: str) -> None:
            for _, one in requests:
                one(error)

        if requests:
            added = tuple(message.source for message, _ in requests)
            self._add(requests[0][0], added, 2, answer)

    # EndTxn, time-outs and fences ----------------------------------------------------------

    def _end(self, message: EndTxn) -> None:
        name, producer, epoch = message.name, message.producer, message.epoch
        if not usable(name):
            self._answer(message, "INVALID_REQUEST")
            return
        row = self.rows.get(name)
        if row is None:
            self._answer(message, CONCURRENT if name in self.rows.pending else UNMAPPED)
            return
        outcome = self._outcome(name, row, message)
        if outcome != END:
            self._answer(message, outcome, None if outcome else (row.producer, row.epoch))
            return
        state = PREPARE_COMMIT if message.commit else PREPARE_ABORT

        def then(error: str, new: Transaction) -> None:
            rotated = new.next >= 0  # answered now, although the row takes it only once complete
            value = (new.next, 0) if rotated else (new.producer, new.epoch)
            self._answer(message, error, None if error else value)

        assert row.producer == producer and row.epoch == epoch
        self._prepare(name, row, state, message.version, then)

    def _outcome(self, name: str, row: Transaction, message: EndTxn) -> str:
        same = message.producer == row.producer
        if message.version < 2:
            if not same:
                return UNMAPPED
            if message.epoch != row.epoch:
                return FENCED
            return CONCURRENT if name in self.rows.pending else end_1(row.state, message.commit)
        # Checked before id and epoch: both may change with the pending record, or have changed in the
        # answer at Prepare (KAFKA-18660, KAFKA-20090).
        if name in self.rows.pending:
            return CONCURRENT
        if row.state in PREPARED and (message.producer, message.epoch) == (row.next, 0):
            return CONCURRENT
        rotated = row.state not in PREPARED and row.epoch == 0 and message.epoch == EPOCH_MAX - 1
        if rotated and message.producer == row.previous:
            return end_2(row.state, message.commit, True)
        if not same:
            return UNMAPPED
        if message.epoch not in (row.epoch, row.epoch - 1):
            return FENCED
        return end_2(row.state, message.commit, message.epoch != row.epoch)

    def _fence(self, name: str, row: Transaction, then: Then[Transaction]) -> None:
        """Aborts an ongoing transaction without its producer, whose epoch is too low from then on."""
        check_move(row.state, FENCE)
        version = self.shell.settings.protocol_version  # no request brings one: the server's own
        fenced = row
        # In version 2 the end itself raises the epoch; raising it twice would lose the producer
        # (KAFKA-19367). A fence that failed has raised it already: raising it at each failure would use
        # up all epochs (KAFKA-9666).
        if version < 2 and name not in self.rows.failed:
            fenced = row._replace(epoch=min(row.epoch + 1, EPOCH_MAX), last_epoch=-1)

        def ended(error: str, new: Transaction) -> None:
            if error and version < 2:
                self.rows.failed[name] = fenced.epoch
            then(error, new)

        self._prepare(name, fenced._replace(state=FENCE), PREPARE_ABORT, version, ended)

    def _prepare(
        self, name: str, row: Transaction, state: int, version: int, then: Then[Transaction]
    ) -> None:
        now = self.shell.now_ms
        new = row._replace(
            state=state,
            update_ms=now,
            # In version 2 an abort may come before any partition, hence without a start.
            start_ms=now if row.state in AT_REST else row.start_ms,
            version=version,
            number=row.number + 1,
        )
        if version >= 2:
            # Markers have the raised epoch, so that late batches of the old one are refused. When epochs
            # run out, the markers get the last one and the producer gets a new id, also if a fence ends
            # the transaction (KAFKA-20090).
            new = new._replace(
                epoch=min(row.epoch + 1, EPOCH_MAX),
                last_epoch=row.epoch,
                next=self.rows.new_id() if exhausted(row.epoch) else -1,
            )

        def decided(error: str, new: Transaction) -> None:
            then(error, new)
            if not error:
                self.rows.failed.pop(name, None)
                self.markers.send(name, new)

        self.rows.append(name, row.state, new, decided)

    def _abort_old(self) -> None:
        now = self.shell.now_ms
        for name, row in self.rows.scan((ONGOING,)):
            if row.start_ms + row.timeout_ms < now:
                self._fence(name, row, lambda error, _: None)

    def _expire(self) -> None:
        oldest = self.shell.now_ms - self.shell.settings.transactional_id_expiration_ms
        for name, row in self.rows.scan(AT_REST):
            if row.update_ms <= oldest:
                self.rows.append(name, row.state, row._replace(state=DEAD), lambda error, _: None)
