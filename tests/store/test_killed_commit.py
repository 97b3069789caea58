"""Tests a process killed within an LMDB commit while another one reads: the commit counts for all later openers.

LMDB writes the page that makes a commit valid, and then notes its number in the lock file, for all. A kill
between the two leaves a number that is one too low. New read transactions go by that number for as long as any
process has the environment open.
"""

import sys
from contextlib import closing
from pathlib import Path

import pytest
from kit import Child

from planstep.store.tables.table import Table

STORE = bytes(16)
NUMBER_AT = 48
"""The number's place in the lock file: after magic, format and the readers' mutex."""

OWNER = """
import pathlib, sys
from planstep.store.tables.table import Extent, Table

table = Table(pathlib.Path(sys.argv[1]), bytes(16))
for turn in (1, 2):
    at = 100 * (turn - 1)
    changes = {b"tabl" + bytes([turn]): turn}
    extents = [Extent(at, "log-00000001-00000000", at, 100)]
    table.checkpoint(changes, extents, [], (turn, at + 100, "log-00000001-00000000", False, 0))
writing = table._env.begin(write=True)  # as within a commit: it has the writers' lock
print(table.newest(), flush=True)
sys.stdin.read()
"""
READER = """
import pathlib, sys
from planstep.store.tables.table import Table

table = Table(pathlib.Path(sys.argv[1]), bytes(16), read_only=True)
print(table.newest(), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="LMDB's lock file has another form")
@pytest.mark.parametrize("reads", [False, True], ids=["opener", "reader that becomes the owner"])
def test_a_commit_counts_whose_process_was_killed_before_it_noted_it(
    quick_path: Path, reads: bool
) -> None:
    folder = quick_path / "table"
    folder.mkdir()
    with Child(OWNER, folder) as owner:
        newest = int(owner.line())
        before = Table(folder, STORE, read_only=True, ownable=True) if reads else None
        with Child(READER, folder) as reader:
            assert int(reader.line()) == newest
            owner.kill()
            lock = folder / "lock.mdb"
            with lock.open("r+b") as file:
                file.seek(NUMBER_AT)
                assert int.from_bytes(file.read(8), sys.byteorder) == newest
                file.seek(NUMBER_AT)
                file.write((newest - 1).to_bytes(8, sys.byteorder))
            with closing(before or Table(folder, STORE)) as table:
                if before is not None:
                    before.own(folder)
                assert table.state()[0] == 2
                assert table.live() == {"log-00000001-00000000": 200}
