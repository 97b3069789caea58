"""Looks at report.html in headless Chromium, where there is one: width, contrast, text on text.

page_checks.js looks, and says what it found. A page that has every fault on purpose shows that each check can fail.
"""

from collections.abc import Iterator
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any

import comparisons
import pytest
from browser import Browser, program

from planstep.bench.compare.baseline import since
from planstep.bench.compare.ranking import entries
from planstep.bench.report.html.drawing import Rendered, Sheet, settings
from planstep.bench.report.html.figures import figures
from planstep.bench.report.html.page import html
from planstep.bench.report.html.sections import page

LOOK = Path(__file__).with_name("page_checks.js").read_text()
CONTRAST, LARGE_CONTRAST = 4.5, 3.0
"""WCAG 2, level AA: of text, and of large text."""
LETTERS_PX = 9.0
"""The least size of a drawing's letters on a phone."""
EVERY = (
    *("tooWide()", "drawnOver()", "outside()", f"tooSmall({LETTERS_PX})", "writtenOver()"),
    f"pale({CONTRAST}, {LARGE_CONTRAST})",
)
SETTINGS = [
    {
        "name": "transaction_max_timeout_ms",
        "value": "read_committed",
        "kafka_name": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "kafka_default": "5 (0 before Kafka 4)",
    }
]
FAULTY = """<!doctype html><html lang="en"><title>faulty</title><body style="background: #fff; margin: 0">
<p style="width: 3000px">wide</p>
<p style="color: #bbb">pale in the page</p>
<p style="position: relative"><b style="position: absolute">written</b><i style="position: absolute">over</i></p>
<figure aria-label="a drawing"><svg viewBox="0 0 100 50" width="300"><rect width="100" height="50" fill="#222"/>
<text x="5" y="20" font-size="8" fill="#fff">drawn</text><text x="8" y="21" font-size="8" fill="#fff">over</text>
<text x="90" y="20" font-size="8" fill="#fff">outside</text>
<text x="5" y="40" font-size="2" fill="#fff">small</text>
<text x="30" y="40" font-size="8" fill="#333">pale in a drawing</text></svg></figure>"""
FOUND = {
    "tooWide()": ("the page is 3000 wide, the window 420",),
    "drawnOver()": ('"drawn"', '"over"'),
    "outside()": ('"outside"',),
    f"tooSmall({LETTERS_PX})": ('"small" is 6.0 pixels',),
    "writtenOver()": ('"written"', '"over"'),
    f"pale({CONTRAST}, {LARGE_CONTRAST})": ('"pale in the page"', '"pale in a drawing"'),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if program() is None:
        pytest.skip("no Chromium here to look at the report; on Debian: apt install chromium")
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the report of all workloads, without the drawings' PNGs, which take as long as all the rest."""
    folder = tmp_path_factory.mktemp("seen")
    options, outcome = comparisons.outcome(find_rate=True, repeat=3)
    comparisons.save_traces(folder, outcome)
    summary = comparisons.summary(options, outcome) | {
        "verdicts": comparisons.verdicts(),
        "curves": comparisons.curves(),
    }
    summary["machine"]["load"] = {"busy": True, "sentence": "Other work kept a core busy."}
    for name, *_, entry in entries(summary["systems"]):
        entry["settings"] = SETTINGS if name == "kafka" else []
    summary["since"] = since(summary, earlier(summary), Path("docs/results/0.1.0.json"))
    content = page(summary, figures(folder, summary))
    rendered = {}
    with settings():
        for drawing in content.drawings:
            drawing.paint(sheet := Sheet())
            rendered[drawing.name] = Rendered(sheet.svg(drawing), b"")
    file = folder / "report.html"
    file.write_text(html(content, rendered), encoding="utf-8")
    return file


def earlier(summary: dict[str, Any]) -> dict[str, Any]:
    """Returns results of another machine, where commits took twice as long."""
    old = deepcopy(summary)
    old["machine"]["cpus"] = 64
    for *_, entry in entries(old["systems"]):
        entry["commit_ms"]["p50"] *= 2
        entry["range"]["commit_ms.p50"] = [2 * end for end in entry["range"]["commit_ms.p50"]]
    return old


def look(browser: Browser, *checks: str) -> dict[str, Any]:
    """Returns the findings of each check that has some."""
    browser.evaluate(f"window.look = {LOOK}; 0")
    findings = {check: browser.evaluate(f"look.{check}") for check in checks}
    return {check: lines for check, lines in findings.items() if lines}


def axe(browser: Browser) -> tuple[int, list[str]]:
    """Returns how many elements axe-core took for legible, and what it found."""
    browser.evaluate(files("axe_core_python").joinpath("axe.min.js").read_text("utf-8") + "; 0")
    browser.evaluate(f"window.look = {LOOK}; 0")
    passed, findings = browser.evaluate("look.axe()")
    return passed, findings


def test_each_check_finds_its_fault(browser: Browser, tmp_path: Path) -> None:
    faulty = tmp_path / "faulty.html"
    faulty.write_text(FAULTY)
    browser.open(faulty, 420)
    findings = look(browser, *EVERY)
    for check, texts in FOUND.items():
        assert all(text in " ".join(findings[check]) for text in texts), (check, findings)
    (pale,) = axe(browser)[1]
    assert pale.startswith("p:nth-child(2)")


@pytest.mark.parametrize(("width", "scheme"), [(420, "light"), (1280, "dark")])
def test_it_fits_and_is_legible(browser: Browser, report: Path, width: int, scheme: str) -> None:
    browser.open(report, width, scheme)
    assert look(browser, *EVERY) == {}


@pytest.mark.parametrize("width", [360, 1000, 1600])
def test_it_fits_other_windows(browser: Browser, report: Path, width: int) -> None:
    browser.open(report, width)
    assert look(browser, *EVERY[:-1]) == {}


def test_it_fits_a_sheet_of_paper(browser: Browser, report: Path) -> None:
    """A4 without margins of 2 cm has 642 pixels."""
    browser.open(report, 642, media="print")
    assert look(browser, *EVERY) == {}


@pytest.mark.parametrize(("width", "scheme"), [(420, "dark"), (1280, "light")])
def test_axe_finds_enough_contrast(browser: Browser, report: Path, width: int, scheme: str) -> None:
    browser.open(report, width, scheme)
    passed, findings = axe(browser)
    assert passed > 100 and findings == []
