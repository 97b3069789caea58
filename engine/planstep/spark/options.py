"""Parses and checks the options that users pass with `.option(…)`.

    path, topic | table            the store, and the topic or table
    step, snapshot                 the step; by default the newest one. asOfStep is the same as step
    startingOffset, endingOffset   range of a topic: an offset for all partitions, or {"0": 5}
    partitions                     partitions of a topic: "0,3"
    startingStep                   of a topic: only what came in this step or later
    startingTimestamp, endingTimestamp   of a topic: only what was written from one time on, and before another
    keyPrefix                      range of a table: a text, or JSON: ["2024", 7] begins tuples
    keys                           of a table: JSON, a list of keys, which are looked up
    columns, format, mode          columns to read, and how to decode values
    inferRecords                   number of values that a type is inferred from
    numPartitions, rowsPerBatch    number of tasks, and size of their batches
    queryId, batchId               batch of a write, which counts once
    add                            a write adds its numbers to those that are there
    wait                           seconds that a write waits for the store's owner
    transaction                    set by transaction.py: a write's folder within that of its transaction

Names are case-insensitive, as everywhere in Spark. Next: source.py.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from ..api.columns.codecs import FORMATS, Format
from ..errors import InvalidName
from ..proto.keys import check_name, encode_key
from ..runtime.store_path import is_store, nearest_store

Kind = Literal["topic", "table"]
Offsets = int | dict[int, int] | None
ROWS = 10_000
_EPOCH = datetime.fromtimestamp(0, UTC)
DEFAULT_WAIT = 10.0
WAIT = "a number of seconds, at most 3600"
INFER_RECORDS = 1000
BOTH = ("path", "topic", "table")
READ = (
    *("step", "snapshot", "startingOffset", "endingOffset", "partitions", "keyPrefix", "keys"),
    *("startingStep", "startingTimestamp", "endingTimestamp"),
    *("columns", "format", "mode", "inferRecords", "numPartitions", "rowsPerBatch"),
)
_OTHER_NAMES = {"asofstep": "step"}
_OF_TABLES = ("keyPrefix", "keys")
_OF_TOPICS = (
    *("startingOffset", "endingOffset", "partitions"),
    *("startingStep", "startingTimestamp", "endingTimestamp"),
)
_OFFSETS = 'an offset, or JSON such as {"0": 5}, each partition once'
_TIME = (
    "a time with its zone, such as 2026-11-25T08:00:00Z, or milliseconds, not seconds, since 1970"
)
_SECONDS_END = 10**11
"""Numbers below are seconds up to the year 5138, and milliseconds of 1970 to 1973, which nobody means."""
STREAM = ("topicPattern", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss")
"""Options that only streams have; stream_options.py parses them."""
WRITE = ("queryId", "batchId", "add", "wait", "transaction")
_INTERNAL = ("transaction",)
_OF_QUERIES = ("checkpointlocation", "queryname")
"""Options of a streaming query, which Spark passes on to its sink."""
_IN_TRANSACTION = re.compile(r"[0-9a-z]+-[0-9]+-[0-9a-f]{16}/[0-9]+")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a load; picture.py checks them against the store."""

    path: str
    kind: Kind
    name: str
    step: int | None
    snapshot: str | None
    start: Offsets
    end: Offsets
    partitions: tuple[int, ...] | None
    prefix: str | tuple[Any, ...] | None
    keys: tuple[Any, ...] | None
    start_step: int | None
    start_ms: int | None
    end_ms: int | None
    columns: tuple[str, ...] | None
    format: Format | None
    permissive: bool
    infer_records: int
    num_partitions: int | None
    rows: int
    pattern: bool = False
    """A stream reads each topic whose whole name matches the regular expression `name`."""

    @property
    def is_narrowed(self) -> bool:
        """Tells whether steps or times choose among the offsets."""
        return (self.start_step, self.start_ms, self.end_ms) != (None, None, None)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write: `query` and `batch` both or neither; `wait` in seconds."""

    path: str
    kind: Kind
    name: str
    query: str | None
    batch: int | None
    wait: float
    add: bool
    transaction: str | None

    def mark(self) -> tuple[str, int] | None:
        """Returns a text for query and target, and the batch; None without them."""
        if self.query is None or self.batch is None:
            return None
        return f"{self.query}\0{self.kind}\0{self.name}", self.batch

    def of_batch(self, query: str, batch: int) -> "WriteOptions":
        """Returns the options of one batch of a stream."""
        return replace(self, query=query, batch=batch)


def read_options(texts: Mapping[str, str]) -> ReadOptions:
    """Parses the options of a load. ValueError, InvalidName."""
    options = OptionTexts(texts, "reading", READ)
    kind, name = options.target()
    for option in _OF_TABLES if kind == "topic" else _OF_TOPICS:
        if option in options:
            raise ValueError(f"the option {option} does not apply to a {kind}: leave it out")
    if "keys" in options and "keyPrefix" in options:
        raise ValueError("give one of the options keys and keyPrefix")
    start = options.parsed("startingOffset", _starts, _OFFSETS)
    return reading(options, kind, name, start)


def reading(options: "OptionTexts", kind: Kind, name: str, start: Offsets) -> ReadOptions:
    """Parses what loads and streams have in common. ValueError."""
    return ReadOptions(
        options.path(),
        kind,
        name,
        options.number("step", 0),
        options.get("snapshot"),
        start,
        options.parsed("endingOffset", parse_offsets, _OFFSETS),
        options.parsed("partitions", _numbers, "numbers, such as 0,3"),
        options.parsed("keyPrefix", _prefix, "a text, or JSON: a text or a list"),
        options.parsed("keys", _keys, 'JSON, a list of keys, such as ["u1", "u2"]'),
        options.number("startingStep", 0),
        options.parsed("startingTimestamp", _milliseconds, _TIME),
        options.parsed("endingTimestamp", _milliseconds, _TIME),
        options.parsed("columns", _names, "names of columns, such as partition,value"),
        cast("Format | None", options.choice("format", FORMATS)),
        options.choice("mode", ("FAILFAST", "PERMISSIVE"), str.upper) == "PERMISSIVE",
        options.number("inferRecords", 1) or INFER_RECORDS,
        options.number("numPartitions", 1),
        options.number("rowsPerBatch", 1) or ROWS,
    )


def write_options(texts: Mapping[str, str]) -> WriteOptions:
    """Parses the options of a write. ValueError, InvalidName."""
    options = OptionTexts(texts, "writing", WRITE)
    kind, name = options.target()
    query, batch = options.get("queryId"), options.number("batchId", 0)
    check_batch(query, batch)
    transaction = options.get("transaction")
    if transaction is not None and not _IN_TRANSACTION.fullmatch(transaction):
        raise ValueError("leave the option transaction out: pyspark_planstep.transaction sets it")
    wait = options.parsed("wait", check_wait, WAIT)
    wait = DEFAULT_WAIT if wait is None else wait
    add = options.choice("add", ("true", "false")) == "true"
    return WriteOptions(options.path(), kind, name, query, batch, wait, add, transaction)


def is_write(texts: Mapping[str, str]) -> bool:
    """Returns whether an option says that these are of a write."""
    return not {*_OF_QUERIES, *(name.lower() for name in WRITE)}.isdisjoint(map(str.lower, texts))


def stream_write_options(texts: Mapping[str, str]) -> WriteOptions:
    """Parses the options of a stream's writes: those of a write, but Spark numbers the batches. ValueError."""
    rest = {name: text for name, text in texts.items() if name.lower() not in _OF_QUERIES}
    for option in ("batchId", "transaction"):
        if option.lower() in {name.lower() for name in rest}:
            raise ValueError(f"the option {option} does not apply to a stream: leave it out")
    query = next((text for name, text in rest.items() if name.lower() == "queryid"), None)
    options = write_options({n: text for n, text in rest.items() if n.lower() != "queryid"})
    check_batch(query, None if query is None else 0)
    return replace(options, query=query)


