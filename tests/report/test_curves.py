"""Tests the report's curves: a point for each sustained rate, each durability apart, none without figures."""

from typing import Any

import comparisons
import pytest
from reports import NOTHING, undrawn

from planstep.bench.report.html.curves import curves
from planstep.bench.report.html.drawing import Drawing, Sheet, settings
from planstep.bench.report.html.sections import page


@pytest.fixture
def curved(summary: dict[str, Any]) -> dict[str, Any]:
    return summary | {"curves": comparisons.curves()}


def drawn(summary: dict[str, Any]) -> dict[str, Drawing]:
    chapter = curves(summary)
    parts = chapter.parts if chapter else []
    return {part.name: part for part in parts if isinstance(part, Drawing)}


def paint(drawing: Drawing) -> list[Any]:
    sheet = Sheet()
    with settings():
        drawing.paint(sheet)
    return list(sheet.figure.axes)


def test_each_durability_has_its_own_drawings(curved: dict[str, Any]) -> None:
    assert list(drawn(curved)) == [
        *("rate-latency-full", "rate-latency-os", "rate-cost-full", "rate-cost-os"),
        *("small-full", "small-os"),
    ]
    for name, drawing in drawn(curved).items():
        assert drawing.title.endswith(f"durability {name.split('-')[-1]}")
        assert "kafka-style, separate" in drawing.alt and "None" not in drawing.alt


def test_a_line_ends_at_the_highest_sustained_rate(curved: dict[str, Any]) -> None:
    drawing = drawn(curved)["rate-latency-full"]
    assert "deterministic, shared 60.0 MB/s" in drawing.caption
    for axes in paint(drawing):
        for line in axes.get_lines():
            assert list(line.get_xdata()) == [2, 5, 20, 60], "150 MB/s was not sustained"
        assert axes.get_xscale() == axes.get_yscale() == "log"


def test_nothing_at_all_is_drawn_where_the_axis_has_a_zero(curved: dict[str, Any]) -> None:
    for curve in curved["curves"]["concurrency"]:
        curve["points"][0] |= {"syncs": 0.0, "cpu_ms": 0.0}
    *_, cpu, syncs = paint(drawn(curved)["small-full"])
    assert [len(line.get_xdata()) for line in cpu.get_lines()] == [3, 3, 3]
    assert [len(line.get_xdata()) for line in syncs.get_lines()] == [4, 4, 4]
    assert (cpu.get_yscale(), syncs.get_yscale()) == ("log", "linear")


def test_a_point_without_a_figure_is_left_out(curved: dict[str, Any]) -> None:
    for curve in curved["curves"]["rate"]:
        curve["points"][1]["verified"] = False
        curve["points"][2]["commit_ms"] = None
    first, *_, commit = paint(drawn(curved)["rate-latency-full"])
    assert {tuple(line.get_xdata()) for line in first.get_lines()} == {(2, 20, 60)}
    assert {tuple(line.get_xdata()) for line in commit.get_lines()} == {(2, 60)}


def test_threads_are_labelled_and_repeats_shaded(curved: dict[str, Any]) -> None:
    axes = paint(drawn(curved)["small-full"])
    assert [t.get_text() for t in axes[0].get_xticklabels()] == ["1", "4", "16", "64"]
    assert [len(panel.collections) for panel in axes] == [3, 0, 0, 0]


def test_a_panel_without_any_figure_is_not_drawn(curved: dict[str, Any]) -> None:
    for curve in curved["curves"]["concurrency"]:
        for point in curve["points"]:
            point["syncs"] = None
    assert len(paint(drawn(curved)["small-full"])) == 3 + 1, "the fourth place stays empty"
    for curve in curved["curves"]["rate"]:
        for point in curve["points"]:
            point["sustained"] = False
    assert list(drawn(curved)) == ["small-full", "small-os"]


@pytest.mark.parametrize("of", [{}, {"rate": [], "concurrency": []}])
def test_without_curves_there_is_no_chapter(summary: dict[str, Any], of: dict[str, Any]) -> None:
    assert curves(summary | {"curves": of}) is None
    assert 'id="curves"' not in undrawn(page(summary | {"curves": of}, NOTHING))


def test_curves_are_on_the_first_screen(curved: dict[str, Any]) -> None:
    text = undrawn(page(curved | {"promises": comparisons.promises()}, NOTHING))
    order = ['id="promises"', 'id="curves"', "<nav", 'id="verification"']
    assert sorted(order, key=text.index) == order and 'href="#curves"' in text


def test_curves_are_in_the_order_of_the_systems(curved: dict[str, Any]) -> None:
    for kind in curved["curves"].values():
        kind.reverse()
    alt = drawn(curved)["small-full"].alt
    names = ["deterministic, shared:", "kafka-style, separate:", "SQLite:"]
    assert sorted(names, key=alt.index) == names


def test_without_a_search_the_command_that_draws_the_rate_is_given(curved: dict[str, Any]) -> None:
    curved["curves"]["rate"] = []
    chapter = curves(curved)
    assert chapter is not None and "--find-rate" in str(chapter.parts[-1])


def test_a_system_without_any_sustained_rate_is_named(curved: dict[str, Any]) -> None:
    for point in curved["curves"]["rate"][1]["points"]:
        point["sustained"] = False
    drawing = drawn(curved)["rate-latency-full"]
    assert drawing.caption.endswith("No rate was sustained by kafka-style, separate.")
    assert "kafka-style" not in drawing.alt
