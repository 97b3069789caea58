"""Tests the coordinators' buffered writer in a running engine: on, off, switched, and the log that it leaves."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit import until

import planstep
from planstep.coordinator.kafka.states import CAME_FROM, Transaction
from planstep.proto.batched_log import MAGIC, added, decode_entry
from planstep.proto.ids import TRANSACTIONS, tablet_id, tablet_prefix

WORKERS, EACH = 6, 12


def run(db: planstep.Engine, round: int) -> None:
    def work(number: int) -> None:
        for i in range(EACH):
            with db.transaction(worker=f"w{number}") as tx:
                tx.write("out", f"{round}-{number}-{i}", key=str(number))

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))


def entries(db: planstep.Engine, host: int) -> tuple[list[bytes], dict[str, Transaction]]:
    """Returns the log's entries in order, and the tablet's rows."""
    store, prefix = (
        db._runtime.nodes[host].host.store,
        tablet_prefix(tablet_id(TRANSACTIONS, host, 0)),
    )
    log = [value for _, value in store.scan(prefix + b"l", prefix + b"m")]
    rows = {
        key[5:].decode(): Transaction(*value)
        for key, value in store.scan(prefix + b"t", prefix + b"u")
    }
    return log, rows


def check(db: planstep.Engine, host: int) -> list[bytes]:
    """Checks that replaying the log gives the rows, by transitions of the table."""
    log, rows = entries(db, host)
    state: dict[str, tuple[Any, ...]] = {}
    for entry in log:
        for name, *fields in decode_entry(entry):
            if name in state:
                assert state[name][2] in CAME_FROM[fields[2]]
            state[name] = tuple(fields)
    assert {name: row.logged() for name, row in rows.items()} == state
    return log


def values(db: planstep.Engine) -> list[Any]:
    return sorted(record.value for record in db.topic("out").read(max_records=100_000))


def counted(db: planstep.Engine) -> dict[str, Any]:
    """Returns the counters of the transaction coordinators' logs, all hosts together."""
    return added(db.stats()["coordinator_logs"]["transactions"].values())


@pytest.mark.parametrize("hosts", [1, 4])
def test_switched_while_it_runs(tmp_path: Path, hosts: int) -> None:
    expected = sorted(f"{r}-{n}-{i}" for r in range(3) for n in range(WORKERS) for i in range(EACH))
    with planstep.open(tmp_path / "s", mode="kafka", hosts=hosts) as db:
        db.create_topic("out", partitions=4, format="utf8")
        run(db, 0)
        plain = counted(db)
        assert plain["max_delay"] == 0, "off, as it is in Pulsar until it is asked for"
        db.switch_log_batching(True)
        run(db, 1)
        batched = counted(db)
        assert batched["max_delay"] > 0
        assert batched["batch_records_sum"] >= WORKERS * EACH * 2, "registered and decided, each"
        db.switch_log_batching(False)
        run(db, 2)
        kinds = [(one.logs, one.owner) for one in db.log_batches()]
        assert kinds == [
            (logs, f"coordinator {n}") for logs in ("transactions", "groups") for n in range(hosts)
        ]
        db.switch_log_batching(True, "transactions")
        with pytest.raises(planstep.NotSupported, match="pulsar"):
            db.switch_log_batching(True, "pending acks")
    with planstep.open(tmp_path / "s") as db:
        on = [(one.logs, one.report.batching) for one in db.log_batches()]
        assert on == [("transactions", True)] * hosts + [("groups", False)] * hosts
        until(lambda: values(db) == expected)  # pending markers are written now
        logs = [entry for host in range(hosts) for entry in check(db, host)]
    assert any(entry[:2] == MAGIC for entry in logs) and any(entry[:2] != MAGIC for entry in logs)


def test_a_batch_serves_many_transactions() -> None:
    settings = planstep.KafkaSettings(log_batching=True, log_batch_delay_ms=20)
    with planstep.open(":memory:", mode="kafka", kafka=settings) as db:
        db.create_topic("out", partitions=1)
        transactions = [db.transaction(worker=f"w{n}") for n in range(16)]
        for tx in transactions:
            tx.write("out", b"x")
        for future in [tx.submit() for tx in transactions]:
            future.result(30)
        log, _ = entries(db, 0)
        assert len(log) < 16 * 3, "an entry holds several records"
        ids = [tx.id for tx in transactions]
        assert any(db.costs(tx).appends % 1 for tx in ids), "of a shared append each has its share"
        assert db.costs().appends == pytest.approx(round(db.costs().appends))


def test_other_modes_have_no_such_log() -> None:
    with planstep.open(":memory:") as db:
        with pytest.raises(planstep.NotSupported, match="kafka"):
            db.switch_log_batching(True)
