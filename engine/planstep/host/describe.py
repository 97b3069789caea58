"""What lies in partitions and in coordinators' logs, as plain values and words: for people who look.

    clicks[3] @17 5 records place (12, 0)                               a batch of mode "deterministic"
    clicks[3] @17 5 records producer 4 epoch 0 seq 0 transactional      one of mode "kafka"
    clicks[3] @22 commit marker producer 4 epoch 0
    transaction coordinator: w1 Ongoing [clicks[3]] producer 4 epoch 0
    group coordinator: resharder clicks[0] = 12 pending producer 4

Next: ../runtime/kafka/identities.py, ../cli/inspect.py.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from ..coordinator.kafka.states import STATE_NAMES
from ..coordinator.plan import STATES, OutcomeRow
from ..errors import FormatError
from ..proto.batched_log import decode_entry
from ..proto.ids import (
    CATALOGUE,
    COORDINATOR,
    GROUPS,
    KIND_NAMES,
    PARTITION,
    SHARD,
    TRANSACTIONS,
    host_of,
    kind_of,
    tablet_text,
    tx_text,
)
from ..proto.kafka.messages import ABORT, COMMIT, PLAIN, TRANSACTIONAL
from ..store.layers import GONE
from ..tablets.participant import TxRecord
from ..tablets.partition import standing

KINDS = {
    PLAIN: "plain",
    TRANSACTIONAL: "transactional",
    COMMIT: "commit marker",
    ABORT: "abort marker",
}


class Names(Protocol):
    """As names.Names knows them."""

    def of_tablet(self, tablet: int) -> tuple[str, str, int]: ...


class Nameless:
    """Of a store whose catalogue cannot be read."""

    def of_tablet(self, tablet: int) -> tuple[str, str, int]:
        return "tablet", f"{tablet:#x}", 0


def part_name(names: Names, tablet: int) -> str:
    """ "clicks[3]"; a coordinator by its kind, and its host unless that is the first."""
    if kind_of(tablet) in (PARTITION, SHARD):
        _, name, part = names.of_tablet(tablet)
        return tablet_text(tablet) if name == f"{tablet:#x}" else f"{name}[{part}]"
    host = host_of(tablet)
    return KIND_NAMES[kind_of(tablet)] + (f" on host {host}" if host else "")


def batch_fields(offset: int, row: tuple[Any, ...]) -> dict[str, Any]:
    """A partition's entry. The two modes' rows have 5 columns, and 7 or, of a marker, 8."""
    _, length, records, *rest = row
    fields: dict[str, Any] = {"offset": offset, "records": records, "bytes": length}
    if len(rest) == 2:
        return {**fields, "place": tuple(rest)}
    producer, epoch, sequence, kind, *coordinator = rest
    marker = kind in (COMMIT, ABORT)
    return {
        **fields,
        "records": 0 if marker else records,
        "kind": KINDS[kind],
        "producer": producer,
        "epoch": epoch,
        "sequence": None if marker else sequence,
        "coordinator_epoch": coordinator[0] if coordinator else None,
    }


def batch_text(offset: int, row: tuple[Any, ...]) -> str:
    found = batch_fields(offset, row)
    records = _counted(found["records"], "record")
    if "place" in found:
        return f"@{offset} {records} place {found['place']}"
    who = f"producer {found['producer']} epoch {found['epoch']}"
    if found["sequence"] is None:
        return f"@{offset} {found['kind']} {who}"
    return f"@{offset} {records} {who} seq {found['sequence']} {found['kind']}"


def appends(names: Names, changes: dict[bytes, Any]) -> list[str]:
    """What a turn's record of the log brought, a line each; rows of tables by their number.

    Only what somebody could look for: counters and indexes are left out.
    """
    found: list[str] = []
    rows: dict[int, list[int]] = {}  # shard → rows put, deleted
    removed: dict[int, int] = {}  # partition → batches
    for key, value in changes.items():
        tablet, letter, rest = int.from_bytes(key[:4], "big"), key[4:5], key[5:]
        kind = kind_of(tablet)
        if kind == SHARD and letter == b"r":
            rows.setdefault(tablet, [0, 0])[value is GONE] += 1
        elif kind == PARTITION and letter == b"b" and value is GONE:
            removed[tablet] = removed.get(tablet, 0) + 1
        elif value is not GONE or kind == CATALOGUE:
            tell = _TELL.get((kind, letter))
            found += () if tell is None else tell(names, tablet, rest, value)
    for tablet, n in removed.items():
        found.append(f"{part_name(names, tablet)} {_counted(n, 'entry', 'entries')} removed")
    for tablet, (put, deleted) in rows.items():
        words = _counted(put, "row") + " put" if put else ""
        words += ", " if put and deleted else ""
        words += _counted(deleted, "row") + " deleted" if deleted else ""
        found.append(f"{part_name(names, tablet)} {words}")
    return found


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def _batch(names: Names, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"{part_name(names, tablet)} {batch_text(int.from_bytes(rest, 'big'), value)}"


def _position(names: Names, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"{part_name(names, tablet)} {rest.decode()} = {standing(value, None).position}"


def _staged(names: Names, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    records = _counted(sum(count for _, _, count in value[1:]), "record")
    yield f"{part_name(names, tablet)} {records} staged for {tx_text(rest)}"


def _proposal(names: Names, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"{part_name(names, tablet)} {tx_text(rest)} {'planned' if TxRecord._make(value).step else 'prepared'}"


def _step(names: Names, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"coordinator: step {value}"


def _outcome(names: Names, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"coordinator: {tx_text(rest)} {STATES[OutcomeRow._make(value).state]}"


def _name(names: Names, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    kind = "topic" if rest[0] == PARTITION else "table"
    yield f"catalogue: {kind} {rest[1:].decode()}{' dropped' if value is GONE else ''}"


def _consumer(names: Names, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    yield f"catalogue: consumer {rest[4:].decode()}{' dropped' if value is GONE else ''}"


def _members(names: Names, tablet: int, rest: bytes, value: Any) -> Iterator[str]:
    generation, members = value
    who = f"members {', '.join(members)}" if members else "no members"
    yield f"{part_name(names, tablet)}: {rest.decode()} generation {generation}, {who}"


def _logged(names: Names, tablet: int, rest: bytes, value: bytes) -> Iterator[str]:
    where = part_name(names, tablet)
    try:
        records = decode_entry(value)
    except FormatError as error:
        yield f"{where}: {error}"
        return
    several = len(records) > 1
    for i, record in enumerate(records, 1):
        # What shares an append shows it.
        together = f" ({i} of {len(records)} in one append)" if several else ""
        tell = transaction_text if kind_of(tablet) == TRANSACTIONS else _group_text
        yield f"{where}: {tell(names, record)}{together}"


def transaction_text(names: Names, record: tuple[Any, ...]) -> str:
    """A record of a transaction coordinator's log: (name, the row's ten logged fields), or (name, None)."""
    name, *row = record
    if row == [None]:
        return f"{name} expired"
    producer, epoch, state, *_ = row
    parts = ", ".join(part_name(names, tablet) for tablet in row[6])
    where = f" [{parts}]" if parts else ""
    return f"{name} {STATE_NAMES[state]}{where} producer {producer} epoch {epoch}"


def _group_text(names: Names, record: tuple[Any, ...]) -> str:
    """A record of a group coordinator's log: offsets, pending ones, or a marker."""
    what, *rest = record
    if what == "marker":
        producer, epoch, _, commit, *_ = rest
        kind = KINDS[COMMIT if commit else ABORT]
        return f"{kind} producer {producer} epoch {epoch}"
    group, offsets = rest[-2:]
    moved = ", ".join(
        f"{part_name(names, tablet)} {'forgotten' if offset is None else f'= {offset}'}"
        for tablet, offset in offsets
    )
    return f"{group} {moved}" + (f" pending producer {rest[0]}" if what == "pending" else "")


_TELL = {
    (PARTITION, b"b"): _batch,
    (PARTITION, b"c"): _position,
    (PARTITION, b"s"): _staged,
    (PARTITION, b"t"): _proposal,
    (SHARD, b"t"): _proposal,
    (COORDINATOR, b"l"): _step,
    (COORDINATOR, b"o"): _outcome,
    (CATALOGUE, b"n"): _name,
    (CATALOGUE, b"c"): _consumer,
    (TRANSACTIONS, b"l"): _logged,
    (GROUPS, b"l"): _logged,
    (GROUPS, b"g"): _members,
}
"""By a tablet's kind and the first letter of a key."""
