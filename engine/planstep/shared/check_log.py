"""Checks whether a server can carry a shared log, by a race: five processes contend for each slot, in step.

    a log of its own, behind the URL ─▶ slot 1: five entries at once ─▶ one winner, whom all see? ─▶ slot 2 …
                                                                                ▼
           removed ◀─ all slots once more: the same? ◀─ a sixth process sees it at once, and in a list?

A server that lets two win a slot, or hides what it took, would lose turns. The first sight of that refuses it.

Left out: answers that get lost on the way (the log's own rules deal with them, and tests of these), power loss, and
servers of several machines of which one is cut off. No race shows them.

Next: contender.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from time import monotonic
from typing import Any, NamedTuple

from ..errors import (
    Corruption,
    IoError,
    LogUnreachable,
    NotSupported,
    PlanstepError,
    Trimmed,
    reason,
)
from .ahead import slot_name
from .contender import is_large
from .files_log import folder_of
from .objects_log import ObjectsLog
from .registry import ONLY_BESIDE, erase_shared_log, open_shared_log, scheme_of
from .root import FORMAT, name_temporary
from .shared_log import Position, Root, SharedLog

CONTENDERS = "abcde"
_SLOTS_MIN = 10
_LISTING_SHARE = 0.1
"""The part of the time that lists may take: a list of many slots takes long."""
_TIMEOUT = 30.0
_READ_BYTES = 8 << 20
Tell = Callable[[str, int, int | None], None]
"""Takes progress: the phase, and its seconds, so far and in all."""


class Report(NamedTuple):
    """The outcome of a race. `verdict`: "passed", "refused" or "undecided"; `reason` says why.

    `left`: the URL of what could not be removed, else None.
    """

    verdict: str
    reason: str
    slots: int
    large_slots: int
    lists: int
    append_ms_p50: float | None
    append_ms_p99: float | None
    left: str | None


class _Refused(Exception):
    """The server broke a promise."""


class _Contender:
    """A process that contends, until `close` ends it."""

    def __init__(self, url: str, name: str, timeout: float) -> None:
        command = [sys.executable, "-P", "-m", f"{__package__}.contender", url, name, str(timeout)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def start(self) -> None:
        """Waits until it is ready. PlanstepError."""
        if (line := self._line()) != "ready\n":
            self._parse(line)

    def go(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: its last answer tells why
            print(file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """Waits for what it saw in a slot. LogUnreachable, Corruption, PlanstepError."""
        return self._parse(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _parse(self, line: str) -> dict[str, Any]:
        if not line:
            raise PlanstepError(f"a contender ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" not in answer:
            return answer
        kinds = {kind.__name__: kind for kind in (LogUnreachable, Corruption, IoError)}
        raise kinds.get(answer["kind"], PlanstepError)(answer["error"])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Race:
    """The race for the slots of a log, and what it has shown so far."""

    def __init__(self) -> None:
        self.chains: list[bytes] = []
        self.large = self.lists = 0
        self.appends_ms: list[float] = []
        self._listing = 0.0

    def run(self, place: str, seconds: float, tell: Tell, timeout: float) -> None:
        """Makes a log, races for it, and reads it again. _Refused, PlanstepError."""
        with ExitStack() as stack:
            root = Root(os.urandom(16), "check-log", FORMAT)
            log = _opened(place, root, timeout, stack)
            again = _opened(place, None, timeout, stack)
            contenders: list[_Contender] = []
            for name in CONTENDERS:
                contenders.append(_Contender(place, name, timeout))
                stack.callback(contenders[-1].close)
            for contender in contenders:
                contender.start()
            began = monotonic()
            while (passed := monotonic() - began) < seconds:
                for contender in contenders:
                    contender.go()
                self._judge([contender.answer() for contender in contenders])
                self.large += is_large(log, len(self.chains))
                self._look(log, passed)
                tell("racing", int(passed), int(seconds))
            self._read_again(again, tell)

    def _judge(self, answers: list[dict[str, Any]]) -> None:
        turn = len(self.chains) + 1
        winners = [answer["ms"] for answer in answers if answer["won"]]
        chains = {answer["chain"] for answer in answers}
        if len(winners) != 1:
            raise _Refused(f"{len(winners)} of {len(answers)} processes won slot {turn}")
        if len(chains) != 1:
            raise _Refused(f"slot {turn} does not show its winner to all processes")
        self.appends_ms += winners
        self.chains.append(bytes.fromhex(chains.pop()))

    def _look(self, log: SharedLog, passed: float) -> None:
        """Reads the slot that was just decided, and lists it if there is time for that."""
        turn = len(self.chains)
        if [entry.chain for entry in log.read(1, 0)] != self.chains[-1:]:
            raise _Refused(f"a read behind the append of slot {turn} does not show it")
        if not isinstance(log, ObjectsLog) or self._listing > passed * _LISTING_SHARE:
            return
        began = monotonic()
        with suppress(IoError):  # the next list will do
            if slot_name(turn) not in log.objects.names("log/"):
                raise _Refused(f"a list behind the append of slot {turn} does not have it")
            self.lists += 1
        self._listing += monotonic() - began

    def _read_again(self, log: SharedLog, tell: Tell) -> None:
        """Reads all slots once more, through a log that has read none."""
        found: list[bytes] = []
        began = monotonic()
        while entries := log.read(_READ_BYTES, 0):
            found += (entry.chain for entry in entries)
            tell("reading again", int(monotonic() - began), None)
        if found != self.chains:
            raise _Refused("slots do not hold now what they held before")


def check_log(url: str, seconds: float, tell: Tell, timeout: float = _TIMEOUT) -> Report:
    """Races for the slots of a log of its own behind `url`, which is removed then.

    `timeout`, in seconds, is for one call of a log. IoError if the server is not reached, or refuses us. Further
    errors as `open_shared_log`.
    """
    place = _place(url)
    race = _Race()
    verdict = "undecided"
    try:
        race.run(place, seconds, tell, timeout)
    except (_Refused, NotSupported, Corruption, Trimmed) as error:
        verdict, why = "refused", reason(error)
    except LogUnreachable as error:
        why = reason(error)
    else:
        if len(race.chains) < _SLOTS_MIN:
            why = f"only {len(race.chains)} slots were decided: give it more time"
        else:
            verdict, why = "passed", f"{len(race.chains)} slots have one winner each, whom all see"
    finally:
        left = _erase(place)
    slots, times = len(race.chains), sorted(race.appends_ms)
    p50, p99 = (round(times[int(part * (slots - 1))], 3) if times else None for part in (0.5, 0.99))
    return Report(verdict, why, slots, race.large, race.lists, p50, p99, left)


def _place(url: str) -> str:
    """Returns the URL of a new log behind another one; beside a folder that is not there yet, and a topic."""
    own = name_temporary(os.urandom(6))
    scheme = scheme_of(url)
    if scheme in ONLY_BESIDE:
        address, mark, query = url.partition("?")
        return f"{address}-{own}{mark}{query}"
    if scheme == "file" and not folder_of(url).exists():
        return f"{url.rstrip('/')}-{own}"
    return f"{url.rstrip('/')}/{own}"


def _opened(place: str, root: Root | None, timeout: float, stack: ExitStack) -> SharedLog:
    log, _ = open_shared_log(place, root, timeout)
    stack.callback(log.close)
    log.open(Position())
    return log


def _erase(place: str) -> str | None:
    """Removes the log; returns its URL if that failed."""
    try:
        erase_shared_log(place)
    except (PlanstepError, ValueError):
        return place
    return None
