"""Processes share a consumer's partitions; those of one that dies are read by the others."""

from pathlib import Path

import pytest
from kit import until
from process_kit import Other

import planstep

COPY = (
    "def copy(tx, batch):\n"
    "    time.sleep(0.002)\n"
    "    tx.write_batch('out', batch.values)\n"
    "    for key in batch.keys:\n"
    "        tx.add('n', key.decode(), 1)\n"
    "def work():\n"
    "    return db.process(copy, 'in', 'c', workers=2, max_records=10, until_idle=True).conflicts\n"
)


def made(path: Path, kind: str, records: int) -> planstep.Engine:
    db = planstep.open(path, durability="os")
    topic = db.create_topic("in", partitions=8)
    topic.create_consumer("c", kind=kind)
    db.create_topic("out")
    db.create_table("n")
    for p in range(8):
        values = [b"%d-%d" % (p, n) for n in range(records)]
        topic.write_batch(values, keys=[f"k{p}"] * records, partition=p)
    return db


@pytest.mark.parametrize("kind", ["cumulative", "individual"])
def test_three_processes_consume_each_record_once(tmp_path: Path, kind: str) -> None:
    with (
        made(tmp_path / "s", kind, 400) as db,
        Other(tmp_path / "s") as one,
        Other(tmp_path / "s") as two,
    ):
        for other in one, two:
            other.run(COPY)
        ends = [one.begin("work()"), two.begin("work()")]
        names = {"db": db, "time": __import__("time")}
        exec(COPY, names)
        conflicts = [eval("work()", names), *(end() for end in ends)]
        out = db.topic("out").read(max_records=10_000).values
        assert len(out) == len(set(out)) == 3200
        assert dict(db.table("n").scan()) == {f"k{p}": 400 for p in range(8)}
        assert sum(conflicts) < 64, "the partitions are shared, not fought for"


def test_a_process_that_dies_is_replaced_at_once(tmp_path: Path) -> None:
    with made(tmp_path / "s", "cumulative", 300) as db, Other(tmp_path / "s") as one:
        two = Other(tmp_path / "s")
        for other in one, two:
            other.run(COPY)
        ends = [other.begin("work()") for other in (one, two)]
        until(lambda: len(db.topic("out").read(max_records=10_000).values) > 200)
        two.kill()
        ends[0]()
        out = db.topic("out").read(max_records=10_000).values
        assert len(out) == len(set(out)) == 2400


def test_an_owner_that_dies_while_all_consume(tmp_path: Path) -> None:
    path = tmp_path / "s"
    made(path, "cumulative", 300).close()
    owner = Other(path)
    with Other(path) as one, Other(path) as two:
        for other in one, two, owner:
            other.run(COPY)
        ends = [other.begin("work()") for other in (one, two, owner)]
        with planstep.open(path) as db:
            until(lambda: len(db.topic("out").read(max_records=10_000).values) > 200)
            owner.kill()
            for end in ends[:2]:
                end()
            out = db.topic("out").read(max_records=10_000).values
            assert len(out) == len(set(out)) == 2400
            assert dict(db.table("n").scan()) == {f"k{p}": 300 for p in range(8)}
