"""Reads a report as a browser does: its outline, with the drawings left blank, which is quick."""

import re
from html.parser import HTMLParser
from typing import Any

from planstep.bench.report.html.drawing import Drawing, Rendered
from planstep.bench.report.html.page import html
from planstep.bench.report.html.sections import Page

NOTHING: dict[str, Any] = {"schema_version": 1, "source": "python", "runs": {}}
"""The figures of a comparison without runs."""
VOID = {"meta", "link", "br", "hr", "img", "input"}


def drawings(page: Page) -> list[Drawing]:
    return list(page.drawings)


def undrawn(page: Page) -> str:
    """Returns the page with its drawings left blank, which is quick."""
    return html(page, {d.name: Rendered("<svg></svg>", b"") for d in page.drawings})


class Outline(HTMLParser):
    """Parses a page: headings, ids, links, tags, tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[tuple[int, str]] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self._heading: int | None = None
        self.text = ""
        self.feed(text)
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self._heading = int(tag[1])
            self.headings.append((self._heading, ""))
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "srcset", "action"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._heading = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._heading is not None:
            level, heading = self.headings[-1]
            self.headings[-1] = level, heading + data
