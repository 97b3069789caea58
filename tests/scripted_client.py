"""Runs the client of a mode against scripted hosts, as text; the modes' kits say which words there are.

    script ─▶ each line that is no "->" and no "==" is done, what comes of it goes below it ─▶ the script again

    with max_in_flight=1      settings of the client
    ok WHAT | ERROR WHAT      answers the oldest request that begins so; "first" and "last" choose, too
    late WHAT                 its request timeout
    wait 100                  every timer of so many ms that is still awaited

p0 … are partitions of host 0, q0 … of host 1, "x3+2" is a batch of three records and one of two.
"""

import re
from typing import Any, Self

from planstep.proto.ids import PARTITION, tablet_id
from planstep.proto.shell import Answer


def partition(name: str) -> int:
    return tablet_id(PARTITION, "pqrs".index(name[0]), int(name[1:]))


def partition_name(tablet: int) -> str:
    return f"{'pqrs'[tablet >> 20 & 0xFF]}{tablet & 0xFFFFF}"


def batches(words: list[str]) -> dict[int, list[tuple[bytes, int]]]:
    result: dict[int, list[tuple[bytes, int]]] = {}
    for word in words:
        name, _, counts = word.partition("x")
        for count in counts.split("+"):
            result.setdefault(partition(name), []).append((b"d" * 10, int(count)))
    return result


def ranges(value: dict[int, tuple[int, int]]) -> str:
    return " ".join(f"{partition_name(t)} {a}-{b}" for t, (a, b) in value.items())


class ScriptedHosts:
    """Answers as the script says. A mode's kit defines the methods that raise, and one for each of its words."""

    words: tuple[str, ...] = ()
    errors = "[A-Z][A-Za-z]+"
    """The pattern of an error's name."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.requests: list[tuple[str, int, Any]] = []
        self.timers: list[tuple[float, int]] = []
        self.logs: dict[int, int] = {}
        self.lines: list[str] = []
        self.calls = 0

    def description(self, target: int, message: Any) -> str:
        raise NotImplementedError

    def value(self, target: int, message: Any) -> Any:
        """Returns what a request is answered with."""
        raise NotImplementedError

    def ended(self, value: Any) -> str:
        """Describes the value of a call's end that is neither None nor a dict of ranges."""
        raise NotImplementedError

    def written(self, target: int, records: int) -> int:
        """Appends to a partition's log; returns the first offset."""
        first = self.logs.get(target, 0)
        self.logs[target] = first + records
        return first

    @property
    def call(self) -> bytes:
        return b"%d" % self.calls

    def run(self, script: str) -> Self:
        lines = [line.strip() for line in script.splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith("with ")]
        for line in lines:
            if not line.startswith(("->", "==")):
                self.lines.append(line)
                self.do(line)
        assert self.lines == lines
        return self

    def do(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        self.calls += 1
        if word in (*self.words, "late", "wait"):
            getattr(self, word)(rest)
        else:
            assert word == "ok" or re.fullmatch(self.errors, word), line
            self.answer("" if word == "ok" else word, rest)
        self.collect()

    def collect(self) -> None:
        out, timers, ended = self.client.take()
        for target, message, _ in out:
            self.requests.append((self.description(target, message), target, message))
            self.lines.append("-> " + self.requests[-1][0])
        self.timers += timers
        for end in ended:
            value = end.value
            if isinstance(value, dict):
                value = ranges(value)
            elif value is not None:
                value = self.ended(value)
            self.lines.append(" ".join(filter(None, ("==", end.error or "ok", value))).strip())

    def refused(self, error: str) -> None:
        self.lines += [f"== {error}"] if error else []

    def find(self, what: str) -> tuple[str, int, Any]:
        way, _, rest = what.partition(" ")
        want = rest if way in ("first", "last") else what
        hits = [item for item in self.requests if item[0].startswith(want)]
        assert hits, f"nothing like {want!r} was asked: {self.requests}"
        return hits[-1 if way == "last" else 0]

    def answer(self, error: str, what: str) -> None:
        item = self.find(what)
        self.requests.remove(item)
        _, target, message = item
        value = None if error else self.value(target, message)
        self.client.handle(Answer(message.request, target, error, value))

    def late(self, rest: str) -> None:
        self.client.wake(self.find(rest)[2].request)

    def wait(self, rest: str) -> None:
        due = [t for delay, t in self.timers if delay == float(rest) and self.client.awaits(t)]
        assert due, f"no timer of {rest} ms: {self.timers}"
        self.timers = [item for item in self.timers if item[1] not in due]
        for token in due:
            self.client.wake(token)


def settings_in(script: str) -> dict[str, int]:
    """Returns what the lines that begin with "with" set."""
    words = [line.split()[1:] for line in script.splitlines() if line.strip().startswith("with ")]
    return {name: int(value) for line in words for name, value in (w.split("=") for w in line)}
