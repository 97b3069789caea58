"""Shares helpers between the tests of logs in Kafka: a partition in memory, one on a bad day, and real brokers."""

import itertools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from shared_kit import ROOT, BadDay

from planstep.errors import IoError
from planstep.shared.kafka_log import KafkaLog, Partition, Record, open_partition
from planstep.shared.kafka_settings import address_of
from planstep.shared.kafka_topic import open_kafka_log

_NUMBERS = itertools.count(1)


class MemoryPartition:
    """A partition in memory (kafka_log.Partition), for several clients."""

    where = "a topic"

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.first = 0
        self._changed = threading.Condition()

    def bounds(self) -> tuple[int, int]:
        return self.first, len(self.records)

    def fetch(self, offset: int, wait: float) -> tuple[list[Record], int]:
        with self._changed:
            if offset < self.first:
                raise IoError(f"offset {offset} is deleted")
            self._changed.wait_for(lambda: len(self.records) > offset, wait)
            found = self.records[offset:]
            return found, offset + len(found)

    def send(self, records: list[bytes], key: bytes) -> list[int | None]:
        with self._changed:
            at = len(self.records)
            self.records += [Record(at + n, key, data) for n, data in enumerate(records)]
            self._changed.notify_all()
            return [*range(at, at + len(records))]

    def delete_below(self, offset: int) -> None:
        with self._changed:
            assert offset <= len(self.records)
            self.first = max(self.first, offset)

    def close(self) -> None:
        """Does nothing: other clients go on."""


class FaultyPartition:
    """A partition on a bad day: records come late, twice, in part or with others between; answers are lost."""

    where = "a faulty topic"

    def __init__(self, partition: MemoryPartition, day: BadDay) -> None:
        self._partition = partition
        self._day = day

    def bounds(self) -> tuple[int, int]:
        kind = self._day.draw("no bounds", "stale")
        if kind == "no bounds":
            raise IoError("no answer to a question")
        first, end = self._partition.bounds()
        return first, max(first, end - (kind == "stale"))

    def fetch(self, offset: int, wait: float) -> tuple[list[Record], int]:
        if self._day.draw("no records"):
            raise IoError("no records came")
        return self._partition.fetch(offset, wait)

    def send(self, records: list[bytes], key: bytes) -> list[int | None]:
        partition, day = self._partition, self._day
        kind = day.draw(
            "refused", "lost", "late", "again late", "unknown", "twice", "strange", "part"
        )
        if kind in ("late", "again late"):
            day.on_their_way.append(lambda: partition.send(records, key))
        if kind == "part":
            partition.send(records[: day.random.randrange(len(records) + 1)], key)
            day.on_their_way.append(lambda: partition.send(records[-1:], key))
        if kind in ("lost", "twice", "unknown"):
            offsets = partition.send(records, key)
        if kind in ("refused", "lost", "late", "part"):
            raise IoError(f"no answer: {kind}")
        if kind == "strange":
            partition.send([b"hello"], b"")
        if kind != "unknown":
            offsets = partition.send(records, key)
        return [None] * len(records) if kind == "unknown" else offsets

    def delete_below(self, offset: int) -> None:
        self._partition.delete_below(offset)

    def close(self) -> None:
        pass


class InPartition:
    """A log in a partition in memory."""

    def __init__(self) -> None:
        self.partition = MemoryPartition()
        self.open()

    def open(self, timeout: float = 0.0) -> KafkaLog:
        return log_over(self.partition, timeout)

    def faulty(self, day: BadDay, timeout: float = 0.0) -> KafkaLog:
        return KafkaLog(FaultyPartition(self.partition, day), ROOT, timeout, pause=0.0)


def log_over(partition: Partition, timeout: float = 0.0) -> KafkaLog:
    return KafkaLog(partition, open_partition(partition, ROOT), timeout)


class InTopic:
    """A log in a topic of a real broker."""

    def __init__(self, brokers: str, weak: bool = True) -> None:
        self.url = f"kafka://{brokers}/shop-{next(_NUMBERS)}{'?allow_weak=true' * weak}"
        self._opened: list[Any] = []

    def open(self, timeout: float = 30.0) -> Any:
        self._opened.append(open_kafka_log(self.url, ROOT, timeout)[0])
        return self._opened[-1]

    def close(self) -> None:
        for log in self._opened:
            log.close()


# brokers ---------------------------------------------------------------------------------------


