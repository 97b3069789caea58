"""Tests what a look at a shared log shows (runtime/replica_status.py), in each kind of log.

tests/cli/test_replicate.py has the command, over a folder.
"""

from pathlib import Path
from typing import Any

import pytest
from kafka_kit import InPartition, log_over
from s3_kit import InBucket

import planstep
from planstep.runtime.replica_status import status_of
from planstep.shared.kafka_log import open_partition
from planstep.shared.registry import OPENERS
from planstep.shared.settings import Replicate


def committed(path: Path, settings: Replicate, commits: int) -> int:
    """Opens a store, commits to it and closes it; returns its last turn."""
    with planstep.open(path, replicate=settings) as db:
        table = db.create_table("t", exist_ok=True)
        for n in range(commits):
            table.put(n, n)
        node = db._runtime.nodes[0]
    return int(node.host.store.last_turn)


def test_a_bucket_is_looked_into(bucket: InBucket, tmp_path: Path) -> None:
    settings = Replicate(bucket.url.replace("/shop", "/other"), linger=0.0)
    committed(tmp_path / "a", settings, 2)
    last = committed(tmp_path / "a", settings, 9)
    found = status_of(settings)
    assert (found.term, found.closed, found.end, found.floor) == (2, True, last, 1)
    assert found.objects == last + 1 and found.bytes is not None
    puts, held = found.dollars_per_month("s3")
    assert puts is None and held is not None and held > 0


@pytest.fixture
def partition(monkeypatch: pytest.MonkeyPatch) -> InPartition:
    """A partition of Kafka in memory, which all `kafka:` URLs name."""
    topic = InPartition()

    def opened(_: str, root: Any, timeout: float) -> Any:
        return log_over(topic.partition, timeout), open_partition(topic.partition, root)

    monkeypatch.setitem(OPENERS, "kafka", opened)
    return topic


def test_a_topic_is_read_through(partition: InPartition, tmp_path: Path) -> None:
    place = (tmp_path / "snapshots").as_uri()
    settings = Replicate("kafka://memory/shop", snapshots=place, local_sync=False)
    committed(tmp_path / "a", settings, 2)
    last = committed(tmp_path / "a", settings, 3)
    found = status_of(settings)
    assert (found.term, found.closed, found.end, found.floor) == (2, True, last, 1)
    assert (found.objects, found.bytes) == (None, None) and found.who is not None
    assert found.dollars_per_month("kafka") == (None, None)


def test_a_topic_whose_first_turns_are_gone_hides_its_end(
    partition: InPartition, tmp_path: Path
) -> None:
    settings = Replicate("kafka://memory/shop", local_sync=False)
    committed(tmp_path / "a", settings, 5)
    partition.partition.delete_below(3)
    found = status_of(settings)
    assert (found.end, found.term, found.who) == (None, None, None)
    assert found.floor > 1


def test_whole_snapshots_are_listed(tmp_path: Path) -> None:
    settings = Replicate((tmp_path / "log").as_uri(), snapshot_bytes=1)
    with planstep.open(tmp_path / "a", replicate=settings) as db:
        db.create_table("t").put("k", "v" * 100_000)
        snapshotter: Any = db._runtime.snapshotter
        snapshotter._make(1)
        found = status_of(settings)
    assert found.snapshots and found.end is not None
    turn, made, size = found.snapshots[0]
    assert turn <= found.end and made > 0 and size > 0
