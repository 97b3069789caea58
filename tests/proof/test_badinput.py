"""Tests row badinput: its negative control, a decoder that believes all, and its parts."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

import planstep
from planstep.bench.proof.disks import decoders, faces, false_owner, link_limits
from planstep.bench.proof.disks.link_limits import LIMITS, reach, soon
from planstep.bench.proof.disks.mutating import mutate, nested_value, odd_value
from planstep.bench.proof.disks.odd_messages import PulsarHost
from planstep.bench.proof.disks.owner_struck import Struck
from planstep.bench.proof.patching import exchange
from planstep.bench.proof.rows import badinput
from planstep.bench.proof.rows.registry import RowOptions
from planstep.runtime.processes import peer
from planstep.tablets.pulsar.subscriptions import Subscriptions


@pytest.mark.parametrize("name", ["..", ".", "a/b", "", "a" * 201, "ä", 7, None])
def test_what_is_no_name_and_taken_for_one_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: object
) -> None:
    assert badinput._named_wrongly(name) == ""
    monkeypatch.setattr(badinput, "check_name", lambda name: name)
    assert badinput._named_wrongly(name).endswith("is taken for a name")


def test_a_name_that_is_refused_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> str:
        raise planstep.InvalidName("no")

    monkeypatch.setattr(badinput, "check_name", refuse)
    assert badinput._named_wrongly("...") == "'...' is refused as a name"


def test_the_control_is_noticed(tmp_path: Path) -> None:
    options = RowOptions(tmp_path, tmp_path / "memory", quick=True, workers=2, runs=200)
    result = badinput.control(options)
    assert any("IndexError" in why for why in result.violations)
    assert any("a link stays" in why for why in result.violations)


def test_the_same_seed_is_the_same_input() -> None:
    data = b"something that is mutated"
    drawn = [mutate(Random(n), data) for n in range(50)]
    assert drawn == [mutate(Random(n), data) for n in range(50)]
    assert len(set(drawn)) > 25
    assert [repr(type(odd_value(Random(n)))) for n in range(50)] == [
        repr(type(odd_value(Random(n)))) for n in range(50)
    ]
    value, depth = nested_value(300), 0
    while value:
        (value,), depth = value, depth + 1
    assert depth == 300


def test_what_is_not_allowed_is_said() -> None:
    def asserting(data: bytes) -> None:
        raise AssertionError("a bug")

    assert "a bug" in decoders.feed_decoder("x", asserting, (ValueError,), b"")


def test_a_call_that_breaks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    db = faces.open_sample(1)

    def broken(self: object, name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(type(db), "topic", broken)
    assert "KeyError" in faces.misuse(Random(1), db, type(db), "topic")
    monkeypatch.undo()
    assert faces.misuse(Random(1), db, type(db), "topic") == ""
    db.close()


def test_a_refused_call_that_changes_something_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    db = faces.open_sample(1)

    def half(self: planstep.Engine, name: str) -> None:
        self.table("rows").put("k", 2)
        raise planstep.UnknownName("topic", "gone", None)

    monkeypatch.setattr(type(db), "topic", half)
    problem = faces.misuse(Random(1), db, type(db), "topic", holds=True)
    assert "refused and changed" in problem
    assert faces.misuse(Random(1), db, type(db), "topic", holds=True) == ""  # it is 2 by now
    db.close()


def test_what_no_call_names_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def spoiling(random: Random, db: planstep.Engine, *call: object, holds: bool) -> str:
        db.table(faces.KEPT).put("k", "another")
        return ""

    monkeypatch.setattr(faces, "misuse", spoiling)
    task = badinput._Task("face of deterministic on 1", 0, 1, 1, tmp_path)
    assert any("in place of" in why for why in badinput._feed(task).violations)


def test_odd_messages_of_mode_pulsar_are_answered() -> None:
    host = PulsarHost()
    assert [why for n in range(500) if (why := host.feed(Random(n)))] == []
    assert host.ends() == ""


def test_a_tablet_that_breaks_at_a_message_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    host = PulsarHost()

    def broken(self: Subscriptions, message: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(Subscriptions, "_seek", broken)
    with pytest.raises(KeyError):  # it cannot even begin again
        for n in range(100):
            host.feed(Random(n))


@pytest.mark.parametrize("group", ["messages of pulsar", "modes", "decode message of pulsar"])
def test_a_piece_about_mode_pulsar_is_clean(tmp_path: Path, group: str) -> None:
    result = badinput._feed(badinput._Task(group, 0, 9, 1, tmp_path))
    assert result.violations == []


def test_a_store_that_opens_in_another_mode_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = planstep.open

    def careless(path: Path, mode: object = None, **words: object) -> planstep.Engine:
        return opened(path)

    feed = badinput._mode_feed(badinput._Task("modes", 0, 9, 1, tmp_path), "")
    monkeypatch.setattr(planstep, "open", careless)
    said = [why for n in range(9) if (why := feed(Random(n), n))]
    assert len(said) == 6 and all("opens with" in why for why in said)


@pytest.mark.parametrize("group", ["links of deterministic", "links of kafka", "links of pulsar"])
def test_an_owner_stays_whatever_it_is_sent(tmp_path: Path, group: str) -> None:
    assert badinput._feed(badinput._Task(group, 0, 60, 1, tmp_path)).violations == []


@pytest.mark.parametrize("number", range(len(LIMITS)), ids=list(LIMITS))
def test_a_limit_holds(tmp_path: Path, number: int) -> None:
    assert badinput._feed(badinput._Task("limit", number, 1, 1, tmp_path)).violations == []


def test_a_limit_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_limits, "STILL_SECONDS", 20.0)

    def prepare() -> None:
        soon()
        exchange(peer, "_CALLS_MAX", 1 << 40)
        exchange(peer, "_UNSENT_MAX", 1 << 40)

    struck = Struck(tmp_path / "s", "deterministic", prepare)
    try:
        assert "without end" in reach(struck, "ids, never reads")
    finally:
        struck.end()


def test_a_lost_commit_of_the_good_process_is_said(tmp_path: Path) -> None:
    struck = Struck(tmp_path / "s", "deterministic")
    try:
        real = struck._said

        def said(child: Any, kind: type) -> Any:
            value = real(child, kind)
            return value + 1 if kind is int else value

        struck._said = said  # type: ignore[method-assign]
        assert "commits there are" in struck.finish()
    finally:
        struck.end()


def test_an_engine_is_not_deceived(tmp_path: Path) -> None:
    assert badinput._piece(badinput._Task("deceived", 0, 8, 1, tmp_path)).violations == []


def test_a_wrong_answer_to_a_deceived_engine_is_said(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t")
        db.create_table("n")
        assert "it reads" in false_owner._look(db)
        assert "a commit is reported" in false_owner._commit(db)
