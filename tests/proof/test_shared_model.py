"""Tests row `shared-model`: walks, scenes and stories, the judge on wrong states, and each rule removed."""

from dataclasses import replace

import pytest

from planstep.bench.proof.rows import shared_model as row
from planstep.bench.proof.rows.registry import RowOptions
from planstep.bench.proof.worlds.exhaustive.search import search
from planstep.bench.proof.worlds.mutants.mutant import Mutant, function_of, mutate, planted
from planstep.bench.proof.worlds.shared import judge, object_store, world
from planstep.bench.proof.worlds.shared.machine import OPEN, TRIM, TURN, Call, Folder, Process
from planstep.bench.proof.worlds.shared.objects import GET, LIST, PUT, decoded
from planstep.bench.proof.worlds.shared.planted import BY_NAME, PLANTED
from planstep.bench.proof.worlds.shared.scenes import SCENES, SmallShared
from planstep.bench.proof.worlds.shared.state import (
    CRASH,
    CUT,
    EMPTY,
    GO,
    LAND,
    LEFT,
    STRAY,
    UNANSWERED,
    Move,
    State,
)
from planstep.bench.proof.worlds.shared.stories import STORIES, Teller
from planstep.bench.proof.worlds.shared.walk import walk
from planstep.shared.entry import BEGIN, seal

SEEDS = range(1, 13)


def owned() -> Teller:
    """Returns a world in which machine 0 owns the store, and has committed turn 2."""
    tell = Teller()
    tell.begin(0, OPEN)
    tell.begin(0, TURN)
    return tell


def wrong(state: State) -> str:
    """Returns what a fresh machine, and the folders, are said to be."""
    asked = world.World(Teller().world.scene)
    texts = list(judge.fresh(state, lambda call: asked.answer(state, call)[0]))
    for machine in state.machines:
        texts += judge.folder(state, machine)
    return "; ".join(texts)


def test_walks_are_well_and_come_to_turns_and_terms() -> None:
    walked = [walk(seed) for seed in SEEDS]
    assert not any(one.violations for one in walked)
    assert sum(one.turns for one in walked) > 100
    assert sum(one.terms for one in walked) > 20


def test_the_same_seed_walks_the_same_way() -> None:
    assert walk(5, 200) == walk(5, 200) != walk(6, 200)


@pytest.mark.parametrize("scene", [scene for scene, _ in SCENES], ids=lambda scene: scene.name)
def test_scenes_are_well(scene: object) -> None:
    explored = search(SmallShared(scene), 800)
    assert not explored.violations
    assert explored.states > 100


def test_a_state_is_known_again_whatever_way_it_was_come_to() -> None:
    one, other = owned(), owned()
    one.begin(1, OPEN, PUT)
    one.begin(0, TURN, PUT)
    other.begin(0, TURN, PUT)
    other.begin(1, OPEN, PUT)
    assert one.state.key == other.state.key != owned().state.key


@pytest.mark.parametrize("name", STORIES)
def test_stories_are_well(name: str) -> None:
    told = STORIES[name]()
    assert told.wrong == []
    assert told.world.reached[world.IN_DOUBT] == (name != "the store is put back")
    assert told.state.fenced == ()
    assert not told.state.machines[0].up


def test_an_owner_that_is_fenced_above_the_floor_knows_that_its_turn_has_no_effect() -> None:
    tell = owned()
    tell.begin(0, TURN, PUT)
    tell.begin(1, OPEN)
    tell.until(0, None)
    assert tell.state.fenced == (b"turn 3 of opening 1 of machine 0",)
    assert tell.world.reached[world.IN_DOUBT] == 0
    assert tell.wrong == []


def test_a_put_without_an_answer_is_looked_for_and_counts() -> None:
    tell = owned()
    tell.begin(0, TURN, PUT)
    tell.take(Move(GO, 0, UNANSWERED))
    assert tell.pauses_at(0) == GET
    tell.until(0, None)
    assert (tell.state.acknowledged, tell.world.reached[world.MINE]) == (3, 1)


