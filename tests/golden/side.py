"""Adapts a mode to the scripts: opens it, waits for it, holds messages back, reads its stored records.

    Side ─┬─ Deterministic        holds proposals, plans, votes
          └─ in_place_sides.py

Next: in_place_sides.py.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from scripted import HeldMessages

import planstep
from planstep.proto.batch import Batch
from planstep.proto.ids import PARTITION, host_of, kind_of, tablet_prefix
from planstep.proto.messages import Plan, Propose, ReadSet


class Side(ABC):
    """One open store in one mode."""

    mode: ClassVar[str]
    like: ClassVar[str] = ""
    """The side whose answers are expected if this one has no file of its own."""
    only_where_told: ClassVar[bool] = False
    """Whether the side runs only the scripts for which it has a file of answers."""
    numbers: ClassVar[frozenset[str]] = frozenset()
    """Settings of the mode that a script may name."""
    has_tables: ClassVar[bool] = False
    ends: ClassVar[tuple[type, ...]]
    """Messages that end a transaction at a partition."""

    def __init__(self, db: planstep.Engine) -> None:
        self.db = db
        self.runtime: Any = db._runtime
        self.held = HeldMessages(self.runtime)

    @classmethod
    def settings(cls, values: dict[str, int]) -> dict[str, Any]:
        """Returns the mode's arguments for `planstep.open` from a script's settings."""
        return {}

    @abstractmethod
    def settle(self) -> None:
        """Waits until only held-back messages are under way."""

    @abstractmethod
    def submitted(self, tx: str) -> None:
        """Waits until the transaction can no longer be withdrawn."""

    def hold_ends(self, tablet: int) -> None:
        self.held.holds = lambda target, message: (
            isinstance(message, self.ends) and target == tablet
        )

    def hold_markers(self) -> str:
        return "there are none"

    def hold_answer(self) -> str:
        """Holds the first answer to the next request to commit; the client asks again."""
        return "there are none"

    @abstractmethod
    def hold_commit(self) -> None: ...

    @abstractmethod
    def hold_batch(self) -> None: ...

    def abort_open(self) -> int:
        """Aborts what is open, as an operator does; returns the number of transactions."""
        return 0

    def let_go(self) -> list[str]:
        """Lets all held messages go; returns their kinds."""
        return self.held.let_go()

    def stored(self, tablet: int) -> list[str]:
        """Returns a partition's stored records and markers, in order."""
        store = self.runtime.views._nodes[host_of(tablet)].host.store
        prefix = tablet_prefix(tablet) + b"b"
        texts = []
        for key, (address, length, _, *entry) in store.scan(prefix, prefix + b"\xff" * 9):
            first = int.from_bytes(key[-8:], "big")
            marker = self.marker(entry)
            if marker:
                texts.append(f"{marker}@{first}")
                continue
            values = Batch.decode(store.read_payload(address, length)).values
            for number, value in enumerate(values):
                texts.append(f"{self.writer(entry)}{(value or b'').decode()}@{first + number}")
        return texts

    def marker(self, entry: list[Any]) -> str:
        """Returns a marker's text, "" for records."""
        return ""

    def writer(self, entry: list[Any]) -> str:
        """Returns the prefix that names a record's writer, in modes that store it."""
        return ""


class Deterministic(Side):
    mode = "deterministic"
    has_tables = True
    ends = (Plan, ReadSet)

    def settle(self) -> None:
        """Returns at once: this mode writes and marks nothing in the background."""

    def submitted(self, tx: str) -> None:
        while self.db.outcome(tx).state == "open":
            time.sleep(0.0005)

    def hold_commit(self) -> None:
        is_first = once(lambda message: type(message) is Propose)
        self.held.holds = lambda target, message: kind_of(target) == PARTITION and is_first(message)

    def hold_batch(self) -> None:
        self.hold_commit()  # written records go with the proposal


def once(wanted: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a condition that holds for the first wanted message, not for its repeats."""
    matches: list[Any] = []

    def is_first(message: Any) -> bool:
        if not matches and wanted(message):
            matches.append(message)
            return True
        return False

    return is_first
