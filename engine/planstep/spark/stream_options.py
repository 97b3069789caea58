"""Parses the options of `spark.readStream.format("planstep")`.

    path, topic | topicPattern                the store; one topic, or all that a regular expression matches
    startingOffset                            earliest, latest, an offset, {"0": 5} or {"clicks": {"0": 5}}
    startingStep, startingTimestamp           instead: from a step, or from a time on
    maxOffsetsPerTrigger, maxBytesPerTrigger  the size of a batch
    failOnDataLoss                            false: records that were trimmed unread are counted
    wait                                      seconds that a look waits for a store that is not there
    partitions, columns, format, mode, inferRecords, numPartitions, rowsPerBatch     as those of a load

Spark tells a source only at `start()` whether it is to be a stream. So `load()` takes the options for those of a
stream if one of them is, and refuses then what does not apply to streams.

Next: stream_offset.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import InvalidName, NotSupported
from ..proto.keys import check_name
from .options import (
    DEFAULT_WAIT,
    STREAM,
    WAIT,
    Offsets,
    OptionTexts,
    ReadOptions,
    check_wait,
    offsets_of,
    parse_object,
    parse_offsets,
    reading,
)

_BATCH = ("endingOffset", "endingTimestamp", "step", "snapshot", "keyPrefix", "keys")
STARTS = ("startingOffset", "startingStep", "startingTimestamp")
_NAMES = (
    *("partitions", "columns", "format", "mode", "inferRecords", "numPartitions", "rowsPerBatch"),
    *("wait", *STARTS, *_BATCH, *STREAM),
)

Starts = Offsets | Literal["latest"] | dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream. `read` has what it shares with a load; its `name` may be a pattern.

    At most one of `start`, `read.start_step` and `read.start_ms` is given; without them a stream begins with the
    oldest record. `max_offsets` and `max_bytes` limit a batch; `wait` is in seconds.
    """

    read: ReadOptions
    start: Starts
    max_offsets: int | None
    max_bytes: int | None
    fails_on_loss: bool
    wait: float

    @property
    def what(self) -> str:
        return f"{'topicPattern' if self.read.pattern else 'topic'} {self.read.name!r}"


def is_stream(texts: Mapping[str, str]) -> bool:
    """Returns whether an option says that this is a stream."""
    names = {name.lower(): text for name, text in texts.items()}
    return any(name.lower() in names for name in (*STREAM, "wait")) or (
        "latest" in names.get("startingoffset", "").lower()
    )


def refuse_load(texts: Mapping[str, str]) -> None:
    """Refuses options of a stream in a load. NotSupported."""
    named = {name.lower() for name in texts}
    given = [name for name in (*STREAM, "wait") if name.lower() in named]
    rest = f"or leave out {', '.join(given)}" if given else "or give startingOffset a number"
    raise NotSupported(
        f"{'these options are' if given else 'startingOffset latest is'} for streams: use spark.readStream, {rest}"
    )


def stream_options(texts: Mapping[str, str]) -> StreamOptions:
    """Parses the options of a stream. ValueError, InvalidName; NotSupported for a table."""
    options = OptionTexts(texts, "a stream", _NAMES)
    for option in _BATCH:
        if option in options:
            raise ValueError(f"the option {option} does not apply to a stream: leave it out")
    given = [option for option in STARTS if option in options]
    if len(given) > 1:
        raise ValueError(f"give one of {' and '.join(given)}: both say where the stream begins")
    name, pattern = _topic(options)
    if pattern and "partitions" in options:
        raise ValueError("the option partitions applies to one topic: leave it or topicPattern out")
    parse, example = (_by_topic, '{"clicks": {"0": 5}}') if pattern else (_starts, '{"0": 5}')
    start = options.parsed(
        "startingOffset",
        parse,
        f"earliest, latest, an offset, or JSON such as {example}, each partition once",
    )
    wait = options.parsed("wait", check_wait, WAIT)
    return StreamOptions(
        replace(reading(options, "topic", name, None), pattern=pattern),
        start,
        options.number("maxOffsetsPerTrigger", 1),
        options.number("maxBytesPerTrigger", 1),
        options.choice("failOnDataLoss", ("true", "false")) != "false",
        DEFAULT_WAIT if wait is None else wait,
    )


def _topic(options: OptionTexts) -> tuple[str, bool]:
    """Returns a topic's name, or a pattern and True."""
    if "table" in options:
        raise NotSupported(
            "a table is no stream: it has rows, and no records in order; read a topic that the same "
            "transactions write, or the table with spark.read in foreachBatch"
        )
    topic, pattern = options.get("topic"), options.get("topicPattern")
    if (topic is None) == (pattern is None):
        raise ValueError('name one of both: .option("topic", …) or .option("topicPattern", …)')
    if pattern is not None:
        options.parsed("topicPattern", _pattern, "a regular expression, as Python has them")
        return pattern, True
    assert topic is not None
    try:
        return check_name(topic), False
    except InvalidName as error:
        raise InvalidName(f"several topics have an option topicPattern: {error}") from error


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from error
    return text


def _starts(text: str) -> Starts:
    named: dict[str, Starts] = {"earliest": None, "latest": "latest"}
    return named[text.lower()] if text.lower() in named else parse_offsets(text)


def _by_topic(text: str) -> Starts:
    if not text.lstrip().startswith("{"):
        return _starts(text)
    return {check_name(topic): offsets_of(offsets) for topic, offsets in parse_object(text).items()}
