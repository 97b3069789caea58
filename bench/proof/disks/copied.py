"""Plays a backup, a restore over an existing store, or an export while system calls fail.

    an existing store ─▶ once on a healthy disk, to count the calls
                      └─▶ with one of the calls failing ─ done ─▶ the result is right
                                                        └ IoError ─▶ nothing was made, nothing replaced
                                                            └ the disk works again ─▶ done

A failed read during a copy or its verification is no damage, so it must end in an IoError, not a report of
damage. After a refused restore, the earlier store is still under the name.

Next: ../rows/ioerr.py.
"""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ....api.engine import Engine
from ....errors import IoError
from ....runtime import backup as backups
from ....store import snapshot_restoring as copies
from ....store.verify import Problem, verify
from .calls import failing_calls
from .engines import abandon, wait_stable
from .load import Load, Log, check
from .no_sockets import NO_SOCKETS

LATER = "later"
_Open = Callable[[Path], Engine]


@dataclass(frozen=True)
class Fails:
    """Chooses a failing call: the `nth` of the kind `call`, or of all kinds if it is ""."""

    nth: int
    code: int
    times: int | None
    call: str = ""

    def of(self, counts: dict[str, int]) -> tuple[str, int]:
        names = [self.call] if self.call else sorted(counts)
        turn, at = divmod(self.nth, len(names))
        return names[at], turn % counts[names[at]]


class Backup:
    """Makes a backup of the store `root`/s, which is closed. `log` has its content, and collects what goes wrong.

    `do` works on the folder of `dry` or `real`. Other actions override what differs.
    """

    def __init__(self, root: Path, log: Log, open_engine: _Open) -> None:
        self.root, self.log, self.open_engine = root, log, open_engine
        self.store = root / "s"

    def play(self, fails: Fails, *, blames: bool) -> tuple[int, str]:
        """Returns (failures injected, where). `blames` plants a bug: an unreadable file is called damaged."""
        log = self.log
        with failing_calls(self.root) as calls:
            self.do(self.dry())
        call, nth = fails.of(dict(calls.counts))
        blaming: Any = patch.object(copies, "verify", _verify_blaming) if blames else nullcontext()
        with blaming, failing_calls(self.root, call, nth, fails.code, fails.times) as calls:
            done = self._succeeds()
        if not done:
            log.wrong += self.is_undone()
            if not blames and not self._succeeds():
                log.wrong.append(f"the disk is well, and the call fails: {log.errors}")
                return calls.struck, call
        if not blames:
            log.wrong += self.is_done()
        return calls.struck, f"{call} {nth}"

    def _succeeds(self) -> bool:
        return self.log.error_of(lambda: self.do(self.real()), (IoError,)) is None

    def dry(self) -> Path:
        return self.root / "dry"

    def real(self) -> Path:
        return self.root / "made"

    def do(self, to: Path) -> None:
        backups.backup_store(self.store, to)

    def is_undone(self) -> list[str]:
        return ["it was refused, and it is there"] if self.real().exists() else []

    def is_done(self) -> list[str]:
        db = self.open_engine(self.real())
        try:
            return [f"the copy: {text}" for text in check(db, self.log, self.real())]
        finally:
            abandon(db)


def _verify_blaming(folder: Path) -> list[Problem]:
    return [problem._replace(unread=None) for problem in verify(folder)]


class _Restore(Backup):
    """Restores a backup over a store that has one more record, which tells the two apart."""

    def dry(self) -> Path:
        backups.backup_store(self.store, self.root / "b")
        db = self.open_engine(self.store)
        Load(db, log := Log()).transaction(LATER, LATER, 0)
        db.close()
        self.log.wrong += log.wrong
        return Path(shutil.copytree(self.store, self.root / "dry", ignore=NO_SOCKETS))

    def real(self) -> Path:
        return self.store

    def do(self, to: Path) -> None:
        backups.restore(self.root / "b", to, force=True)

    def _is_later(self) -> bool:
        db = self.open_engine(self.store)
        try:
            wait_stable(db)
            return LATER in db.topic("a").read(max_records=10_000).values
        finally:
            db.close()

    def is_undone(self) -> list[str]:
        return [] if self._is_later() else ["it was refused, and the store is replaced"]

    def is_done(self) -> list[str]:
        return ["restored, and what was written since is there"] if self._is_later() else []


class _Export(Backup):
    """Exports topic a to a file that is not on the failing disk."""

    expected: Any = None

    def do(self, to: Path) -> None:
        import pyarrow.parquet as parquet

        from ....api.columns.parquet import Source, partial_of, write
        from ....api.open_engine import open as open_store

        file = self.root.with_name(f"{self.root.name}-{to.name}.parquet")
        try:
            with open_store(self.store, read_only=True) as db, db.context.open_view() as view:
                write(Source(view, "topic", "a", True), file, lambda phase, done: None)
            values = parquet.read_table(partial_of(file)).column("value").to_pylist()
        finally:
            partial_of(file).unlink(missing_ok=True)
        if self.expected is None:
            self.expected = values
        if values != self.expected:
            self.log.wrong.append(f"{len(values)} records were exported of {len(self.expected)}")

    def is_done(self) -> list[str]:
        return []


KINDS: dict[str, type[Backup]] = {"backup": Backup, "restore": _Restore, "export": _Export}
