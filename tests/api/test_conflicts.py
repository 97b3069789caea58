"""Tests which operations conflict, which do not, and the text of a Conflict."""

from collections.abc import Callable

import pytest

import planstep


def test_a_row_that_changed_since_it_was_read(shop: planstep.Engine) -> None:
    shop.table("totals").put("a", 1)
    tx = shop.transaction()
    assert tx.get("totals", "a") == 1
    tx.put("totals", "b", 1)
    changed = shop.table("totals").put("a", 1)  # the same value, but another version
    with pytest.raises(planstep.Conflict) as caught:
        tx.commit()
    conflict = caught.value
    assert (conflict.kind, conflict.name, conflict.key) == ("table", "totals", "a")
    assert conflict.retryable and tuple(conflict.actual) == tuple(changed)
    assert shop.table("totals").get("b") is None
    assert tx.outcome().state == "aborted" and tx.commit.place is None


def test_absence_is_a_version(shop: planstep.Engine) -> None:
    tx = shop.transaction()
    assert tx.get("totals", "a", 7) == 7
    tx.put("totals", "b", 1)
    shop.table("totals").put("a", 1)
    with pytest.raises(planstep.Conflict):
        tx.commit()


@pytest.mark.parametrize(
    "scan",
    [
        lambda tx: tx.scan("totals", prefix=("u",)),
        lambda tx: tx.scan("totals", begin=("u", 1), end=("u", 9)),
        lambda tx: tx.scan("totals", limit=5),
        lambda tx: tx.scan("totals", limit=2, reverse=True),
        lambda tx: tx.scan("totals"),
    ],
)
@pytest.mark.parametrize(
    "change", [lambda rows: rows.put(("u", 5), 5), lambda rows: rows.delete(("u", 4))]
)
def test_a_phantom_or_a_deleted_row_in_a_range(
    shop: planstep.Engine,
    scan: Callable[[planstep.Transaction], planstep.Rows],
    change: Callable[[planstep.Table], object],
) -> None:
    for n in (2, 4, 6):
        shop.table("totals").put(("u", n), n)
    tx = shop.transaction()
    assert len(scan(tx)) >= 2
    tx.put("totals", "sum", 12)
    change(shop.table("totals"))
    with pytest.raises(planstep.Conflict, match="a range"):
        tx.commit()


def test_only_the_part_that_was_seen_counts(shop: planstep.Engine) -> None:
    for n in range(10):
        shop.table("totals").put(n, n)
    tx = shop.transaction()
    assert tx.scan("totals", limit=3) == [(0, 0), (1, 1), (2, 2)]
    assert tx.scan("totals", limit=2, reverse=True) == [(9, 9), (8, 8)]
    tx.put("totals", "sum", 3)
    shop.table("totals").put(5, 55)
    tx.commit()


def test_repeated_reads_are_one_condition(shop: planstep.Engine) -> None:
    shop.table("totals").put("a", 1)
    with shop.transaction() as tx:
        for _ in range(3):
            assert tx.get("totals", "a") == 1
            assert tx.scan("totals") == [("a", 1)]
        tx.put("totals", "a", 2)
        assert tx.scan("totals") == [("a", 2)]
        assert tx.scan("totals", begin="a", end="b") == [("a", 2)]


def test_updates_without_reading_never_conflict(shop: planstep.Engine) -> None:
    txs = [shop.transaction() for _ in range(5)]
    for i, tx in enumerate(txs):
        tx.add("totals", "n", i)
        tx.max("totals", "high", i)
        tx.min("totals", "low", i)
        tx.put_if_absent("totals", "first", i)
    for tx in reversed(txs):
        tx.commit()
    rows = dict(shop.table("totals").scan())
    assert rows == {"n": 10, "high": 4, "low": 0, "first": 4}


def test_a_range_of_offsets_is_consumed_once(shop: planstep.Engine) -> None:
    shop.topic("clicks").write(b"x", partition=2)
    first, second, other = (shop.transaction() for _ in range(3))
    for tx, consumer in ((first, "c"), (second, "c"), (other, "d")):
        assert tx.read("clicks", consumer).values == [b"x"]
        tx.add("totals", consumer, 1)
    first.commit()
    other.commit()
    with pytest.raises(planstep.Conflict) as caught:
        second.commit()
    conflict = caught.value
    assert (conflict.kind, conflict.name, conflict.part) == ("topic", "clicks", 2)
    assert (conflict.consumer, conflict.expected, conflict.actual) == ("c", 0, 1)
    assert dict(shop.table("totals").scan()) == {"c": 1, "d": 1}


