"""Tests tables: own writes, order, formats, snapshots; and the folding of writes against a plain model."""

import gc
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import planstep
from planstep.api.transaction.row_writes import RowWrites
from planstep.proto.messages import ADD, DELETE, MAX, MIN, PUT, PUT_IF_ABSENT
from planstep.tablets.shard import evaluate


def test_own_writes_are_visible(shop: planstep.Engine) -> None:
    shop.table("totals").put("a", 1)
    shop.table("totals").put("b", 2)
    shop.table("totals").put("c", 3)
    with shop.transaction() as tx:
        tx.add("totals", "a", 10)
        assert tx.get("totals", "a") == 11
        tx.add("totals", "a", 10)
        tx.max("totals", "a", 5)
        assert tx.get("totals", "a") == 21
        tx.delete("totals", "b")
        assert tx.get("totals", "b", "gone") == "gone"
        tx.put_if_absent("totals", "b", 20)
        tx.put_if_absent("totals", "b", 30)
        tx.put_if_absent("totals", "c", 30)
        tx.min("totals", "new", 4)
        assert tx.scan("totals") == [("a", 21), ("b", 20), ("c", 3), ("new", 4)]
        assert tx.scan("totals", limit=2, reverse=True) == [("new", 4), ("c", 3)]
        tx.delete("totals", "c")
        assert tx.scan("totals", limit=3) == [("a", 21), ("b", 20), ("new", 4)]
        assert tx.scan("totals", prefix="n") == [("new", 4)]
        assert shop.table("totals").get("a") == 1
    assert shop.table("totals").scan() == [("a", 21), ("b", 20), ("new", 4)]


def test_get_gives_what_a_later_reader_gets(shop: planstep.Engine) -> None:
    value: dict[str, Any] = {"tags": ("x", "y")}
    with shop.transaction() as tx:
        tx.put("totals", "k", value)
        value["tags"] = ()
        copy = tx.get("totals", "k")
        assert copy == {"tags": ["x", "y"]}
        copy["tags"].clear()
        assert tx.get("totals", "k") == {"tags": ["x", "y"]}
    assert shop.table("totals").get("k") == {"tags": ["x", "y"]}


def test_keys_keep_their_kind_and_order(shop: planstep.Engine) -> None:
    keys: list[Any] = [
        None, False, True, -5, 0, 1, 300, -math.inf, 0.0, 1.0, "", "a", "a\0b", "ab", b"", b"a",
        b"a\xff", (), ("u",), ("u", 1), ("u", 2), ("v",),
    ]  # fmt: skip
    with shop.transaction() as tx:
        for i, key in enumerate(reversed(keys)):
            tx.put("totals", key, i)
        assert [key for key, _ in tx.scan("totals")] == keys
    table = shop.table("totals")
    rows = table.scan()
    assert [key for key, _ in rows] == keys
    assert list(map(type, (key for key, _ in rows))) == list(map(type, keys))
    assert [key for key, _ in table.scan(reverse=True)] == keys[::-1]
    assert [key for key, _ in table.scan(prefix=("u",))] == [("u",), ("u", 1), ("u", 2)]
    assert [key for key, _ in table.scan(prefix="a")] == ["a", "a\0b", "ab"]
    assert [key for key, _ in table.scan(prefix=b"a")] == [b"a", b"a\xff"]
    assert [key for key, _ in table.scan(prefix=b"a\xff")] == [b"a\xff"]
    assert [key for key, _ in table.scan(begin=0, end=2)] == [0, 1]
    assert table.scan(begin=3, end=2) == [] == table.scan(limit=0)
    assert [key for key, _ in table.scan(begin="a", limit=2)] == ["a", "a\0b"]
    assert table.count() == len(keys)


@pytest.mark.parametrize("form", ["json", "msgpack", "utf8", "bytes"])
def test_formats(db: planstep.Engine, form: str) -> None:
    table = db.create_table("t", format=form)
    formats: dict[str, list[Any]] = {
        "json": [None, [1, 2.5, "ä"], {"k": True}],
        "msgpack": [None, 2**64 - 1, -(2**63), b"\0", "ä", [1, [2]], {1: 2, "a": b"b"}],
        "utf8": ["", "ä", "a\0"],
        "bytes": [b"", b"\0\xff"],
    }
    values = formats[form]
    for i, value in enumerate(values):
        table.put(i, value)
    assert [value for _, value in table.scan()] == values
    with db.transaction() as tx:
        assert [tx.get("t", i, "none") for i in range(len(values))] == values


