"""Recomputes everything that can be recomputed: digests of tablets, the log's crc chain, payload bounds.

Reads one host's folder that no engine has open. An error of recovery is reported as a problem too.

Next: nothing; this is the last of the store.
"""

from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from ..errors import Corruption, FormatError, IoError, PlanstepError
from ..proto.ids import tablet_text
from .files import Files, io_error
from .log.extents import Extent
from .log.records import MISPLACED, START, later_records, read_record
from .log.segments import data_files, is_another_s, segment_files, segment_parts
from .meta import load_meta
from .readers.released_mark import read_mark
from .recovery import read_back, read_segment
from .tables.checksums import entry_text, unseal
from .tables.digested_rows import entry_sum
from .tables.header_check import DATA_FILE, page_problems
from .tables.table import Table

_MASK = (1 << 64) - 1
_PAGES_SHOWN = 20


class Problem(NamedTuple):
    """One difference from the data written: the tablet (or file), the key (or place), and a text. `unread` is set
    if the data could not be read now, so nothing is known to be damaged.
    """

    tablet: str
    key: str
    what: str
    unread: IoError | None = None


def verify(folder: Path) -> list[Problem]:
    """Lists all problems of one host's store; empty if all is as written. StoreInUse, TooManyReaders."""
    try:
        return _verify(folder)
    except OSError as error:
        return [_problem("store", str(folder), io_error(error, folder))]


def _problem(tablet: str, key: str, error: PlanstepError) -> Problem:
    return Problem(tablet, key, str(error), error if isinstance(error, IoError) else None)


def _verify(folder: Path) -> list[Problem]:
    files = Files()
    problems: list[Problem] = []
    try:
        meta = load_meta(folder, files)
        if meta is None:
            return [Problem("store", str(folder), "not a store")]
        pages = page_problems(folder / "table")
        if pages:  # LMDB would follow damaged pointers, wherever they lead
            return [Problem("table", DATA_FILE, what) for what in pages[:_PAGES_SHOWN]]
        table = Table(folder / "table", meta.store_id, read_only=True)
    except (Corruption, FormatError, IoError) as error:
        return [_problem("store", str(folder), error)]
    try:
        problems += _check_table(folder, files, table)
        state = table.state() or (0, 0, "", False, 0)
        mark = read_mark(folder / "released", meta.store_id)
        proven = 0 if mark is None else mark.synced
        turn, _, first, closed, _ = state
        about = folder, files, meta.store_id, turn
        read_back(*about, first_segment=first, closed=closed, proven=proven)
        problems += _check_log(folder, files, meta.store_id, table)
    except (Corruption, FormatError, IoError) as error:
        problems.append(_problem("log", "", error))
    finally:
        table.close()
    return problems


class _Counted:
    """Collects the tables' entries; compares tablets' digests and files' live bytes with the stored ones."""

    def __init__(self, sizes: dict[str, int]) -> None:
        """`sizes`: bytes of each of the log's files."""
        self.problems: list[Problem] = []
        self._sizes = sizes
        self._live: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        self._found: dict[bytes, list[int]] = {}
        self._stored: dict[bytes, tuple[int, ...]] = {}  # before rows and pages, in LMDB's order

    def take(self, key: bytes, value: bytes) -> None:
        kind, name = key[:1], key[1:]
        if kind in (b"k", b"p"):
            tablet = self._found.setdefault(name[:4], [0, 0])
            tablet[0] += entry_sum(key, value, len(self._stored.get(name[:4], ())) > 2)
            tablet[1] += 1
        try:
            entry = unseal(key, value)
            if kind == b"d":
                self._stored[name] = entry
            elif kind == b"a":
                self._take_extent(name, *entry)
            elif kind == b"s":
                self._counted[name.decode()] = entry[0]
        except Exception:  # foreign bytes raise a family of unrelated errors
            self.problems.append(
                Problem("table", entry_text(key), "the value is not what was written")
            )

    def _take_extent(self, name: bytes, file: str, offset: int, length: int) -> None:
        if offset + length > self._sizes.get(file, 0):
            at = f"payload address {int.from_bytes(name, 'big')}"
            self.problems.append(Problem("log", at, f"{file} does not hold it"))
        self._live[str(file)] = self._live.get(file, 0) + length

    def compare(self) -> None:
        """Compares the sums; call it once all entries were taken."""
        found, stored = self._found, self._stored
        for prefix in sorted(found.keys() | stored.keys()):
            digest, count = found.get(prefix, [0, 0])
            if (digest & _MASK, count) != stored.get(prefix, (0, 0))[:2]:
                where = tablet_text(int.from_bytes(prefix, "big"))
                what = f"the digest over its {count} keys is not the one stored at the checkpoint"
                self.problems.append(Problem(where, "", what))
        live, counted = self._live, self._counted
        for file in sorted(live.keys() | counted.keys()):
            if live.get(file, 0) != counted.get(file, 0):
                what = f"{live.get(file, 0)} bytes are live, {counted.get(file, 0)} are counted"
                self.problems.append(Problem("log", file, what))


