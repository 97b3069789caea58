"""Tests that a mode is only a registry entry: no code outside its rooms compares its name. Imports:
`lint-imports`."""

import ast
from pathlib import Path

import pytest

from planstep.host.modes import MODES
from planstep.runtime.open_stores import HOOKS

ROOT = Path(__file__).parents[2]
FOLDERS = ("engine/planstep", "tablets", "coordinator", "proxy", "proto")
NOT_HERE = {"bench", *FOLDERS[1:], *MODES}
"""Folders that are skipped: links, the modes' rooms, and bench, which compares modes by name."""


def asked_for(source: str) -> list[str]:
    """Returns the comparisons with a mode's name."""
    asking = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Compare, ast.MatchValue))
    ]
    return [
        ast.unparse(node)
        for node in asking
        if any(isinstance(leaf, ast.Constant) and leaf.value in MODES for leaf in ast.walk(node))
    ]


def test_the_registries_know_the_same_modes() -> None:
    assert set(MODES) == set(HOOKS)
    assert all(HOOKS[name].mode == MODES[name].name == name for name in MODES)


@pytest.mark.parametrize("folder", FOLDERS)
def test_nobody_asks_which_mode_it_is(folder: str) -> None:
    files = [
        file
        for file in (ROOT / folder).rglob("*.py")
        if not NOT_HERE.intersection(file.relative_to(ROOT / folder).parts)
    ]
    assert files
    assert {file.name: lines for file in files if (lines := asked_for(file.read_text()))} == {}


def test_who_asks_is_found() -> None:
    assert asked_for('if runtime.mode == "kafka":\n    pass') == ["runtime.mode == 'kafka'"]
    assert asked_for('x = mode not in ("deterministic", None)')
    assert not asked_for('HOOKS = {"kafka": KafkaHooks}')