def test_a_put_that_was_given_up_lands_late_and_its_turn_counts() -> None:
    tell = owned()
    tell.begin(0, TURN, PUT)
    for _ in range(2):
        tell.take(Move(GO, 0, STRAY))
        tell.until(0, PUT)
    assert not tell.state.machines[0].up and tell.state.acknowledged == 2
    tell.take(Move(LAND))
    tell.begin(1, OPEN)
    assert [decoded(data).kind == BEGIN for data in tell.state.history] == [
        True,
        False,
        False,
        True,
    ]
    assert tell.wrong == []


def test_a_crash_leaves_a_put_that_may_land() -> None:
    tell = owned()
    tell.begin(0, TURN, PUT)
    tell.take(Move(CRASH, 0, LEFT))
    assert len(tell.state.strays) == 1 and not tell.state.machines[0].up
    tell.begin(1, OPEN)
    assert list(tell.world.of_strays(tell.state)) == []  # another turn is there: it can do nothing


def test_an_emptied_folder_is_restored_below_the_floor() -> None:
    tell = owned()
    tell.trim(0)
    assert tell.state.floor == 2
    tell.take(Move(EMPTY, 0))
    tell.begin(0, OPEN)
    assert tell.world.reached[world.RESTORED] == 1
    assert len(tell.state.machines[0].now.turns) == 3
    assert tell.wrong == []


def test_a_list_that_breaks_off_is_no_list() -> None:
    tell = owned()
    tell.begin(1, OPEN, LIST)
    tell.take(Move(GO, 1, CUT))
    tell.take(Move(GO, 1, CUT))
    assert not tell.state.machines[1].up and tell.wrong == []


def test_what_is_judged_wrong() -> None:
    tell = owned()
    tell.begin(0, TURN)
    state = tell.state
    assert wrong(state) == ""
    missing = {name: data for name, data in state.objects.items() if not name.endswith("2")}
    assert "J2: a fresh machine ends with Corruption" in wrong(state._replace(objects=missing))
    longer = state._replace(history=(*state.history, state.history[-1]))
    assert "J2: a fresh machine restores 3 turns, which are not the 4" in wrong(longer)
    shorter = state._replace(history=state.history[:2])
    assert "J3: the folder of machine 0 is no prefix" in wrong(shorter)
    commit = decoded(state.history[1]).payload
    assert list(judge.acknowledged(state, 2, commit)) == []
    assert "J2" in next(judge.acknowledged(state, 3, commit))
    assert "J2" in next(judge.acknowledged(state, 4, commit))
    assert "J4" in next(judge.without_effect(state, commit))
    assert "J1: slot 2" in next(judge.created_again(state, 2, state.history[2]))
    assert list(judge.created_again(state, 2, state.history[1])) == []
    again = list(judge.decided(state._replace(fenced=(commit,)), state.history[1]))
    assert [text[:2] for text in again] == ["J1", "J4", "J1"]
    owner = state.machines[0]
    assert list(judge.read(owner, Process("read", noted=3))) == []
    assert "J7" in next(judge.read(owner, Process("read", noted=4)))


def test_a_void_begin_is_right_below_the_floor_alone() -> None:
    tell = owned()
    tell.begin(0, TURN)
    owner = decoded(tell.state.history[0]).owner
    begin = seal(BEGIN, bytes(16), owner, 2, bytes(16), 0).data
    assert "J1" in next(judge.created_again(tell.state, 2, begin))
    tell.trim(0)
    assert list(judge.created_again(tell.state, 2, begin)) == []


def test_a_snapshot_of_a_turn_that_lost_is_noticed() -> None:
    tell = owned()
    folder = tell.state.machines[0].now
    undecided = folder._replace(turns=(*folder.turns, b"never decided"))
    state = tell.state._replace(snapshot=undecided)
    _, state = tell.world.answer(state, Call(PUT, f"floor/{3:020d}", b""))
    assert "J2" in wrong(state)


