"""Tests report.html: verification comes first, each subject has a chapter, gaps are tolerated, text is escaped."""

import re
from itertools import pairwise
from typing import Any

import comparisons
import pytest
from reports import NOTHING, Outline, drawings, undrawn

from planstep.bench.compare.cell import FAILED, IMPOSSIBLE, INTERRUPTED, Result
from planstep.bench.compare.ranking import entries, who_wins
from planstep.bench.judges.spark_process import without
from planstep.bench.report.html.drawing import Rendered, render
from planstep.bench.report.html.page import html
from planstep.bench.report.html.sections import page
from planstep.bench.report.html.verdict import verdict
from planstep.bench.report.text.text_report import latencies, titles

EVIL = '<script>alert("x")</script>'


# order, headings, links ----------------------------------------------------------------------------


def test_chapters_are_in_order_and_verification_is_first(
    summary: dict[str, Any], figures: dict[str, Any]
) -> None:
    content = page(summary, figures)
    assert [chapter.number for chapter in content.chapters] == [1, 0, *range(2, 12)]
    assert content.chapters[0].anchor == "verification"
    outline = Outline(undrawn(content))
    levels = [level for level, _ in outline.headings]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels)), "none is skipped"
    assert len(outline.ids) == len(set(outline.ids))
    for reference in outline.references:
        assert reference.startswith("#") and reference[1:] in outline.ids


def test_chapters_are_numbered_without_gaps() -> None:
    """The chapter of published figures is absent if reshard did not run."""
    content = page(comparisons.summary(*comparisons.outcome("small")), NOTHING)
    numbers = [chapter.number for chapter in content.chapters if chapter.number]
    assert numbers == list(range(1, 11))


def test_results_of_an_older_version_make_a_report(summary: dict[str, Any]) -> None:
    """They have no answers, promises, curves or servers, and fewer settings."""
    for name in ("verdicts", "promises", "curves", "servers", "since"):
        summary.pop(name, None)
    summary["machine"].pop("load", None)
    del summary["settings"]["peers"], summary["settings"]["find_rate"]
    text = undrawn(page(summary, NOTHING))
    assert "<h1>Every run verified" in text and "planstep compare" in text


def test_every_workload_is_drawn(summary: dict[str, Any], figures: dict[str, Any]) -> None:
    names = [drawing.name for drawing in drawings(page(summary, figures))]
    assert len(names) == len(set(names))
    for kind in (
        *("latency", "phases-kafka-separate", "throughput", "corners-kafka", "resources"),
    ):
        assert {f"{kind}-full", f"{kind}-os"} <= set(names)
    for kind in (
        *("interval", "chain", "small", "contention", "held-open", "plain-beside", "faults"),
        *("plain", "highest"),
    ):
        assert f"{kind}-full" in names
    assert {"protocol-deterministic", "persists"} <= set(names)


def test_every_drawing_says_in_words_what_it_shows(
    summary: dict[str, Any], figures: dict[str, Any]
) -> None:
    for drawing in drawings(page(summary, figures)):
        assert len(drawing.alt) > 60 and drawing.alt.endswith("."), drawing.name
        assert drawing.title and drawing.title not in ("", drawing.alt), drawing.name
        assert "None" not in drawing.alt and "nan" not in drawing.alt.split(), drawing.alt


def test_full_and_os_never_share_a_drawing(
    summary: dict[str, Any], figures: dict[str, Any]
) -> None:
    for drawing in drawings(page(summary, figures)):
        other = {"full": "durability os", "os": "durability full"}.get(drawing.name.split("-")[-1])
        assert other is None or other not in drawing.alt


def test_published_figures_are_marked(summary: dict[str, Any], figures: dict[str, Any]) -> None:
    text = undrawn(page(summary, figures))
    rows = re.findall(r"<tr class=\"apart\">.*?</tr>", text, flags=re.S)
    assert len(rows) == 2 + 4 and all("other hardware" in row for row in rows)


def test_published_figures_have_a_chapter_of_their_own(
    summary: dict[str, Any], figures: dict[str, Any]
) -> None:
    by_anchor = {c.anchor: str(c.parts) for c in page(summary, figures).chapters}
    published = by_anchor.pop("published")
    for words in ("YDB, published", "Confluent", "Xeon"):
        assert words in published and not [a for a, text in by_anchor.items() if words in text]
    for workload in ("chain", "small"):
        other = page(comparisons.summary(*comparisons.outcome(workload)), NOTHING)
        assert "published" not in [chapter.anchor for chapter in other.chapters]


def test_numbers_of_the_verdict_are_the_summary_s(summary: dict[str, Any]) -> None:
    result = verdict(summary)
    assert result.tone == "good" and not result.wrong
    sentences = " ".join(result.sentences)
    assert "none missing, none twice, none out of order" in sentences
    entry = summary["systems"]["deterministic"]["reshard"]["full"]["shared"]
    assert f"{entry['commit_ms']['p50']:.2f} ms" in sentences
    assert result.board is not None and [row[0] for row in result.board.rows] == [
        *("deterministic", "kafka", "sqlite")
    ]


