"""Runs a partition of mode "pulsar" on a dict: a test sends each message, and invariants are checked after each.

A turn is kept or lost whole: `tell` with `fails_at` fails one of its writes, and undoes rows and memory.
"""

from itertools import pairwise
from typing import Any

from coordinator_kit import FakeShell
from snapshot_kit import FailingSpace, PowerLoss

from planstep.proto.batch import Batch, encode_batch
from planstep.proto.ids import PARTITION, TRANSACTIONS, tablet_id
from planstep.proto.pulsar.messages import (
    ABORT,
    NO_TXN,
    PLAIN,
    TRANSACTIONAL,
    Ended,
    EndTxnOnPartition,
    Send,
    TrimTo,
)
from planstep.proto.pulsar.settings import PulsarSettings
from planstep.proto.shell import Answer
from planstep.tablets.pulsar.aborted import Aborted
from planstep.tablets.pulsar.partition import Partition
from planstep.tablets.pulsar.rows import EMPTY, Bounds, Entry, of_txn
from planstep.tablets.pulsar.snapshots import read_markers, recover

TABLET = tablet_id(PARTITION, 0, 1)
COORDINATOR = tablet_id(TRANSACTIONS, 0, 0)
CLIENT = 77
LOST = "lost"


class Topic:
    """One partition, and a reader with a copy of its aborted ids."""

    def __init__(self, **settings: Any) -> None:
        self.space = FailingSpace()
        self.settings = PulsarSettings(**settings)
        self.requests = 0
        self.high = 0  # the highest max read so far
        self.restart()

    def restart(self, **settings: Any) -> None:
        """Starts the tablet and a reader anew, from the rows alone."""
        if settings:
            self.settings = PulsarSettings(**settings)
        self.shell = FakeShell(self.settings, now_ms=0)  # type: ignore[arg-type]
        self.tablet = Partition(TABLET, self.space, self.shell)  # type: ignore[arg-type]
        self.copy: Aborted | None = None
        self.copied = 0

    def tell(self, message: Any, fails_at: int | None = None) -> list[Any]:
        """Delivers a message, checks the rows, and returns the messages sent; [LOST] if the turn is undone."""
        space, shell = self.space, self.shell
        shell.sent.clear()
        rows, payloads, dropped = dict(space.rows), dict(space.payloads), list(space.dropped)
        mark, timers = self.tablet.mark(), list(shell.timers)
        space.writes_left = 1 << 60 if fails_at is None else fails_at
        try:
            self.tablet.handle(message)
        except PowerLoss:
            space.rows, space.payloads, space.dropped = rows, payloads, dropped
            self.tablet.undo(mark)
            shell.timers = timers
            return [LOST]
        finally:
            space.writes_left = 1 << 60
        self.check()
        return [sent.message for sent in shell.sent]

    # messages ------------------------------------------------------------------------------

    def request(self, text: str, txn: tuple[int, int], producer: str, sequence: int) -> Send:
        self.requests += 1
        values = [word.encode() for word in text.split()]
        data = encode_batch(values, timestamp_ms=0)
        return Send(CLIENT, self.requests, *txn, producer, sequence, data, len(values))

    def send(
        self,
        text: str,
        txn: tuple[int, int] = NO_TXN,
        producer: str = "",
        sequence: int = -1,
        fails_at: int | None = None,
    ) -> Any:
        """Sends a message for each word; returns the first one's offset, the error, LOST, or None if it waits."""
        request = self.request(text, txn, producer, sequence)
        sent = self.tell(request, fails_at)
        if not sent or sent == [LOST]:
            return sent[0] if sent else None
        (answer,) = [m for m in sent if type(m) is Answer and m.request == request.request]
        return answer.error or answer.value

    def end(
        self,
        txn: tuple[int, int],
        commit: bool,
        mark: int = -1,
        fails_at: int | None = None,
    ) -> Any:
        sent = self.tell(EndTxnOnPartition(COORDINATOR, *txn, commit, mark), fails_at)
        if not sent or sent == [LOST]:
            return sent[0] if sent else None
        (ended,) = sent
        assert ended == Ended(TABLET, *txn, None, ended.error)
        assert self.shell.sent[0].target == COORDINATOR
        return ended.error

    def commit(self, txn: tuple[int, int], mark: int = -1) -> Any:
        return self.end(txn, True, mark)

    def abort(self, txn: tuple[int, int], mark: int = -1) -> Any:
        return self.end(txn, False, mark)

    def trim(self, offset: int, fails_at: int | None = None) -> Any:
        (answer,) = self.tell(TrimTo(CLIENT, 1, offset), fails_at)
        return answer if answer == LOST else answer.error or answer.value

    def pass_time(self, ms: float) -> list[Any]:
        """Fires the timers of the next `ms`, with those that they set; returns what was sent then."""
        shell, sent = self.shell, []
        until = shell.now_ms + ms
        while due := sorted((t for t in shell.timers if t[0] <= until), key=lambda t: t[0])[:1]:
            shell.timers.remove(due[0])
            shell.now_ms = int(max(shell.now_ms, due[0][0]))
            sent += self.tell(due[0][1])
        shell.now_ms = int(until)
        return sent

    # state ---------------------------------------------------------------------------------

    @property
    def bounds(self) -> Bounds:
        row = self.space.get(b"m")
        return EMPTY if row is None else Bounds(*row)

    @property
    def state(self) -> str:
        return self.tablet.buffer.state

    def entries(self) -> list[tuple[int, Entry]]:
        rows = self.space.scan(b"b", b"c")
        return [(int.from_bytes(key[1:], "big"), Entry(*row)) for key, row in rows]

    def count(self, letter: bytes) -> int:
        return sum(key[:1] == letter for key in self.space.rows)

    def read(self) -> list[str]:
        """Reads what a reader with its own copy of the ids is shown, from the log's start to max read."""
        start, end, max_read = self.bounds
        if self.copy is None:
            self.copy, self.copied = recover(self.space, start, end) or Aborted(), end
        read_markers(self.space, self.copy, max(start, self.copied), end)
        self.copy.trim(start)
        self.copied = end
        shown = []
        for offset, entry in self.entries():
            if offset >= max_read or self.copy.hides(offset, entry):
                continue
            values = Batch.decode(self.space.payloads[entry.address]).values
            shown += [v.decode() for i, v in enumerate(values) if v and offset + i >= start]
        return shown

    def ongoing(self) -> dict[tuple[int, int], int]:
        """Finds the first offset of each transaction without an end, by scanning the log."""
        first: dict[tuple[int, int], int] = {}
        for offset, entry in self.entries():
            txn = entry.most, entry.least
            if entry.kind == TRANSACTIONAL:
                first.setdefault(txn, offset)
            elif entry.kind != PLAIN:
                first.pop(txn, None)
        return first

    def check(self) -> None:
        """Checks the rows against a scan of the log, and the tablet's ids against the reader's."""
        rows = self.space.rows
        start, end, max_read = self.bounds
        assert start <= max_read <= end
        entries = self.entries()
        assert not entries or entries[0][0] <= start
        assert (entries[-1][0] + entries[-1][1].records if entries else start) == end
        for (a, entry), (b, _) in pairwise(entries):
            assert a + entry.records == b
        first = self.ongoing()
        assert max_read == min(first.values(), default=end)
        assert max_read >= self.high, "max read never falls"
        self.high = max_read
        assert self.rows(b"n") == {of_txn(b"n", *txn): at for txn, at in first.items()}
        by_offset = {b"o" + at.to_bytes(8, "big"): txn for txn, at in first.items()}
        assert self.rows(b"o") == by_offset
        marks = {int.from_bytes(key[1:], "big"): mark for key, mark in self.rows(b"w").items()}
        for key in [*self.rows(b"n"), *self.rows(b"z")]:
            most, least = int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:], "big")
            assert least > marks.get(most, -1)
        used = {entry.address: entry.length for _, entry in entries if entry.length}
        assert used == {at: len(data) for at, data in self.space.payloads.items()}
        if self.state == "Ready":
            self.read()
            assert self.copy is not None
            markers = [(a, e.most, e.least) for a, e in entries if e.kind == ABORT and a >= start]
            assert self.tablet.buffer.aborted.ids() == self.copy.ids() == markers
        if entries and len(rows) > 1 and list(rows)[-1][:1] == b"b":
            raise AssertionError("bounds are put behind the entries that they cover")

    def rows(self, letter: bytes) -> dict[bytes, Any]:
        return {key: row for key, row in self.space.rows.items() if key[:1] == letter}
