"""A process that only reads, beside one that writes and is killed: each look is of one step, and says which.

    open read-only ─▶ snapshot ─▶ LOOKED: every row's version, every partition's end, every position ─▶ close

It knows nothing of lives and kills: it goes on until `stop` is there, and what it cannot do is a finding.

Run as python -m planstep.bench.proof.histories.reader STORE TAPES NAME WORLD, the last one as JSON.

Next: run.py, which begins and ends both.
"""

import json
import sys
import time
from pathlib import Path

import planstep

from .journal import LOOKED, Tape
from .schema import World, look

STOP = "stop"
_REST = 2.0
"""Between looks, as a multiple of what one took: the writers have most of the machine."""
_LOOKS_MAX = 3000


def main(store: str, tapes: str, name: str, told: str) -> int:
    world, folder = World(*json.loads(told)), Path(tapes)
    tape = Tape(folder / name, _LOOKS_MAX * (world.rows + 64))
    clock = time.monotonic_ns
    for _ in range(_LOOKS_MAX):
        last = (folder / STOP).exists()  # one look behind the end, too
        begin = clock()
        with planstep.open(store, read_only=True) as db, db.snapshot() as view:
            tape.add(LOOKED, look(view, world, begin, clock).words())
        if last:
            break
        time.sleep(min(1.0, max(0.05, _REST * (clock() - begin) / 1e9)))
    tape.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
