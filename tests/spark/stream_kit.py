"""Plays a streaming query without a Spark: its triggers, its checkpoint, and its restarts."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import planstep

MODES = ("deterministic", "kafka", "pulsar")


class Query:
    """Runs batches of a stream. The checkpoint has `offsets`, written before a batch, and the number `done`."""

    def __init__(self, elsewhere: Callable[..., Any], schema: Any, options: dict[str, Any]) -> None:
        self._elsewhere = elsewhere
        self._schema = schema
        self.options = options
        self.offsets: list[str] = []
        self.done = 0
        self.tasks = 0
        self.restart()

    def restart(self) -> None:
        """Starts the query anew from its checkpoint; a batch that was not done is repeated by `trigger`."""
        texts = {name: str(value) for name, value in self.options.items()}
        self._number, self.schema = self._elsewhere("stream", texts, self._schema)
        self._first: str | None = None

    def ask(self, method: str, *texts: str) -> str:
        return str(self._elsewhere("ask", self._number, method, *texts))

    def start(self) -> str:
        if self.done:
            return self.offsets[self.done - 1]
        if self._first is None:
            self._first = self.ask("initialOffset")
        return self._first

    def plan(self) -> bool:
        """Writes the next batch's offset; returns False where there is nothing new."""
        if len(self.offsets) > self.done:
            return True
        start = self.start()
        end = self.ask("latestOffset", start, self._elsewhere("limit", self._number))
        if end == start:
            return False
        self.offsets.append(end)
        return True

    def read(self) -> Any:
        """Reads the batch that was planned, as a pyarrow Table."""
        end = self.offsets[self.done]
        self.tasks, stream = self._elsewhere("batch", self._number, self.start(), end)
        return pa.ipc.open_stream(stream).read_all()

    def trigger(self) -> Any:
        """Runs a batch; returns its records, None where there is nothing new."""
        if not self.plan():
            return None
        table = self.read()
        self.done += 1
        self.ask("commit", self.offsets[self.done - 1])
        return table

    def available_now(self) -> list[Any]:
        """Plays Trigger.AvailableNow: returns all its batches."""
        self.ask("prepareForTriggerAvailableNow")
        batches = []
        while (table := self.trigger()) is not None:
            batches.append(table)
        return batches

    def end(self) -> Any:
        """Returns the last batch's offset."""
        return json.loads(self.offsets[-1])


def values(table: Any) -> list[Any]:
    return sorted(table["value"].to_pylist())


def fill(path: str, mode: Any = None, partitions: int = 2, count: int = 20) -> None:
    """Writes values 00, 01 … to topic t, in transactions of one record for each partition."""
    with planstep.open(path, mode=mode) as db:
        db.create_topic("t", partitions=partitions, format="utf8")
        for n in range(0, count, partitions):
            with db.transaction() as tx:
                for partition in range(partitions):
                    tx.write("t", f"{n + partition:02}", partition=partition)
