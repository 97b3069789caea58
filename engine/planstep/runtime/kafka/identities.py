"""Lists transactional ids from their coordinators' rows, and what waits for their open transactions.

    t<name>            ─▶ state, producer, epoch, since when, partitions           tx list
    l<number>          ─▶ the newest records of the log about one id               tx explain
    p<producer>, o, m  ─▶ where readers of a partition stop, and how much is behind  tx list --open
    q<producer>        ─▶ positions that wait for the marker

It reads durable rows, so another process can do so too. A partition may also hang for a transaction that no
coordinator knows any more (a batch that came late): that has a row of its own, without a name.

Next: cli/identities.py.
"""

from collections.abc import Iterator
from typing import Any

from ...coordinator.kafka.states import AT_REST, STATE_NAMES, Transaction
from ...host.describe import Names, part_name
from ...host.tablet_space import stored_tablets
from ...proto.batched_log import decode_entry
from ...proto.ids import (
    GROUPS,
    PARTITION,
    TRANSACTIONS,
    host_of,
    kind_of,
    tablet_id,
    tablet_prefix,
)
from ...proto.kafka.messages import COMMIT
from ...store import Store
from ...tablets.kafka.producer_state import ProducerState
from ...tablets.kafka.rows import EMPTY, Entry
from ..identity import Identity, Logged, Stores, Waiting

HANGING = "Hanging"
"""The state of a transaction that no coordinator will end."""


def identities(stores: Stores, names: Names, now_ms: int) -> list[Identity]:
    """Lists all transactional ids, by name."""
    ids = [
        _identity(names, name, row, now_ms)
        for store, prefix in _tablets(stores, TRANSACTIONS)
        for name, row in _rows(store, prefix)
    ]
    return sorted(ids, key=lambda one: one.name or "")


def open_names(stores: Stores) -> list[str]:
    """Lists the names whose transaction is open or being ended; it reads the coordinators' rows alone."""
    return [
        name
        for store, prefix in _tablets(stores, TRANSACTIONS)
        for name, row in _rows(store, prefix)
        if row.state not in AT_REST
    ]


def under_way(stores: Stores, names: Names, now_ms: int) -> list[Identity]:
    """Lists ids whose transaction is open or being ended, oldest first, then hanging transactions."""
    ids: list[Identity] = []
    known: set[tuple[int, int]] = set()
    for store, prefix in _tablets(stores, TRANSACTIONS):
        for name, row in _rows(store, prefix):
            if row.state not in AT_REST:
                waiting = (_waiting(stores, names, part, row.producer) for part in row.partitions)
                identity = _identity(names, name, row, now_ms)
                ids.append(identity._replace(waiting=tuple(waiting)))
                known.update((row.producer, tablet) for tablet in row.partitions)
    ids.sort(key=lambda one: (-(one.age_seconds or 0.0), one.name or ""))
    for tablet, producer in _opened(stores):
        if (producer, tablet) not in known:
            held = _waiting(stores, names, tablet, producer)
            state = ProducerState(*stores[host_of(tablet)].get(_at(tablet, b"p", producer)))
            who = None, HANGING, producer, state.epoch, None, None, None
            ids.append(Identity(*who, (held.participant,), (held,)))
    return ids


def history(stores: Stores, names: Names, name: str) -> list[Logged]:
    """Lists the records about an id in its coordinator's log, oldest first; it keeps its newest 1,024 entries."""
    entries = []
    for store, prefix in _tablets(stores, TRANSACTIONS):
        for key, data in store.scan(prefix + b"l", prefix + b"m"):
            for record in decode_entry(data):
                who, *_ = record
                if who == name:
                    entries.append(_logged(names, int.from_bytes(key[5:], "big"), record))
    return entries


def _logged(names: Names, entry: int, record: tuple[Any, ...]) -> Logged:
    _, *fields = record
    if fields == [None]:
        return Logged(entry, "Dead", None, None, None, ())
    row = Transaction(*fields)
    parts = tuple(part_name(names, tablet) for tablet in row.partitions)
    return Logged(entry, STATE_NAMES[row.state], row.producer, row.epoch, row.update_ms, parts)


def _tablets(stores: Stores, kind: int) -> Iterator[tuple[Store, bytes]]:
    for number, store in stores.items():
        yield store, tablet_prefix(tablet_id(kind, number, 0))


def _rows(store: Store, prefix: bytes) -> Iterator[tuple[str, Transaction]]:
    for key, row in store.scan(prefix + b"t", prefix + b"u"):
        yield key[5:].decode(), Transaction(*row)


def _identity(names: Names, name: str, row: Transaction, now_ms: int) -> Identity:
    is_open = row.state not in AT_REST and row.start_ms >= 0
    return Identity(
        name,
        STATE_NAMES[row.state],
        row.producer,
        row.epoch,
        max(0, now_ms - row.start_ms) / 1000 if is_open else None,
        max(0, now_ms - row.update_ms) / 1000,
        row.timeout_ms / 1000,
        tuple(part_name(names, tablet) for tablet in row.partitions),
    )


def _opened(stores: Stores) -> Iterator[tuple[int, int]]:
    """Yields (partition's tablet, producer) of every transaction that a partition has open."""
    for number, store in stores.items():
        for prefix in stored_tablets(store, number, (PARTITION,)):
            for _, producer in store.scan(prefix + b"o", prefix + b"p"):
                yield int.from_bytes(prefix, "big"), producer


def _at(tablet: int, letter: bytes, number: int) -> bytes:
    return tablet_prefix(tablet) + letter + number.to_bytes(8, "big")


def _waiting(stores: Stores, names: Names, tablet: int, producer: int) -> Waiting:
    store, prefix, name = stores[host_of(tablet)], tablet_prefix(tablet), part_name(names, tablet)
    if kind_of(tablet) == GROUPS:
        return Waiting(name, None, None, 0, tuple(_pending(store, names, tablet, producer)))
    state = store.get(_at(tablet, b"p", producer))
    _, end, stable = store.get(prefix + b"m") or EMPTY
    behind = store.scan(prefix + b"b" + stable.to_bytes(8, "big"), prefix + b"c")
    entries = [Entry(*row) for _, row in behind] if stable < end else []
    records = sum(entry.records for entry in entries if entry.kind < COMMIT)
    opened = None if state is None else ProducerState(*state).opened
    return Waiting(name, opened, stable, records, ())


def _pending(store: Store, names: Names, tablet: int, producer: int) -> Iterator[str]:
    number, prefix = producer.to_bytes(8, "big"), tablet_prefix(tablet)
    for key, _ in store.scan(prefix + b"q" + number, prefix + b"q" + number + b"\xff" * 4):
        part = key[13:]
        pending = store.get(prefix + b"n" + part + number)
        if pending is None:  # it has ended since the scan: turns go on meanwhile
            continue
        position, _ = pending
        group, partition = part[:-5].decode(), int.from_bytes(part[-4:], "big")
        yield f"{group} {part_name(names, partition)} = {position}"
