"""report.html: verification first, a section for each thing, whatever is missing said, nothing from outside."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import comparisons
import pytest

from planstep.bench.cell import FAILED, IMPOSSIBLE, INTERRUPTED, Result
from planstep.bench.report.content import Drawn
from planstep.bench.report.drawing import Drawing, Rendered, Sheet, look, render, style
from planstep.bench.report.figures import figures
from planstep.bench.report.page import again, html, write
from planstep.bench.report.sections import Page, page
from planstep.bench.report.verdict import verdict

EVIL = '<script>alert("x")</script>'
VOID = {"meta", "link", "br", "hr", "img", "input"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All workloads, both durabilities, with traces."""
    folder = tmp_path_factory.mktemp("all")
    _, outcome = comparisons.outcome(durability="both", find_rate=True)
    comparisons.save_traces(folder, outcome)
    return folder


@pytest.fixture
def summary() -> dict[str, Any]:
    return comparisons.summary(*comparisons.outcome(durability="both", find_rate=True))


@pytest.fixture(scope="module")
def told(recorded: Path) -> dict[str, Any]:
    of_all = comparisons.summary(*comparisons.outcome(durability="both", find_rate=True))
    return figures(recorded, of_all)


NOTHING: dict[str, Any] = {"schema_version": 1, "source": "python", "runs": {}}


def drawings(made: Page) -> list[Drawing]:
    return [
        part.drawing
        for chapter in made.chapters
        for part in chapter.parts
        if isinstance(part, Drawn)
    ]


def undrawn(made: Page) -> str:
    """The page with its drawings left blank, which is quick."""
    blank = "<svg></svg>"
    return html(
        made, {d.name: Rendered(d.name, d.alt, "", blank, blank, b"") for d in drawings(made)}
    )


