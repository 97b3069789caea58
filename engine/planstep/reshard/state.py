"""Keeps the job's durable state: in rows of tables, or in keys of changelogs in a mode without tables.

    deterministic   table name, key ─▶ value            counters by `add`
    kafka           topic name, one record a change      restored when the job begins

Next: verify.py.
"""

from abc import ABC, abstractmethod
from typing import Any

import planstep


class Kept(ABC):
    """Durable values by name and key, which change in the transactions that they belong to."""

    def __init__(self, db: planstep.Engine) -> None:
        self._db = db

    @abstractmethod
    def has(self, name: str) -> bool: ...
    @abstractmethod
    def make(self, name: str, partitions: int = 1) -> None: ...
    @abstractmethod
    def peek(self, name: str, key: Any) -> Any:
        """Returns the committed value, None when there is none."""

    @abstractmethod
    def get(self, tx: planstep.Transaction, name: str, key: Any) -> Any: ...
    @abstractmethod
    def put(self, tx: planstep.Transaction, name: str, key: Any, value: Any) -> None: ...


class _Tables(Kept):
    def has(self, name: str) -> bool:
        return name in self._db.tables()

    def make(self, name: str, partitions: int = 1) -> None:
        self._db.create_table(name, exist_ok=True)

    def peek(self, name: str, key: Any) -> Any:
        return self._db.table(name).get(key)

    def get(self, tx: planstep.Transaction, name: str, key: Any) -> Any:
        return tx.get(name, key)

    def put(self, tx: planstep.Transaction, name: str, key: Any, value: Any) -> None:
        tx.put(name, key, value)


class _Changelogs(Kept):
    """The state of one worker, in changelogs of one partition each."""

    def __init__(self, db: planstep.Engine, worker: str) -> None:
        super().__init__(db)
        self._worker = worker
        self._opened: dict[str, planstep.Changelog] = {}

    def _log(self, name: str) -> planstep.Changelog:
        found = self._opened.get(name)
        if found is None:
            found = self._opened[name] = self._db.changelog(name, worker=self._worker)
        return found

    def has(self, name: str) -> bool:
        return name in self._db.topics()

    def make(self, name: str, partitions: int = 1) -> None:
        self._db.create_topic(name, partitions=partitions, format="msgpack", exist_ok=True)

    def peek(self, name: str, key: Any) -> Any:
        return dict(self._log(name).items()).get(str(key))

    def get(self, tx: planstep.Transaction, name: str, key: Any) -> Any:
        return self._log(name).get(tx, str(key))

    def put(self, tx: planstep.Transaction, name: str, key: Any, value: Any) -> None:
        self._log(name).put(tx, str(key), value)


def kept_in(db: planstep.Engine, worker: str) -> Kept:
    return _Tables(db) if db.context.runtime.hooks.has_tables else _Changelogs(db, worker)
