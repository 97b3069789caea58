"""Puts what the lives of a process have recorded into a history: transactions, with how each ended.

    tapes of a life ─▶ read ─▶ ended: into the trace       open: its id ─▶ the next life asks for the outcome
                                                                           ─▶ read ─▶ "resolved"
    looks at everything ─▶ some of their rows, as read-only transactions
    the store at the end ─▶ records, lists, the outcomes once more

The tapes hold every answer that a process got. Only for transactions whose answer a kill prevented, the outcome
comes from the engine's own records.

Next: run.py; ../rows/processes.py, where several processes have lives at once.
"""

import random
import shutil
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import planstep

from ...children import json_lines
from ...judges.trace import (
    ABORTED,
    COMMITTED,
    UNDETERMINED,
    Operation,
    Trace,
    Transaction,
)
from . import journal as tape
from .journal import entries
from .records import fill_in_offsets, read_records
from .schema import FEEDS, Observation, World, observe

_SAMPLE = 32
"""The number of rows of each look that go into the trace; judge.py compares all of them."""
_OPERATIONS = {tape.READ: "read", tape.WRITE: "write", tape.CONSUME: "consume"}


@dataclass(frozen=True)
class Plan:
    """Describes a history to make. `kills` lives end by kill -9; one more life follows them.

    `machines`: how many folders a replicated store has, 0 for a store that is not replicated. Its owners look at
    everything, too, and promise that it is up to date: `reads`, as of planstep.Replicate.
    """

    name: str
    hosts: int
    transactions: int
    kills: int
    world: World = field(default_factory=World)
    planted: str = ""
    machines: int = 0
    reads: Literal["confirmed", "local"] = "confirmed"


@dataclass
class History:
    """A finished history. `resolved`: by id, the outcome that the next life got for a killed one's transaction."""

    plan: Plan
    trace: Trace
    looks: dict[str, list[Observation]] = field(default_factory=dict)
    lists: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    """The final state of each list: (number of appends, the last appenders)."""
    resolved: dict[str, str] = field(default_factory=dict)
    by_outcome: int = 0
    """The number of commits that their own life learned of by asking for the outcome."""
    wrong: list[str] = field(default_factory=list)
    kills: int = 0
    frozen: int = 0
    opened_s: list[float] = field(default_factory=list)
    writing_s: float = 0.0


def new_history(plan: Plan) -> History:
    about = {"history": "places", "feeds": FEEDS, "run": plan.name}
    return History(plan, Trace(lanes=plan.world.lanes(), about=about))


class Tapes:
    """The tapes of one process's lives."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.numbers = 0
        """The number that follows the last one that was given; a kill leaves some unused."""
        self.begun = 0
        self._open: dict[int, tuple[str, array[int]]] = {}  # (worker, words), outcome unknown
        self._ended: dict[int, array[int]] = {}

    def read(self, folder: Path) -> list[tuple[int, str]]:
        """Reads which transactions of a life began and ended, and removes the tapes; returns (number, id) of those
        with no known outcome.
        """
        ends = folder / "ends"
        for words in entries(ends) if ends.exists() else ():
            if words[0] in self._ended:
                self.history.wrong.append(f"transaction {words[0]} was told twice how it ended")
            self._ended[words[0]] = words
        self._open = {number: ("resolved", words) for number, (_, words) in self._open.items()}
        for path in sorted(folder.glob("client-*")):
            for words in entries(path):
                self._open[words[0]] = f"{folder.name}-{path.name}", words
                self.begun += 1
                self.numbers = max(self.numbers, words[0] + 1)
        shutil.rmtree(folder)
        return [
            (number, f"{words[3]}-{words[4]}")
            for number, (_, words) in self._open.items()
            if number not in self._ended and words[3] != tape.PLAIN
        ]

    def decode(self) -> None:
        """Puts transactions into the trace; those with an unknown outcome wait for it."""
        for number in [number for number in self._open if number in self._ended]:
            self._row(*self._open.pop(number), self._ended.pop(number))

    def settle(self) -> None:
        """Puts those into the trace whose outcome nobody has learned: plain writes alone, or something is wrong."""
        for _, words in self._open.values():
            if words[3] != tape.PLAIN and not self.history.wrong:
                self.history.wrong.append(f"{words[3]}-{words[4]} was never told how it ended")
            self._row("lost", words, None)

    def _row(self, worker: str, words: "array[int]", ended: "array[int] | None") -> None:
        number, begin, proposed, generation, counter = words[:5]
        spans: dict[int, tuple[int, int]] = {}
        step = n = reply = None
        outcome = UNDETERMINED
        if ended is not None:
            outcome = COMMITTED if ended[1] == tape.IS_COMMITTED else ABORTED
            step, n, reply = (None if word == tape.UNKNOWN else word for word in ended[2:5])
            spans = {ended[i]: (ended[i + 1], ended[i + 2]) for i in range(5, len(ended), 3)}
        name = f"{generation}-{counter}" if generation != tape.PLAIN else f"plain-{number}"
        codes = words[5 :: tape.OPERATION_WORDS]
        if worker == "resolved":
            self.history.resolved[name] = outcome
        elif outcome == COMMITTED and not spans and tape.PRODUCE in codes:
            self.history.by_outcome += 1  # without having asked, it would know its offsets
        trace = self.history.trace
        append = trace.operations.append
        for i in range(5, len(words), tape.OPERATION_WORDS):
            code, lane, first, last, version = words[i : i + tape.OPERATION_WORDS]
            if code == tape.PRODUCE:
                append(Operation(number, "produce", lane, *spans.get(lane, (-1, -1)), first))
            else:
                append(Operation(number, _OPERATIONS[code], lane, first, last, 0, version))
        trace.transactions.append(
            Transaction(
                number,
                name,
                worker,
                outcome,
                step,
                n,
                begin=begin,
                proposed=proposed,
                reply=reply,
            )
        )


def add_looks(
    history: History, name: str, path: Path, draw: random.Random, numbers: Iterator[int] | None
) -> None:
    """Reads a reader's looks. A part of each goes into the trace as a read-only transaction, with one of `numbers`;
    None: they may be old, and stay out.
    """
    looks = history.looks.setdefault(name, [])
    trace, rows = history.trace, range(history.plan.world.rows)
    for line in json_lines(path):
        observation = Observation(*line)
        looks.append(observation)
        if numbers is None:
            continue
        number = next(numbers)
        for lane in draw.sample(rows, min(_SAMPLE, len(rows))):
            version = observation.versions[lane]
            trace.operations.append(Operation(number, "read", lane, version=version))
        trace.transactions.append(
            Transaction(
                number,
                f"{name}-{len(looks)}",
                name,
                COMMITTED,
                observation.step,
                begin=observation.begin,
                proposed=observation.begin,
                reply=observation.reply,
            )
        )


def read_back(history: History, store: Path, **way: Any) -> None:
    """Reads back records and lists, and asks for outcomes again: the answers must be the same. `way`: opens it."""
    begin = time.monotonic_ns()
    with planstep.open(store, **way) as db, db.snapshot() as view:
        history.looks["the end"] = [observe(view, history.plan.world, begin, time.monotonic_ns)]
        history.lists = {key: (row[1], row[2]) for key, row in view.scan("lists")}
        read_records(view, history.plan.world, history.trace)
        fill_in_offsets(history.trace)
        for name, outcome in history.resolved.items():
            state = db.outcome(name).state
            if (state == "committed") != (outcome == COMMITTED):
                history.wrong.append(f"{name} was {outcome} after reopening, and is {state} now")
