"""Opens engines in mode "pulsar" for tests, with times that are short."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kit import until

import planstep

QUICK = planstep.PulsarSettings(
    transaction_timeout_ms=30_000, retry_backoff_ms=5, request_timeout_ms=2_000, end_retry_ms=20
)

PLACES: list[tuple[int, Any]] = [(1, "shared"), (1, "separate"), (3, "shared"), (3, "separate")]
"""Hosts, and the placement of their tablets."""


@contextmanager
def opened(
    path: Path | str = ":memory:", *, hosts: int | None = 1, placement: Any = "shared", **own: Any
) -> Iterator[planstep.Engine]:
    """Opens an engine; `own`: settings of the mode that differ from QUICK's."""
    settings = replace(QUICK, **own)
    with planstep.open(
        path, mode="pulsar", hosts=hosts, placement=placement, pulsar=settings
    ) as db:
        yield db


def tablet_of(db: planstep.Engine, topic: str = "in", partition: int = 0) -> int:
    return db._runtime.names.topics[topic].partitions[partition]


def is_pending(db: planstep.Engine, consumer: str = "c", partition: int = 0) -> bool:
    """Returns whether open transactions have acknowledged records of the consumer."""
    runtime: Any = db._runtime
    return bool(runtime.views.pending(tablet_of(db, "in", partition), consumer))


def acknowledge(
    db: planstep.Engine,
    *ranges: tuple[int, int],
    consumer: str = "c",
    position: int | None = None,
) -> planstep.Transaction:
    """Begins a transaction that has acknowledged these ranges of topic `in`, partition 0, or all to a position, and
    is open."""
    tx = db.transaction()
    tx.write("out", "never")
    tx.flush()
    client = db._runtime.hooks.client
    with client.locked():
        client.core.acknowledge(tx.life.tx, tablet_of(db), consumer, ranges, position)
    client.deliver()
    until(lambda: is_pending(db, consumer))
    return tx
