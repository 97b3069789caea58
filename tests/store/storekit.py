"""What the store's tests share: abandoning a store, its contents, files that fail or remember.

All of it ships, for `planstep check`.
"""

from planstep.bench.proof.disks.failing import FastFiles, FaultyFiles
from planstep.bench.proof.disks.stores import (
    FIRST,
    LAST,
    TABLETS,
    Contents,
    contents,
    crash,
    resolve,
    write,
)

__all__ = [
    "FIRST",
    "LAST",
    "TABLETS",
    "Contents",
    "FastFiles",
    "FaultyFiles",
    "contents",
    "crash",
    "resolve",
    "write",
]
