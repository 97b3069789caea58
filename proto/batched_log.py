"""Writes a coordinator's log, record by record or through a buffered writer (Pulsar's PIP-160).

    append ─▶ buffer ──────────────── flush ─▶ one entry ─▶ each record's `done`, in the order of `append`
                │ full by records or bytes ─┘ │
                └ first record: later(delay) ─┘        a record too large for any batch: its own entry, plain

An entry is either one record's bytes, or several framed:

    0e 01  00 02  records.proto's LogBatch             magic, version 2; also if only one was gathered
    0e 01  00 01  msgpack [record's bytes, …]          version 1, of earlier programs, is read still

The magic distinguishes them: a record is a msgpack array, which never begins with 0x0e. So a log may mix
both, and batching may be switched while it runs.

Keys, behind the tablet's prefix and, if a tablet has several logs, the log's own:

    l<number 8>   an entry
    L             number of the next entry
    v<number 8>   of an entry with deleted records: a bit a record, 1 for a live one, least bits first

and of its owner, `B`: whether its logs are batched, once that was switched; the setting counts before.

An owner either lets the log keep its newest entries, or deletes each record that no longer counts: an entry goes
with its last record (PIP-160 has that of PIP-54).

Faults of Pulsar's writer that cannot happen here:

    a batch outgrows the limit                  it is flushed before
    one bad record blocks all others            each is packed as it comes
    a timer dies, or wakes an idle tablet       each buffer's first record sets it
    a version is not checked                    `decode_entry` checks it

Next: ../coordinator/kafka/transactions.py.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import msgpack

from ..errors import FormatError
from .records_pb2 import LogBatch
from .shell import Keys, Shell, Wake

MAGIC = b"\x0e\x01"
VERSION = 2
ENTRIES_KEPT = 1_024
FLUSH = "flush"
BATCHING = b"B"
TRIGGERS = ("max_records", "max_bytes", "max_delay", "large_data", "asked")
RECORDS_BUCKETS = (1, 10, 50, 100, 200, 500, 1_000)
BYTES_BUCKETS = (128, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 100 << 10, 1 << 20, 4 << 20)
DELAY_MS_BUCKETS = (0, 1, 2, 5, 10, 100, 1_000)
_FRAME_BYTES = 4  # magic and version
_RECORD_BYTES = 6  # a record's longest head: its field's tag and its length
_HISTOGRAMS = (
    ("batch_records", RECORDS_BUCKETS),
    ("batch_bytes", BYTES_BUCKETS),
    ("batch_oldest_delay_ms", DELAY_MS_BUCKETS),
)


class Position(NamedTuple):
    """A record's position in the log; positions sort as the records do.

    `batch_size` is the number of records that share the entry, 1 for a plain one.
    """

    entry: int
    batch_size: int
    batch_index: int


Done = Callable[[str, Position | None], None]
"""Called with the error ("" for none) and, without one, the record's position."""


class LogSettings(NamedTuple):
    """Limits of a batch, with `batching`: its records, its bytes, the delay of its first record."""

    batching: bool
    records: int
    bytes: int
    delay_ms: float


class Rows(Protocol):
    """Reads the rows of one tablet; `proto.shell.Keys` is one."""

    def get(self, key: bytes) -> Any: ...
    def scan(self, begin: bytes, end: bytes) -> list[tuple[bytes, Any]]: ...


class _Record(NamedTuple):
    data: bytes
    done: Done
    cause: Any
    at_ms: int
    refused: str


