"""Reads topics as a stream: `spark.readStream.format("planstep")`.

    initialOffset ─▶ latestOffset(start, limit) ─▶ partitions(start, end) ─▶ read() in tasks ─▶ commit ─┐
                      ▲ a look at the store         from the offsets alone     up to the ends           │
                      └──────────────────────────── the checkpoint has `end` ◀──────────────────────────┘

One process beside the driver asks all but `read`. It keeps nothing that the checkpoint does not have, but what the
last look found. Records below an end never change, so a batch that is repeated reads the same records.

Left out: `commit` moves no consumer's position, for that would need the store, which another process may own; and
real-time triggers, which Spark offers to no source written in Python.

Next: stream_look.py.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..errors import OffsetOutOfRange
from .options import check_visible
from .picture import Picture, opened_view
from .plain_errors import plainly
from .reading import Reader, Share, cut, tasks_for
from .segments import Span
from .stream_look import Look, looked, marks
from .stream_offset import Ends, StreamOffset, TopicEnds, offset_of
from .stream_options import StreamOptions

if TYPE_CHECKING:
    from ..api.snapshot import SnapshotView

Json = dict[str, Any]
Targets = dict[str, Ends]


class Part(NamedTuple):
    """A topic's spans in a task, by the topic's id and format."""

    topic: str
    id: int
    stored: str
    spans: tuple[Span, ...]


@dataclass
class StreamShare(InputPartition):
    """A task's part of a batch."""

    store: str
    parts: tuple[Part, ...]

    def __repr__(self) -> str:
        return f"StreamShare({self.parts})"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream's batches. Pickled into its tasks; offsets are JSON (stream_offset.py)."""

    def __init__(self, options: StreamOptions, schema: StructType, inferred: bool) -> None:
        self._options = options
        self._schema = schema
        self._inferred = inferred
        self._seen: tuple[bytes, ...] = ()
        """The owner's marks before the last look, if that look's batch took all there was: `_last`."""
        self._last: Json | None = None
        self._newest: Json | None = None
        self._infos: dict[tuple[str, int], tuple[tuple[int, ...], str]] = {}
        """(topic, id) → its tablets and format."""
        self._target: tuple[Targets, int | None] | None = None

    # what Spark asks beside the driver -----------------------------------------------------

    @plainly
    def initialOffset(self) -> Json:
        with self._look() as look:
            topics = {
                name: TopicEnds(info.id, look.starts(info)) for name, info in look.topics.items()
            }
            return StreamOffset(look.store, None, topics, first=True).to_json()

    @plainly
    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        with self._look() as look:
            ends = {name: _highs(look, name) for name in look.topics}
            self._target = ends, look.step

    @plainly
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Returns the end of the next batch, or `start` where there is nothing new."""
        options = self._options
        seen = marks(options.read.path)
        if seen and seen == self._seen and start == self._last:
            return start
        with self._look() as look:
            base = continued(offset_of(start), look, options)
            highs = self._highs(look, base)
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
            if rows is not None and size is None:  # Spark passes on one of two limits
                size = options.max_bytes
            end = _cut(base, highs, look, rows, size)
            whole = {name: topic.ends for name, topic in end.topics.items()} == highs
            known = len(seen) == look.hosts
            self._newest = _at(base, {n: _highs(look, n) for n in look.topics}, look).to_json()
        if self._target is not None and whole and end.step is not None:
            end = replace(end, step=self._target[1])
        before = offset_of(start)
        same = not (before.first or end.began) and end.topics == before.topics
        parsed = start if same else end.to_json()
        self._seen, self._last = (seen if whole and known else ()), parsed
        return parsed

    def reportLatestOffset(self) -> Json | None:
        """Returns the ends of the logs at the last look."""
        return self._newest

    @plainly
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Divides a batch into tasks. SnapshotTooOld where a topic was dropped since."""
        before, after = offset_of(start), offset_of(end)
        spans: list[Span] = []
        topics: dict[int, str] = {}
        for name, topic in after.topics.items():
            tablets, _ = self._info(name, topic.id, after.store)
            for partition, high in topic.ends.items():
                low = after.begin(name, partition, before)
                if low < high:
                    spans.append(Span(partition, tablets[partition], low, high))
                    topics[tablets[partition]] = name
        count = self._options.read.num_partitions or tasks_for(sum(s.end - s.start for s in spans))
        return [self._share(after, part, topics) for part in cut(tuple(spans), count)]

    def commit(self, end: Json) -> None:
        """Does nothing: Spark's checkpoint has the position."""

    # tasks ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Reads a task's share as pyarrow RecordBatches. OffsetOutOfRange for records trimmed meanwhile."""
        assert isinstance(partition, StreamShare)
        path = self._options.read.path
        check_visible(path, "task")
        with opened_view(path) as (_, view):
            for part in partition.parts:
                spans = tuple(self._present(view, part, span) for span in part.spans)
                reader = self._reader(partition.store, part)
                yield from reader.read(Share(tuple(s for s in spans if s.start < s.end)))

    def _present(self, view: "SnapshotView", part: Part, span: Span) -> Span:
        low, high = view.pinned.reading().bounds(span.tablet)
        if high < span.end:
            raise _older(part.topic, span.partition, span.end, high)
        if low <= span.start:
            return span
        end = min(low, span.end)
        _lose(self._options, part.topic, span.partition, span.start, end)
        return span._replace(start=end)

    def _reader(self, store: str, part: Part) -> Reader:
        read = replace(self._options.read, name=part.topic)
        picture = Picture(read, store, None, part.id, part.stored)
        return Reader(picture, self._schema, self._inferred)

    # ---------------------------------------------------------------------------------------

    def _look(self) -> Any:
        return looked(self._options)

    def _highs(self, look: Look, base: StreamOffset) -> Targets:
        """Returns the ends up to which this query reads now."""
        highs = {}
        for name, topic in base.topics.items():
            ends = _highs(look, name)
            if self._target is not None:
                target = self._target[0].get(name, {})
                ends = {p: min(end, target.get(p, 0)) for p, end in ends.items()}
            highs[name] = {p: max(end, topic.ends[p]) for p, end in ends.items()}
        return highs

    def _info(self, topic: str, number: int, store: str) -> tuple[tuple[int, ...], str]:
        known = self._infos.get((topic, number))
        if known is None:
            with self._look() as look:
                _check_store(store, look, self._options)
                for name, info in look.topics.items():
                    self._infos[name, info.id] = info.partitions, info.format
            known = self._infos.get((topic, number))
        if known is None:
            raise OffsetOutOfRange(
                f"topic {topic!r} is not there any more, or another one: it was dropped before the stream "
                "had read its last batch, which the checkpoint wants; begin with a new checkpointLocation"
            )
        return known

    def _share(
        self, end: StreamOffset, spans: tuple[Span, ...], names: dict[int, str]
    ) -> InputPartition:
        parts: dict[str, list[Span]] = {}
        for span in spans:
            parts.setdefault(names[span.tablet], []).append(span)
        return StreamShare(
            end.store,
            tuple(
                Part(
                    name,
                    end.topics[name].id,
                    self._info(name, end.topics[name].id, end.store)[1],
                    tuple(own),
                )
                for name, own in parts.items()
            ),
        )


