"""Tests readers of several processes on one store: their groups have lines in memory in place of sockets."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from typing import Any

import pytest
from attached_kit import Store
from kit import lease, until

import planstep
from planstep.aio.engine import AsyncEngine
from planstep.api.engine import Engine
from planstep.api.topics.group_state import InFlightBatch, LaneLeases, Member
from planstep.runtime.catalog import TopicInfo


@contextmanager
def opened(mode: Any, partitions: int, records: int, kind: Any = "cumulative") -> Iterator[Store]:
    with planstep.open(":memory:", mode=mode) as db:
        db.create_topic("in", partitions=partitions)
        if mode != "kafka":
            db.topic("in").create_consumer("c", kind=kind)
        for p in range(partitions):
            db.topic("in").write_batch([b"%d-%d" % (p, n) for n in range(records)], partition=p)
        store = Store(db)
        try:
            yield store
        finally:
            store.end()


MODES = ["deterministic", "kafka", "pulsar"]
KINDS = [("deterministic", "cumulative"), ("deterministic", "individual"), ("kafka", "cumulative")]
KINDS += [("pulsar", "cumulative"), ("pulsar", "individual")]


@pytest.mark.parametrize(("mode", "kind"), KINDS)
def test_processes_consume_each_record_once(mode: str, kind: str) -> None:
    with opened(mode, 6, 300, kind) as store:
        values: Counter[bytes] = Counter()
        by_process: list[int] = []

        def run(number: int, db: Engine) -> None:
            seen: list[bytes] = []
            done = db.process(
                lambda tx, batch: seen.extend(batch.values),
                "in",
                "c",
                workers=2,
                worker=f"process {number}",  # a transactional id in mode "kafka"
                max_records=7,
                until_idle=True,
            )
            by_process.append(done.records)
            values.update(seen)

        faces = [store.owner, store.attach(), store.attach()]
        with ThreadPoolExecutor(3) as pool:
            for future in [pool.submit(run, *numbered) for numbered in enumerate(faces)]:
                future.result(120)
        assert sum(by_process) == 6 * 300
        assert len(values) == 6 * 300
        if mode == "deterministic":  # no link has ended, so that nothing was read twice
            assert {*values.values()} == {1}
        for db in faces:
            db.context.groups.tidy()
        until(lambda: store.links.stats() == {"consumers": 0, "parties": 0, "claims": 0})


@pytest.mark.parametrize("kind", ["cumulative", "individual"])
def test_links_that_end_and_new_owners_lose_no_record(kind: str) -> None:
    with opened("deterministic", 6, 200, kind) as store:
        store.owner.create_table("n")
        faces = [store.owner, store.attach(), store.attach(), store.attach()]
        draw = random.Random(3)

        def run(db: Engine) -> int:
            def count(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
                for value in batch.values:
                    tx.add("n", value, 1)

            done = db.process(count, "in", "c", workers=2, max_records=3, until_idle=True)
            return done.records

        with ThreadPoolExecutor(len(faces)) as pool:
            running = [pool.submit(run, db) for db in faces]
            while not all(future.done() for future in running):
                db = draw.choice(faces)
                if draw.random() < 0.5:
                    store.move(db)
                elif db is not store.owner:
                    store.kill(db)
                    store.link(db)
                time.sleep(0.02)
            assert sum(future.result(120) for future in running) == 1_200
        with store.owner.snapshot() as snap:
            counts = [value for _, value in snap.scan("n")]
        assert counts == [1] * 1_200


@pytest.mark.parametrize("mode", MODES)
def test_the_first_read_waits_for_its_lanes(mode: str) -> None:
    with opened(mode, 4, 10) as store, store.attach().reader("in", "c") as reader:
        lease(reader).tx.commit()
        assert reader.partitions and store.sent["Join"] == 1


def test_lanes_are_shared_by_readers_and_come_back() -> None:
    with opened("deterministic", 6, 1_000) as store:
        one, two = store.owner.reader("in", "c", max_records=1), None
        lease(one).tx.commit()
        other = store.attach()
        two = other.reader("in", "c", max_records=1)
        lease(two, 30).tx.commit()

        def share(reader: planstep.Reader) -> int:
            lease(reader, 30).tx.commit()
            return len(reader.group.leases.own)

        until(lambda: (share(one), share(two)) == (3, 3))
        three = other.reader("in", "c", max_records=1)
        until(lambda: (share(one), share(two), share(three)) == (2, 4, 4))
        held = lease(one, 30)
        two.close()
        three.close()
        until(lambda: len(one.group.leases.own) == 6)
        held.tx.commit()
        for _ in range(20):
            lease(one).tx.commit()
        assert one.partitions == [0, 1, 2, 3, 4, 5]
        one.close()


def test_a_process_that_is_gone_holds_nothing() -> None:
    for kind in ("cumulative", "individual"):
        with opened("deterministic", 3, 100, kind) as store:
            other = store.attach()
            lost = other.reader("in", "c", max_records=10)
            held = [lease(lost, 30), lease(lost, 30)]
            store.kill(other)
            count = 0
            with store.owner.reader("in", "c", max_records=10) as reader:
                while leased := reader.read():
                    leased.tx.commit()
                    count += len(leased.batch)
            assert count == 300
            for leased in held:
                with pytest.raises(planstep.Conflict):
                    leased.tx.commit()
            lost.close()


def test_a_lane_goes_without_flights_and_comes_back_changed() -> None:
    leases = LaneLeases(
        TopicInfo(1, "in", (10, 11, 12), "bytes", (), frozenset(), frozenset(), 0), "c"
    )
    one, two, three = leases.lanes
    member = Member("", 4)
    member.active = True
    leases.members[member] = None
    assert leases.take(one, member, 0) and leases.take(two, member, 0)
    one.flights.append(InFlightBatch(one, member, 0, 5, inf, True))
    leases.set_own([2])
    assert leases.take_given() == [1] and one.moving and leases.offered(member) == [three]
    assert not leases.take(two, member, two.changes)  # it is another process's
    assert leases.take(three, member, 0)
    one.flights.clear()
    leases.release_moving(one)
    assert leases.take_given() == [0] and leases.take_given() == []
    seen = two.changes
    leases.set_own([1, 2])
    assert not leases.take(two, member, seen)  # that was looked up before it came back
    assert leases.take(two, member, two.changes)
    two.flights.append(InFlightBatch(two, member, 0, 5, inf, True))
    leases.set_own([2])
    leases.set_own([1, 2])  # before it had gone
    assert leases.take_given() == [] and two.owner is member and not two.moving


def test_what_was_looked_up_alone_is_read_only_if_it_was_claimed() -> None:
    with opened("deterministic", 1, 100, "individual") as store:
        one, two = store.owner.reader("in", "c", max_records=10), store.attach().reader("in", "c")
        group, member = one.group, one.member
        [lane] = group.lanes_for(member)
        with store.owner.context.reading() as reading:
            found = group.free(member, lane, reading, 10)
        assert found is not None and found[:2] == (0, 100)
        lease(two, 30).tx.commit()  # from now on they share
        assert group.begin(member, lane, 0, 10, True, lane.changes) is None
        assert member.flights == 0 and not group.flying
        one.close()
        two.close()


@pytest.mark.parametrize("mode", ["deterministic", "pulsar"])
def test_a_process_claims_nothing_that_is_consumed_or_has_no_record(mode: str) -> None:
    with opened(mode, 2, 20, "individual") as store:
        if mode == "pulsar":  # leaves entries that no reader is shown
            tx = store.owner.transaction()
            tx.write_batch("in", [b"x"] * 50, partition=0)
            tx.flush()
            tx.rollback()
            store.owner.topic("in").write(b"last", partition=0)
        db = store.attach()
        with db.reader("in", "c", max_records=3) as reader:
            values = []
            while leased := reader.read(timeout=1.0):
                leased.tx.commit()
                values += leased.batch.values
            assert len(values) == 40 + (mode == "pulsar")
            until(lambda: store.links.stats()["claims"] == 0)


def test_a_message_claims_several_batches() -> None:
    with opened("deterministic", 1, 5_000, "individual") as store:
        batches = 0
        with store.attach().reader("in", "c", max_records=10) as reader:
            while leased := reader.read():
                leased.tx.submit()
                batches += 1
        assert batches == 500
        assert store.sent["Claim"] <= 500 / 4 + 5


def test_a_consumer_that_is_moved_back_is_read_again() -> None:
    with opened("deterministic", 1, 50, "individual") as store:
        with store.attach().reader("in", "c", max_records=10) as reader:
            for _ in range(2):
                count = 0
                while leased := reader.read(timeout=2.0):
                    leased.tx.commit()
                    count += len(leased.batch)
                    if count == 50:
                        break
                assert count == 50
                store.owner.topic("in").seek("c", "earliest")


def test_what_a_process_hands_back_comes_to_it_again() -> None:
    with opened("pulsar", 1, 4, "individual") as store:
        one = store.attach().reader("in", "c", max_records=1)
        two = store.owner.reader("in", "c", max_records=1)
        mine = lease(one, 30)
        mine.nack()
        others = []
        while len(others) < 2 and (leased := two.read(timeout=1.0)):
            others += leased.batch.offsets
            leased.tx.commit()
        assert mine.batch.offsets[0] not in others
        one.close()
        two.close()


def test_an_exclusive_consumer_has_readers_in_one_process() -> None:
    with planstep.open(":memory:", mode="pulsar") as db:
        db.create_topic("in", partitions=2)
        db.topic("in").create_consumer("c", exclusive=True)
        db.topic("in").write(b"x", partition=0)
        store = Store(db)
        try:
            one, two = store.attach(), store.attach()
            with one.reader("in", "c") as reader:
                for other in (two, store.owner):
                    with pytest.raises(planstep.PulsarError, match="ConsumerBusy"):
                        other.reader("in", "c")
                lease(reader, 30).tx.commit()
            until(lambda: store.links.stats()["consumers"] == 0)
            with two.reader("in", "c"), pytest.raises(planstep.PulsarError):
                one.reader("in", "c")
            until(lambda: store.links.stats()["consumers"] == 0)
            with store.owner.reader("in", "c"), pytest.raises(planstep.PulsarError):
                one.reader("in", "c")
        finally:
            store.end()


def test_an_owner_that_says_nothing_ends_the_wait() -> None:
    with opened("deterministic", 2, 10) as store:
        db = store.attach()
        db._runtime.shares.lost()
        began = time.monotonic()
        with db.reader("in", "c") as reader:
            assert reader.read() is None
        assert time.monotonic() - began >= 4.0


@pytest.mark.parametrize("kind", ["cumulative", "individual"])
async def test_tasks_of_several_processes_share_a_consumer(kind: str) -> None:
    with opened("deterministic", 6, 100, kind) as store:
        values: list[bytes] = []

        async def note(tx: planstep.AsyncTransaction, batch: planstep.ReadBatch) -> None:
            values.extend(batch.values)

        faces = [AsyncEngine(db) for db in (store.owner, store.attach(), store.attach())]
        process = [
            db.process(note, "in", "c", workers=2, max_records=7, until_idle=True) for db in faces
        ]
        done = await asyncio.wait_for(asyncio.gather(*process), 120)
        assert sum(one.records for one in done) == len(values) == len({*values}) == 600
