"""Keeps the rows of a coordinator's transactions and logs each change before it applies it.

    append(name, before, row, then) ─▶ pending ─▶ log ─▶ row put, no longer pending ─▶ then(error, row)

The mode defines a row's fields and the allowed changes of state (`Kind`).

Next: markers.py.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from ..proto.batched_log import BATCHING, BatchedLog, LogSettings, Position, switched
from ..proto.shell import Keys, Shell

PRODUCER_IDS_BLOCK = 1_000


class Row(Protocol):
    """A transaction's state: a NamedTuple, stored as the tuple it is."""

    @property
    def state(self) -> int: ...
    @property
    def partitions(self) -> tuple[int, ...]:
        """The tablets to inform of its end, ascending."""

    def __iter__(self) -> Iterator[Any]: ...
    def logged(self) -> tuple[Any, ...]:
        """Returns the fields that a log record holds."""

    def remembered(self, generation: int) -> Self:
        """Returns the row without what an earlier generation of the host had in memory only."""

    def fenced(self, epoch: int) -> Self:
        """Returns the row with the raised epoch of a fence that could not be logged."""


R = TypeVar("R", bound=Row)
Then: TypeAlias = Callable[[str, R], None]
"""Called after an append with the error ("" for none) and the row that was to be stored."""


@dataclass(slots=True)
class Kind(Generic[R]):
    """Describes a mode's rows to `TransactionRows`.

    `check_move` asserts that a state may follow another. A row of state `dead` is a tombstone in the log.
    `former` is the error of a coordinator that has been replaced. `errors` maps the log's errors to the
    clients'.
    """

    row: Callable[..., R]
    check_move: Callable[[int, int], None]
    dead: int
    former: str
    errors: Mapping[str, str]


def key_of(name: str) -> bytes:
    return b"t" + name.encode()


class TransactionRows(Generic[R]):
    """Stores a coordinator's rows, each change once the log has it, and gives out producer ids.

    Invariants: a row changes only in the log's callback, except for fields kept in memory only. A pending id
    has exactly one record on its way. A producer id is given once.
    """

    __slots__ = ("_ids", "failed", "host", "kind", "log", "pending", "shell", "space")

    def __init__(
        self, host: int, space: Keys, shell: Shell, kind: Kind[R], settings: LogSettings
    ) -> None:
        self.host = host
        self.kind = kind
        self.space = space
        self.shell = shell
        self.log = BatchedLog(space, shell, settings)
        self.log.batching = switched(space, settings.batching)
        self.pending: dict[str, int] = {}
        """By id: the state whose record is on its way to the log."""
        self.failed: dict[str, int] = {}
        """By id: the epoch of a fence that could not be logged."""
        self._ids = (0, 0)  # next and end of the block of ids in use

    def mark(self) -> Any:
        return dict(self.pending), dict(self.failed), self._ids, self.log.mark()

    def undo(self, mark: Any) -> None:
        pending, failed, self._ids, log = mark
        self.pending, self.failed = dict(pending), dict(failed)
        self.log.undo(log)

    def get(self, name: str) -> R | None:
        value = self.space.get(key_of(name))
        return None if value is None else self._known(name, value)

    def _known(self, name: str, value: tuple[Any, ...]) -> R:
        row = self.kind.row(*value).remembered(self.shell.epoch)
        epoch = self.failed.get(name)
        return row if epoch is None else row.fenced(epoch)

    def scan(self, states: tuple[int, ...]) -> list[tuple[str, R]]:
        """Returns (id, row) of the ids in one of these states with nothing pending, by name."""
        rows = []
        for key, value in self.space.scan(b"t", b"u"):
            name, row = key[1:].decode(), self.kind.row(*value)
            if row.state in states and name not in self.pending:
                rows.append((name, self._known(name, value)))
        return rows

    def append(
        self, name: str, before: int | None, row: R, then: Then[R], refused: str = ""
    ) -> None:
        """Logs a change; once it is logged, stores the row and frees the id for the next change. `refused`: as in
        `BatchedLog.append`."""
        if before is not None:
            self.kind.check_move(before, row.state)
        assert name not in self.pending, f"{name} is pending already"
        self.pending[name] = row.state
        generation, kind = self.shell.epoch, self.kind

        def done(error: str, position: Position | None) -> None:
            self.pending.pop(name, None)
            if not error and self.shell.epoch != generation:
                error = kind.former  # another coordinator may have taken over since
            if not error and row.state == kind.dead:
                self.space.delete(key_of(name))
            elif not error:
                self.space.put(key_of(name), tuple(row))
            then(kind.errors.get(error, error), row)

        record = (name, None) if row.state == kind.dead else (name, *row.logged())
        self.log.append(record, done, refused)

    def switch(self, batching: bool) -> None:
        """Writes the log through the buffered writer from now on, or record by record."""
        self.log.switch(batching)
        self.space.put(BATCHING, int(batching))

    def new_id(self) -> int:
        """Returns a producer id that was never given: number | host << 40.

        The rest of a block is lost when the host ends, as a broker's is.
        """
        number, end = self._ids
        if number == end:
            number = self.space.get(b"i") or 0
            end = number + PRODUCER_IDS_BLOCK
            self.space.put(b"i", end)
        self._ids = number + 1, end
        return number | self.host << 40
