"""Runs a read-only process while another one writes and is killed; each look has one step and names it.

    open read-only ─▶ 4 × snapshot ─▶ Look: every row's version, every partition's end, every position ─▶ close
                                    └▶ a line of JSON

It does not know about lives and kills: it goes on until the file `stop` exists, and any failure is a finding.

Run as python -m planstep.bench.proof.histories.reader STORE TAPES NAME WORLD, the last one as JSON.

Next: run.py, which starts and ends both processes.
"""

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import planstep

from .schema import World, observe

STOP = "stop"
_REST = 2.0
"""The pause between looks, as a multiple of a look's duration: it leaves most of the machine to the writers."""
_LOOKS_MAX = 3000
_LOOKS_AN_ENGINE = 4
"""The first look of an engine reads all of the log, the others read on."""
clock = time.monotonic_ns


def look(db: planstep.Engine, world: World, lines: TextIO, begin: int) -> None:
    """Looks at everything, and writes a line; `begin` is when it began."""
    with db.snapshot() as view:
        print(json.dumps(observe(view, world, begin, clock)), file=lines, flush=True)


def main(store: str, tapes: str, name: str, text: str) -> None:
    world, folder = World(*json.loads(text)), Path(tapes)
    with (folder / name).open("w") as lines, ExitStack() as stack:
        for number in range(_LOOKS_MAX):
            last = (folder / STOP).exists()  # one more look after the end
            begin = clock()
            if number % _LOOKS_AN_ENGINE == 0:
                stack.close()
                db = stack.enter_context(planstep.open(store, read_only=True))
            look(db, world, lines, begin)
            if last:
                break
            time.sleep(min(1.0, max(0.05, _REST * (clock() - begin) / 1e9)))


if __name__ == "__main__":
    main(*sys.argv[1:])
