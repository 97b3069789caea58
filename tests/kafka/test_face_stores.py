"""Tests mode "kafka" on disk through the face: reopened, read by others, backed up, killed; and for asyncio."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from face_kit import QUICK, begin_with, commits, new_store, open_store, sees, until, values
from kit import background, python

import planstep
from planstep import NotSupported
from planstep.coordinator.kafka.transactions import SCAN
from planstep.host.inputs import Deliver
from planstep.proto.ids import TRANSACTIONS, tablet_id
from planstep.proto.shell import Wake

# the store ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [1, 4])
def test_everything_is_there_after_reopening(tmp_path: Path, hosts: int) -> None:
    with new_store(tmp_path / "s", hosts) as db:
        db.topic("in").write_batch(["a", "b"], partition=1)
        with db.transaction(worker="w") as tx:
            tx.write_batch("out", tx.read("in", "c", max_records=1).values)
    with planstep.open(tmp_path / "s", kafka=QUICK) as db:
        sees(db, "out", "a")
        with db.transaction(worker="w") as tx:
            assert tx.read("in", "c").values == ["b"]
            tx.write("out", "b")
        sees(db, "out", "a", "b")
    with pytest.raises(planstep.WrongMode):
        planstep.open(tmp_path / "s", mode="deterministic")


@pytest.mark.parametrize("hosts", [1, 4])
def test_a_reader_of_another_process_sees_what_is_committed(tmp_path: Path, hosts: int) -> None:
    with new_store(tmp_path / "s", hosts) as db:
        db.topic("in").write("a", partition=0)
        commits(db, "b")
        sees(db, "out", "b")
        tx = begin_with(db, "open")
        program = (
            "import sys, planstep\n"
            "with planstep.open(sys.argv[1], read_only=True) as db:\n"
            "    print(db.topic('in').read().values, db.topic('out').read().values)\n"
            "    print(db.topic('in').lag('c'), db.topic('out').describe().records)\n"
        )
        output = python(program, tmp_path / "s").stdout
        tx.rollback()
    assert output.splitlines() == ["['a'] ['b']", "1 2"]


@pytest.mark.parametrize("hosts", [1, 4])
def test_a_backup_can_be_restored_and_goes_on(tmp_path: Path, hosts: int) -> None:
    with new_store(tmp_path / "s", hosts) as db:
        db.topic("in").write_batch(["a", "b"], partition=0)
        with db.transaction(worker="w") as tx:
            tx.write_batch("out", tx.read("in", "c", max_records=1).values)
        sees(db, "out", "a")
        until(lambda: db.topic("in").position("c")[0] == 1)
        running = begin_with(db, "open", worker="open")
        db.backup(tmp_path / "copy")
        running.commit()
    planstep.restore(tmp_path / "copy", tmp_path / "r")
    with planstep.open(tmp_path / "r", kafka=QUICK) as db:
        assert db.topic("in").position("c") == {0: 1, 1: 0}
        commits(db, "new", "in", worker="open")  # ends the transactions open in the copy
        with db.transaction(worker="w") as tx:
            assert "b" in tx.read("in", "c").values
            tx.write("out", "b")
        sees(db, "out", "a", "b")


CRASH = """
import dataclasses, os, signal, sys, planstep
from planstep import KafkaSettings
path, hosts, timeout = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
db = planstep.open(path, mode="kafka", hosts=hosts, kafka=KafkaSettings(abort_scan_ms=20))
db.create_topic("in", partitions=2, format="utf8")
db.create_topic("out", partitions=1, format="utf8")
db.topic("in").write_batch(["a", "b"], partition=0)
with db.transaction(worker="first") as tx:
    tx.write_batch("out", tx.read("in", "c", max_records=1).values)
core = db._runtime.hooks.client.core
core.settings = dataclasses.replace(core.settings, transaction_timeout_ms=timeout)
tx = db.transaction(worker="w")
tx.write_batch("out", tx.read("in", "c", max_records=1).values)
while db._runtime.hooks.client.outstanding(tx.life.tx):
    pass
db.topic("out").write("behind")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("hosts", [1, 4])
def test_what_a_killed_worker_left_open_ends_when_it_comes_back(tmp_path: Path, hosts: int) -> None:
    python(CRASH, tmp_path / "s", hosts, 600_000, status=-signal.SIGKILL)
    with open_store(tmp_path / "s") as db:
        sees(db, "out", "a")  # after it the transaction is open
        with db.transaction(worker="w") as tx:
            assert tx.read("in", "c").values == ["b"]
            tx.write("out", "b")
        sees(db, "out", "a", "behind", "b")


