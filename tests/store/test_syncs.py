"""Tests that the counter of syncs agrees with the kernel."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_RUN = """
import os, sys
import planstep
db = planstep.open(sys.argv[1])
for p in ("a", "b", "c"):
    db.create_topic(p)
db.create_table("t", shards=2)
before = db.stats()["store"]["syncs"]
os.write(2, b"BEGIN\\n")
for i in range(20):
    with db.transaction() as tx:
        for p in ("a", "b", "c"):
            tx.write(p, b"x")
        for k in range(8):
            tx.put("t", k, i)
os.write(2, b"END\\n")
print(db.stats()["store"]["syncs"] - before)
db.close()
"""


def test_one_sync_for_each_lone_transaction_as_strace_counts(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    calls = "trace=pwritev2,fdatasync,fsync,msync,write"
    command = ["strace", "-f", "-e", calls, "-o", str(trace)]
    ended = subprocess.run(
        [*command, sys.executable, "-c", _RUN, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=False,
    )
    if "ptrace" in ended.stderr.lower():
        pytest.skip("strace may not trace here")
    assert ended.returncode == 0, ended.stderr
    between = trace.read_text().split('write(2, "BEGIN', 1)[1].split('write(2, "END', 1)[0]
    synced = re.findall(r"RWF_DSYNC|fdatasync\(|fsync\(|msync\(", between)
    assert len(synced) == int(ended.stdout) == 20
