"""Tests row "reboots": its negative control, and the bugs that it must notice."""

import random
from typing import Any

import pytest

from planstep.bench.proof.rows import reboots
from planstep.bench.proof.rows.mutants import BY_NAME
from planstep.bench.proof.rows.reboots import Point, Story, points, run_story, stories
from planstep.bench.proof.rows.registry import RowOptions
from planstep.bench.proof.worlds.final_invariants import differences
from planstep.bench.proof.worlds.mutants.mutant import planted
from planstep.bench.proof.worlds.scripted.power_cuts import MOMENTS, Cut
from planstep.bench.proof.worlds.serial_model import Serial, stored_rows
from planstep.coordinator.plan import ABORTED, OutcomeRow
from planstep.host.links import Link
from planstep.proto.ids import COORDINATOR_ID, tablet_prefix
from planstep.proxy.deterministic import Proxy


def test_the_negative_control(options: RowOptions) -> None:
    violations = reboots.control(options).violations
    assert violations and violations == reboots.control(options).violations


def test_each_event_has_its_points() -> None:
    story = Story("several partitions", 2, False)
    turns = run_story(story, None).turns
    single = [p.cut for p in points(story, turns, random.Random(1)) if p.again is None]
    assert len(set(single)) == len(single) == len(turns) * (len(MOMENTS) + 1)


@pytest.mark.parametrize("story", stories()[::5], ids=str)
def test_a_story_is_told_to_its_end_without_a_fault(story: Story) -> None:
    run = run_story(story, None)
    assert not run.violations and not run.reboots and run.events >= len(run.turns) > 0


def violations_of(name: str) -> int:
    story = Story(name, 2, False)
    turns = run_story(story, None).turns
    return sum(
        bool(run_story(story, point).violations)
        for point in points(story, turns, random.Random(1))
        if point.again is None
    )


def test_a_proxy_that_does_not_ask_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Proxy, "resend", lambda self: None)
    assert violations_of("one partition")


def test_a_link_that_forgets_what_it_took_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take: Any = Link.take

    class Forgets:
        def put(self, key: bytes, value: Any) -> None:
            pass

    def forgets(self: Link, keys: Any, frame: Any) -> Any:
        return take(self, Forgets(), frame)

    monkeypatch.setattr(Link, "take", forgets)
    assert violations_of("several partitions")


@pytest.mark.parametrize(
    ("mutant", "name", "said"),
    [
        ("ends-forgotten", "pulsar: transactions", "is open for ever"),
        ("never-timed-out-pulsar", "pulsar: left open", "hangs"),
        ("acks-of-committed-lost", "pulsar: two use an input", "position is 0, and not 1"),
    ],
)
def test_bugs_of_mode_pulsar_are_noticed(mutant: str, name: str, said: str) -> None:
    story = Story(name, 2, False)
    turns = run_story(story, None).turns
    every = points(story, turns, random.Random(1))
    with planted(BY_NAME[mutant]):
        assert any(said in text for point in every for text in run_story(story, point).violations)


def test_the_model_sees_a_row_that_nobody_wrote() -> None:
    run = run_story(Story("one partition", 1, False), Point(Cut(1, "kept", 0)))
    serial, rows = Serial(run, run.requests), stored_rows(run)
    assert not serial.wrong and not differences(rows, serial.model)
    key = next(iter(rows))
    rows[key + b"x"] = rows.pop(key)
    assert len(differences(rows, serial.model)) == 2
    store, prefix = run.stores[0], tablet_prefix(COORDINATOR_ID) + b"o"
    key, row = store.scan(prefix, prefix + b"\xff" * 13)[-1]
    turn = store.begin()
    turn.put(key, OutcomeRow._make(row)._replace(state=ABORTED))
    store.commit(turn)
    assert any(text.startswith("B18") for text in Serial(run, run.requests).wrong)
