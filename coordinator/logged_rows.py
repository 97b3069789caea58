"""The rows of transactional ids: what the log says of each, and the log that says it first.

    append(name, before, row, then) ─▶ pending ─▶ log ─▶ row put, no longer pending ─▶ then(error, row)

Next: markers.py.
"""

from collections.abc import Callable
from typing import Any

from ..proto.batched_log import BatchedLog, Position
from ..proto.kafka.messages import Shell
from ..proto.shell import Keys
from .kafka.states import APPEND_ERRORS, DEAD, Transaction, check_move

PRODUCER_IDS_BLOCK = 1_000

Then = Callable[[str, Transaction], None]
"""Goes on after an append: the error ("" is none), and the row as it is then meant to be."""


def key_of(name: str) -> bytes:
    return b"t" + name.encode()


class TransactionRows:
    """Invariants: a row changes only in the log's callback, but for what its generation remembers; a pending
    id has exactly one record on its way; a producer id is given once."""

    __slots__ = ("_ids", "failed", "host", "log", "pending", "shell", "space")

    def __init__(self, host: int, space: Keys, shell: Shell) -> None:
        self.host = host
        self.space = space
        self.shell = shell
        self.log = BatchedLog(space, shell, shell.settings.log)
        self.pending: dict[str, int] = {}
        """id: the state whose record is on its way to the log"""
        self.failed: dict[str, int] = {}
        """id: the epoch of a fence that could not be logged"""
        self._ids = (0, 0)  # the rest of the block: next, end

    def mark(self) -> Any:
        return dict(self.pending), dict(self.failed), self._ids, self.log.mark()

    def undo(self, mark: Any) -> None:
        pending, failed, self._ids, log = mark
        self.pending, self.failed = dict(pending), dict(failed)
        self.log.undo(log)

    def get(self, name: str) -> Transaction | None:
        value = self.space.get(key_of(name))
        return None if value is None else self._known(name, value)

    def _known(self, name: str, value: tuple[Any, ...]) -> Transaction:
        row = Transaction(*value).remembered(self.shell.epoch)
        epoch = self.failed.get(name)
        return row if epoch is None else row._replace(epoch=epoch)

    def scan(self, states: tuple[int, ...]) -> list[tuple[str, Transaction]]:
        """The ids in one of these states, and that nothing is pending for, by name."""
        found = []
        for key, value in self.space.scan(b"t", b"u"):
            name, row = key[1:].decode(), Transaction(*value)
            if row.state in states and name not in self.pending:
                found.append((name, self._known(name, value)))
        return found

    def append(self, name: str, before: int | None, row: Transaction, then: Then) -> None:
        """To the log; once it is there the row is put, and the id is free for the next change."""
        if before is not None:
            check_move(before, row.state)
        assert name not in self.pending, f"{name} is pending already"
        self.pending[name] = row.state
        generation = self.shell.epoch

        def done(error: str, position: Position | None) -> None:
            self.pending.pop(name, None)
            if not error and self.shell.epoch != generation:
                error = "NOT_COORDINATOR"  # another coordinator may have gone on since
            if not error and row.state == DEAD:
                self.space.delete(key_of(name))
            elif not error:
                self.space.put(key_of(name), tuple(row))
            then(APPEND_ERRORS.get(error, error), row)

        self.log.append((name, None) if row.state == DEAD else (name, *row.logged()), done)

    def new_id(self) -> int:
        """A producer id that was never given: number | host << 40. The rest of a block is lost when the host
        ends, as a broker's is."""
        number, end = self._ids
        if number == end:
            number = self.space.get(b"i") or 0
            end = number + PRODUCER_IDS_BLOCK
            self.space.put(b"i", end)
        self._ids = number + 1, end
        return number | self.host << 40
