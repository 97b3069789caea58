"""`planstep topic read` prints a topic's records, and with --follow also new ones as they become visible.

    marks of the hosts ─ changed? ─▶ open read-only ─▶ what is new, in memory ─▶ close ─▶ print ─┐
            ▲                                                                                    │
            └──────────── wait: 50 ms, or twice what opening took ◀──────────────────────────────┘

A read-only view never changes, so --follow opens a new one for each look. Reading the owner's marks
(store/readers/released_mark.py) costs a few microseconds and tells whether there is anything new.

Next: raw.py.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

import planstep

from ..api.topics.description import offsets_of
from ..errors import IoError, NoSpace, PlanstepError
from ..store.readers.released_mark import mark_bytes
from .names import TopicName
from .output import (
    Store,
    existing,
    jsonable,
    print_fields,
    print_json,
    print_rows,
    say,
    sleep_while_read,
)
from .raw import print_raw
from .values import place

_CHUNK = 10_000
_LOOK_BYTES = 32 << 20
_PAUSE = 0.05
_FAILURES_MAX = 5


class Last(NamedTuple):
    """The place before the newest `records` records of each partition."""

    records: int


def starts_of(
    view: "planstep.SnapshotView", topic: str, start: Any, partition: int | None
) -> dict[int, int]:
    """Finds the offset of a place in each partition of a topic, as of the view's step."""
    info = view.context.topic(topic)
    if isinstance(start, Last):
        bounds = view.bounds(topic)
        oldest = offsets_of(view.pinned.reading(), info, "earliest", partition)
        return {p: max(at, bounds[p][1] - start.records) for p, at in oldest.items()}
    if isinstance(start, int) and partition is None and len(info.partitions) > 1:
        raise ValueError("an offset belongs to one partition: give --partition, too")
    return offsets_of(view.pinned.reading(), info, start, partition)


def read(
    store: Store,
    topic: TopicName,
    *,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            "--start",
            metavar="PLACE",
            help="earliest, latest, an offset, or a time (of this machine's zone if it has none). "
            "Without it: earliest; with --follow: latest.",
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            "-n",
            min=1,
            max=10**9,
            help="Begin with the newest N records of each partition.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**9,
            help="At most so many records. Without it: 100; with --last or --follow: all.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new records until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; with --follow, one a record.")
    ] = False,
    as_lines: Annotated[
        bool, typer.Option("--jsonl", help="One JSON object a record: `topic write` takes them.")
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="The stored batches, as they lie in the log, not the records."),
    ] = False,
) -> None:
    """Show records without consuming them. The store may be in use by another process.

    JSON: topic, records (list of partition, offset, timestamp_ms, key, value, headers).

    With --follow or --jsonl each line is a record: partition, offset, timestamp_ms, key, value,
    headers. Records of one partition come in the order of their offsets.

    With --raw it shows the batches of the log, also those that readers skip: in modes kafka and pulsar markers,
    and records that are aborted or not yet decided. --limit then counts batches. JSON: topic, mode,
    more (whether --limit cut it), partitions (list of partition, start, last_stable, end, batches: list
    of offset, records, bytes, kind, producer, epoch, sequence, coordinator_epoch). A marker has 0
    records and takes one offset; its kind is commit marker or abort marker. The kind of data is
    plain or transactional. Mode deterministic has no last_stable, and a batch has offset,
    records, bytes, place (step, n).

    Examples:

        planstep topic read shop.planstep clicks --partition 3 --from 100

        planstep topic read shop.planstep clicks --last 10

        planstep topic read shop.planstep clicks --follow --from 2026-11-21T08:00

        planstep topic read shop.planstep clicks --raw --partition 3
    """
    if last is not None and begin is not None:
        raise typer.BadParameter("goes without --from", param_hint="--last")
    if begin is None:
        begin = "latest" if follow else "earliest"
    if raw:
        for option, value in (("--last", last), ("--follow", follow), ("--jsonl", as_lines)):
            if value:
                raise typer.BadParameter("goes without --raw", param_hint=option)
        with existing(store) as db:
            print_raw(db, topic, place(begin, "--from"), partition, limit or 100, as_json)
        return
    start: Any = Last(last) if last is not None else place(begin, "--from")
    if start == 0:
        start = "earliest"
    if follow:
        show = _line if as_json or as_lines else _plain
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the normal end
            _follow(store, topic, start, partition, limit, show)
        return
    with existing(store) as db, db.context.open_view() as view:
        starts = starts_of(view, topic, start, partition)
        most = limit or (100 if last is None else 1 << 62)
        _show(topic, _records(view, topic, starts, most), as_json=as_json, as_lines=as_lines)


