"""Tests that threads may share a transaction: what each call wrote or read is committed once, and no call hangs."""

import sys
from collections.abc import Iterator

import kit
import pytest
from kit import background, in_threads, until

import planstep

db = kit.each_mode


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Lets threads take turns within the engine's calls."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def shown(db: planstep.Engine, count: int) -> list[bytes]:
    """Returns the records of topic `t` once that many are visible, in order of their values."""
    topic = db.topic("t")
    return sorted(until(lambda: len(v := topic.read(max_records=100_000).values) >= count and v))


def test_what_threads_write_is_there_once(db: planstep.Engine) -> None:
    db.create_topic("t", partitions=2)
    with db.transaction() as tx:

        def write(thread: int) -> None:
            for i in range(100):
                tx.write("t", b"%d-%d-0" % (thread, i) + bytes(1_000))
                tx.write_batch("t", [b"%d-%d-1" % (thread, i)], partition=i % 2)
                if i % 10 == thread:
                    tx.flush()

        in_threads([lambda n=n: write(n) for n in range(4)])  # type: ignore[misc]
    wanted = {b"%d-%d-%d" % (t, i, n) for t in range(4) for i in range(100) for n in range(2)}
    values = shown(db, len(wanted))
    assert len(values) == len(wanted) and {v.rstrip(b"\0") for v in values} == wanted


def test_threads_read_on_after_each_other(db: planstep.Engine) -> None:
    db.create_topic("t", partitions=3)
    numbers = [b"%d" % i for i in range(600)]
    db.topic("t").write_batch(numbers, keys=numbers)
    shown(db, 600)
    db.topic("t").create_consumer("c")
    read: list[bytes] = []
    with db.transaction() as tx:

        def read_some() -> None:
            for _ in range(20):
                read.extend(tx.read("t", "c", max_records=5, timeout=0.001).values)

        in_threads([read_some] * 4)
    assert len(read) == len(set(read)) == 400
    until(lambda: db.topic("t").lag("c") == 200)


@pytest.mark.parametrize("ended", ["commit", "submit", "rollback"])
def test_a_write_counts_or_is_refused_when_another_thread_ends(
    db: planstep.Engine, ended: str
) -> None:
    db.create_topic("t")
    tx = db.transaction()
    done: list[bytes] = []

    def write() -> None:
        for i in range(1_000_000):
            try:
                tx.write("t", b"%07d" % i)
            except planstep.TransactionClosed:
                return
            done.append(b"%07d" % i)

    with background(write):
        until(lambda: len(done) > 200)
        getattr(tx, ended)()
    assert tx.outcome(60).state == ("aborted" if ended == "rollback" else "committed")
    assert ended == "rollback" or shown(db, len(done)) == done


def test_values_may_be_made_by_a_writer_of_the_same_transaction(db: planstep.Engine) -> None:
    db.create_topic("t")
    with db.transaction() as tx:

        def values() -> Iterator[bytes]:
            for i in range(3):
                tx.write("t", b"a%d" % i)
                yield b"b%d" % i

        tx.write_batch("t", values())
    assert shown(db, 6) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
