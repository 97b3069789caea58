"""Tests the contract of every system under test (bench/compare/systems/base.py).

A system's test class inherits these tests, and names its systems of ENTRIES in a fixture `name`.
"""

import threading
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest
from kit import in_threads

from planstep.bench.compare.systems.base import (
    SHARED_ROWS,
    STAGING,
    TABLES,
    Cancelled,
    Impossible,
    Poll,
    System,
    Work,
)
from planstep.bench.judges.trace import identities, identity

WAIT_S = 120.0
"""A bound for something that comes at once, unless a bug prevents it."""


def numbered(partition: int, many: int, begin: int = 0) -> list[bytes]:
    return [identity(partition, n) + b"x" * 8 for n in range(begin, begin + many)]


def poll_until(poll: Poll, many: int) -> list[tuple[int, int, bytes]]:
    """Polls until `many` records have come; returns (partition, offset, value) of each."""
    records: list[tuple[int, int, bytes]] = []
    while len(records) < many:
        polled = poll(WAIT_S)
        assert polled, f"{len(records)} of {many} records came"
        for at in polled:
            records += zip([at.partition] * len(at.values), at.offsets, at.values, strict=True)
    return records


def stored(system: System, topic: str, partition: int) -> list[bytes]:
    return [value for chunk in system.records(topic, partition) for value in chunk.values]


def copy(begin: Callable[[], Work], partition: int, roll_back: bool) -> bool:
    """Copies a few records to the next partition, or rolls back; returns whether there were any."""
    tx = begin()
    try:
        chunk = tx.read("in", partition, 7)
        tx.write("out", chunk.values, partition=(partition + 1) % 4)
        tx.add("state", "copied", len(chunk.values))
        if roll_back:
            tx.rollback()
        else:
            tx.commit()
    except BaseException:
        tx.rollback()
        raise
    return bool(chunk.values)


def finish(step: Callable[[], bool]) -> bool:
    """Repeats a step until it is not cancelled."""
    while True:
        try:
            return step()
        except Cancelled as cancelled:
            assert cancelled.retryable


def a_get_holds_its_row(system: System) -> None:
    """Tests that a row that a transaction got, though there is none yet, is its own until it ends."""
    first, second = (system.worker(name, "c") for name in ("first", "second"))
    tx = first()
    assert tx.get("state", "n") is None
    committed = threading.Event()

    def commit_later() -> None:
        other = second()
        other.add("state", "n", 1)
        other.commit()
        committed.set()

    thread = threading.Thread(target=commit_later)
    thread.start()
    assert not committed.wait(0.02)
    tx.put("state", "n", 10)
    tx.commit()
    assert committed.wait(WAIT_S)
    thread.join()
    assert system.rows("state") == {"n": 11}


