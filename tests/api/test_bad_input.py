"""Tests that the face refuses bad input before any effect, with a helpful message."""

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep.api import limits

BAD_NAMES = ["", "a/b", "../x", ".", "..", "a\0b", "x" * 201, "ä", "a b", 7, None]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_names(shop: planstep.Engine, name: Any) -> None:
    with pytest.raises(planstep.InvalidName, match="1 to 200"):
        shop.create_topic(name)
    with pytest.raises(planstep.InvalidName):
        shop.create_table(name)
    with pytest.raises(planstep.InvalidName):
        shop.transaction().read("clicks", consumer=name)
    with pytest.raises(planstep.InvalidName):
        shop.topic("clicks").position(name)
    with pytest.raises(planstep.UnknownName):
        shop.topic(name)


def test_a_handle_is_no_name(shop: planstep.Engine) -> None:
    tx: Any = shop.transaction()
    with pytest.raises(TypeError, match="a table is meant by its name: pass 'totals', not <Table"):
        tx.put(shop.table("totals"), "k", 1)
    with pytest.raises(TypeError, match="a topic is meant by its name: pass 'clicks'"):
        tx.read(shop.topic("clicks"), consumer="c")


@pytest.mark.parametrize("format", ["json", "msgpack"])
def test_values_of_other_types_are_told_how_to_pass(shop: planstep.Engine, format: Any) -> None:
    table = shop.create_table("t", format=format)
    with pytest.raises(TypeError, match=r"datetime.*isoformat\(\), NumPy values as \.item\(\)"):
        table.put("k", {"at": datetime.now(UTC)})
    with pytest.raises(TypeError, match="format=") as caught:
        table.put("k", float("nan") if format == "json" else 1 << 70)
    assert "isoformat" not in str(caught.value)


def test_names_at_the_limit(db: planstep.Engine) -> None:
    name = "x" * 200
    db.create_topic(name)
    db.write(name, b"v")
    with db.transaction() as tx:
        assert tx.read(name, consumer=name).values == [b"v"]
    assert db.topic(name).lag(name) == 0


def test_unknown_names_suggest_the_nearest(shop: planstep.Engine) -> None:
    with pytest.raises(planstep.UnknownName, match="did you mean 'clicks'") as caught:
        shop.topic("click")
    assert caught.value.nearest == "clicks"
    with pytest.raises(planstep.UnknownName, match="did you mean 'totals'"):
        shop.table("total")
    with pytest.raises(planstep.UnknownName, match="create_table"):
        shop.table("something else")
    tx = shop.transaction()
    for call in (
        lambda: tx.read("clicksy", "c"),
        lambda: tx.write("clicksy", b""),
        lambda: tx.consume("clicksy", "c", 0, 0, 0),
        lambda: tx.pending("clicksy"),
        lambda: tx.get("totals2", 1),
        lambda: tx.put("totals2", 1, 1),
        lambda: tx.delete("totals2", 1),
        lambda: tx.add("totals2", 1, 1),
        lambda: tx.scan("totals2"),
        lambda: shop.write("clicksy", b""),
        lambda: shop.snapshot().get("totals2", 1),
        lambda: shop.snapshot().read("clicksy"),
    ):
        with pytest.raises(planstep.UnknownName, match="did you mean"):
            call()


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3", 10_001])
def test_numbers_of_partitions(db: planstep.Engine, bad: Any) -> None:
    with pytest.raises(ValueError, match="1 to 10,000"):
        db.create_topic("t", partitions=bad)
    with pytest.raises(ValueError, match="1 to 10,000"):
        db.create_table("t", shards=bad)


def test_creating_twice(shop: planstep.Engine) -> None:
    with pytest.raises(planstep.AlreadyExists, match="exist_ok=True"):
        shop.create_topic("clicks")
    with pytest.raises(planstep.AlreadyExists, match="exist_ok=True"):
        shop.create_table("totals")
    assert shop.create_topic("clicks", exist_ok=True).partitions == 4
    assert shop.create_topic("clicks", partitions=4, format="bytes", exist_ok=True).partitions == 4
    assert shop.create_table("totals", shards=4, exist_ok=True).name == "totals"
    with pytest.raises(planstep.AlreadyExists, match="partitions=4, not 5"):
        shop.create_topic("clicks", partitions=5, exist_ok=True)
    with pytest.raises(planstep.AlreadyExists, match="format='msgpack', not 'json'"):
        shop.create_table("totals", format="json", exist_ok=True)
    with pytest.raises(ValueError, match="unknown format 'xml'"):
        shop.create_topic("new", format="xml")
    assert set(shop.topics()) == {"clicks", "by-user"}
    shop.create_table("clicks")  # topics and tables have names of their own


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("x" * 478, planstep.KeyTooLong),
        (b"\0" * 240, planstep.KeyTooLong),
        (10**400, planstep.KeyTooLong),
        (float("nan"), planstep.InvalidKey),
        ("\ud800", planstep.InvalidKey),
        ([1], planstep.InvalidKey),
        ({}, planstep.InvalidKey),
        (("a", {1}), planstep.InvalidKey),
    ],
    ids=range(8),
)
def test_keys(shop: planstep.Engine, key: Any, error: type[Exception]) -> None:
    with shop.transaction() as tx:
        for call in (
            lambda: tx.get("totals", key),
            lambda: tx.put("totals", key, 1),
            lambda: tx.add("totals", key, 1),
            lambda: tx.delete("totals", key),
            lambda: tx.scan("totals", begin=key),
            lambda: shop.table("totals").get(key),
        ):
            with pytest.raises(error):
                call()
    assert shop.table("totals").count() == 0