@pytest.mark.parametrize("hosts", [1, 4])
def test_what_a_killed_worker_left_open_ends_in_time(tmp_path: Path, hosts: int) -> None:
    python(CRASH, tmp_path / "s", hosts, 50, status=-signal.SIGKILL)
    with open_store(tmp_path / "s") as db:
        sees(db, "out", "a", "behind")
        with db.transaction(worker="another") as tx:
            assert tx.read("in", "c").values == ["b"]


def test_a_pool_of_identities_ends_what_a_killed_process_left_open(tmp_path: Path) -> None:
    new_store(tmp_path / "s").close()
    child = os.fork()
    if not child:
        db = open_store(tmp_path / "s")
        _left = begin_with(db, "left")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with open_store(tmp_path / "s") as db:
        db.topic("out").write("behind")
        assert values(db, "out") == []
        commits(db, "next", "in")
        sees(db, "out", "behind")


COPY = """
import os, signal, sys, planstep
from planstep import KafkaSettings
path, commits, metadata = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "metadata"
db = planstep.open(path, kafka=KafkaSettings(retry_backoff_ms=5, concurrent_backoff_ms=5))
reader = db.reader("in", "copier", max_records=10, name="copier") if metadata else None
done = turns = 0
while True:
    if reader is None:
        tx = db.transaction(worker="copier")
        values = tx.read("in", "copier", max_records=10).values
    else:
        tx, batch = reader.read(timeout=20)
        values = batch.values
    tx.write_batch("out", values)
    turns += 1
    if done == commits:
        db.topic("side").write("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    if turns % 3:
        tx.commit()
        done += 1
    else:
        tx.rollback()
"""


@pytest.mark.parametrize("metadata", ["metadata", "plain"])
def test_a_copier_that_is_killed_again_and_again_copies_each_record_once(
    tmp_path: Path, metadata: str
) -> None:
    """A reader that runs meanwhile sees the same copies as one that comes last."""
    count = 100
    with new_store(tmp_path / "s", 4) as db:
        db.create_topic("side", format="utf8")
        db.topic("in").write_batch([str(n) for n in range(count)], partition=0)
    for turns in (1, 3):
        python(COPY, tmp_path / "s", turns, metadata, status=-signal.SIGKILL)
    with open_store(tmp_path / "s") as db:
        copied: list[str] = []
        at: dict[int, int] = {0: 0}

        def read() -> None:
            while len(copied) < count:
                batch = db.topic("out").read(at)
                copied.extend(batch.values)
                at.update(batch.ends)
                time.sleep(0.001)

        def copy(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
            tx.write_batch("out", batch.values)

        with background(read):
            db.process(copy, "in", "copier", max_records=10, until_idle=True, worker="copier")
        assert copied == values(db, "out") == [str(n) for n in range(count)]


# asyncio -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [1, 4])
async def test_asyncio(hosts: int) -> None:
    async with planstep.open_async(":memory:", mode="kafka", hosts=hosts, kafka=QUICK) as db:
        await db.create_topic("in", partitions=2, format="utf8")
        await db.create_topic("out", format="utf8")
        topic = await db.topic("in") if asyncio.iscoroutine(db.topic("in")) else db.topic("in")
        await topic.write_batch([str(n) for n in range(20)], keys=[str(n) for n in range(20)])

        async def copy(tx: Any, batch: planstep.ReadBatch) -> None:
            await tx.write_batch("out", batch.values)

        done = await db.process(copy, "in", "c", workers=2, max_records=4, until_idle=True)
        assert done.records == 20
        old = db.transaction(worker="w")
        await old.write("out", "old")
        async with db.transaction(worker="w") as tx:
            await tx.write("out", "new")
        with pytest.raises(planstep.ProducerFenced):
            await old.commit()
        with pytest.raises(NotSupported):
            await db.create_table("t")
        async with asyncio.timeout(20):
            while len((await db.topic("out").read()).values) < 21:
                await asyncio.sleep(0.001)


def test_what_a_stopped_host_put_off_is_not_told_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise each start would add one more periodic scan for old transactions."""
    with open_store() as db:
        runtime: Any = db._runtime
        node: Any = SimpleNamespace(down=False, leading=True, host="first", inbox=[], link=None)
        node.take = node.inbox.append
        scan = Deliver(tablet_id(TRANSACTIONS, 0, 0), Wake(SCAN))
        put_off: list[Callable[[], None]] = []
        after = runtime.turns.delays.after
        with monkeypatch.context() as patch:
            patch.setattr(
                runtime.turns.delays,
                "after",
                lambda ms, call: put_off.append(call) if ms == 12.5 else after(ms, call),
            )
            runtime.turns._schedule(node, 12.5, scan)
        put_off[0]()
        assert node.inbox == [scan]
        node.host = "second"
        put_off[0]()
        assert node.inbox == [scan]
