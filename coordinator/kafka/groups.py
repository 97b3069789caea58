"""The group coordinator tablet of mode "kafka": keeps each consumer group's members and positions.

    Join, Leave ─▶ generation, raised with each change of the membership
    OffsetCommit ─▶ position                      at once
    TxnOffsetCommit ─▶ pending ──Marker(commit)──▶ position, unless a plain commit came later
                          └─────Marker(abort)────▶ nothing

A position is one number for each partition. A commit does not compare it with the one before: two unfenced
committers both succeed. A zombie is stopped by its generation, or by its producer's epoch.

Offsets and markers are records of the log (../../proto/batched_log.py), applied in its callback, in the log's
order. A record that has become invalid by then (a marker raised the epoch, a member the generation) is
refused there.

Keys, behind the tablet's prefix:

    g<group>                          (generation, members in the order they joined)
    c<group>\\0<tablet 4>              `Committed`
    n<group>\\0<tablet 4><producer 8>  pending: the `Committed` row if its transaction commits
    q<producer 8><group>\\0<tablet 4>  an index of the pending rows by producer
    p<producer 8>                     `Committer`

Requests of version 2 that wait until the transaction's coordinator has registered this tablet are in memory
only: lost with the host, restored by `mark` and `undo`.

Leaves out: assignment, heartbeats and session time-outs (the engine knows when a member is gone), static
members, REBALANCE_IN_PROGRESS (Kafka does not enforce it on transactional commits either).

Next: proxy/kafka/client.py.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from ...proto.batched_log import BATCHING, FLUSH, BatchedLog, Position, switched
from ...proto.kafka.coordinators import coordinator_of
from ...proto.kafka.messages import (
    NO_SPACE,
    ExpireProducers,
    Join,
    Leave,
    Marked,
    Marker,
    OffsetCommit,
    Register,
    Registered,
    Shell,
    SwitchLog,
    TxnOffsetCommit,
)
from ...proto.shell import Answer, Keys, Wake
from .states import APPEND_ERRORS, usable

HELD = "held"
_Held = tuple[int, tuple[tuple[TxnOffsetCommit, Any], ...]]
"""When the first was held (ms), and the requests, each with its cause."""
_NONE: _Held = (0, ())


class Committed(NamedTuple):
    """A group's position in a partition, and its place in the log: the later one wins."""

    position: int
    logged_at: tuple[int, ...]


class Committer(NamedTuple):
    """A producer that commits positions; epochs are -1 for none, `number` is its last marker's."""

    epoch: int = -1
    coordinator_epoch: int = -1
    ongoing: bool = False
    used_ms: int = 0
    number: int = 0


_UNKNOWN = Committer()


def _part(group: str, tablet: int) -> bytes:
    return group.encode() + b"\0" + tablet.to_bytes(4, "big")


def _producer(producer: int) -> bytes:
    return producer.to_bytes(8, "big")


class Rows(Protocol):
    """Reads a group coordinator's keys."""

    def get(self, key: bytes) -> Any: ...
    def scan(self, begin: bytes, end: bytes) -> list[tuple[bytes, Any]]: ...


def position_of(rows: Rows, group: str, tablet: int) -> int | None:
    """Returns a group's position in a partition, or None."""
    row = rows.get(b"c" + _part(group, tablet))
    return None if row is None else Committed._make(row).position


def pending_of(rows: Rows, group: str, tablet: int) -> list[tuple[int, int]]:
    """Returns (producer, position) of each open transaction that may move a group in a partition."""
    begin = b"n" + _part(group, tablet)
    moves = rows.scan(begin, begin + b"\xff" * 9)
    return [(int.from_bytes(key[-8:], "big"), position) for key, (position, _) in moves]


