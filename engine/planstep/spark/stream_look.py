"""Looks at the store for a stream: what there is to read, where it begins, and where the next batch ends.

    the owner's marks ─ as at the last look ─▶ nothing new: a few bytes a host are read
                      └ changed ─▶ open read_only ─▶ bounds of each partition, at one step ─▶ closed again

A look leaves no lease behind, so the owner may trim and checkpoint as if there were no stream.

A limit takes whole steps where the mode has steps: entries of all partitions in the order of their steps, while
they fit, and at least one step. So a batch has whole transactions. Elsewhere each partition gives the same share of
what it has. The walk reads the index, no records.

Next: stream_source.py.
"""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from heapq import merge
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import FormatError, IoError, NotSupported, OffsetOutOfRange
from ..logs import tried_again
from ..runtime.catalog import TopicInfo
from ..store.readers.released_mark import mark_bytes
from .fence import FENCES
from .options import check_visible
from .picture import Picture, chosen, inferred, of_partition, opened_view, store_id
from .segments import Span
from .stream_offset import Ends
from .stream_options import StreamOptions

if TYPE_CHECKING:
    from ..api.engine import Engine
    from ..api.snapshot import SnapshotView

_AGAIN_SECONDS = 0.1


class Look:
    """An open view of the topics of a stream. `step` is None where the mode has no steps."""

    def __init__(self, options: StreamOptions, db: "Engine", view: "SnapshotView") -> None:
        self._options, self._db, self._view = options, db, view
        self.store = store_id(db)
        self.hosts = len(db.context.runtime.nodes)
        self.step = view.step if db.context.runtime.hooks.has_places else None
        self.topics = self._topics()

    def _topics(self) -> dict[str, TopicInfo]:
        name = self._options.read.name
        if not self._options.read.pattern:
            return {name: self._db.context.topic(name)}
        matches = re.compile(name).fullmatch
        topics = sorted(self._db.context.runtime.names.topics.items())
        return {name: info for name, info in topics if matches(name) and name != FENCES}

    def bounds(self, info: TopicInfo) -> dict[int, tuple[int, int]]:
        """Returns partition → [log start, log end) of the partitions that are read."""
        bounds = self._view.pinned.reading().bounds
        return {p: bounds(info.partitions[p]) for p in chosen(self._options.read, info)}

    def starts(self, info: TopicInfo) -> Ends:
        """Returns where a new stream begins, by partition. OffsetOutOfRange; NotSupported."""
        starts = {}
        for partition, (low, high) in self.bounds(info).items():
            at = self._start(info, partition, high)
            at = low if not at else at  # 0 stands for the oldest record that was not trimmed
            if not low <= at <= high:
                raise OffsetOutOfRange(
                    f"topic {info.name!r}, partition {partition}: startingOffset {at} is outside the log "
                    f"[{low}, {high})"
                )
            starts[partition] = at
        return starts

    def _start(self, info: TopicInfo, partition: int, high: int) -> int | None:
        options, views = self._options, self._db.context.runtime.views
        tablet = info.partitions[partition]
        if options.read.start_step is not None:
            if self.step is None:
                raise NotSupported(
                    f"leave startingStep out: mode {self._db.mode} has no steps; startingTimestamp is there"
                )
            return min(high, views.end_at(tablet, options.read.start_step - 1))
        if options.read.start_ms is not None:
            return min(high, views.offset_at(tablet, options.read.start_ms))
        if options.start == "latest":
            return high
        offsets: Any = options.start
        if options.read.pattern and isinstance(offsets, dict):
            offsets = offsets.get(info.name)
        return of_partition(offsets, partition)

    def cut(
        self, spans: list[Span], records: int | None, size: int | None
    ) -> tuple[Ends, int | None]:
        """Returns where a batch of at most so many records and stored bytes ends, by tablet, and its step."""
        ends = {span.tablet: span.end for span in spans}
        if records is None and size is None:
            return ends, self.step
        views = self._db.context.runtime.views
        walks = [_walk(views, span, by_step=self.step is not None) for span in spans]
        taken = {span.tablet: span.start for span in spans}
        step: int | None = None
        first = True
        for order, group in groupby(merge(*walks), attrgetter("order")):
            steps = list(group)
            count, length = (sum(column) for column in zip(*(s[3:] for s in steps), strict=True))
            if self.step is None and records is not None and count > records:
                (only,) = steps  # a batch may end within an entry
                taken[only.tablet] = only.end - count + records
                return taken, None
            room = first or size is None or length <= size
            if not room or (records is not None and count > records and not first):
                return taken, step
            taken.update({s.tablet: s.end for s in steps})
            records = None if records is None else records - count
            size = None if size is None else size - length
            step, first = (None if self.step is None else order), False
            if (records is not None and records <= 0) or (size is not None and size <= 0):
                return taken, step
        return ends, self.step

    def picture(self, infer: bool) -> Picture:
        """Returns what `load()` shows of a stream: the format, and the inferred type of values. ValueError."""
        read = self._options.read
        spans = [
            Span(partition, info.partitions[partition], low, high)
            for info in self.topics.values()
            for partition, (low, high) in self.bounds(info).items()
        ]
        forms = {info.format for info in self.topics.values()}
        if len(forms) > 1:
            raise ValueError(
                f"{self._options.what} has topics of the formats {', '.join(sorted(forms))}: a stream's have "
                "one; narrow the pattern"
            )
        if not forms or (infer and _decoded(read.format or min(forms)) and not _filled(spans)):
            raise ValueError(
                f"{self._options.what} has no records yet, so no types can be inferred: declare them, as in "
                '.schema("offset bigint, value struct<…>")'
            )
        (form,) = forms
        kind = inferred(read, form, self._db, self._view, tuple(spans)) if infer else None
        return Picture(read, self.store, None, 0, form, value_type=kind)


@contextmanager
def looked(options: StreamOptions) -> Iterator[Look]:
    """Opens a look; waits up to `options.wait` seconds for a store that is not there, or is being replaced."""
    deadline = time.monotonic() + options.wait
    tries = 0
    with ExitStack() as stack:
        while True:
            try:
                check_visible(options.read.path, "driver")
                db, view = stack.enter_context(opened_view(options.read.path))
                break
            except (FileNotFoundError, FormatError, IoError) as error:
                if time.monotonic() >= deadline:
                    raise
                if not tries:
                    tried_again("a stream's look at the store", error)
                tries += 1
                time.sleep(_AGAIN_SECONDS)
        yield Look(options, db, view)


def marks(path: str) -> tuple[bytes, ...]:
    """Returns each host's mark: one of them changes whenever the store has something new."""
    found: list[bytes] = []
    while mark := mark_bytes(Path(path, f"host-{len(found)}", "released")):
        found.append(mark)
    return tuple(found)


class _Step(NamedTuple):
    """Entries are taken by `order`, and by partition. `end` is the offset behind this one."""

    order: Any
    tablet: int
    end: int
    records: int
    bytes: int


def _walk(views: Any, span: Span, *, by_step: bool) -> Iterator[_Step]:
    """Yields the entries of a span, in order."""
    for begin, row in views.entries(span.tablet, span.start, span.end):
        start, end = max(begin, span.start), min(begin + row[2], span.end)
        share = (start - span.start) / (span.end - span.start)
        order = row[3] if by_step else (share, span.tablet)
        yield _Step(order, span.tablet, end, end - start, row[1])


def _decoded(form: str) -> bool:
    return form in ("json", "msgpack")


def _filled(spans: list[Span]) -> bool:
    return any(span.start < span.end for span in spans)
