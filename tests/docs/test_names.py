"""Tests that every test, file and link that a page names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAD_PAGES = ("README.md", "ARCHITECTURE.md", "RELIABILITY.md", "CHANGELOG.md", "CONTRIBUTING.md")
PAGES = [*(ROOT / name for name in HEAD_PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
SCENARIOS = ROOT / "tests" / "SCENARIOS.md"
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
_TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
_FILE = re.compile(r"`((?:tests|docs|engine|proto|tablets|coordinator|proxy|bench)/[\w/.-]+)`")

_LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub and Sphinx give a page's headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def functions_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_what_is_named_exists(page: Path) -> None:
    text = page.read_text()
    for file, name in _TEST.findall(text):
        assert (ROOT / file).is_file(), file
        assert name.startswith("test_") and name in functions_of(ROOT / file), f"{file}::{name}"
    for file in _FILE.findall(text):
        assert (ROOT / file).exists(), file
    for target in _LINK.findall(text):
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), target


def test_each_letter_has_its_test() -> None:
    text = (ROOT / "docs" / "acid.md").read_text()
    cells = dict(re.findall(r"^\| (\w+, [ACID]) \| `([\w/.:]+)` \|$", text, re.MULTILINE))
    assert set(cells) == {
        *("write, A", "write, I", "write, D"),
        *("move, A", "move, C", "move, I", "move, D"),
    }
    named = {cell.split("::")[1] for cell in cells.values()}
    assert named == {
        name
        for name in functions_of(ROOT / "tests" / "api" / "test_acid.py")
        if name.startswith("test_")
    }


def test_the_scenarios_name_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_[a-z0-9_]+?)(?:\[[^\]]*\])?`", SCENARIOS.read_text()))
    files = (ROOT / "tests").rglob("test_*.py")
    assert named and named <= {name for file in files for name in functions_of(file)}
