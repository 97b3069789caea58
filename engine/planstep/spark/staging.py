"""Keeps the files in which a write job's tasks leave records for the driver: `<store>/spark/<job>/<task>.arrow`.

    writer()  makes the job's folder ─▶ tasks fill it ─▶ commit() or abort() removes it

They are in the store's folder because both tasks and driver see it, and the records will need room on that
disk anyway. The engine, backups and `verify` ignore them. Nothing is synced: no staged file is read after a
crash. A commit also removes folders that killed jobs left: those of its own streaming query and target up to its
batch, and any that are a day old.

Next: sink.py, which uses this.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

from ..api import optional_packages
from ..errors import IoError, NoSpace, PlanstepError
from .options import WriteOptions

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


class Job(NamedTuple):
    """A write job's folder. `owner` is a hash of query and target, "" without a query."""

    folder: str
    owner: str
    batch: int

    @classmethod
    def begin(cls, options: WriteOptions) -> "Job":
        """Makes the folder of a new job. IoError, NoSpace."""
        owner, batch = "", 0
        if options.query is not None and options.batch is not None:
            target = f"{options.query}\0{options.kind}\0{options.name}"
            owner, batch = hashlib.sha256(target.encode()).hexdigest()[:16], options.batch
        folder = Path(options.path, "spark", f"{owner or 'once'}-{batch}-{secrets.token_hex(8)}")
        try:
            folder.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise _refused(folder, error) from error
        return cls(os.fspath(folder), owner, batch)

    @property
    def id(self) -> str:
        return os.path.basename(self.folder).rpartition("-")[2]

    def create(self, task: str) -> Any:
        """Creates a task's file, to write to. IoError, NoSpace."""
        try:
            return pa.OSFile(os.path.join(self.folder, task), "wb")
        except OSError as error:
            raise _refused(Path(self.folder), error) from error

    def read(self, task: str, rows: int) -> Any:
        """Maps a task's file as an Arrow table. IoError, PlanstepError."""
        try:
            table = pa.ipc.open_file(pa.memory_map(os.path.join(self.folder, task))).read_all()
        except OSError as error:
            text = f"{self.folder}/{task}, which a task staged, is gone; write again"
            raise IoError(text) from error
        if table.num_rows != rows:
            flaw = f"has {table.num_rows} of {rows} rows"
            raise PlanstepError(f"{self.folder}/{task} {flaw}; write again")
        return table

    def end(self) -> None:
        """Removes the job's folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            Path(self.folder).parent.rmdir()  # fails while other jobs write

    def tidy(self, now: float | None = None) -> None:
        """Removes folders of this query's earlier batches, and of any jobs a day old."""
        now = time.time() if now is None else now
        with contextlib.suppress(OSError):
            for folder in list(Path(self.folder).parent.iterdir()):
                owner, _, rest = folder.name.partition("-")
                ours = self.owner and owner == self.owner
                done = ours and int(rest.partition("-")[0]) <= self.batch
                if done or now - folder.stat().st_mtime > _FORGOTTEN_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)


def _refused(folder: Path, error: OSError) -> IoError:
    kind = NoSpace if error.errno == errno.ENOSPC else IoError
    return kind(f"Spark's tasks cannot stage their records in {folder}: {error.strerror or error}")
