"""Tests row sim: its seeds, its planted bug, and its parts: lines, odds, shrinking, the real-time check."""

import random
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import pytest

from planstep.bench.proof.rows import sim
from planstep.bench.proof.rows.mutants import BY_NAME
from planstep.bench.proof.rows.registry import RowOptions
from planstep.bench.proof.simulator.attached_world import CLASSES as ATTACHED_CLASSES
from planstep.bench.proof.simulator.client_world import CLASSES as KAFKA_CLASSES
from planstep.bench.proof.simulator.faults import CLASSES, FRAME, HEALED, Faults, Lines, Odds
from planstep.bench.proof.simulator.world import World
from planstep.bench.proof.worlds.final_invariants import check_at_end, real_time, replayed
from planstep.bench.proof.worlds.mutants.mutant import planted
from planstep.bench.proof.worlds.online_invariants import TABLES, Watch
from planstep.bench.proof.worlds.phases import drive, settle
from planstep.bench.proof.worlds.readers import Key, Readers, SnapshotRead
from planstep.bench.proof.worlds.seed import play, play_drawn, world_of
from planstep.bench.proof.worlds.shrink import shrink
from planstep.bench.proof.worlds.swarm import WORKLOADS, draw
from planstep.bench.proof.worlds.workloads import NamedWorkloads
from planstep.host.versions import History
from planstep.tablets.shard import Shard

ONLY = ("deterministic",)


def test_worlds_of_all_kinds_are_played(options: RowOptions) -> None:
    result = sim.run(replace(options, seed=12, runs=4))
    assert result.violations == []
    kinds = ("kafka", "deterministic", "attached", "pulsar")
    assert [result.figures[f"{kind}_seeds"] for kind in kinds] == [1, 1, 1, 1]


def test_the_planted_bug_is_found_and_shrunk(options: RowOptions) -> None:
    (text,) = sim.control(replace(options, row="sim", negative=True)).violations
    assert "B21" in text or "B18" in text
    assert "planstep check sim --quick --negative --seed 1" in text and "shrunk to" in text


def test_a_class_that_strikes_too_seldom_is_said() -> None:
    result = sim.RowResult(runs=sim.SEEDS)
    result.faults.update({f"deterministic: {name}": 1_000 for name in CLASSES[1:]})
    sim._struck(result, Counter(deterministic=1))
    (text,) = result.violations
    assert CLASSES[0] in text


