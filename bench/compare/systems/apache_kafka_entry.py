"""Describes Apache Kafka, the product, as systems of the comparison: one broker, driven by its Python client.

Its client and its broker are there only where `make peers` fetched them, so nothing of them is imported before a
system is opened.

Next: apache_kafka.py.
"""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from ...judges.python import ALLOWED, IN_PLACE
from .apache_kafka_jars import NAME, fetch, unavailable
from .base import Options, System
from .entry import (
    COORDINATOR,
    LANES,
    PARTITION,
    SEPARATE,
    WORKER,
    LineStyle,
    Mode,
    Promises,
    Protocol,
    ServerRoom,
    Step,
    SystemEntry,
)
from .servers import Server


def _open(name: str, client: str, transaction_version: int) -> Callable[[Path, Options], System]:
    """Returns a function that opens the system; `client` is the name of its client's settings."""

    def opened(folder: Path, options: Options) -> System:
        lacking = unavailable()
        if lacking:
            raise ValueError(lacking)
        from .apache_kafka import ApacheKafkaSystem
        from .apache_kafka_client import CLIENTS

        return ApacheKafkaSystem(folder, options, name, CLIENTS[client], transaction_version)

    return opened


def _server(transaction_version: int) -> Callable[[Path, Options], Server]:
    def started(folder: Path, options: Options) -> Server:
        from .apache_kafka_server import KafkaServer

        return KafkaServer(folder, options, transaction_version)

    return started


def _load() -> None:
    if not unavailable():
        for name in (".apache_kafka", ".apache_kafka_server"):
            import_module(name, __package__)


_START_S, _WARM_S, _OVERHEAD_S = 4.5, 30.0, 8.0
"""What a broker takes on one of two cores, about."""
_ROOM = ServerRoom(memory=1400, disk=500)
"""A heap of 1 GB, and what else a JVM has; topics of an earlier run stay for a minute."""

_BROKER = SystemEntry(
    name="apache-kafka",
    open=_open("apache-kafka", "tuned", 2),
    history=IN_PLACE,
    allowed=ALLOWED,
    placements=(SEPARATE,),
    headline=SEPARATE,
    label=f"{NAME} (1 broker)",
    line_style=LineStyle("#1a1a1a", (0, (6, 1.5)), "P", "Apache Kafka"),
    about=f"{NAME} itself: one broker, driven by its Python client with settings for short commits",
    option="the product itself, one broker, tuned client",
    peer=True,
    load=_load,
    unavailable=unavailable,
    fetch=fetch,
    server=_server(2),
    server_mb=_ROOM,
    start_s=_START_S,
    warm_s=_WARM_S,
    overhead_s=_OVERHEAD_S,
    column="Apache Kafka",
    narrow="Kafka",
)

MODE = Mode(
    name="apache-kafka",
    systems=(
        _BROKER,
        replace(
            _BROKER,
            name="apache-kafka-v1",
            open=_open("apache-kafka-v1", "tuned", 1),
            label=f"{NAME} (transaction.version 1)",
            line_style=LineStyle("#555555", (0, (6, 1.5, 1, 1.5)), "X", "Apache Kafka v1"),
            about="the same with the cluster at transaction.version 1; the Python client speaks that in either",
            option="its transactions of version 1",
            server=_server(1),
            column="Apache Kafka v1",
            narrow="Kafka v1",
        ),
        replace(
            _BROKER,
            name="apache-kafka-default",
            open=_open("apache-kafka-default", "default", 2),
            label=f"{NAME} (default client)",
            line_style=LineStyle("#777777", (0, (1, 2.2)), "p", "Apache Kafka, default"),
            about="the same broker, its client with default settings; a commit may wait 100 ms for a retry",
            option="default client; joins apache-kafka in small by itself",
            joins=("small",),
            column="Apache Kafka default",
            narrow="Kafka default",
        ),
    ),
    style="Apache Kafka",
    title="Apache Kafka",
    commits="Apache Kafka: records go to their places at once; a coordinator decides, then writes markers behind "
    "them. Readers of committed records stop before the first open transaction.",
    protocol=Protocol(
        "write in place, then mark",
        LANES,
        (
            Step("add partitions", WORKER, COORDINATOR),
            Step("records", WORKER, PARTITION),
            Step("in place, not readable", PARTITION),
            Step("add positions", WORKER, COORDINATOR),
            Step("commit", WORKER, COORDINATOR),
            Step("decided", COORDINATOR),
            Step("committed", COORDINATOR, WORKER),
            Step("markers", COORDINATOR, PARTITION),
        ),
        7,
        "stop here",
        "past the marker",
    ),
    durable="in place, in an open transaction",
    promises=Promises(
        durable={
            "full": "each append is synced before it is acknowledged (log.flush.interval.messages=1)",
            "os": "the operating system has it; with one broker a power loss may take it",
        },
        tables="no tables: state is in changelog topics, which change with the records",
        readers="for every transaction that is open before in the partition, up to its time-out",
        zombie="it is fenced once another one takes its name; without that both commit",
    ),
    reads_late="in Apache Kafka for transactions that are open before it",
)