def check_batch(query: str | None, batch: int | None) -> None:
    """Checks the ids of a batch. ValueError."""
    if (query is None) != (batch is None):
        raise ValueError("give the options queryId and batchId together: they fence a batch")
    if query == "" or (query is not None and len(query.encode()) > 200):
        raise ValueError("the option queryId is a text of 1 to 200 bytes")


class OptionTexts:
    """The texts of the options that a user gave, by their known names. ValueError for an unknown one."""

    def __init__(self, texts: Mapping[str, str], purpose: str, names: tuple[str, ...]) -> None:
        known = {name.lower(): name for name in (*BOTH, *names)}
        if "paths" in {name.lower() for name in texts}:  # Spark makes it of load([…])
            raise ValueError("load one path at a time: a load is of one store")
        self._texts: dict[str, str] = {}
        for name, value in texts.items():
            lower = _OTHER_NAMES.get(name.lower(), name.lower())
            if lower not in known:
                shown = {key: name for key, name in known.items() if name not in _INTERNAL}
                near = shown | {other.lower(): other for other in (STREAM if names is READ else ())}
                close = get_close_matches(lower, near, n=1)
                hint = f"there are {', '.join(shown.values())}"
                hint = f"did you mean {near[close[0]]}?" if close else hint
                raise ValueError(f"no option {name!r} for {purpose}; {hint}")
            if known[lower] in self._texts:
                raise ValueError(f"give the option {known[lower]} once; {name} is the same")
            self._texts[known[lower]] = value

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def get(self, name: str) -> str | None:
        return self._texts.get(name)

    def path(self) -> str:
        path = self._texts.get("path")
        if not path:
            raise ValueError('name the store\'s folder: .option("path", "shop.planstep")')
        for scheme in ("file://", "file:"):
            path = path.removeprefix(scheme)
        return os.path.abspath(path)

    def target(self) -> tuple[Kind, str]:
        topic, table = self._texts.get("topic"), self._texts.get("table")
        if (topic is None) == (table is None):
            raise ValueError('name one of both: .option("topic", …) or .option("table", …)')
        try:
            if topic is not None:
                return "topic", check_name(topic)
            assert table is not None
            return "table", check_name(table)
        except InvalidName as error:
            raise InvalidName(f"one topic or table a DataFrame: {error}") from error

    def parsed(self, name: str, parse: Callable[[str], Any], wanted: str) -> Any:
        text = self._texts.get(name)
        if text is None:
            return None
        try:
            return parse(text)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"the option {name} is {wanted}, not {text!r:.200}") from error

    def number(self, name: str, least: int) -> int | None:
        most = (1 << 63) - 1
        wanted = f"a whole number, {least} or more, and at most {most}"
        number: int | None = self.parsed(name, partial(_within, least, most), wanted)
        return number

    def choice(
        self, name: str, choices: tuple[str, ...], fold: Callable[[str], str] = str.lower
    ) -> str | None:
        text = self._texts.get(name)
        if text is None:
            return None
        if fold(text) not in choices:
            raise ValueError(f"the option {name} is one of {', '.join(choices)}, not {text!r}")
        return fold(text)


