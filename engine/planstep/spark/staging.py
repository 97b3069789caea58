"""Keeps the files in which a write job's tasks leave records for the driver: `<store>/spark/<job>/<task>.arrow`.

    writer()  makes the job's folder ─▶ tasks fill it ─▶ commit() or abort() removes it
    a transaction makes a folder ─▶ each write makes one in it, and leaves write.json ─▶ the commit removes all

They are in the store's folder because both tasks and driver see it, and the records will need room on that
disk anyway. The engine, backups and `verify` ignore them. Nothing is synced: no staged file is read after a
crash. A commit also removes folders that killed jobs left: those of its own streaming query and target up to its
batch, those of dead processes (owners.py), and any that are a day old.

Next: commit.py.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..api import optional_packages
from ..errors import IoError, NoSpace, PlanstepError
from . import owners
from .options import Kind, WriteOptions

pa = optional_packages.pyarrow()

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.binary()),
        ("partition", pa.int32()),
    ]
)
"""The columns of a staged file, encoded as the store keeps them; rows of tables leave the last two null."""
_FORGOTTEN_SECONDS = 86_400
_WRITE, _LOCK = "write.json", "lock"


class StagedWrite(NamedTuple):
    """One write whose tasks have ended: the files that hold its records, in the order of their partitions.

    `store` and `id` name the target that the records were encoded for. `keyed`: there is a column key. `turn` says
    which partition takes a task's records without keys. `add`: numbers are added to those that are there.
    """

    kind: Kind
    name: str
    store: str
    id: int
    keyed: bool
    add: bool
    turn: int
    folder: str
    files: tuple[tuple[str, int], ...]

    @property
    def where(self) -> str:
        return f"{self.kind} {self.name!r}"

    def tables(self) -> Iterator[Any]:
        """Maps the files as Arrow tables. IoError, PlanstepError."""
        for file, rows in self.files:
            yield _read(os.path.join(self.folder, file), rows)


class Job(NamedTuple):
    """A write job's folder. `owner` is a hash of query and target, "" without a query."""

    folder: str
    owner: str
    batch: int

    @classmethod
    def begin(cls, options: WriteOptions) -> "Job":
        """Makes the folder of a new job. IoError, NoSpace."""
        if options.transaction is not None:
            folder = Path(options.path, "spark", options.transaction)
            _make(folder, parents=False)  # its parent is gone if the transaction has ended
            return cls(os.fspath(folder), "", 0)
        return cls.named(options.path, "once", options.mark())

    @classmethod
    def named(cls, path: str, kind: str, mark: "tuple[str, int] | None") -> "Job":
        """Makes a folder for a query's target and batch, without them one that `kind` begins. IoError, NoSpace."""
        job = cls.of(path, kind, mark)
        _make(Path(job.folder))
        try:
            owners.mark(Path(job.folder))
        except OSError as error:
            raise _refused(Path(job.folder), error) from error
        return job

    @classmethod
    def of(cls, path: str, kind: str, mark: "tuple[str, int] | None") -> "Job":
        """Names a folder, as `named` does, without making it."""
        owner, batch = "", 0
        if mark is not None:
            owner, batch = hashlib.sha256(mark[0].encode()).hexdigest()[:16], mark[1]
        folder = Path(path, "spark", f"{owner or kind}-{batch}-{secrets.token_hex(8)}")
        return cls(os.fspath(folder), owner, batch)

    @property
    def id(self) -> str:
        """The random part of the folder's name, or of its transaction's, hexadecimal."""
        return self.folder.rpartition("-")[2].partition(os.sep)[0]

    def create(self, task: str) -> Any:
        """Creates a task's file, to write to. IoError, NoSpace."""
        try:
            return pa.OSFile(os.path.join(self.folder, task), "wb")
        except OSError as error:
            raise _refused(Path(self.folder), error) from error

    def keep(self, write: StagedWrite) -> None:
        """Leaves a write for the transaction that it belongs to. IoError, NoSpace."""
        path = Path(self.folder, _WRITE)
        try:
            path.with_suffix(".new").write_text(json.dumps(write))
            path.with_suffix(".new").rename(path)
        except OSError as error:
            raise _refused(path.parent, error) from error

    def kept(self, number: int) -> StagedWrite:
        """Returns a write of this transaction. PlanstepError if it has not ended well."""
        try:
            *fields, files = json.loads(Path(self.folder, str(number), _WRITE).read_text())
        except OSError as error:
            raise PlanstepError(
                f"write {number + 1} of this transaction has failed, so nothing is committed; run the block again"
            ) from error
        return StagedWrite._make([*fields, tuple((file, rows) for file, rows in files)])

    def hold(self) -> BinaryIO:
        """Marks the folder as this process's, until the file is closed: `tidy` removes it once the process is dead.
        IoError, NoSpace."""
        path = Path(self.folder, _LOCK)
        try:
            lock = path.with_suffix(".new").open("wb")
            fcntl.flock(lock, fcntl.LOCK_EX)
            path.with_suffix(".new").rename(path)
        except OSError as error:
            raise _refused(path.parent, error) from error
        return lock

    def end(self) -> None:
        """Removes the job's folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            Path(self.folder).parent.rmdir()  # fails while other jobs write

    def tidy(self, now: float | None = None) -> None:
        """Removes folders of this query's earlier batches, of dead processes, and of any jobs a day old."""
        now = time.time() if now is None else now
        with contextlib.suppress(OSError):
            for folder in list(Path(self.folder).parent.iterdir()):
                owner, _, rest = folder.name.partition("-")
                ours = self.owner and owner == self.owner
                done = ours and int(rest.partition("-")[0]) <= self.batch
                old = now - folder.stat().st_mtime > _FORGOTTEN_SECONDS
                if os.fspath(folder) != self.folder and (done or old or _is_abandoned(folder)):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Returns whether a process that made or held the folder has died."""
    if owners.is_gone(folder):
        return True
    try:
        with Path(folder, _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _make(folder: Path, parents: bool = True) -> None:
    try:
        if parents:
            folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise _refused(folder, error) from error


def _read(file: str, rows: int) -> Any:
    try:
        table = pa.ipc.open_file(pa.memory_map(file)).read_all()
    except OSError as error:
        raise IoError(f"{file}, which a task staged, is gone; write again") from error
    if table.num_rows != rows:
        raise PlanstepError(f"{file} has {table.num_rows} of {rows} rows; write again")
    return table


def _refused(folder: Path, error: OSError) -> IoError:
    kind = NoSpace if error.errno == errno.ENOSPC else IoError
    return kind(f"Spark's tasks cannot stage their records in {folder}: {error.strerror or error}")
