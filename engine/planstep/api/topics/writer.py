"""Implements the buffered writer of a topic: it numbers the records, so that a repeat is published once.

    write ─▶ per partition: (number, value, key, headers) … ─flush─▶ one transaction over all partitions

Each partition remembers the last number of each producer that it published. After a flush that ended
Undetermined, or was interrupted, flush again: records that were published are skipped. After a restart under the
same producer name, numbers go on after the last published one. A program that repeats its input passes its own
increasing numbers instead (a line number, an offset), and records that were published before are skipped.

Numbers that a writer gives itself count for that writer only. The partition keeps with them the session that gave
them, and two live writers of one producer are a Conflict, not a silent skip.

The numbers of a partition must rise as long as a writer lives. The partition knows only the last one, and would
take a late record for a repeat. The key chooses the partition of a record. A record without key goes to the
partition `number % partitions` when the caller numbers it, else to one partition in each flush, in turn.

Next: ../engine.py.
"""

import threading
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...closing import Closing
from ...errors import Conflict, SequenceError, TransactionClosed, Undetermined
from ...proto.messages import PartitionPart, Parts
from ...runtime.outcome import Commit
from ..arguments import INT_MAX, seconds_or_none, whole
from ..columns.batch import counted
from ..columns.codecs import encode_text
from ..limits import TRANSACTION_BYTES_MAX
from ..transaction.participant_parts import encode_outboxes
from ..transaction.routing import partitions_of
from ..transaction.snapshot_reader import check_partition
from ..transaction.topic_writes import Headers, Outbox
from .linger_timer import Late

if TYPE_CHECKING:
    from ..context import Context

Partitioner = Callable[[Any, int], int]
"""A function of a record's key and the number of partitions that returns its partition."""
LINGER_RECORDS = 1000
LINGER_BYTES = 1 << 20
_PRODUCER_BYTES_MAX = 200
_AGAIN_SECONDS = 1.0
_Item = tuple[int, bytes, bytes | None, bytes | None, int]


