"""Makes a history of the real engine: a writer is killed and restarted, while two other processes read.

    life 1 ──▶ kill -9     life 2 ──▶ kill -9     …     the last life closes its store
      └ tape ─┐              └ tape ─┐ resolves what life 1 left undecided
    readers ──┼─ look ── look ───────┼── look ──────▶
              ▼                      ▼
            Trace: transactions, operations, then the store's records       + looks at everything at one step

A replicated store lives in the folders of several machines. Each life is on the next one, and takes the store over;
every other life is not killed, but frozen until the next one has written: then it wakes, and finds itself fenced.

Next: tapes.py, which reads the tapes; judge.py, which judges the looks; bench/judges judges the trace.
"""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...children import Child, Children, end_group, module
from ..rows.registry import RowOptions
from .journal import used
from .reader import STOP
from .tapes import History, Plan, Tapes, add_looks, new_history, read_back
from .writer import THREADS, WINDOW, LifeSpec

READERS = 2
_PATIENCE_S = 900.0
_LOOK_S = 0.002
_WORDS_ENDED = 7
"""Roughly, the words of an ended transaction: a tape's length shows a life's progress."""
_MORE = 20
"""So many times its share of the transactions is what a life might do if it were not ended."""


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
        self.history = new_history(plan)
        self._gathered = Tapes(self.history)
        self._options, self._plan = options, plan
        self._store, self._tapes = options.folder / plan.name, options.memory / f"tapes-{plan.name}"
        self._draw = random.Random(f"{options.seed}-{plan.name}-kills")
        self._children = Children()
        self._url = (options.folder / f"{plan.name}-log").as_uri() if plan.machines else ""
        self._frozen: tuple[Child, Path] | None = None
        self._lookers: list[str] = []  # owners whose looks are to be read
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
            amount = max(1, plan.transactions - self._gathered.begun) if last else _MORE * quota
            life = LifeSpec(
                os.fspath(self._folder(number)),
                os.fspath(folder),
                plan.hosts,
                plan.world,
                self._options.seed,
                number,
                amount,
                self._gathered.numbers,
                ids,
                plan.planted,
                self._url,
                plan.reads,
            )
            spec = folder.with_suffix(".json")
            spec.write_text(json.dumps(asdict(life)))
            began = time.monotonic()
            writer = self._start("writer", spec, output=folder / "said")
            self._gathered.decode()  # what the life before left, while this one runs
            readers += self._readers(number, writer, folder)
            self._thaw(writer, folder)
            words = None if last else int(quota * _WORDS_ENDED * self._draw.uniform(0.5, 1.0))
            # The life after next resolves what a frozen one leaves undecided.
            freezes = bool(plan.machines) and number + 1 < plan.kills and number % 2 == 1
            self._live(writer, folder, words, freezes)
            history.writing_s += time.monotonic() - began
            if freezes:
                self._frozen, ids = (writer, folder), []
                self._gathered.numbers = life.numbers + life.transactions
            else:
                ids = self._read_tapes(folder)
            self._options.tell(f"{plan.name}: life {number + 1} of {plan.kills + 1} has ended")
            if history.wrong:
                break
        self._gathered.decode()
        self._gathered.settle()
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
        self._gathered.decode()

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

    def _read_tapes(self, folder: Path) -> list[tuple[int, str]]:
        if (folder / "looks").exists():
            self._lookers.append(f"owner-{folder.name}")
            (folder / "looks").rename(self._tapes / self._lookers[-1])
        return self._gathered.read(folder)

    def _looks(self, name: str, is_recent: bool = True) -> None:
        draw = random.Random(f"{self._options.seed}-{name}")
        numbers = itertools.count(self._gathered.numbers) if is_recent else None
        add_looks(self.history, name, self._tapes / name, draw, numbers)
        if numbers is not None:
            self._gathered.numbers = next(numbers)

    def read_back(self) -> None:
        if self._folder(0).exists():
            # All of a replicated store comes from the shared log, and its owner alone knows what was never sent.
            way: dict[str, Any] = {"replicate": self._url} if self._url else {"read_only": True}
            read_back(self.history, self._store, **way)
