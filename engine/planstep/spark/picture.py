"""Fixes what a load reads: one step, and the offsets or rows of it that the DataFrame shows.

    load() ─▶ open read_only ─▶ step S ─┬─ topic: [start, end) of each partition as of S
                                        └─ table: its rows as of S, in a file (tables.py)

Records below an end never change, so tasks need no snapshot: they open the store at a later step and read
up to the ends. Mode kafka has no steps: each partition is read as it was at the load.

Next: reading.py.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import planstep

from ..api.transaction.snapshot_reader import check_partition
from ..errors import NotSupported, OffsetOutOfRange, SnapshotTooOld
from . import owners, snapshots, tables, values
from .options import Offsets, ReadOptions, check_visible
from .segments import Span, within

if TYPE_CHECKING:
    from ..api.engine import Engine
    from ..api.snapshot import SnapshotView
    from ..runtime.catalog import TableInfo, TopicInfo

_VALUES = 1


@dataclass(frozen=True, slots=True)
class Picture:
    """One load of a topic (`spans`) or a table (`file`) as of `step`, which is None in modes kafka and pulsar.

    By `store` and `id` a task refuses another store or topic of the same name. `stored` is the format.
    """

    options: ReadOptions
    store: str
    step: int | None
    id: int
    stored: str
    spans: tuple[Span, ...] = ()
    file: str = ""
    key_type: Any = None
    """The inferred Arrow type of the keys, where it was asked for; `value_type`: of the values."""
    value_type: Any = None

    @property
    def format(self) -> str:
        return self.options.format or self.stored

    @property
    def what(self) -> str:
        step = "" if self.step is None else f" as of step {self.step}"
        return f"{self.options.kind} {self.options.name!r}{step}"


def take(options: ReadOptions, infer: tuple[str, ...]) -> Picture:
    """Takes a picture of the store or of a snapshot. `infer` names columns, key or value, to infer types of."""
    check_visible(options.path, "driver")
    owners.sweep()
    options = snapshots.with_default(options)
    if options.snapshot is not None:
        return _of_snapshot(options, snapshots.read(options.snapshot, options.step), infer)
    with opened_view(options.path) as (db, view):
        step = _step(options, db, view)
        store = store_id(db)
        if options.kind == "topic":
            info = db.context.topic(options.name)
            bounds = {p: _bounds(db, view, info, p, step) for p in chosen(options, info)}
            spans = _narrowed(options, db, view, _spans(options, info, bounds))
            kind = inferred(options, info.format, db, view, spans) if "value" in infer else None
            return Picture(options, store, step, info.id, info.format, spans, value_type=kind)
        table = db.context.table(options.name)
        assert step is not None
        file = _copy(options, store, view, table, step)
        try:
            taken = Picture(options, store, step, table.id, table.format, file=file)
            return _of_file(taken, infer)
        except BaseException:
            tables.release(file)
            raise


def _of_snapshot(
    options: ReadOptions, content: "snapshots.Content", infer: tuple[str, ...]
) -> Picture:
    store, step = content.store, content.step
    if options.kind == "table":
        number, form, file = content.table(options.name)
        return _of_file(Picture(options, store, step, number, form, file=file), infer)
    info, logs = content.topic(options.name)
    spans = _spans(options, info, {p: logs[p] for p in chosen(options, info)})
    kind = None
    if "value" in infer or options.is_narrowed:
        with opened_view(options.path) as (db, view):
            spans = _narrowed(options, db, view, spans)
            if "value" in infer:
                kind = inferred(options, info.format, db, view, spans)
    return Picture(options, store, step, info.id, info.format, spans, value_type=kind)


@contextmanager
def opened_view(path: str) -> "Iterator[tuple[Engine, SnapshotView]]":
    """Opens the store read-only, with a view as of now."""
    with (
        planstep.open(path, create=False, read_only=True, switch_interval=None) as db,
        db.context.open_view() as view,
    ):
        yield db, view


def store_id(db: "Engine") -> str:
    store_id: bytes = db.context.runtime.nodes[0].host.store.store_id
    return store_id.hex()


def _step(options: ReadOptions, db: "Engine", view: "SnapshotView") -> int | None:
    if not db.context.runtime.hooks.has_places:
        if options.step is not None:
            raise NotSupported(
                f"leave the option step out: mode {db.mode} has no steps, each partition is read as it is at load"
            )
        return None
    if options.step is None:
        return view.step
    if options.step > view.step:
        raise ValueError(
            f"step={options.step} has not come yet: the newest step of {options.path} is {view.step}"
        )
    return options.step


# topics ------------------------------------------------------------------------------------


def chosen(options: ReadOptions, info: "TopicInfo") -> Sequence[int]:
    """Returns the partitions that the options choose. OffsetOutOfRange or ValueError for one that is not there."""
    if options.partitions is None:
        return range(len(info.partitions))
    return [check_partition(info, partition) for partition in options.partitions]


def _bounds(
    db: "Engine", view: "SnapshotView", info: "TopicInfo", partition: int, step: int | None
) -> tuple[int, int]:
    """Returns (start, end) of the partition's log as of the step; trimmed records are left out."""
    if step is None or step == view.step:
        return view.pinned.reading().bounds(info.partitions[partition])
    return _as_of(db, info, partition, step)


