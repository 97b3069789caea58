"""Tests row badinput: its negative control, a decoder that believes all, and its parts."""

from pathlib import Path
from random import Random

import pytest

import planstep
from planstep.bench.proof.disks import decoders, faces
from planstep.bench.proof.disks.mutating import mutate, nested_value, odd_value
from planstep.bench.proof.disks.odd_messages import PulsarHost
from planstep.bench.proof.rows import badinput
from planstep.bench.proof.rows.registry import RowOptions
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
    assert any("IndexError" in why or "error" in why for why in result.violations)


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
