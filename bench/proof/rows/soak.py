"""Soaks an engine in a child process: repeats all kinds of work, and samples memory, descriptors and disk use.

    one thread works    write ─ consume ─ transform ─ overwrite ─ look ─ roll back ─ create ─ drop ─┐
                          └──────────────────────────────────────────────────────────────────────┘
    another samples     descriptors, threads, memory, what the engine counts, what the folder holds
                          └─▶ a line of JSON each

Topics keep a bounded number of bytes (retention), tables a bounded number of rows. So growth is a leak, or is
listed as kept by design (an outcome of each of the last million transactions, a mark of each dropped tablet).

Mode "pulsar" counts the rows that come and go with transactions (transient_rows.py).

A reader in another process opens, reads, and keeps its pinned state for a while.

Left out: memory of the allocator itself; only the total is bounded.

Next: leak.py, which judges.
"""

import contextlib
import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import planstep

from ...compare.measure import own_bytes
from .transient_rows import transient

_ROWS, _RECORDS, _PARTITIONS = 400, 200, 4
_RETAINED = 1 << 20
"""Bytes that a partition keeps."""
_PACE_S = 0.05
"""Least seconds of a round: while a reader keeps everything, the disk has to hold what is written."""
_RARE = 20
"""Rounds between creations and drops of topics and tables."""
SNAPSHOTS = "snapshots"
"""The leak to plant: snapshots that are never closed."""
_SETTINGS: dict[str, Any] = {
    "pulsar": planstep.PulsarSettings(
        deduplication=True,
        snapshot_transactions=100,
        snapshot_interval_ms=500,
        ack_log_index_min_lag=20,
    )
}
"""Settings of a mode with which all happens often. A named writer needs deduplication."""


@dataclass(frozen=True)
class Soak:
    """The soak's settings. `small`: segments of 1 MiB and a checkpoint for each, so all happens often in
    seconds.
    """

    scratch: str
    mode: str
    seconds: float
    small: bool = False
    planted: str = ""

    @property
    def store(self) -> Path:
        return Path(self.scratch) / f"soak-{self.mode}" / "store"

    @property
    def samples(self) -> Path:
        return self.store.with_name("samples")