def _show(
    topic: str, records: "Iterator[planstep.Record]", *, as_json: bool, as_lines: bool
) -> None:
    """Prints records: JSON where asked for, a table on a terminal, else lines."""
    if as_lines:
        for record in records:
            _line(record)
    elif as_json:
        print_json({"topic": topic, "records": list(map(_fields, records))})
    elif sys.stdout.isatty():
        rows = [[r.partition, r.offset, r.key, r.value] for r in records]
        print_rows(topic, ["partition", "offset", "key", "value"], rows)
    else:
        for record in records:
            _plain(record)


def _fields(record: "planstep.Record") -> dict[str, Any]:
    fields = record._asdict()
    names = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
    return {name: fields[name] for name in names}


def _line(record: "planstep.Record") -> None:
    print(json.dumps(jsonable(_fields(record))))


def _plain(record: "planstep.Record") -> None:
    print_fields(record.partition, record.offset, record.key, record.value)


def _records(
    view: "planstep.SnapshotView", topic: str, starts: dict[int, int], limit: int
) -> Iterator["planstep.Record"]:
    """Yields up to `limit` records of any size, partition after partition, and advances `starts`."""
    while limit > 0:
        batch = view.read(topic, dict(starts), max_records=min(limit, _CHUNK))
        if not len(batch):
            return
        limit -= len(batch)
        for record in batch:
            starts[record.partition] = record.offset + 1
            yield record


def _follow(
    store: Path,
    topic: str,
    start: Any,
    partition: int | None,
    limit: int | None,
    show: Callable[["planstep.Record"], None],
) -> None:
    tail = _Tail(store, topic, start, partition, limit)
    failures = 0
    while True:
        before = _marks(store)
        try:
            batches = tail.read()
            failures = 0
        except IoError as error:  # the owner is too busy for a view to be opened
            failures += 1
            if isinstance(error, NoSpace) or failures == _FAILURES_MAX:
                raise
            batches = []
        for batch in batches:
            for record in batch:
                show(record)
        sys.stdout.flush()
        if tail.remaining == 0:
            return
        if not tail.more:
            sleep_while_read(max(_PAUSE, 2 * tail.seconds))
            while not failures and _marks(store) == before:
                sleep_while_read(_PAUSE)


class _Tail:
    """The state of --follow: next `offsets`, records `left`, whether there is `more`, `seconds` of opening."""

    def __init__(
        self, store: Path, topic: str, start: Any, partition: int | None, limit: int | None
    ) -> None:
        self.store, self.topic, self.start, self.partition = store, topic, start, partition
        self.remaining = 1 << 62 if limit is None else limit
        self.more = False
        self.seconds = 0.0
        self.ident: int | None = None
        self.offsets: dict[int, int] = {}

    def read(self) -> list["planstep.ReadBatch"]:
        """Reads the new records into memory, then closes the view.

        A slow reader of stdout would otherwise keep the view open, and the owner from freeing space.
        """
        began = time.monotonic()
        with existing(self.store) as db, db.context.open_view() as view:
            self.seconds = time.monotonic() - began
            self._place(db, view)
            batches, room = [], _LOOK_BYTES
            while self.remaining and room > 0:
                batch = view.read(self.topic, self.offsets, None, min(self.remaining, _CHUNK))
                if not len(batch):
                    break
                batches.append(batch)
                self.offsets |= batch.ends
                self.remaining -= len(batch)
                room -= sum(len(segment.batch.data) for segment in batch.segments)
            self.more = room <= 0
            return batches

    def _place(self, db: "planstep.Engine", view: "planstep.SnapshotView") -> None:
        ident = db.context.topic(self.topic).id
        if self.ident is None:
            self.offsets = starts_of(view, self.topic, self.start, self.partition)
            self.ident = ident
        elif ident != self.ident:
            raise PlanstepError(f"topic {self.topic!r} was dropped, and another one made since")
        bounds = view.bounds(self.topic)
        for partition, offset in self.offsets.items():
            low = bounds[partition][0]
            if offset < low:
                trimmed = f"{low - offset} records were trimmed before they were read"
                say(f"partition {partition}: {trimmed}")
                self.offsets[partition] = low


def _marks(store: Path) -> list[bytes]:
    """Reads the marks of all hosts, which change when a host releases something."""
    return [mark_bytes(host / "released") for host in sorted(store.glob("host-*"))]