def test_a_range_beyond_the_position_conflicts_too(shop: planstep.Engine) -> None:
    shop.topic("clicks").write_batch([b"a", b"b", b"c"], partition=0)
    tx = shop.transaction()
    tx.consume("clicks", "c", 0, 1, 2)
    with pytest.raises(planstep.Conflict):
        tx.commit()
    with shop.transaction() as tx:
        tx.consume("clicks", "c", 0, 0, 1)
        tx.consume("clicks", "c", 0, 1, 3)
    assert shop.topic("clicks").position("c") == {0: 3, 1: 0, 2: 0, 3: 0}


def test_run_tries_again_and_gives_up(shop: planstep.Engine) -> None:
    calls = []

    def fn(tx: planstep.Transaction) -> int:
        calls.append(tx.id)
        n: int = tx.get("totals", "n", 0)
        if len(calls) < 3:
            shop.table("totals").add("n", 10)
        tx.put("totals", "n", n + 1)
        return n

    assert shop.run(fn) == 20
    assert len(set(calls)) == 3 and shop.table("totals").get("n") == 21

    def hopeless(tx: planstep.Transaction) -> None:
        tx.put("totals", "n", tx.get("totals", "n") + 1)
        shop.table("totals").add("n", 1)

    with pytest.raises(planstep.Conflict) as caught:
        shop.run(hopeless, attempts=2)
    assert caught.value.__notes__ == ["db.run gave up after 2 attempts"]
    with pytest.raises(planstep.Conflict) as caught:
        shop.run(hopeless, deadline=0)
    assert caught.value.__notes__ == ["db.run gave up after 1 attempts"]


def test_run_passes_on_other_errors_and_takes_explicit_ends(shop: planstep.Engine) -> None:
    calls = []

    def broken(tx: planstep.Transaction) -> None:
        calls.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shop.run(broken)
    assert len(calls) == 1

    def explicit(tx: planstep.Transaction) -> planstep.Place | None:
        tx.put("totals", "k", 1)
        tx.commit()
        return tx.commit.place

    assert shop.run(explicit) is not None

    def changed_mind(tx: planstep.Transaction) -> str:
        tx.put("totals", "k", 2)
        tx.rollback()
        return "no"

    assert shop.run(changed_mind) == "no"
    assert shop.table("totals").get("k") == 1


def test_a_conflict_of_another_transaction_is_not_retried(shop: planstep.Engine) -> None:
    calls = []

    def fn(tx: planstep.Transaction) -> None:
        calls.append(1)
        inner = shop.transaction()
        inner.put("totals", "n", inner.get("totals", "n", 0))
        shop.table("totals").add("n", 1)
        inner.commit()

    with pytest.raises(planstep.Conflict):
        shop.run(fn)
    assert len(calls) == 1


def test_resolve_refuses_what_was_never_planned(shop: planstep.Engine) -> None:
    tx = shop.transaction()
    tx.put("totals", "k", 1)
    assert shop.outcome(tx.id).state == "unknown"
    assert shop.resolve(tx.id).state == "refused"
    with pytest.raises(planstep.Aborted, match="refused"):
        tx.commit()
    done = shop.transaction()
    done.put("totals", "k", 2)
    commit = done.commit()
    assert shop.resolve(commit.tx).state == "committed"
    assert shop.table("totals").get("k") == 2


def test_a_conflict_says_what_was_seen(shop: planstep.Engine) -> None:
    first, second = shop.transaction(), shop.transaction()
    for tx in (first, second):
        tx.put("totals", "k", tx.get("totals", "k", 0) + 1)
    place = first.commit().place
    with pytest.raises(planstep.Conflict) as caught:
        second.commit()
    text = f"'k': expected no row, found that of {tuple(place)};"
    assert text in str(caught.value) and ", shard " in str(caught.value)
    assert caught.value.expected is None


def test_a_row_that_was_absent_and_is_so_again_is_as_it_was_read(shop: planstep.Engine) -> None:
    """A row was created and deleted meanwhile: the read of its absence still holds."""
    totals = shop.table("totals")
    one, other = shop.transaction(), shop.transaction()
    assert one.get("totals", "k") is None and not other.scan("totals")
    totals.put("k", 1)
    totals.delete("k")
    one.add("totals", "n", 1)
    one.commit()
    totals.delete("n")
    other.add("totals", "n", 1)
    other.commit()
    late = shop.transaction()
    assert late.get("totals", "n") == 1
    totals.delete("n")
    totals.put("n", 1)  # the same value, but written since
    late.put("totals", "n", 2)
    with pytest.raises(planstep.Conflict):
        late.commit()


def test_a_row_of_its_own_fixes_no_snapshot(shop: planstep.Engine) -> None:
    totals = shop.table("totals")
    totals.put("k", 1)
    with shop.transaction() as tx:
        tx.put("totals", "own", 1)
        tx.delete("totals", "gone")
        assert tx.get("totals", "own") == 1 and tx.get("totals", "gone") is None
        totals.put("k", 2)
        assert tx.get("totals", "k") == 2
        totals.put("l", 3)
        assert tx.get("totals", "l") is None
        tx.rollback()