class Outline(HTMLParser):
    """What a browser would see of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[tuple[int, str]] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.plates: list[str] = []
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
            if (name, value) == ("class", "plate"):
                self.plates.append(dict(attrs)["aria-label"] or "")

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
            level, said = self.headings[-1]
            self.headings[-1] = level, said + data


# what is where ------------------------------------------------------------------------------------


def test_chapters_are_in_order_and_verification_is_first(
    summary: dict[str, Any], told: dict[str, Any]
) -> None:
    made = page(summary, told)
    assert [chapter.number for chapter in made.chapters] == [1, 0, *range(2, 11)]
    assert made.chapters[0].anchor == "verification"
    outline = Outline(undrawn(made))
    levels = [level for level, _ in outline.headings]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels)), "none is skipped"
    assert len(outline.ids) == len(set(outline.ids))
    for reference in outline.references:
        assert reference.startswith("#") and reference[1:] in outline.ids


def test_every_workload_is_drawn(summary: dict[str, Any], told: dict[str, Any]) -> None:
    names = [drawing.name for drawing in drawings(page(summary, told))]
    assert len(names) == len(set(names))
    for kind in ("latency", "phases", "throughput", "corners", "resources"):
        assert {f"{kind}-full", f"{kind}-os"} <= set(names)
    for kind in (
        *("interval", "chain", "transfer", "contention", "held-open", "plain-beside", "faults"),
        *("plain", "highest"),
    ):
        assert f"{kind}-full" in names
    assert {"protocols", "persists"} <= set(names)


def test_every_drawing_says_in_words_what_it_shows(
    summary: dict[str, Any], told: dict[str, Any]
) -> None:
    for drawing in drawings(page(summary, told)):
        assert len(drawing.alt) > 60 and drawing.alt.endswith("."), drawing.name
        assert drawing.caption, drawing.name
        assert "None" not in drawing.alt and "nan" not in drawing.alt.split(), drawing.alt


def test_full_and_os_never_share_a_drawing(summary: dict[str, Any], told: dict[str, Any]) -> None:
    for drawing in drawings(page(summary, told)):
        other = {"full": "durability os", "os": "durability full"}.get(drawing.name.split("-")[-1])
        assert other is None or other not in drawing.alt


def test_published_figures_are_marked(summary: dict[str, Any], told: dict[str, Any]) -> None:
    text = undrawn(page(summary, told))
    rows = re.findall(r"<tr class=\"apart\">.*?</tr>", text, flags=re.S)
    assert len(rows) == 2 + 4 and all("other hardware" in row for row in rows)


def test_numbers_of_the_verdict_are_the_summary_s(summary: dict[str, Any]) -> None:
    found = verdict(summary)
    assert found.tone == "good" and not found.wrong
    said = " ".join(found.sentences)
    assert "none missing, none twice, none out of order" in said
    entry = summary["systems"]["deterministic"]["reshard"]["full"]["shared"]
    assert f"{entry['write_ms']['p50']:.2f} ms" in said
    assert found.board is not None and [row[0] for row in found.board.rows] == [
        *("deterministic", "kafka", "sqlite")
    ]


# what is missing, or wrong ------------------------------------------------------------------------


def test_what_is_wrong_comes_first_and_in_red(summary: dict[str, Any]) -> None:
    asked, outcome = comparisons.outcome("reshard", "transfer")
    lost = outcome.results[0]
    lost.verified, lost.missing, lost.problems = False, 2, [f"record 7 is gone {EVIL}"]
    died = next(n for n, r in enumerate(outcome.results) if r.cell.workload == "transfer")
    outcome.results[died] = Result(outcome.results[died].cell, FAILED, f"it died {EVIL}")
    text = undrawn(page(comparisons.summary(asked, outcome), NOTHING))
    assert 'class="hero bad"' in text and "Not everything verified" in text
    assert text.index("2 missing") < text.index('id="verification"') < text.index('id="latency"')
    assert "record 7 is gone &lt;script&gt;" in text and "it died &lt;script&gt;" in text
    assert EVIL not in text and 'class="note bad"' in text


@pytest.mark.parametrize("workload", ["plain", "chain", "transfer", "faults", "held-open"])
def test_a_workload_that_did_not_run_says_which_command_does(workload: str) -> None:
    made = page(comparisons.summary(*comparisons.outcome("interval")), NOTHING)
    text = undrawn(made)
    assert f"planstep compare --workload {workload} --out DIR" in text
    assert "planstep compare --workload reshard --out DIR" in text
    assert len(drawings(made)) == 2, "the protocols, and the interval"


def test_at_full_speed_and_without_traces_every_chapter_stands() -> None:
    summary = comparisons.summary(*comparisons.outcome("reshard", rate=None))
    for figures_ in (NOTHING, {**NOTHING, "left_out": {"a run": f"OSError: {EVIL}"}}):
        text = undrawn(page(summary, figures_))
        assert "As fast as it goes" in text and EVIL not in text
    assert "Traces that could not be read" in text and "There are no traces" in text


def test_a_rate_that_was_not_sustained_has_no_latencies(
    summary: dict[str, Any], told: dict[str, Any]
) -> None:
    asked, outcome = comparisons.outcome("reshard", systems=("deterministic", "kafka"))
    for result in outcome.results:
        result.sustained, result.write_ms, result.commit_ms = False, None, None
        result.visible_ms = result.end_to_end_ms = None
    made = page(comparisons.summary(asked, outcome), NOTHING)
    text = undrawn(made)
    assert "No system sustained the rate" in text
    assert "did not sustain 5 MB/s" in text and "not sustained" in text
    assert not [d for d in drawings(made) if d.name.startswith("latency")]


def test_one_that_did_not_keep_up_is_named_below_the_drawing(
    summary: dict[str, Any], told: dict[str, Any]
) -> None:
    entry = summary["systems"]["kafka"]["reshard"]["full"]["separate"]
    entry["sustained"], entry["write_ms"] = False, None
    runs = dict(told["runs"])
    name = "reshard-kafka-full-separate-0"
    runs[name] = {**runs[name], "latencies": dict.fromkeys(runs[name]["latencies"])}
    found = {d.name: d for d in drawings(page(summary, {**told, "runs": runs}))}
    assert "Not drawn: kafka-style, separate (the rate was not sustained)" in (
        found["latency-full"].caption
    )


def test_what_is_impossible_or_was_interrupted_is_said() -> None:
    asked, outcome = comparisons.outcome("contention", "chain")
    for n, result in enumerate(outcome.results):
        if result.cell.workload == "chain":
            outcome.results[n] = Result(result.cell, INTERRUPTED, "interrupted")
        elif result.cell.system == "kafka":
            outcome.results[n] = Result(result.cell, IMPOSSIBLE, f"no rows {EVIL}")
    outcome.interrupted = True
    text = undrawn(page(comparisons.summary(asked, outcome), NOTHING))
    assert 'class="hero partial"' in text and "Interrupted" in text
    assert "not possible: no rows &lt;script&gt;" in text and EVIL not in text
    outcome.results.clear()
    text = undrawn(page(comparisons.summary(asked, outcome), NOTHING))
    assert "Nothing ran to its end" in text


SPARK: dict[str, Any] = {
    "ran": True,
    "why_not": None,
    "version": "4.3.0",
    "master": "local[*]",
    "java": "17",
    "seconds": 41.2,
    "jobs": [{"name": "certificate", "seconds": 3.2, "rows": 12345}],
    "rows_read": 1_234_567,
    "agrees_with_python": True,
    "checks": [
        {
            "name": "certificate: reads",
            "what": "every read saw the last write before its place",
            "rows": 5000,
            "found": {"G0": 8},
            "allowed": {"G0": 8},
            "by_run": {},
            "agrees": True,
        }
    ],
    "disagreements": [],
}


def test_who_checked_is_said(summary: dict[str, Any]) -> None:
    def text(spark: dict[str, Any] | None) -> str:
        return undrawn(page({**summary, "spark": spark}, NOTHING))

    assert "Spark was not asked" in text(None)
    assert "Spark did not run: no Java &lt;b&gt;." in text({"ran": False, "why_not": "no Java <b>"})
    agreed = text(SPARK)
    assert "1,234,567 rows read: it agrees with the Python checker" in agreed
    assert 'class="hero good"' in agreed and "certificate: reads" in agreed and "G0 8" in agreed
    against = {**SPARK, "agrees_with_python": False, "disagreements": [f"stale reads {EVIL}"]}
    other = text(against)
    assert "does NOT agree" in other and 'class="hero bad"' in other and EVIL not in other
    check = {**SPARK["checks"][0], "found": {"stale read": 3}, "by_run": {"run-1": {}}}
    found = text({**SPARK, "checks": [check]})
    assert "certificate: reads: stale read 3, in run-1" in found and 'class="hero bad"' in found


def test_a_system_of_somebody_else_is_drawn_too(
    summary: dict[str, Any], told: dict[str, Any]
) -> None:
    summary["systems"][EVIL] = summary["systems"].pop("sqlite")
    runs = {
        name: {**run, "system": EVIL if run["system"] == "sqlite" else run["system"]}
        for name, run in told["runs"].items()
    }
    made = page(summary, {**told, "runs": runs})
    assert EVIL not in undrawn(made)
    drawn = {d.name: d for d in drawings(made)}
    for name in ("latency-full", "chain-full"):
        one = render(drawn[name])
        assert "<script" not in one.wide + one.narrow and "&lt;script" in one.wide


def test_a_system_has_one_look_and_no_other_has_it() -> None:
    names = ("deterministic", "kafka", "kafka-v1", "sqlite", "sqlite-64")
    for part in ("color", "dash", "marker", "name"):
        assert len({str(getattr(look(name), part)) for name in names}) == len(names)
    assert look("another").name == "another"


# drawn --------------------------------------------------------------------------------------------


def boxes_of(figure: Any, renderer: Any) -> list[tuple[str, Any]]:
    """Of all texts that are drawn: an axis keeps labels of ticks that lie outside of it."""
    from matplotlib.text import Text

    left_out = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            shown = {id(tick) for tick in (axis._update_ticks() if axes.axison else ())}
            ticks = (*axis.majorTicks, *axis.minorTicks)
            left_out |= {id(tick.label1) for tick in ticks if id(tick) not in shown}
    texts = [t for t in figure.findobj(Text) if t.get_text() and id(t) not in left_out]
    return [
        (text.get_text(), text.get_window_extent(renderer).extents)
        for text in texts
        if text.get_visible()
    ]


@pytest.mark.parametrize("wide", [True, False])
def test_all_are_painted_within_their_sheet(
    summary: dict[str, Any], told: dict[str, Any], wide: bool
) -> None:
    """Nothing is cut off, no text lies on another."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    cut, met = [], []
    for drawing in drawings(page(summary, told)):
        if drawing.name.endswith("-os"):
            continue
        sheet = Sheet(wide)
        with style(wide):
            drawing.paint(sheet)
            canvas = FigureCanvasAgg(sheet.figure)
            canvas.draw()
            renderer = canvas.get_renderer()
            texts = boxes_of(sheet.figure, renderer)
        width, height = canvas.get_width_height()
        assert (width > 700) == wide and 30 < height < 3000, drawing.name
        boxes = np.array([box for _, box in texts])
        low, high = boxes[:, :2], boxes[:, 2:]
        out = ((low < -1) | (high > (width + 1, height + 1))).any(axis=1)
        cut += [(drawing.name, texts[n][0]) for n in np.flatnonzero(out)]
        over = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
        both = np.argwhere((over > (2, 4)).all(axis=2))
        met += [(drawing.name, texts[a][0], texts[b][0]) for a, b in both if a < b]
    assert not cut, cut
    assert not met, met


