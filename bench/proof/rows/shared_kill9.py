"""Row `shared-kill9`: owners of one shared log take it over from one another, are killed, freeze and come back.

    3 to 5 processes, a folder each ─▶ file:// ─▶ one of them writes, until it is fenced
        a snapshot and a trim every 50 turns
        SIGKILL ─▶ it starts again, in its folder, in an older copy of it, or in an empty one
        SIGSTOP ─▶ others take over ─▶ SIGCONT: it wakes amid a commit, an opening, a put
    afterwards a machine with an empty folder opens the URL:
        each acknowledged transaction is there once, what was refused is not, `outcome` tells of the rest;
        all folders get the same content, and are whole

Which strike comes next follows from the seed; the moment at which it hits does not.

Owners of the last group have mode "async": they lag behind their slow puts, up to a bound of bytes, and a killed
one starts again in its folder. What is acknowledged and not there has to be named by a folder that was set aside,
which names nothing else, and no more than the bound allows.

The controls acknowledge before the put, put over what is there, and acknowledge beyond the bound.

Left out: the loss of power (a log's tests look at its syncs), and other logs than files, which check-log races.

Next: ../disks/owners.py.
"""

import os
import random
import shutil
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import PlanstepError
from ..disks.forked import Child, Silent
from ..disks.no_sockets import NO_SOCKETS
from ..disks.owners import COUNT, Found, Machine, look, look_aside, own, prepare
from ..parallel import gather
from .registry import RowOptions, RowResult

STRIKES = 1_000
ACKNOWLEDGED, TERMS = 2, 0.1
"""What is to be reached at least, a strike."""
_CONTROL_STRIKES = 300
_LOST, _DIVERGED, _TERM = "acknowledged lost", "does not follow the turns before it", "of term"
_BEYOND = "lost beyond the bound"
_SHOWN = 3
_TRIM_SECONDS = 60.0


class Work(NamedTuple):
    owners: int
    folder: Path
    strikes: int
    seed: int
    plant: str = ""
    lag_bytes: int = 0

    @property
    def url(self) -> str:
        return (self.folder / "log").as_uri()

    def __str__(self) -> str:
        return f"{self.owners} owners{' of mode async' if self.lag_bytes else ''}"


LAG_BYTES = 20_000
GROUPS = ((3, True, 0), (4, False, 0), (5, False, 0), (3, False, 0), (3, False, LAG_BYTES))
"""(owners, on a disk, bytes that they may lag): in memory turns are struck more often, on a disk puts."""


def run(options: RowOptions) -> RowResult:
    strikes = options.of(STRIKES, least=len(GROUPS))
    works = []
    for number, (owners, disk, lag) in enumerate(GROUPS):
        folder = (options.folder if disk else options.memory) / f"shared-kill9-{number}"
        share = strikes // len(GROUPS) + (number < strikes % len(GROUPS))
        if share:
            works.append(Work(owners, folder, share, options.seed * 100 + number, lag_bytes=lag))
    result = gather(options, strike_again, works)
    acknowledged, terms = result.events, result.figures["terms"]
    result.figures["acknowledged"] = acknowledged
    if options.runs is None:
        result.reaches(
            [
                ("strikes", result.runs, strikes),
                ("acknowledged transactions", acknowledged, ACKNOWLEDGED * strikes),
                ("terms", terms, int(TERMS * strikes)),
                ("turns trimmed", result.figures["turns_trimmed"], strikes),
            ]
        )
    return result


def control(options: RowOptions) -> RowResult:
    """Plants the bugs; each must be noticed."""
    result = RowResult(seeds=(options.seed, options.seed))
    for plant, lag, words in (
        ("early", 0, (_LOST,)),
        ("overwriting", 0, (_LOST, _DIVERGED, _TERM)),
        ("unbounded", LAG_BYTES, (_BEYOND,)),
    ):
        folder = options.memory / f"shared-kill9-{plant}"
        work = Work(3, folder, options.runs or _CONTROL_STRIKES, options.seed, plant, lag)
        one = strike_again(work).planted(*words)
        if not one.violations:
            return one
        result.add(one)
    return result


def strike_again(work: Work) -> RowResult:
    """Lets owners of one log write, strikes them so many times, and looks at what is there."""
    work.folder.mkdir(parents=True)
    striker = Striker(work)
    try:
        striker.start()
        for _ in range(work.strikes):
            striker.strike()
            if striker.result.violations:
                break  # later strikes would report the same
        striker.await_trims()
        striker.end()
        striker.count_trims()
        striker.judge()
    except Silent as silent:
        striker.wrong(str(silent))
    except (OSError, PlanstepError) as error:
        striker.wrong(f"the check: {error!r}")
    finally:
        striker.end()
        shutil.rmtree(work.folder, ignore_errors=True)
    return striker.result


