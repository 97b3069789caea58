"""Tests the drawings of report.html: within their panels, the same each time, one file."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import comparisons
import pytest
from reports import NOTHING, Outline, drawings, undrawn

from planstep.bench.report.html.colors import readable
from planstep.bench.report.html.drawing import Sheet, line_style, render, settings
from planstep.bench.report.html.page import again, write
from planstep.bench.report.html.sections import page

# drawn --------------------------------------------------------------------------------------------


def test_a_system_has_one_look_and_no_other_has_it() -> None:
    names = ("deterministic", "kafka", "kafka-v1", "sqlite", "sqlite-64")
    for part in ("color", "dash", "marker", "name"):
        assert len({str(getattr(line_style(name), part)) for name in names}) == len(names)
    assert line_style("another").name == "another"


def boxes_of(figure: Any, renderer: Any) -> list[tuple[str, Any]]:
    """Returns the boxes of all visible texts: an axis also keeps labels of ticks outside it."""
    from matplotlib.text import Text

    left_out = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            ticks_drawn = {id(tick) for tick in (axis._update_ticks() if axes.axison else ())}
            ticks = (*axis.majorTicks, *axis.minorTicks)
            left_out |= {id(tick.label1) for tick in ticks if id(tick) not in ticks_drawn}
    texts = [t for t in figure.findobj(Text) if t.get_text() and id(t) not in left_out]
    return [
        (text.get_text(), text.get_window_extent(renderer).extents)
        for text in texts
        if text.get_visible()
    ]


def test_all_are_painted_within_their_panels(
    summary: dict[str, Any], figures: dict[str, Any]
) -> None:
    """Nothing is cut off, and no text lies on another."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    cut, overlapping = [], []
    for drawing in drawings(page(summary, figures)):
        if drawing.name.endswith("-os"):
            continue
        sheet = Sheet()
        with settings():
            drawing.paint(sheet)
            for figure in [sheet.figure]:
                canvas = FigureCanvasAgg(figure)
                canvas.draw()
                texts = boxes_of(figure, canvas.get_renderer())
                width, height = canvas.get_width_height()
                assert 30 < height < 3000, drawing.name
                boxes = np.array([box for _, box in texts])
                low, high = boxes[:, :2], boxes[:, 2:]
                out = ((low < -1) | (high > (width + 1, height + 1))).any(axis=1)
                cut += [(drawing.name, texts[n][0]) for n in np.flatnonzero(out)]
                over = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
                both = np.argwhere((over > (2, 4)).all(axis=2))
                overlapping += [(drawing.name, texts[a][0], texts[b][0]) for a, b in both if a < b]
    assert not cut, cut
    assert not overlapping, overlapping


def test_the_same_figures_make_the_same_bytes(
    summary: dict[str, Any], figures: dict[str, Any]
) -> None:
    drawing = next(d for d in drawings(page(summary, figures)) if d.name == "held-open-full")
    first, second = render(drawing), render(drawing)
    assert first == second
    assert first.png.startswith(b"\x89PNG") and b"matplotlib" not in first.png
    assert undrawn(page(summary, figures)) == undrawn(page(summary, figures))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes a small report from the folder of a comparison, drawings included."""
    folder = tmp_path_factory.mktemp("small")
    options, outcome = comparisons.outcome("reshard", systems=("deterministic", "kafka"))
    comparisons.save_traces(folder, outcome)
    (folder / "png").mkdir()
    (folder / "png" / "of-another-run.png").write_bytes(b"")
    (folder / "results.json").write_text(json.dumps(comparisons.summary(options, outcome)))
    report = again(folder)
    assert report["html"] == "report.html" and report["png"]
    assert {f"png/{path.name}" for path in (folder / "png").iterdir()} == set(report["png"])
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


def test_every_drawing_has_its_png(written: Path) -> None:
    text = (written / "report.html").read_text()
    names = re.findall(r'<figure id="drawing-([^"]+)"', text)
    assert names
    assert {path.stem for path in (written / "png").iterdir()} == set(names)


def test_a_drawing_is_one_svg_with_its_title_and_its_words(written: Path) -> None:
    text = (written / "report.html").read_text()
    figures = re.findall(r"<figure .*?</figure>", text, flags=re.S)
    assert figures
    for figure in figures:
        (svg,) = re.findall(r"<svg.*?</svg>", figure, flags=re.S)
        title, words = (
            re.search(f'<{tag} id="{id_}">([^<]+)</{tag}>', svg)
            for tag in ("title", "desc")
            for id_ in re.findall(f'aria-(?:labelledby|describedby)="([^"]+-{tag})"', svg)
        )
        assert title is not None and words is not None and len(words[1]) > 60
        assert title[1] in figure.partition("<svg")[0], "its caption has the title, too"


def test_text_in_drawings_is_text_and_large_enough(written: Path) -> None:
    """A drawing is 324 pt wide; in a window of 420 pixels it has at least 396."""
    text = (written / "report.html").read_text()
    sizes = {float(size) for size in re.findall(r"font: [a-z0-9 ]*?([\d.]+)px", text)}
    assert sizes and min(sizes) * 396 / 324 >= 11
    assert set(re.findall(r'role="img" viewBox="0 0 ([\d.]+) ', text)) == {"324"}


def test_colours_are_those_of_the_page_and_are_defined_for_a_dark_one(written: Path) -> None:
    text = (written / "report.html").read_text()
    drawn = "".join(re.findall(r"<figure .*?</figure>", text, flags=re.S))
    bare = re.sub(r"var\(--[a-z0-9-]+, #[0-9a-f]{6}\)", "", drawn)
    assert not re.findall(r"(?:fill|stroke): (?!none|url)[^;\"]+", bare.replace("fill: ;", ""))
    light, dark = re.findall(r":root \{ (--c-.*?) \}", text)
    used = set(re.findall(r"var\((--c-[0-9a-f]{6}),", drawn))
    for paper, scheme in (("#ffffff", light), ("#1a2027", dark)):
        colors = dict(re.findall(r"(--c-[0-9a-f]{6}): (#[0-9a-f]{6});", scheme))
        assert used <= set(colors)
        for color in colors.values():
            assert readable(color, paper) == color


def test_the_command_makes_it_anew_and_refuses_what_is_no_comparison(
    written: Path, tmp_path: Path
) -> None:
    from planstep.bench.report.html import page as module

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
    from planstep.bench.report.html import page as module

    calls = []
    monkeypatch.setattr(module, "write", lambda *arguments: calls.append(arguments) or {})
    options, outcome = comparisons.outcome("interval")
    (tmp_path / "results.json").write_text(json.dumps(comparisons.summary(options, outcome)))
    by_spark = {"schema_version": 1, "source": "spark", "runs": {"a": {}}}
    for figures_, source in ((by_spark, "spark"), (None, "python"), ({"runs": {}}, "python")):
        (tmp_path / "spark.json").write_text(
            json.dumps({"spark": {"ran": True}, "figures": figures_})
        )
        again(tmp_path)
        _, summary, used = calls.pop()
        assert used["source"] == source and summary["spark"]["ran"]


def test_no_plotting_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, planstep, planstep.bench.compare.command, planstep.bench.report.html.page\n"
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
