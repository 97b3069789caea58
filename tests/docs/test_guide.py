"""Runs every page's code, top to bottom, in a folder of its own, and compares the output with the page.

```python     runs in the page's namespace
```text       directly after it: its output; … stands for anything
```console    `$ planstep …` lines run too, and must succeed; the lines after one are its output
"""

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

from planstep.api import slots

ROOT = Path(__file__).parents[2]
ELSEWHERE = (
    "spark.md",
)  # tests/spark/test_page.py runs this one, with a Spark; README.md: tests/test_readme.py
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if page.name not in ELSEWHERE)
NEEDS = {"columns.md": ("pyarrow", "pandas")}
OPEN_TO_THE_END = ("notebooks.md",)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMPARE = doctest.OutputChecker()
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    language: str
    line: int
    text: str
    printed: str | None


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    fences = list(_FENCE.finditer(text))
    for fence, following in zip_longest(fences, fences[1:]):
        printed = None
        if following is not None and following.group(1) == "text":
            if not text[fence.end() : following.start()].strip():
                printed = following.group(2)
        line = text.count("\n", 0, fence.start()) + 1
        yield Block(fence.group(1), line, fence.group(2), printed)


def open_stores() -> list[str]:
    return [path for path, slot in slots._slots.items() if slot.engine is not None]


def same(wanted: str, got: str, where: str) -> None:
    wanted = wanted.replace("…", "...")
    assert _COMPARE.check_output(wanted, got, _FLAGS), f"{where} prints:\n{got}"


def run_command(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Returns a command's output; runs it in this process, which is quick, unless it has a store open."""
    pytest.importorskip("typer")
    words = shlex.split(line, comments=True)[1:]
    if open_stores():
        program = [sys.executable, "-c", "from planstep.cli import main; main()"]
        return subprocess.run([*program, *words], check=True, capture_output=True, text=True).stdout
    from planstep.cli import app

    app.app(words, standalone_mode=False)
    return capfd.readouterr().out


def run_commands(text: str, where: str, capfd: pytest.CaptureFixture[str]) -> None:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, wanted = part.partition("\n")
        if not line.startswith("planstep "):
            continue
        got = run_command(line, capfd)
        if wanted.strip():
            same(wanted, got, f"{where}: {line}")


def close_stores() -> None:
    """Closes what a page has left open."""
    for slot in list(slots._slots.values()):
        if slot.engine is not None:
            slot.engine.lifetime.opens = 1
            slot.engine.close()


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_the_page_says_what_happens(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for package in NEEDS.get(page.name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    names: dict[str, object] = {"__name__": "page"}
    try:
        for block in blocks(page):
            where = f"{page.name}:{block.line}"
            if block.language == "python":
                code = compile("\n" * block.line + block.text, str(page), "exec")
                exec(code, names)
                sys.stdout.flush()
                got = capfd.readouterr().out
                if block.printed is not None:
                    same(block.printed, got, where)
            elif block.language == "console":
                run_commands(block.text, where, capfd)
        assert not open_stores() or page.name in OPEN_TO_THE_END, "the page leaves its stores open"
    finally:
        close_stores()


def test_the_first_page_fits_a_narrow_screen() -> None:
    lines = [
        line for block in blocks(ROOT / "docs" / "index.md") for line in block.text.split("\n")
    ]
    assert max(map(len, lines)) <= 45  # docs/_static/planstep.css has space for that at 400 pixels


def test_the_pages_show_code() -> None:
    examples = [block for page in PAGES for block in blocks(page) if block.language == "python"]
    assert len(examples) > 30
