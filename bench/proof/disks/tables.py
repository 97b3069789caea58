"""Makes LMDB's commits fail with the errors that were measured: the transaction is undone, or perhaps not.

    Table ─▶ FaultyEnvironment.begin(write=True) ─▶ commit ─ its turn ─▶ aborted, and the error raised
                                                                 └ "panic": committed, raised, and from
                                                                    then on PanicError until it is opened anew

EIO from the pages' write or sync; DiskError, ENOSPC; MapFullError, from a put or the commit; and an error
at the last 120 bytes: it is unknown whether they are on the disk, and the environment is unusable.

Next: load.py, the workload that meets them.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lmdb

from ....store import DiskStore
from ..patching import exchange

_ERRORS = {
    "eio": (lmdb.Error, errno.EIO, "mdb_txn_commit: Input/output error"),
    "full": (lmdb.DiskError, errno.ENOSPC, "mdb_txn_commit: No space left on device"),
    "map": (lmdb.MapFullError, -30792, "mdb_put: MDB_MAP_FULL: Environment mapsize limit reached"),
    "panic": (lmdb.PanicError, -30795, "mdb_txn_begin: MDB_PANIC: Update of meta page failed"),
}
ERRORS = tuple(_ERRORS)


def break_tables(store: DiskStore, error: str, nth: int, times: int | None) -> "FaultyEnvironment":
    """Makes the store's LMDB commits fail, from the n-th on."""
    faulty = FaultyEnvironment(store.table.environment, error, nth, times)
    exchange(store.table, "_env", faulty)
    return faulty


class FaultyEnvironment:
    """An lmdb.Environment whose commits fail from the n-th on: `times` of them, or for ever (None)."""

    def __init__(self, env: Any, error: str, nth: int, times: int | None) -> None:
        self.kind, self.nth, self.times = error, nth, times
        self.calls = self.failed = 0
        self._env = env
        self._panics = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def begin(self, *args: Any, write: bool = False, **settings: Any) -> Any:
        if self._panics:
            self.failed += 1
            raise _error("panic")
        return self._transaction() if write else self._env.begin(*args, **settings)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        txn = self._env.begin(write=True)
        try:
            yield txn
        except BaseException:
            txn.abort()
            raise
        fails = self.calls >= self.nth and (self.times is None or self.failed < self.times)
        self.calls += 1
        if not fails:
            txn.commit()
            return
        self.failed += 1
        if self.kind == "panic":
            txn.commit()  # the caller cannot know that it succeeded
            self._panics = True
            raise _error("eio")
        txn.abort()
        raise _error(self.kind)


def _error(kind: str) -> lmdb.Error:
    class_, code, text = _ERRORS[kind]
    error: Any = class_(text)
    error.code = code
    failure: lmdb.Error = error
    return failure
