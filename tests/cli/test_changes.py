"""Tests changing and dropping topics and tables, and single rows, from the command line."""

from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, python

import planstep
from planstep.cli import values


def test_retention(tmp_path: Path, done: Any, fields: Any, call: Any) -> None:
    store = tmp_path / "s"
    assert "retention 7d" in done("topic", "create", store, "clicks", "--retention", "7d")
    described = fields("topic", "describe", store, "clicks")
    assert described["retention_seconds"] == 604_800 and described["retention_bytes"] is None
    altered = fields("topic", "alter", store, "clicks", "--retention-bytes", "10GB")
    assert (altered["retention_seconds"], altered["retention_bytes"]) == (604_800, 10**10)
    altered = fields("topic", "alter", store, "clicks", "--retention", "none")
    assert (altered["retention_seconds"], altered["retention_bytes"]) == (None, 10**10)
    assert fields("topic", "list", store)["topics"][0]["retention_bytes"] == 10**10
    for words in ([], ["--retention", "soon"], ["--retention", "7"], ["--retention-bytes", "-1"]):
        status, _, err = call("topic", "alter", store, "clicks", *words)
        assert status == 2 and "--retention" in err
    assert "--exist-ok" in call("topic", "create", store, "clicks")[2]
    done("topic", "create", store, "clicks", "--exist-ok")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604_800), ("12h", 43_200), ("1d12h", 129_600), ("1.5h", 5400), ("90s", 90)],
)
def test_times_are_read_as_they_are_shown(text: str, seconds: float) -> None:
    assert values.duration(text, "--x") == seconds
    assert values.duration(values.shown_duration(seconds), "--x") == seconds


@pytest.mark.parametrize(
    ("text", "number"),
    [("10GB", 10**10), ("512MiB", 1 << 29), ("4096", 4096), ("1.5k", 1500), ("2 tib", 2 << 40)],
)
def test_sizes_are_read_as_they_are_shown(text: str, number: int) -> None:
    assert values.size(text, "--x") == number
    assert values.size(values.shown_size(number), "--x") == number


def test_trimmed_after_a_look(shop: Path, fields: Any, refused: Any) -> None:
    words = ("topic", "trim", shop, "clicks", "--before")
    moves = [{"partition": 0, "from": 0, "to": 2}]
    preview = fields(*words, "2", "--partition", "0", "--dry-run")
    assert preview == {"topic": "clicks", "dry_run": True, "removed": 2, "partitions": moves}
    assert fields("topic", "list", shop)["topics"][0]["records"] == 4
    assert fields(*words, "2", "--partition", "0")["removed"] == 2
    assert "--partition" in refused(*words, "2")
    assert fields(*words, "latest")["removed"] == 2
    assert fields("topic", "list", shop)["topics"][0]["records"] == 0
    assert fields("topic", "read", shop, "clicks", "--from", "0")["records"] == []


@pytest.mark.parametrize(("kind", "name", "held"), [("topic", "clicks", 4), ("table", "totals", 3)])
def test_dropped_when_told_twice(
    *, shop: Path, kind: str, name: str, held: int, call: Any, fields: Any, refused: Any
) -> None:
    assert call(kind, "drop", shop, name)[0] == 2
    assert f"did you mean '{name}'" in refused(kind, "drop", shop, name[:-1], "--yes")
    assert held in fields(kind, "drop", shop, name, "--yes").values()
    assert f"`planstep {kind} create`" in refused(kind, "drop", shop, name, "--yes")


def test_rows(shop: Path, done: Any, fields: Any, refused: Any) -> None:
    assert fields("table", "count", shop, "totals") == {"table": "totals", "rows": 3}
    assert done("table", "count", shop, "totals") == "3\n"
    result = fields("table", "delete", shop, "totals", "bob")
    assert result["found"] and len(result["place"]) == 2
    again = fields("table", "delete", shop, "totals", "bob")
    assert again == {"table": "totals", "key": "bob", "found": False, "place": None}
    assert done("table", "scan", shop, "totals", "--from", "b") == "eve\t1\n"
    assert done("table", "scan", shop, "totals", "--to", "b") == "ada\t1\n"
    assert "did you mean 'totals'" in refused("table", "count", shop, "total")
    done("table", "put", shop, "totals", '["u", 1]', '{"n": [1, "two"], "none": null}')
    assert done("table", "get", shop, "totals", '["u", 1]') == '{"n": [1, "two"], "none": null}\n'
    done("table", "put", shop, "totals", "odd", "a\tb\nc\x1b[2J")
    assert done("table", "scan", shop, "totals", "--from", "odd", "--limit", "1") == (
        "odd\ta\\tb\\nc\\x1b[2J\n"
    )


def test_a_misspelt_store_is_suggested(shop: Path, refused: Any) -> None:
    assert f"did you mean {str(shop)!r}" in refused("stats", shop.parent / "shp")


def test_who_writes_while_the_store_is_owned(shop: Path, tmp_path: Path) -> None:
    with planstep.open(shop, share=False):
        ended = python(PLANSTEP, "table", "put", shop, "totals", "k", "1", status=1)
    assert "only commands that look" in ended.stderr
    assert "read_only" not in ended.stderr
