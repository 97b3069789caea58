"""Translates the errors of LMDB and its binding into the engine's own.

    opening ─▶ not_opened     reading ─▶ unreadable     writing ─▶ not_written, or the environment has given_up

The error's class decides, then its number; the text decides only for errors of the binding, which have neither.

Next: table.py.
"""

import errno
import os
from pathlib import Path

import lmdb

from ...errors import (
    Corruption,
    EngineClosed,
    FormatError,
    IoError,
    NoSpace,
    PlanstepError,
    StoreClosed,
    StoreInUse,
)
from ..files import io_error, shown
from .header_check import is_full
from .reader_slots import all_taken


def not_opened(folder: Path, error: lmdb.Error) -> PlanstepError:
    if isinstance(error, lmdb.ReadersFullError):
        return all_taken(folder)
    if (code := _code(error)) == errno.ENOENT:
        return FormatError(
            f"{shown(folder)} holds no tables: if the store's creation was not finished, open it for writing"
        )
    if code > 0:
        return io_error(OSError(code, os.strerror(code)), folder)
    if code == 0 and "already open" in str(error):  # the binding's own words, as at `unreadable`
        return StoreInUse(os.getpid(), None)
    return Corruption(f"{shown(folder)}: the tables cannot be opened: {error}")


def unreadable(error: Exception, folder: Path) -> PlanstepError:
    if "closed/deleted/dropped" in str(error):
        return EngineClosed("the store was closed while it was read")
    if isinstance(error, lmdb.PanicError):
        return given_up(error)
    if isinstance(error, lmdb.ReadersFullError):
        return all_taken(folder)
    if isinstance(error, lmdb.Error) and (_code(error) > 0 or isinstance(error, lmdb.TlsFullError)):
        return IoError(f"the tables cannot be read now: {error}")
    return Corruption(f"the tables cannot be read: {error}")


def not_written(what: str, error: lmdb.Error, folder: Path) -> PlanstepError:
    # LMDB raises EIO for a short write, when the disk's last pages went to it.
    short = _code(error) == errno.EIO and is_full(folder)
    if short or isinstance(error, (lmdb.MapFullError, lmdb.DiskError)):
        return NoSpace(f"{what} found no space: {error}")
    return IoError(f"{what} failed: {error}")


def given_up(error: lmdb.PanicError) -> StoreClosed:
    what = f"the tables gave up after a failed write ({error})"
    return StoreClosed(
        f"{what}; close the store and open it anew: nothing that was committed is lost"
    )


def _code(error: lmdb.Error) -> int:
    """Returns the error's number: negative for LMDB's own, positive for the system's, 0 for the binding's."""
    return int(getattr(error, "code", 0))
