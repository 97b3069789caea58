"""Tests loading many records and rows from stdin and files, in transactions of bounded size."""

import json
import re
import signal
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, Child

import planstep


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with planstep.open(tmp_path / "shop") as db:
        db.create_topic("raw")
        db.create_topic("texts", format="utf8")
        db.create_topic("objects", partitions=2, format="json")
        db.create_table("users")
    return tmp_path / "shop"


def test_lines_become_records(shop: Path, fields: Any) -> None:
    options = "--key", "k", "--header", "from=me"
    result = fields("topic", "write", shop, "texts", *options, stdin=b"a\n\nb")
    assert (result["records"], result["transactions"]) == (3, 1)
    records = fields("topic", "read", shop, "texts")["records"]
    assert [record["value"] for record in records] == ["a", "", "b"]
    assert {(record["key"], record["headers"]["from"]) for record in records} == {("k", "me")}
    result = fields("topic", "write", shop, "raw", stdin=b"x\n" * 25_000)
    assert (result["records"], result["transactions"]) == (25_000, 3)
    result = fields("topic", "write", shop, "raw", stdin=b"")
    assert result == {"topic": "raw", "records": 0, "transactions": 0, "place": None}


def test_what_is_read_as_lines_of_json_is_written_back(shop: Path, done: Any, fields: Any) -> None:
    with planstep.open(shop) as db:
        raw = db.topic("raw")
        raw.write(b"\xff\x00", key=b"\xfe", headers={"h": b"\xfd"})
        raw.write(b"hex:00", key="text")
        raw.write(b"", headers={"h": "x"})
    lines = done("topic", "read", shop, "raw", "--jsonl").encode()
    assert fields("topic", "write", shop, "raw", "--jsonl", stdin=lines)["records"] == 3
    with planstep.open(shop) as db:
        records = [(r.value, r.key, r.headers) for r in db.topic("raw").read()]
    assert records[:3] == records[3:]


def test_lines_of_json_name_key_and_headers(shop: Path, done: Any, fields: Any) -> None:
    lines = b'{"key": "u1", "value": {"n": 1}, "headers": {"a": "b"}}\n{"value": null}\n'
    options = "--jsonl", "--key", "other", "--partition", "1"
    done("topic", "write", shop, "objects", *options, stdin=lines)
    first, second = fields("topic", "read", shop, "objects")["records"]
    assert (first["key"], first["value"], first["headers"]) == ("u1", {"n": 1}, {"a": "b"})
    assert (second["key"], second["value"], second["partition"]) == ("other", None, 1)


@pytest.mark.parametrize(
    ("topic", "line", "message"),
    [
        ("objects", b"{no json", "line 2 is no JSON"),
        ("objects", b"[1]", 'no object with a "value"'),
        ("objects", b'{"key": "a"}', 'no object with a "value"'),
        ("objects", b'{"value": 1, "kye": "a"}', "did you mean 'key'?"),
        ("objects", b'{"value": 1, "key": 5}', "key is text"),
        ("objects", b'{"value": 1, "headers": 5}', "headers is an object"),
        ("objects", b'{"value": NaN}', "JSON"),
        ("raw", b'{"value": {"a": 1}}', "value is text"),
        ("raw", b'{"value": "hex:xy"}', "no hex"),
        ("texts", b'{"value": 5}', "utf8"),
        ("raw", b"\xff", "line 2 is no JSON"),
    ],
)
def test_a_wrong_line_is_named(
    shop: Path, topic: str, line: bytes, message: str, refused: Any
) -> None:
    good = b'{"value": "fine"}\n'
    err = refused("topic", "write", shop, topic, "--jsonl", stdin=good + line + b"\n")
    assert message in err and "nothing was written" in err
    err = refused("topic", "write", shop, topic, "--jsonl", stdin=good * 10_000 + line)
    assert "10000 records are written" in err


def test_usage(shop: Path, call: Any) -> None:
    for words in (["--header", "nonsense", "x"], ["--file", "y", "x"]):
        status, _, err = call("topic", "write", shop, "texts", *words)
        assert status == 2 and "--" in err


