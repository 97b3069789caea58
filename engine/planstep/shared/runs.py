"""Keeps turns of a log in an object store once more, a thousand in one object: a run, which is fetched at once.

    run/<20 digits>-<20 digits>    named by its first and its last turn
    run   magic 4 | count 4 | length of each entry, 8 bytes | crc32 of all before | entries, as in their slots

Nothing depends on a run. Its owner puts it behind the appends, from a thread of its own, and once: if that fails,
readers take the slots. A run has turns of one owner, which are decided, and no BEGIN. A reader checks all of it,
and takes the slots where anything is wrong.

Left out: runs of few large turns, which slots show as quickly, and a run of an owner's last turns.

Next: ahead.py.
"""

import re
import threading
from contextlib import suppress
from itertools import pairwise
from struct import Struct, iter_unpack

from ..crc import crc32
from ..errors import Corruption, PlanstepError
from .entry import TURN, Entry, read_entry
from .shared_log import Objects

RUN = "run/"
RUN_TURNS = 1_000
_RUN_BYTES = 16 << 20
_LARGE = 256 << 10
"""Turns of more bytes than that, on average, make no run."""
_MAGIC = b"PST1"
_HEAD = Struct("<4sI")
_CRC = Struct("<I")
_NAME = re.compile(f"{RUN}([0-9]{{20}})-([0-9]{{20}})")


def run_name(first: int, last: int) -> str:
    return f"{RUN}{first:020d}-{last:020d}"


def turns_of(name: str) -> tuple[int, int] | None:
    """Returns the first and the last turn of a run, as its name says; None: it is no name of one."""
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def encode_run(entries: list[Entry]) -> bytes:
    lengths = b"".join(len(entry.data).to_bytes(8, "little") for entry in entries)
    head = _HEAD.pack(_MAGIC, len(entries)) + lengths
    return b"".join((head, _CRC.pack(crc32(head)), *(entry.data for entry in entries)))


def read_run(data: bytes, name: str, where: str) -> list[Entry]:
    """Decodes a run. Corruption, which names `where` it was, unless it is whole, and has the turns of its name."""
    magic, count = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
    at = _HEAD.size + 8 * count
    if magic != _MAGIC or len(data) < at + _CRC.size:
        raise Corruption(f"{where} is no run of a shared log, or cut off")
    if crc32(data[:at]) != _CRC.unpack_from(data, at)[0]:
        raise Corruption(f"{where}: the head of the run is damaged")
    lengths = [length for (length,) in iter_unpack("<Q", data[_HEAD.size : at])]
    at += _CRC.size
    if len(data) != at + sum(lengths):
        raise Corruption(f"{where} is cut off, or has bytes behind it")
    entries = []
    for length in lengths:
        entries.append(read_entry(data[at : at + length], where))
        at += length
    if not entries or turns_of(name) != (entries[0].turn, entries[-1].turn):
        raise Corruption(f"{where} has other turns than its name says")
    for before, entry in pairwise(entries):
        if (entry.turn, entry.before) != (before.turn + 1, before.chain):
            raise Corruption(f"{where}: turn {entry.turn} does not follow the one before")
    if any((entry.kind, entry.owner) != (TURN, entries[0].owner) for entry in entries):
        raise Corruption(f"{where} has turns of several owners")
    return entries


class RunWriter:
    """Puts the runs of an owner. Invariant: `_entries` are the last turns that were appended, without a gap."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._thread: threading.Thread | None = None
        self.reset()

    def reset(self) -> None:
        """Forgets the turns: others may come now."""
        self._entries: list[Entry] = []
        self._bytes = 0

    def add(self, entry: Entry) -> None:
        """Adds a turn that was appended; it is decided, and follows the last one."""
        if self._entries and self._entries[0].owner != entry.owner:
            self.reset()
        if entry.kind != TURN:
            return
        self._entries.append(
            entry._replace(changes=b"", dropped=b"", payload=b"")
        )  # they are in `data`
        self._bytes += len(entry.data)
        if len(self._entries) >= RUN_TURNS or self._bytes >= _RUN_BYTES:
            entries, size = self._entries, self._bytes
            self.reset()
            if len(entries) > 1 and size <= len(entries) * _LARGE:
                self._put_behind(entries)

    def _put_behind(self, entries: list[Entry]) -> None:
        """Puts a run from another thread; not at all while that one is busy with the run before."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._put, args=(entries,), daemon=True)
            with suppress(RuntimeError):  # the process may start no more threads
                self._thread.start()

    def _put(self, entries: list[Entry]) -> None:
        with suppress(PlanstepError, MemoryError):
            self._objects.create(run_name(entries[0].turn, entries[-1].turn), encode_run(entries))

    def close(self) -> None:
        """Waits for the run that is on its way, as long as a request may take."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
