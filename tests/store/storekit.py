"""Shares helpers between the store's tests: crashing a store, reading its contents, files that fail or record.

Nearly all of it ships, for `planstep check`.
"""

import contextlib
from pathlib import Path

from planstep.bench.proof.disks.failing import FastFiles, FaultyFiles
from planstep.bench.proof.disks.stores import (
    FIRST,
    LAST,
    TABLETS,
    Contents,
    contents,
    resolve,
    write,
)
from planstep.store import DiskStore

__all__ = [
    "FIRST",
    "LAST",
    "TABLETS",
    "Contents",
    "FastFiles",
    "FaultyFiles",
    "contents",
    "crash",
    "open_files",
    "resolve",
    "write",
]

crash = DiskStore.crash


def open_files(pid: int) -> list[Path]:
    """Returns the files that a process has open, on Linux."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(fd.readlink())
    return found
