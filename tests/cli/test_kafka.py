"""Tests commands on stores of mode "kafka": the raw log, transactional ids, groups, commands that do not apply."""

from pathlib import Path
from typing import Any

import pytest
from kit import until

import planstep
from planstep.proto.batch import encode_batch
from planstep.proto.ids import PROXY, tablet_id
from planstep.proto.kafka.coordinators import group_of
from planstep.proto.kafka.messages import Join, Produce, TxnOffsetCommit
from planstep.runtime.kafka.identities import under_way

NOBODY = tablet_id(PROXY, 0, 77)
"""An absent client: its requests are executed, but no one receives their answers."""


def ended(db: planstep.Engine) -> None:
    """Waits until all ended transactions have their markers."""
    stores = {node.host.number: node.host.store for node in db._runtime.nodes}
    until(lambda: not under_way(stores, db._runtime.names, 0))


def fill(db: planstep.Engine) -> planstep.Transaction:
    """Fills topics clicks and out by a committed, an aborted and an open transaction; returns the open one."""
    db.create_topic("clicks", partitions=2, format="utf8")
    out = db.create_topic("out", format="utf8")
    db.topic("clicks").write_batch(["a", "b"], partition=1)
    with db.transaction(worker="w1") as tx:
        batch = tx.read("clicks", consumer="resharder", max_records=1)
        tx.write_batch("out", [*batch.values, "x"])
    aborted = db.transaction(worker="w1")
    aborted.write("out", "no")
    tablet = out._info().partitions[0]
    until(lambda: db._runtime.views.whole_log(tablet)[1] == 4)
    aborted.rollback()
    ended(db)
    opened = db.transaction(worker="w2")
    opened.write_batch("out", ["y", "z"])
    until(lambda: db._runtime.views.whole_log(tablet)[1] == 7)
    out.write("behind")
    return opened


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def crashed(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a store as a crash leaves it: w2 has a transaction open."""
    store = tmp_path_factory.mktemp("kafka") / "left.planstep"
    with planstep.open(":memory:", mode="kafka", protocol_version=request.param) as db:
        opened = fill(db)
        db.backup(store)
        opened.rollback()
    return store


# the raw log ---------------------------------------------------------------------------------


def test_raw_shows_batches_and_markers(crashed: Path, fields: Any, done: Any) -> None:
    result = fields("topic", "read", crashed, "out", "--raw")
    assert (result["topic"], result["mode"], result["more"]) == ("out", "kafka", False)
    (part,) = result["partitions"]
    assert (part["partition"], part["start"], part["last_stable"], part["end"]) == (0, 0, 5, 8)
    kinds = [(b["offset"], b["records"], b["kind"]) for b in part["batches"]]
    assert kinds == [
        (0, 2, "transactional"),
        (2, 0, "commit marker"),
        (3, 1, "transactional"),
        (4, 0, "abort marker"),
        (5, 2, "transactional"),
        (7, 1, "plain"),
    ]
    first, marker = part["batches"][:2]
    assert first["producer"] == marker["producer"] and first["sequence"] == 0
    assert marker["sequence"] is None and marker["coordinator_epoch"] >= 0
    assert first["coordinator_epoch"] is None and first["bytes"] > 0 == marker["bytes"]
    lines = done("topic", "read", crashed, "out", "--raw").splitlines()
    assert lines[0] == "partition 0: log start 0, last stable offset 5, end 8"
    assert lines[1].startswith("0\t2\t") and len(lines) == 7
    assert [r["value"] for r in fields("topic", "read", crashed, "out")["records"]] == ["a", "x"]


def test_raw_begins_and_ends_where_it_is_told(crashed: Path, fields: Any, call: Any) -> None:
    result = fields("topic", "read", crashed, "out", "--raw", "--from", 4, "--limit", 2)
    assert [b["offset"] for b in result["partitions"][0]["batches"]] == [4, 5] and result["more"]
    result = fields("topic", "read", crashed, "clicks", "--raw", "--partition", 1)
    assert [p["partition"] for p in result["partitions"]] == [1]
    result = fields("topic", "read", crashed, "clicks", "--raw", "--from", "latest")
    assert [p["batches"] for p in result["partitions"]] == [[], []]
    for words in (["--follow"], ["--last", 3], ["--jsonl"]):
        status, out, err = call("topic", "read", crashed, "out", "--raw", *words)
        assert (status, out) == (2, "") and "--raw" in err
    assert call("topic", "read", crashed, "clicks", "--raw", "--from", 1)[0] == 1


def test_raw_shows_places_in_mode_deterministic(tmp_path: Path, fields: Any, done: Any) -> None:
    store = tmp_path / "s"
    with planstep.open(store) as db:
        place = db.create_topic("t", format="utf8").write_batch(["a", "b"])
    (part,) = fields("topic", "read", store, "t", "--raw")["partitions"]
    (batch,) = part["batches"]
    assert set(part) == {"partition", "start", "end", "batches"}
    assert (batch["offset"], batch["records"], batch["place"]) == (0, 2, list(place))
    assert done("topic", "read", store, "t", "--raw").startswith(
        "partition 0: log start 0, end 2\n"
    )


def dumped(fields: Any, store: Path) -> list[str]:
    records = fields("log", "dump", store, "--limit", 1000)["records"]
    return [line for record in records for line in record["appends"]]


def test_the_log_is_told_in_words(tmp_path: Path, fields: Any, done: Any) -> None:
    store = tmp_path / "s"
    with planstep.open(store, mode="kafka") as db:
        fill(db).rollback()
        ended(db)
    lines = dumped(fields, store)
    for line in (
        "catalogue: topic clicks",
        "clicks[1] @0 2 records producer 0 epoch 0 seq 0 plain",
        "transaction coordinator: w1 Empty producer 1 epoch 0",
        "transaction coordinator: w1 Ongoing [out[0], group coordinator] producer 1 epoch 0",
        "out[0] @0 2 records producer 1 epoch 0 seq 0 transactional",
        "group coordinator: resharder clicks[1] = 1 pending producer 1",
        "out[0] @2 commit marker producer 1 epoch 0",
        "group coordinator: commit marker producer 1 epoch 0",
        "transaction coordinator: w1 CompleteCommit producer 1 epoch 0",
        "out[0] @4 abort marker producer 1 epoch 0",
        "transaction coordinator: w2 CompleteAbort producer 2 epoch 0",
    ):
        assert line in lines, (line, lines)
    assert "out[0] @2 commit marker producer 1 epoch 0" in done("log", "dump", store, "--limit", 99)


def test_what_shares_an_append_shows_it(tmp_path: Path, fields: Any) -> None:
    store = tmp_path / "s"
    settings = planstep.KafkaSettings(
        log_batching=True, log_batch_records=2, log_batch_delay_ms=1000
    )
    with planstep.open(store, mode="kafka", kafka=settings) as db:
        db.create_topic("t", partitions=2, format="utf8")
        writers = [db.transaction(worker=name) for name in ("w1", "w2")]
        for number, tx in enumerate(writers):
            tx.write("t", "a", partition=number)
        until(
            lambda: (
                [db._runtime.views.whole_log(t)[1] for t in db.context.topic("t").partitions]
                == [1, 1]
            )
        )
        for tx in writers:
            tx.rollback()
    lines = [line for line in dumped(fields, store) if "Empty" in line]
    assert [line.partition("epoch 0 ")[2] for line in lines] == [
        "(1 of 2 in one append)",
        "(2 of 2 in one append)",
    ]


def test_the_log_of_mode_deterministic(tmp_path: Path, fields: Any) -> None:
    store = tmp_path / "s"
    with planstep.open(store) as db:
        db.create_topic("t", format="utf8")
        table = db.create_table("rows", shards=1)
        with db.transaction() as tx:
            tx.write_batch("t", ["a", "b", "c"])
            tx.put("rows", 1, 1)
            tx.put("rows", 2, 1)
        step, n = tx.commit.place
        table.delete(1)
        with db.transaction() as again:
            again.read("t", consumer="c")
        db.topic("t").trim(3)
    lines = dumped(fields, store)
    for line in (
        f"coordinator: step {step}",
        f"t[0] @0 3 records place ({step}, {n})",
        "rows[0] 2 rows put",
        "rows[0] 1 row deleted",
        "t[0] c = 3",
        "t[0] 1 entry removed",
        f"coordinator: {tx.id} committed",
    ):
        assert line in lines, (line, lines)


# transactional ids -----------------------------------------------------------------------------


def test_ids_are_listed_with_their_states(crashed: Path, fields: Any, done: Any) -> None:
    first, second = fields("tx", "list", crashed)["transactions"]
    assert (first["name"], first["age_seconds"], first["participants"]) == ("w1", None, [])
    assert first["state"] == "CompleteAbort" and first["updated_seconds"] >= 0
    assert (second["name"], second["state"], second["participants"]) == (
        "w2",
        "Ongoing",
        ["out[0]"],
    )
    assert second["age_seconds"] >= 0 and second["timeout_seconds"] == 60
    assert "waiting" not in second
    assert len(done("tx", "list", crashed, "--limit", 1).splitlines()) == 1


def test_open_ones_say_who_waits(crashed: Path, fields: Any, done: Any) -> None:
    transactions = fields("tx", "list", crashed, "--open")["transactions"]
    (second,) = [one for one in transactions if one["name"] == "w2"]
    assert second["waiting"] == [
        {
            "participant": "out[0]",
            "first_offset": 5,
            "last_stable": 5,
            "records_behind": 3,
            "positions": [],
        }
    ]
    assert "out[0]: 3 records from @5 on" in done("tx", "list", crashed, "--open")


def test_an_id_is_explained(crashed: Path, fields: Any, done: Any, refused: Any) -> None:
    result = fields("tx", "explain", crashed, "w2")
    assert (result["state"], result["waiting"][0]["records_behind"]) == ("Ongoing", 3)
    states = [record["state"] for record in result["log"]]
    assert states[-1] == "Ongoing" and "Empty" in states and result["not_recorded"]
    assert all(set(r) >= {"entry", "producer", "epoch", "updated_ms"} for r in result["log"])
    text = done("tx", "explain", crashed, "w2")
    assert "readers wait: out[0]: 3 records from @5 on" in text and "Ongoing [out[0]]" in text
    assert "did you mean 'w2'?" in refused("tx", "explain", crashed, "w22")
    assert "no transactional id '1-1'; `planstep tx list`" in refused(
        "tx", "explain", crashed, "1-1"
    )
    assert "no transactional id" in refused("tx", "resolve", crashed, "1-1")


def test_resolving_aborts_and_fences(crashed: Path, fields: Any, done: Any, tmp_path: Path) -> None:
    store = tmp_path / "s"
    planstep.restore(crashed, store)
    before = fields("tx", "explain", store, "w2")
    result = fields("tx", "resolve", store, "w2")
    assert (result["was"], result["state"]) == ("Ongoing", "Empty") and result["epoch"] > before[
        "epoch"
    ]
    assert all(one["name"] != "w2" for one in fields("tx", "list", store, "--open")["transactions"])
    values = [r["value"] for r in fields("topic", "read", store, "out")["records"]]
    assert values == ["a", "x", "behind"]
    assert fields("tx", "resolve", store, "w2")["was"] == "Empty"
    assert "has nothing open: Empty" in done("tx", "resolve", store, "w2")
    kinds = [
        b["kind"]
        for b in fields("topic", "read", store, "out", "--raw")["partitions"][0]["batches"]
    ]
    assert kinds[-1] == "abort marker"


def test_what_hangs_for_nobody_is_listed(tmp_path: Path, fields: Any, done: Any) -> None:
    """A batch that arrives after its transaction's abort opens a transaction that no coordinator knows."""
    store = tmp_path / "s"
    with planstep.open(store, mode="kafka") as db:
        db.create_topic("t", format="utf8")
        (tablet,) = db.context.topic("t").partitions
        data = encode_batch([b"late"])
        db._runtime.tell(tablet, Produce(NOBODY, 1, "gone", 999, 0, 0, data, 1))
        db.topic("t").write("behind")
    (one,) = fields("tx", "list", store, "--open")["transactions"]
    assert (one["name"], one["state"], one["producer"]) == (None, "Hanging", 999)
    assert one["waiting"][0]["records_behind"] == 2
    assert "Hanging\t999" in done("tx", "list", store, "--open")


# groups ------------------------------------------------------------------------------------------


def test_consumers_show_group_and_pending_positions(tmp_path: Path, fields: Any, done: Any) -> None:
    store = tmp_path / "s"
    with planstep.open(store, mode="kafka") as db:
        db.create_topic("t", format="utf8").write_batch(["a", "b", "c"])
        (tablet,) = db.context.topic("t").partitions
        with db.transaction(worker="w") as tx:
            tx.read("t", consumer="c", max_records=1)
        ended(db)
        group = group_of("c", 1)
        db._runtime.tell(group, Join(NOBODY, 1, "c", "reader-1"))
        moved = TxnOffsetCommit(NOBODY, 2, "x", 5, 0, "c", 1, "reader-1", ((tablet, 3),))
        db._runtime.tell(group, moved)
    result = fields("consumer", "describe", store, "t", "c")
    assert (result["generation"], result["members"], result["lag"]) == (1, ["reader-1"], 2)
    assert result["partitions"] == [
        {
            "partition": 0,
            "position": 1,
            "end": 3,
            "lag": 2,
            "missed": 0,
            "committed": 1,
            "pending": [{"producer": 5, "position": 3}],
        }
    ]
    assert "3 (producer 5)" in done("consumer", "describe", store, "t", "c")
    (listed,) = fields("consumer", "list", store, "t")["consumers"]
    assert (listed["generation"], listed["members"]) == (1, ["reader-1"])
    assert done("consumer", "list", store, "t") == "c\tcumulative\t2\t0\t1\treader-1\n"
    assert "group coordinator: c generation 1, members reader-1" in dumped(fields, store)


# making a store, and the other commands ----------------------------------------------------------


def test_a_store_is_made_in_a_mode(tmp_path: Path, fields: Any, done: Any, refused: Any) -> None:
    store = tmp_path / "s"
    done("topic", "create", store, "t", "--mode", "kafka", "--format", "utf8")
    done("topic", "create", store, "u")
    assert "mode='kafka'" in refused("topic", "create", store, "v", "--mode", "deterministic")
    assert "choose one of" in refused("topic", "create", tmp_path / "n", "t", "--mode", "kafak")
    assert not (tmp_path / "n").exists()
    written = fields("topic", "write", store, "t", "a", "b")
    assert (written["records"], written["place"]) == (2, None)
    assert done("topic", "write", store, "t", "c").strip() == "1 record written"


TABLES = [
    ("create", "rows"),
    ("list",),
    ("put", "rows", "k", "v"),
    ("get", "rows", "k"),
    ("scan", "rows"),
    ("count", "rows"),
    ("delete", "rows", "k"),
    ("drop", "rows", "--yes"),
]


@pytest.mark.parametrize("words", TABLES, ids=lambda words: words[0])
def test_tables_are_refused_in_one_line(
    crashed: Path, refused: Any, words: tuple[str, ...]
) -> None:
    assert 'mode "kafka" has no tables' in refused("table", words[0], crashed, *words[1:])


def test_the_other_commands(
    crashed: Path, tmp_path: Path, fields: Any, done: Any, refused: Any
) -> None:
    store = tmp_path / "s"
    done("restore", crashed, store)
    assert fields("topic", "describe", store, "out")["partitions"] == [
        {"partition": 0, "start": 0, "end": 5}
    ]
    assert {t["name"] for t in fields("topic", "list", store)["topics"]} == {"clicks", "out"}
    verified = fields("verify", store)
    assert verified == {"ok": True, "records": 4, "problems": []}  # the records shown to readers
    assert fields("stats", store)["topics"]["out"] == 5
    assert "individual" in refused("consumer", "create", store, "out", "i", "--kind", "individual")
    done("consumer", "create", store, "out", "c", "--start", "latest")
    assert fields("consumer", "lag", store, "out", "c")["lag"] == 0
    moved = fields("consumer", "seek", store, "out", "c", "--to", "2020-01-01")
    assert moved["partitions"] == [{"partition": 0, "from": 5, "to": 0}]
    done("consumer", "drop", store, "out", "c", "--yes")
    done("topic", "trim", store, "out", "--before", 3)
    done("topic", "alter", store, "out", "--retention", "7d")
    assert fields("topic", "describe", store, "out")["partitions"][0]["start"] == 3
    done("topic", "drop", store, "out", "--yes")
    assert set(fields("stats", store)["topics"]) == {"clicks"}


def test_exported_once_each(crashed: Path, tmp_path: Path, fields: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    result = fields("export", crashed, "--topic", "clicks", "--topic", "out", "--to", tmp_path)
    assert result["step"] is None and [file["rows"] for file in result["files"]] == [2, 2]
    assert parquet.read_table(tmp_path / "out.parquet")["value"].to_pylist() == ["a", "x"]