def _as_of(db: "Engine", info: "TopicInfo", partition: int, step: int) -> tuple[int, int]:
    views, tablet = db.context.runtime.views, info.partitions[partition]
    start, now = views.log_bounds(tablet)
    end = views.end_at(tablet, step)
    if 0 < start == end < now:  # all records of that step may have been trimmed
        raise SnapshotTooOld(
            f"topic {info.name!r}, partition {partition}: what there was as of step {step} was trimmed "
            f"since, the log begins at offset {start}; take a later step, or leave the partition "
            "out, with the option partitions"
        )
    return start, end


def _spans(
    options: ReadOptions, info: "TopicInfo", bounds: dict[int, tuple[int, int]]
) -> tuple[Span, ...]:
    for offsets in (options.start, options.end):
        if isinstance(offsets, dict):
            for partition in offsets:
                check_partition(info, partition)
                if partition not in bounds:
                    raise ValueError(f"partition {partition} is not one of the option partitions")
    spans = []
    for partition, (low, high) in bounds.items():
        start, end = of_partition(options.start, partition), of_partition(options.end, partition)
        start = low if not start else start  # 0 stands for the oldest record that was not trimmed
        end = high if end is None else end
        if not low <= start <= end <= high:
            raise OffsetOutOfRange(
                f"topic {info.name!r}, partition {partition}: startingOffset to endingOffset, [{start}, "
                f"{end}), is outside the log [{low}, {high})"
            )
        spans.append(Span(partition, info.partitions[partition], start, end))
    return tuple(spans)


def _narrowed(
    options: ReadOptions, db: "Engine", view: "SnapshotView", spans: tuple[Span, ...]
) -> tuple[Span, ...]:
    """Cuts spans to the records of the options startingStep, startingTimestamp and endingTimestamp."""
    views, step = db.context.runtime.views, options.start_step
    if step is not None:
        if not db.context.runtime.hooks.has_places:
            raise NotSupported(
                f"leave startingStep out: mode {db.mode} has no steps; startingTimestamp is there"
            )
        firsts = (views.end_at(span.tablet, step - 1) for span in spans)
        moved = zip(spans, firsts, strict=True)
        spans = tuple(s._replace(start=min(s.end, max(s.start, first))) for s, first in moved)
    if options.start_ms is None and options.end_ms is None:
        return spans
    snap = view.pinned.reading().snap
    times = options.start_ms, options.end_ms
    return tuple(chain.from_iterable(within(views, snap, span, *times) for span in spans))


def of_partition(offsets: Offsets, partition: int) -> int | None:
    """Returns the offset that an option gives a partition."""
    return offsets.get(partition) if isinstance(offsets, dict) else offsets


def inferred(
    options: ReadOptions, stored: str, db: "Engine", view: "SnapshotView", spans: tuple[Span, ...]
) -> Any:
    """Infers the type of values from a sample of every partition."""
    filled = [span for span in spans if span.start < span.end]
    sample: list[Any] = []
    for number, (partition, tablet, start, end) in enumerate(filled):
        share = -(-(options.infer_records - len(sample)) // (len(filled) - number))
        count = min(share, end - start)
        segments = db.context.runtime.views.read_segments(
            view.pinned.reading().snap, tablet, partition, start, count, 64 << 20
        )
        sample += chain.from_iterable(s.batch.part(_VALUES, s.lo, s.hi) for s in segments)
    return values.infer(options.format or stored, sample, f"values of topic {options.name!r}")


# tables ------------------------------------------------------------------------------------


def _of_file(picture: Picture, infer: tuple[str, ...]) -> Picture:
    """Adds the inferred types."""
    options, file = picture.options, picture.file
    key_type = value_type = None
    where = f"table {options.name!r}"
    if infer:
        rows = tables.find(file, tables.wanted(options).ranges)
        keys, sample = tables.first_rows(file, rows, options.infer_records)
        if "key" in infer:
            key_type = values.infer_keys(keys, where)
        if "value" in infer:
            value_type = values.infer(picture.format, sample, f"values of {where}")
    return replace(picture, key_type=key_type, value_type=value_type)


def _copy(
    options: ReadOptions, store: str, view: "SnapshotView", info: "TableInfo", step: int
) -> str:
    newest = view if step == view.step else None
    file = tables.copy(newest, store, step, info, tables.wanted(options))
    if file is None:
        raise SnapshotTooOld(
            f"table {info.name!r} as of step {step} is gone: the store is at step {view.step}, and keeps "
            "the newest rows only; read several at one step with pyspark_planstep.snapshot(path, "
            "tables=[…]), or leave the option step out"
        )
    return file