def test_the_headline_compares_what_means_the_same_and_says_who_stands_where(
    summary: dict[str, Any],
) -> None:
    """Staged data is durable sooner than a commit, and proves nothing about it."""
    result = verdict(summary)
    board = result.board
    assert board is not None and "write" not in " ".join((*result.sentences, *board.columns))
    assert [row[1] for row in board.rows][:2] == ["deterministic, shared", "kafka-style, separate"]
    sentence = next(sentence for sentence in result.sentences if "commit was answered" in sentence)
    assert "deterministic, shared" in sentence and "kafka-style, separate" in sentence


def test_single_runs_tell_nobody_apart_repeated_ones_do(summary: dict[str, Any]) -> None:
    assert summary["who_wins"] == []
    assert "a single run cannot rank the systems" in " ".join(verdict(summary).sentences)
    for *_, entry in entries(summary["systems"]):
        entry["repeats"] = 3
    summary["who_wins"] = who_wins(summary["systems"])
    assert "soonest with deterministic, shared" in " ".join(verdict(summary).sentences)
    for won in summary["who_wins"]:
        assert not won["figure"].startswith("write")
        assert set(won["placements"]) == {*won["best"], *won["behind"]}


def test_published_latencies_are_of_no_durability(summary: dict[str, Any]) -> None:
    for section in latencies(summary):
        published = [row for table in section.tables for row in table.rows if "published" in row[0]]
        assert bool(published) == ("durability" not in section.title)


def test_a_busy_machine_is_told(summary: dict[str, Any]) -> None:
    assert "WARNING" not in " ".join(titles(summary))
    assert "Other work on this machine used 0.03 of 2 cores before" in " ".join(titles(summary))
    summary["machine"]["load"] = {"busy": True, "sentence": "Other work used 1.5 of 2 cores."}
    assert "WARNING: Other work used 1.5 of 2 cores." in " ".join(titles(summary))
    del summary["machine"]["load"]  # results of an earlier version
    assert "Other work" not in " ".join(titles(summary))


def test_servers_of_peers_are_named_with_what_they_took(summary: dict[str, Any]) -> None:
    server = {
        "name": "sqlite",
        "durability": "full",
        "version": "9.1",
        "start_s": 4.3,
        "warm_s": 20.5,
    }
    more = {"warm_transactions": 1234, "memory_mb": 512.5, "failed": None}
    broken = {"name": "kafka", "durability": "os", "failed": f"no port {EVIL}"}
    text = undrawn(page(summary | {"servers": [server | more, broken]}, NOTHING))
    for words in ("Servers of peers", "1,234", "512", "durability os: no port &lt;script&gt;"):
        assert words in text
    assert "Servers of peers" not in undrawn(page(summary | {"servers": []}, NOTHING))


# missing or wrong data ----------------------------------------------------------------------------


def test_what_is_wrong_comes_first_and_in_red(summary: dict[str, Any]) -> None:
    options, outcome = comparisons.outcome("reshard", "small")
    lost = outcome.results[0]
    lost.verified, lost.missing, lost.problems = False, 2, [f"record 7 is gone {EVIL}"]
    died = next(n for n, r in enumerate(outcome.results) if r.cell.workload == "small")
    outcome.results[died] = Result(outcome.results[died].cell, FAILED, f"it died {EVIL}")
    text = undrawn(page(comparisons.summary(options, outcome), NOTHING))
    assert 'class="hero bad"' in text and "Some runs did not verify" in text
    assert text.index("2 missing") < text.index('id="verification"') < text.index('id="latency"')
    assert "record 7 is gone &lt;script&gt;" in text and "it died &lt;script&gt;" in text
    assert EVIL not in text and 'class="note bad"' in text


def test_what_only_spark_found_is_not_called_unverified(summary: dict[str, Any]) -> None:
    """Such runs have figures."""
    check = {"name": "delivery", "what": "", "rows": 1, "found": {"lost": 1}, "allowed": {}}
    spark = SPARK | {"agrees_with_python": False, "disagreements": [EVIL], "checks": [check]}
    result = verdict(summary | {"spark": spark})
    assert result.tone == "bad" and len(result.wrong) == 2
    assert "no figures" not in result.headline and "trust no figure" in result.headline
    assert EVIL not in undrawn(page(summary | {"spark": spark}, NOTHING))


@pytest.mark.parametrize("workload", ["plain", "chain", "small", "faults", "held-open"])
def test_a_workload_that_did_not_run_says_which_command_does(workload: str) -> None:
    content = page(comparisons.summary(*comparisons.outcome("interval")), NOTHING)
    text = Outline(undrawn(content)).text
    assert f"planstep compare --workload {workload} --out DIR" in text
    assert "planstep compare --workload reshard --out DIR" in text
    names = [d.name for d in drawings(content) if not d.name.startswith("protocol-")]
    assert names == ["interval-full"]


