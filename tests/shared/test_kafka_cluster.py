"""Tests stores on three real brokers that are killed, paused and lack replicas: `make test-peers` runs them."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import replica_kit
from kafka_kit import Cluster, InTopic, alter, needs_kafka, patiently, paused
from kit import in_threads
from peers import long
from replica_kit import Machines

import planstep
from planstep.errors import Fenced, LogUnreachable, OwnedElsewhere, Undetermined
from planstep.shared.kafka_settings import address_of

pytestmark = [*needs_kafka(), long]
machines = replica_kit.machines
WRITERS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture
def strict(cluster: Cluster, machines: Machines) -> Machines:
    """Machines of a store whose log is in a topic of three replicas."""
    cluster.mend()
    machines.url = InTopic(cluster.address, weak=False).url
    return machines


def opened(machines: Machines, name: str, log_timeout: float = 300.0, **settings: Any) -> Any:
    """Opens a folder; its commits wait for minutes, since brokers that start on a small machine take long."""
    replicate = machines.replicate(log_timeout=log_timeout)
    return planstep.open(machines.folder(name), replicate=replicate, **settings)


class Load:
    """Threads that each append records to a topic, one a commit, and note what was acknowledged."""

    def __init__(self, db: Any) -> None:
        self.db = db
        self.acknowledged: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]
        db.create_topic("events", format="utf8", exist_ok=True)

    def _write(self, number: int) -> None:
        count = 0
        while not self._ended.is_set():
            count += 1
            record = f"{number}-{count}"
            self.db.topic("events").write(record)
            self.acknowledged.append(record)

    def more(self, count: int) -> None:
        """Waits until so many more were acknowledged."""
        target = len(self.acknowledged) + count
        patiently(lambda: len(self.acknowledged) >= target)

    def stands_still(self) -> bool:
        """Returns whether nothing is acknowledged for three seconds."""
        before = len(self.acknowledged)
        time.sleep(3)
        return len(self.acknowledged) == before

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def records(db: Any) -> list[str]:
    found = db.topic("events").read(0, max_bytes=1 << 30)
    assert not found.more
    return list(found.values)


def test_nothing_is_lost_or_twice_when_leaders_are_killed_under_load(
    cluster: Cluster, strict: Machines
) -> None:
    killed = []
    with opened(strict, "a") as db, Load(db) as load:
        topic = address_of(strict.url).topic
        load.more(50)
        for _ in range(3):
            leader = cluster.leader(topic)
            leader.kill()
            killed.append(leader.number)
            load.more(50)  # another one leads
            leader.start()
            cluster.wait_in_sync(topic)
            load.more(50)
    with opened(strict, "b") as db:
        found = records(db)
    assert sorted(found) == sorted(load.acknowledged)
    assert len(load.acknowledged) >= 350 and len(killed) == 3


def test_commits_wait_while_too_few_replicas_are_in_sync(
    cluster: Cluster, strict: Machines
) -> None:
    topic = address_of(strict.url).topic
    with opened(strict, "a") as db, Load(db) as load:
        load.more(20)
        alter(strict.url, "min.insync.replicas", "3")
        lost = cluster.follower(topic)
        lost.kill()
        cluster.wait_in_sync(topic, 2)
        patiently(load.stands_still)  # once the brokers know it, and so do the writers
        lost.start()
        load.more(50)
        alter(strict.url, "min.insync.replicas", "2")
    with opened(strict, "b") as db:
        assert sorted(records(db)) == sorted(load.acknowledged)


def test_a_log_that_is_away_for_too_long_stops_its_owner_and_opens_again(
    cluster: Cluster, strict: Machines
) -> None:
    with opened(strict, "a", 3.0) as db:
        topic = db.create_topic("events", format="utf8")
        topic.write("before")
        with paused(*cluster.brokers):
            with pytest.raises(Undetermined):
                topic.write("meanwhile")
            with pytest.raises(LogUnreachable):
                topic.write("not sent")
    cluster.wait_in_sync(address_of(strict.url).topic)
    with opened(strict, "a") as db:
        assert records(db) in (["before"], ["before", "meanwhile"])
        db.topic("events").write("after")


def test_an_owner_is_fenced_by_a_takeover_after_an_election(
    cluster: Cluster, strict: Machines
) -> None:
    with opened(strict, "a") as first:
        first.create_topic("events", format="utf8").write("one")
        leader = cluster.leader(address_of(strict.url).topic)
        leader.kill()
        with opened(strict, "b", takeover=True) as second:
            second.topic("events").write("two")
            with pytest.raises(Fenced, match="term 2"):
                first.topic("events").write("lost")
            assert records(second) == ["one", "two"]


def test_of_takers_at_once_one_becomes_the_owner(strict: Machines) -> None:
    with opened(strict, "a") as db:
        db.create_topic("events", format="utf8").write("one")
    takers: list[Any] = []

    def take(name: str) -> None:
        with suppress(Fenced, OwnedElsewhere):
            takers.append(opened(strict, name, takeover=True))

    in_threads(lambda name=name: take(name) for name in "bcde")
    owners = []
    for db in takers:
        with suppress(Fenced):
            db.topic("events").write("two")
            owners.append(db)
    assert len(owners) == 1
    assert records(owners[0]) == ["one", "two"]
    for db in takers:
        db.close()
