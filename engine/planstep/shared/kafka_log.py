"""Keeps a shared log in a Kafka topic of one partition: each turn is a record, or several, and a fold decides.

    offset   0      1         2        3        4      5
             root   BEGIN 1   turn 2   turn 3   beat   turn 4       fold.py says which records count

    append   send ─ delivered right behind the last record that was folded ─▶ decided: nothing is between
               ├ delivered further on, or who knows where ─▶ read to the end ─ the turn is mine ─▶ decided
               │                                                              └ is another's ─▶ Fenced
               └ no answer ─▶ read to the end ─ nothing ─▶ send the same again … until the time-out: LogUnreachable

All readers fold the same records in the same order, so what one of them has decided, all have. A record that comes
late or twice is void by its turn's number.

Each record's key is the root (root.py). The first one decides which store the topic is of. Records that were sent
by others are passed over.

Trimming deletes records from the front. Rules that objects need for it are not needed here: an offset never comes
again, so a late BEGIN cannot land where a deleted turn was. It lands at the end, where it is void, and its sender
finds that out, or that the records before it are gone. So BEGINs may be deleted, and no floor is written down: it
is the turn of the first record. A reader goes on at an offset; it has missed something if that one is deleted.

Left out: transactions. They would bring records of Kafka's own between the turns, and decide nothing more.

Next: kafka_settings.py.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from math import inf
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar

from ..errors import Corruption, Diverged, Fenced, FormatError, IoError, Trimmed
from .counts import Counts
from .entry import Entry, Owner
from .fold import Fold, place_of, split, turn_of
from .patient import LOG_TIMEOUT, PAUSE, patiently
from .root import encode_root, is_root, read_root
from .shared_log import Position, Root

RECORD_BYTES = 900_000
"""Largest record: a broker takes 1 MiB, with what it adds, unless it is told otherwise."""
_BEAT = b"PSB1"
_FETCH_S = 5.0
_LOOKED_AT = 10_000
"""Records of others among which ours are looked for."""


_T = TypeVar("_T")


class Record(NamedTuple):
    """A record of a partition, from any sender."""

    offset: int
    key: bytes
    data: bytes


class Partition(Protocol):
    """A partition of Kafka. IoError: a call failed, or gave no answer; what was sent may come yet."""

    @property
    def where(self) -> str: ...

    def bounds(self) -> tuple[int, int]:
        """Returns the first offset that is not deleted, and the one behind the last record.

        Both may be those of a moment ago, if the broker that answers is no leader any more.
        """

    def fetch(self, offset: int, wait: float) -> tuple[list[Record], int]:
        """Returns the next records from an offset on, and the offset up to which there are no others.

        It waits up to `wait` seconds for one. IoError too if the offset is deleted.
        """

    def send(self, records: list[bytes], key: bytes) -> list[int | None]:
        """Appends records in order; returns the offset of each, None if it is not known."""

    def delete_below(self, offset: int) -> None: ...

    def close(self) -> None: ...


def open_partition(partition: Partition, root: Root | None) -> Root:
    """Returns the root of the log in a partition, which is `root` if that is empty.

    FormatError: it has records of others only, or none, and None was given.
    """
    found = _find_root(partition)
    if found is None:
        if root is None:
            raise FormatError(f"{partition.where} is no shared log")
        data = encode_root(root)
        partition.send([data], data)
        found = _find_root(partition)  # another machine's may have come first
        if found is None:
            raise IoError(f"{partition.where} did not keep what was written to it")
    return read_root(found, f"the root of {partition.where}")


def _find_root(partition: Partition) -> bytes | None:
    """Finds the root; None if the partition is empty. FormatError, IoError."""
    first, end = partition.bounds()
    looked_at = 0
    for records, _ in _batches(partition, first, end):
        for record in records:
            # A root alone counts only where it may have come first: a late one lost to the first.
            if is_root(record.key) and (first == 0 or record.data != record.key):
                return record.key
        looked_at += len(records)
        if looked_at > _LOOKED_AT:
            break
    if end == 0:
        return None
    raise FormatError(
        f"{partition.where} has other records than a shared log, or had some: give the log a topic of its own"
    )


def _batches(partition: Partition, offset: int, end: int) -> Iterator[tuple[list[Record], int]]:
    """Fetches the records between two offsets, and some more. IoError."""
    deadline = monotonic() + _FETCH_S
    while offset < end:
        records, behind = partition.fetch(offset, max(0, deadline - monotonic()))
        if behind > offset:
            yield records, behind
            offset, deadline = behind, monotonic() + _FETCH_S
        elif monotonic() >= deadline:
            raise IoError(f"no records came for {_FETCH_S:g} seconds")


class KafkaLog:
    """A SharedLog. Invariant: `_entries`, of `_size` bytes, are those behind turn `_turn` that the fold has seen.

    `_sent`: records of the next turn were sent, and may count. `_damage` has ended the fold for good.
    """

    def __init__(
        self, partition: Partition, root: Root, timeout: float = LOG_TIMEOUT, pause: float = PAUSE
    ) -> None:
        """`timeout`, in seconds: how long a call is repeated that fails; `pause`: the first wait, which doubles."""
        self._partition = partition
        self._store_id = root.store_id
        self._key = encode_root(root)
        self._timeout = timeout
        self._pause = pause
        self._floor, self._floor_at = 1, 0
        self._counts = Counts()
        self.open(Position())

    @property
    def objects(self) -> None:
        return None

    @property
    def counts(self) -> Counts:
        self._counts.void_records = self._fold.void
        return self._counts

    def count_into(self, counts: Counts) -> None:
        self._counts = counts

    @property
    def local_sync(self) -> bool:
        return True  # brokers acknowledge what their disks may not have yet

    @property
    def polls(self) -> bool:
        return False

    @property
    def linger(self) -> float:
        return 0.0

    def wait_less(self, timeout: float) -> None:
        self._timeout = min(timeout, self._timeout)

    def open(self, at: Position) -> None:
        self._turn = at.turn
        self._fold = Fold(self._store_id, at)
        self._entries: deque[Entry] = deque()
        self._size = 0
        self._damage: Corruption | None = None
        self._sent = False

    # reading -------------------------------------------------------------------------------

    def read(self, limit_bytes: int, wait: float) -> list[Entry]:
        deadline = monotonic() + wait
        while True:
            if not self._entries or (self._size < limit_bytes and self._damage is None):
                self._patiently(partial(self._read_to_end, limit_bytes))
            rest = deadline - monotonic()
            if self._entries or rest <= 0:
                break
            self._patiently(partial(self._read_some, min(rest, _FETCH_S)))
        taken: list[Entry] = []
        size = 0
        while self._entries and (not taken or size < limit_bytes):
            taken.append(self._taken())
            size += len(taken[-1].data)
        return taken

    def _taken(self) -> Entry:
        entry = self._entries.popleft()
        self._turn = entry.turn
        self._size -= len(entry.data)
        return entry

    def _read_to_end(self, limit_bytes: float = inf) -> None:
        """Folds what is there, and stops once the entries have so many bytes. Trimmed, Corruption, IoError."""
        if self._damage is not None:
            raise self._damage
        first, end = self._partition.bounds()
        if self._fold.offset < first:
            raise Trimmed(self._floor_of(first))
        for records, behind in _batches(self._partition, self._fold.offset, end):
            self._add(records, behind)
            if self._size >= limit_bytes:
                break

    def _read_some(self, wait: float) -> None:
        self._add(*self._partition.fetch(self._fold.offset, wait))

    def _add(self, records: list[Record], behind: int) -> None:
        """Folds records. Corruption, once the turns before it are taken; it is there to stay."""
        try:
            for record in records:
                entry = self._fold.add(record.data, record.offset)
                if entry is not None:
                    self._entries.append(entry)
                    self._size += len(entry.data)
            self._fold.offset = max(self._fold.offset, behind)
        except Corruption as error:
            self._damage = error
            if not self._entries:
                raise

    # appending -----------------------------------------------------------------------------

    def append(self, entry: Entry) -> bytes:
        assert entry.turn == self._turn + 1
        records = split(entry, RECORD_BYTES)
        try:
            found = self._patiently(partial(self._try_append, records))
        except Trimmed as gone:
            # The turn was another's before ours was sent, or the floor tells that ours may have counted.
            raise Fenced(self._patiently(self._first)[1]) from gone
        self._sent = False
        if found.data != entry.data:
            raise Fenced(found.owner.term)
        self._taken()
        return found.mark

    def _try_append(self, records: list[bytes]) -> Entry:
        """Does this once; returns the entry that the turn has for ever. IoError: it may have ours; Trimmed."""
        if self._sent and not self._entries:
            self._read_to_end()
        if not self._entries:
            self._sent = True
            self._send(records)
        if not self._entries:
            raise IoError("the turn was sent, and is not there yet")
        return self._entries[0]

    def _send(self, records: list[bytes]) -> None:
        """Sends records, and folds what is there up to them. Trimmed, Corruption, IoError."""
        if self._damage is not None:
            raise self._damage
        offset = self._fold.offset
        for record in records:
            self._counts.add("put", sent=len(record))
        offsets = self._partition.send(records, self._key)
        behind = offset + len(records)
        if offsets == list(range(offset, behind)):
            self._add(list(map(Record, range(offset, behind), repeat(self._key), records)), behind)
            return
        last = max((at for at in offsets if at is not None), default=-1)
        if 0 <= last < offset:
            raise Diverged(
                f"{self._partition.where} has lost records: it ends at offset {last}, and had {offset} before"
            )
        self._read_to_end()
        if None in offsets or self._fold.offset <= last:
            raise IoError("what was sent cannot be read yet")

    def barrier(self) -> None:
        self._patiently(self._try_barrier)
        if self._entries:
            raise Fenced(self._entries[0].owner.term)

    def _try_barrier(self) -> None:
        # A broker that is no leader any more may answer questions, but it cannot take a record.
        if not self._entries:
            self._send([_BEAT])

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        return patiently(attempt, self._partition.where, self._timeout, self._pause)

    # trimming ------------------------------------------------------------------------------

    def floor(self) -> int:
        floor = self._patiently(lambda: self._floor_of(self._partition.bounds()[0]))
        return self._counts.see_floor(floor)

    def _floor_of(self, first: int) -> int:
        """Returns the turn of the first record: it is the lowest one that is left, or repeats an older one."""
        if first > self._floor_at:
            self._floor = max(self._floor, self._first()[0])
            self._floor_at = first
        if self._fold.offset < first:  # behind the turn we know one more was, and is gone
            self._floor = max(self._floor, self._fold.turn + 2)
        return self._floor

    def _first(self) -> tuple[int, int]:
        """Returns turn and term of the first record of the store; (1, 0) if there is none. IoError."""
        first, end = self._partition.bounds()
        for records, _ in _batches(self._partition, first, end):
            for record in records:
                found = turn_of(
                    record.data, self._store_id, f"the record at offset {record.offset}"
                )
                if found is not None:
                    return found
        return 1, 0

    def wrote(self, owner: Owner, turn: int) -> bool:
        return True  # BEGINs went with the records before the floor

    def trim(self, turn: int, mark: bytes = b"") -> None:
        offset, _ = place_of(mark)
        assert offset or turn == 1, "the mark tells where the turn begins"
        self._patiently(lambda: self._partition.delete_below(offset))

    def close(self) -> None:
        self._partition.close()