def test_at_full_speed_and_without_traces_every_chapter_stands() -> None:
    summary = comparisons.summary(*comparisons.outcome("reshard", rate=None))
    for figures_ in (NOTHING, {**NOTHING, "left_out": {"a run": f"OSError: {EVIL}"}}):
        text = undrawn(page(summary, figures_))
        assert "As fast as it goes" in text and EVIL not in text
    assert "Traces that could not be read" in text and "There are no traces" in text


def test_a_rate_that_was_not_sustained_has_no_latencies(
    summary: dict[str, Any], figures: dict[str, Any]
) -> None:
    options, outcome = comparisons.outcome("reshard", systems=("deterministic", "kafka"))
    for result in outcome.results:
        result.sustained, result.write_ms, result.commit_ms = False, None, None
        result.visible_ms = result.end_to_end_ms = None
    content = page(comparisons.summary(options, outcome), NOTHING)
    text = undrawn(content)
    assert "No latency is reported here, because no system sustained the rate" in text
    assert "the rate of 5 MB/s was not sustained" in text
    assert not [d for d in drawings(content) if d.name.startswith("latency")]


def test_one_that_did_not_keep_up_is_named_below_the_drawing(
    summary: dict[str, Any], figures: dict[str, Any]
) -> None:
    entry = summary["systems"]["kafka"]["reshard"]["full"]["separate"]
    entry["sustained"], entry["write_ms"] = False, None
    runs = dict(figures["runs"])
    name = "reshard-kafka-full-separate-0"
    runs[name] = {**runs[name], "latencies": dict.fromkeys(runs[name]["latencies"])}
    by_name = {d.name: d for d in drawings(page(summary, {**figures, "runs": runs}))}
    assert "Not drawn: kafka-style, separate (the rate was not sustained)" in (
        by_name["latency-full"].caption
    )


def test_what_is_impossible_or_was_interrupted_is_said() -> None:
    options, outcome = comparisons.outcome("contention", "chain")
    for n, result in enumerate(outcome.results):
        if result.cell.workload == "chain":
            outcome.results[n] = Result(result.cell, INTERRUPTED, "interrupted")
        elif result.cell.system == "kafka":
            outcome.results[n] = Result(result.cell, IMPOSSIBLE, f"no rows {EVIL}")
    outcome.interrupted = True
    text = undrawn(page(comparisons.summary(options, outcome), NOTHING))
    assert 'class="hero partial"' in text and "Interrupted" in text
    assert "is not possible: no rows &lt;script&gt;" in text and EVIL not in text
    outcome.results.clear()
    text = undrawn(page(comparisons.summary(options, outcome), NOTHING))
    assert "No run has ended" in text


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
            "found": {},
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

    assert "Spark did not judge these runs" in text(None)
    assert "Spark did not run: no Java &lt;b&gt;." in text(without("no Java <b>"))
    agreed = text(SPARK)
    assert "1,234,567 rows, 41 s" in agreed and "It agrees with Python&#39;s checker" in agreed
    assert 'class="hero good"' in agreed and "certificate: reads" in agreed and "G0 8" in agreed
    against = {**SPARK, "agrees_with_python": False, "disagreements": [f"stale reads {EVIL}"]}
    other = text(against)
    assert "does NOT agree" in other and 'class="hero bad"' in other and EVIL not in other
    check = {
        **SPARK["checks"][0],
        "found": {"stale read": 3},
        "by_run": {"run-1": {"stale read": 3}, "run-2": {"G0": 8}},
    }
    body = text({**SPARK, "checks": [check]})
    assert "certificate: reads: stale read 3, in run-1" in body and 'class="hero bad"' in body


def test_a_system_of_somebody_else_is_drawn_too(
    summary: dict[str, Any], figures: dict[str, Any]
) -> None:
    summary["systems"][EVIL] = summary["systems"].pop("sqlite")
    runs = {
        name: {**run, "system": EVIL if run["system"] == "sqlite" else run["system"]}
        for name, run in figures["runs"].items()
    }
    content = page(summary, {**figures, "runs": runs})
    assert EVIL not in undrawn(content)
    by_name = {d.name: d for d in drawings(content)}
    for name in ("latency-full", "chain-full"):
        one = render(by_name[name])
        assert "<script" not in one.svg
    assert "&lt;script" in one.svg
    blank = dict.fromkeys(by_name, Rendered("<svg></svg>", b""))
    evil = [name for name, drawing in by_name.items() if EVIL in drawing.title]
    assert evil and all("<" not in name for name in by_name), "names are of files, and of ids"
    assert EVIL not in html(content, blank | {name: render(by_name[name]) for name in evil})