def test_tuples_as_dict_keys_come_back(db: planstep.Engine) -> None:
    table = db.create_table("t")
    table.put("k", {(1, 2): 3})
    assert table.get("k") == {(1, 2): 3}


def test_counters_need_numbers(db: planstep.Engine) -> None:
    db.create_table("json", format="json")
    table = db.create_table("t")
    table.put("text", "x")
    table.put("flag", True)
    table.put("high", 2**64 - 1)
    with pytest.raises(TypeError, match='format="msgpack"'):
        db.table("json").add("k", 1)
    for bad in (True, "1", math.nan, 2**64, None):
        with pytest.raises(TypeError):
            table.add("k", bad)
    for key, n in (("text", 1), ("flag", 1), ("high", 1)):
        with pytest.raises(TypeError, match=r"number|64 bits"):
            table.add(key, n)
        tx = db.transaction()
        tx.add("t", key, n)
        with pytest.raises(TypeError, match=r"number|64 bits"):
            tx.get("t", key)
        with pytest.raises(TypeError, match=r"number|64 bits"):
            tx.commit()
        assert tx.outcome().state == "aborted"
    tx = db.transaction()
    tx.put("t", "k", "x")
    with pytest.raises(TypeError, match="number"):
        tx.max("t", "k", 1)
    with db.transaction() as tx:
        tx.add("t", "f", 1)
        tx.add("t", "f", 0.5)
    assert table.get("f") == 1.5


def test_a_snapshot_stays_as_it_is(shop: planstep.Engine) -> None:
    table, topic = shop.table("totals"), shop.topic("clicks")
    table.put("a", 1)
    topic.write(b"1", partition=0)
    with shop.snapshot() as view:
        table.put("a", 2)
        table.put("b", 2)
        topic.write(b"2", partition=0)
        with shop.transaction() as tx:
            tx.read("clicks", "c")
        table.delete("a")
        assert view.get("totals", "a", 0) == 1
        assert view.scan("totals") == [("a", 1)]
        assert view.count("totals") == 1
        assert view.read("clicks").values == [b"1"]
        assert view.bounds("clicks")[0] == (0, 1)
        assert view.position("clicks", "c")[0] == 0
    with pytest.raises(planstep.TransactionClosed, match="snapshot"):
        view.get("totals", "a")
    view.close()
    with shop.snapshot() as later:
        assert later.step > view.step
        assert later.scan("totals") == [("b", 2)]
        assert later.position("clicks", "c")[0] == 2


def test_a_transaction_reads_one_snapshot(shop: planstep.Engine) -> None:
    shop.table("totals").put("a", 1)
    with shop.transaction() as tx:
        assert tx.get("totals", "a") == 1
        shop.table("totals").put("a", 2)
        shop.table("totals").put("b", 2)
        assert tx.get("totals", "a") == 1
        assert tx.scan("totals") == [("a", 1)]


def test_what_was_dropped_without_an_end_is_unpinned(shop: planstep.Engine) -> None:
    history = shop._runtime.nodes[0].host.history
    tx, view = shop.transaction(), shop.snapshot()
    tx.get("totals", "a")
    assert history.pins()[0]
    del tx, view
    gc.collect()
    shop.transaction()
    assert not history.pins()[0]


def test_a_writing_transaction_may_scan_so_many_rows(db: planstep.Engine) -> None:
    table = db.create_table("big", shards=1)
    with db.transaction() as tx:
        for i in range(10_001):
            tx.put("big", i, 0)
    with db.transaction() as tx:
        assert len(tx.scan("big")) == 10_001
    tx = db.transaction()
    tx.scan("big")
    tx.put("big", "x", 1)
    with pytest.raises(planstep.TransactionTooLarge, match="10,000"):
        tx.commit()
    tx.rollback()
    with db.transaction() as tx:
        tx.scan("big", limit=10_000)
        tx.put("big", "x", 1)
    assert table.get("x") == 1