def test_a_true_folder_that_a_machine_refuses_is_noticed() -> None:
    tell = owned()
    machine = tell.state.machines[1].with_folder(Folder((b"never decided",)))
    tell.state = tell.state.with_machine(machine)
    tell.begin(1, OPEN)
    assert any("J0: a machine's open ended with Diverged" in text for text in tell.wrong)


@pytest.mark.parametrize("mutant", [one.mutant for one in PLANTED], ids=lambda mutant: mutant.name)
def test_a_removed_rule_fits_the_source(mutant: Mutant) -> None:
    function = function_of(mutant)
    before = function.__code__
    assert mutate(mutant) != before
    with planted(mutant):
        assert function.__code__ is not before
    assert function.__code__ is before


@pytest.mark.parametrize(
    ("name", "scene", "said"),
    [
        ("fence-believed", "a late taker, an owner in doubt, a trim", "J4: a turn of the history"),
        (
            "void-begin-removed",
            "a taker behind its BEGIN, an owner before its put, a trim",
            "J1: slot 3 has held another",
        ),
        ("floor-after-deletion", "a late taker, a trim, a doubt", "J2: a fresh machine"),
    ],
)
def test_a_removed_rule_is_found_with_the_moves_that_lead_there(
    name: str, scene: str, said: str
) -> None:
    (small,) = [one for one, _ in SCENES if one.name == scene]
    with BY_NAME[name].removed():
        explored = search(SmallShared(small), 50_000, 1)
    text = explored.violations[0]
    assert said in text and "\n1. host" in text


@pytest.mark.parametrize("name", BY_NAME)
def test_a_removed_rule_is_noticed(name: str) -> None:
    result = row._hunt(row.Hunt(name, row.KNOWN.get(name, 1)))
    assert not result.violations
    assert {*result.figures["tried"]} == {name}


def test_the_row_walks_searches_and_removes_rules(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row, "WALKS", 400)
    monkeypatch.setattr(row, "QUICK_SCENE", 300)
    monkeypatch.setattr(row, "QUICK_STATES", 1_500)
    result = row.run(replace(options, row="shared-model"))
    assert result.violations == []
    assert (result.runs, result.seeds) == (20, (1, 20))
    assert result.figures["rules removed and caught"] == f"{len(PLANTED)} of {len(PLANTED)}"
    assert result.figures["reached"][object_store.VOID] > 0
    assert CRASH in result.faults and UNANSWERED in result.faults


def test_an_event_that_no_walk_comes_to_is_a_violation(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row, "WALKS", 20)
    monkeypatch.setattr(row, "SCENES", ())
    monkeypatch.setattr(row, "STORIES", {})
    monkeypatch.setattr(row, "BY_NAME", {})
    monkeypatch.setattr(row, "MUST", ("nothing of this name",))
    result = row.run(options)
    assert any("nothing of this name" in text for text in result.violations)
    assert any("states" in text for text in result.violations)


def test_one_walk_is_repeated_by_its_seed(options: RowOptions) -> None:
    with BY_NAME["acknowledged-first"].removed():
        result = row.run(replace(options, seed=2, runs=1, row="shared-model"))
    (text,) = result.violations
    assert text.startswith("walk 2, step") and "J2: turn" in text
    assert text.endswith("again: planstep check shared-model --seed 2 --runs 1")


def test_the_control_needs_every_rule(options: RowOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    result = row.control(options)
    assert len(result.violations) == result.runs == len(PLANTED)
    harmless = BY_NAME["no-begin"]._replace(said=("nothing that is ever said",))
    monkeypatch.setattr(row, "TRIED_MAX", 2)
    monkeypatch.setattr(row, "BY_NAME", {"no-begin": harmless})
    result = row.control(options)
    assert result.violations == [] and result.figures["not_noticed"] == ["no-begin"]


def test_a_trim_outlives_its_owner() -> None:
    tell = owned()
    tell.begin(0, TURN)
    tell.take(Move(TRIM, 0))
    tell.take(Move(CRASH, 0))
    tell.begin(1, OPEN)
    tell.tidy()
    assert tell.world.reached[object_store.REMOVED] == 1  # turn 2; turn 1 is a BEGIN
    assert tell.wrong == []
