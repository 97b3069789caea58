"""Writes the log of pending acknowledgements of each subscription, and removes what it no longer needs.

    ACK (0,5) 3-4 │ ACK (0,6) to 9 │ COMMIT (0,5) │ …        index: entries up to 2 are about offsets up to 9

Keys, behind the tablet's prefix; S is a subscription's name and a zero byte:

    l<S>l…, l<S>L, l<S>v…   the log (../../proto/batched_log.py), from the first acknowledgement in a transaction on
    h<S>                    its index: (records since, highest offset, ((entry, offset), …))
    B                       whether the logs are batched, once that was switched

Entries up to an indexed one go once the subscription's position has reached the offset (PIP-153). The index gets
an entry behind `ack_log_index_min_lag` records, times the entries that it has; its offset is the highest so far.

Next: pending_rows.py.
"""

from typing import Any, TypeAlias

from ...proto.batched_log import BATCHING, BatchedLog, Position, Rows, added, entries_of, switched
from ...proto.pulsar.messages import Shell
from ...proto.shell import Keys
from ..intervals import unconsumed
from .rows import Cursor, of_name

LOG, INDEX = b"l", b"h"
ACK, COMMIT, ABORT = range(3)
"""The first field of a record; then most, least, and of an ACK its ranges, and its position or None."""
Mark: TypeAlias = dict[str, tuple[BatchedLog, Any] | None]


class AckLogs:
    """Holds the logs of one partition's subscriptions."""

    __slots__ = ("_before", "_logs", "_shell", "_space")

    def __init__(self, space: Keys, shell: Shell) -> None:
        self._space = space
        self._shell = shell
        self._logs: dict[str, BatchedLog] = {}
        self._before: Mark = {}
        """The logs that were used since the last `mark`, as they were then."""

    def mark(self) -> Mark:
        self._before = {}
        return self._before

    def undo(self, mark: Mark) -> None:
        for name, before in mark.items():
            if before is None:
                self._logs.pop(name, None)
            else:
                self._logs[name] = log = before[0]
                log.undo(before[1])

    def _known(self, name: str) -> BatchedLog | None:
        """Returns a log that was used since the host's start, and remembers what it was."""
        log = self._logs.get(name)
        if name not in self._before:
            self._before[name] = None if log is None else (log, log.mark())
        return log

    def of(self, name: str) -> BatchedLog:
        """Returns a subscription's log."""
        log = self._known(name)
        if log is None:
            prefix = of_name(LOG, name)
            log = BatchedLog(self._space, self._shell, self._shell.settings.ack_log, prefix, None)
            log.batching = switched(self._space, log.batching)
            self._logs[name] = log
        return log

    def wake(self, prefix: bytes, number: int) -> None:
        """Writes the buffer of a log whose delay has passed."""
        log = self._known(prefix[len(LOG) : -1].decode())
        if log is not None:
            log.wake(number)

    def switch(self, batching: bool) -> None:
        """Writes all logs through the buffered writer, or record by record, from now on."""
        self._space.put(BATCHING, int(batching))
        for name in list(self._logs):
            self.of(name).switch(batching)

    def counters(self) -> dict[str, Any]:
        """Returns the buffered writers' counters, of all subscriptions together."""
        return added(log.counters() for log in list(self._logs.values()))

    def count(self, name: str, at: Position, record: tuple[Any, ...], position: int) -> None:
        """Counts a record in the log, and adds an entry to the index behind enough of them.

        Only at a batch's last record: an entry of the index is about whole entries of the log.
        """
        key = of_name(INDEX, name)
        since, highest, entries = self._space.get(key) or (0, 0, ())
        if record[0] == ACK:
            highest = max([highest, record[4] or 0, *(high for _, high in record[3])])
        since += 1
        lag = self._shell.settings.ack_log_index_min_lag * max(1, len(entries))
        if since >= lag and at.batch_index == at.batch_size - 1:
            since, entries = 0, (*entries, (at.entry, highest))
        self._space.put(key, (since, highest, entries))
        if entries:
            self.trim(name, position)

    def trim(self, name: str, position: int) -> None:
        """Deletes the entries that are about offsets before `position`."""
        key = of_name(INDEX, name)
        index = self._space.get(key)
        passed = [entry for entry, highest in index[2] if highest <= position] if index else []
        if passed:
            self.of(name).delete_before(passed[-1] + 1)
            self._space.put(key, (index[0], index[1], index[2][len(passed) :]))

    def flush(self, name: str) -> None:
        """Writes what waits in the buffer, and what that leads to."""
        log = self._known(name)
        while log is not None and log.buffered:
            log.flush()

    def forget(self, name: str) -> None:
        """Deletes the entries and their index; the log's numbers go on."""
        self.of(name).delete_before((1 << 63) - 1)
        if self._space.get(of_name(INDEX, name)) is not None:
            self._space.delete(of_name(INDEX, name))

    def drop(self, name: str) -> None:
        """Deletes the log."""
        for key, _ in self._space.scan(of_name(LOG, name), of_name(LOG, name) + b"\xff"):
            self._space.delete(key)
        if self._known(name) is not None:
            del self._logs[name]


def replayed(space: Rows, name: str, cursor: Cursor) -> tuple[dict[int, tuple[int, int]], Any]:
    """Returns what the log says is pending: (most, least) by offset, and (most, least, position) or None.

    It is equal to the rows after every turn. What was acknowledged since is skipped offset by offset.
    """
    pending: dict[int, tuple[int, int]] = {}
    cumulative: Any = None
    for entry in entries_of(space, of_name(LOG, name)):
        for op, most, least, *what in entry.records.values():
            if op != ACK:
                pending = {at: who for at, who in pending.items() if who != (most, least)}
                if cumulative is not None and cumulative[:2] == (most, least):
                    cumulative = None
                continue
            ranges, position = what
            if position is not None and position > cursor.position:
                cumulative = most, least, position
            for low, high in ranges:
                for begin, end in unconsumed(cursor.position, cursor.ranges, low, high):
                    pending.update(dict.fromkeys(range(begin, end), (most, least)))
    return pending, cumulative
