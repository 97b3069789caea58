"""Tests that a line that reads a tablet's row also names the row's class: types do not know what a key means."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORES = [*sorted((ROOT / "tablets").glob("*.py")), ROOT / "coordinator" / "plan.py"]


def reads(node: ast.expr) -> bool:
    """Recognizes `space.get(…)`, `self.space.scan(…) or …` and the like."""
    if isinstance(node, ast.BoolOp):
        return reads(node.values[0])
    if isinstance(node, ast.Tuple):
        return any(map(reads, node.elts))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    held = node.func.value
    name = held.attr if isinstance(held, ast.Attribute) else getattr(held, "id", "")
    return name == "space" and node.func.attr in ("get", "scan")


def unnamed(source: str) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign) and reads(node.value)
    ]


@pytest.mark.parametrize("file", CORES, ids=lambda file: str(file.relative_to(ROOT)))
def test_each_row_that_is_read_has_a_type(file: Path) -> None:
    assert unnamed(file.read_text()) == []


def test_one_without_is_found() -> None:
    assert unnamed('a: int = space.get(b"a")\nb = self.space.get(b"b") or ()\n') == [2]
