"""Tests commands on stores of mode "pulsar": open transactions, buffers, pending acknowledgements, logs."""

from pathlib import Path
from typing import Any

import pytest
from kit import until

import planstep
from planstep import PulsarSettings
from planstep.proto.ids import tablet_prefix
from planstep.proto.pulsar.coordinators import coordinator_tablet
from planstep.store.disk_store import DiskStore


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a store as a crash leaves it: (0,2) has written, and has acknowledged for two consumers."""
    store = tmp_path_factory.mktemp("pulsar") / "left.planstep"
    a_day = PulsarSettings(transaction_timeout_ms=86_400_000)  # open, however slow the machine
    with planstep.open(":memory:", mode="pulsar", pulsar=a_day) as db:
        clicks = db.create_topic("clicks", format="utf8")
        clicks.write_batch(["a", "b", "c"])
        clicks.create_consumer("many", kind="individual")
        out = db.create_topic("out", format="utf8")
        with db.transaction() as tx:
            tx.write_batch("out", tx.read("clicks", "one", max_records=1).values)
        aborted = db.transaction()
        aborted.write("out", "no")
        aborted.flush()
        db.abort_transaction(aborted.id)
        aborted.rollback()
        opened = db.transaction()
        opened.write_batch("out", ["y", "z"])
        opened.flush()
        client, (tablet,) = db.context.runtime.turns.client, db.context.topic("clicks").partitions
        with client.locked():
            client.core.acknowledge(opened.life.tx, tablet, "one", (), 3)
            client.core.acknowledge(opened.life.tx, tablet, "many", ((0, 1), (2, 3)))
        client.deliver()
        until(lambda: db.pending_acks("clicks", "one") and db.pending_acks("clicks", "many"))
        out.write("behind")
        db.backup(store)
        opened.rollback()
    return store


def test_open_transactions_say_who_waits(crashed: Path, fields: Any, done: Any) -> None:
    for words in (["list"], ["list", "--open"], ["slow", "--seconds", 0]):
        (one,) = fields("tx", *words[:1], crashed, *words[1:])["transactions"]
        assert (one["tx"], one["state"], one["coordinator"]) == ("(0,2)", "OPEN", 0)
        assert one["age_seconds"] > 0 and one["timeout_seconds"] == 86_400
        assert one["participants"] == ["out[0]", "clicks[0] for many", "clicks[0] for one"]
        waits = {held["participant"]: held for held in one["waiting"]}
        assert (waits["out[0]"]["last_stable"], waits["out[0]"]["records_behind"]) == (4, 3)
        assert waits["clicks[0]"]["positions"] == ["many [0, 1)", "many [2, 3)", "one [1, 3)"]
    assert fields("tx", "slow", crashed, "--seconds", 80_000)["transactions"] == []
    assert "out[0]: 3 records from @4 on" in done("tx", "list", crashed)


def test_one_is_explained(crashed: Path, fields: Any, done: Any, refused: Any) -> None:
    result = fields("tx", "explain", crashed, "(0,2)")
    texts = [record["text"] for record in result["log"]]
    assert texts[:2] == ["(0,2) opened, time-out 86400000 ms", "(0,2) writes out[0]"]
    assert len(texts) == 4 and result["not_recorded"]
    lines = done("tx", "explain", crashed, "(0,2)")
    assert "readers wait: many [0, 1), many [2, 3), one [1, 3) pending" in lines
    assert "no transaction (0,1) is open" in refused("tx", "explain", crashed, "(0,1)")
    assert "one looks like (0,5)" in refused("tx", "explain", crashed, "3-17")


def test_a_topic_says_who_holds_it(crashed: Path, fields: Any, done: Any) -> None:
    (buffer,) = fields("topic", "describe", crashed, "out")["buffers"]
    assert (buffer["max_read"], buffer["end"], buffer["held_by"]) == (4, 7, "(0,2)")
    assert (buffer["aborted"], buffer["ongoing"], buffer["snapshots"]) == (1, 1, "single")
    assert fields("stats", crashed)["topics"]["out"] == 4, "up to where readers may read"
    assert "\t(0,2)\t3\t1\t1\tsingle" in done("topic", "describe", crashed, "out")


def test_raw_batches_have_ids_and_markers(crashed: Path, fields: Any) -> None:
    (part,) = fields("topic", "read", crashed, "out", "--raw")["partitions"]
    assert (part["last_stable"], part["end"]) == (4, 7)
    assert [(b["kind"], b["txn_id"]) for b in part["batches"]] == [
        ("transactional", "(0,0)"),
        ("commit marker", "(0,0)"),
        ("transactional", "(0,1)"),
        ("abort marker", "(0,1)"),
        ("transactional", "(0,2)"),
        ("plain", None),
    ]


def test_a_consumer_says_what_is_pending(crashed: Path, fields: Any, done: Any) -> None:
    def pending(name: str) -> Any:
        (part,) = fields("consumer", "describe", crashed, "clicks", name)["partitions"]
        return [(p["begin"], p["end"], p["txn_id"], p["cumulative"]) for p in part["pending"]]

    assert pending("one") == [(1, 3, "(0,2)", True)]
    assert pending("many") == [(0, 1, "(0,2)", False), (2, 3, "(0,2)", False)]
    assert "up to 3 in (0,2)" in done("consumer", "describe", crashed, "clicks", "one")
    text = done("consumer", "describe", crashed, "clicks", "many")
    assert "[0, 1) in (0,2), [2, 3) in (0,2)" in text


def filled(store: Path) -> None:
    with planstep.open(store, mode="pulsar") as db:
        db.create_topic("clicks", format="utf8").write_batch(["a", "b"])
        with db.transaction() as tx:
            tx.write_batch("clicks", tx.read("clicks", "c").values)


def test_an_exclusive_consumer_is_made(
    tmp_path: Path, done: Any, fields: Any, refused: Any, shop: Path
) -> None:
    filled(tmp_path / "s")
    create = "consumer", "create", tmp_path / "s", "clicks", "one"
    done(*create, "--exclusive")
    assert fields("consumer", "describe", *create[2:])["exclusive"]
    assert "cumulative and exclusive" in refused(*create, "--exist-ok")
    assert 'mode "pulsar" has them' in refused(
        "consumer", "create", shop, "clicks", "x", "--exclusive"
    )


def test_the_log_is_told_in_words(tmp_path: Path, fields: Any) -> None:
    filled(tmp_path / "s")
    records = fields("log", "dump", tmp_path / "s", "--limit", 1000)["records"]
    lines = [line for record in records for line in record["appends"]]
    for line in (
        "transaction coordinator: (0,0) acknowledges clicks[0] for c",
        "clicks[0] for c: (0,0) acknowledges to 2, pending",
        "clicks[0] for c: (0,0) committed",
        "clicks[0] @4 commit marker (0,0)",
        "transaction coordinator: (0,0) COMMITTING",
    ):
        assert line in lines, (line, lines)


@pytest.mark.parametrize(
    "where, what",
    [
        ((coordinator_tablet(0, 1), b"d"), "0 deadlines are tracked, 1 transactions are open"),
        ((coordinator_tablet(0, 1), b"l"), "transaction 2: the log has None"),
        ((None, b"j"), "many: the log says that"),
        ((None, b"lone\0l"), "one: the log says that"),
    ],
)
def test_verify_notices_rows_that_differ_from_their_log(
    crashed: Path, tmp_path: Path, where: Any, what: str, fields: Any, call: Any
) -> None:
    store, (tablet, row) = tmp_path / "s", where
    planstep.restore(crashed, store)
    assert fields("verify", store)["ok"]
    with planstep.open(store, read_only=True) as db:
        prefix = tablet_prefix(tablet or db.context.topic("clicks").partitions[0])
    disk = DiskStore.open(store / "host-0", create=False, durability="os")
    turn = disk.begin()
    for key, _ in disk.scan(prefix + row, prefix + row + b"\xff" * 20):
        turn.delete(key)
    disk.commit(turn)
    disk.close()
    status, out, _ = call("verify", store, "--json")
    assert status == 1 and what in out


def test_an_open_one_is_resolved_and_an_ended_one_is_not(
    crashed: Path, tmp_path: Path, done: Any, fields: Any, refused: Any
) -> None:
    store = tmp_path / "s"
    planstep.restore(crashed, store)
    assert fields("tx", "resolve", store, "(0,2)") == {"tx": "(0,2)", "state": "ABORTED"}
    assert done("tx", "list", store) == ""
    assert [r["value"] for r in fields("topic", "read", store, "out")["records"]] == ["a", "behind"]
    assert "TransactionNotFound: (0,0)" in refused("tx", "resolve", store, "(0,0)")
    assert "ids like (0,5)" in refused("tx", "resolve", store, "3-17")


@pytest.mark.parametrize("mode", ["pulsar", "kafka"])
def test_batching_is_switched_and_reported(
    mode: Any, tmp_path: Path, fields: Any, done: Any, call: Any, refused: Any
) -> None:
    store = tmp_path / "s"
    planstep.open(store, mode=mode).close()

    def on() -> list[tuple[str, bool | None]]:
        logs = fields("log", "batches", store)["logs"]
        return [(one["logs"], one["batching"]) for one in logs]

    assert on()[0] == ("transactions", None)
    assert done("log", "batching", store, "on", "--logs", "transactions").endswith("is on\n")
    assert on()[0] == ("transactions", True)
    if mode == "kafka":
        assert on()[1] == ("groups", None)
        assert "pulsar" in refused("log", "batching", store, "on", "--logs", "pending-acks")
        return
    filled(store)
    assert on() == [("transactions", True), ("pending acks", None)]
    result = fields("log", "batching", store, "off", "--logs", "both")
    assert result == {"logs": "both", "batching": False}
    assert on() == [("transactions", False), ("pending acks", False)]
    assert done("log", "batches", store).endswith("no batched entries are left\n")
    assert call("log", "batching", store, "maybe")[0] == 2


def test_the_logs_of_another_mode(shop: Path, refused: Any, fields: Any) -> None:
    assert '"kafka" and "pulsar" have them' in refused("log", "batches", shop)
    assert fields("tx", "slow", shop)["transactions"] == []