class RefusedStream(DataSourceStreamReader):
    """Raises an error as the stream begins: of one that the constructor raises, Spark shows an error of its own."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> Json:
        raise self._error.with_traceback(None)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        raise self._error.with_traceback(None)

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        raise self._error.with_traceback(None)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error.with_traceback(None)


def continued(start: StreamOffset, look: Look, options: StreamOptions) -> StreamOffset:
    """Returns `start` in the store as it is now: with new topics and partitions, and without what was trimmed.

    `began` has each partition that begins elsewhere than in `start`. OffsetOutOfRange where records are lost.
    """
    _check_store(start.store, look, options)
    for name in start.topics.keys() - look.topics.keys():
        _fail(
            options,
            f"topic {name!r} of the checkpoint was dropped, or is not one of this stream: its rest is lost",
        )
    topics: dict[str, TopicEnds] = {}
    began: dict[str, Ends] = {}
    for name, info in look.topics.items():
        known = start.topics.get(name)
        if known is not None and known.id != info.id:
            _fail(
                options,
                f"topic {name!r} was dropped and created again: the checkpoint is of the one before",
            )
            known = None
        lost = {} if known is None else dict(known.lost)
        ends: Ends = {}
        for partition, (low, high) in look.bounds(info).items():
            end = None if known is None else known.ends.get(partition)
            if end is not None and end > high:
                raise _older(name, partition, end, high)
            if end is not None and low > end and not start.first:
                _lose(options, name, partition, end, low)
                lost[partition] = lost.get(partition, 0) + low - end
            ends[partition] = low if end is None else max(low, end)
            if end != ends[partition] or start.first:
                began.setdefault(name, {})[partition] = ends[partition]
        topics[name] = TopicEnds(info.id, ends, lost)
    return StreamOffset(look.store, start.step, topics, began)


def _at(base: StreamOffset, ends: Targets, look: Look) -> StreamOffset:
    topics = {name: replace(base.topics[name], ends=ends[name]) for name in base.topics}
    return StreamOffset(base.store, look.step, topics)


def _cut(
    base: StreamOffset, highs: Targets, look: Look, rows: int | None, size: int | None
) -> StreamOffset:
    spans = [
        Span(partition, look.topics[name].partitions[partition], topic.ends[partition], high)
        for name, topic in base.topics.items()
        for partition, high in highs[name].items()
    ]
    cuts, step = look.cut([span for span in spans if span.start < span.end], rows, size)
    topics = {}
    for name, topic in base.topics.items():
        tablets = look.topics[name].partitions
        ends = {p: cuts.get(tablets[p], end) for p, end in topic.ends.items()}
        topics[name] = replace(topic, ends=ends)
    return replace(base, step=step, topics=topics)


def _highs(look: Look, topic: str) -> Ends:
    return {p: high for p, (_, high) in look.bounds(look.topics[topic]).items()}


def _check_store(store: str, look: Look, options: StreamOptions) -> None:
    if store != look.store:
        raise OffsetOutOfRange(
            f"the store at {options.read.path} is another one than the checkpoint's: it was replaced; give the "
            "query a new checkpointLocation to read this one from its beginning"
        )


def _older(topic: str, partition: int, end: int, high: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"topic {topic!r}, partition {partition}: the checkpoint is at offset {end}, the log ends at "
        f"{high}: the store is an older copy than the checkpoint's; begin with a new checkpointLocation"
    )


def _lose(options: StreamOptions, topic: str, partition: int, begin: int, end: int) -> None:
    _fail(
        options,
        f"topic {topic!r}, partition {partition}: offsets {begin} to {end - 1} were trimmed before the stream "
        f"read them, {end - begin} are lost",
    )


def _fail(options: StreamOptions, loss: str) -> None:
    """Raises OffsetOutOfRange for a loss, or reports it where the stream shall go on."""
    if options.fails_on_loss:
        raise OffsetOutOfRange(
            f'{loss}; to go on without, set .option("failOnDataLoss", "false"), which counts them'
        )
    sys.stderr.write(f"planstep: {loss}\n")  # Spark's Python processes have no logging configured
