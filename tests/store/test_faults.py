"""Fails each file operation in turn: acknowledged turns stay, refused turns never happened."""

import errno
import random
from pathlib import Path

import pytest
from storekit import TABLETS, Contents, FastFiles, FaultyFiles, contents, crash, write

from planstep.errors import IoError, NoSpace, StoreClosed
from planstep.store import DiskStore

SMALL = 4 << 10
TURNS = 22


class Run:
    """Runs a workload with failing files. Invariant: `held` is the acknowledged contents."""

    def __init__(self, folder: Path, files: FaultyFiles, durability: str) -> None:
        self.folder, self.files, self.durability = folder, files, durability
        self.held: Contents = {}
        self.maybe: Contents | None = None
        self.refused = 0
        self.closed = False
        self.store: DiskStore | None = None

    def open(self, files: FastFiles) -> DiskStore:
        store = DiskStore.open(
            self.folder, files=files, durability=self.durability, segment_bytes=SMALL
        )
        self.store = store
        return store

    def turn(self, n: int) -> None:
        assert self.store is not None
        rng = random.Random(n)
        key, name = TABLETS[0] + bytes([n % 5]), TABLETS[1] + bytes([n % 7])
        value, data = rng.randbytes(rng.randrange(300)), rng.randbytes(rng.randrange(1, 700))
        after = {**self.held, key: value, name: data}
        if self.closed:
            with pytest.raises(StoreClosed):
                write(self.store, {key: value}, {name: data})
            return
        try:
            write(self.store, {key: value}, {name: data})
        except StoreClosed:
            self.closed, self.maybe = True, after
        except IoError as error:
            self.refused += 1
            assert isinstance(error, NoSpace) == (self.files.code == errno.ENOSPC)
            assert contents(self.store) == self.held
        else:
            self.held = after
            assert contents(self.store) == self.held

    def reopen(self) -> None:
        if self.store is not None:
            self.refused += self.store.counters.failed_chores
            crash(self.store)
        self.store = None
        self.open(self.files)

    def play(self) -> None:
        """Runs the workload; raises the errors of opening."""
        self.open(self.files)
        for n in range(TURNS):
            self.turn(n)
            if n in (9, 15) and not self.closed:
                assert self.store is not None
                try:
                    self.store.checkpoint()
                except StoreClosed:
                    self.closed = True
                except IoError:
                    self.refused += 1
                assert contents(self.store) == self.held
            if n == 12 and not self.closed:
                self.reopen()
                assert self.store is not None and contents(self.store) == self.held
        assert self.store is not None
        try:
            self.store.close()
        finally:
            self.refused += self.store.counters.failed_chores

    def check(self) -> None:
        """Checks with files that do not fail that the store holds exactly the acknowledged contents."""
        for _ in range(2):
            if self.store is not None:
                crash(self.store)
            store = self.open(FastFiles())
            found = contents(store)
            assert found == self.held or (self.maybe is not None and found == self.maybe)
            self.held, self.maybe, self.closed = found, None, False
            self.turn(TURNS)
        store.close()


SHORT = [lambda size: 0, lambda size: size // 2, lambda size: size - 1, lambda size: size]


@pytest.mark.parametrize("durability", ["full", "os"])
@pytest.mark.parametrize("times", [1, 2, None])
@pytest.mark.parametrize("kind", ["write", "sync", "allocate", "rename", "sync_folder", "remove"])
def test_each_operation_fails(
    quick_path: Path, kind: str, times: int | None, durability: str
) -> None:
    runs = 0
    while True:
        code = errno.ENOSPC if runs % 3 == 2 else errno.EIO
        short = SHORT[runs % 4]
        files = FaultyFiles(kind, runs, code=code, times=times, short=short)
        run = Run(quick_path / str(runs), files, durability)
        try:
            run.play()
        except StoreClosed:
            assert durability == "os"  # closing syncs the log, and then goes on in another segment
        except IoError:
            run.refused += 1  # opening, or closing
        if times == 1:
            assert not run.closed
            # The reserve may hide a full disk; no other error is swallowed.
            assert run.refused == files.failed or code == errno.ENOSPC
        run.check()
        runs += 1
        if not files.failed:
            break
    assert runs > {"write": 25, "sync": 1, "rename": 1, "remove": 1}.get(kind, 6)