def test_the_same_figures_make_the_same_bytes(
    summary: dict[str, Any], told: dict[str, Any]
) -> None:
    drawing = next(d for d in drawings(page(summary, told)) if d.name == "held-open-full")
    first, second = render(drawing), render(drawing)
    assert first == second
    assert first.png.startswith(b"\x89PNG") and b"matplotlib" not in first.png
    assert undrawn(page(summary, told)) == undrawn(page(summary, told))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small one, all of it: from what a comparison leaves in its folder."""
    folder = tmp_path_factory.mktemp("small")
    asked, outcome = comparisons.outcome("reshard", systems=("deterministic", "kafka"))
    comparisons.save_traces(folder, outcome)
    (folder / "png").mkdir()
    (folder / "png" / "of-another-run.png").write_bytes(b"")
    (folder / "results.json").write_text(json.dumps(comparisons.summary(asked, outcome)))
    made = again(folder)
    assert made["html"] == "report.html" and made["png"]
    assert {f"png/{path.name}" for path in (folder / "png").iterdir()} == set(made["png"])
    assert sorted(path.name for path in folder.iterdir()) == [
        *("png", "report.html", "results.json", "traces")
    ]
    return folder


def test_it_is_one_file_that_needs_nothing_else(written: Path) -> None:
    text = (written / "report.html").read_text()
    outline = Outline(text)
    assert all(reference.startswith("#") for reference in outline.references)
    assert "script" not in outline.tags and "@import" not in text and "url(http" not in text
    assert not re.findall(r"url\((?!#)", text)
    assert len(outline.ids) == len(set(outline.ids))
    assert len(text) < 3_000_000


def test_every_drawing_has_its_words_and_its_png(written: Path) -> None:
    text = (written / "report.html").read_text()
    outline = Outline(text)
    names = re.findall(r'<figure id="drawing-([^"]+)"', text)
    assert len(outline.plates) == len(names) and all(outline.plates)
    assert {path.stem for path in (written / "png").iterdir()} == set(names)
    assert text.count("<svg viewBox") >= 2 * len(names)


def test_text_in_drawings_is_text_and_large_enough(written: Path) -> None:
    """A narrow drawing is 252 pt wide, and shown as 336 px at least, which is as much."""
    text = (written / "report.html").read_text()
    sizes = {float(size) for size in re.findall(r"font-size: ([\d.]+)px", text)}
    assert sizes and min(sizes) >= 9.0
    widths = {float(found) for found in re.findall(r'<svg viewBox="0 0 ([\d.]+) ', text)}
    assert min(widths - {44.0}) == 252.0


def test_the_command_makes_it_anew_and_refuses_what_is_no_comparison(
    written: Path, tmp_path: Path
) -> None:
    from planstep.bench.report import page as module

    def run(*arguments: str) -> int:
        sys.argv = ["report", *arguments]
        try:
            module.main()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    former = sys.argv
    try:
        assert run() == run("--help") == 2
        assert run(str(tmp_path)) == 1
        (tmp_path / "results.json").write_text('{"kind": "planstep compare", "interrupted": true}')
        assert run(str(tmp_path)) == 1
    finally:
        sys.argv = former


def test_spark_s_figures_are_used_where_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from planstep.bench.report import page as module

    seen = []
    monkeypatch.setattr(module, "write", lambda *given: seen.append(given) or {})
    asked, outcome = comparisons.outcome("interval")
    (tmp_path / "results.json").write_text(json.dumps(comparisons.summary(asked, outcome)))
    made = {"schema_version": 1, "source": "spark", "runs": {"a": {}}}
    for figures_, source in ((made, "spark"), (None, "python"), ({"runs": {}}, "python")):
        (tmp_path / "spark.json").write_text(json.dumps({"spark": SPARK, "figures": figures_}))
        again(tmp_path)
        _, summary, found = seen.pop()
        assert found["source"] == source and summary["spark"]["ran"]


def test_no_plotting_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, planstep, planstep.bench.compare, planstep.bench.report.page\n"
        "assert not {'matplotlib', 'jinja2', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    from planstep.errors import MissingExtra

    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    summary = comparisons.summary(*comparisons.outcome("interval", systems=("sqlite",)))
    with pytest.raises(MissingExtra, match=package):
        write(tmp_path, summary, NOTHING)
    assert not list(tmp_path.iterdir())


# in a browser -------------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_PROBE = """<!doctype html><body><iframe src="{page}" style="width:{width}px;height:2000px;border:0"></iframe>
<script>onload = () => {{
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const wide = [...page.querySelectorAll("main *, header *")].filter(e => !e.closest(".scroll, svg, .unseen")
    && e.getBoundingClientRect().right > root.clientWidth + 1).map(e => e.tagName + "." + e.className);
  const small = [...page.querySelectorAll(".plate svg")].filter(e => e.getBoundingClientRect().width)
    .map(e => [e.getBoundingClientRect().width / e.viewBox.baseVal.width, e.viewBox.baseVal.width])
    .map(([scale, width]) => scale * (width > 500 ? 10 : 9) * 72 / 96);
  document.title = JSON.stringify([root.scrollWidth - root.clientWidth, wide.slice(0, 5), Math.min(...small)]);
}}</script>"""


@pytest.fixture(params=[360, 1000, 1600])
def seen(request: pytest.FixtureRequest, written: Path, tmp_path: Path) -> Iterator[list[Any]]:
    """By how much it is too wide, what is, and how large the smallest text of drawings is shown, in points."""
    if CHROMIUM is None:
        pytest.skip("no chromium to look at it")
    probe = tmp_path / "probe.html"
    shutil.copy(written / "report.html", tmp_path)
    probe.write_text(_PROBE.format(page="report.html", width=request.param))
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    command += ["--allow-file-access-from-files", "--virtual-time-budget=5000"]
    command += ["--window-size=1700,2100", probe.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = re.search(r"<title>(\[.*?\])</title>", done.stdout)
    assert found is not None, done.stderr[-2000:]
    yield json.loads(found[1])


def test_nothing_is_wider_than_its_window(seen: list[Any]) -> None:
    over, wide, points = seen
    assert over <= 0 and not wide
    assert points >= 8.95
