"""Runs one piece of the engine's work again and again, as a program of its own; instructions.py counts around it.

    python cases.py calls NAME FOLDER            JSON: the medians of one call, counted by sys.setprofile
    python cases.py work NAME FOLDER ROUNDS      nothing: valgrind counts from outside

    case ── prepares, unseen by the profile ──▶ the next round's callable ── counted ──▶ the next …

A file in place of a module is run, so that the same cases work on the package of another revision
(PYTHONPATH says which). So it imports nothing from this folder.

Next: instructions.py.
"""

import json
import os
import statistics
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeAlias

import planstep
from planstep.bench.proof.patching import exchange
from planstep.runtime import thread_pool
from planstep.store import files
from planstep.store.tables import table

Mode: TypeAlias = Literal["deterministic", "kafka", "pulsar"]
Rounds: TypeAlias = Generator[Callable[[], object], None, None]
"""Yields what one round is to call; it closes its store at its end."""
_PACKAGE = os.path.dirname(planstep.__file__) + os.sep
_COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
_WARM, _COUNTED = 100, 100
_ROOT = "planstep"


@dataclass(frozen=True)
class Calls:
    """Medians for one round; `files` counts the package's files that it calls into."""

    calls: int
    c_calls: int
    entries: int
    files: int


@dataclass(frozen=True)
class Case:
    """`few` and `many`: rounds of the two runs whose difference counts, of `each` pieces of work."""

    rounds: Callable[[Path], Rounds]
    few: int
    many: int
    each: int = 1


# the cases --------------------------------------------------------------------------------------------


def _commit(folder: Path, mode: Mode) -> Rounds:
    with planstep.open(folder / "s", mode=mode) as db:
        db.create_topic("t")
        while True:
            tx = db.transaction()
            tx.write("t", b"x")
            yield partial(_end, tx)


def _end(tx: planstep.Transaction, commits: bool = True) -> None:
    if commits:
        tx.commit()
    else:
        tx.rollback()


def _single(folder: Path, commits: bool) -> Rounds:
    """Reads a record and its position, writes one, puts two rows; from begin to end."""
    with planstep.open(folder / "s") as db:
        db.create_topic("in")
        db.create_topic("out")
        db.create_table("t", shards=2)
        db.topic("in").write_batch([b"x" * 100] * 2_000)

        def transact(i: int) -> None:
            tx = db.transaction()
            tx.read("in", "c", max_records=1)
            tx.write("out", b"y" * 100)
            tx.put("t", i, i)
            tx.put("t", -i, i)
            _end(tx, commits)

        for i in count():
            yield partial(transact, i)


_IN_FLIGHT = 64


def _submitted(folder: Path) -> Rounds:
    with planstep.open(folder / "s") as db:
        db.create_topic("out", partitions=4)
        db.create_table("t", shards=2)

        def submit(i: int) -> Any:
            tx = db.transaction()
            tx.write("out", b"y" * 100)
            tx.add("t", i, 1)
            tx.add("t", -i, 1)
            return tx.submit()

        def all_of_them() -> None:
            for future in [submit(i) for i in range(_IN_FLIGHT)]:
                future.result()

        while True:
            yield all_of_them


_PARTITIONS, _RECORDS, _BATCHES = 16, 2_000, 8


def _reshard(folder: Path) -> Rounds:
    with planstep.open(folder / "s") as db:
        for name in ("in", "out"):
            db.create_topic(name, partitions=_PARTITIONS)
        keys = [f"user-{i * 7 % 5000}" for i in range(_RECORDS)]
        for partition in range(_BATCHES):
            values = [b"v" * 1024] * _RECORDS
            db.topic("in").write_batch(values, keys=keys, partition=partition)

        def reshard(partition: int) -> None:
            with db.transaction() as tx:
                batch = tx.read(
                    "in", "c", max_records=_RECORDS, max_bytes=1 << 26, partition=partition
                )
                tx.write_batch("out", batch.values, keys=batch.keys)

        for partition in range(_BATCHES):
            yield partial(reshard, partition)


def _in_place(folder: Path, mode: Mode, version: Literal[1, 2] | None = None) -> Rounds:
    """Reads a record, whose consumer acknowledges it, and writes one."""
    with planstep.open(folder / "s", mode=mode, protocol_version=version) as db:
        db.create_topic("in")
        db.create_topic("out")
        db.topic("in").write_batch([b"x" * 100] * 2_000)

        def transact() -> None:
            with db.transaction(worker="w") as tx:
                tx.read("in", "c", max_records=1)
                tx.write("out", b"y" * 100)

        while True:
            yield transact


_BEFORE, _KEYS = 20_000, 2_000
_SCATTER = 0x9E3779B97F4A7C15
"""Odd, so that multiples modulo 2^64 differ; they lie far apart."""