def _within(least: int, most: float, text: str | int) -> int:
    number = int(text)
    if not least <= number <= most:
        raise ValueError
    return number


_natural = partial(_within, 0, math.inf)


def _starts(text: str) -> Offsets:
    return 0 if text.lower() == "earliest" else parse_offsets(text)


def parse_offsets(text: str) -> Offsets:
    """Parses an offset, or JSON of offsets by partition. ValueError."""
    if text.lstrip().startswith("{"):
        return offsets_of(parse_object(text))
    return _natural(text)


def parse_object(text: str) -> dict[str, Any]:
    """Parses a JSON object. ValueError where a name is there twice, of which JSON takes the last one silently."""
    parsed: dict[str, Any] = json.loads(text, object_pairs_hook=_once)
    return parsed


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def offsets_of(parsed: Mapping[str, Any]) -> dict[int, int]:
    """Checks offsets by partition, as JSON has them. ValueError, TypeError."""
    offsets: dict[int, int] = {}
    for partition, offset in parsed.items():
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise ValueError
        offsets[_natural(partition)] = _natural(offset)
    if len(offsets) < len(parsed):  # "0" and "00"
        raise ValueError
    return offsets


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(set(map(_natural, text.split(",")))))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError
    return names


def _prefix(text: str) -> str | tuple[Any, ...]:
    if text[:1] not in ("[", '"'):
        return text
    prefix = json.loads(text)
    return prefix if isinstance(prefix, str) else _as_tuple(prefix)


def _keys(text: str) -> tuple[Any, ...]:
    keys = _as_tuple(json.loads(text))
    for key in keys:
        encode_key(key)
    return keys


def _milliseconds(text: str) -> int:
    if text.lstrip("-").isdecimal():
        number = int(text)
        if 0 < number < _SECONDS_END:
            raise ValueError
        return number
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError
    return -(
        -(time - _EPOCH) // timedelta(milliseconds=1)
    )  # rounded up: no record is of a part of one


def _as_tuple(parts: list[Any]) -> tuple[Any, ...]:
    if not isinstance(parts, list):
        raise TypeError
    return tuple(_as_tuple(part) if isinstance(part, list) else part for part in parts)


def check_wait(text: str | float) -> float:
    number = float(text)
    if not 0 <= number <= 3600:
        raise ValueError
    return number


def check_visible(path: str, where: str) -> None:
    """Checks that this process, a "task" or the "driver" (`where`), sees the store. FileNotFoundError."""
    if is_store(Path(path)):
        return
    if where == "driver":
        close = nearest_store(Path(path))
        raise FileNotFoundError(
            f"there is no store at {path}" + (f"; did you mean {close!r}?" if close else "")
        )
    raise FileNotFoundError(
        f"a Spark task on host {os.uname().nodename} cannot see {path}: the data source needs the "
        "store's folder where its tasks run. On the store's machine run `planstep export "
        f"{path} --topic NAME --to FILE.parquet` (or --table NAME), put the file where all hosts see "
        "it, and spark.read.parquet it"
    )
