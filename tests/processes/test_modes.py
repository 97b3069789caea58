"""Modes "kafka" and "pulsar" over processes: each has its own client; the owner's hosts are their brokers."""

from pathlib import Path

import pytest
from kit import until
from process_kit import Code, Other

import planstep

MODES = ("deterministic", "kafka", "pulsar")
OF_CLIENTS = ("kafka", "pulsar")
_REMEMBERS = {
    "kafka": {},
    "pulsar": {"pulsar": Code("planstep.PulsarSettings(deduplication=True, ended_kept=1000)")},
}
"""Settings with which a repeated request counts once; in Pulsar they are not the defaults."""


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_write_and_consume(tmp_path: Path, mode: str) -> None:
    with planstep.open(tmp_path / "s", mode=mode) as db, Other(tmp_path / "s") as other:
        db.create_topic("t", partitions=2)
        other.run("db.topic('t').write(b'theirs', partition=0)")
        assert db.topic("t").read().values == [b"theirs"]
        with db.transaction() as tx:
            tx.write("t", b"ours", partition=1)
        until(lambda: len(db.topic("t").read().values) == 2)
        assert other("db.topic('t').read().values") == [b"theirs", b"ours"]
        other.run(
            "with db.transaction() as tx:\n"
            "    taken = tx.read('t', 'c', partition=0).values\n"
            "    tx.write('t', b'third', partition=1)\n"
        )
        assert other("taken") == [b"theirs"]
        until(lambda: len(db.topic("t").read().values) == 3)
        with db.transaction() as tx:
            assert tx.read("t", "c").values == [b"ours", b"third"]


@pytest.mark.parametrize("mode", OF_CLIENTS)
def test_a_rollback_elsewhere_is_never_shown(tmp_path: Path, mode: str) -> None:
    with planstep.open(tmp_path / "s", mode=mode) as db, Other(tmp_path / "s") as other:
        db.create_topic("t")
        other.run("tx = db.transaction(); tx.write('t', b'no'); tx.flush()")
        db.topic("t").write(b"behind")
        assert db.topic("t").read().values == []
        other.run("tx.rollback()")
        until(lambda: db.topic("t").read().values == [b"behind"])
        assert other("db.topic('t').read().values") == [b"behind"]


@pytest.mark.parametrize("mode", OF_CLIENTS)
def test_the_owner_is_killed_and_the_clients_go_on(tmp_path: Path, mode: str) -> None:
    owner = Other(tmp_path / "s", mode=mode)
    owner.run("db.create_topic('t'); db.topic('t').write(b'a')")
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        tx = db.transaction()
        tx.write("t", b"b")
        tx.flush()
        owner.kill()
        tx.write("t", b"c")
        tx.commit()
        other.run("db.topic('t').write(b'd')")
        until(lambda: len(db.topic("t").read().values) == 4)
        assert db.topic("t").read().values == [b"a", b"b", b"c", b"d"]
        assert other("db.topic('t').read().values") == [b"a", b"b", b"c", b"d"]
        assert sorted([db.context.runtime.link is None, other("db.owner == os.getpid()")]) == [
            False,
            True,
        ]


@pytest.mark.parametrize("mode", OF_CLIENTS)
def test_each_record_is_written_once_over_owners(tmp_path: Path, mode: str) -> None:
    """Threads of two processes write numbers while one owner after the other is killed."""
    path = tmp_path / "s"
    write = (
        "def write(who):\n"
        "    for n in range(60):\n"
        "        if n % 2:\n"
        "            db.topic('t').write(f'{who}-{n}'.encode(), partition=0)\n"
        "        else:\n"
        "            with db.transaction() as tx:\n"
        "                tx.write('t', f'{who}-{n}'.encode(), partition=1)\n"
        "def all(who):\n"
        "    threads = [threading.Thread(target=write, args=(f'{who}{n}',)) for n in range(3)]\n"
        "    [thread.start() for thread in threads]\n"
        "    [thread.join() for thread in threads]\n"
        "    return True\n"
    )
    owner = Other(path, mode=mode, **_REMEMBERS[mode])
    owner.run("db.create_topic('t', partitions=2)")
    second, third, last = Other(path), Other(path), Other(path)
    for other in second, third:
        other.run(write)
    ends = [second.begin("all('second')"), third.begin("all('third')")]
    until(lambda: last("len(db.topic('t').read(max_records=1000).values)") > 20)
    owner.kill()
    assert [end() for end in ends] == [True, True]
    second.kill()
    written = [
        f"{who}{thread}-{n}".encode()
        for who in ("second", "third")
        for thread in range(3)
        for n in range(60)
    ]
    until(lambda: last("len(db.topic('t').read(max_records=1000).values)") >= len(written))
    assert sorted(last("db.topic('t').read(max_records=1000).values")) == sorted(written)
    for other in third, last:
        other.close()


@pytest.mark.parametrize("mode", OF_CLIENTS)
def test_each_record_is_consumed_once_over_owners(tmp_path: Path, mode: str) -> None:
    """Each process copies a partition, in transactions that consume and write, while the owner is killed."""
    path = tmp_path / "s"
    copy = (
        "def copy(partition):\n"
        "    taken = 0\n"
        "    while taken < 60:\n"
        "        try:\n"
        "            with db.transaction(worker=f'worker{partition}') as tx:\n"
        "                batch = tx.read('in', 'c', partition=partition, max_records=3)\n"
        "                for value in batch.values:\n"
        "                    tx.write('out', value)\n"
        "            taken += len(batch.values)\n"
        "        except planstep.PlanstepError as error:\n"
        "            if not error.retryable:\n"
        "                raise\n"
        "    return taken\n"
    )
    owner = Other(path, mode=mode, **_REMEMBERS[mode])
    owner.run("db.create_topic('in', partitions=2); db.create_topic('out')")
    owner.run("for n in range(120): db.topic('in').write(b'%d' % n, partition=n % 2)")
    second, third = Other(path), Other(path)
    for other in second, third:
        other.run(copy)
    ends = [second.begin("copy(0)"), third.begin("copy(1)")]
    with planstep.open(path) as db:
        until(lambda: len(db.topic("out").read(max_records=1000).values) > 10)
        owner.kill()
        assert [end() for end in ends] == [60, 60]
        until(lambda: len(db.topic("out").read(max_records=1000).values) >= 120)
        copied = [int(value) for value in db.topic("out").read(max_records=1000).values]
        assert sorted(copied) == list(range(120))
        for lane in 0, 1:
            assert [n for n in copied if n % 2 == lane] == list(range(lane, 120, 2))
    for other in second, third:
        other.close()
