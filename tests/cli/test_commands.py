"""The command line as a user meets it: results, --json as one object, errors in one line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import planstep


def run(*arguments: object, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from planstep.cli import main; main()"]
    ended = subprocess.run(
        [*command, *map(str, arguments)], input=stdin, capture_output=True, text=True, check=False
    )
    assert ended.returncode == status, ended.stderr
    return ended


def as_json(*arguments: object, status: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", status=status).stdout)


def test_reshard_prints_what_it_promises(tmp_path: Path) -> None:
    store = tmp_path / "s"
    result = as_json("reshard", store, "--generate", "2k", "--workers", "2", "--partitions", "4")
    assert result["input"] == {
        "name": "2000 generated events, seed 1",
        "records": 2000,
        "rejected": 0,
    }
    assert result["output"] == {
        "records": 2000,
        "missing": 0,
        "duplicated": 0,
        "out_of_order": 0,
    }
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
    assert as_json("table", "list", store)["tables"] == [{"name": "t", "shards": 4, "rows": 1}]


def test_a_transaction_is_explained(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with planstep.open(store, trace="messages") as db:
        db.create_table("t", shards=2)
        with db.transaction() as tx:
            for i in range(8):
                tx.put("t", i, i)
        ident = tx.id
    told = as_json("tx", "explain", store, ident)
    assert told["state"] == "committed" and len(told["participants"]) == 2
    assert {m["message"] for m in told["messages"]} == {"PlanRequest", "Plan", "Done", "Executed"}
    assert told["syncs"] == 1
    assert "committed" in run("tx", "list", store).stdout
    unknown = as_json("tx", "explain", store, "77-1")
    assert unknown["state"] == "unknown" and unknown["not_recorded"]
    assert as_json("tx", "resolve", store, "1-999")["state"] == "refused"


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