class Striker:
    """The owners of one log. Invariant: `sent` has every transaction that an owner has sent, with its id."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.result = RowResult(figures={"terms": 0, "turns_trimmed": 0, "lost_and_named": 0})
        self._draw = random.Random(f"{work.seed}/strikes")
        self._children: dict[int, Child] = {}
        self._frozen: dict[int, float] = {}
        self._lives = 0
        self._terms: set[int] = set()
        self.sent: dict[str, str] = {}
        self.acknowledged: set[str] = set()
        self.refused: set[str] = set()

    def wrong(self, text: str) -> None:
        self.result.violations.append(f"{self.work}, strike {self.result.runs}: {text}")

    def start(self) -> None:
        child = Child(partial(prepare, Machine(self.work.folder / "first", self.work.url)))
        for line in child.wait():
            self._take_line(line)
        for number in range(self.work.owners):
            self._start(number)
            self._listen(0.05)

    def _machine(self, number: int) -> Machine:
        work = self.work
        return Machine(work.folder / f"machine-{number}", work.url, work.plant, work.lag_bytes)

    def _start(self, number: int) -> None:
        self._lives += 1
        body = partial(own, self._machine(number), f"{number}.{self._lives}")
        self._children[number] = Child(body)

    # what the owners say -------------------------------------------------------------------

    def _listen(self, seconds: float) -> None:
        """Takes what all owners say for a while, and wakes those whose time has come."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            for number, child in self._children.items():
                for line in child.lines(now + 0.002):
                    self._take_line(line)
                if self._frozen.get(number, until) <= now:
                    self._wake(number)
            time.sleep(0.001)

    def _take_line(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "s":
            label, tx = rest.split()
            self.sent[label] = tx
        elif kind == "a":
            self.acknowledged.add(rest)
            self.result.events += 1
        elif kind == "r":
            self.refused.add(rest)
        elif kind == "o":
            term, seconds = rest.split()
            if int(term) in self._terms:
                self.wrong(f"term {term} has two owners")
            self._terms.add(int(term))
            self.result.add(RowResult(most={"opening_seconds_max": float(seconds)}))
            self.result.figures["terms"] += 1
        else:
            self.wrong(rest)

    # strikes -------------------------------------------------------------------------------

    def strike(self) -> None:
        draw, faults = self._draw, self.result.faults
        self._listen(draw.uniform(0.005, 0.12))
        number = draw.randrange(self.work.owners)
        if draw.random() < 0.5:
            faults["kill of a frozen owner"] += number in self._frozen
            self._kill(number)
            faults["kill"] += 1
            self._lose(number)
            self._start(number)
        else:
            os.kill(self._children[number].pid, signal.SIGSTOP)
            self._frozen[number] = time.monotonic() + draw.choice([0.02, 0.2, 0.8]) * draw.random()
            faults["freeze"] += 1
        self.result.runs += 1

    def _kill(self, number: int) -> None:
        child = self._children[number]
        self._frozen.pop(number, None)
        for line in child.kill():
            self._take_line(line)
        if child.code != -signal.SIGKILL:
            self.wrong(f"an owner ended with exit code {child.code} before it was killed")

    def _wake(self, number: int) -> None:
        self._frozen.pop(number, None)
        os.kill(self._children[number].pid, signal.SIGCONT)

    def _lose(self, number: int) -> None:
        """Takes a dead machine's folder away now and then, or puts an older copy in its place.

        One of mode "async" stays: nothing else names what is lost.
        """
        if self.work.lag_bytes:
            return
        folder = self._machine(number).folder
        older = folder.with_suffix(".older")
        what = self._draw.choice(["emptied", "older", "kept", "", "", ""])
        if not folder.exists() or not what or (what == "older" and not older.exists()):
            return
        if what == "kept":
            shutil.rmtree(older, ignore_errors=True)
            shutil.copytree(folder, older, ignore=NO_SOCKETS)
            return
        shutil.rmtree(folder)
        self.result.faults[f"folder {what}"] += 1
        if what == "older":
            older.rename(folder)

    def end(self) -> None:
        """Wakes all owners, takes what they say for a moment, and kills them."""
        for number in list(self._frozen):
            self._wake(number)
        if not self.result.violations:
            self._listen(0.2)
        for child in self._children.values():
            for line in child.kill():
                self._take_line(line)
        self._children = {}

    def await_trims(self) -> None:
        """Lets the owners go on until a turn a strike was trimmed, for a minute: a busy machine writes few."""
        until = time.monotonic() + _TRIM_SECONDS
        while not (self.work.plant or self.result.violations) and time.monotonic() < until:
            self.count_trims()
            if self.result.figures["turns_trimmed"] >= self.result.runs:
                break
            self._listen(0.05)

    def count_trims(self) -> None:
        """Counts the turns below the log's floor."""
        floors = (self.work.folder / "log" / "floor").glob("0*")
        self.result.figures["turns_trimmed"] = (
            max([int(path.name) for path in floors], default=1) - 1
        )

    # judging -------------------------------------------------------------------------------

    def judge(self) -> None:
        """Opens the log in an empty folder, then in all others, and compares what is there with what was said."""
        fresh = Machine(self.work.folder / "fresh", self.work.url)
        open_ended = self.sent.keys() - self.acknowledged - self.refused
        sample = sorted(self.acknowledged)[-1000:] + sorted(self.refused)[-1000:]
        asked = {self.sent[label]: label for label in [*open_ended, *sample]}
        self.result.faults["commit without an answer"] += len(open_ended)
        found = self._look(fresh, list(asked))
        if found is None:
            return
        records = [label for log in found.logs for label in log]
        there = set(records)
        for number in range(self.work.owners):
            self._compare(number, found)
        named = self._named_as_lost()
        self._says(self.acknowledged - there - named, _LOST)
        self._says(there & named, "there, and named as lost")
        self._says(self.refused & (there | named), "refused, and there")
        self._says(there - self.sent.keys(), "there, and never sent")
        self._says({label for label, n in Counter(records).items() if n > 1}, "there twice")
        self._says(there ^ (found.rows.keys() - {COUNT}), "there in part")
        if found.rows.get(COUNT, 0) != len(there):
            self.wrong(f"{len(there)} transactions were counted {found.rows.get(COUNT)} times")
        told = {asked[tx] for tx, state in found.outcomes.items() if state == "committed"}
        self._says(told ^ (there & set(asked.values())), "of another outcome than its records")
        for log in found.logs:
            self._judge_order(log)

    def _named_as_lost(self) -> set[str]:
        """Returns what the folders that were set aside say is lost; each may lack one turn beside the bound."""
        labels = {tx: label for label, tx in self.sent.items()}
        named: set[str] = set()
        for number in range(self.work.owners) if self.work.lag_bytes else ():
            machine = self._machine(number)
            found = self._ask(look_aside, machine)
            if not isinstance(found, list):
                self.wrong(f"what {machine.folder.name} has lost is not told: {found}")
                continue
            for turns in found:
                self.result.faults["folder set aside"] += 1
                size = sum(size for size, _ in turns[:-1])
                if size > self.work.lag_bytes:
                    self.wrong(f"{size} bytes are {_BEYOND} of {self.work.lag_bytes}")
                named |= {labels[tx] for _, ids in turns for tx in ids if tx in labels}
        self.result.figures["lost_and_named"] = len(named)
        return named

    def _says(self, labels: set[str], what: str) -> None:
        if labels:
            self.wrong(f"{len(labels)} {what}: {', '.join(sorted(labels)[:_SHOWN])}")

    def _judge_order(self, log: list[str]) -> None:
        """Checks that each thread's records are in its order, without a gap."""
        last: dict[str, int] = {}
        for label in log:
            writer, _, n = label.rpartition(".")
            if int(n) != last.get(writer, -1) + 1:
                self.wrong(f"{label} is behind number {last.get(writer, -1)} of its writer")
                return
            last[writer] = int(n)

    def _compare(self, number: int, fresh: Found) -> None:
        """Checks that a machine's folder catches up to what the fresh one has."""
        found = self._look(self._machine(number)._replace(plant=""), [])
        if found is not None and found[:2] != fresh[:2]:
            self.wrong(f"machine {number} has another content than a fresh one")

    def _ask(self, what: Any, *about: Any) -> Any:
        """Has a child do something; returns what it said."""
        child = Child(partial(what, *about))
        try:
            said, *_ = [*child.lines(), ""]
        finally:
            child.kill()
        return said

    def _look(self, machine: Machine, ids: list[str]) -> Found | None:
        found = self._ask(look, machine, ids)
        if not isinstance(found, Found):
            self.wrong(f"{machine.folder.name} does not open: {found}")
            return None
        for problem in found.problems:
            self.wrong(f"{machine.folder.name}: {problem}")
        return found
