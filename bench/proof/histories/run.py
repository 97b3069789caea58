"""Makes a history of the real engine: a writer is killed and restarted, while two other processes read.

    life 1 ──▶ kill -9     life 2 ──▶ kill -9     …     the last life closes its store
      └ tape ─┐              └ tape ─┐ resolves what life 1 left undecided
    readers ──┼─ look ── look ───────┼── look ──────▶
              ▼                      ▼
            Trace: transactions, operations, then the store's records       + looks at everything at one step

A replicated store lives in the folders of several machines. Each life is on the next one, and takes the store over;
every other life is not killed, but frozen until the next one has written: then it wakes, and finds itself fenced.

The writers' tapes hold every answer that they got. Only for transactions whose answer a kill prevented, the
outcome comes from the engine's own records.

Next: judge.py, which judges the looks; bench/judges judges the trace.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from array import array
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import planstep

from ...children import Child, Children, end_group, json_lines, module
from ...judges.trace import (
    ABORTED,
    COMMITTED,
    UNDETERMINED,
    Operation,
    Trace,
    Transaction,
)
from ..rows.registry import RowOptions
from . import journal as tape
from .journal import entries, used
from .reader import STOP
from .records import fill_in_offsets, read_records
from .schema import FEEDS, Observation, World, observe
from .writer import THREADS, WINDOW, LifeSpec

READERS = 2
_PATIENCE_S = 900.0
_LOOK_S = 0.002
_WORDS_ENDED = 7
"""Roughly, the words of an ended transaction: a tape's length shows a life's progress."""
_MORE = 20
"""So many times its share of the transactions is what a life might do if it were not ended."""
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


def make(options: RowOptions, plan: Plan) -> History:
    """Runs a plan to its end and returns the history; removes the store and the tapes."""
    course = _Course(options, plan)
    try:
        course.run()
        course.read_back()
    finally:
        course.end()
    return course.history


class _Course:
    """Runs the processes of one history. Invariant: `end` ends all processes that it started."""

    def __init__(self, options: RowOptions, plan: Plan) -> None:
        about = {"history": "places", "feeds": FEEDS, "run": plan.name}
        self.history = History(plan, Trace(lanes=plan.world.lanes(), about=about))
        self._options, self._plan = options, plan
        self._store, self._tapes = options.folder / plan.name, options.memory / f"tapes-{plan.name}"
        self._draw = random.Random(f"{options.seed}-{plan.name}-kills")
        self._children = Children()
        self._url = (options.folder / f"{plan.name}-log").as_uri() if plan.machines else ""
        self._frozen: tuple[Child, Path] | None = None
        self._lookers: list[str] = []  # owners whose looks are to be read
        self._open: dict[int, tuple[str, array[int]]] = {}  # (worker, words), outcome unknown
        self._ended: dict[int, array[int]] = {}
        self._numbers = 0  # numbers given so far; a kill leaves some unused
        self._begun = 0
        self._tapes.mkdir(parents=True)

    def run(self) -> None:
        plan, history = self._plan, self.history
        readers: list[Child] = []
        ids: list[tuple[int, str]] = []
        quota = plan.transactions // (plan.kills + 1)
        for number in range(plan.kills + 1):
            last = number == plan.kills
            folder = self._tapes / f"life-{number}"
            folder.mkdir()
            # A life that will be killed gets more work than it can finish.
            amount = max(1, plan.transactions - self._begun) if last else _MORE * quota
            life = LifeSpec(
                os.fspath(self._folder(number)),
                os.fspath(folder),
                plan.hosts,
                plan.world,
                self._options.seed,
                number,
                amount,
                self._numbers,
                ids,
                plan.planted,
                self._url,
                plan.reads,
            )
            spec = folder.with_suffix(".json")
            spec.write_text(json.dumps(asdict(life)))
            began = time.monotonic()
            writer = self._start("writer", spec, output=folder / "said")
            self._decode()  # what the life before left, while this one runs
            readers += self._readers(number, writer, folder)
            self._thaw(writer, folder)
            words = None if last else int(quota * _WORDS_ENDED * self._draw.uniform(0.5, 1.0))
            # The life after next resolves what a frozen one leaves undecided.
            freezes = bool(plan.machines) and number + 1 < plan.kills and number % 2 == 1
            self._live(writer, folder, words, freezes)
            history.writing_s += time.monotonic() - began
            if freezes:
                self._frozen, ids = (writer, folder), []
                self._numbers = life.numbers + life.transactions
            else:
                ids = self._read_tapes(folder)
            self._options.tell(f"{plan.name}: life {number + 1} of {plan.kills + 1} has ended")
            if history.wrong:
                break
        self._decode()
        self._settle()
        (self._tapes / STOP).touch()
        for n, reader in enumerate(readers):
            self._wait(reader, f"reader {n}", self._tapes / f"reader-{n}.said")
            self._looks(f"reader-{n}", not plan.machines)  # a machine's folder may be behind
        for name in self._lookers:
            self._looks(name)

    # processes ------------------------------------------------------------------------------------

    def _start(self, name: str, *arguments: object, output: Path) -> Child:
        with output.open("wb") as stream:
            words = module(f"{__package__}.{name}", *arguments)
            return self._children.start(words, stdout=stream, stderr=stream)

    def _folder(self, life: int) -> Path:
        """Returns the folder of the machine that this life is on."""
        machines = self._plan.machines
        return (
            self._store.with_name(f"{self._plan.name}-{life % machines}")
            if machines
            else self._store
        )

    def _readers(self, life: int, writer: Child, folder: Path) -> list[Child]:
        """Starts the readers that begin with this life: all with the first, or one with each machine."""
        numbers = range(READERS) if life == 0 else ()
        if self._plan.machines:
            numbers = range(READERS)[life : life + 1]
        while numbers and not (folder / "client-0").exists() and writer.poll() is None:
            time.sleep(_LOOK_S)
        return [self._reader(n, self._folder(life)) for n in numbers if writer.poll() is None]

    def _reader(self, number: int, store: Path) -> Child:
        name = f"reader-{number}"
        return self._start(
            "reader",
            store,
            self._tapes,
            name,
            json.dumps(list(self._plan.world)),
            output=self._tapes / f"{name}.said",
        )

    def _live(self, writer: Child, folder: Path, words: int | None, freezes: bool) -> None:
        """Waits until the writer ends; kills or freezes it once its tape of ends holds `words` words."""
        if words is None:
            self._wait(writer, "the writer", folder / "said")
            if not (folder / "closed").exists():
                self.history.wrong.append("the writer's last life has not closed its store")
        else:
            if self._has_written(writer, folder, words) and freezes:
                writer.send_signal(signal.SIGSTOP)
                self.history.frozen += 1
            elif writer.poll() is None:
                writer.send_signal(signal.SIGKILL)
                self.history.kills += writer.wait() == -signal.SIGKILL
            if not freezes and writer.poll() != -signal.SIGKILL:
                self._wait(writer, "the writer", folder / "said", 0.0)
        opened = folder / "opened"
        if opened.exists():
            self.history.opened_s.append(int(opened.read_text()) / 1e9)

    def _has_written(self, writer: Child, folder: Path, words: int) -> bool:
        """Waits until the writer's tape of ends holds `words` words; False if it ends or hangs before."""
        ends, deadline = folder / "ends", time.monotonic() + _PATIENCE_S
        while writer.poll() is None and time.monotonic() < deadline:
            if ends.exists() and used(ends) >= words:
                return True
            time.sleep(_LOOK_S)
        return False

    def _thaw(self, writer: Child, folder: Path) -> None:
        """Wakes a frozen owner once the one after it has written, and reads its tapes when it has ended."""
        if self._frozen is None:
            return
        (owner, tapes), self._frozen = self._frozen, None
        self._has_written(writer, folder, _WORDS_ENDED * THREADS * WINDOW)
        owner.send_signal(signal.SIGCONT)
        self._wait(owner, "a fenced owner", tapes / "said")
        self._read_tapes(tapes)
        self._decode()

    def _wait(
        self,
        child: Child,
        who: str,
        output: Path,
        patience: float = _PATIENCE_S,
    ) -> None:
        try:
            status = child.wait(patience)
        except subprocess.TimeoutExpired:
            end_group(child)
            self.history.wrong.append(f"{who} had not ended after {patience:.0f} s")
            return
        if status:
            words = output.read_text(errors="replace").strip()[-600:]
            self.history.wrong.append(f"{who} ended with status {status}: {words}")

    def end(self) -> None:
        self._children.close()
        stores = self._store.parent.glob(f"{self._store.name}*")
        for folder in (self._tapes, *stores):
            shutil.rmtree(folder, ignore_errors=True)

    # tapes ----------------------------------------------------------------------------------------

    def _read_tapes(self, folder: Path) -> list[tuple[int, str]]:
        """Reads which transactions of a life began and ended; returns (number, id) of those with no known outcome.

        Also advances the number at which the next life begins.
        """
        for words in entries(folder / "ends"):
            if words[0] in self._ended:
                self.history.wrong.append(f"transaction {words[0]} was told twice how it ended")
            self._ended[words[0]] = words
        self._open = {number: ("resolved", words) for number, (_, words) in self._open.items()}
        for path in sorted(folder.glob("client-*")):
            for words in entries(path):
                self._open[words[0]] = f"{folder.name}-{path.name}", words
                self._begun += 1
                self._numbers = max(self._numbers, words[0] + 1)
        if (folder / "looks").exists():
            self._lookers.append(f"owner-{folder.name}")
            (folder / "looks").rename(self._tapes / self._lookers[-1])
        shutil.rmtree(folder)
        return [
            (number, f"{words[3]}-{words[4]}")
            for number, (_, words) in self._open.items()
            if number not in self._ended and words[3] != tape.PLAIN
        ]

    def _decode(self) -> None:
        """Puts transactions into the trace; those with an unknown outcome wait for it."""
        for number in [number for number in self._open if number in self._ended]:
            self._row(*self._open.pop(number), self._ended.pop(number))

    def _settle(self) -> None:
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

    def _looks(self, name: str, is_recent: bool = True) -> None:
        """Reads a reader's looks; puts a part of each into the trace as a read-only transaction if it promises to
        be recent.
        """
        draw = random.Random(f"{self._options.seed}-{name}")
        looks = self.history.looks[name] = []
        trace, rows = self.history.trace, range(self._plan.world.rows)
        for line in json_lines(self._tapes / name):
            observation = Observation(*line)
            looks.append(observation)
            if not is_recent:
                continue
            number, self._numbers = self._numbers, self._numbers + 1
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

    # reading back ---------------------------------------------------------------------------------

    def read_back(self) -> None:
        """Reads back records and lists, and asks for outcomes again: the answers must be the same."""
        world, history = self._plan.world, self.history
        if not self._folder(0).exists():
            return
        # All of a replicated store comes from the shared log, and its owner alone knows what was never sent.
        way: dict[str, Any] = {"replicate": self._url} if self._url else {"read_only": True}
        begin = time.monotonic_ns()
        with planstep.open(self._store, **way) as db, db.snapshot() as view:
            history.looks["the end"] = [observe(view, world, begin, time.monotonic_ns)]
            history.lists = {key: (row[1], row[2]) for key, row in view.scan("lists")}
            read_records(view, world, history.trace)
            fill_in_offsets(history.trace)
            for name, outcome in history.resolved.items():
                state = db.outcome(name).state
                if (state == "committed") != (outcome == COMMITTED):
                    history.wrong.append(
                        f"{name} was {outcome} after reopening, and is {state} now"
                    )
