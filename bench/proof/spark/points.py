"""Kills processes of Spark's when a phase of a write is reached; else it is the data source "planstep".

    task        begins ─ staging ─ staged                              in a Python worker
    commit      before opening ─ opened ─ in the transaction ─ committed ─ finished      in a sink, or in the driver

Importing this module installs the phases in a process. Spark's own processes unpickle a class of it; the driver
imports it.

Next: driver.py.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from ....spark import commit, source
from ....spark.fence import Fences, Mark
from ....spark.sink import Staged, Writer
from ....spark.source import Source
from .kills import NO_FENCE, VARIABLE, planned, reached

if TYPE_CHECKING:
    from ....api.engine import Engine
    from ....api.transaction.transaction import Transaction


class KillingFences(Fences):
    def passes(self, tx: "Transaction", mark: Mark) -> bool:
        new = super().passes(tx, mark)
        tx.life.at_commit.append(lambda: _sent(tx))
        return new or Path(os.environ[VARIABLE], NO_FENCE).exists()

    def compact(self) -> None:
        reached("committed")
        super().compact()


def _sent(tx: "Transaction") -> None:
    """Sends what the transaction has, so that a kill leaves it open in the store."""
    kill = planned(Path(os.environ[VARIABLE]))
    if kill is not None and kill.phase == "in the transaction":
        tx.flush()
    reached("in the transaction")


class KillingWriter(Writer):
    def write(self, iterator: Iterator[Any]) -> Staged:
        reached("task begins")
        staged = super().write(_watched(iterator))
        reached("task staged")
        return staged

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        super().commit(messages)
        if self._options.transaction is None:
            reached("finished")


def _watched(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch
        reached("task staging")


class DefaultSource(Source):
    """The data source, whose writes are killed."""


def _install() -> None:
    opens = commit.owned

    @contextmanager
    def owned(path: str, wait: float) -> "Iterator[Engine]":
        reached("before opening")
        with opens(path, wait) as db:
            reached("opened")
            yield db

    vars(commit).update(owned=owned, Fences=KillingFences)
    vars(source).update(Writer=KillingWriter)


_install()