class Groups:
    """Handles joins, leaves and commits of positions of the groups of one tablet.

    Invariants: every n row has its q row. A generation never falls, also when the last member leaves. A
    producer that is not ongoing has nothing pending.
    """

    __slots__ = ("_armed", "_held", "id", "log", "shell", "space")

    def __init__(self, tablet: int, space: Keys, shell: Shell) -> None:
        self.id = tablet
        self.space = space
        self.shell = shell
        self.log = BatchedLog(space, shell, shell.settings.log)
        self.log.batching = switched(space, self.log.batching)
        # The values are tuples, so `mark` needs only a copy of the dict.
        self._held: dict[tuple[int, int], _Held] = {}
        self._armed = False  # a wake for them is on its way

    def begin(self) -> None:
        """Removes all members, in the host's first turn: they ended with the process before.

        It raises each generation, so that no former member commits any more.
        """
        for key, (generation, members) in self.space.scan(b"g", b"h"):
            if members:
                self.space.put(key, (generation + 1, ()))

    def mark(self) -> Any:
        return dict(self._held), self._armed, self.log.mark()

    def undo(self, mark: Any) -> None:
        held, self._armed, log = mark
        self._held = dict(held)
        self.log.undo(log)

    def handle(self, message: Any) -> None:
        handled = self._HANDLED.get(type(message))
        if handled is None:
            raise AssertionError(f"group coordinator got {message!r}")
        handled(self, message)

    def _switch(self, message: SwitchLog) -> None:
        self.log.switch(message.batching)
        self.space.put(BATCHING, int(message.batching))

    def _wake(self, wake: Wake) -> None:
        if wake.what == FLUSH:
            self.log.wake(wake.detail)
        else:
            assert wake.what == HELD, wake
            self._release_late()

    def _answer(self, message: Any, error: str, value: Any = None) -> None:
        self.shell.send(message.client, Answer(message.request, self.id, error, value))

    # membership ----------------------------------------------------------------------------

    def _group(self, group: str) -> tuple[int, tuple[str, ...]]:
        row = self.space.get(b"g" + group.encode())
        return (0, ()) if row is None else row

    def _join(self, message: Join) -> None:
        if _unusable(message.group) or not message.member:
            self._answer(message, "INVALID_REQUEST")
            return
        generation, members = self._group(message.group)
        if message.member not in members:
            generation, members = generation + 1, (*members, message.member)
            self.space.put(b"g" + message.group.encode(), (generation, members))
        self._answer(message, "", (generation, members))

    def _leave(self, message: Leave) -> None:
        if _unusable(message.group):
            self._answer(message, "INVALID_REQUEST")
            return
        generation, members = self._group(message.group)
        if message.member not in members:
            self._answer(message, "UNKNOWN_MEMBER_ID")
            return
        others = tuple(member for member in members if member != message.member)
        self.space.put(b"g" + message.group.encode(), (generation + 1, others))
        self._answer(message, "")

    def _refused(self, message: OffsetCommit | TxnOffsetCommit) -> str:
        """Returns the error in a commit's group metadata, or "" (as ClassicGroup.validateOffsetCommit)."""
        if _unusable(message.group):
            return "INVALID_REQUEST"
        generation, members = self._group(message.group)
        if not generation:  # a group without members is created by its first commit
            return "ILLEGAL_GENERATION" if message.generation >= 0 else ""
        if message.generation < 0 and not members:
            return ""
        if message.generation >= 0 or message.member:
            if message.member not in members:
                return "UNKNOWN_MEMBER_ID"
            return "" if message.generation == generation else "ILLEGAL_GENERATION"
        # No member is named but the group has members. An old producer's sendOffsets(group) is accepted;
        # a plain commit is not: it would be an administrator's, moving the members' positions.
        return "" if type(message) is TxnOffsetCommit else "UNKNOWN_MEMBER_ID"

    # positions -----------------------------------------------------------------------------

    def _commit(self, message: OffsetCommit) -> None:
        if error := self._refused(message):
            self._answer(message, error)
            return

        def done(error: str, position: Position | None) -> None:
            error = error or self._refused(message)  # the group may have changed meanwhile
            for tablet, offset in () if error else message.offsets:
                part = _part(message.group, tablet)
                if offset is None:
                    self._forget(part)
                else:
                    self.space.put(b"c" + part, (offset, tuple(position or ())))
            self._answer(message, APPEND_ERRORS.get(error, error))

        self.log.append(("offsets", message.group, message.offsets), done)

    def _forget(self, part: bytes) -> None:
        """Deletes a position and the pending ones there, which a later marker would bring back."""
        if self.space.get(b"c" + part) is not None:
            self.space.delete(b"c" + part)
        for key, _ in self.space.scan(b"n" + part, b"n" + part + b"\xff" * 9):
            self.space.delete(key)
            self.space.delete(b"q" + key[-8:] + part)

    # transactions --------------------------------------------------------------------------

    def _state(self, producer: int) -> Committer:
        row = self.space.get(b"p" + _producer(producer))
        return _UNKNOWN if row is None else tuple.__new__(Committer, row)

    def _pend(self, message: TxnOffsetCommit) -> None:
        error = self._refused(message)
        epoch, _, ongoing, _, _ = self._state(message.producer)
        if not error and message.epoch < epoch:
            error = "INVALID_PRODUCER_EPOCH"
        if error:
            self._answer(message, error)
        elif message.version >= 2 and not (ongoing and message.epoch == epoch):
            self._hold(message)
        else:
            self._append_pending(message)

    def _append_pending(self, message: TxnOffsetCommit) -> None:
        def done(error: str, position: Position | None) -> None:
            epoch, coordinator_epoch, _, _, number = self._state(message.producer)
            if not error and message.epoch < epoch:
                error = "INVALID_PRODUCER_EPOCH"  # a marker came before it in the same batch
            # A member that has joined since may have read the position, with nothing pending.
            error = error or self._refused(message)
            if not error:
                state = message.epoch, coordinator_epoch, True, self.shell.now_ms, number
                producer = _producer(message.producer)
                self.space.put(b"p" + producer, state)
                for tablet, offset in message.offsets:
                    part = _part(message.group, tablet)
                    self.space.put(b"n" + part + producer, (offset, tuple(position or ())))
                    self.space.put(b"q" + producer + part, True)
            self._answer(message, APPEND_ERRORS.get(error, error))

        record = ("pending", message.producer, message.epoch, message.group, message.offsets)
        self.log.append(record, done, NO_SPACE)

    def _hold(self, message: TxnOffsetCommit) -> None:
        """Holds a request of version 2 until the transaction's coordinator has registered this tablet."""
        key = message.producer, message.epoch
        if not self._armed:
            self._armed = True
            self.shell.later(self.shell.settings.request_timeout_ms, Wake(HELD))
        since, requests = self._held.get(key, (self.shell.now_ms, ()))
        self._held[key] = since, (*requests, (message, self.shell.cause))
        # Ask with every request: the earlier question or its answer may have been lost.
        coordinator = coordinator_of(message.name, self.shell.hosts)
        self.shell.send(coordinator, Register(self.id, message.name, *key))

    def _registered(self, message: Registered) -> None:
        self._release((message.producer, message.epoch), message.error)

    def _release(self, key: tuple[int, int], error: str) -> None:
        running = self.shell.cause
        for message, cause in self._held.pop(key, _NONE)[1]:
            self.shell.cause = cause
            # The group may have changed meanwhile.
            if refused := error or self._refused(message):
                self._answer(message, refused)
            else:
                self._append_pending(message)
        self.shell.cause = running

    def _release_late(self) -> None:
        """Refuses requests that were held for too long. One timer serves all, as answers rarely fail to come."""
        now, wait = self.shell.now_ms, self.shell.settings.request_timeout_ms
        for key, (since, _) in list(self._held.items()):
            if not now - wait < since <= now:
                self._release(key, "REQUEST_TIMED_OUT")
        self._armed = bool(self._held)
        if self._armed:
            due = min(since for since, _ in self._held.values()) + wait
            self.shell.later(max(1, due - now), Wake(HELD))

    def _mark_end(self, message: Marker) -> None:
        error, repeated = self._marker_check(message)
        if error or repeated:
            self._marked(message, error)
            return
        # A held request of the transaction that ends now would open it again, so refuse it. One with the
        # marker's own epoch belongs to the next transaction.
        for producer, epoch in list(self._held):
            if producer == message.producer and epoch < message.epoch:
                self._release((producer, epoch), "INVALID_PRODUCER_EPOCH")

        def done(error: str, position: Position | None) -> None:
            repeated = False
            if not error:  # check again: another marker may have come before it in the same batch
                error, repeated = self._marker_check(message)
            if not error and not repeated:
                self._ended(message)
            self._marked(message, error)

        who = message.producer, message.epoch, message.coordinator_epoch
        self.log.append(("marker", *who, message.commit), done)

    def _marker_check(self, message: Marker) -> tuple[str, bool]:
        """Returns (error, whether it repeats a written marker and needs an answer only)."""
        epoch, coordinator_epoch, ongoing, _, number = self._state(message.producer)
        if 0 < message.number <= number:
            return "", True
        if message.coordinator_epoch < coordinator_epoch:
            return "TRANSACTION_COORDINATOR_FENCED", False
        if message.epoch < epoch:
            return "INVALID_PRODUCER_EPOCH", False
        if message.version >= 2 and message.epoch == epoch:
            # Markers of version 2 have a higher epoch than the data. An equal one repeats the marker that
            # raised the epoch; refusing it would leave the transaction in Prepare* for ever (KAFKA-19999).
            return ("INVALID_PRODUCER_EPOCH", False) if ongoing else ("", True)
        # Without a number, in version 1 a repeat looks like the next transaction's marker.
        return "", False

    def _ended(self, message: Marker) -> None:
        producer = _producer(message.producer)
        for key, _ in self.space.scan(b"q" + producer, b"q" + producer + b"\xff"):
            part = key[9:]
            pending = Committed._make(self.space.get(b"n" + part + producer))
            row = self.space.get(b"c" + part)
            known = None if row is None else Committed._make(row)
            # The position that is later in the log wins, however long the transaction took.
            if message.commit and (known is None or known.logged_at < pending.logged_at):
                self.space.put(b"c" + part, pending)
            self.space.delete(key)
            self.space.delete(b"n" + part + producer)
        number = max(message.number, self._state(message.producer).number)
        state = message.epoch, message.coordinator_epoch, False, self.shell.now_ms, number
        self.space.put(b"p" + producer, state)

    def _marked(self, message: Marker, error: str) -> None:
        who = message.name, message.producer, message.epoch
        error = APPEND_ERRORS.get(error, error)
        self.shell.send(message.source, Marked(self.id, *who, error, message.number))

    def _expire(self, message: ExpireProducers) -> None:
        for key, (_, _, ongoing, used_ms, _) in self.space.scan(b"p", b"q"):
            if not ongoing and used_ms < message.before_ms:
                self.space.delete(key)

    _HANDLED: ClassVar[dict[type, Callable[["Groups", Any], None]]] = {
        TxnOffsetCommit: _pend,
        Marker: _mark_end,
        OffsetCommit: _commit,
        Registered: _registered,
        Join: _join,
        Leave: _leave,
        ExpireProducers: _expire,
        SwitchLog: _switch,
        Wake: _wake,
    }


def _unusable(group: str) -> bool:
    return not usable(group) or "\0" in group
