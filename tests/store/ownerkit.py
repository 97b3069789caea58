"""Shares a store's owner in another process, which does what it is told."""

import json
from pathlib import Path
from random import Random
from typing import Any

from kit import Child
from storekit import TABLETS, Contents

A, B = TABLETS
OWNER = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[2])
from storekit import FaultyFiles, crash, open_small, write
from planstep.errors import PlanstepError

class Files(FaultyFiles):
    kind = ""

def opened():
    files = Files(times=1)
    return files, open_small(pathlib.Path(sys.argv[1]), files, durability=sys.argv[3])

files, store = opened()
for line in sys.stdin:
    what, *rest = json.loads(line)
    if what == "write":
        changes, payloads = ({bytes.fromhex(k): v for k, v in each.items()} for each in rest)
        write(store, changes, {k: bytes([n % 251]) * n for k, n in payloads.items()})
    elif what == "freeze":  # the next checkpoint is of this turn
        with store._log.appending:
            store._checkpointer.freeze_to_digest()
    elif what == "checkpoint":
        store.checkpoint()
    elif what == "fail":
        files.kind, files.failed = "write", 0
        try:
            write(store, {b"\\x30\\0\\0\\1void": 1})
        except PlanstepError:
            pass
        files.kind = ""
    elif what == "open again":
        store.close() if rest[0] else crash(store)
        files, store = opened()
    print(json.dumps([store.last_turn, store.generation, store._log.segment, store._log.offset]), flush=True)
"""
KEYS = [tablet + bytes([n]) for tablet in TABLETS for n in range(12)]
WEIGHTS = {"write": 60, "freeze": 5, "checkpoint": 8, "fail": 1, "open again": 1}


class Owner:
    """A store's owner in another process, and what the store holds."""

    def __init__(self, folder: Path, random: Random, durability: str) -> None:
        self._begin(folder, random, durability)
        self.write({A: 0})

    @classmethod
    def again(cls, folder: Path) -> "Owner":
        """Opens a store that is there."""
        owner = cls.__new__(cls)
        owner._begin(folder, Random(1), "full")
        owner.ask("look")
        return owner

    def _begin(self, folder: Path, random: Random, durability: str) -> None:
        self._child = Child(OWNER, folder, Path(__file__).parent, durability)
        self._random = random
        self.held: Contents = {}
        self.turn = self.generation = self.offset = 0
        self.segment = ""

    def ask(self, *words: Any) -> None:
        self._child.tell(json.dumps(words))
        self.turn, self.generation, self.segment, self.offset = json.loads(self._child.line())

    def write(self, changes: dict[bytes, Any], payloads: dict[bytes, int] | None = None) -> None:
        payloads = payloads or {}
        self.held = {
            **self.held,
            **changes,
            **{k: bytes([n % 251]) * n for k, n in payloads.items()},
        }
        self.held = {key: value for key, value in self.held.items() if value is not None}
        self.ask("write", *({key.hex(): v for key, v in d.items()} for d in (changes, payloads)))

    def act(self) -> None:
        random = self._random
        (what,) = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if what == "write":
            keys = random.sample(KEYS, random.randint(1, 5))
            value = random.choice((None, random.randint(0, 9), "text"))
            payloads = {key: random.randint(1, 3000) for key in keys if random.random() < 0.4}
            self.write({key: value for key in keys if key not in payloads}, payloads)
        else:
            self.ask(what, random.random() < 0.5)

    def kill(self) -> None:
        self._child.kill()