class BatchedLog:
    """Appends records to a tablet's log and calls back once they are in it.

    Its timer wakes the tablet with its buffer's number, or with (prefix, number) if it has a prefix.

    Invariants: entries are numbered without a gap. Callbacks come in the order of the records in the log.
    A batch with its frame is never larger than `settings.bytes`. A timer of a flushed buffer has no effect.

    The buffer is in memory only: `mark` and `undo` restore it in constant time.
    """

    __slots__ = (
        "_buffer",
        "_bytes",
        "_counts",
        "_deleted",
        "_entry",
        "_first",
        "_keep",
        "_next",
        "_number",
        "_prefix",
        "_settings",
        "batching",
        "shell",
        "space",
    )

    def __init__(
        self,
        space: Keys,
        shell: Shell,
        settings: LogSettings,
        prefix: bytes = b"",
        keep: int | None = ENTRIES_KEPT,
    ) -> None:
        """Opens the log behind `prefix`, empty if there is none. `keep`: the newest entries that stay, for an owner
        whose rows hold the state; None: until their records are deleted."""
        self.space = space
        self.shell = shell
        self._settings = settings
        self._entry, self._next, self._deleted = prefix + b"l", prefix + b"L", prefix + b"v"
        self._prefix = prefix
        self._keep = keep
        self.batching = settings.batching
        self._buffer: list[_Record] = []  # replaced at a flush, never emptied: a mark may hold it
        self._bytes = _FRAME_BYTES
        self._number = 0  # of the buffer, so that a timer flushes only its own
        self._first = 0  # no entry before it: scans begin there
        self._counts = [0] * (len(TRIGGERS) + 3 + sum(len(b) + 1 for _, b in _HISTOGRAMS))

    @property
    def buffered(self) -> int:
        """The number of records that wait to be written."""
        return len(self._buffer)

    def append(self, record: tuple[Any, ...], done: Done, refused: str = "") -> None:
        """Writes the record, now or with others, and calls `done` once it is in the log.

        `refused`: the error of a record that takes space, should the disk be full when its batch is written; others
        are written then, too. An owner refuses requests that come to a full disk before they get here.

        For a record that cannot be packed it writes those before it and calls `done("INVALID_REQUEST", None)`.
        """
        try:
            data: bytes = msgpack.Packer(use_bin_type=True).pack(record)  # packb, without the call
        except (TypeError, ValueError, OverflowError):
            self.flush()
            done("INVALID_REQUEST", None)
            return
        if not self.batching:
            number = self._put(data)
            self.shell.appended()
            done("", Position(number, 1, 0))
            return
        entry = _Record(data, done, self.shell.cause, self.shell.now_ms, refused)
        settings = self._settings
        size = len(data) + _RECORD_BYTES
        if _FRAME_BYTES + size > settings.bytes:
            self._flush("large_data")
            self._write(data, [entry])  # not in the histograms, whose averages are of batches
            return
        while self._buffer and self._bytes + size > settings.bytes:
            self._flush("max_bytes")  # a callback may have appended: check again
        if not self._buffer:
            which = (self._prefix, self._number) if self._prefix else self._number
            self.shell.later(settings.delay_ms, Wake(FLUSH, which))
        self._buffer.append(entry)
        self._bytes += size
        if len(self._buffer) >= settings.records:
            self._flush("max_records")

    def wake(self, number: int) -> None:
        """Flushes buffer `number`, whose delay has passed; does nothing if it is written already."""
        if number == self._number:
            self._flush("max_delay")

    def flush(self) -> None:
        self._flush("asked")

    def switch(self, on: bool) -> None:
        """Turns batching on or off from the next record on; buffered records are written first."""
        self.flush()
        self.batching = on

    def delete(self, position: Position) -> None:
        """Deletes a record, and its entry with the last of its records; deleting it again has no effect."""
        number, size, index = position
        key = number.to_bytes(8, "big")
        live = 0
        if size > 1:
            bits = self.space.get(self._deleted + key)
            live = (1 << size) - 1 if bits is None else int.from_bytes(bits, "little")
            live &= ~(1 << index)
        if self.space.get(self._entry + key) is None:
            return
        if live:
            self.space.put(self._deleted + key, live.to_bytes((size + 7) // 8, "little"))
            return
        self.space.delete(self._entry + key)
        if size > 1:
            self.space.delete(self._deleted + key)

    def delete_before(self, number: int) -> None:
        """Deletes every entry before `number`."""
        begin, end = self._first.to_bytes(8, "big"), number.to_bytes(8, "big")
        for letter in (self._entry, self._deleted):
            for key, _ in self.space.scan(letter + begin, letter + end):
                self.space.delete(key)
        self._first = max(self._first, min(number, self.space.get(self._next) or 0))

    def entries(self) -> "list[Entry]":
        """Returns the entries, oldest first; FormatError for one that cannot be read."""
        return entries_of(self.space, self._entry[:-1])

    def mark(self) -> Any:
        buffer = self._buffer
        own = self._bytes, self._number, self._first, self.batching, self._counts
        return buffer, len(buffer), own

    def undo(self, mark: Any) -> None:
        self._buffer, length, own = mark
        self._bytes, self._number, self._first, self.batching, self._counts = own
        del self._buffer[length:]

    def counters(self) -> dict[str, int | list[int]]:
        """Returns counts of flushes by trigger, and histograms of batches.

        Histograms are of records, bytes and the oldest record's delay (ms). Each has the sum, and the batches
        within each bound of *_BUCKETS; the last count is of those beyond.
        """
        counters: dict[str, int | list[int]] = dict(
            zip(TRIGGERS, self._counts[: len(TRIGGERS)], strict=True)
        )
        at = len(TRIGGERS)
        for name, bounds in _HISTOGRAMS:
            counters[name + "_sum"] = self._counts[at]
            counters[name] = self._counts[at + 1 : at + len(bounds) + 2]
            at += len(bounds) + 2
        return counters

    def _flush(self, trigger: str) -> None:
        batch = self._buffer
        if not batch:
            return
        self._buffer, self._bytes = [], _FRAME_BYTES
        self._number += 1
        if self.shell.on_reserve and not (batch := self._without_refused(batch)):
            return
        packed = LogBatch(records=[record.data for record in batch]).SerializeToString()
        data = MAGIC + VERSION.to_bytes(2, "big") + packed
        self._count(trigger, len(batch), len(data), max(0, self.shell.now_ms - batch[0].at_ms))
        self._write(data, batch)

    def _without_refused(self, batch: list[_Record]) -> list[_Record]:
        """Refuses the records that take space. Clients that ask again would use up what is kept for ends."""
        running = self.shell.cause
        try:
            for record in batch:
                if record.refused:
                    self.shell.cause = record.cause
                    record.done(record.refused, None)
        finally:
            self.shell.cause = running
        return [record for record in batch if not record.refused]

    def _put(self, data: bytes) -> int:
        """Puts an entry, and returns its number."""
        number: int = self.space.get(self._next) or 0
        self.space.put(self._next, number + 1)
        self.space.put(self._entry + number.to_bytes(8, "big"), data)
        if self._keep is not None and number >= self._keep:
            self.space.delete(self._entry + (number - self._keep).to_bytes(8, "big"))
        return number

    def _write(self, data: bytes, batch: list[_Record]) -> None:
        number = self._put(data)
        running = self.shell.cause
        try:
            for index, record in enumerate(batch):
                self.shell.cause = record.cause
                self.shell.appended(1 / len(batch))
                record.done("", Position(number, len(batch), index))
        finally:
            self.shell.cause = running

    def _count(self, trigger: str, records: int, size: int, delay_ms: int) -> None:
        counts = self._counts = [*self._counts]  # a mark may hold the old ones
        counts[TRIGGERS.index(trigger)] += 1
        at = len(TRIGGERS)
        for value, (_, bounds) in zip((records, size, delay_ms), _HISTOGRAMS, strict=True):
            counts[at] += value
            place = next((i for i, bound in enumerate(bounds) if value <= bound), len(bounds))
            counts[at + 1 + place] += 1
            at += len(bounds) + 2


def switched(space: Rows, setting: bool) -> bool:
    """Returns whether an owner's logs are batched: as they were switched last, else as the setting says."""
    row = space.get(BATCHING)
    return setting if row is None else bool(row)


def added(several: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Adds up the counters of several logs."""
    total: dict[str, Any] = {}
    for counters in several:
        for name, value in counters.items():
            known = total.get(name)
            if isinstance(value, list):
                total[name] = [a + b for a, b in zip(known or [0] * len(value), value, strict=True)]
            else:
                total[name] = (known or 0) + value
    return total


class Entry(NamedTuple):
    """An entry as it is stored: its records by their index in it, without the deleted ones."""

    number: int
    batched: bool
    size: int
    """The records that were written together."""
    records: dict[int, tuple[Any, ...]]

    def positions(self) -> list[Position]:
        return [Position(self.number, self.size, index) for index in self.records]


def entries_of(space: Rows, prefix: bytes = b"") -> list[Entry]:
    """Returns the entries of the log behind `prefix`, oldest first; FormatError for one that cannot be read."""
    entry, deleted = prefix + b"l", prefix + b"v"
    entries = []
    for key, data in space.scan(entry, prefix + b"m"):
        records = decode_entry(data)
        bits = space.get(deleted + key[len(entry) :])
        live = -1 if bits is None else int.from_bytes(bits, "little")
        left = {index: record for index, record in enumerate(records) if live >> index & 1}
        number = int.from_bytes(key[len(entry) :], "big")
        entries.append(Entry(number, data[:2] == MAGIC, len(records), left))
    return entries


def decode_entry(data: bytes) -> list[tuple[Any, ...]]:
    """Decodes the records of one entry. Raises FormatError if a newer version wrote it, or it is damaged."""
    try:
        if data[:2] != MAGIC:
            packed = [data]
        else:
            version = int.from_bytes(data[2:4], "big")
            if version not in (1, VERSION):
                raise FormatError(
                    f"a log entry has batch version {version}, this program knows {VERSION}: "
                    "open the store with the newer version that wrote it"
                )
            batch = data[4:]
            packed = (
                msgpack.unpackb(batch) if version == 1 else [*LogBatch.FromString(batch).records]
            )
        records = [msgpack.unpackb(record, use_list=False) for record in packed]
    except FormatError:
        raise
    except Exception as error:  # whatever damaged bytes make msgpack raise
        raise FormatError(
            f"a log entry cannot be read: {error}; restore the store from a backup"
        ) from error
    if not all(type(record) is tuple for record in records):
        raise FormatError("a log entry holds what is no record; restore the store from a backup")
    return records
