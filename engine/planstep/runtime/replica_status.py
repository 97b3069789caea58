"""Looks at a shared log from outside: whose it is, where it ends, what lies there, and what it costs a month.

    list ─▶ last turn ─▶ its term ─▶ the BEGIN of that term, by bisection ─▶ row W: who, since

It needs no folder, and disturbs nobody. Of a log in no object store (Kafka) it reads all turns.

Next: ../cli/shared_logs.py.
"""

import time
from bisect import bisect_left
from contextlib import closing, suppress
from typing import NamedTuple

from ..errors import Trimmed
from ..shared.ahead import slot_name
from ..shared.entry import BEGIN, Entry, read_entry
from ..shared.patient import PatientObjects
from ..shared.registry import open_shared_log
from ..shared.settings import Replicate
from ..shared.shared_log import Position, SharedLog
from ..store.replicated import OPENED_KEY
from ..store.turn import decode_changes
from .replication import Opened
from .snapshotting import snapshots_of

PRICES_OF = "2025"
_HOUR = 3_600
_READ_BYTES = 8 << 20


class Price(NamedTuple):
    """A list price in US dollars, of the provider's first region, without discounts and transfer."""

    million_puts: float
    gigabyte_month: float


PRICES = {"s3": Price(5.0, 0.023), "gs": Price(5.0, 0.020), "az": Price(5.0, 0.018)}
"""By the scheme of a URL; other logs have no price that is known here."""


class Status(NamedTuple):
    """Describes a shared log; None stands for what is not known.

    `who`, `since` (Unix seconds): the owner of `term`, who has `closed` it. `end`, `floor`: the last turn, and the
    lowest one that is not trimmed. `snapshots`: turn, Unix seconds and bytes of each, the newest first. `objects`,
    `bytes`: of all that lies there. `puts_per_day`: of this term until now,
    if it began an hour ago or earlier.
    """

    store_id: str
    mode: str
    term: int | None
    who: str | None
    since: float | None
    closed: bool | None
    end: int | None
    floor: int
    snapshots: list[tuple[int, float, int]]
    objects: int | None
    bytes: int | None
    puts_per_day: float | None

    def dollars_per_month(self, scheme: str) -> tuple[float | None, float | None]:
        """Returns what the puts of 30 days and the bytes of a month cost, by list prices (PRICES)."""
        price = PRICES.get(scheme)
        if price is None:
            return None, None
        puts = self.puts_per_day
        return (
            None if puts is None else 30 * puts / 1e6 * price.million_puts,
            None if self.bytes is None else self.bytes / 1e9 * price.gigabyte_month,
        )


def status_of(settings: Replicate, now: float | None = None) -> Status:
    """Looks at a shared log. `now`: Unix seconds, None for the clock's.

    IoError, LogUnreachable, FormatError, Corruption, MissingExtra, NotSupported.
    """
    log, root = open_shared_log(settings.url, None, settings.log_timeout)
    with closing(log):
        sizes = None if log.objects is None else log.objects.sizes()
        floor = log.floor()
        if log.objects is None or sizes is None:
            begin, last = _read_through(log)
        else:
            patient = PatientObjects(log.objects, settings.url, settings.log_timeout)
            begin, last = _newest(patient, sorted(filter(None, map(_turn_of, sizes))), floor)
        with snapshots_of(settings, log, root) as snapshots:
            whole = [] if snapshots is None else list(snapshots.newest_first())
        opened = None if begin is None else _row(begin)
        closing_row = None if last is None else _row(last)
        closed = None if opened is None else closing_row is not None and closing_row.closed
        puts = None
        if begin is not None and last is not None and opened is not None and not closed:
            seconds = (time.time() if now is None else now) - opened.since_ms / 1000
            if seconds >= _HOUR:
                puts = (last.turn - begin.turn + 1) / seconds * 24 * _HOUR
        return Status(
            store_id=root.store_id.hex(),
            mode=root.mode,
            term=None if last is None else last.owner.term,
            who=None if opened is None else opened.who,
            since=None if opened is None else opened.since_ms / 1000,
            closed=closed,
            end=None if last is None else last.turn,
            floor=floor,
            snapshots=[(one.turn, one.made_ms / 1000, one.bytes) for one in whole],
            objects=None if sizes is None else len(sizes),
            bytes=None if sizes is None else sum(sizes.values()),
            puts_per_day=puts,
        )


def _row(entry: Entry) -> Opened | None:
    row = decode_changes(entry.changes).get(OPENED_KEY)
    return Opened._make(row) if isinstance(row, tuple) else None


def _turn_of(name: str) -> int | None:
    number = name.removeprefix("log/")
    return (
        int(number) if name == f"log/{number}" and len(number) == 20 and number.isdigit() else None
    )


def _read_through(log: SharedLog) -> tuple[Entry | None, Entry | None]:
    """Reads a log for the BEGIN of its last term, and its last turn; nothing if its first turns are trimmed."""
    begin = last = None
    log.open(Position())
    with suppress(Trimmed):
        while entries := log.read(_READ_BYTES, 0):
            last = entries[-1]
            begin = next((entry for entry in reversed(entries) if entry.kind == BEGIN), begin)
    return begin, last


def _newest(
    objects: PatientObjects, turns: list[int], floor: int
) -> tuple[Entry | None, Entry | None]:
    """Finds the BEGIN of the last term, and the last turn, by few gets: terms rise from turn to turn."""

    def entry_of(turn: int) -> Entry | None:
        name = slot_name(turn)
        data = objects.get(name)
        return None if data is None else read_entry(data, name)

    def term_of(turn: int) -> int:
        entry = entry_of(turn)
        return 0 if entry is None else entry.owner.term

    last = entry_of(turns[-1]) if turns else None
    if last is None:
        return None, None
    at = bisect_left(turns, floor)
    first = bisect_left(turns, last.owner.term, at, key=term_of)
    # Below the floor there are BEGINs, of which some are void: those are of other owners.
    for turn in [*turns[first : first + 1], *reversed(turns[:at])]:
        entry = entry_of(turn)
        if entry is not None and entry.kind == BEGIN and entry.owner == last.owner:
            return entry, last
    return None, last
