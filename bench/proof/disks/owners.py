"""Runs owners of one shared log: machines that take a store over from one another, and write as long as they can.

    own     open with takeover=True ─▶ 2 threads commit ─▶ Fenced ─▶ a pause ─▶ open again, for ever
            every 50 turns a snapshot is made, and the log is trimmed behind the one before
            it says of each transaction, in this order: sent, with its id ─▶ acknowledged | refused | in doubt
    look    the same store on a machine: everything that is there, and the outcomes of what was sent

A transaction's label is its record in the topic, and its row in the table; each is written once. So a reader sees
which transactions count, whether whole, and how often.

Next: ../rows/shared_kill9.py.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from ....api import open_engine
from ....api.engine import Engine
from ....errors import EngineClosed, Fenced, OwnedElsewhere, Undetermined
from ....runtime import open_runtime, replication, shipping, snapshotting
from ....runtime.snapshotting import Snapshotter
from ....runtime.unshipped import lost_turns
from ....shared.ahead import slot_name
from ....shared.entry import BEGIN, Entry
from ....shared.files_log import LinkedFiles
from ....shared.objects_log import ObjectsLog
from ....shared.settings import Replicate
from ....store.verify import verify
from ..patching import exchange
from .forked import Say, keep_busy, small_steps

WARM = open_runtime.__name__, replication.__name__
"""They are imported once, before the first fork."""
THREADS = 2
TRIM_EACH = 50
"""Turns between two snapshots."""
LOG, ROWS, COUNT = "log", "rows", "count"
_PAUSE_SECONDS = 0.06
"""How long a fenced owner waits on average, until it takes the store over again."""
_LATE_SECONDS = 0.05
_PUT_SECONDS = 0.005
_FOR_EVER = 3_600.0
_READ, _READ_BYTES = 1 << 30, 1 << 30


class Machine(NamedTuple):
    """A machine: a folder of its own, and the URL of the shared log. `plant`: a bug, by its name in PLANTS.

    `lag_bytes`: what it may answer before the log has it, in mode "async"; 0: nothing, as its mode is "sync".
    """

    folder: Path
    url: str
    plant: str = ""
    lag_bytes: int = 0

    def open(self) -> Engine:
        settings = Replicate(self.url)
        if self.lag_bytes:
            # Reads of an owner that lags wait for the log; nothing here asks them.
            settings = Replicate(self.url, mode="async", max_lag=_FOR_EVER, reads="local")
        return open_engine.open(self.folder, replicate=settings, takeover=True)


def prepare(machine: Machine, say: Say, listen: int) -> None:
    """Makes the log, the topic and the table."""
    with machine.open() as db:
        db.create_topic(LOG, partitions=THREADS, format="utf8")
        db.create_table(ROWS)


def own(machine: Machine, name: str, say: Say, listen: int) -> None:
    """Owns the store again and again, until it is killed. `name` is that of this life of the machine."""
    small_steps()
    if machine.lag_bytes:
        lag_behind(machine.lag_bytes)
    if not machine.plant:
        trim_often()
    PLANTS[machine.plant]()
    pauses = random.Random()
    for opening in itertools.count():
        began = time.monotonic()
        with suppress(Fenced, OwnedElsewhere), machine.open() as db:
            seconds = time.monotonic() - began
            say(f"o {db.stats()['generation']} {seconds:.4f}")
            _own_once(db, f"{name}.{opening}", say)
        time.sleep(pauses.expovariate(1 / _PAUSE_SECONDS))


def _own_once(db: Engine, name: str, say: Say) -> None:
    """Writes until the store is taken over. Fenced."""
    keep_busy(db)
    failed: list[BaseException] = []

    def write(thread: int) -> None:
        try:
            for n in itertools.count():
                _commit(db, thread, f"{name}.{thread}.{n}", say)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for error in failed:
        if not isinstance(error, (EngineClosed, Undetermined)):
            raise error


def _commit(db: Engine, partition: int, label: str, say: Say) -> None:
    tx = db.transaction()
    tx.write(LOG, label, partition=partition)
    tx.put(ROWS, label, 1)
    tx.add(ROWS, COUNT, 1)
    say(f"s {label} {tx.id}")
    try:
        tx.commit()
    except Undetermined:
        raise
    except EngineClosed:
        say(f"r {label}")
        raise
    say(f"a {label}")


def trim_often() -> None:
    """Makes a snapshot, and trims the log, every few turns, in a child."""

    def may_be_due(self: Any, enough: int) -> bool:
        newest = self._newest
        return newest is None or self._store.last_turn - newest.turn >= TRIM_EACH

    exchange(snapshotting, "_LOOK_SECONDS", 0.01)
    exchange(snapshotting, "_PAUSE_SECONDS", 0.0)
    exchange(Snapshotter, "_may_be_due", may_be_due)


def lag_behind(lag_bytes: int) -> None:
    """Makes puts slower than turns, and the bound of what is in the folder alone low, in a child."""
    really = ObjectsLog.append

    def append(log: Any, entry: Entry) -> bytes:
        time.sleep(_PUT_SECONDS)
        return really(log, entry)

    exchange(ObjectsLog, "append", append)
    exchange(shipping, "LAG_BYTES_MAX", lag_bytes)


# what there is ---------------------------------------------------------------------------------


class Found(NamedTuple):
    """Everything of the store as one machine has it. `problems`: those of its folder."""

    logs: list[list[str]]
    rows: dict[str, int]
    outcomes: dict[str, str]
    problems: list[str]


def look(machine: Machine, ids: list[str], say: Say, listen: int) -> None:
    """Takes the store over, says a Found with the outcomes of some ids, and closes it."""
    with machine.open() as db:
        logs = [
            db.topic(LOG).read(0, partition, max_records=_READ, max_bytes=_READ_BYTES).values
            for partition in range(THREADS)
        ]
        rows: dict[Any, Any] = dict(db.table(ROWS).scan())
        outcomes = {tx: db.outcome(tx).state for tx in ids}
    problems = [str(problem) for problem in verify(machine.folder / "host-0")]
    say(Found(logs, rows, outcomes, problems))


def look_aside(machine: Machine, say: Say, listen: int) -> None:
    """Says the turns that folders of this machine, which were set aside, say are lost: a list for each of them."""
    found = []
    for path in sorted(machine.folder.parent.glob(f"{machine.folder.name}.term-*")):
        with open_engine.open(path, read_only=True) as db:
            lost = lost_turns(path, db.context.runtime.names, db.mode)
        found.append([(turn.bytes, turn.transactions) for turn in lost.turns])
    say(found)


# planted bugs ----------------------------------------------------------------------------------


def _early() -> None:
    """Plants the bug: a turn is acknowledged a moment before it is put; what comes too late is dropped."""
    really = ObjectsLog.append
    waiting: SimpleQueue[tuple[float, Any, Entry]] = SimpleQueue()
    late: list[Any] = []  # logs that somebody else has gone on with

    def append(log: Any, entry: Entry) -> bytes:
        if entry.kind == BEGIN:
            return really(log, entry)
        log._last = entry  # noqa: SLF001
        waiting.put((time.monotonic() + _LATE_SECONDS, log, entry))
        return b""

    def put_late() -> None:
        while True:
            due, log, entry = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if log not in late:
                found = log._patient.put(slot_name(entry.turn), entry.data)  # noqa: SLF001
                if found != entry.data:
                    late.append(log)

    exchange(ObjectsLog, "append", append)
    threading.Thread(target=put_late, daemon=True).start()


def _overwriting() -> None:
    """Plants the bug: a put replaces what is there."""

    def link(files: LinkedFiles, source: Path, target: Path) -> bool:
        source.replace(target)
        return True

    exchange(LinkedFiles, "link", link)


def _unbounded() -> None:
    """Plants the bug: mode "async" acknowledges beyond its lag."""
    exchange(shipping.Shipping, "_has_room", lambda _: True)


PLANTS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "early": _early,
    "overwriting": _overwriting,
    "unbounded": _unbounded,
}
