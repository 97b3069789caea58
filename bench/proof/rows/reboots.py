"""Row `reboots`: cuts the power at every event of every scenario, one run for each; then twice in one run.

    scenario × hosts × placement ─▶ a run without a fault: its events
        └─▶ each event × {before, lost, kept, sent} of the host whose turn it is, and the power loss of
            each other host at that moment ─▶ the run once more, to its end ─▶ compared

An event is a turn that takes one message. `lost`: the power goes while the turn is written; `kept`: it is
durable, but nothing has left; `sent`: its messages have left. YDB's RunTestWithReboots is the model. It
reboots tablets; this reboots hosts, because all tablets of a host fail together.

Another third of the points is drawn: a second power loss follows the first, on that host or another, a few
events later, mostly during the recovery from the first.

Next: ../worlds/scripted/runner.py, then ../worlds/scripted/scenarios.py.
"""

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from ..parallel import gather
from ..worlds.scripted.kafka_runner import KAFKA_SCENARIOS, RebootedKafka
from ..worlds.scripted.power_cuts import MOMENTS, Cut
from ..worlds.scripted.pulsar_runner import PULSAR_SCENARIOS, RebootedPulsar
from ..worlds.scripted.runner import Forgetful, Rebooted
from ..worlds.scripted.scenarios import SCENARIOS, Tablets
from .registry import SHARE, RowOptions, RowResult

POINTS = 2_000
_CHUNK = 50
IN_PLACE: dict[str, tuple[Any, Any]] = {
    name: (kind, script)
    for kind, scenarios in ((RebootedKafka, KAFKA_SCENARIOS), (RebootedPulsar, PULSAR_SCENARIOS))
    for name, script in scenarios.items()
}
"""By name: the world of a scenario of a mode with data in place, and its script."""
_LATER_MAX = 8
_TWICE = 0.5
_WAYS = tuple((hosts, separate) for hosts in (1, 2, 4) for separate in (False, True))


class Story(NamedTuple):
    name: str
    hosts: int
    separate: bool

    def __str__(self) -> str:
        placement = "separate" if self.separate else "shared"
        return f"{self.name}, {self.hosts} hosts, {placement}"


class Point(NamedTuple):
    cut: Cut
    again: tuple[int, int] | None = None


def stories() -> list[Story]:
    names = [*SCENARIOS, *IN_PLACE]
    return [Story(name, hosts, separate) for name in names for hosts, separate in _WAYS]


def run_story(story: Story, point: Point | None, kind: type[Rebooted] = Rebooted) -> Any:
    """Plays a run of the story; its `violations` say what was wrong."""
    cuts = () if point is None else (point.cut,)
    again = None if point is None else point.again
    if story.name in IN_PLACE:
        world, script = IN_PLACE[story.name]
        return world(script, story.hosts, story.separate, cuts, again).go()
    scenario, tablets = SCENARIOS[story.name], Tablets(story.hosts)
    run = kind(scenario.steps(tablets), story.hosts, story.separate, cuts, again).go()
    if not run.violations:
        run.violations += scenario.goal(tablets, run)
    return run


def points(story: Story, turns: list[int], draw: random.Random) -> Iterator[Point]:
    """Yields all points of one power loss, and after every other one a point of two."""
    for event, turn in enumerate(turns):
        for host in range(story.hosts):
            for moment in MOMENTS if host == turn else MOMENTS[:1]:
                cut = Cut(event, moment, host)
                yield Point(cut)
                if draw.random() < _TWICE:
                    second = host if draw.random() < 0.5 else draw.randrange(story.hosts)
                    yield Point(cut, (draw.randrange(_LATER_MAX), second))


def run(options: RowOptions) -> RowResult:
    wrong: list[str] = []
    every: list[tuple[Story, Point]] = []
    for number, story in enumerate(stories()):
        plain = run_story(story, None)
        wrong += [f"{story}, without a fault: {text}" for text in plain.violations]
        draw = random.Random(options.seed * 1_000 + number)
        every += [(story, point) for point in points(story, plain.turns, draw)]
    total = len(every)
    runs = options.runs if options.runs is not None else total // (SHARE if options.quick else 1)
    every = _thin(every, runs, options.seed)
    chunks = [every[at : at + _CHUNK] for at in range(0, len(every), _CHUNK)]
    result = gather(options, _run_chunk, chunks)
    result.violations = wrong + result.violations
    result.figures = {"points_there_are": total, "scenarios": len(SCENARIOS) + len(IN_PLACE)}
    if options.runs is None:
        result.reaches([("points", result.runs, options.of(POINTS))])
    return result


def _thin(every: list[tuple[Story, Point]], runs: int, seed: int) -> list[tuple[Story, Point]]:
    """Picks so many of them, from all stories; others with another seed."""
    if runs >= len(every):
        return every
    return [every[(i * len(every) // runs + seed) % len(every)] for i in range(runs)]


def _run_chunk(chunk: Iterable[tuple[Story, Point]], kind: type[Rebooted] = Rebooted) -> RowResult:
    result = RowResult()
    for story, point in chunk:
        one = run_story(story, point, kind)
        result.runs += 1
        result.events += one.events
        result.faults[f"power loss {point.cut.moment}"] += 1
        result.faults["power loss in recovery"] += one.reboots - 1 if point.again else 0
        result.must(bool(one.reboots), f"{story}, {point}: no host lost power")
        result.violations += [f"{story}, {point}: {text}" for text in one.violations]
    return result


def control(options: RowOptions) -> RowResult:
    """Plants a host that forgets its prepared proposals when it starts again."""
    result = RowResult(seeds=(options.seed, options.seed))
    for name in ("several partitions", "consume, produce, table"):
        story = Story(name, 2, False)
        every = points(story, run_story(story, None).turns, random.Random(options.seed))
        single = ((story, point) for point in every if point.again is None)
        result.add(_run_chunk(islice(single, 200), Forgetful))
    return result.planted("a planned transaction was prepared here")
