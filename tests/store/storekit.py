"""Shares helpers between the store's tests: crashing a store, reading its contents, files that fail or record.

Nearly all of it ships, for `planstep check`.
"""

import contextlib
from pathlib import Path
from typing import Any

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
from planstep.store.verify import verify

__all__ = ["FIRST", "LAST", "TABLETS", "Contents", "FaultyFiles", "contents", "resolve", "write"]
"""Names that ship elsewhere; the others are made here."""

crash = DiskStore.crash


def open_small(folder: Path, files: FastFiles | None = None, **settings: Any) -> DiskStore:
    """Opens a store with segments of 8 KiB that do not wait for the disk, unless told otherwise."""
    settings = {"segment_bytes": 8 << 10, **settings}
    return DiskStore.open(folder, files=files or FastFiles(), **settings)


def fill(store: DiskStore, keys: range, size: int = 900) -> None:
    """Writes a payload under each of these keys of the second tablet, in a turn of its own."""
    for n in keys:
        write(store, {}, {TABLETS[1] + n.to_bytes(2, "big"): bytes([n % 251]) * size})


def drop(store: DiskStore, keys: range) -> None:
    """Deletes these keys of the second tablet in one turn."""
    write(store, {TABLETS[1] + n.to_bytes(2, "big"): None for n in keys})


def write_and_checkpoint(store: DiskStore, values: range) -> None:
    """Writes each of these values to one row of the first tablet, with a checkpoint after each."""
    for value in values:
        write(store, {TABLETS[0]: value})
        store.checkpoint()


def held_in(folder: Path) -> Contents:
    """Opens a store and closes it, finds nothing wrong with it, and returns its contents."""
    store = open_small(folder)
    found = contents(store)
    store.close()
    assert verify(folder) == []
    return found


def after_crash(store: DiskStore) -> Contents:
    """Crashes a store, and returns the contents that the next opening finds."""
    crash(store)
    return held_in(store.folder)


def after_close(store: DiskStore) -> Contents:
    """Closes a store, and returns the contents that the next opening finds."""
    store.close()
    return held_in(store.folder)


def open_files(pid: int) -> list[Path]:
    """Returns the files that a process has open, on Linux."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(fd.readlink())
    return found
