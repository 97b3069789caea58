"""Writes turns to a bare store, and reads its content, for checks without an engine.

    write ─▶ DiskStore ─▶ contents, compared to the acknowledged content

Next: failing.py, the files that such a store is given.
"""

from pathlib import Path
from typing import Any

from ....proto.ids import PARTITION, SHARD, tablet_id

TABLETS = [tablet_id(kind, 0, 1).to_bytes(4, "big") for kind in (PARTITION, SHARD)]
FIRST, LAST = TABLETS[0], TABLETS[-1] + b"\xff"

Contents = dict[bytes, Any]


def contents(store: Any) -> Contents:
    """Returns every key with its value; a value (P, address, length) is replaced by its payload's bytes."""
    return {k: resolve(store, v) for k, v in store.scan(FIRST, LAST)}


def resolve(store: Any, value: Any) -> Any:
    if isinstance(value, tuple) and value and value[0] == "P":
        return store.read_payload(value[1], value[2])
    return value


def write(
    store: Any,
    changes: dict[bytes, Any],
    payloads: dict[bytes, bytes] | None = None,
    *,
    frees: bool = False,
) -> None:
    """Commits one turn; None deletes a key. A payload that loses its key is dropped."""
    turn = store.begin()
    for key in {**changes, **(payloads or {})}:
        old = turn.get(key)
        if isinstance(old, tuple) and old and old[0] == "P":
            turn.drop_payload(old[1], old[2])
    for key, value in changes.items():
        if value is None:
            turn.delete(key)
        else:
            turn.put(key, value)
    for key, data in (payloads or {}).items():
        turn.put(key, ("P", turn.append_payload(data), len(data)))
    turn.reserve = frees
    store.commit(turn)


def table_file(folder: Path) -> Path:
    """Returns the path of a store's LMDB file."""
    return folder / "table" / "data.mdb"
