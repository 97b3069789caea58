"""What a load sees, for ever: one step, and what of it the DataFrame is.

    load() ─▶ open read_only ─▶ step S ─┬─ topic: [start, end) of each partition as of S
                                        └─ table: its rows as of S, in a file (tables.py)

Records below an end never change, so tasks need no snapshot: they open the store, later than S, and read
up to the ends. Mode kafka has no steps: each partition is as it was when the load looked at it.

Next: reading.py.
"""

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import planstep

from ..api.reading import check_partition
from ..errors import NotSupported, OffsetOutOfRange, SnapshotTooOld
from . import snapshots, tables, values
from .options import Offsets, ReadOptions, check_visible

if TYPE_CHECKING:
    from ..api.engine import Engine
    from ..api.snapshot import SnapshotView
    from ..names import TableInfo, TopicInfo

_VALUES = 1


class Span(NamedTuple):
    """Offsets [start, end) of a partition, which is this tablet."""

    partition: int
    tablet: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Picture:
    """`step` is None in mode kafka; `spans` are a topic's, `file` is a table's. `store`, `id`: another store,
    or another topic of the same name, is not the one that was seen. `stored` is the format."""

    options: ReadOptions
    store: str
    step: int | None
    id: int
    stored: str
    spans: tuple[Span, ...] = ()
    file: str = ""
    counts: tuple[int, ...] = ()
    """Rows of the file's batches."""
    key_type: Any = None
    """Inferred Arrow types, where they were asked for."""
    value_type: Any = None

    @property
    def format(self) -> str:
        return self.options.format or self.stored

    @property
    def what(self) -> str:
        step = "" if self.step is None else f" as of step {self.step}"
        return f"{self.options.kind} {self.options.name!r}{step}"


def take(options: ReadOptions, infer: tuple[str, ...]) -> Picture:
    """Looks at the store. `infer`: the columns, of key and value, whose types are asked for."""
    check_visible(options.path, "driver")
    with (
        planstep.open(options.path, create=False, read_only=True, switch_interval=None) as db,
        db._look() as view,
    ):
        if options.kind == "topic":
            return _topic(options, db, view, infer)
        return _table(options, db, view, infer)


def store_id(db: "Engine") -> str:
    found: bytes = db._runtime.nodes[0].host.store.store_id
    return found.hex()


def _step(options: ReadOptions, db: "Engine", view: "SnapshotView") -> int | None:
    if db.mode == "kafka":
        if options.step is not None or options.snapshot is not None:
            raise NotSupported(
                "leave asOfStep out: mode kafka has no steps, each partition is read as it is at load"
            )
        return None
    if options.step is None:
        return view.step
    if options.step > view.step:
        raise ValueError(
            f"asOfStep={options.step} has not come yet: the newest step of {options.path} is {view.step}"
        )
    return options.step


# topics ------------------------------------------------------------------------------------


def _topic(
    options: ReadOptions, db: "Engine", view: "SnapshotView", infer: tuple[str, ...]
) -> Picture:
    info = db._topic(options.name)
    step = _step(options, db, view)
    bounds = _bounds(options, db, view, info, step)
    spans = tuple(_spans(options, info, bounds))
    kind = None
    if "value" in infer:
        form, where = options.format or info.format, f"values of topic {info.name!r}"
        sample = _sample(db, view, spans, options.infer_records)
        kind = values.infer(form, sample, where)
    return Picture(options, store_id(db), step, info.id, info.format, spans, value_type=kind)


def _bounds(
    options: ReadOptions,
    db: "Engine",
    view: "SnapshotView",
    info: "TopicInfo",
    step: int | None,
) -> dict[int, tuple[int, int]]:
    """Partition → its log as of the step, of what is still there."""
    chosen = range(len(info.partitions)) if options.partitions is None else options.partitions
    for partition in chosen:
        check_partition(info, partition)
    if options.snapshot is not None:
        assert step is not None
        known = snapshots.read(options.snapshot, store_id(db), step).topic(info)
        return {p: known[p] for p in chosen}
    found = view.bounds(info.name)
    if step is None or step == view.step:
        return {p: found[p] for p in chosen}
    return {p: _as_of(db, info, p, step) for p in chosen}


