"""Keeps the history of a shared log from outside, and judges the machines and their folders by it.

    an object is created ─▶ History: the first entry of each slot ─▶ the rows that they make, turn by turn

    J1   a slot has one content for ever. A deleted one gets these very bytes again, or a BEGIN below the floor
    J2   what is acknowledged is in the history by then, and a fresh machine restores all of it
    J3   each folder is a prefix of the history

Next: seed.py.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from .....coordinator.plan import COMMITTED, PLANNED
from .....proto.ids import COORDINATOR_ID, tablet_prefix, tx_text
from .....proxy.deterministic import Result
from .....shared.entry import BEGIN, NO_CHAIN, Entry, read_entry
from .....store.layers import GONE
from .....store.turn import decode_changes
from ...simulator.bucket import Bucket

Rows = dict[bytes, Any]
_LOG, _FLOOR = "log/", "floor/"
_END = b"\xff" * 16


class History:
    """The first entry of each slot, as long as there is no gap, and the rows as of each turn."""

    def __init__(self, bucket: Bucket) -> None:
        self.entries: list[Entry] = []
        self.rows: list[Rows] = [{}]
        self.floor = 1
        self.voids = self.again = 0
        self.wrong: list[str] = []
        self._objects = bucket.objects
        bucket.landed = self.landed

    def count(self, reached: Counter[str]) -> None:
        """Counts what the history has come to."""
        reached["terms"] += sum(entry.kind == BEGIN for entry in self.entries)
        reached["turns"] += len(self.entries)
        reached["a BEGIN is void"] += self.voids
        reached["a deleted turn is there again"] += self.again

    def landed(self, name: str, data: bytes) -> None:
        """Notes an object that was created."""
        if name.startswith(_FLOOR):
            self.floor = max(self.floor, int(name.removeprefix(_FLOOR)))
        if not name.startswith(_LOG):
            return
        turn = int(name.removeprefix(_LOG))
        if turn <= len(self.entries):
            self._created_again(turn, data)
        while (following := self._objects.get(f"{_LOG}{len(self.entries) + 1:020d}")) is not None:
            self._decide(read_entry(following, "the history"))

    def _created_again(self, turn: int, data: bytes) -> None:
        if data == self.entries[turn - 1].data:
            self.again += 1
        elif read_entry(data, "a slot").kind == BEGIN and turn < self.floor:
            self.voids += 1
        else:
            self.wrong.append(f"J1: slot {turn} has held another entry before")

    def _decide(self, entry: Entry) -> None:
        before = self.entries[-1].chain if self.entries else NO_CHAIN
        if entry.before != before:
            self.wrong.append(f"J1: turn {entry.turn} does not follow the turns before it")
        self.entries.append(entry)
        rows = dict(self.rows[-1])
        for key, value in decode_changes(entry.changes).items():
            if value is GONE:
                rows.pop(key, None)
            else:
                rows[key] = value
        self.rows.append(rows)

    def answered(self, result: Result) -> None:
        """J2: checks that a commit is in the history when its client is told."""
        if result.reason is not None or not result.step:
            return
        row = self.rows[-1].get(tablet_prefix(COORDINATOR_ID) + b"o" + result.tx)
        if row is None or row[0] not in (PLANNED, COMMITTED) or row[1:3] != (result.step, result.n):
            self.wrong.append(f"J2: {tx_text(result.tx)} is told committed, and not in the history")

    def folder(self, store: Any, whose: str) -> Iterator[str]:
        """J3: yields what is wrong with a folder; J2 for a fresh one, which has to have all."""
        turn = store.last_turn
        if turn > len(self.entries):
            yield f"J3: {whose} has turn {turn}, which is not in the history"
            return
        rows = dict(store.scan(b"", _END))
        if rows != self.rows[turn]:
            keys = [
                key
                for key in {**rows, **self.rows[turn]}
                if rows.get(key) != self.rows[turn].get(key)
            ]
            yield f"J3: {whose} is no prefix of the history at turn {turn}: {sorted(keys)[:3]}"
