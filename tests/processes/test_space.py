"""Tests that processes which look at a store hold back no space that its owner could free."""

from pathlib import Path

import pytest
from kit import until
from process_kit import Other

import planstep
from planstep.store.readers.reader_lease import oldest_lease


@pytest.mark.parametrize(
    ("looks", "read_only", "hosts"),
    [
        ("db.table('n').get('k')", False, 1),
        ("db.topic('t').read(db.topic('t').read().ends, timeout=0.2)", False, 1),
        ("db.topic('t').describe()", True, 1),
        ("db.table('n').get('k')", False, 2),
    ],
)
def test_who_looks_all_the_time_keeps_nothing_that_was_trimmed(
    tmp_path: Path, looks: str, read_only: bool, hosts: int
) -> None:
    """No turn comes behind the trim, as on a full disk: there was nothing to move on for."""
    store = tmp_path / "s"
    with planstep.open(store, hosts=hosts) as db:
        topic = db.create_topic("t", partitions=hosts)
        db.create_table("n").put("k", 1)
        for partition in range(hosts):
            topic.write(bytes(1 << 20), partition=partition)
        with Other(store, read_only=read_only) as other:
            other.run(
                "ended = threading.Event()\n"
                "def look():\n"
                f"    while not ended.wait(0.01): {looks}\n"
                "thread = threading.Thread(target=look); thread.start()"
            )
            topic.trim("latest")
            kept = [oldest_lease(store / f"host-{host}") or 0 for host in range(hosts)]
            for host in range(hosts):
                until(lambda host=host: (oldest_lease(store / f"host-{host}") or 0) > kept[host])
            other.run("ended.set(); thread.join()")
