"""Tests that all text about a system or a mode comes from its entry only."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import planstep.bench.compare
from planstep.bench.compare.ranking import sides
from planstep.bench.compare.systems import ENTRIES, MODES
from planstep.bench.compare.systems.base import SETTING_KEYS
from planstep.bench.report.text import published_figures

BENCH = Path(planstep.bench.compare.__file__).parents[1]
NAMES = [mode.name for mode in MODES if mode.original]
"""Names of modes such as "kafka", which are not words of their own elsewhere."""


def spoken(path: Path) -> Iterator[str]:
    """Yields the string literals of a file, without docstrings."""
    tree = ast.parse(path.read_text())
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.value


def test_nothing_but_its_entry_calls_a_mode_by_name() -> None:
    names = [
        (path.name, text)
        for folder in ("compare", "report")
        for path in sorted((BENCH / folder).rglob("*.py"))
        if not path.stem.endswith("_entry")
        and path.name != Path(published_figures.__file__).name
        and not path.stem.startswith("apache_kafka")  # the product's own files
        for text in spoken(path)
        if any(name in text.lower() for name in NAMES)
    ]
    assert names == [("base.py", name) for name in SETTING_KEYS[2:]], "the JSON's keys, no more"


def test_an_entry_names_placements_that_it_has() -> None:
    assert len(ENTRIES) == sum(len(mode.systems) for mode in MODES), "each name is there once"
    for name, entry in ENTRIES.items():
        assert name == entry.name and entry.headline in entry.placements


def test_a_peer_loads_its_client_before_its_first_use() -> None:
    """Else a run that times its server's start times imports, too."""
    program = (
        "import sys\nfrom planstep.bench.compare.systems import ENTRIES\n"
        "def clients(): return {'psycopg', 'confluent_kafka'} & sys.modules.keys()\n"
        "assert not clients(), clients()\n"
        "for entry in ENTRIES.values():\n    entry.load()\n"
        "print(len(clients()))"
    )
    loaded = int(subprocess.check_output([sys.executable, "-c", program]))
    ready = {
        mode.name for mode in MODES if mode.systems[0].peer and not mode.systems[0].unavailable()
    }
    assert loaded == len(ready)


def test_each_mode_names_changes_of_its_own() -> None:
    for mode in MODES:
        all_ = [change for row in mode.changes for change in row]
        assert len(all_) == len(set(all_))
    assert len(published_figures.WHO_PERSISTS) == len(MODES[0].changes)


def test_the_two_by_two_is_of_whoever_the_figures_name() -> None:
    for mode in MODES[1:]:
        for system in mode.systems:
            if len(system.placements) > 1:
                assert [side.system for side in sides({mode.name: system.name})] == [
                    MODES[0].systems[0],
                    system,
                ]
    assert sides(None) == sides({})
