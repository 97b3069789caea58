"""Tests many commits at once, too much data at once, and a full disk: no caller waits for ever, no data is lost."""

import random
import signal
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import kit
import pytest
from kit import Child, FullDisk, background, in_threads, open_put, take_lead, until

import planstep
from planstep.errors import NoSpace
from planstep.runtime.group_commit import Waiter

db = kit.in_memory
failing_disk = kit.failing_disk
MB = 1 << 20


# many at once --------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [1, 3])
def test_every_one_of_many_threads_is_answered(hosts: int) -> None:
    threads, each = 24, 15
    with planstep.open(":memory:", hosts=hosts) as db:
        db.create_table("t", shards=3)

        def work(number: int) -> None:
            for i in range(each):
                tx = db.transaction()
                tx.add("t", "all", 1)
                tx.put("t", (number, i), i)
                if i % 5 == 4:
                    tx.submit().result(30)
                else:
                    tx.commit(30)

        in_threads(partial(work, n) for n in range(threads))
        assert db.table("t").get("all") == threads * each
        assert not db._runtime.replies.waiting and db._runtime.admission.bytes == 0


def test_the_lead_is_not_lost_with_one_that_was_answered_just_then(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread may answer a follower while another hands the lead over to it."""
    monkeypatch.setattr("planstep.runtime.thread_pool._LOOK_SECONDS", 60)  # it waits once
    node, table, runtime = take_lead(db), db.table("t"), db._runtime
    with background(partial(table.put, "k", 1)) as (put,):
        until(lambda: len(node._followers) == 1)
        with node.lock, node._guard:  # does as `hand_over`, which has seen no answer
            follower = node._followers.popleft()
            runtime.turns.turn(node)
            runtime.replies.answer()
            assert not wait([put], 0.05).done
            follower.leads = True
    until(lambda: not node.leading)
    table.put("k", 2)
    assert table.get("k") == 2


def test_the_lead_of_nothing_is_not_passed_round(db: planstep.Engine) -> None:
    node = db._runtime.nodes[0]
    assert node.try_lead(None)
    follower = Waiter(b"tx", 0, None)
    assert not node.try_lead(follower)
    assert not node.hand_over()
    assert not follower.leads and not node.leading


def test_the_lead_goes_to_one_that_waits(db: planstep.Engine) -> None:
    node, table = take_lead(db), db.table("t")
    with background(*(partial(table.put, n, n) for n in range(5))):
        until(lambda: len(node.inbox) == 5 and len(node._followers) == 5)
        assert not node.hand_over()
    assert len(list(table.scan())) == 5
    assert not node.leading


@pytest.mark.parametrize("submitted", [False, True])
def test_those_that_come_during_a_turn_share_the_next_sync(tmp_path: Path, submitted: bool) -> None:
    rounds, each = 10, 64
    with planstep.open(tmp_path / "s") as db:
        topic = db.create_topic("a", partitions=3)
        db.create_table("t", shards=2)
        node = db._runtime.nodes[0]

        def transaction(n: int) -> planstep.Transaction:
            tx = db.transaction()
            tx.write("a", b"x", partition=n % 3)
            tx.put("t", n, n)
            return tx

        before = db.stats()["store"]["syncs"]
        for _ in range(rounds):
            assert node.try_lead(None)  # leads, and is slow
            begun = [transaction(n) for n in range(each)]
            futures = [tx.submit() for tx in begun if submitted]
            with ThreadPoolExecutor(each) as pool:
                futures += [pool.submit(tx.commit) for tx in begun if not submitted]
                until(lambda: submitted or len(node._followers) == each)
                if node.hand_over():
                    db._runtime.turns.submitted.set()
                for future in futures:
                    future.result(30)
            until(lambda: not node.leading)
        assert topic.describe().records == rounds * each
        assert db.stats()["store"]["syncs"] - before == rounds


def test_a_commit_that_waits_for_others_keeps_its_time_out(db: planstep.Engine) -> None:
    node = take_lead(db)
    tx = open_put(db)
    with pytest.raises(planstep.Undetermined, match="goes on"):
        tx.commit(timeout=0.01)
    assert node.hand_over()  # no caller waits, but a commit is left
    db._runtime.turns.submitted.set()
    assert tx.outcome(30).state == "committed"
    assert db.table("t").get("k") == 1


def test_an_interrupted_follower_passes_the_lead_on(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes in the very moment in which the lead is handed to it."""
    node = take_lead(db)
    tx = open_put(db)

    def interrupt(*waiting: Any) -> bool:
        assert not node.hand_over()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("planstep.runtime.group_commit.Waiter.wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tx.commit()
    assert tx.outcome(30).state == "committed"
    db.table("t").put("k", 2)


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_callback_may_commit(hosts: int) -> None:
    with planstep.open(":memory:", hosts=hosts) as db:
        db.create_table("t", shards=2)
        ended: Future[Any] = Future()

        def then(first: "Future[planstep.Commit]") -> None:
            with db.transaction() as tx:
                tx.put("t", "second", 2)
            ended.set_result(tx.commit.place)

        tx = db.transaction()
        tx.put("t", "first", 1)
        future = tx.submit()
        future.add_done_callback(then)
        assert ended.result(30) > future.result(30).place


# too much at once ----------------------------------------------------------------------------


def write_tx(db: planstep.Engine, size: int) -> planstep.Transaction:
    tx = db.transaction()
    tx.write("a", bytes(size))
    return tx


def test_too_much_at_once_waits_and_then_is_refused_without_effect(db: planstep.Engine) -> None:
    topic = db.create_topic("a")
    admission = db._runtime.admission
    admission.bytes_max = MB
    node = db._runtime.nodes[0]
    with node.lock:  # nothing is answered meanwhile
        first = write_tx(db, MB // 2).submit()
        late = write_tx(db, MB)
        with pytest.raises(planstep.Overloaded, match="nothing was done"):
            late.commit(timeout=0.01)
        assert late.outcome().state == "aborted"
        small = write_tx(db, 10).submit()  # for this one there is room
    assert first.result(30) and small.result(30)
    assert [len(r.value) for r in topic.read()] == [MB // 2, 10]
    until(lambda: admission.bytes == 0)
    write_tx(db, 3 * MB).commit()  # larger than all of it, but alone
    assert admission.bytes == 0


def test_whoever_waits_for_room_gets_it(db: planstep.Engine) -> None:
    topic = db.create_topic("a")
    db._runtime.admission.bytes_max = MB
    with ThreadPoolExecutor(12) as pool, db._runtime.nodes[0].lock:
        for _ in range(12):
            pool.submit(lambda: write_tx(db, 400_000).commit())
        until(lambda: db._runtime.admission._waiting >= 9)

    assert topic.describe().records == 12
    assert db._runtime.admission.bytes == 0


def test_run_tries_again_when_there_was_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.runtime.admission.WAIT_SECONDS", 0.01)
    with planstep.open(":memory:") as db:
        topic = db.create_topic("a")
        db._runtime.admission.bytes_max = MB
        node = db._runtime.nodes[0]
        node.lock.acquire()
        first = write_tx(db, MB).submit()
        tries = 0

        def fn(tx: planstep.Transaction) -> None:
            nonlocal tries
            tries += 1
            if tries == 3:
                node.lock.release()
                first.result(30)
            tx.write("a", b"x")

        db.run(fn)
        assert tries >= 3 and topic.describe().records == 2


# a full disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_full_disk_is_said_and_got_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: int
) -> None:
    monkeypatch.setattr("planstep.runtime.open_stores.Files", FullDisk)
    monkeypatch.setattr(FullDisk, "full", False)
    with planstep.open(tmp_path / "s", hosts=hosts) as db:
        topic = db.create_topic("a", partitions=2)
        table = db.create_table("t", shards=2)
        for n in range(20):
            table.put(n, n)
        monkeypatch.setattr(FullDisk, "full", True)
        written = 0
        with pytest.raises(NoSpace):
            for written in range(400):
                tx = db.transaction()
                tx.write("a", bytes(MB), partition=written % 2)
                tx.commit(30)
        assert 0 < written < 200 * hosts
        assert topic.describe().records == written
        with pytest.raises(NoSpace):
            topic.write(bytes(MB), partition=written % 2)
        assert table.get(7) == 7
        for n in range(20):
            table.delete(n)  # these may use the reserve
        assert list(table.scan()) == []
        with pytest.raises(NoSpace):
            topic.write(bytes(MB), partition=written % 2)
        monkeypatch.setattr(FullDisk, "full", False)
        topic.write(b"again")
        assert topic.describe().records == written + 1
    with planstep.open(tmp_path / "s") as db:
        assert db.topic("a").describe().records == written + 1


def test_a_failed_sync_ends_its_transactions_only(tmp_path: Path, failing_disk: Any) -> None:
    with planstep.open(tmp_path / "s") as db:
        table = db.create_table("t")
        table.put("k", 1)
        failing_disk.failures = 1
        with pytest.raises(planstep.Aborted, match="durable"):
            table.put("k", 2)
        assert table.get("k") == 1
        table.put("k", 3)
        failing_disk.failures = 2  # and so does going on in a new segment
        with pytest.raises(planstep.PlanstepError) as caught:
            table.put("k", 4)
        assert not isinstance(caught.value, planstep.Aborted)
        with pytest.raises(planstep.PlanstepError):
            table.put("k", 5)
        assert table.get("k") == 3
    failing_disk.failures = 0
    with planstep.open(tmp_path / "s") as db:
        assert db.table("t").get("k") in (3, 4)
        db.table("t").put("k", 6)


INTERRUPTED = """
import signal
import sys
import planstep

armed = []


def interrupt(number, frame):
    if armed:  # within the loop, and nowhere else
        armed.clear()
        raise KeyboardInterrupt


signal.signal(signal.SIGINT, interrupt)
db = planstep.open(sys.argv[1], hosts=int(sys.argv[2]))
db.create_topic("a", partitions=2)
db.create_table("t", shards=2)
acknowledged = interrupted = 0
print("ready", flush=True)
while interrupted < 60:
    try:
        while True:
            armed.append(1)
            tx = db.transaction()
            tx.add("t", "k", 1)
            tx.write("a", b"x")
            tx.commit()
            acknowledged += 1
    except KeyboardInterrupt:
        interrupted += 1
print("done", acknowledged, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("hosts", [1, 3])
def test_an_interrupt_at_any_moment_leaves_all_or_nothing(tmp_path: Path, hosts: int) -> None:
    draw = random.Random(hosts)
    with Child(INTERRUPTED, tmp_path / "s", hosts) as child:
        assert child.line() == "ready"
        with background(child.line) as (reading,):
            for _ in range(20_000):
                if wait([reading], draw.random() * 0.004).done:
                    break
                child.process.send_signal(signal.SIGINT)
    word, acknowledged = reading.result().split()
    assert word == "done"
    with planstep.open(tmp_path / "s") as db:
        count = db.table("t").get("k")
        assert count == db.topic("a").describe().records
        assert int(acknowledged) <= count <= int(acknowledged) + 60
