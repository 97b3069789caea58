"""Tests that each claim about isolation names its one exception, or the way to avoid it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "RELIABILITY.md",
    *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
]


@pytest.mark.parametrize("page", PAGES)
def test_strict_serializability_names_its_exception(page: str) -> None:
    for paragraph in re.split(r"\n\n|\n(?=\| )", (ROOT / page).read_text()):
        if re.search(r"strict(ly)? serializ", paragraph):
            assert "exact" in paragraph, paragraph