def _check_table(folder: Path, files: Files, table: Table) -> list[Problem]:
    paths = [*segment_files(folder), *data_files(folder)]
    counted = _Counted({path.name: files.size_of(path) for path in paths})
    for key, value in table.entries():
        counted.take(key, value)
    counted.compare()
    return counted.problems


def _check_log(folder: Path, files: Files, store_id: bytes, table: Table) -> list[Problem]:
    """Checks each file's chain, also of turns that the checkpoint covers."""
    problems = []
    live = table.live()
    for path in data_files(folder):
        if path.name in live:  # otherwise a crash ended its rewriting, and nothing refers to it
            problems += _check_data(path, files, store_id)
    for path in segment_files(folder):
        problems += _check_segment(path, files, store_id, table if path.name in live else None)
    return problems


def _check_data(path: Path, files: Files, store_id: bytes) -> list[Problem]:
    generation, _ = segment_parts(path.name)
    data = read_segment(files, path)
    if is_another_s(path.name, data, store_id):
        return [Problem(path.name, "byte 0", f"its records are {MISPLACED}")]
    offset, crc = 0, None
    while (record := read_record(data, offset, store_id, generation, crc)) is not None:
        offset, crc = record.offset + record.size, record.crc
    if offset < files.size_of(path):
        return [Problem(path.name, f"byte {offset}", "the record there is damaged")]
    return []


def _check_segment(path: Path, files: Files, store_id: bytes, table: Table | None) -> list[Problem]:
    """Checks a segment's chain; `table` is given if the segment holds live payload, else None."""
    generation, _ = segment_parts(path.name)
    data = read_segment(files, path)
    if is_another_s(path.name, data, store_id):
        return [Problem(path.name, "byte 0", f"its records are {MISPLACED}")]
    offset, last = 0, 0
    payloads: list[tuple[int, int]] = []
    record = read_record(data, 0, store_id, generation, None)
    if record is None or record.kind != START:
        # Records without `synced` are copies of an interrupted recovery, which count for nothing.
        if any(r.synced for r in later_records(data, 0, store_id, generation)):
            return [Problem(path.name, "byte 0", "the first record is damaged")]
        return []
    while record is not None:
        payloads.append((record.payload_offset, record.payload_length))
        offset, last = record.offset + record.size, record.turn
        record = read_record(data, offset, store_id, generation, record.crc)
    beyond = later_records(data, offset, store_id, generation)
    if any(r.synced > last for r in beyond):
        what = f"the record of turn {last + 1} is damaged"
        return [Problem(path.name, f"byte {offset}", what)]
    # If a segment's last record is damaged, no later record proves it, but live payload does.
    what = "the record that it was in is damaged"
    return [
        Problem(path.name, f"payload address {extent.address}", what)
        for extent in (() if table is None else table.extents(frozenset([path.name])))
        if not _is_within(extent, payloads)
    ]


def _is_within(extent: Extent, payloads: list[tuple[int, int]]) -> bool:
    """Returns whether the extent lies in one payload. `payloads`: (offset, length) of whole records, in order."""
    at = bisect_right(payloads, extent.offset, key=lambda payload: payload[0]) - 1
    return at >= 0 and extent.offset + extent.length <= sum(payloads[at])
