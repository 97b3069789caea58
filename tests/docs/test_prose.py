"""All pages and docstrings keep the rules of prose, and each rule finds its offences."""

import prose
import pytest

LONG = "Word" + " word" * 25


def test_all_pages_and_docstrings_keep_the_rules() -> None:
    offences = [(file.name, *offence) for file in prose.files() for offence in prose.check(file)]
    assert not offences


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("# Title\n\nWhat it does.\n", "opens with What"),
        ("# Title\n\n**Who** reads this?\n", "opens with **Who**"),
        (f"Fine.\n\n{LONG}.\n", "sentence of 26 words"),
        (f"Fine.\n\n- A point. {LONG}.\n", "sentence of 26 words"),
        (f"Fine.\n\nOne\n{LONG}\nmore.\n", "sentence of 28 words"),
        (f"| a | {LONG} {LONG} |\n", "cell of 52 words"),
    ],
)
def test_a_page_that_breaks_a_rule(text: str, rule: str) -> None:
    assert [offence.rule for offence in prose.page(text)] == [rule]


@pytest.mark.parametrize(
    "text",
    [
        f"# {LONG}\n\nFine.\n",
        f"Fine.\n\n```text\n{LONG}.\n```\n\n    {LONG}\n\n<!-- {LONG} -->\n",
        "Fine.\n\nWhat comes later may open so.\n",
        f"A call of `f({LONG})` is one word, as is [a link](https://example.org/a).\n",
        f"{'word ' * 20}end. {'Word ' * 20}end? `code` {'word ' * 20}end! (Word {'word ' * 20}end.)\n",
        "- " + "\n- ".join([LONG[:90]] * 5) + "\n",
    ],
)
def test_a_page_that_breaks_none(text: str) -> None:
    assert not list(prose.page(text))


def test_docstrings_of_public_names_are_checked() -> None:
    text = f'''"""As an opening."""
class Public:
    """How it works. Why not: {LONG}."""
    def shown(self):
        """{LONG}."""
    def _hidden(self):
        """What nobody sees."""
class _Private:
    """Of no interest."""
async def late():
    """That is late."""
    def inner():
        """Which is inside."""
'''
    offences = [(offence.line, offence.rule) for offence in sorted(prose.docstrings(text))]
    assert offences == [
        (1, "opens with As"),
        (3, "opens with How"),
        (5, "sentence of 26 words"),
        (11, "opens with That"),
    ]


def test_the_command_lists_offences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prose.main(["tests/docs"]) == 0
    monkeypatch.setattr(prose, "MAX_SENTENCE", 3)
    assert prose.main(["tests/docs"]) == 1
    assert "tests/docs/prose.py:1: sentence of" in capsys.readouterr().out
