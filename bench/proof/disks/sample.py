"""Makes small real stores, kept as bytes, so that thousands of damaged copies can be judged.

    make ─ in a child ─▶ topics of each format, tables, consumers, writers, trims, drops, reopenings
                          ├ closed     cleanly
                          ├ killed     with turns behind the last checkpoint
                          └ half       killed while closing: checkpoint and closing record are there, the
                                       mark that says so is not
    Sample   files as bytes, older versions of them, and where each record of the log ends

`planted` puts a copy into a folder, with files exchanged.

Next: damage.py.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import get_args

import planstep
from planstep.api.columns.codecs import Format
from planstep.api.open_engine import Mode
from planstep.runtime import open_stores
from planstep.store.files import Files
from planstep.store.log.records import TURN, read_record
from planstep.store.log.segments import segment_files, segment_parts
from planstep.store.meta import load_meta
from planstep.store.recovery import read_segment
from planstep.store.tables.table import Table

from ..patching import exchange
from .failing import FastFiles
from .forked import apart

ENDS = ("closed", "killed", "half")
LIVES = 3
_LEFT_OUT = ("lock", "lock.mdb", "spare", "reserve", "cushion")


def quickly() -> None:
    """Makes all stores of this process, a child, skip waiting for the disk: its power never fails."""
    exchange(open_stores, "Files", FastFiles)


@dataclass(frozen=True)
class Kind:
    mode: Mode
    hosts: int
    end: str

    def __str__(self) -> str:
        return f"{self.mode}, {self.hosts} hosts, {self.end}"


TABLE_FORMATS: tuple[Format, ...] = ("msgpack", "json")
KINDS = tuple(Kind(mode, hosts, end) for mode in get_args(Mode) for hosts in (1, 2) for end in ENDS)


@dataclass(frozen=True, slots=True)
class At:
    """The place of one record in the log."""

    name: str
    start: int
    end: int
    counts: bool  # a turn, not an opening or closing record


@dataclass
class Sample:
    """A store's bytes. `files`: path in the store → bytes up to the last written one; `sizes`: with zeros behind.

    `older`: versions of the same files from earlier, the oldest first.
    """

    kind: Kind
    files: dict[str, bytes]
    sizes: dict[str, int]
    older: dict[str, list[bytes]] = field(default_factory=dict)
    records: list[At] = field(default_factory=list)

    def planted(self, folder: Path, exchanged: Mapping[str, bytes | None] | None = None) -> None:
        """Writes a copy; `exchanged` files have other bytes, or are missing if None."""
        changed = exchanged or {}
        for name in self.files.keys() | changed.keys():
            data = changed.get(name, self.files.get(name))
            if data is None:
                continue
            path = _write(folder / name, data)
            if name not in changed and self.sizes.get(name, 0) > len(data):
                os.truncate(path, self.sizes[name])


def make(kind: Kind, folder: Path, seed: int = 1, prepare: Callable[[], None] = quickly) -> Sample:
    """Builds one store below `folder`, and removes it again; `prepare` is called in the child first."""
    store = folder / "sample"
    older = folder / "older"
    try:
        for life in range(LIVES):
            ended = apart(_live, (kind, store, older, seed, life, prepare), 60.0)
            if ended.why and ended.why != "died: exit code 0":  # killed while closing
                raise AssertionError(f"the sample {kind} could not be made: {ended.why}")
        sample = Sample(kind, *_bytes_of(store))
        for moment in sorted(older.iterdir()):
            for name, data in _bytes_of(moment)[0].items():
                versions = sample.older.setdefault(name, [])
                if data != sample.files.get(name) and data not in versions:
                    versions.append(data)
        sample.records = apart(_records, (store, prepare)).value
        return sample
    finally:
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(older, ignore_errors=True)


def _bytes_of(store: Path) -> tuple[dict[str, bytes], dict[str, int]]:
    files, sizes = {}, {}
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.name not in _LEFT_OUT and "leases" not in path.parts:
            name = os.fspath(path.relative_to(store))
            files[name] = read_segment(Files(), path)
            sizes[name] = path.stat().st_size
    return files, sizes


def _records(task: tuple[Path, Callable[[], None]]) -> list[At]:
    """Reads where the records of a store's logs lie, in a child."""
    store, prepare = task
    prepare()
    places: list[At] = []
    for path in (path for host in sorted(store.iterdir()) for path in segment_files(host)):
        meta = load_meta(path.parent, Files())
        assert meta is not None
        data = read_segment(Files(), path)
        generation, _ = segment_parts(path.name)
        at = crc = 0
        while record := read_record(data, at, meta.store_id, generation, crc if at else None):
            end = record.offset + record.size
            places.append(At(os.fspath(path.relative_to(store)), at, end, record.kind == TURN))
            at, crc = end, record.crc
    return places