def test_a_class_of_the_mode_with_few_seeds_strikes_as_often() -> None:
    result = sim.RowResult(runs=sim.SEEDS)
    result.faults.update({f"kafka: {name}": 1_000 for name in KAFKA_CLASSES})
    result.faults["kafka: links cut"] = 999
    sim._struck(result, Counter(kafka=sim.SEEDS // 6))
    (text,) = result.violations
    assert "links cut" in text


def test_a_class_of_processes_that_share_a_store_strikes_as_often() -> None:
    result = sim.RowResult(runs=sim.SEEDS)
    result.faults.update({f"attached: {name}": 83 for name in ATTACHED_CLASSES})
    result.faults["attached: link ended"] = 82
    sim._struck(result, Counter(attached=833))
    (text,) = result.violations
    assert "link ended" in text


def test_a_seed_is_the_same_again_and_another_is_not() -> None:
    assert play(8, ONLY, 30) == play(8, ONLY, 30)
    assert play(8, ONLY, 30).digest != play(10, ONLY, 30).digest


def test_a_draw_in_one_concern_shifts_no_other() -> None:
    """Lines repeat every frame, but the workload submits the same transactions."""
    drawn = replace(draw(3, 20), hosts=2, faults=HEALED, weights={"pair": 1.0})
    requests = []
    for faults in (HEALED, Faults(0.0, 1.0, *[0.0] * 16)):
        world = world_of(replace(drawn, faults=faults))
        work = NamedWorkloads(world, drawn.weights)
        drive(world, work, drawn)
        requests.append([*work.requests.values()])
    assert requests[0] == requests[1] and world.faulted["message repeated"] > 10


def test_shrinking_keeps_what_fails() -> None:
    with sim.planted():
        whole = next(d for d in (draw(s, 40) for s in range(1, 20)) if play_drawn(d).violations)
        drawn, played = shrink(whole)
    assert played.violations and drawn.transactions < 40
    assert len(drawn.describe()["faults"]) < len(whole.describe()["faults"])
    assert "B" in played.report("again")
    assert play_drawn(drawn).violations == []


@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_workload_alone_commits_something(workload: str) -> None:
    drawn = replace(draw(2, 40), hosts=3, faults=HEALED, weights={workload: 1.0}, pace_ms=3.0)
    world = world_of(drawn)
    work = NamedWorkloads(world, drawn.weights)
    watch = Watch(world, work.requests)
    drive(world, work, drawn)
    settle(world, work)
    assert check_at_end(world, work) == watch.violations == []
    assert sum(result.reason is None for result in world.results.values()) > 4
    assert replayed(world) == []


def test_rows_that_are_not_compared_are_found() -> None:
    with patch.object(Shard, "check", lambda self, body, early: None):
        assert any(play(seed, ONLY, 100).violations for seed in range(1, 6))


def test_a_snapshot_that_shows_the_newest_version_is_found() -> None:
    with patch.object(History, "value_at", lambda self, key, newest, step: newest):
        violations = [text for seed in range(9, 13) for text in play(seed, ONLY, 100).violations]
    assert any(text.startswith("B17") for text in violations)


def test_an_older_snapshot_than_what_had_ended_is_found() -> None:
    """A reader is given the step before the released one."""
    whole = History.open

    def older(self: History, step: int | None = None) -> int:
        return whole(self, max(0, self.released - 1) if step is None else step)

    with patch.object(History, "open", older):
        violations = [text for seed in range(1, 8) for text in play(seed, ONLY, 100).violations]
    assert any(text.startswith("B15") for text in violations)


def test_a_snapshot_that_is_never_served_is_found() -> None:
    with planted(BY_NAME["snapshot-unserved"]):
        (violation,) = play(12, ("deterministic",), 60).violations
    assert "B37" in violation and "is not served by host" in violation
    assert play(12, ("deterministic",), 60).violations == []


def test_who_waits_for_a_dead_host_has_an_excuse_and_nobody_else() -> None:
    world = World(1, hosts=3, faults=HEALED)
    readers = Readers(world)
    for tablet in (0x40100028, 0x40200028):
        readers.read("rows", (Key("row", tablet, b"k"),), 0.0)
    assert not readers.unserved() and len(readers.reads) == 2
    world.kill(1)
    for tablet in (0x40100028, 0x40200028):
        readers.read("rows", (Key("row", tablet, b"k"),), 0.0)
    assert len(readers.unserved()) == 1 and readers.unserved(dead=1) == []
    assert len(readers.unserved(dead=2)) == 1


def test_real_time_is_compared_with_the_order() -> None:
    world = World(1, 1)
    world.asked_at = {b"a" * 12: 1.0, b"b" * 12: 5.0}
    world.told_at = {b"a" * 12: 3.0, b"b" * 12: 6.0}
    right = [(1, 0, b"a" * 12), (2, 0, b"b" * 12)]
    wrong = [(1, 0, b"b" * 12), (2, 0, b"a" * 12)]
    assert real_time(world, right, []) == []
    assert len(real_time(world, wrong, [])) == 1
    late = SnapshotRead("rows", 0, 4.0, (Key("row", 1),), completed=4.5)
    assert len(real_time(world, right, [late])) == 1


def test_lines_without_faults_keep_the_order() -> None:
    lines = Lines(3, random.Random(1), Counter())
    times = [lines.arrival_times(0, 1, now)[0] for now in (1.0, 1.0, 2.0)]
    assert times == sorted(times)


def test_a_cut_line_carries_nothing_until_it_heals() -> None:
    counted: Counter[str] = Counter()
    lines = Lines(2, random.Random(1), counted)
    lines.set(Faults(*[0.0] * 6, 1.0))
    assert lines.arrival_times(0, 1, 10.0) == lines.arrival_times(1, 0, 10.0) == []
    assert counted["partition"] == 2
    lines.set(HEALED)
    assert lines.arrival_times(0, 1, 10.0) == [10.5]


def test_odds_draw_once_for_all_classes() -> None:
    odds = Odds(Faults(*[0.125] * 8), FRAME, random.Random(1))
    assert {odds.strike() for _ in range(200)} == set(FRAME)
    assert Odds(HEALED, FRAME, random.Random(1)).strike() == ""


def test_every_table_is_named_as_transitions() -> None:
    assert all(" -> " in one for several in TABLES.values() for one in several)


def test_a_consumer_that_sought_and_read_on_in_one_turn_has_not_gone_back() -> None:
    """Seed 8098: a seek to 0 and a range from there came in one turn, and were mistaken for a violation of B21."""
    assert play(8098).violations == []
