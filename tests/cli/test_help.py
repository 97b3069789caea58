"""Tests readable help, completion of names, and wrong usage reported on stderr."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import planstep
from planstep.cli import names
from planstep.cli.app import app


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_help_has_an_example_and_what_json_holds(words: tuple[str, ...], call: Any) -> None:
    status, out, err = call(*words, "--help")
    assert (status, err) == (0, "")
    assert re.search(rf"Examples?:\s+.*planstep {' '.join(words)} ", out, re.DOTALL)
    assert "JSON:" in out
    for parameter in COMMANDS[words].params:
        assert getattr(parameter, "help", None) or parameter.name == "help", parameter.name
        if parameter.param_type_name == "option" and parameter.name != "help":
            assert re.fullmatch(r"--[a-z-]+", parameter.opts[0])


def test_every_command_takes_its_store_from_the_environment(monkeypatch: Any, call: Any) -> None:
    monkeypatch.setenv("PLANSTEP_STORE", "/does/not/exist")
    for words, command in COMMANDS.items():
        needed = {p.name for p in command.params if p.param_type_name == "argument" and p.required}
        if needed == {"store"} and words != ("export",):
            _, _, err = call(*words)
            assert "/does/not/exist is not a store" in err, words


def test_version_and_misspelt_commands(call: Any) -> None:
    assert call("--version") == (0, planstep.__version__ + "\n", "")
    status, out, err = call("topic", "raed")
    assert (status, out) == (2, "") and "read" in err
    status, out, err = call("topic", "list", "x", "--jsno")
    assert (status, out) == (2, "") and "--json" in err


# completion ------------------------------------------------------------------------------------


@pytest.fixture
def complete(call: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def complete(*words: object) -> list[str]:
        line = " ".join(map(str, ("planstep", *words)))
        monkeypatch.setenv("_PLANSTEP_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        status, out, err = call()
        assert (status, err) == (0, "")
        return str(out).split()

    return complete


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("help") / "shop"
    with planstep.open(store) as db:
        db.create_topic("clicks").create_consumer("mailer")
        db.create_topic("orders")
        db.create_table("clients")
    return store


def test_names_are_completed_from_the_store(
    shop: Path, complete: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complete("topic", "read", shop, "cl") == ["clicks"]
    assert complete("table", "scan", shop, "cl") == ["clients"]
    assert complete("topic", "read", shop, "") == ["clicks", "orders"]
    assert complete("consumer", "seek", shop, "clicks", "m") == ["mailer"]
    assert complete("consumer", "lag", shop, "clicks", "") == ["mailer"]
    assert complete("consumer", "lag", shop, "nonsense", "") == []
    monkeypatch.setenv("PLANSTEP_STORE", str(shop))
    assert complete("topic", "read", "cl") == ["clicks"]
    assert complete("consumer", "describe", "clicks", "") == ["mailer"]
    assert complete("topic", "read", shop, "or") == ["orders"]
    assert complete("topic", "re") == ["read", "redrive"]
    with planstep.open(shop) as db:  # even in this process: nothing to offer, and no noise
        assert complete("topic", "read", shop, "cl") == []
        assert db.topics()


def test_completion_never_disturbs(
    tmp_path: Path, complete: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complete("topic", "read", tmp_path / "none", "c") == []
    (tmp_path / "bad" / "host-0").mkdir(parents=True)
    (tmp_path / "bad" / "host-0" / "meta").write_text("nonsense")
    assert complete("topic", "read", tmp_path / "bad", "c") == []
    monkeypatch.setattr(names, "_SECONDS_MAX", 0.01)
    monkeypatch.setattr(planstep, "open", lambda *_, **__: time.sleep(0.2))
    assert complete("topic", "read", tmp_path / "bad", "c") == []


def test_json_is_one_object_with_names_in_snake_case(shop: Path, done: Any) -> None:
    def check(value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                assert re.fullmatch(r"[a-z][a-z_]*", name)
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)

    for words in (
        ("topic", "describe", shop, "clicks"),
        ("topic", "list", shop),
        ("consumer", "describe", shop, "clicks", "mailer"),
        ("table", "list", shop),
        ("stats", shop),
        ("tx", "list", shop),
        ("log", "dump", shop),
        ("verify", shop),
    ):
        check(json.loads(done(*words, "--json")))
