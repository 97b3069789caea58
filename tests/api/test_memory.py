"""Tests that memory does not grow with the number of transactions.

PLANSTEP_TRANSACTIONS=1000000 makes it long: 173 s, with 66, 66, 65 and 69 MB after the second to the
last fifth of them.
"""

import os
import sys
from pathlib import Path

import pytest
from kit import python

_PROGRAM = """
import sys
import planstep

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

path, many = sys.argv[1], int(sys.argv[2])
db = planstep.open(path, durability="os")
db.create_topic("in")
db.create_topic("out", partitions=4)
db.create_table("t")
for part in range(5):
    db.topic("in").write_batch([b"x"] * (many // 10))
    pending = []
    for i in range(many // 5):
        tx = db.transaction()
        if i % 2:
            tx.write("out", b"y" * 100, key=f"k{i % 100}")
            tx.add("t", i % 1000, 1)
        elif tx.read("in", "c", max_records=1):
            tx.put("t", i % 500, tx.get("t", i % 500, 0))
        pending.append(tx.submit())
        if len(pending) == 64 or i % 2 == 0:
            for future in pending:
                future.result()
            pending.clear()
    db._runtime.nodes[0].host.store.checkpoint()
    print(anonymous())
db.close()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what memory is ours")
def test_memory_is_flat(tmp_path: Path) -> None:
    many = os.environ.get("PLANSTEP_TRANSACTIONS", "15000")
    kilobytes = [int(line) for line in python(_PROGRAM, tmp_path / "s", many).stdout.split()]
    assert kilobytes[4] - kilobytes[1] < 4_000, kilobytes
