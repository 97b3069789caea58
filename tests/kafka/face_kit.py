"""Shares helpers between tests of the face in mode "kafka". The fixture `db` is in conftest.py."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kit import until

import planstep
from planstep import KafkaSettings
from planstep.runtime.network import HeldLine

QUICK = KafkaSettings(
    marker_retry_ms=20,
    retry_backoff_ms=5,
    concurrent_backoff_ms=5,
    add_partitions_backoff_ms=5,
    abort_scan_ms=20,
    max_block_ms=20_000,
)
PLACES = [(1, "shared", 1), (1, "separate", 2), (4, "shared", 2), (4, "separate", 1)]
"""Stores to test on: hosts, placement and version of the protocol."""


def open_store(
    path: Any = ":memory:", hosts: int | None = None, **settings: Any
) -> planstep.Engine:
    names = {field.name for field in dataclasses.fields(KafkaSettings)}
    kafka = {name: settings.pop(name) for name in list(settings) if name in names}
    return planstep.open(
        path, mode="kafka", hosts=hosts, kafka=dataclasses.replace(QUICK, **kafka), **settings
    )


def new_store(*place: Any, **settings: Any) -> planstep.Engine:
    """Opens a new store, with topics `in` of two partitions and `out` of one."""
    db = open_store(*place, **settings)
    db.create_topic("in", partitions=2, format="utf8")
    db.create_topic("out", partitions=1, format="utf8")
    return db


@contextmanager
def hold_back(db: planstep.Engine, kind: type) -> Iterator[HeldLine]:
    """Holds the client's messages of this kind that are sent in its body, until `let_go`."""
    client: Any = db._runtime.hooks.client
    through = client.line
    client.line = held = HeldLine(through, lambda message: type(message) is kind)
    try:
        yield held
    finally:
        client.line = through


def in_the_log(db: planstep.Engine, tx: planstep.Transaction) -> None:
    """Waits until the transaction's writes so far are in their partitions."""
    runtime: Any = db._runtime
    until(lambda: not runtime.hooks.client.outstanding(tx.life.tx))


def commits(db: planstep.Engine, value: str, to: str = "out", **who: Any) -> None:
    """Writes a value to a topic's partition 0 in a transaction of its own."""
    with db.transaction(**who) as tx:
        tx.write(to, value, partition=0)


def begin_with(
    db: planstep.Engine, value: str, to: str = "out", **who: Any
) -> planstep.Transaction:
    """Begins a transaction whose one value is in a topic's partition 0 when this returns."""
    tx = db.transaction(**who)
    tx.write(to, value, partition=0)
    in_the_log(db, tx)
    return tx


def values(db: planstep.Engine, topic: str) -> list[str]:
    return db.topic(topic).read().values


def sees(db: planstep.Engine, topic: str, *expected: str) -> None:
    until(lambda: values(db, topic) == list(expected))