_OPS = st.sampled_from([PUT, DELETE, ADD, MAX, MIN, PUT_IF_ABSENT])
_NUMBERS = st.integers(-3, 3).map(lambda n: bytes([n & 0xFF]))  # msgpack's fixint


@given(st.lists(st.tuples(_OPS, _NUMBERS)), st.none() | _NUMBERS)
def test_folded_writes_equal_writes_one_by_one(
    ops: list[tuple[int, bytes]], base: bytes | None
) -> None:
    writes, row = RowWrites("t"), base
    for op, value in ops:
        writes.write(b"k", op, value)
        row = evaluate(op, row, value)
        assert writes.over(b"k", base) == row
    assert len(writes.pending.get(b"k", ())) <= max(1, len(ops))


@given(
    stored=st.dictionaries(st.integers(0, 20), st.integers(0, 9), max_size=12),
    own=st.dictionaries(st.integers(0, 20), st.none() | st.integers(0, 9), max_size=8),
    bounds=st.tuples(st.integers(0, 21), st.integers(0, 21)),
    limit=st.none() | st.integers(1, 8),
    reverse=st.booleans(),
    later=st.integers(0, 20),
)
def test_scans_against_a_dictionary(
    stored: dict[int, int],
    own: dict[int, int | None],
    bounds: tuple[int, int],
    limit: int | None,
    reverse: bool,
    later: int,
) -> None:
    with planstep.open(":memory:") as db:
        db.create_table("t", shards=2)
        with db.transaction() as tx:
            for key, value in stored.items():
                tx.put("t", key, value)
        tx = db.transaction()
        model: dict[int, int | None] = dict(stored)
        for key, new in own.items():
            model[key] = new
            if new is None:
                tx.delete("t", key)
            else:
                tx.put("t", key, new)
        low, high = bounds
        rows = sorted((k, v) for k, v in model.items() if v is not None and low <= k < high)
        expected = (rows[::-1] if reverse else rows)[:limit]
        assert tx.scan("t", begin=low, end=high, limit=limit, reverse=reverse) == expected
        tx.put("t", "mark", 1)
        db.table("t").put(later, 0)
        edge = expected[-1][0] if limit is not None and len(expected) == limit else None
        conflicts = low <= later < high
        if edge is not None:
            conflicts = conflicts and (later >= edge if reverse else later <= edge)
        if conflicts:
            with pytest.raises(planstep.Conflict):
                tx.commit()
        else:
            tx.commit()


def test_whether_there_is_a_row(shop: planstep.Engine) -> None:
    table = shop.table("totals")
    table.put(("a", 1), None)
    assert ("a", 1) in table and "a" not in table


@pytest.mark.parametrize("hosts", [1, 2])
def test_sums_are_finite(hosts: int) -> None:
    """Infinity or NaN would swallow all later additions."""
    inf, nan = float("inf"), float("nan")
    with planstep.open(":memory:", hosts=hosts) as db:
        table = db.create_table("t", shards=2)
        for wrong in (inf, -inf, nan):
            with pytest.raises(TypeError):
                table.add("n", wrong)
            with db.transaction() as tx, pytest.raises(TypeError):
                tx.add("t", "n", wrong)
        table.put("n", 1e308)
        with pytest.raises(TypeError, match="finite"):
            table.add("n", 1e308)
        with db.transaction() as tx:
            tx.put("t", "m", 1e308)
            with pytest.raises(TypeError, match="finite"):
                tx.add("t", "m", 1e308)
        with pytest.raises(TypeError, match="finite"), db.transaction() as tx:
            tx.add("t", "o", 1e308)
            tx.add("t", "o", 1e308)
        with db.transaction() as tx:  # no sum of these two is stored
            tx.add("t", "n", -1e308)
            tx.add("t", "n", -1e308)
        for what in (inf, nan):
            table.put("was", what)
            with pytest.raises(TypeError, match=r"the row.*finite"):
                table.add("was", 1)
        for update in (table.max, table.min):  # of the last, which is no number
            with pytest.raises(TypeError, match="the row is not a finite number"):
                update("was", 1)
            with db.transaction() as tx, pytest.raises(TypeError, match="the row is not a finite"):
                tx.put("t", "was", nan)
                getattr(tx, update.__name__)("t", "was", 1)
        assert [table.get(key) for key in "nmo"] == [-1e308, 1e308, None]