# a store's life, in a child -----------------------------------------------------------------


def _live(task: tuple[Kind, Path, Path, int, int, Callable[[], None]]) -> None:
    """Lives one life of a store, from opening to its end; the process ends with it."""
    kind, store, older, seed, life, prepare = task
    prepare()
    os.urandom = Random(f"{seed} {kind} {life}").randbytes
    db = planstep.open(store, mode=kind.mode, hosts=kind.hosts)
    if not life:
        _create(db)
    for step in range(6):
        _work(db, seed * 1000 + life * 100 + step)
        if step == 3 and not (life == LIVES - 1 and kind.end == "killed"):
            settled(db)
            for node in db.context.runtime.nodes:
                node.host.store.checkpoint()
            _keep(store, older / f"{life}-{step}")
    settled(db)
    if life == 1:
        _keep(store, older / f"{life}-9")
        return  # killed here: the next life begins a segment of its own
    if life < LIVES - 1 or kind.end == "closed":
        db.close()
        _keep(store, older / f"{life}-9")
    elif kind.end == "half":
        exchange(Table, "mark_closed", lambda self, segment: os._exit(0))
        db.close()


def settled(db: planstep.Engine) -> None:
    """Waits until no turn runs any more: markers, acknowledgements and replies have arrived."""
    before, same = None, 0
    for _ in range(2_000):
        now = [node.host.store.last_turn for node in db.context.runtime.nodes]
        same = same + 1 if now == before else 0
        if same >= 20:
            return
        before = now
        time.sleep(0.002)


def _keep(store: Path, moment: Path) -> None:
    """Copies the files of an open store as they are, like a backup tool might."""
    for name, data in _bytes_of(store)[0].items():
        _write(moment / name, data)


def _write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _create(db: planstep.Engine) -> None:
    for name in ("bytes", "utf8", "json", "msgpack"):
        db.create_topic(f"of-{name}", partitions=2, format=name)
    db.create_topic("shrinking")
    db.create_topic("dropped")
    if db.context.runtime.hooks.has_tables:
        for form in TABLE_FORMATS:
            db.create_table(f"in-{form}", shards=2, format=form)
        db.topic("of-utf8").create_consumer("one-by-one", "individual")


def _work(db: planstep.Engine, n: int) -> None:
    """Does one step of a life: every way of writing, a little of each."""
    with db.transaction() as tx:
        tx.write(
            "of-bytes", b"\x00\xff%d" % n * 300, key=b"k%d" % (n % 5), headers={"n": b"%d" % n}
        )
        tx.write("of-utf8", f"été {n} " * 200, key=f"u{n % 3}")
        tx.write("of-json", {"n": n, "list": [n, None, 1.5]})
        tx.write_batch("of-msgpack", [[n, i, "x" * i] for i in range(6)], partition=n % 2)
    db.topic("shrinking").write_batch([b"%d" % n * 60] * 4)
    if n % 100 < 2:
        db.topic("dropped").write(b"gone") if n < 2000 and "dropped" in db.topics() else None
    with db.transaction() as tx:
        tx.read("of-utf8", "follower", max_records=2)
        if db.context.runtime.hooks.has_tables:
            tx.put("in-msgpack", ("row", n % 7), {"n": n, "text": "v" * (n % 50)})
            tx.put("in-json", n % 4, [n])
            tx.add("in-msgpack", "sum", n)
    with suppress(planstep.NotSupported), db.transaction() as tx:
        tx.write("of-json", {"taken back": n}, partition=n % 2)
        tx.flush()
        tx.rollback()
    if db.context.runtime.hooks.has_tables:
        db.table("in-msgpack").delete(("row", (n + 3) % 7))
        with db.topic("of-bytes").writer(b"producer") as writer:
            writer.write(b"by a writer %d" % n)
    if n % 100 == 4:
        db.topic("shrinking").trim("latest")
    if n % 1000 == 105:
        db.drop_topic("dropped")
