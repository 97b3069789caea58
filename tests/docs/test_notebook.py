"""Runs a page's cells twice in one namespace without an error; checks that their output is valid, escaped HTML."""

import ast
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import planstep

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "notebooks.md"
EVIL = "<script>alert('x')</script>&\"<td>"


class Tags(HTMLParser):
    """Parses HTML: collects its tags and text, and checks that tags nest."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.names: set[str] = set()
        self.text = ""
        self.feed(source)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell like a notebook, and returns the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_cells_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    pages = []
    engines = []
    for _ in range(2):
        for cell in cells:
            value = run_cell(cell, names)
            if hasattr(value, "_repr_html_"):
                pages.append(value._repr_html_())
        engines.append(names["db"])
    assert engines[0] is engines[1]
    assert len(pages) == 4
    for source in pages:
        assert Tags(source).names <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    while not names["db"].closed:
        names["db"].close()


SHOWN: dict[str, Callable[[planstep.Engine], Any]] = {
    "engine": lambda db: db,
    "topic": lambda db: db.topic("t"),
    "description": lambda db: db.topic("t").describe(),
    "table": lambda db: db.table("rows"),
    "batch": lambda db: db.topic("t").read(max_records=100),
    "rows": lambda db: db.table("rows").scan(),
    "consumer": lambda db: db.topic("t").consumer("c"),
}


@pytest.mark.parametrize("what", SHOWN)
def test_what_is_shown_is_valid_and_escaped(what: str) -> None:
    with planstep.open(":memory:") as db:
        db.create_topic("t", format="json", partitions=2).write_batch(
            [{"<b>": EVIL, "n": n} for n in range(30)], keys=[EVIL] * 30
        )
        db.create_table("rows").load({**{(EVIL, n): EVIL * 20 for n in range(30)}, EVIL: None})
        source = SHOWN[what](db)._repr_html_()
    page = Tags(source)
    assert page.names <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert "table" in page.names
    if what in ("table", "batch", "rows"):
        assert "<script>alert(" in page.text
        assert source.count("<tr>") == 21  # the head, and twenty


def test_a_table_of_many_rows_says_so() -> None:
    with planstep.open(":memory:") as db:
        table = db.create_table("few")
        table.load({n: n for n in range(20)})
        assert "table &#x27;few&#x27;: 20 rows" in table._repr_html_()
        table.put(20, 20)
        assert "the first 20 rows" in table._repr_html_()


def test_a_closed_engine_is_shown_too() -> None:
    with planstep.open(":memory:") as db:
        pass
    assert "closed" in Tags(db._repr_html_()).text
