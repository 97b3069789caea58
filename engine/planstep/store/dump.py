"""Prints a log's records as plain values, for debugging. Reads files only. Next: verify.py."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..proto.ids import KIND_NAMES, tablet_text
from .files import Files
from .layers import GONE
from .log.records import CLOSE, START, read_record
from .log.segments import segment_files, segment_parts
from .meta import load_meta
from .recovery import read_segment
from .turn import decode_changes

_KINDS = {START: "start", CLOSE: "close"}


def dump(
    folder: Path, tell: Callable[[dict[bytes, Any]], list[str]] | None = None
) -> Iterator[dict[str, Any]]:
    """Yields every valid record of a host's log, in order. `tell` describes a record's changes."""
    files = Files()
    meta = load_meta(folder, files)
    if meta is None:
        return
    for path in segment_files(folder):
        generation, _ = segment_parts(path.name)
        data = read_segment(files, path)
        record = read_record(data, 0, meta.store_id, generation, None)
        while record is not None:
            changes = decode_changes(record.changes or b"\x90")
            yield {
                "segment": path.name,
                "offset": record.offset,
                "kind": _KINDS.get(record.kind, "turn"),
                "turn": record.turn,
                "synced": record.synced,
                "payload_bytes": record.payload_length,
                "changes": [
                    f"{describe_key(key)}{' deleted' if value is GONE else ''}"
                    for key, value in changes.items()
                ],
                **({} if tell is None else {"appends": tell(changes)}),
            }
            after = record.offset + record.size
            record = read_record(data, after, meta.store_id, generation, record.crc)


def describe_key(key: bytes) -> str:
    """Describes a store key: its tablet, then the rest of the key."""
    tablet = int.from_bytes(key[:4], "big")
    if tablet >> 28 not in KIND_NAMES:
        return key.hex()
    rest = key[4:]
    text = rest.decode() if rest.isascii() and rest.decode().isprintable() else rest.hex(" ", 4)
    return f"{tablet_text(tablet)}: {text}"