def _low_port(draw: Random) -> int:
    """Returns a free port below those that the kernel hands out, so that a broker finds it free again."""
    while True:
        port = draw.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Broker:
    """A node of a cluster: a real broker, with its data in a folder."""

    def __init__(
        self, folder: Path, number: int, port: int, voters: str, cluster: str, **more: str
    ) -> None:
        """`more`: further settings, with _ for the dots in their names."""
        self.folder, self.number, self.port = folder, number, port
        self._voters, self._cluster = voters, cluster
        self._more = {
            name if "." in name else name.replace("_", "."): value for name, value in more.items()
        }
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def runs(self) -> bool:
        return self._process is not None

    def _words(self, *words: str) -> list[str]:
        from planstep.bench.compare.systems.apache_kafka_jars import class_path, java

        options = ["-Xmx512m", "-XX:-UsePerfData", f"-Djava.io.tmpdir={self.folder}"]
        return [java(), *options, "-cp", class_path(), *words]

    def format(self) -> None:
        controller = self._voters.split(",")[self.number - 1].partition("@")[2]
        settings = {
            "process.roles": "broker,controller",
            "node.id": self.number,
            "controller.quorum.voters": self._voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "true",
            "offsets.topic.replication.factor": 1,
            "controller.quorum.election.timeout.ms": 500,
            "broker.session.timeout.ms": 3_000,
            "broker.heartbeat.interval.ms": 500,
            "replica.lag.time.max.ms": 3_000,
            "log.segment.delete.delay.ms": 1_000,
            **self._more,
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        words = ["format", "-t", self._cluster, "-c", os.fspath(file)]
        subprocess.run(
            self._words("kafka.tools.StorageTool", *words), check=True, capture_output=True
        )

    def start(self) -> None:
        from planstep.bench.compare.systems.servers import start

        words = self._words("kafka.Kafka", os.fspath(self.folder / "server.properties"))
        self._process = start(words, self.folder / "server.txt")

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kills it as `kill -9` does, and waits for its end; nothing happens if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def guarded_broker(folder: Path, login: str) -> Iterator[Broker]:
    """Runs a broker that wants a login (a module and users of Java's), and lets `ann` do what lists allow."""
    from planstep.bench.compare.systems.apache_kafka_server import cluster_id

    draw = Random(os.getpid())
    port, controller = _low_port(draw), _low_port(draw)
    protocols = f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    broker = Broker(
        *(folder / "guarded", 1, port, f"1@127.0.0.1:{controller}", cluster_id()),
        listeners=protocols,
        advertised_listeners=f"SASL_PLAINTEXT://127.0.0.1:{port}",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        **{"security.inter.broker.protocol": "SASL_PLAINTEXT"},
        **{"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.enabled.mechanisms": "PLAIN"},
        **{"listener.name.sasl_plaintext.plain.sasl.jaas.config": login},
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:root;User:ANONYMOUS",
    )
    broker.format()
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


class Cluster:
    """Three real brokers of one cluster, on this machine."""

    def __init__(self, folder: Path) -> None:
        from planstep.bench.compare.systems.apache_kafka_server import cluster_id

        draw = Random(os.getpid())
        ports = [_low_port(draw) for _ in range(6)]
        voters = ",".join(f"{n}@127.0.0.1:{ports[n + 2]}" for n in (1, 2, 3))
        name = cluster_id()
        self.brokers = [Broker(folder / f"{n}", n, ports[n - 1], voters, name) for n in (1, 2, 3)]
        for broker in self.brokers:
            broker.format()
            broker.start()
        until_ready(self.address, 3)

    @property
    def address(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def leader(self, topic: str) -> Broker:
        """Returns the broker that leads a topic's partition; waits until one that runs does."""
        admin = admin_of(self.address)

        def found() -> Broker | None:
            number = admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
            running = {broker.number: broker for broker in self.brokers if broker.runs}
            return running.get(number)

        broker: Broker = patiently(found)
        return broker

    def follower(self, topic: str) -> Broker:
        """Returns a broker that has a replica of a topic's partition, and does not lead it."""
        leader = self.leader(topic)
        return next(broker for broker in self.brokers if broker.runs and broker is not leader)

    def wait_in_sync(self, topic: str, count: int = 3) -> None:
        """Waits until so many replicas of a topic's partition are in sync."""
        admin = admin_of(self.address)
        patiently(
            lambda: (
                len(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs) == count
            )
        )

    def mend(self) -> None:
        """Starts the brokers that do not run, and waits for them."""
        for broker in self.brokers:
            if not broker.runs:
                broker.start()
        until_ready(self.address, 3)

    def close(self) -> None:
        for broker in self.brokers:
            broker.kill()


def patiently(condition: Callable[[], Any]) -> Any:
    """Waits until a condition holds that asks brokers, which may not answer; returns its value.

    Three brokers that start at once keep a small machine busy for minutes.
    """
    deadline = time.monotonic() + 300
    while True:
        with suppress(Exception):  # KafkaException: asked again
            if value := condition():
                return value
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.1)


def admin_of(brokers: str) -> Any:
    from confluent_kafka.admin import AdminClient

    from planstep.bench.compare.systems.apache_kafka_client import QUIET

    return AdminClient({**QUIET, "bootstrap.servers": brokers})


def alter(url: str, name: str, value: str) -> None:
    """Alters a setting of a log's topic."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    address = address_of(url)
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", address.topic, incremental_configs=[entry])
    admin = admin_of(address.brokers)  # it lives until the answer is there
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result()


def until_ready(brokers: str, count: int) -> None:
    """Waits until so many brokers run."""
    admin = admin_of(brokers)
    patiently(lambda: len(admin.list_topics(timeout=5).brokers) >= count)


@contextmanager
def paused(*brokers: Broker) -> Iterator[None]:
    """Stops the processes of brokers while the body runs."""
    for broker in brokers:
        broker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for broker in brokers:
            broker.signal(signal.SIGCONT)


def needs_kafka() -> list[pytest.MarkDecorator]:
    """Returns the marks of tests that need a real broker."""
    from planstep.bench.compare.systems.apache_kafka_jars import unavailable

    required = os.environ.get("PLANSTEP_PEERS") == "required"
    lacking = unavailable()
    assert not (required and lacking), lacking
    return [pytest.mark.peer, pytest.mark.skipif(bool(lacking), reason=lacking or "it is here")]
