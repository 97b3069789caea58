"""Records the messages of each transaction on a host, for trace="messages".

    T<tx><turn 8>   ((tablet, message), …)      behind the host's own prefix

Next: host.py.
"""

from typing import Any

from ..proto.ids import HOST, tablet_id, tablet_prefix
from ..proto.messages import Cause, Message, Plan
from ..proto.shell import Keys
from ..store import Store


class Recording:
    """Collects the events of a turn. Invariant: it holds only what the running turn has delivered."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._events: dict[bytes, list[tuple[int, str]]] = {}

    def note(self, target: int, message: Message, cause: Cause) -> None:
        if type(message) is Plan:
            for entry in message.entries:
                self._events.setdefault(entry.tx, []).append((target, "Plan"))
            return
        tx = getattr(message, "tx", cause[0])
        if tx is not None:
            self._events.setdefault(tx, []).append((target, type(message).__name__))

    def write(self, turn: int) -> None:
        for tx, events in self._events.items():
            self._keys.put(b"T" + tx + turn.to_bytes(8, "big"), tuple(events))
        self._events.clear()


def recorded(store: Store, host: int, tx: bytes) -> list[tuple[int, list[tuple[int, str]]]]:
    """Returns (turn, [(tablet, message)]) of a transaction on a host."""
    prefix = tablet_prefix(tablet_id(HOST, host, 0)) + b"T" + tx
    rows: list[tuple[bytes, Any]] = store.scan(prefix, prefix + b"\xff" * 9)
    return [(int.from_bytes(key[-8:], "big"), list(value)) for key, value in rows]
