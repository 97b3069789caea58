"""Each command works on a store that another process owns, and has open: those that write attach to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import until
from process_kit import Other

import planstep
from planstep.errors import PlanstepError

MODES = ("deterministic", "kafka", "pulsar")


@pytest.fixture(params=MODES)
def owner(request: Any, tmp_path: Path) -> Iterator[Other]:
    with Other(tmp_path / "s", mode=request.param) as owner:
        yield owner
        assert owner("db.owner == os.getpid()")
        assert owner("db.context.runtime.turns.stopped") is None
        until(lambda: owner("len(db.context.runtime.replies.waiting)") == 0)


def test_topics(owner: Other, done: Any, fields: Any) -> None:
    store = owner.path
    done("topic", "create", store, "t", "--partitions", "2", "--format", "utf8")
    assert owner("list(db.topics())") == ["t"]
    done("topic", "create", store, "t", "--exist-ok")
    done("topic", "write", store, "t", "a", "b", "c", "--partition", "1")
    assert owner("db.topic('t').read().values") == ["a", "b", "c"]
    assert done("topic", "read", store, "t").count("\n") == 3
    done("topic", "alter", store, "t", "--retention", "30d")
    assert owner("db.topic('t').describe().retention") == 30 * 86_400
    done("topic", "trim", store, "t", "--before", "1", "--partition", "1")
    until(lambda: owner("db.topic('t').read().values") == ["b", "c"])
    assert [one["name"] for one in fields("topic", "list", store)["topics"]] == ["t"]
    done("topic", "drop", store, "t", "--yes")
    assert owner("list(db.topics())") == []


def test_consumers(owner: Other, done: Any, fields: Any) -> None:
    store = owner.path
    owner.run("db.create_topic('t'); db.topic('t').write_batch([b'a', b'b', b'c'])")
    done("consumer", "create", store, "t", "c", "--start", "latest")
    assert owner("db.topic('t').position('c')") == {0: 3}
    done("consumer", "create", store, "t", "c", "--start", "latest", "--exist-ok")
    done("consumer", "seek", store, "t", "c", "--to", "1")
    assert owner("db.topic('t').position('c')") == {0: 1}
    owner.run("with db.transaction() as tx: taken = tx.read('t', 'c').values")
    assert owner("taken") == [b"b", b"c"]
    assert [one["consumer"] for one in fields("consumer", "list", store, "t")["consumers"]] == ["c"]
    done("consumer", "drop", store, "t", "c", "--yes")
    assert owner("db.topic('t').consumers()") == {}


def test_what_looks(owner: Other, done: Any, fields: Any, refused: Any, tmp_path: Path) -> None:
    store = owner.path
    owner.run("db.create_topic('t'); db.topic('t').write(b'a')")
    assert fields("stats", store)["topics"] == {"t": 1}
    done("backup", store, tmp_path / "copy")
    done("log", "dump", store)
    said = refused("restore", tmp_path / "copy", store, "--force")
    assert f"in use by process {owner.pid}" in said and "needs the store alone" in said
    owner.run("db.topic('t').write(b'b')")


def test_tables(owner: Other, done: Any, refused: Any, tmp_path: Path) -> None:
    store = owner.path
    if owner("db.mode") != "deterministic":
        assert "no tables" in refused("table", "create", store, "n")
        return
    done("table", "create", store, "n")
    done("table", "put", store, "n", "k", "1")
    assert owner("db.table('n').get('k')") == 1
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"key": "x", "value": 2}\n{"key": "y", "value": 3}\n')
    done("table", "load", store, "n", rows, "--key", "key", "--value", "value")
    assert owner("dict(db.table('n').scan())") == {"k": 1, "x": 2, "y": 3}
    done("table", "delete", store, "n", "k")
    assert done("table", "count", store, "n").strip() == "2"
    done("table", "drop", store, "n", "--yes")
    assert owner("list(db.tables())") == []


def test_transactions(owner: Other, done: Any, fields: Any, refused: Any) -> None:
    store, mode = owner.path, owner("db.mode")
    owner.run("db.create_topic('t'); tx = db.transaction(worker='w'); tx.write('t', b'a')")
    if mode == "deterministic":
        assert fields("tx", "list", store)["transactions"]
        unknown = owner("tx.id")
        owner.run("tx.write('t', os.urandom(9 << 20))")  # sent ahead of the commit
        assert unknown in str(fields("tx", "list", store, "--open"))
        assert fields("tx", "resolve", store, unknown)["state"] in ("aborted", "refused")
        with pytest.raises(PlanstepError, match=unknown):
            owner.run("tx.commit()")
        with planstep.open(store) as db, pytest.raises(ValueError, match="not assigned"):
            db.resolve("1-99999999")
        return
    owner.run("tx.flush()")
    one = "w" if mode == "kafka" else owner("str(tx.txn_id)")
    assert one in str(fields("tx", "list", store, "--open"))
    done("tx", "resolve", store, one)
    with pytest.raises(PlanstepError):
        owner.run("tx.commit()")
    done("log", "batching", store, "on")
    assert done("log", "batches", store)


def test_an_owner_that_does_not_share(tmp_path: Path, refused: Any) -> None:
    with Other(tmp_path / "s", share=False) as owner:
        said = refused("topic", "create", owner.path, "t")
        assert f"in use by process {owner.pid}" in said and "only commands that look" in said
