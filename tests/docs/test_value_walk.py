"""Tests the table of a value's way in ARCHITECTURE.md: each file and type that it names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| ([^|]+) \| `([\w/.]+\.py)` \| (.+) \|$", re.MULTILINE)
_CALL = re.compile(r"`(\w+(?:\.\w+)?)`")
_HOLDS = re.compile(r"`(\w+(?:\.\w+)?): ([^`]+)`")


def section() -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return text.split("\n## The way of a value\n")[1].split("\n## ")[0]


STEPS = [(step.strip(), file, types) for step, file, types in _ROW.findall(section())]


def plain(node: ast.AST) -> str:
    """Returns a type as the page writes it, without spaces and quotes."""
    return re.sub(r"[\s'\"]", "", ast.unparse(node))


def annotated(tree: ast.AST, owner: str, name: str) -> list[str]:
    """Returns the annotations of `name` in a function, method or class: a parameter, a field, a local,
    "returns"."""
    annotations: list[str] = []
    *classes, last = owner.split(".")
    places = [tree]
    for part in (*classes, last):
        places = [
            node
            for place in places
            for node in ast.walk(place)
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == part
        ]
    for place in places:
        for node in ast.walk(place):
            if isinstance(node, ast.AnnAssign):
                target = node.target
                known = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
                if known == name:
                    annotations.append(plain(node.annotation))
            elif isinstance(node, ast.arg) and node.arg == name and node.annotation is not None:
                annotations.append(plain(node.annotation))
        if isinstance(place, ast.FunctionDef) and name == "returns" and place.returns is not None:
            annotations.append(plain(place.returns))
    return annotations


def test_the_walk_has_both_ways() -> None:
    assert len(STEPS) >= 15
    assert len(section().strip().splitlines()) <= 25


@pytest.mark.parametrize(("step", "file", "types"), STEPS, ids=[f"{s}-{f}" for s, f, _ in STEPS])
def test_a_step_is_as_it_is_drawn(step: str, file: str, types: str) -> None:
    assert (ROOT / file).is_file(), file
    tree = ast.parse((ROOT / file).read_text())
    owner, *_ = _CALL.findall(step)
    held = _HOLDS.findall(types)
    assert held, types
    for name, kind in held:
        actual = annotated(tree, owner, name)
        assert re.sub(r"\s", "", kind.replace(" or ", "|")) in actual, (owner, name, actual)
