"""Starts a real Kafka broker, one node in KRaft mode, with nothing but Java and the files of apache_kafka_jars.py.

    server.properties ─▶ StorageTool format ─▶ kafka.Kafka ─▶ ready() ─▶ warm() ─▶ …  SIGTERM

It is ready once it has a leader, and has answered init_transactions() and an offset request: its port opens seconds
before its coordinators do. Java compiles what runs often, so the first transactions take many times as long as
later ones: warm() runs transactions until their latency is level.

    durability "full"   each append is synced before it is acknowledged: log.flush.interval.messages=1
    durability "os"     Kafka's default: the operating system writes when it likes

Memory and collector are those of the start script that Kafka ships. Settings that differ from the defaults are
replication factors and coordinators' partitions for one broker, and a scan for time-outs fit for short ones.

Next: apache_kafka_client.py.
"""

import base64
import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ...children import last_words
from .apache_kafka_client import QUIET, TUNED, error_of, is_temporary
from .apache_kafka_jars import NAME, VERSION, class_path, java
from .base import Options, System, Work
from .servers import Server, end, free_port, start, with_free_port

ABORT_SCAN_MS = 250
"""How often the broker looks for transactions to time out: its default of 10 s would hide any time-out."""
INTERNAL_PARTITIONS = 4
"""Partitions of each of the coordinators' topics: one broker has no use for more."""
DELETE_DELAY_MS = 1000
"""When a dropped topic leaves the disk."""
HEAP = "1g"
_JVM = (
    *(f"-Xms{HEAP}", f"-Xmx{HEAP}", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
    "-XX:-UsePerfData",  # a file in /tmp, which a killed Java leaves there
)
_READY_S, _STOP_S = 120.0, 20.0
_BLOCK, _BLOCKS_MAX, _WARM_S = 100, 40, 60.0
_WIDE = 100
_LEVEL = 0.95
"""A block's median above this share of the lowest one before says that warming helps no more."""


class KafkaServer(Server):
    """A broker with its data in `folder`, which it goes on with if there is one.

    `transaction_version` is the cluster's. OSError if it does not start. `address` is "host:port#process".
    """

    version = VERSION

    def __init__(self, folder: Path, options: Options, transaction_version: int = 2) -> None:
        began = time.monotonic()
        self._folder, self._options = folder, options
        self._transaction_version = transaction_version
        folder.mkdir(parents=True, exist_ok=True)
        self._output = folder / "server.txt"
        with_free_port(self._begin, self._output)
        self.start_s = time.monotonic() - began

    def _begin(self, port: int) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self._write_properties(self.bootstrap, self._options)
        self._format(self._transaction_version)
        self._process = start(
            [java(), *self._java_options(), "kafka.Kafka", self._properties], self._output
        )
        self.address = f"{self.bootstrap}#{self._process.pid}"
        try:
            self._wait_ready(self.bootstrap)
        except BaseException:
            self.close()
            raise

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    def _java_options(self) -> list[str]:
        return [*_JVM, f"-Djava.io.tmpdir={self._folder}", "-cp", class_path()]

    def _write_properties(self, bootstrap: str, options: Options) -> None:
        controller = f"127.0.0.1:{free_port()}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{bootstrap}",
            "log.dirs": self._folder / "data",
            "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": ABORT_SCAN_MS,
            "auto.create.topics.enable": "false",
            "log.segment.delete.delay.ms": DELETE_DELAY_MS,
        }
        if options.durability == "full":
            settings["log.flush.interval.messages"] = 1
        lines = (f"{name}={value}\n" for name, value in settings.items())
        self._properties.write_text("".join(lines))

    def _format(self, transaction_version: int) -> None:
        """Formats the folder of the data, unless it has some."""
        words = [java(), *self._java_options(), "kafka.tools.StorageTool", "format"]
        words += ["-t", cluster_id(), "-c", os.fspath(self._properties), "--ignore-formatted"]
        words += ["--feature", f"transaction.version={transaction_version}"]
        if not (self._folder / "data" / "meta.properties").exists():
            with self._output.open("ab") as log:
                status = subprocess.call(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if status:
                raise OSError(f"{NAME} cannot format its folder: {last_words(self._output)}")

    def _wait_ready(self, bootstrap: str) -> None:
        deadline = time.monotonic() + _READY_S
        settings = {**QUIET, "bootstrap.servers": bootstrap, "socket.timeout.ms": 5000}
        admin = AdminClient(settings)
        while not self._has_leader(admin):
            self._check(deadline)
        producer: Any = Producer({**settings, "transactional.id": "ready"})
        group: Any = Consumer({**settings, "group.id": "ready"})
        with contextlib.closing(group):
            self._ask(deadline, producer.init_transactions, 1.0)
            self._ask(deadline, group.committed, [TopicPartition("ready", 0)], 1.0)

    def _has_leader(self, admin: Any) -> bool:
        try:
            return bool(admin.list_topics(timeout=0.2).brokers)
        except KafkaException:
            return False

    def _ask(self, deadline: float, call: Callable[..., object], *arguments: Any) -> None:
        """Repeats a call until the broker answers."""
        while True:
            try:
                call(*arguments)
                return
            except KafkaException as error:
                if not is_temporary(error_of(error)):
                    raise OSError(f"{NAME} is not ready: {error}") from error
                self._check(deadline)

    def _check(self, deadline: float) -> None:
        if self._process.poll() is not None:
            raise OSError(f"{NAME} ended: {last_words(self._output)}")
        if time.monotonic() > deadline:
            raise OSError(f"{NAME} was not ready within {_READY_S:.0f} s")

    def pids(self) -> Sequence[int]:
        return (self._process.pid,)

    def warm(self) -> None:
        """Runs transactions with the tuned client until their latency is level, a minute at most."""
        from .apache_kafka import ApacheKafkaSystem

        began, medians = time.monotonic(), list[float]()
        with TemporaryDirectory(dir=self._folder) as folder:
            options = Options(server=self.address)
            with contextlib.closing(
                ApacheKafkaSystem(Path(folder), options, "warming", TUNED, 2)
            ) as system:
                for took in _transactions(system):
                    medians.append(took)
                    level = len(medians) > 3 and min(medians[-2:]) > _LEVEL * min(medians[:-2])
                    if level or time.monotonic() - began > _WARM_S:
                        break
                system.drop()
        self.warm_transactions = (_BLOCK + _BLOCK // 5) * len(medians)
        self.warm_s = time.monotonic() - began

    def close(self) -> None:
        end(self._process, signal.SIGTERM, _STOP_S)


def cluster_id() -> str:
    """Returns a new id of a cluster. It does not begin with "-", which Kafka's tool would take for an option."""
    first, *others = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *others])).decode().rstrip("=")


def _transactions(system: System) -> Iterator[float]:
    """Runs blocks of transactions; yields the median time of a small one, plus that of a wide one, in seconds.

    Wide ones write to many partitions, since other code of the broker serves that.
    """
    system.prepare({"in": 1, "out": 1, "wide": _WIDE}, ("state",))
    write = system.writer("in")
    begin = system.worker("warming", "warming")

    def small(work: Work) -> None:
        work.write("out", work.read("in", 0, 1).values, partition=0)
        work.add("state", "a", 1)
        work.add("state", "b", -1)

    def wide(work: Work) -> None:
        work.write("wide", [b"x" * 1000] * 5 * _WIDE, [b"%d" % n for n in range(5 * _WIDE)])

    for _ in range(_BLOCKS_MAX):
        write([b"x" * 100] * _BLOCK, None, 0)
        both = 0.0
        for count, fill in ((_BLOCK, small), (_BLOCK // 5, wide)):
            times = []
            for _ in range(count):
                started = time.monotonic()
                work = begin()
                fill(work)
                work.commit()
                times.append(time.monotonic() - started)
            both += median(times)
        yield both