def _as_of(db: "Engine", info: "TopicInfo", partition: int, step: int) -> tuple[int, int]:
    views, tablet = db._runtime.views, info.partitions[partition]
    start, now = views.log_bounds(tablet)
    end = views.end_at(tablet, step)
    if 0 < start == end < now:  # whether there was anything at that step, nobody knows any more
        raise SnapshotTooOld(
            f"topic {info.name!r}, partition {partition}: what there was as of step {step} was trimmed "
            f"since, the log begins at offset {start}; take a later asOfStep, or leave the partition "
            "out, with the option partitions"
        )
    return start, end


def _spans(
    options: ReadOptions, info: "TopicInfo", bounds: dict[int, tuple[int, int]]
) -> list[Span]:
    for given in (options.start, options.end):
        if isinstance(given, dict):
            for partition in given:
                check_partition(info, partition)
                if partition not in bounds:
                    raise ValueError(f"partition {partition} is not one of the option partitions")
    found = []
    for partition, (low, high) in bounds.items():
        start, end = _of(options.start, partition), _of(options.end, partition)
        start = low if not start else start  # 0 stands for the oldest record that is still there
        end = high if end is None else end
        if not low <= start <= end <= high:
            raise OffsetOutOfRange(
                f"topic {info.name!r}, partition {partition}: startingOffset to endingOffset, [{start}, "
                f"{end}), is outside the log [{low}, {high})"
            )
        found.append(Span(partition, info.partitions[partition], start, end))
    return found


def _of(given: Offsets, partition: int) -> int | None:
    return given.get(partition) if isinstance(given, dict) else given


def _sample(db: "Engine", view: "SnapshotView", spans: tuple[Span, ...], limit: int) -> list[bytes]:
    """Some values of every partition, as stored."""
    filled = [span for span in spans if span.start < span.end]
    found: list[Any] = []
    for number, (_, tablet, start, end) in enumerate(filled):
        share = -(-(limit - len(found)) // (len(filled) - number))
        count = min(share, end - start)
        slices = db._runtime.read_slices(view._view().snap, tablet, start, count, 64 << 20)
        found += chain.from_iterable(s.batch.part(_VALUES, s.lo, s.hi) for s in slices)
    return found


# tables ------------------------------------------------------------------------------------


def _table(
    options: ReadOptions, db: "Engine", view: "SnapshotView", infer: tuple[str, ...]
) -> Picture:
    info = db._table(options.name)
    step = _step(options, db, view)
    assert step is not None
    file = _rows(options, db, view, info, step)
    form = options.format or info.format
    bounds = tables.key_range(options)
    key_type = value_type = None
    if infer:
        keys, sample = tables.first_rows(file, bounds, options.infer_records)
        if "key" in infer:
            key_type = values.infer_keys(keys, f"table {info.name!r}")
        if "value" in infer:
            value_type = values.infer(form, sample, f"values of table {info.name!r}")
    about = (options, store_id(db), step, info.id, info.format)
    return Picture(*about, (), file, tables.counts(file), key_type, value_type)


def _rows(
    options: ReadOptions, db: "Engine", view: "SnapshotView", info: "TableInfo", step: int
) -> str:
    store, bounds = store_id(db), tables.key_range(options)
    if options.snapshot is not None:
        return snapshots.read(options.snapshot, store, step).table(info)
    file = tables.rows_file(store, step, info, bounds, tables.local_folder())
    if step == view.step:
        tables.write_rows(view, info, bounds, file)
    elif not file.exists():
        raise SnapshotTooOld(
            f"table {info.name!r} as of step {step} is gone: the store is at step {view.step}, and keeps "
            "the newest rows only; read several at one step with pyspark_planstep.snapshot(path, "
            "tables=[…]), or leave asOfStep out"
        )
    return str(file)