def _checkpoint(folder: Path, factor: int) -> Rounds:
    """Writes `_KEYS` new keys to tables of `_BEFORE` and more; the keys are multiples of `factor`."""
    tables = table.Table(folder, b"store id")

    def write(first: int, behind: int) -> None:
        rows: dict[bytes, Any] = {
            b"\1\0\0\1r" + (n * factor % (1 << 64)).to_bytes(8, "big"): (n, b"v" * 20, n)
            for n in range(first, behind)
        }
        tables.checkpoint(rows, [], [], (behind, 0, "log-00000001-00000000", False, 0))

    try:
        write(0, _BEFORE)
        for first in count(_BEFORE, _KEYS):
            yield partial(write, first, first + _KEYS)
    finally:
        tables.close()


CASES: dict[str, Case] = {
    "deterministic": Case(partial(_commit, mode="deterministic"), 300, 700),
    "kafka": Case(partial(_commit, mode="kafka"), 300, 700),
    "pulsar": Case(partial(_commit, mode="pulsar"), 300, 700),
    "single": Case(partial(_single, commits=True), 300, 700),
    "face": Case(partial(_single, commits=False), 300, 1_300),
    "submitted": Case(_submitted, 4, 12, _IN_FLIGHT),
    "reshard": Case(_reshard, 2, 6, _RECORDS),
    "kafka small": Case(partial(_in_place, mode="kafka", version=2), 200, 500),
    "kafka small 1": Case(partial(_in_place, mode="kafka", version=1), 200, 500),
    "pulsar small": Case(partial(_in_place, mode="pulsar"), 200, 500),
    "checkpoint appended": Case(partial(_checkpoint, factor=1), 1, 6, _KEYS),
    "checkpoint scattered": Case(partial(_checkpoint, factor=_SCATTER), 1, 6, _KEYS),
}
CALLED = ("deterministic", "kafka", "single", "kafka small 1", "pulsar small")
"""The cases whose calls are counted."""


# counting ---------------------------------------------------------------------------------------------


class _Profile:
    """A profile function for `sys.setprofile`, which counts while `counts` is set."""

    def __init__(self) -> None:
        self.counts = False
        self._folders: dict[str, str | None] = {}
        self.begin()

    def begin(self) -> None:
        self.calls = self.c_calls = self.entries = 0
        self.files: set[str] = set()

    def _folder(self, file: str) -> str | None:
        """Returns the file's top folder in the package; None outside of it."""
        if file not in self._folders:
            top, below, _ = file.removeprefix(_PACKAGE).partition(os.sep)
            inside = file.startswith(_PACKAGE)
            self._folders[file] = (top if below else _ROOT) if inside else None
        return self._folders[file]

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.counts or frame.f_code.co_filename == __file__:
            return
        if event == "c_call":
            self.c_calls += 1
        elif event == "call" and frame.f_code.co_name not in _COMPREHENSIONS:
            self.calls += 1
            self._enter(frame)

    def _enter(self, frame: FrameType) -> None:
        folder = self._folder(frame.f_code.co_filename)
        if folder is None:
            return
        self.files.add(frame.f_code.co_filename)
        caller = frame.f_back
        while caller is not None:
            of_caller = self._folder(caller.f_code.co_filename)
            if of_caller is not None:
                self.entries += of_caller != folder
                return
            caller = caller.f_back


def count_calls(case: Case, folder: Path) -> Calls:
    """Counts the calls of a round, on all threads, but those of this file. No other profile may be set."""
    profile = _Profile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    counted = []
    rounds = case.rounds(folder)
    try:
        for _ in range(_WARM + _COUNTED):
            called = next(rounds)
            profile.begin()
            profile.counts = True
            called()
            profile.counts = False
            counted.append((profile.calls, profile.c_calls, profile.entries, len(profile.files)))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        rounds.close()
    medians = [round(statistics.median(each)) for each in zip(*counted[_WARM:], strict=True)]
    return Calls(*medians)


def work(case: Case, folder: Path, rounds: int) -> None:
    """Runs rounds, under valgrind too, which supports neither writes that sync nor a memory map of a terabyte.

    No thread looks for due checkpoints: it looks every so often, so a busy machine would count it more often.
    """
    exchange(files, "_DSYNC", 0)
    exchange(table, "_MAP_BYTES", 1 << 28)
    exchange(thread_pool, "_CHECKPOINT_LOOK_SECONDS", 1e6)
    running = case.rounds(folder)
    for _ in range(rounds):
        next(running)()
    running.close()


def main(what: str, name: str, folder: str, *rounds: str) -> None:
    if what == "calls":
        print(json.dumps(asdict(count_calls(CASES[name], Path(folder)))))
    else:
        work(CASES[name], Path(folder), *map(int, rounds))


if __name__ == "__main__":
    main(*sys.argv[1:])
