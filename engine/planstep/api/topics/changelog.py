"""Keeps state without tables: a keyed topic logs its changes, and a view in memory is restored from the topic.

    restore: the partition from its start ─▶ last value of each key ─▶ view, in memory
    put(tx, key, value) ─▶ view of that transaction ─ commit ─▶ record in the same transaction, and the view
                                                   └ abort ──▶ discarded

Kafka Streams keeps its state stores in this way. A change commits together with the transaction's reads and writes,
so the view shows exactly the committed transactions. A value None deletes. The whole state of the partition is in
memory; tables (mode "deterministic") need neither the memory nor the restoring.

A partition's changelog may have one writer at a time. The consumer whose records it processes ensures that: the
transactions of a second writer conflict, or are fenced. In mode "kafka" name the worker. Then a transaction that is
open under that name, also one of an earlier worker, is ended before the view is restored.

What it leaves out: snapshots of the view on disk, and removing superseded records from the topic.
Next: ../transaction/transaction.py.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ...errors import TransactionClosed
from ..arguments import brief, check_worker
from ..columns.codecs import decode_value, encode_text, encode_value
from ..limits import READ_BYTES
from ..transaction.lifecycle import standing
from ..transaction.snapshot_reader import check_partition
from ..transaction.transaction import Transaction
from .topic import Topic

if TYPE_CHECKING:
    from ..context import Context

T = TypeVar("T")
_READ = 10_000
_UNDER_WAY = ("open", "sent")
_SCALARS = frozenset((str, int, float, bool, bytes))


@dataclass(slots=True, eq=False)
class _Layer:
    """The changes of one transaction that is not yet known to have committed."""

    tx: Transaction
    values: dict[str, Any] = field(default_factory=dict)


def _apply(values: dict[str, Any], changes: Iterable[tuple[str, Any]]) -> None:
    for key, value in changes:
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value


class Changelog:
    """The state of one partition, for one thread at a time.

    Invariants: `_values` is the state that committed transactions made; `_layers` are on top of it, oldest
    first; neither holds an object of a caller.
    """

    def __init__(self, context: "Context", topic: str, partition: int, worker: str | None) -> None:
        context.check_writable()
        context.look()
        info = context.topic(topic)
        if info.format not in ("json", "msgpack"):
            raise TypeError(
                f"topic {topic!r} has format {info.format!r}; a changelog is of format msgpack or json, "
                "in which a value can be None"
            )
        self.topic = topic
        self.partition = check_partition(info, partition)
        self._tablet = info.partitions[partition]
        self._format = info.format
        self._worker = check_worker(worker)
        self._context = context
        self._values: dict[str, Any] = {}
        self._layers: list[_Layer] = []
        if self._worker is not None:
            context.runtime.hooks.ready(self._worker, alone=True)
        self.restore()

    def restore(self) -> int:
        """Reads the changelog again, and returns the number of records. Drops changes that are not committed.

        Mode "kafka": it waits for the end of a transaction that has written here, KafkaError after max_block_ms.
        """
        if self._worker is not None:
            self._context.runtime.hooks.ready(self._worker)
        self._context.runtime.hooks.wait_stable(self._tablet)
        self._layers.clear()
        values: dict[str, Any] = {}
        topic, p = Topic(self._context, self.topic), self.partition
        with self._context.open_view() as view:
            at = view.bounds(self.topic)[p][0]
        records = 0
        while batch := topic.read({p: at}, max_records=_READ, max_bytes=READ_BYTES):
            records += len(batch)
            at = batch.ends[p]
            _apply(values, zip(batch.keys, batch.values, strict=True))
        self._values = values
        return records

    def _settle(self) -> None:
        """Adds the layers that have committed to `_values`; drops one that aborted, and all built on it."""
        while self._layers:
            layer = self._layers[0]
            state = standing(layer.tx.life)
            if state in _UNDER_WAY:
                return
            if state == "committed":
                del self._layers[0]
                _apply(self._values, layer.values.items())
            elif state == "undetermined":
                layer.tx.outcome(self._context.runtime.settings.max_block_ms / 1000)
                self.restore()
                return
            else:
                self._layers.clear()

    def _layer(self, tx: "Transaction") -> _Layer:
        inner = getattr(tx, "sync", tx)
        if not isinstance(inner, Transaction):
            raise TypeError(f"a changelog takes a transaction of its engine, not {brief(tx)}")
        if inner.life.context is not self._context:
            raise ValueError(f"{tx!r} is of another engine than {self!r}")
        inner.life.check_open()
        self._settle()
        for layer in self._layers:
            if layer.tx is inner:
                return layer
        if any(layer.tx.life.state == "open" for layer in self._layers):
            raise TransactionClosed(
                f"the changelog {self.topic!r}, partition {self.partition}, is in use by another open "
                "transaction: end that first, or restore() if it is lost"
            )
        layer = _Layer(inner)
        self._layers.append(layer)
        inner.life.at_commit.append(lambda: self._write(layer))
        return layer

    def _write(self, layer: _Layer) -> None:
        if layer.values:
            layer.tx.write_batch(
                self.topic, list(layer.values.values()), list(layer.values), None, self.partition
            )

    @overload
    def get(self, tx: "Transaction", key: str, default: None = None) -> Any | None: ...
    @overload
    def get(self, tx: "Transaction", key: str, default: T) -> Any | T: ...
    def get(self, tx: "Transaction", key: str, default: Any = None) -> Any:
        """Returns the key's value with this transaction's changes; `default` when there is none."""
        self._layer(tx)
        for layer in reversed(self._layers):
            if key in layer.values:
                value = layer.values[key]
                break
        else:
            value = self._values.get(key)
        return default if value is None else self._own(value)

    def _own(self, value: Any) -> Any:
        """Copies a value, so that a change of the caller's object changes nothing here."""
        if type(value) in _SCALARS:
            return value
        return decode_value(self._format, encode_value(self._format, value, self._where))

    @property
    def _where(self) -> str:
        return f"topic {self.topic!r}"

    def put(self, tx: "Transaction", key: str, value: Any) -> None:
        """Sets a key's value when the transaction commits; None deletes it."""
        if not isinstance(key, str):
            raise TypeError(f"a changelog's keys are str, not {brief(key)}")
        encode_text(key, f"a record's key in {self._where}")
        encoded = encode_value(self._format, value, self._where)
        self._layer(tx).values[key] = decode_value(self._format, encoded)

    def add(self, tx: "Transaction", key: str, n: int | float) -> None:
        """Adds to the number of a key, 0 when there is none."""
        self.put(tx, key, self.get(tx, key, 0) + n)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Returns the committed keys and values, in order of key."""
        self._settle()
        return ((key, self._own(value)) for key, value in sorted(self._values.items()))

    def __len__(self) -> int:
        self._settle()
        return len(self._values)

    def __repr__(self) -> str:
        return f"<Changelog {self.topic!r}, partition {self.partition}>"
