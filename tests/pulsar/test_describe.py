"""Tests how the logs of coordinators and of acknowledgements are told."""

from functools import partial
from pathlib import Path

from transactions_kit import Coordinator, P

import planstep
from planstep.coordinator.pulsar.describe import logged
from planstep.host.describe import Nameless, appends
from planstep.store.dump import dump


def name(tablet: int) -> str:
    return f"clicks[{tablet & 0xFF}]" if tablet in P else "coordinator"


def test_a_log_is_told_record_by_record() -> None:
    c = Coordinator()
    c.open(P[0], P[1], timeout_ms=500)
    c.subscribe(0, (P[1], "c"), (P[0], "d"))
    c.wait(500)
    told = [
        line
        for key, value in c.keys.scan(b"l", b"m")
        for line in logged(name, c.tablet_id, key[1:], value)
    ]
    assert told == [
        "coordinator: (0,0) opened, time-out 500 ms",
        "coordinator: (0,0) writes clicks[0], clicks[1]",
        "coordinator: (0,0) acknowledges clicks[1] for c, clicks[0] for d",
        "coordinator: (0,0) ABORTING, timed out",
    ]


def test_records_of_one_append_say_so() -> None:
    c = Coordinator(log_batching=True)
    c.new(), c.new()
    c.wait(1)
    (entry,) = c.keys.scan(b"l", b"m")
    told = [*logged(name, c.tablet_id, entry[0][1:], entry[1])]
    assert told == [
        "coordinator: (0,0) opened, time-out 60000 ms (1 of 2 in one append)",
        "coordinator: (0,1) opened, time-out 60000 ms (2 of 2 in one append)",
    ]


def test_acknowledgements_are_told_from_pending_to_over(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", mode="pulsar") as db:
        topic = db.create_topic("a", partitions=1, format="utf8")
        topic.write_batch(["x", "y", "z"])
        topic.create_consumer("one", kind="individual")
        readers = [db.reader("a", "one", max_records=1) for _ in range(2)]
        _, second = (reader.read(timeout=5) for reader in readers)
        assert second is not None
        second.tx.commit()
        with db.transaction() as tx:
            tx.read("a", "all", max_records=2)
        for reader in readers:
            reader.close()
        records = [*dump(tmp_path / "s" / "host-0", partial(appends, "pulsar", Nameless()))]
    told = [line for record in records for line in record["appends"]]
    at, over = "partition 1 on host 0", "transaction coordinator: its transaction"
    assert [line for line in told if line.startswith((at, over))] == [
        f"{at} @0 3 records plain producer plain-1 seq 2",
        f"{at} one = 0",
        f"{at} for one: (0,0) acknowledges 1-2, pending",
        f"{at} for one: (0,0) committed",
        f"{at} one = 0 and 1 beyond",
        f"{over} 0 is over, its records are deleted",
        f"{at} all = 0",
        f"{at} for all: (0,1) acknowledges to 2, pending",
        f"{at} for all: (0,1) committed",
        f"{at} all = 2",
        f"{over} 1 is over, its records are deleted",
    ]


def test_a_damaged_entry_says_what_to_do() -> None:
    (told,) = logged(name, P[0], b"", b"\xc1")
    assert "restore the store from a backup" in told
