"""Shares helpers between tests of the face in mode "kafka". The fixture `db` is in conftest.py."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import planstep
from planstep import KafkaSettings

QUICK = KafkaSettings(
    marker_retry_ms=20,
    retry_backoff_ms=5,
    concurrent_backoff_ms=5,
    add_partitions_backoff_ms=5,
    abort_scan_ms=20,
    max_block_ms=20_000,
)


def opened(path: Any = ":memory:", hosts: int | None = None, **settings: Any) -> planstep.Engine:
    names = {field.name for field in dataclasses.fields(KafkaSettings)}
    kafka = {name: settings.pop(name) for name in list(settings) if name in names}
    return planstep.open(
        path, mode="kafka", hosts=hosts, kafka=dataclasses.replace(QUICK, **kafka), **settings
    )


def create(db: planstep.Engine) -> None:
    db.create_topic("in", partitions=2, format="utf8")
    db.create_topic("out", partitions=1, format="utf8")


def until(condition: Callable[[], Any]) -> Any:
    """Waits until a condition holds: markers, for example, follow a commit's answer."""
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)
    return found


def in_the_log(db: planstep.Engine, tx: planstep.Transaction) -> None:
    """Waits until the transaction's writes so far are in their partitions."""
    runtime: Any = db._runtime
    until(lambda: not runtime.hooks.client.outstanding(tx.life.tx))


def values(db: planstep.Engine, topic: str) -> list[str]:
    return db.topic(topic).read().values


def sees(db: planstep.Engine, topic: str, *expected: str) -> None:
    until(lambda: values(db, topic) == list(expected))
