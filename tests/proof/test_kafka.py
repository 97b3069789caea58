"""Tests row `kafka`: single seeds, the control, and the bugs that each of its parts would notice."""

import itertools
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import lose_markers_until_a_wait, python

import planstep
from planstep.bench.proof.rows import kafka as row
from planstep.bench.proof.rows import killed_life, killed_lives
from planstep.bench.proof.rows.registry import BY_NAME, RowOptions
from planstep.bench.proof.simulator.client_world import Faults
from planstep.bench.proof.worlds.in_place.anomalies import ALLOWED
from planstep.bench.proof.worlds.kafka.coverage import TABLES, UNREACHABLE, unreached, watch
from planstep.bench.proof.worlds.kafka.seed import REPLAYED, play
from planstep.bench.proof.worlds.kafka.swarm import Settings, draw_settings
from planstep.coordinator import logged_rows
from planstep.coordinator.kafka import groups, transactions
from planstep.coordinator.kafka.states import EMPTY, ONGOING
from planstep.runtime.kafka.hooks import KafkaHooks
from planstep.tablets.kafka import partition as partition

CALM = Settings(hosts=2, meddles=0.05, deserts=True, faults=Faults())


def count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a bug: a repeated batch counts again."""
    check = partition.check

    def checked(state: Any, *arguments: Any, **more: Any) -> Any:
        result = check(state, *arguments, **more)
        return state if isinstance(result, int) else result

    monkeypatch.setattr(partition, "check", checked)


def test_a_single_run_is_one_seed_again(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row, "TRANSACTIONS", 60)
    count_twice(monkeypatch)
    result = BY_NAME["kafka"].run(replace(options, runs=1, seed=3, row="kafka"))
    assert result.runs == 1 and not result.faults["kill -9"]
    assert result.violations
    for text in result.violations:
        assert text.endswith("\n  again: planstep check kafka --seed 3 --runs 1")


def test_late_ends_judged_by_the_list_of_version_2_are_noticed(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row, "TRANSACTIONS", 120)
    result = row.control(replace(options, runs=1))
    assert any("torn transaction" in text for text in result.violations), result.violations


# one seed --------------------------------------------------------------------------------------


def test_the_same_seed_is_the_same_in_another_process() -> None:
    here, _, _ = play(5, 40)
    program = (
        "import json; from planstep.bench.proof.worlds.kafka.seed import play; "
        "p, _, _ = play(5, 40); print(json.dumps([p.digest, p.events, p.faults, p.settings]))"
    )
    path = os.environ.get("PYTHONPATH", "")
    there = python(program, env={"PYTHONHASHSEED": "7", "PATH": "", "PYTHONPATH": path})
    expected = [here.digest, here.events, here.faults, here.settings]

    assert json.loads(there.stdout) == json.loads(json.dumps(expected))


def test_recorded_inputs_of_a_drawn_world_replay_byte_for_byte() -> None:
    settings = replace(draw_settings(3), tiny=False)  # its limits are those of the run only
    _, work, _ = play(3, 40, settings)
    changes = [turn.changes for turn in work.world.recorded]
    assert any(changes) and work.world.replay() == changes


def test_draws_differ_and_some_classes_are_off() -> None:
    draws = [draw_settings(seed) for seed in range(60)]
    assert {draw.hosts for draw in draws} == {1, 2, 3, 4}
    assert {(draw.version, draw.late) for draw in draws} == {
        (version, late) for version in (1, 2) for late in ("", "ends", "any")
    }
    for name in ("lose", "repeat", "crash", "fail", "pause", "full", "jump", "clog", "cut", "stop"):
        values = [getattr(draw.faults, name) for draw in draws]
        assert min(values) == 0 < max(values), name
    assert all(draw.allowed == ALLOWED for draw in draws if draw.version == 2)


# noticed bugs ----------------------------------------------------------------------------------


def violations(seed: int = 1, **settings: Any) -> str:
    result, _, _ = play(seed, 60, replace(CALM, **settings))
    return "\n".join(result.violations)


def test_nothing_is_wrong_with_a_calm_world() -> None:
    assert violations() == ""


def test_a_coordinator_that_times_nothing_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions.Transactions, "_abort_old", lambda self: None)
    assert "B24: b'once-" in violations()


def test_a_batch_that_counts_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    count_twice(monkeypatch)
    assert "duplicate" in violations()


def test_members_that_nothing_fences_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups.Groups, "_refused", lambda self, message: "")
    assert "input used twice" in violations(meddles=0.2)


def test_a_last_stable_offset_that_is_the_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = partition.Partition._bounds

    def to_the_end(self: partition.Partition) -> tuple[int, int, int]:
        start, end, _ = bounds(self)
        return start, end, end

    monkeypatch.setattr(partition.Partition, "_bounds", to_the_end)
    assert "B24" in violations()


@pytest.mark.parametrize("waits", [True, False])
def test_a_close_that_leaves_a_commit_unread_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    with planstep.open(tmp_path / "s", mode="kafka", hosts=2) as db:
        db.create_topic(killed_life.LAST, partitions=killed_life.PARTITIONS)
        lose_markers_until_a_wait(monkeypatch)
        if not waits:
            monkeypatch.setattr(KafkaHooks, "untold", lambda self: [])
        killed_life.leave(db)
    lost = [] if waits else ["B24: once closed, 0 of the last 2 records are read"]
    assert killed_lives.unread(tmp_path / "s") == lost


def test_unfenced_workers_may_use_inputs_twice_and_pass_over_none() -> None:
    anomalies: Counter[str] = Counter()
    for seed in range(3):
        result, _, counted = play(seed, 60, replace(CALM, fenced=False, meddles=0.1))
        assert result.violations == []
        anomalies += counted
    assert anomalies["input used twice"]


# reached transitions ---------------------------------------------------------------------------


def test_transitions_are_counted_while_they_are_watched() -> None:
    with watch() as reached:
        transactions.check_move(EMPTY, ONGOING)
        assert transactions.end_1(ONGOING, True) == transactions.END
    transactions.check_move(EMPTY, ONGOING)
    assert reached == {
        "transactional id: Empty -> Ongoing": 1,
        "EndTxn, version 1: Ongoing, commit -> END": 1,
    }
    missing = unreached(reached)
    assert len(missing) == sum(map(len, TABLES.values())) - 2
    assert set(UNREACHABLE) < set(missing)


def test_a_core_that_is_not_deterministic_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producer ids continue over all runs of a process, so a replay is given other ones."""
    numbers = itertools.count(1 << 20)
    monkeypatch.setattr(
        logged_rows.TransactionRows, "new_id", lambda self: next(numbers) | self.host << 40
    )
    result, _, _ = play(REPLAYED, 30, CALM)
    assert any(text.startswith("B30") for text in result.violations)
    again, _, _ = play(REPLAYED + 1, 30, CALM)  # this seed is not replayed
    assert again.violations == []