@pytest.mark.parametrize("interrupted", [False, True])
def test_lines_that_trickle_in_are_visible_at_once(shop: Path, interrupted: bool) -> None:
    words = "--from", "0", "--limit", "2"
    with (
        Child(PLANSTEP, "topic", "write", shop, "texts", stderr=subprocess.PIPE) as child,
        Child(PLANSTEP, "topic", "read", shop, "texts", "-f", *words) as follower,
    ):
        for text in ("one", "two"):
            child.tell(text)
            assert follower.line().endswith(text)
        follower.end()
        if interrupted:
            child.process.send_signal(signal.SIGINT)
        out, err = child.process.communicate()
    if interrupted:
        assert (child.process.returncode, out) == (130, "")
        assert re.fullmatch(r"interrupted: at least [12] records are written\n", err)
    else:
        assert (child.process.returncode, err) == (0, "") and out.startswith("2 records written")


# table load ------------------------------------------------------------------------------------


def rows_of(shop: Path) -> dict[Any, Any]:
    with planstep.open(shop) as db:
        return dict(db.table("users").scan())


def test_load_lines_of_json(shop: Path, tmp_path: Path, fields: Any, refused: Any) -> None:
    file = tmp_path / "users.jsonl"
    file.write_text('{"id": 1, "name": "ada"}\n\n{"id": 2, "name": "bob", "x": [1]}\n')
    result = fields("table", "load", shop, "users", file, "--key", "id")
    assert result == {"table": "users", "rows": 2}
    assert rows_of(shop) == {1: {"name": "ada"}, 2: {"name": "bob", "x": [1]}}
    fields("table", "load", shop, "users", file, "--key", "name", "--key", "id", "--value", "id")
    assert rows_of(shop)["ada", 1] == 1
    assert "did you mean 'name'" in refused("table", "load", shop, "users", file, "--key", "nmae")
    file.write_text('{"id": 3}\nnonsense\n')
    err = refused("table", "load", shop, "users", file, "--key", "id")
    assert "line 2" in err and "0 rows were loaded" in err


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_load_columns(shop: Path, tmp_path: Path, fields: Any, refused: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    file = tmp_path / "users.csv"
    file.write_text("id,born,zip\n1,2026-11-21,00123\n2,2026-11-22,4\n")
    words = ("table", "load", shop, "users", file, "--key", "id")
    assert fields(*words, "--text", "zip")["rows"] == 2
    assert rows_of(shop)[1] == {"born": "2026-11-21", "zip": "00123"}
    assert rows_of(shop)[2] == {"born": "2026-11-22", "zip": "4"}
    assert "did you mean 'born'" in refused(*words[:-1], "bron")
    file.write_text("id,name\n" + "1,a\n" * 3_000_000 + "none,b\n")
    err = refused(*words)
    assert "nothing was loaded" in err and "--text" in err

    import pyarrow.parquet as parquet

    table = pa.table({"id": [7, 8], "n": [1.5, 2.5], "day": [date(2026, 1, 2)] * 2})
    parquet.write_table(table, tmp_path / "n.parquet")
    words = ("table", "load", shop, "users", tmp_path / "n.parquet", "--key", "id")
    assert fields(*words, "--value", "n")["rows"] == 2
    assert rows_of(shop)[8] == 2.5
    assert fields(*words)["rows"] == 2
    assert rows_of(shop)[7] == {"n": 1.5, "day": "2026-01-02"}
    (tmp_path / "n.parquet").write_bytes(b"nonsense")
    assert "n.parquet" in refused(*words)


def test_load_usage(shop: Path, tmp_path: Path, call: Any, refused: Any) -> None:
    (tmp_path / "users.txt").touch()
    assert call("table", "load", shop, "users", tmp_path / "users.txt", "--key", "id")[0] == 2
    assert call("table", "load", shop, "users", tmp_path / "users.jsonl")[0] == 2
    missing = tmp_path / "users.jsonl"
    assert "No such file" in refused("table", "load", shop, "users", missing, "--key", "id")
    missing.write_text(json.dumps({"id": 1}))
    assert "did you mean 'users'" in refused("table", "load", shop, "user", missing, "--key", "id")
