"""Readers in mode "kafka" over a change of owner: the next one has their group, and each record counts once.

The owner is killed while a reader waits for records, while two processes read, and while a reader has a batch.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import background, until
from process_kit import Code, Other

import planstep

_VERSIONS = (1, 2)
_RECORDS = 400
_LANES = 4
_COPY = """
stop, done = threading.Event(), False

def copy(name):
    global done
    def one(tx, batch):
        for (partition, _), value in zip(batch.offsets, batch.values):
            tx.write('out', value, partition=partition)
    db.process(one, 'in', 'c', workers=2, max_records=3, worker=name, stop=stop)
    done = True
"""


@pytest.fixture(params=_VERSIONS)
def owner(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Other]:
    """Owns a store with topics `in` and `out`."""
    settings = Code(f"planstep.KafkaSettings(protocol_version={request.param})")
    other = Other(tmp_path / "s", mode="kafka", kafka=settings)
    other.run(f"db.create_topic('in', {_LANES}); db.create_topic('out', {_LANES})")
    yield other
    other.kill()


def copying(path: Path, name: str | None) -> Other:
    """Begins a process that copies."""
    other = Other(path)
    other.run(_COPY)
    other.run(f"threading.Thread(target=copy, args=({name!r},)).start()")
    return other


def write(db: planstep.Engine, begin: int, end: int) -> None:
    for n in range(begin, end):
        db.topic("in").write(b"%d" % n, partition=n % _LANES)


def copied(db: planstep.Engine) -> list[list[int]]:
    """Returns what is in each partition of `out`."""
    topic = db.topic("out")
    return [
        [int(value) for value in topic.read(0, p, max_records=10_000).values] for p in range(_LANES)
    ]


def wait_until_copied(db: planstep.Engine, end: int = _RECORDS) -> None:
    """Waits for all numbers up to `end`: each once, in the order of its partition."""
    until(lambda: sum(map(len, copied(db))) >= end)
    assert copied(db) == [[*range(lane, end, _LANES)] for lane in range(_LANES)]


def read_and_copy(db: planstep.Engine, records: int) -> int:
    """Copies with one reader until it has committed so many records; returns how often it had to run again."""
    count = again = 0
    with db.reader("in", "c", max_records=5) as reader:
        while count < records:
            leased = reader.read(timeout=60)
            assert leased is not None
            try:
                for (partition, _), value in zip(
                    leased.batch.offsets, leased.batch.values, strict=True
                ):
                    leased.tx.write("out", value, partition=partition)
                leased.tx.commit()
            except planstep.PlanstepError as error:
                assert error.retryable
                again += 1
            else:
                count += len(leased.batch)
    return again


def test_a_reader_waits_while_the_owner_is_killed(tmp_path: Path, owner: Other) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        with background(lambda: read_and_copy(db, _RECORDS)) as (reading,):
            write(db, 0, 20)
            wait_until_copied(db, 20)
            until(lambda: bool(db.context.runtime.turns.watches.watched))
            owner.kill()
            other.run(
                f"for n in range(20, {_RECORDS}):\n"
                f"    db.topic('in').write(b'%d' % n, partition=n % {_LANES})"
            )
            reading.result(120)
        wait_until_copied(db)
        assert db.topic("in").lag("c") == 0


@pytest.mark.parametrize("named", [True, False])
def test_processes_read_while_their_owners_are_killed(
    tmp_path: Path, owner: Other, named: bool
) -> None:
    """Then one that reads is killed, the next owner if it can be. Another one takes its workers' names. Workers
    without a name have one of their process's: none fences another, and nobody waits for what a killed one left."""
    with planstep.open(tmp_path / "s") as db:
        names = {
            copying(tmp_path / "s", name): name
            for name in (("one", "two") if named else (None, None))
        }
        with background(lambda: write(db, 0, _RECORDS)) as (writing,):
            until(lambda: sum(map(len, copied(db))) > 60)
            owner.kill()
            until(lambda: sum(map(len, copied(db))) > 120)
            killed = next((other for other in names if other.pid == db.owner), next(iter(names)))
            killed.kill()
            name = names.pop(killed)
            names[copying(tmp_path / "s", name)] = name
            writing.result(120)
        wait_until_copied(db)
        assert db.topic("in").lag("c") == 0
    for other in names:
        other.run("stop.set()")
        until(lambda other=other: other("done"))
        other.close()


@pytest.mark.parametrize("writes", ["before", "after"])
def test_a_reader_has_a_batch_when_the_owner_is_killed(
    tmp_path: Path, owner: Other, writes: str
) -> None:
    with planstep.open(tmp_path / "s") as db:
        write(db, 0, 40)
        with db.reader("in", "c", max_records=5) as reader:
            leased = reader.read(timeout=60)
            assert leased is not None
            [(partition, _), *_] = leased.batch.offsets
            if writes == "before":
                leased.tx.write_batch("out", leased.batch.values, partition=partition)
                leased.tx.flush()
            owner.kill()
            if writes == "after":
                leased.tx.write_batch("out", leased.batch.values, partition=partition)
            try:
                leased.tx.commit()
                count = len(leased.batch)
            except planstep.PlanstepError as error:
                assert error.retryable
                count = 0
        read_and_copy(db, 40 - count)
        wait_until_copied(db, 40)
