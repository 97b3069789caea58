"""Tests the small world: the states explored, the verdict on wrong ones, and that bugs would be noticed."""

import pytest

from planstep.bench.proof.rows import model
from planstep.bench.proof.rows.mutants import BY_NAME
from planstep.bench.proof.rows.registry import RowOptions
from planstep.bench.proof.worlds.exhaustive import pulsar_world as pulsar
from planstep.bench.proof.worlds.exhaustive.invariants import judge, outcomes, unresolved
from planstep.bench.proof.worlds.exhaustive.pulsar_invariants import SmallPulsar
from planstep.bench.proof.worlds.exhaustive.scene import Scene
from planstep.bench.proof.worlds.exhaustive.search import explore, search
from planstep.bench.proof.worlds.exhaustive.world import DELIVER, Move, Small, State
from planstep.bench.proof.worlds.mutants.mutant import planted

TWO = Scene("two", 2, 0, 1, ("consume", "consume"), crashes=0, repeats=0, losses=0)


def test_every_interleaving_of_two_transactions_is_well() -> None:
    explored = explore(TWO, 5_000)
    assert explored.exhausted and not explored.violations
    assert explored.states > 50
    assert explored.quiet > 0
    assert {"a transaction aborts", "two transactions share a step"} <= set(explored.reached)


def test_the_same_states_in_the_same_order() -> None:
    crashing = Scene("two", 2, 0, 1, ("consume", "read"), repeats=0, losses=0)
    assert explore(crashing, 400) == explore(crashing, 400)


def test_a_state_is_known_again_whatever_way_it_was_come_to() -> None:
    small = Small(Scene("three", 3, 1, 2, ("consume",), crashes=0, repeats=0, losses=0))
    state = small.take(small.first(), Move("ask for", 0, kind="consume"))
    assert [item[0] for item in state.net] == [1, 2]

    def to(state: State, host: int) -> State:
        at = [item[0] for item in state.net].index(host)
        return small.take(state, Move(DELIVER, host, at))

    one, other = to(to(state, 1), 2), to(to(state, 2), 1)
    assert one.key == other.key != state.key


def test_a_crash_behind_the_sync_keeps_what_was_done_and_tells_nobody() -> None:
    small = Small(Scene("two", 2, 0, 1, ("consume",), repeats=0, losses=0))
    state = small.take(small.first(), Move("ask for", 0, kind="consume"))
    (move,) = [m for m in small.moves(state) if m.what == "deliver, and crash behind the sync"]
    after = small.take(state, move)
    assert not after.net and after.crashes == 0
    assert "1-1 at tablet 0x40100014" in unresolved(small.scene, after)


def test_what_is_judged_wrong() -> None:
    small = Small(TWO)
    state = small.take(small.first(), Move("ask for all", 0))
    while state.answers == () and small.waiting(state):
        state = small.take(state, Move("deliver all", min(small.waiting(state))))
    assert judge(TWO, state) == [] and state.decided
    tx, tablet, committed, step, n = state.decided[0]
    lie = ((tx, tablet, not committed, step, n), *state.decided[1:])
    assert any("B7" in text for text in judge(TWO, state._replace(decided=lie)))
    elsewhere = ((tx, tablet, committed, step + 1, n), *state.decided[1:])
    assert any("B3" in text for text in judge(TWO, state._replace(decided=elsewhere)))
    assert outcomes(state)
    early = state._replace(answers=((tx, True, step, n),), decided=())
    assert any("B8" in text for text in judge(TWO, early))


@pytest.mark.parametrize(
    "name", ["vote-not-awaited", "vote-reused", "step-reused", "waiter-not-woken"]
)
def test_planted_bugs_are_found_with_the_moves_that_lead_there(name: str) -> None:
    scene = Scene("bug", 2, 0, 1, ("consume", "consume", "read"), repeats=0, losses=0)
    with planted(BY_NAME[name]):
        explored = explore(scene, 5_000, 1)
    assert "1. host 0: ask for" in explored.violations[0]


def test_every_interleaving_of_two_clients_in_mode_pulsar_is_well() -> None:
    scene = pulsar.Scene("two", crashes=0, repeats=0, timeouts=0)
    explored = search(SmallPulsar(scene), 50_000)
    assert explored.exhausted and not explored.violations
    assert explored.states > 5_000 and explored.quiet > 100
    assert explored.reached[pulsar.CONFLICT] and not explored.reached[pulsar.EXPIRED]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("late-send-taken", "is over, and open"),
        ("acknowledged-unchecked", "told that it is committed"),
        ("acks-of-aborted", "committed are {}"),
        ("ends-forgotten", "for ever under way"),
        ("pending-unchecked", "the engine ended with"),
    ],
)
def test_planted_bugs_of_mode_pulsar_are_found(name: str, said: str) -> None:
    with planted(BY_NAME[name]):
        explored = search(SmallPulsar(pulsar.Scene("bug")), 10_000, 1)
    assert said in explored.violations[0] and "1. host 0: deliver" in explored.violations[0]


def test_the_row_breaks_every_false_invariant(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "QUICK", tuple((scene, 2_000) for scene, _ in model.QUICK))
    monkeypatch.setattr(model, "QUICK_STATES", 3_000)
    result = model.run(options)
    assert not result.violations
    assert result.figures["false invariants reached"] == len(model.FALSE)
    assert {"crash", "deliver twice"} <= set(result.faults)


def test_a_claim_that_no_state_breaks_is_a_violation(
    options: RowOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "QUICK", ((TWO, 2_000),))
    monkeypatch.setattr(model, "QUICK_PULSAR", ())
    result = model.run(options)
    assert any("a vote never arrives twice" in text for text in result.violations)
    assert any("states" in text for text in result.violations)


def test_the_control_is_wrong_and_says_how(options: RowOptions) -> None:
    first, second = (model.control(options).violations for _ in range(2))
    assert first == second
    assert "\n1. host 0: ask for" in first[0]
