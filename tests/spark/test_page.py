"""Runs the guide's page on Spark, as tests/docs runs the others, in the session of these tests."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import test_guide

from planstep.spark import options, stream_options

ROOT = Path(__file__).parents[2]
INTERNAL = {"snapshot", "transaction"}
"""Options that a snapshot or a transaction sets."""


def test_the_page_says_what_happens(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "guide" / "spark.md"
    # Spark's processes have another working directory than this test.
    text = page.read_text().replace("shop.planstep", str(tmp_path / "shop.planstep"))
    text = text.replace('"arrived"', f'"{tmp_path / "arrived"}"')
    text = text.replace('"checkpoint-', f'"{tmp_path}/checkpoint-')
    copy = tmp_path / "spark.md"
    copy.write_text(text)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    count = 0
    for block in test_guide.blocks(copy):
        if block.language == "python":
            capfd.readouterr()
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
            sys.stdout.flush()
            got = capfd.readouterr().out
            if block.printed is not None:
                count += 1
                test_guide.same(block.printed, got, f"spark.md:{block.line}")
        elif block.language == "console":
            test_guide.run_command(block.text.removeprefix("$ ").strip(), capfd)
    assert count > 6


@pytest.mark.parametrize(
    "heading, names",
    [
        ("reading", {*options.BOTH, *options.READ}),
        ("streams", {*options.STREAM, *stream_options.STARTS, "path", "topic", "wait"}),
        ("writing", {*options.BOTH, *options.WRITE}),
    ],
)
def test_the_tables_of_options_are_complete(heading: str, names: set[str]) -> None:
    text = (ROOT / "docs" / "guide" / "spark.md").read_text()
    section = text.partition(f"### Options for {heading}\n")[2].partition("\n#")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == names - INTERNAL
