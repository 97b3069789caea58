"""Dead letters go back to a service that runs: by `planstep topic redrive`, or by another process's code."""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, until
from process_kit import Other

import planstep

MODES = ("deterministic", "kafka", "pulsar")


def command(*words: object) -> Any:
    line = [sys.executable, "-c", PLANSTEP, *map(str, words)]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert not ended.returncode, ended.stderr
    return json.loads(ended.stdout)


@contextmanager
def service(db: planstep.Engine, broken: threading.Event, taken: Counter[bytes]) -> Iterator[None]:
    """Processes topic `orders`, whose values that begin with `bad` fail while something is broken."""

    def bill(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        if broken.is_set() and any(value.startswith(b"bad") for value in batch.values):
            raise ConnectionError("the bank is away")
        for value in batch.values:
            tx.write("bills", value)

    stop = threading.Event()
    options: Any = {"dead_letter": "failed", "stop": stop, "workers": 2}
    running = threading.Thread(target=db.process, args=(bill, "orders", "billing"), kwargs=options)
    running.start()
    try:
        yield
    finally:
        stop.set()
        running.join()
        taken.update(db.topic("bills").read().values)


def made(path: Path, mode: str) -> planstep.Engine:
    db = planstep.open(path, mode=mode)
    db.create_topic("orders", partitions=2)
    db.create_topic("bills")
    for n in range(20):
        value = b"bad-%d" % n if n % 4 == 0 else b"good-%d" % n
        db.topic("orders").write(value, key=f"user{n % 3}", headers={"n": str(n)})
    return db


@pytest.mark.parametrize("mode", MODES)
def test_by_the_command_while_the_service_runs(tmp_path: Path, mode: str) -> None:
    path, broken, taken = tmp_path / "s", threading.Event(), Counter[bytes]()
    broken.set()
    with made(path, mode) as db:
        with service(db, broken, taken):
            until(lambda: db.topic("orders").lag("billing") == 0)
            until(lambda: len(db.topic("failed").read()) == 5)
            look = command("topic", "redrive", path, "failed", "--dry-run", "--json")
            assert (look["records"], look["dry_run"]) == (5, True)
            broken.clear()
            some = command("topic", "redrive", path, "failed", "--limit", 2, "--json")
            assert some["topics"] == [{"topic": "orders", "records": 2}]
            rest = command("topic", "redrive", path, "failed", "--json")
            assert (rest["records"], rest["dry_run"]) == (3, False)
            until(lambda: len(db.topic("bills").read()) == 20)
        assert len(db.topic("failed").read()) == 5, "the letters stay"
        again = [one for one in db.topic("orders").read() if one.value.startswith(b"bad")]
        assert len(again) == 10
        for value in {one.value for one in again}:
            first, second = (one for one in again if one.value == value)
            assert (first.key, first.headers) == (second.key, second.headers)
            assert first.partition == second.partition
    assert taken == Counter({b"bad-%d" % n if n % 4 == 0 else b"good-%d" % n: 1 for n in range(20)})


def test_by_a_transaction_of_another_process(tmp_path: Path) -> None:
    path, broken, taken = tmp_path / "s", threading.Event(), Counter[bytes]()
    broken.set()
    with made(path, "deterministic") as db, Other(path) as other:
        with service(db, broken, taken):
            until(lambda: "failed" in db.topics() and len(db.topic("failed").read()) == 5)
            broken.clear()
            other.run(
                "def back(tx, batch):\n"
                "    for one in batch:\n"
                "        tx.write(one.headers['planstep-topic'], one.value, one.key)\n"
                "db.process(back, 'failed', 'redrive', until_idle=True)\n"
            )
            until(lambda: len(db.topic("bills").read()) == 20)
    assert set(taken.values()) == {1}


def test_what_fails_again_ends_the_command_nevertheless(tmp_path: Path) -> None:
    path, broken = tmp_path / "s", threading.Event()
    broken.set()
    with made(path, "deterministic") as db, service(db, broken, Counter()):
        until(lambda: "failed" in db.topics() and len(db.topic("failed").read()) == 5)
        assert command("topic", "redrive", path, "failed", "--json")["records"] == 5
        until(lambda: len(db.topic("failed").read()) == 10)


def test_two_commands_at_a_time_move_each_letter_once(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with planstep.open(path) as db:
        db.create_topic("orders")
        letters = db.create_topic("failed", partitions=3)
        headers = [{"planstep-topic": "orders"}] * 3000
        letters.write_batch([b"%d" % n for n in range(3000)], headers=headers)
        moved: list[Any] = []
        threads = [
            threading.Thread(
                target=lambda: moved.append(command("topic", "redrive", path, "failed", "--json"))
            )
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        values = db.topic("orders").read(max_records=10_000).values
        assert sorted(values, key=int) == [b"%d" % n for n in range(3000)]
        assert sum(one["records"] for one in moved) == 3000
