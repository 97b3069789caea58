"""Tests the command line as a user meets it: results, --json as one object, errors in one line."""

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, Child, python

import planstep


def run(*arguments: object, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    return python(PLANSTEP, *arguments, status=status, input=stdin)


def as_json(*arguments: object, status: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", status=status).stdout)


def test_reshard_prints_what_it_promises(tmp_path: Path) -> None:
    store = tmp_path / "s"
    result = as_json("reshard", store, "--generate", "2k", "--workers", "2", "--partitions", "4")
    name = "2000 generated events, seed 1"
    assert result["input"] == {"name": name, "records": 2000, "rejected": 0}
    wrong = {"missing": 0, "duplicated": 0, "out_of_order": 0}
    assert result["output"] == {"records": 2000, **wrong}
    assert result["table_mismatches"] == 0 and result["verified"] and not result["already_done"]
    assert set(result["transactions"]) == {"committed", "conflicts", "retries"}
    assert {
        "syncs",
        "syncs_per_transaction",
        "checkpoints",
        "bytes_written_per_payload_byte",
    } == set(result["store"])
    assert result["payload_bytes"] > 0 and result["seconds"] > 0
    again = as_json("reshard", store, "--generate", "2k", "--partitions", "4")
    assert again["already_done"] and again["verified"]
    assert as_json("verify", store) == {"ok": True, "records": 4000, "problems": []}
    other = run("reshard", store, "--generate", "3k", "--partitions", "4", status=1)
    assert "another resharding" in other.stderr and other.stdout == ""
    assert as_json("stats", store)["topics"]["events"] == 2000
    dumped = as_json("log", "dump", store)
    assert dumped["records"][-1]["kind"] == "close"


def test_topics_and_tables(tmp_path: Path) -> None:
    store = tmp_path / "s"
    run("topic", "create", store, "clicks", "--partitions", "2")
    written = run("topic", "write", store, "clicks", "--key", "u", stdin="a\nb\n")
    assert "2 records written" in written.stdout
    records = as_json("topic", "read", store, "clicks")["records"]
    assert [r["value"] for r in records] == ["a", "b"]
    assert as_json("topic", "list", store)["topics"][0]["records"] == 2
    ends = as_json("topic", "describe", store, "clicks")["partitions"]
    assert sorted(p["end"] for p in ends) == [0, 2]
    run("table", "create", store, "t")
    run("table", "put", store, "t", '["u", 1]', '{"n": 3}')
    assert as_json("table", "get", store, "t", '["u", 1]')["value"] == {"n": 3}
    assert as_json("table", "get", store, "t", "nobody", status=1)["found"] is False
    assert as_json("table", "scan", store, "t", "--prefix", '["u"]')["rows"][0]["key"] == ["u", 1]
    assert as_json("table", "list", store)["tables"] == [
        {"name": "t", "shards": 4, "rows": 1, "format": "msgpack"}
    ]


def test_a_transaction_is_explained(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with planstep.open(store, trace="messages") as db:
        db.create_table("t", shards=2)
        with db.transaction() as tx:
            for i in range(8):
                tx.put("t", i, i)
        ident = tx.id
    result = as_json("tx", "explain", store, ident)
    assert result["state"] == "committed" and result["participants"] == ["table t/0", "table t/1"]
    assert {m["to"] for m in result["messages"]} >= {"table t/0", "table t/1"}
    assert {m["message"] for m in result["messages"]} == {"PlanRequest", "Plan", "Done", "Executed"}
    assert result["syncs"] == 1
    assert "committed" in run("tx", "list", store).stdout
    assert f"{result['place'][0]}, " in run("tx", "list", store).stdout.split("committed\t(")[1]
    for words in (("tx", "explain", store, "77-1"), ("tx", "resolve", store, "1-999")):
        assert "no such transaction: " in run(*words, status=1).stderr


def test_a_typo_makes_no_store(tmp_path: Path) -> None:
    for words in (
        ["topic", "list", tmp_path / "nope"],
        ["topic", "write", tmp_path / "nope", "t", "x"],
        ["table", "get", tmp_path / "nope", "t", "k"],
        ["stats", tmp_path / "nope"],
        ["verify", tmp_path / "nope"],
        ["log", "dump", tmp_path / "nope"],
    ):
        ended = run(*words, status=1)
        assert "not a store" in ended.stderr and "Traceback" not in ended.stderr
    assert not (tmp_path / "nope").exists()


def test_wrong_usage_is_said() -> None:
    assert run("reshard", status=2).stdout == ""
    assert "no count" in run("reshard", "--generate", "many", status=2).stderr
    assert "reshard" in run("--help").stdout
    ended = run("reshard", "--generate", "9", "--protocol-version", "2", status=1)
    assert "protocol_version= is a setting of mode 'kafka'" in ended.stderr


# bad input: one line, and the store is as it was ----------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("cli") / "s"
    with planstep.open(store) as db:
        db.create_topic("raw", partitions=2).write(b"\xff\x00", key=b"\xfe")
        db.create_topic("texts", format="utf8")
        db.create_topic("objects", format="json")
        db.create_table("rows").put("k", 1)
        db.create_table("totals")
        db.create_table("bytes", format="bytes").put(b"\xff", b"\xfe")
    return store


BAD = [
    ("topic", "create", "STORE", "a/b"),
    ("topic", "create", "STORE", ".."),
    ("topic", "create", "STORE", "x" * 201),
    ("topic", "create", "STORE", "raw"),
    ("topic", "create", "STORE", "new", "--format", "xml"),
    ("topic", "create", "STORE", "new", "--partitions", "2000000000"),
    ("topic", "create", "STORE", "new", "--hosts", "3"),
    ("topic", "create", "STORE", "new", "--retention", "0s"),
    ("topic", "alter", "STORE", "raw", "--retention-bytes", "9999999999TB"),
    ("topic", "trim", "STORE", "raw", "--before", "5"),
    ("topic", "trim", "STORE", "raw", "--before", "99", "--partition", "0"),
    ("topic", "read", "STORE", "rwa", "--follow"),
    ("topic", "read", "STORE", "raw", "--follow", "--partition", "9"),
    ("topic", "write", "STORE", "raw", "x", "--partition", "9"),
    ("topic", "write", "STORE", "raw", "--jsonl", "x"),
    ("consumer", "create", "STORE", "raw", "a/b"),
    ("consumer", "describe", "STORE", "raw", "nobody"),
    ("consumer", "list", "STORE", "rwa"),
    ("topic", "describe", "STORE", "rw"),
    ("topic", "write", "STORE", "objects", "{not json"),
    ("topic", "write", "STORE", "objects", "[" * 900 + "]" * 900),
    ("topic", "write", "STORE", "objects", "[" * 20_000 + "]" * 20_000),
    ("tx", "list", "STORE", "--limit", "9" * 30),
    ("tx", "explain", "STORE", "9" * 5000 + "-1"),
    ("tx", "resolve", "STORE", "99-1"),
    ("topic", "write", "STORE", "texts", "--file", "FILE"),
    ("topic", "write", "STORE", "texts", "--file", "/does/not/exist"),
    ("topic", "read", "STORE", "raw", "--start", "5"),
    ("topic", "read", "STORE", "raw", "--partition", "9"),
    ("topic", "read", "STORE", "raw", "--partition", "0", "--start", "99"),
    ("table", "create", "STORE", "rows"),
    ("table", "get", "STORE", "rows", '{"a": 1}'),
    ("table", "get", "STORE", "rows", "NaN"),
    ("table", "get", "STORE", "rows", "x" * 5000),
    ("table", "get", "STORE", "none", "k"),
    ("table", "put", "STORE", "rows", "k", "123456789012345678901234567890"),
    ("table", "put", "STORE", "rows", '["a", {"b": 1}]', "1"),
    ("table", "scan", "STORE", "rows", "--prefix", '{"a": 1}'),
    ("table", "scan", "STORE", "rows", "--prefix", "1", "--from", "2"),
    ("table", "delete", "STORE", "rows", '{"a": 1}'),
    ("table", "load", "STORE", "rows", "/does/not/exist.jsonl", "--key", "k"),
    ("tx", "explain", "STORE", "nonsense"),
    ("tx", "explain", "STORE", "99999999999999999999-1"),
    ("tx", "resolve", "STORE", "-"),
    ("log", "dump", "STORE", "--host", "7"),
    ("stats", "FILE"),
    ("topic", "create", "FILE", "t"),
    ("verify", "FILE"),
    ("reshard", "STORE", "--generate", "5"),
    ("reshard", "STORE", "/does/not/exist"),
]
USAGE = [
    ("topic", "read", "STORE", "raw", "--from", ""),
    ("topic", "read", "STORE", "raw", "--from", "2026-13-01"),
    ("topic", "read", "STORE", "raw", "--from", "9" * 30),
    ("topic", "alter", "STORE", "raw", "--retention", "9" * 400 + ".5d"),
    ("topic", "alter", "STORE", "raw", "--retention-bytes", "9" * 400 + ".5GB"),
    ("topic", "drop", "STORE", "raw"),
    ("table", "load", "STORE", "rows", "FILE", "--key", "k"),
    ("consumer", "seek", "STORE", "raw", "c"),
    ("topic", "read", "STORE", "raw", "--limit", "9" * 30),
    ("topic", "read", "STORE", "raw", "--limit", "0"),
    ("topic", "read", "STORE", "raw", "--start", "-1"),
    ("log", "dump", "STORE", "--limit", "0"),
    ("log", "dump", "STORE", "--host", "-1"),
    ("log", "dump", "STORE", "--limit", "9" * 30),
    ("tx", "list", "STORE", "--limit", "many"),
    ("topic", "create", "STORE", "new", "--partitions", "0"),
    ("reshard", "--generate", "x"),
    ("reshard", "--generate", ""),
    ("reshard", "--demo", "--generate", "5"),
    ("reshard", "--demo", "--workers", "0"),
    ("topic",),
    ("nonsense",),
]


@pytest.mark.parametrize("words", BAD, ids=lambda words: " ".join(words)[:60])
def test_bad_input_is_one_line(
    shop: Path, tmp_path: Path, words: tuple[str, ...], call: Any
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"fine\n\xff\xfe\n")
    before = digest(shop)
    status, out, err = call(*({"STORE": shop, "FILE": file}.get(word, word) for word in words))
    assert (status, out) == (1, "")
    assert err.startswith("planstep: ") and len(err.splitlines()) == 1
    assert digest(shop) == before


@pytest.mark.parametrize("words", USAGE, ids=lambda words: " ".join(words)[:60])
def test_wrong_usage_is_exit_2(shop: Path, words: tuple[str, ...], call: Any) -> None:
    status, _, err = call(*(shop if word == "STORE" else word for word in words))
    assert status == 2 and "Traceback" not in err


def digest(store: Path) -> Any:
    with planstep.open(store, read_only=True) as db, db.snapshot() as view:
        topics = {name: topic.describe() for name, topic in db.topics().items()}
        return topics, {name: list(view.scan(name)) for name in db.tables()}


def test_verify_names_what_is_wrong(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with planstep.open(store) as db:
        db.create_topic("t").write(b"hello hello hello")
        db.create_table("n").put("k", 1)
    (segment,) = (store / "host-0").glob("log-*")
    data = bytearray(segment.read_bytes())
    at = data.find(b"hello hello")
    data[at] ^= 1
    segment.write_bytes(data)
    verdict = as_json("verify", store, status=1)
    assert not verdict["ok"] and verdict["problems"]
    for problem in verdict["problems"]:
        assert set(problem) == {"tablet", "key", "what"}
    assert any("topic t, partition 0" in p["tablet"] for p in verdict["problems"])


def test_bytes_that_are_no_text_are_shown(shop: Path) -> None:
    (record,) = as_json("topic", "read", shop, "raw")["records"]
    assert record["value"] == "hex:ff00" and record["key"] == "hex:fe"
    assert as_json("table", "scan", shop, "bytes")["rows"] == [{"key": "hex:ff", "value": "hex:fe"}]


# PLANSTEP_STORE --------------------------------------------------------------------------------


def test_the_store_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s"
    monkeypatch.setenv("PLANSTEP_STORE", str(store))
    run("topic", "create", "clicks", "--partitions", "2")
    assert "2 records" in run("topic", "write", "clicks", "a", "b").stdout
    assert "1 record " in run("topic", "write", store, "clicks", "c").stdout
    assert "1 record " in run("topic", "write", "clicks", stdin="d\n").stdout
    assert len(as_json("topic", "read", "clicks", "--limit", "9")["records"]) == 4
    assert as_json("topic", "read", "--limit", "1", store, "clicks")["topic"] == "clicks"
    run("table", "create", "t")
    run("table", "put", "t", "k", "1")
    assert as_json("table", "get", "t", "k")["value"] == 1
    assert as_json("stats")["topics"] == {"clicks": 4}
    assert as_json("verify")["ok"]
    assert as_json("tx", "list")["transactions"]
    assert as_json("log", "dump", "--limit", "1")["records"][0]["kind"] == "close"
    assert "no such transaction: 77-1" in run("tx", "explain", "77-1", status=1).stderr
    monkeypatch.setenv("PLANSTEP_STORE", str(tmp_path / "r"))
    assert as_json("reshard", "--generate", "500")["verified"]
    assert (tmp_path / "r").is_dir()


def test_log_files_need_no_store(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(b'h - - [t] "GET /x HTTP/1.1" 200 1\nnonsense\n')
    result = as_json("reshard", log)
    assert result["input"]["records"] == 1 and result["input"]["rejected"] == 1
    log.write_bytes(b"nonsense\n\n")
    ended = run("reshard", tmp_path / "s", log, "--json")
    assert json.loads(ended.stdout)["input"]["rejected"] == 2
    assert f"{log}:1: rejected" in ended.stderr and f"{log}:2: rejected" in ended.stderr


def test_an_interrupt_is_said_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = "reshard", tmp_path / "s", "--generate", "150k", "--batch", "1000"
    with Child(PLANSTEP, *words, stderr=subprocess.PIPE) as child:
        assert "load: " in child.process.stderr.readline()
        child.process.send_signal(signal.SIGINT)
        out, err = child.process.communicate()
    assert child.process.returncode == 130, err
    assert err.splitlines()[-1] == "interrupted; the same command goes on where it stopped"
    assert "Traceback" not in err and out == ""
    result = as_json(*words)
    assert result["verified"] and not result["already_done"]


# the promises of the help ----------------------------------------------------------------------


def fields_of(value: Any) -> Any:
    """Returns the field names in a result, as deep as help texts go: lists and dictionaries of dictionaries."""
    if isinstance(value, list):
        return fields_of(value[0]) if value and isinstance(value[0], dict) else None
    if isinstance(value, dict):
        return {name: fields_of(item) for name, item in value.items()}
    return None


def test_the_help_names_every_field(shop: Path, call: Any, fields: Any) -> None:
    with planstep.open(shop) as db:
        tx = db.transactions(1)[0].tx
    commands = {
        "topic list": [shop],
        "topic describe": [shop, "raw"],
        "topic read": [shop, "raw"],
        "topic write": [shop, "raw", "x"],
        "topic create": [shop, "more"],
        "topic alter": [shop, "more", "--retention", "1d"],
        "topic trim": [shop, "raw", "--before", "latest"],
        "consumer create": [shop, "raw", "c"],
        "consumer list": [shop, "raw"],
        "consumer describe": [shop, "raw", "c"],
        "consumer lag": [shop, "raw"],
        "consumer seek": [shop, "raw", "c", "--to", "latest"],
        "consumer drop": [shop, "raw", "c", "--yes"],
        "topic drop": [shop, "more", "--yes"],
        "table create": [shop, "more"],
        "table list": [shop],
        "table get": [shop, "rows", "k"],
        "table put": [shop, "rows", "k", "2"],
        "table scan": [shop, "rows"],
        "table count": [shop, "rows"],
        "table delete": [shop, "rows", "k"],
        "table drop": [shop, "more", "--yes"],
        "tx list": [shop],
        "tx explain": [shop, tx],
        "tx resolve": [shop, tx],
        "log dump": [shop],
        "stats": [shop],
        "verify": [shop],
        "reshard": ["--generate", "200"],
    }
    results = {name: fields(*name.split(), *words) for name, words in commands.items()}
    for words, result in results.items():
        _, output, _ = call(*words.split(), "--help")
        text = " ".join(output.replace("│", " ").split())
        promise = text[text.index("JSON:") : text.index("Example")]
        for name, inner in (fields_of(result) or {}).items():
            assert re.search(rf"\b{name}\b", promise), (words, name)
            if name in ("topics", "tables") and words == "stats":
                continue  # by name
            for deeper in inner or {}:
                assert re.search(rf"\b{deeper}\b", promise), (words, name, deeper)
