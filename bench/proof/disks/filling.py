"""Fills a disk until the engine refuses, frees room as a user can, and fills it again.

    write ─▶ refused? definite ─▶ reads go on ─▶ trim, delete, drop, on the reserve ─▶ checkpoint ─▶ room
                 ▲                                                                                    │
                 └──────────────────────────── writing goes on ◀──────────────────────────────────────┘

`held` is the acknowledged content. Comparing it shows a refusal that has an effect, and a lost effect.

Next: ../rows/full.py.
"""

import os
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ....api.engine import Engine
from ....errors import Aborted, IoError, PlanstepError
from .engines import stores_of
from .load import PARTITIONS, Log
from .modes import CONSUMER, mode_of

DEFINITE = (Aborted, IoError)
WAITS = 4.0
"""Seconds to wait for a reply; with several hosts it may come only when there is room again."""
FILLS = 400
CYCLES = 2
REFUSALS = 6
_ATTEMPTS = 12


@dataclass
class LateLog(Log):
    """Collects also late replies and freed room; its values are the transactions' numbers."""

    late: int = 0
    freed: int = 0
    went_on: bool = False


class Filling:
    """Writes and frees. Invariant: `held` and `rows` are the acknowledged content, without the `late` replies."""

    def __init__(self, db: Engine, size: int) -> None:
        self.db, self.size = db, size
        self.tables = db.context.runtime.hooks.has_tables
        self.reads = mode_of(db).reads
        self.log = LateLog()
        self.held: dict[str, list[str]] = {"a": [], "b": []}
        self.rows: dict[str, int] = {}
        self.late: list[tuple[str, Future[Any]]] = []
        self.number = 0
        self.droppable = False  # is there a topic that can be dropped?

    def create(self) -> None:
        for name in ("a", "b", "gone"):
            self.db.create_topic(name, PARTITIONS, format="utf8", exist_ok=True)
        self.droppable = True
        if self.tables:
            self.db.create_table("rows", 2, exist_ok=True)
        if self.reads:
            self.db.topic("a").create_consumer(CONSUMER, "individual", exist_ok=True)

    def fill(self, most: int = FILLS) -> bool:
        """Writes until REFUSALS transactions were refused; returns whether that happened."""
        before = len(self.log.refused) + self.log.late
        for _ in range(most):
            self.write()
            if len(self.log.refused) + self.log.late - before >= REFUSALS:
                return True
            if self.log.wrong or self.late:
                return bool(self.late)
        return False

    def write(self, size: int | None = None) -> bool:
        """Writes one transaction; returns whether it was acknowledged."""
        self.number += 1
        length = self.size * (1, 1, 1, 2)[self.number % 4] if size is None else size
        value = f"{self.number}:".ljust(length, "x")
        late = len(self.late)
        error = self.log.error_of(lambda: self._commit(value), DEFINITE)
        if len(self.late) > late:
            self.log.late += 1
            return False
        return self._record_end(value, error)

    def _commit(self, value: str) -> None:
        tx = self.db.transaction(worker="w")
        if self.reads:
            tx.read("a", CONSUMER, max_records=1, partition=self.number % PARTITIONS)
        for topic in ("a", "b"):
            tx.write(topic, value, partition=self.number % PARTITIONS)
        if not self.tables:  # a worker has one transaction at a time
            tx.commit()
            return
        tx.put("rows", f"k{self.number % 50}", self.number)
        future = tx.submit()
        if wait([future], WAITS).done:
            future.result()
        else:
            self.late.append((value, future))

    def _record_end(self, value: str, error: Exception | None) -> bool:
        """Records a transaction's end; returns whether it was acknowledged."""
        number = int(value.split(":")[0])
        if error is not None:
            self.log.refused.append(str(number))
            return False
        self.log.acknowledged.append(str(number))
        for values in self.held.values():
            values.append(value)
        if self.tables:
            self.rows[f"k{number % 50}"] = number
        return True

    def read(self, when: str) -> None:
        """Checks that reads return all acknowledged records, and no others except late ones."""
        self.log.looks += 1
        late = {value for value, _ in self.late}
        deadline = time.monotonic() + WAITS
        # Where data lies in place, an end becomes visible a moment later.
        while (wrong := self._differs(late)) and not self.tables and time.monotonic() < deadline:
            time.sleep(0.01)
        self.log.wrong += [f"{when}: {text}" for text in wrong]

    def _differs(self, late: set[str]) -> list[str]:
        wrong = []
        try:
            for topic, values in self.held.items():
                batch = self.db.topic(topic).read(max_records=100_000, max_bytes=1 << 30)
                records = sorted(str(v) for v in batch.values if str(v) not in late)
                if records != sorted(values):
                    wrong.append(f"topic {topic} has {len(records)} records, not {len(values)}")
            if self.tables and not late:
                rows = dict(self.db.table("rows").scan())
                if rows != self.rows:
                    wrong.append(f"the table has {len(rows)} rows, or others: not {len(self.rows)}")
        except PlanstepError as error:
            wrong.append(f"reads do not go on: {error!r}")
        return wrong

    def free(self) -> None:
        """Frees room as a user can on a full disk: trim, delete, drop; each must work."""
        calls: list[tuple[str, Any]] = [("trim", self._trim)]
        if self.tables:
            calls.append(("delete", self._delete))
        if self.droppable:
            calls.append(("drop", lambda: self.db.drop_topic("gone")))
            self.droppable = False
        for what, call in calls:
            if error := self.log.error_of(call):
                self.log.wrong.append(f"{what} on a full disk: {error!r}")
            else:
                self.log.freed += 1

    def _trim(self) -> None:
        for topic in ("a", "b"):
            self.db.topic(topic).trim("latest")
            self.held[topic] = []

    def _delete(self) -> None:
        for key in sorted(self.rows)[:10]:
            with self.db.transaction() as tx:
                tx.delete("rows", key)
            del self.rows[key]

    def fill_again(self) -> None:
        """Fills and frees the disk a few times more; dropped data must be freed each time."""
        for cycle in range(CYCLES):
            for n in range(FILLS):
                if not self.write(self.size * (1 + cycle)):
                    break
                if cycle and n % 5 == 4:
                    self.read("between")
                    self._trim()
            self._end_late()
            self.read("full once more")
            self.free()
            self.go_on()
            if self.log.wrong:
                return

    def go_on(self) -> None:
        """Checks that late transactions end and writing resumes once there is room."""
        last = ""
        for _ in range(_ATTEMPTS):
            for store in stores_of(self.db):
                try:
                    store.checkpoint()
                except PlanstepError as error:
                    last = repr(error)
            self._end_late()
            if not self.late and self.write(self.size):
                self.log.went_on = True
                return
            time.sleep(0.02)
        errors = f"{self.log.errors} {last}"
        self.log.wrong.append(f"room was made, and writing does not go on; {errors}")

    def without_descriptors(self) -> bool:
        """Runs everything while the process has no descriptor left; returns False if it has some."""
        with suppress(OSError):
            os.close(os.open(os.devnull, os.O_RDONLY))
            return False
        for _ in range(3):
            self.fill(most=16)
            self.read("without descriptors")
            self.free()
            self.create()
            self.go_on()
        if self.log.refused:
            self.log.wrong.append(f"refused for want of descriptors: {self.log.words}")
        return True

    def _end_late(self) -> None:
        for value, future in list(self.late):
            if wait([future], WAITS).done:
                self._record_end(value, self.log.error_of(future.result, DEFINITE))
                self.late.remove((value, future))
