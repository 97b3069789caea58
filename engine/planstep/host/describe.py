"""Describes what partitions and coordinators' logs hold, as plain values and as words for people.

    clicks[3] @17 5 records place (12, 0)                               a batch of mode "deterministic"
    clicks[3] @17 5 records producer 4 epoch 0 seq 0 transactional      one of mode "kafka"
    clicks[3] @22 commit marker producer 4 epoch 0
    transaction coordinator: w1 Ongoing [clicks[3]] producer 4 epoch 0
    group coordinator: resharder clicks[0] = 12 pending producer 4

The mode's own modules put its own rows into words (modes.py, Words).

Next: ../runtime/kafka/identities.py, ../cli/inspect.py.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from ..coordinator.plan import STATES, OutcomeRow
from ..proto.ids import (
    CATALOGUE,
    COORDINATOR,
    KIND_NAMES,
    PARTITION,
    SHARD,
    host_of,
    kind_of,
    tablet_text,
    tx_text,
)
from ..store.layers import GONE
from .modes import MODES, Tell


class Names(Protocol):
    """Finds the name of a tablet, as runtime/catalog.py's Names does."""

    def of_tablet(self, tablet: int) -> tuple[str, str, int]: ...


class Nameless:
    """Stands in for the names of a store whose catalogue cannot be read."""

    def of_tablet(self, tablet: int) -> tuple[str, str, int]:
        return "tablet", f"{tablet:#x}", 0


def part_name(names: Names, tablet: int) -> str:
    """Returns "clicks[3]", or a coordinator's kind, with its host unless that is the first."""
    if kind_of(tablet) in (PARTITION, SHARD):
        _, name, part = names.of_tablet(tablet)
        return tablet_text(tablet) if name == f"{tablet:#x}" else f"{name}[{part}]"
    host = host_of(tablet)
    return KIND_NAMES[kind_of(tablet)] + (f" on host {host}" if host else "")


def batch_columns(mode: str) -> list[str]:
    """Returns the fields of `batch_fields` that a table shows."""
    return ["offset", "records", "bytes", *MODES[mode].words.entry_columns]


def batch_fields(mode: str, offset: int, row: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the fields of a partition's entry, by name."""
    _, length, records, *rest = row
    fields = MODES[mode].words.entry_fields(*rest)
    return {"offset": offset, "records": records, "bytes": length, **fields}


def batch_text(mode: str, offset: int, row: tuple[Any, ...]) -> str:
    fields = batch_fields(mode, offset, row)
    records = _counted(fields["records"], "record") + " " if fields["records"] else ""
    return f"@{offset} {records}{MODES[mode].words.entry_text(fields)}"


def appends(mode: str, names: Names, changes: dict[bytes, Any]) -> list[str]:
    """Lists what a turn's log record changed, a line each; rows of tables as numbers of rows.

    Leaves out counters and indexes, which people do not look for.
    """

    lines: list[str] = []
    name, words = partial(part_name, names), MODES[mode].words
    rows: dict[int, list[int]] = {}  # shard → rows put, deleted
    removed: dict[int, int] = {}  # partition → batches
    for key, value in changes.items():
        tablet, letter, rest = int.from_bytes(key[:4], "big"), key[4:5], key[5:]
        kind = kind_of(tablet)
        if kind == SHARD and letter == b"r":
            rows.setdefault(tablet, [0, 0])[value is GONE] += 1
        elif kind == PARTITION and letter == b"b" and value is GONE:
            removed[tablet] = removed.get(tablet, 0) + 1
        elif kind == PARTITION and letter == b"b":
            lines.append(f"{name(tablet)} {batch_text(mode, int.from_bytes(rest, 'big'), value)}")
        else:
            is_deleted = value is GONE and kind != CATALOGUE
            for known in (words.deleted,) if is_deleted else (_EVERY_MODES, words.rows):
                if (kind, letter) in known:
                    lines += known[kind, letter](name, tablet, rest, value)
    for tablet, n in removed.items():
        lines.append(f"{name(tablet)} {_counted(n, 'entry', 'entries')} removed")
    for tablet, (put, deleted) in rows.items():
        text = _counted(put, "row") + " put" if put else ""
        text += ", " if put and deleted else ""
        text += _counted(deleted, "row") + " deleted" if deleted else ""
        lines.append(f"{name(tablet)} {text}")
    return lines


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def _step(name: Callable[[int], str], tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"coordinator: step {value}"


def _outcome(name: Callable[[int], str], tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"coordinator: {tx_text(rest)} {STATES[OutcomeRow._make(value).state]}"


def _name(name: Callable[[int], str], tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    kind = "topic" if rest[0] == PARTITION else "table"
    yield f"catalogue: {kind} {rest[1:].decode()}{' dropped' if value is GONE else ''}"


def _consumer(name: Callable[[int], str], tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"catalogue: consumer {rest[4:].decode()}{' dropped' if value is GONE else ''}"


_EVERY_MODES: dict[tuple[int, bytes], Tell] = {
    (COORDINATOR, b"l"): _step,
    (COORDINATOR, b"o"): _outcome,
    (CATALOGUE, b"n"): _name,
    (CATALOGUE, b"c"): _consumer,
}
"""By a tablet's kind and the first letter of a key."""
