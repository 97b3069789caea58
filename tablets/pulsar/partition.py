"""The topic partition tablet of mode "pulsar": dispatches messages to its transaction buffer and subscriptions.

    client ──Send, TrimTo──▶ partition ──▶ transaction_buffer.py ──Answer──▶ client
    coordinator ──EndTxnOnPartition──▶ partition ──▶ transaction_buffer.py ──Ended──▶ coordinator
    client ──Ack, Seek, DropSubscription──▶ partition ──▶ its subscriptions ──Answer──▶ client
    coordinator ──EndTxnOnSubscription──▶ partition ──▶ its subscriptions ──Ended──▶ coordinator

Keys, behind the tablet's prefix, besides those of transaction_buffer.py and snapshots.py:

    p<producer>   the highest number that the producer of this name has sent; with `deduplication` only (PIP-6)
    x             the topic was dropped

Pulsar's broker owns a topic partition together with its subscriptions, so they are one tablet. They keep rows of
their own in its key space. They are asked only once the aborted ids are known, and never of a dropped topic.

A number counts once, whatever became of its transaction: a batch that is sent again after an abort is dropped, as
in Pulsar. While aborted ids are being recovered, messages that need them wait here, in memory: their sender
repeats what is lost.

Leaves out: replicas, ledgers, compaction, chunked and delayed messages, schemas.

Next: transaction_buffer.py, ../../coordinator/pulsar/transactions.py.
"""

from typing import Any

from ...proto.messages import Clean
from ...proto.pulsar.messages import (
    Ack,
    DropPartition,
    DropSubscription,
    Ended,
    EndTxnOnPartition,
    EndTxnOnSubscription,
    Seek,
    Send,
    Shell,
    SwitchLog,
    TrimTo,
)
from ...proto.shell import Answer, Keys, Wake
from ..log_space import TRIM_SLICES_MAX, clean, drop_payload, trim_entries
from ..participant import DROPPED
from .rows import META, Bounds
from .subscriptions import Subscriptions
from .transaction_buffer import PART, RECOVER, TAKE, TransactionBuffer

_GONE = "TopicNotFound"


_OF_SUBSCRIPTIONS = (Ack, Seek, DropSubscription, EndTxnOnSubscription)


class Partition:
    """Keeps one partition's log. Invariants: entries tile [start, end), but the entry that holds the start may
    begin before it. start <= max read <= end, and none of them ever falls."""

    __slots__ = ("buffer", "held", "id", "shell", "space", "subscriptions")

    def __init__(self, tablet: int, space: Keys, shell: Shell) -> None:
        self.id = tablet
        self.space = space
        self.shell = shell
        self.buffer = TransactionBuffer(space, shell)
        self.subscriptions = Subscriptions(tablet, space, shell, self.buffer)
        self.held: tuple[tuple[Any, Any], ...] = ()
        """Messages that wait for recovery, with their causes."""

    def mark(self) -> Any:
        """Returns the state that is in memory only, for `undo`."""
        return self.held, self.buffer.mark(), self.subscriptions.mark()

    def undo(self, mark: Any) -> None:
        self.held, buffer, subscriptions = mark
        self.buffer.undo(buffer)
        self.subscriptions.undo(subscriptions)

    def handle(self, message: Any) -> None:
        kind = type(message)
        if kind is Send or kind is EndTxnOnPartition or kind in _OF_SUBSCRIPTIONS:
            self.held = (*self.held, (message, self.shell.cause))
            self._handle_held()
        elif kind is Wake:
            self._wake(message)
        elif kind is TrimTo:
            self._trim(message)
        elif kind is DropPartition:
            self.space.put(DROPPED, 1)
            self._handle_held()
        elif kind is Clean:
            clean(self.space, message.keys)
        elif kind is SwitchLog:
            self.subscriptions.handle(message)
        else:
            raise AssertionError(f"tablet {self.id:#x} got {message!r}")

    def _wake(self, message: Wake) -> None:
        if self.space.get(DROPPED) is not None:
            return
        if message.what == RECOVER:
            self._handle_held()
        elif message.what in (TAKE, PART):
            self.buffer.wake(message.what, message.detail)
        else:
            self.subscriptions.handle(message)

    def _handle_held(self) -> None:
        """Handles what waits, once the aborted ids are known; of a dropped topic, refuses it."""
        gone = self.space.get(DROPPED) is not None
        if not gone and not self.buffer.prepare():
            return
        held, self.held = self.held, ()
        cause = self.shell.cause
        for message, own in held:
            self.shell.cause = own
            if gone:
                self._refuse(message)
            elif type(message) is Send:
                self._send(message)
            elif type(message) is EndTxnOnPartition:
                self._end(message)
            else:
                self._of_subscription(message)
        self.shell.cause = cause

    def _answer(self, request: Any, error: str, value: Any = None) -> None:
        self.shell.send(request.client, Answer(request.request, self.id, error, value))

    def _refuse(self, message: Any) -> None:
        """Answers for a dropped topic. For a coordinator, it has had its end."""
        if isinstance(message, EndTxnOnPartition | EndTxnOnSubscription):
            name = message.subscription if isinstance(message, EndTxnOnSubscription) else None
            ended = Ended(self.id, message.most, message.least, name, _GONE)
            self.shell.send(message.source, ended)
        else:
            self._answer(message, _GONE)

    def _of_subscription(self, message: Any) -> None:
        self.subscriptions.handle(message)
        if isinstance(message, EndTxnOnSubscription):
            self._raise_mark(message)

    def _raise_mark(self, message: EndTxnOnPartition | EndTxnOnSubscription) -> None:
        """Raises a coordinator's low water mark: what is at or below it and not ended here is aborted."""
        before = self.buffer.low_water_mark(message.most)
        if message.low_water_mark > before:
            self.buffer.raise_mark(message.most, message.low_water_mark)
            self.subscriptions.end_to(message.most, before + 1, message.low_water_mark + 1)

    def _send(self, message: Send) -> None:
        numbered = bool(message.producer) and self.shell.settings.deduplication
        key = b"p" + message.producer.encode()
        if numbered:
            last: int | None = self.space.get(key)
            if last is not None and message.sequence <= last:
                self._answer(message, "", -1)
                return
        result = self.buffer.append(message)
        if isinstance(result, str):
            self._answer(message, result)
            return
        if numbered:
            self.space.put(key, message.sequence)
        self._answer(message, "", result)

    def _end(self, message: EndTxnOnPartition) -> None:
        most, least = message.most, message.least
        self.buffer.end(most, least, message.commit)
        self._raise_mark(message)
        self.shell.send(message.source, Ended(self.id, most, least, None, ""))

    def _trim(self, message: TrimTo) -> None:
        """Trims the log, but never beyond max read: an ongoing transaction keeps its messages."""
        if self.space.get(DROPPED) is not None:
            self._answer(message, _GONE)
            return
        start, end, max_read = self.buffer.bounds
        offset = min(message.offset, max_read)
        if offset > start:
            start = trim_entries(self.space, offset, TRIM_SLICES_MAX, self.removed)
            self.space.put(META, Bounds(start, end, max_read))
            self.buffer.trimmed(start)
            self.subscriptions.trimmed(start)
        self._answer(message, "", start)

    def removed(self, key: bytes, value: Any) -> None:
        """Frees the payload of a row that is deleted."""
        drop_payload(self.space, key, value)