class Writer(Closing):
    """A buffered writer of a topic. Threads may share it.

    Invariants: numbers rise in a partition's buffer; records leave it only when their transaction is known to have
    committed.
    """

    def __init__(
        self,
        context: "Context",
        topic: str,
        producer: str | bytes | None,
        *,
        dedupe: bool,
        linger_records: int,
        linger_bytes: int,
        linger: float | None,
        partitioner: Partitioner | None,
    ) -> None:
        whole("linger_records", linger_records, 1)
        whole("linger_bytes", linger_bytes, 1, TRANSACTION_BYTES_MAX // 2)
        if seconds_or_none("linger", linger) == 0:
            linger_records = 1
        if partitioner is not None and not callable(partitioner):
            raise TypeError(
                "partitioner is a function of a record's key and the number of partitions"
            )
        raw = encode_text(producer, "producer") if isinstance(producer, str) else producer
        self._anonymous = raw is None
        if raw is None:
            raw = context.take_producer()
        if not isinstance(raw, bytes) or not 1 <= len(raw) <= _PRODUCER_BYTES_MAX:
            raise ValueError(f"producer is a name of 1 to {_PRODUCER_BYTES_MAX} bytes")
        self.producer = raw
        self.topic = topic
        self._context = context
        self._info = context.topic(topic)
        self._dedupe = dedupe
        self._session = context.runtime.new_tx()  # an id that no other writer has
        self._numbered: bool | None = None  # by the caller?
        self._linger_records = linger_records
        self._linger_bytes = linger_bytes
        self._linger = linger
        self._partitioner = partitioner
        self._late: Exception | None = None  # of a flush that nobody waited for
        self._lock = threading.RLock()
        self._buffers: defaultdict[int, list[_Item]] = defaultdict(list)
        self._last: dict[int, int] = {}
        self._records = 0
        self._bytes = 0
        self._flushes = 0
        self._encoder = Outbox(self._info, 0)
        self._closed = False

    @property
    def buffered(self) -> int:
        """The number of records that wait for a flush."""
        return self._records

    def write(
        self,
        value: Any,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        sequence: int | None = None,
    ) -> int:
        """Buffers one record and returns its number; flushes when the buffer is full.

        When such a flush fails it raises the error and does not take the record: write it again. Undetermined, and
        errors of a flush in the background, are raised by the next call instead.

        `sequence` is the caller's own number, 0 to 2**63 - 1, rising within each partition: pass it with each
        record, or with none. SequenceError where it does not rise.
        """
        keys = None if key is None else (key,)
        each = None if headers is None else (headers,)
        raw, raw_keys, packed, size = self._encoder.encode((value,), keys, each)
        raw_key = raw_keys[0] if raw_keys else None
        if partition is not None:
            check_partition(self._info, partition)
        if sequence is not None:
            whole("sequence", sequence)
        with self._lock:
            self._check()
            if self._late is not None or self._numbered is not (sequence is not None):
                self._check_late(sequence is not None)
            if partition is None:
                count = len(self._info.partitions)
                if self._partitioner is not None:
                    partition = check_partition(self._info, self._partitioner(key, count))
                else:
                    turn = self._flushes if sequence is None else sequence
                    (partition,) = partitions_of((raw_key,), count, turn % count)
            buffer = self._buffers[partition]
            if sequence is None:
                sequence = self._next_of(partition)
            elif sequence <= (last := buffer[-1][0] if buffer else self._last.get(partition, -1)):
                raise SequenceError(
                    f"topic {self.topic!r}, partition {partition}: sequence {sequence} does not "
                    f"rise above {last}, which this writer was given before, so it would be skipped as a "
                    "repeat; to repeat an input open another writer, and begin at its start"
                )
            buffer.append((sequence, raw[0], raw_key, packed[0] if packed else None, size))
            self._last[partition] = sequence
            self._records += 1
            self._bytes += size
            if self._linger is not None and self._records == 1:
                self._context.lingering.at(self._flush_late, self._linger)
            if self._records >= self._linger_records or self._bytes >= self._linger_bytes:
                self._flush_behind(partition)
            return sequence

    def _check_late(self, numbered: bool) -> None:
        """Raises the error of an earlier flush, or ValueError unless all records have numbers, or none has."""
        if self._late is not None:
            late, self._late = self._late, None
            late.add_note(f"raised by an earlier flush; {self!r} keeps the records: flush again")
            raise late
        if self._numbered is None:
            self._numbered = numbered
            return
        raise ValueError(
            f"a writer numbers its records itself, or is given a sequence with each: this one "
            f"{'is given them' if self._numbered else 'numbers itself'}; open another"
        )

    def _flush_behind(self, partition: int) -> None:
        """Flushes after a record was buffered, and takes the record back where that fails."""
        try:
            self._flush_full()
        except Undetermined as error:
            self._late = error  # it may have been published: the next call tells
        except Exception:
            self._unwrite(partition)
            raise

    def _flush_full(self) -> None:
        self.flush()

    def _unwrite(self, partition: int) -> None:
        """Takes back the last record of a partition, which no flush has sent."""
        buffer = self._buffers.get(partition)
        if buffer:
            number, *_, size = buffer.pop()
            self._last[partition] = number - 1
            self._records -= 1
            self._bytes -= size

    def _flush_late(self) -> Late | None:
        """Publishes the buffer once its time has come; returns the failure, None if it succeeded."""
        with self._lock:
            if self._closed or not self._records:
                return None
            try:
                self.flush()
                return None
            except Exception as error:
                self._late = error
                again = max(self._linger or 0.0, _AGAIN_SECONDS)
                return Late(repr(self), error, again)

    def _next_of(self, partition: int) -> int:
        """Returns the next number of a partition, where the writer numbers."""
        if buffer := self._buffers.get(partition):
            # What is buffered counts: an interrupt may have come before it was noted.
            last: int | None = buffer[-1][0]
        else:
            last = self._last.get(partition)
        if last is None:
            tablet = self._info.partitions[partition]
            runtime = self._context.runtime
            with runtime.snapshot() as snap:
                known = runtime.transactions.last_sequence(snap, tablet, self.producer)
            last = self._last[partition] = -1 if known is None else known
        if last >= INT_MAX:
            raise ValueError(
                f"topic {self.topic!r}, partition {partition}: producer {self.producer!r} has "
                "used its last number; go on under another name"
            )
        return last + 1

    def flush(self) -> Commit | None:
        """Publishes the buffered records in one transaction; returns None when none was new.

        After Undetermined, KeyboardInterrupt and Aborted the records stay buffered: flush again. Conflict when
        another writer of this producer was faster, if the writers number the records themselves or dedupe=False.
        """
        with self._lock:
            self._check()
            self._late = None
            while parts := self._parts():
                try:
                    runtime = self._context.runtime
                    done = runtime.transactions.commit(runtime.new_tx(), parts)
                except Conflict as conflict:
                    if not self._dedupe or not self._skip(conflict):
                        raise
                    continue
                self._buffers.clear()
                self._records = self._bytes = 0
                self._flushes += 1
                return done
            self._records = self._bytes = 0  # a flush that was struck behind its end leaves them
            return None

    def _parts(self) -> Parts:
        outbox = Outbox(self._info, 0)
        buffers = {p: items for p, items in self._buffers.items() if items}
        for partition, items in buffers.items():
            _, values, keys, headers, _ = zip(*items, strict=True)
            outbox.add(values, keys, headers, partition)
        slices = encode_outboxes([outbox])
        session = None if self._numbered else self._session
        parts: Parts = {}
        for partition, items in buffers.items():
            tablet = self._info.partitions[partition]
            numbers = (self.producer, items[0][0], items[-1][0])
            parts[tablet] = PartitionPart(
                (), slices[tablet], numbers, self._dedupe, session=session
            )
        return parts

    def _skip(self, conflict: Conflict) -> bool:
        """Drops a partition's records that were published before, and keeps the new ones; False if none was."""
        items = self._buffers.get(conflict.part)
        if conflict.producer is None or conflict.foreign or not items:
            return False
        published = [item for item in items if item[0] <= conflict.actual]  # numbers rise
        self._buffers[conflict.part] = items[len(published) :]
        self._records -= len(published)
        self._bytes -= sum(item[4] for item in published)
        return bool(published)

    def _check(self) -> None:
        self._context.check_writable()
        if self._closed:
            raise TransactionClosed("the writer is closed; open another with topic.writer()")

    def close(self) -> None:
        """Flushes and closes. When the flush fails the writer stays open."""
        with self._lock:
            if not self._closed:
                self.flush()
                self._closed = True
                if self._anonymous:  # all of its numbers are decided: another may go on behind them
                    self._context.give_producer(self.producer)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self._closed = True  # what is not flushed is dropped, as with a transaction

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._records:
            warnings.warn(
                f"{self!r} was dropped without close or flush: they are lost",
                ResourceWarning,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        return f"<Writer of topic {self.topic!r}, {counted(self._records, 'record')} buffered>"
