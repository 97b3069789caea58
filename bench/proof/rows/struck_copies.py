"""Judges what processes of one store have copied together: each record once, in order, and none that never was.

    acknowledged ─▶ in, at its offset, once     not acknowledged ─▶ once, or not at all     refused ─▶ not at all
    in ─▶ log: the same records                 in[p] ─▶ out[p]: each once, in the order of `in`
    looks ─▶ so many records up to there are there at last; and never fewer than were seen, or answered, before

Real time is what the mode promises: `lag` of ../disks/modes.py says which of a writer's answers are certain to be
shown. A consumer of records one by one copies in any order.

Next: ../disks/copying.py, a life.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from ....api import open_engine
from ..disks.contents import records
from ..disks.copying import (
    IN,
    LANES,
    LOG,
    OUT,
    PARTITIONS,
    Again,
    Life,
    Looked,
    Refused,
    Wrote,
    live,
)
from ..disks.forked import Say
from ..disks.modes import MODES
from ..disks.sharers import SharedStore, State
from .registry import RowResult
from .struck_processes import Processes, Work

_SHOWN = 5
Log = list[tuple[int, str]]
"""(offset, value) of a partition's records."""


class Copies(Processes):
    """Processes that copy a topic's records, each once."""

    individual = False

    def __init__(self, work: Work, store: SharedStore, number: int) -> None:
        super().__init__(work, store, number)
        self.wrote: list[Wrote] = []
        self.refused: set[str] = set()
        self.looks: list[Looked] = []

    def life(self, number: int) -> Callable[[Say, int], None]:
        work = self.work
        life = Life(
            self.store, number, self.lives[number], work.seed, self.individual, work.planted
        )
        return partial(live, life)

    def take(self, number: int, said: Any) -> None:
        match said:
            case Wrote():
                self.wrote.append(said)
            case Refused(writer, n):
                self.refused.add(f"{writer}/{n}")
            case Looked():
                self.looks.append(said)
            case Again(error):
                self.result.faults[f"process ended: {error}"] += 1

    def unsettled(self, states: dict[int, State]) -> str:
        """All is copied, and each partition is one process's. Workers that wait look now and then."""
        if any(state.has_more for state in states.values()):
            return "something is open, or not copied"
        lanes = Counter(lane for state in states.values() for lane in state.lanes)
        if not self.individual and lanes != dict.fromkeys(range(PARTITIONS), 1):
            return f"partitions belong to so many processes: {dict(lanes)}"
        return super().unsettled(states)

    def judge(self) -> RowResult:
        folder, way = self.store.to_read
        with open_engine.open(folder, **way) as db, db.context.open_view() as view:
            logs: dict[tuple[str, int], Log] = {
                lane: [(record.offset, str(record.value)) for record in records(view, *lane)]
                for lane in LANES
            }
        self.judge_store()
        wrong = [*self.wrongs, *self.compared(logs)]
        copied = [[value.split()[1] for _, value in logs[OUT, p]] for p in range(PARTITIONS)]
        moves = sum(one != other for lane in copied for one, other in pairwise(lane))
        figures = {
            "copied": sum(map(len, copied)),
            "moves": moves,
            "acknowledged": len(self.wrote),
            "looks": len(self.looks),
        }
        result = RowResult(
            events=sum(map(len, logs.values())),
            faults=Counter({"refused": len(self.refused)}),
            violations=[f"{self.work.label}: {text}" for text in wrong[:_SHOWN]],
            figures=figures,
        )
        if len(wrong) > _SHOWN:
            result.violations.append(f"{self.work.label}: and {len(wrong) - _SHOWN:,} more")
        least = bool(figures["copied"] and self.looks and (moves or not self.kills))
        result.must(least, f"{self.work.label}: nothing was copied, moved or seen: {figures}")
        return result

    def compared(self, logs: dict[tuple[str, int], Log]) -> Iterator[str]:
        """Yields what is wrong with all partitions' records, as against what lives have said."""
        yield from self._wrong_inputs(logs)
        yield from self._wrong_copies(logs)
        yield from self._wrong_looks(logs)

    def _wrong_inputs(self, logs: dict[tuple[str, int], Log]) -> Iterator[str]:
        inputs, logged = (
            Counter(value for p in range(PARTITIONS) for _, value in logs[topic, p])
            for topic in (IN, LOG)
        )
        for value, count in inputs.items():
            if count > 1:
                yield f"{value} was written once, and is there {count} times"
            if value in self.refused:
                yield f"{value} was refused, and is there"
            if "/" not in value:
                yield f"{value} was rolled back, and is there"
        for value in sorted((inputs - logged) | (logged - inputs)):
            yield f"torn: {value} is in one topic only"
        at = {(lane, offset): value for lane, log in logs.items() for offset, value in log}
        for writer, n, _, offsets, _ in self.wrote:
            for lane, offset in offsets.items():
                if (found := at.get((lane, offset))) != f"{writer}/{n}":
                    yield f"{writer}/{n} was acknowledged at {lane}, offset {offset}: there is {found}"

    def _wrong_copies(self, logs: dict[tuple[str, int], Log]) -> Iterator[str]:
        for p in range(PARTITIONS):
            inputs = [value for _, value in logs[IN, p]]
            copies = [value.split()[0] for _, value in logs[OUT, p]]
            for value, count in (Counter(copies) - Counter(inputs)).items():
                yield f"{value} was copied {count} times too often"
            for value in Counter(inputs) - Counter(copies):
                yield f"{value} was never copied"
            if not self.individual and sorted(inputs) == sorted(copies) and inputs != copies:
                yield f"partition {p} was copied in another order"

    def _wrong_looks(self, logs: dict[tuple[str, int], Log]) -> Iterator[str]:
        for begin, _, ends, counts in self.looks:
            for lane, end, count in zip(LANES, ends, counts, strict=True):
                there = bisect_left(logs[lane], (end, ""))
                if there != count:
                    yield f"at {begin} {lane} had {count} records up to {end}, and has {there} now"
        seen = [
            (reply, lane, end, "seen")
            for _, reply, ends, _ in self.looks
            for lane, end in zip(LANES, ends, strict=True)
        ]
        certain = sorted([*seen, *self._answered()])
        least: dict[tuple[str, int], tuple[int, str]] = defaultdict(lambda: (0, ""))
        passed = 0
        for look in sorted(self.looks):
            while passed < len(certain) and certain[passed][0] < look.begin:
                _, lane, end, how = certain[passed]
                least[lane] = max(least[lane], (end, how))
                passed += 1
            for lane, shown in zip(LANES, look.ends, strict=True):
                end, how = least[lane]
                if shown < end:
                    yield f"at {look.begin} {lane} was shown up to {shown}, after {end} was {how}"

    def _answered(self) -> Iterator[tuple[int, tuple[str, int], int, str]]:
        """Yields what is certain to be shown from an answer on: (its moment, lane, end, how it was known)."""
        mode = MODES[self.store.mode]
        by_writer: dict[str, list[Wrote]] = defaultdict(list)
        for one in self.wrote:
            by_writer[one.writer].append(one)
        for answers in by_writer.values():
            for shown, answered in zip(answers, answers[mode.lag - 1 :], strict=False):
                for lane, offset in shown.offsets.items():
                    if not mode.hides or (lane[0] == LOG and shown.shown):
                        yield answered.reply, lane, offset + 1, "answered"


class CopiesOneByOne(Copies):
    """Processes that copy a topic's records, each once, in any order."""

    individual = True