class _Work:
    """Rounds of each kind of work; the mode says which there are."""

    def __init__(self, db: planstep.Engine, soak: Soak) -> None:
        self._db, self._planted = db, soak.planted
        self._tables = db.context.runtime.hooks.has_tables
        for name in ("in", "out"):
            db.create_topic(name, partitions=_PARTITIONS, retention_bytes=_RETAINED)
        if self._tables:
            db.create_table("rows", shards=2)
        else:
            db.create_topic("state", format="msgpack", retention_bytes=_RETAINED)
        for name in ("in", "out"):  # filled to their limit, so that any growth shows
            for partition in range(_PARTITIONS):
                values = [b"first" * 1000] * (_RETAINED // 5000)
                db.topic(name).write_batch(values, partition=partition)
        self._round = 0
        self._held: list[Any] = []  # the planted leak
        self._value = b"v" * 500

    def round(self) -> None:
        db, number = self._db, self._round
        self._round += 1
        with db.topic("in").writer(f"writer-{number % 8}") as writer:
            for n in range(_RECORDS):
                writer.write(self._value, key=str(n))
        with db.reader("in", consumer="worker", max_records=1000) as reader:
            leased = reader.read(timeout=1.0)
            while leased is not None:
                with leased.tx as tx:
                    tx.write_batch("out", leased.batch.values, keys=leased.batch.keys)
                leased = reader.read(timeout=0.0)
        with contextlib.suppress(planstep.Aborted):
            self._overwrite(number)
        tx = db.transaction()
        tx.write("out", b"taken back", partition=0)
        tx.rollback()
        self._look()
        db.topic("out").read(0, max_records=100)
        if number % _RARE == 0:
            self._come_and_go(number)

    def _overwrite(self, number: int) -> None:
        if self._tables:
            with self._db.transaction() as tx:
                for key in range(_ROWS):
                    tx.put("rows", key, [number, self._value])
                for key in range(number % 10):
                    tx.delete("rows", key)
            with self._db.transaction() as tx, self._db.transaction() as other:  # one conflicts
                tx.put("rows", -1, tx.get("rows", -1, 0) + 1)
                other.put("rows", -1, other.get("rows", -1, 0) + 1)
        else:
            with self._db.transaction(worker=f"worker-{number % 4}") as tx:
                tx.write_batch("state", [number] * 20, keys=[str(n) for n in range(20)])

    def _look(self) -> None:
        if not self._tables:
            return
        view = self._db.snapshot()
        view.count("rows")
        if self._planted == SNAPSHOTS:
            self._held.append(view)
        else:
            view.close()

    def _come_and_go(self, number: int) -> None:
        db, name = self._db, f"brief-{number}"
        db.create_topic(name, partitions=2)
        db.topic(name).create_consumer("c", kind="cumulative")
        db.topic(name).write_batch([self._value] * 10, partition=0)
        with db.transaction() as tx:
            tx.read(name, "c")
        db.topic(name).drop_consumer("c")
        db.drop_topic(name)
        if self._tables:
            db.create_table(name)
            db.table(name).put("k", self._value)
            db.drop_table(name)


def sample(db: planstep.Engine, began: float) -> dict[str, float]:
    """Samples everything that must not grow; `transactions`: how many there were, `at`: seconds."""
    stats = db.stats()
    stores: list[Any] = [node.host.store for node in db.context.runtime.nodes]
    kept, disk = stats["memory"], stats["disk_bytes"]
    return {
        "at": time.monotonic() - began,
        "transactions": stats["transactions"]["committed"],
        "step": stats["step"],
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "memory_bytes": own_bytes(),
        "log_bytes": disk["log"] + disk["aside"] + disk["other"],
        "table_bytes": disk["tables"],
        "leases": sum(len(list(store.folder.glob("leases/*"))) for store in stores),
        "reader_slots": sum(store.table.environment.info()["num_readers"] for store in stores),
        "snapshots": stats["snapshots"]["open"],
        "history_bytes": kept["history_bytes"],
        "admission_bytes": kept["admission_bytes"],
        "cache_bytes": kept["cache_bytes"],
        "waiting": stats["transactions"]["waiting"],
        "groups": len(db.context.groups) + len(db.context.consuming),
        **transient(db),
    }


def _make_small() -> None:
    from planstep.store import checkpointing, disk_store

    checkpointing.CHECKPOINT_BYTES = 1 << 20
    checkpointing.CHECKPOINT_KEYS = 5_000
    disk_store.SEGMENT_BYTES = 1 << 20


def read(store: str, seconds: str) -> None:
    """Reads as another process, whose lease and slot in LMDB end with it."""
    with planstep.open(store, read_only=True) as db:
        for name in ("in", "out"):
            db.topic(name).read(0, max_records=1000)
        print("looking", flush=True)
        time.sleep(float(seconds))


def main(given: str) -> None:
    """Soaks a store, in a process of its own; `given`: a Soak as JSON."""
    soak = Soak(**json.loads(given))
    if soak.small:
        _make_small()
    mode: Any = soak.mode
    began, stop = time.monotonic(), threading.Event()
    settings: dict[str, Any] = {mode: _SETTINGS[mode]} if mode in _SETTINGS else {}
    with planstep.open(soak.store, mode=mode, **settings) as db, soak.samples.open("w") as samples:

        def tell() -> None:
            while not stop.wait(max(0.05, soak.seconds / 400)):
                samples.write(json.dumps(sample(db, began)) + "\n")
                samples.flush()

        work = _Work(db, soak)
        sampler = threading.Thread(target=tell)
        sampler.start()
        try:
            while (now := time.monotonic()) - began < soak.seconds:
                work.round()
                rest = 0.0 if soak.small else _PACE_S - (time.monotonic() - now)
                time.sleep(max(0.0, rest))
        finally:
            stop.set()
            sampler.join()