class SystemContract:
    """The contract of every system."""

    counts_disk_bytes = True

    def test_what_is_missing_is_known(self, system: System) -> None:
        assert set(system.missing) <= {TABLES, SHARED_ROWS, STAGING}
        assert all(system.missing.values())

    def test_what_is_committed_is_there_when_opened_anew(
        self, system: System, opened: Callable[..., System]
    ) -> None:
        begin = system.worker("w", "c")
        values = numbered(0, 5)
        tx = begin()
        tx.write("out", values[:3], [b"a", None, b"c"], partition=2)
        tx.write("out", values[3:], partition=2)
        published = tx.commit().published
        assert published in ({}, {("out", 2): (0, 5)})
        again = opened(read_only=True)
        chunks = list(again.records("out", 2))
        assert [value for part in chunks for value in part.values] == values
        assert [key for part in chunks for key in part.keys] == [b"a", None, b"c", None, None]
        assert stored(again, "out", 0) == []

    def test_preparing_twice_keeps_what_is_there(self, system: System) -> None:
        system.writer("in")(numbered(1, 3), None, 1)
        system.prepare({"in": 4, "more": 2}, ("state", "other"))
        assert stored(system, "in", 1) == numbered(1, 3)
        assert stored(system, "more", 1) == []

    def test_what_is_rolled_back_has_no_effect(self, system: System) -> None:
        system.writer("in")(numbered(0, 4), None, 0)
        begin = system.worker("w", "c")
        tx = begin()
        assert tx.read("in", 0, 3).values == numbered(0, 3)
        tx.write("out", numbered(0, 3), partition=0)
        tx.add("state", "n", 1)
        tx.rollback()
        tx.rollback()
        tx = begin()
        chunk = tx.read("in", 0, 3)
        assert (chunk.begin, chunk.end, chunk.values) == (0, 3, numbered(0, 3))
        tx.rollback()
        assert stored(system, "out", 0) == []
        assert not system.rows("state").get("n")

    def test_a_position_moves_with_the_commit(
        self, system: System, opened: Callable[..., System]
    ) -> None:
        system.writer("in")(numbered(3, 5), None, 3)
        begin = system.worker("w", "c")
        tx = begin()
        assert tx.read("in", 3, 2).values == numbered(3, 2)
        assert tx.read("in", 3, 2).values == numbered(3, 2, 2), "behind what it has read itself"
        tx.commit()
        tx = begin()
        assert tx.read("in", 3, 10).values == numbered(3, 1, 4)
        tx.rollback()
        begin = system.worker("other", "its-own", 1)
        tx = begin()
        assert tx.read("in", 3, 10).values == numbered(3, 5)
        tx.rollback()
        assert opened(read_only=True).position("in", "c", 3) == 4

    def test_of_two_who_consume_the_same_one_commits(self, system: System) -> None:
        """Both workers have one name, as mode kafka requires."""
        system.writer("in")(numbered(0, 1), None, 0)
        begins = [system.worker("w", "c") for _ in range(2)]
        committed = 0
        works = []
        for begin in begins:
            tx = begin()
            assert tx.read("in", 0, 1).values == numbered(0, 1)
            works.append(tx)
        for tx in works:
            try:
                tx.write("out", numbered(0, 1), partition=0)
                tx.commit()
                committed += 1
            except Cancelled as cancelled:
                assert cancelled.retryable and cancelled.cause
                tx.rollback()
        assert committed == 1

    def test_exactly_once_and_in_order(self, system: System, opened: Callable[..., System]) -> None:
        """Four workers run at once, each on a partition; each rolls back every third time."""
        each = 60
        for partition in range(4):
            system.writer("in")(numbered(partition, each), None, partition)

        def work(partition: int) -> None:
            begin = system.worker(f"w{partition}", "c", partition)
            for n in count():
                if not finish(partial(copy, begin, partition, n % 3 == 0)):
                    break

        in_threads(partial(work, partition) for partition in range(4))
        again = opened(read_only=True)
        for partition in range(4):
            sources, ordinals, _ = identities(stored(again, "out", (partition + 1) % 4))
            assert set(sources) == {partition} and list(ordinals) == list(range(each))
            assert again.position("in", "c", partition) >= each
        assert again.rows("state") == {"copied": 4 * each}

    def test_writing_ahead_of_the_commit(self, system: System) -> None:
        begin, poll = system.worker("w", "c"), system.follower("out")
        tx = begin()
        tx.write("out", numbered(0, 2), partition=0)
        if STAGING in system.missing:
            with pytest.raises(Impossible):
                tx.flush()
        else:
            tx.flush()
            assert stored(system, "out", 0) == []
        tx.write("out", numbered(0, 1, 2), partition=0)
        tx.commit()
        assert [value for _, _, value in poll_until(poll, 3)] == numbered(0, 3)

    def test_a_follower_sees_what_is_committed_in_order(self, system: System) -> None:
        begin = system.worker("w", "c")
        before = system.follower("out")
        tx = begin()
        tx.write("out", numbered(9, 1), partition=0)
        tx.commit()
        poll_until(before, 1)
        poll = system.follower("out")
        assert poll(0.0) == [], "from where the topic ends now"
        for n in range(4):
            tx = begin()
            tx.write("out", numbered(0, 1, n), partition=n % 2)
            if n == 2:
                tx.rollback()
            else:
                tx.commit()
        records = poll_until(poll, 3)
        assert sorted(value for _, _, value in records) == [numbered(0, 1, n)[0] for n in (0, 1, 3)]
        for partition in range(2):
            offsets = [offset for at, offset, _ in records if at == partition]
            assert offsets == sorted(set(offsets))
        assert poll(0.01) == []

    def test_a_plain_write_can_be_read_at_once(self, system: System) -> None:
        poll = system.follower("out")
        write = system.writer("out")
        write(numbered(0, 2), None, 1)
        write(numbered(1, 2), [b"a", b"a"], None)
        records = poll_until(poll, 4)
        assert sorted(value for _, _, value in records) == sorted(numbered(0, 2) + numbered(1, 2))
        assert len({at for at, _, value in records if value in numbered(1, 2)}) == 1

    def test_a_key_has_one_partition(self, system: System, opened: Callable[..., System]) -> None:
        begin = system.worker("w", "c")
        keys = [b"k%d" % (n % 5) for n in range(20)]
        for _ in range(2):
            tx = begin()
            tx.write("out", numbered(0, 20), keys)
            tx.commit()
        again = opened(read_only=True)
        held = [
            {key for chunk in again.records("out", partition) for key in chunk.keys}
            for partition in range(4)
        ]
        assert sum(map(len, held)) == 5 and set().union(*held) == set(keys)

    def test_rows(self, system: System, opened: Callable[..., System]) -> None:
        begin = system.worker("w", "c")
        for n in (1, 2):
            tx = begin()
            tx.add("state", "a", n)
            tx.add("state", "a", 10)
            tx.put("state", "b", [n, "text"])
            tx.commit()
        tx = begin()
        assert (tx.get("state", "a"), tx.get("state", "b"), tx.get("state", "c")) == (
            23,
            [2, "text"],
            None,
        )
        tx.put("state", "a", 7)
        tx.add("state", "a", 1)
        tx.put("state", "b", [0])
        tx.rollback()
        assert opened(read_only=True).rows("state") == {"a": 23, "b": [2, "text"]}

    @pytest.mark.parametrize("durability", ["full", "os"])
    def test_what_it_cost_is_told(self, opened: Callable[..., System], durability: str) -> None:
        system = opened(durability=durability)
        system.prepare({"out": 1}, ())
        before = system.counters()
        begin = system.worker("w", "c")
        ids = []
        for n in range(3):
            tx = begin()
            tx.write("out", numbered(0, 10, 10 * n), partition=0)
            tx.commit()
            ids.append(tx.id)
        after = system.counters()
        assert after.transactions - before.transactions == 3
        disk_bytes = after.since(before).disk_bytes
        assert (disk_bytes is not None) == self.counts_disk_bytes
        assert disk_bytes is None or disk_bytes >= 3 * 320
        assert len(set(ids)) == 3
        for tx_id in ids:
            moments = [at for at in system.moments(tx_id) if at is not None]
            assert moments == sorted(moments)
            hops = system.costs(tx_id).hops
            assert hops is None or hops >= 1
        assert system.moments("nobody's") == (None, None, None)
        assert {setting.name for setting in system.settings()}


class SharedRowsContract:
    """The contract of systems with rows that several workers update."""

    def test_rows_that_all_update_lose_no_update(
        self, system: System, opened: Callable[..., System]
    ) -> None:
        each = 25

        def step(begin: Callable[[], Work]) -> bool:
            tx = begin()
            try:
                tx.put("state", "n", (tx.get("state", "n") or 0) + 1)
                tx.commit()
            except BaseException:
                tx.rollback()
                raise
            return True

        def work(number: int) -> None:
            begin = system.worker(f"w{number}", "c", number)
            for _ in range(each):
                finish(partial(step, begin))

        in_threads(partial(work, number) for number in range(4))
        assert opened(read_only=True).rows("state") == {"n": 4 * each}
