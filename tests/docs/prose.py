"""Checks the prose of pages and docstrings: sentences short, openings with a subject, table cells small.

    opener    the first sentence of a page or docstring opens with What, Who, How, Of, ... in place of a subject
    sentence  more than 25 words: any sentence of a page, the first one of a docstring
    cell      more than 40 words in a cell of a page's table

`make lint` and test_prose.py fail where a page or docstring breaks a rule; `make prose` lists the offences.

Left out: code, headings, docstrings of private names, whatever a docstring says after its first sentence.
Next: tests/docs/test_prose.py.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PYTHON = ("engine", "tablets", "coordinator", "proxy", "proto", "bench", "docs", "tests")
MAX_SENTENCE, MAX_CELL = 25, 40
OPENERS = frozenset(
    "as how nobody of somebody that those what whatever when whenever where wherever "
    "whether which whichever who whoever whom whose why".split()
)
_FENCE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n+)+", re.MULTILINE)
_CODE = re.compile(r"(`+)[^`].*?\1", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[(\"'*_\[]*[A-Z0-9¹§])")
_ABBREVIATED = re.compile(r"\b(e\.g|i\.e|vs|etc|cf)\.")
_WORD = re.compile(r"[^\W_]")


class Offence(NamedTuple):
    """A breach of a rule at a line of a file."""

    line: int
    rule: str
    text: str


def words(text: str) -> list[str]:
    """Splits text into words; a code span is one word, a link is the words that it shows."""
    plain = _LINK.sub(r"\1", _CODE.sub("code", text))
    return [word for word in plain.split() if _WORD.search(word)]


def sentences(text: str) -> list[str]:
    """Splits a paragraph at full stops; a stop within code or an abbreviation ends nothing."""
    codes: list[str] = []

    def hide(match: re.Match[str]) -> str:
        codes.append(match.group())
        return f"`X{len(codes) - 1}`"

    hidden = _ABBREVIATED.sub(r"\1", _CODE.sub(hide, " ".join(text.split())))
    parts = _END.split(re.sub(r"(?<=[.!?]\s)`X", "X`X", hidden))
    return [re.sub(r"X?`X(\d+)`", lambda m: codes[int(m.group(1))], part) for part in parts if part]


def too_long(line: int, text: str) -> Iterator[Offence]:
    count = len(words(text))
    if count > MAX_SENTENCE:
        yield Offence(line, f"sentence of {count} words", text)


def opening(line: int, text: str) -> Iterator[Offence]:
    first = words(text)[:1]
    if first and re.sub(r"\W", "", first[0]).lower() in OPENERS:
        yield Offence(line, f"opens with {first[0]}", text)


def blank(match: re.Match[str]) -> str:
    """Keeps the line numbers of what follows."""
    return "\n" * match.group().count("\n")


def page(text: str) -> Iterator[Offence]:
    """Checks a Markdown page: its opening, every sentence, every cell."""
    for hidden in (_FENCE, _COMMENT, _INDENTED):
        text = hidden.sub(blank, text)
    opened, start, paragraph = False, 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        boundary = not line.strip() or line.startswith(("#", "|")) or _ITEM.match(line)
        if boundary and paragraph:
            for index, sentence in enumerate(sentences(" ".join(paragraph))):
                if not opened and not index:
                    yield from opening(start, sentence)
                    opened = True
                yield from too_long(start, sentence)
            paragraph = []
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line)[1:-1]:
                count = len(words(cell))
                if count > MAX_CELL:
                    yield Offence(number, f"cell of {count} words", cell.strip())
        elif line.strip() and not line.startswith("#"):
            start = start if paragraph else number
            paragraph.append(_ITEM.sub("", line, count=1) if boundary else line)


def docstrings(text: str) -> Iterator[Offence]:
    """Checks the first sentence of each docstring of a module, class or public function."""
    todo: list[ast.AST] = [ast.parse(text)]
    for node in todo:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if getattr(node, "name", "public").startswith("_"):
                continue
            docstring = ast.get_docstring(node)
            if docstring:
                line = node.body[0].lineno
                first = sentences(docstring.split("\n\n")[0])[0]
                yield from opening(line, first)
                yield from too_long(line, first)
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                todo += node.body


def files() -> Iterator[Path]:
    """All pages and modules of the repository; links inside the package are passed by."""
    yield from sorted([*ROOT.glob("*.md"), *ROOT.glob("*.py"), *ROOT.glob("docs/**/*.md")])
    for folder in PYTHON:
        modules = sorted((ROOT / folder).rglob("*.py"))
        yield from (file for file in modules if not file.name.endswith("_pb2.py"))


def check(file: Path) -> list[Offence]:
    """Lists the offences of one file."""
    text = file.read_text(encoding="utf-8")
    return sorted(page(text) if file.suffix == ".md" else docstrings(text))


def main(rooms: list[str]) -> int:
    """Lists the offences of the files or folders named, or of all; returns 1 where there are some."""
    total = 0
    for file in files():
        name = file.relative_to(ROOT)
        if rooms and not any(name.is_relative_to(room) for room in rooms):
            continue
        for offence in check(file):
            text = offence.text if len(offence.text) <= 90 else offence.text[:89] + "…"
            print(f"{name}:{offence.line}: {offence.rule}: {text}")
            total += 1
    print(f"prose: {total} offences")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