def test_the_longest_key_works(shop: planstep.Engine) -> None:
    key = "x" * 477
    shop.table("totals").put(key, 1)
    assert shop.table("totals").scan(prefix="x" * 476) == [(key, 1)]


def test_scans(shop: planstep.Engine) -> None:
    tx = shop.transaction()
    with pytest.raises(ValueError, match="either prefix"):
        tx.scan("totals", prefix=("a",), begin=1)
    with pytest.raises(TypeError, match="prefix"):
        tx.scan("totals", prefix=5)
    with pytest.raises(ValueError, match="limit"):
        tx.scan("totals", limit=-1)


def test_records_and_rows_over_16_mib(shop: planstep.Engine) -> None:
    most = bytes(limits.RECORD_BYTES_MAX)
    more = most + b"x"
    with pytest.raises(planstep.RecordTooLarge, match="record 0 has 16,777,217 bytes"):
        shop.write("clicks", more)
    with pytest.raises(planstep.RecordTooLarge):
        shop.write("clicks", most, key="k")
    with shop.transaction() as tx:
        with pytest.raises(planstep.RecordTooLarge, match="record 1"):
            tx.write_batch("clicks", [b"small", more])
    db_table = shop.create_table("raw", format="bytes")
    with pytest.raises(planstep.RecordTooLarge):
        db_table.put("k", more)
    assert shop.topic("clicks").describe().records == 0 and db_table.count() == 0
    # The largest value and the longest key in different records: no record is too large.
    shop.topic("clicks").write_batch([most, b""], keys=[None, "k"], partition=0)
    batch = shop.topic("clicks").read(max_bytes=1 << 25)
    assert [len(value) for value in batch.values] == [len(most), 0]


def test_transactions_over_their_limits(
    shop: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.api.transaction.participant_parts.TRANSACTION_BYTES_MAX", 1000)
    monkeypatch.setattr("planstep.api.transaction.participant_parts.INDEX_ENTRIES_MAX", 3)
    monkeypatch.setattr("planstep.api.transaction.topic_writes.BATCH_BYTES", 100)
    with shop.transaction() as tx:
        tx.write("clicks", bytes(500), partition=0)
        with pytest.raises(planstep.TransactionTooLarge, match="limit is 1,000"):
            tx.write("clicks", bytes(501), partition=0)
        with pytest.raises(planstep.TransactionTooLarge):
            tx.put("totals", "k", bytes(500))
    assert shop.topic("clicks").describe().records == 1
    tx = shop.transaction()
    tx.write_batch("clicks", [bytes(60)] * 4, partition=0)
    with pytest.raises(planstep.TransactionTooLarge, match="4 batches, the limit is 3"):
        tx.commit()
    tx.rollback()
    assert shop.topic("clicks").describe().records == 1


def test_a_transaction_ends_once(shop: planstep.Engine) -> None:
    ended = []
    with shop.transaction() as tx:
        tx.put("totals", "k", 1)
    ended.append(tx)
    rolled = shop.transaction()
    rolled.rollback()
    ended.append(rolled)
    lost = shop.transaction()
    lost.put("totals", "k", lost.get("totals", "k"))
    shop.table("totals").put("k", 2)
    with pytest.raises(planstep.Conflict):
        lost.commit()
    ended.append(lost)
    submitted = shop.transaction()
    submitted.add("totals", "k", 1)
    submitted.submit().result(60)
    ended.append(submitted)
    for tx in ended:
        for call in (
            tx.commit,
            tx.submit,
            tx.rollback,
            lambda tx=tx: tx.get("totals", "k"),
            lambda tx=tx: tx.put("totals", "k", 1),
            lambda tx=tx: tx.scan("totals"),
            lambda tx=tx: tx.read("clicks", "c"),
            lambda tx=tx: tx.write("clicks", b"x"),
            lambda tx=tx: tx.pending("clicks"),
            lambda tx=tx: tx.consume("clicks", "c", 0, 0, 0),
            lambda tx=tx: tx.__enter__(),
        ):
            with pytest.raises(planstep.TransactionClosed, match="begin another"):
                call()
    assert [tx.outcome().state for tx in ended] == ["committed", "aborted", "aborted", "committed"]


@pytest.mark.parametrize("bad", ["", "3", "3-x", "-1-2", "3-99999999999999999999", b"short", 7])
def test_transaction_ids(db: planstep.Engine, bad: Any) -> None:
    with pytest.raises(ValueError, match="transaction id"):
        db.outcome(bad)
    with pytest.raises(ValueError, match="transaction id"):
        db.resolve(bad)


def test_an_id_that_nobody_knows(db: planstep.Engine) -> None:
    assert db.outcome("9-9").state == "unknown"
    with pytest.raises(ValueError, match="attempts"):
        db.run(lambda tx: None, attempts=0)


def test_what_belongs_to_an_engine_is_not_pickled(db: planstep.Engine) -> None:
    """Another process opens the store by itself."""
    topic, table = db.create_topic("t"), db.create_table("n")
    with db.snapshot() as snapshot, db.reader("t", "c") as reader, topic.writer("p") as writer:
        for held in (db, topic, table, db.transaction(), snapshot, reader, writer):
            with pytest.raises(TypeError, match=r"planstep\.open"):
                pickle.dumps(held)


@pytest.mark.parametrize("bad", [None, "no", 2])
@pytest.mark.parametrize("name", ["share", "attach"])
def test_to_share_or_not(tmp_path: Path, name: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*: choose one of True, False"):
        planstep.open(tmp_path / "s", **{name: bad})
    assert not (tmp_path / "s").exists()
