"""Tests that the reference has every name of the face, each with a docstring."""

import inspect
import re
from pathlib import Path

import pytest

import planstep

PAGES = Path(__file__).parents[2] / "docs" / "reference"
NAMES = [name for name in planstep.__all__ if name != "__version__"]


def test_every_name_is_there_once() -> None:
    text = "\n".join(page.read_text() for page in PAGES.glob("*.md"))
    assert sorted(re.findall(r"^\.\. auto\w+:: planstep\.(\w+)$", text, re.MULTILINE)) == sorted(
        NAMES
    )


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_docstring(name: str) -> None:
    item = getattr(planstep, name)
    text = inspect.getdoc(item) or ""
    assert text and not text.startswith(f"{name}("), "a NamedTuple without words of its own"
    if inspect.isclass(item) and not issubclass(item, (tuple, Exception)):
        for member, function in vars(item).items():
            if not member.startswith("_") and (callable(function)):
                assert inspect.getdoc(function), f"{name}.{member}"
