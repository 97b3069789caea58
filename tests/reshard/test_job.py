"""The job, verified by the verifier; and the verifier, which must notice what it is for."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import planstep
from planstep.reshard import events, job
from planstep.reshard.verify import describe, verify

KILLS = int(os.environ.get("PLANSTEP_KILLS", "4"))


@pytest.mark.parametrize("hosts, workers", [(1, 1), (1, 4), (4, 4)])
def test_every_event_arrives_once(tmp_path: Path, hosts: int, workers: int) -> None:
    source = events.generated(3000, seed=hosts)
    path = tmp_path / "s"
    with planstep.open(path, hosts=hosts) as db:
        done = job.run(db, source, workers=workers, batch=200, partitions=8)
    assert done.loaded == done.resharded == done.records == 3000
    verdict = verify(str(path), source)
    assert verdict["ok"] and verdict["records"] == 3000
    with planstep.open(path) as db:
        again = job.run(db, source, workers=workers, batch=200, partitions=8)
        assert not again.changed
        with pytest.raises(planstep.PlanstepError, match="another resharding"):
            job.run(db, events.generated(3001, seed=hosts), partitions=8)


def test_a_malformed_line_is_reported_counted_and_kept(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    good = b'h - - [t] "GET /x HTTP/1.1" 200 1\n'
    log.write_bytes(good + b"nonsense\n" + good)
    source = events.from_files([log])
    lines: list[str] = []
    with planstep.open(tmp_path / "s") as db:
        done = job.run(db, source, partitions=2, report=lines.append)
        assert [record.value for record in db.topic("rejected").read()] == [b"nonsense"]
    assert (done.records, done.rejected) == (2, 1)
    assert len(lines) == 1 and f"{log}:2: rejected" in lines[0]
    assert verify(str(tmp_path / "s"), source)["ok"]


def test_the_verifier_notices(tmp_path: Path) -> None:
    source = events.generated(50, seed=1)
    path = tmp_path / "s"
    with planstep.open(path) as db:
        job.run(db, source, batch=10, partitions=2)
        batch = db.topic("events-by-user").read(partition=0, max_records=2)
        first = batch[0]
        db.topic("events-by-user").write(first.value, key=first.key, headers=first.headers)
        db.table("totals").add("u0", 1)
    verdict = verify(str(path), source)
    assert not verdict["ok"]
    assert verdict["duplicated"] == 1 and verdict["table_mismatches"] == 1
    missing = verify(str(path), events.generated(51, seed=1))
    assert missing["missing"] == 1


_RUN = """
import sys
import planstep
from planstep.reshard import events, job
with planstep.open(sys.argv[1], hosts=int(sys.argv[2])) as db:
    print("open", flush=True)
    job.run(db, events.generated(20_000, 5), workers=2, batch=500, partitions=4)
print("done", flush=True)
"""


@pytest.mark.parametrize("hosts", [1, 4])
def test_kill_it_at_any_moment_and_run_it_again(tmp_path: Path, hosts: int) -> None:
    draw = random.Random(hosts)
    path = tmp_path / "s"
    killed = 0
    for _ in range(200):
        worker = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(path), str(hosts)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == "open\n"
        if killed < KILLS:
            time.sleep(draw.random() * 0.2)
            worker.send_signal(signal.SIGKILL)
            killed += worker.wait() == -signal.SIGKILL
            worker.stdout.close()
            continue
        assert worker.stdout.read() == "done\n"
        worker.stdout.close()
        assert worker.wait() == 0
        break
    source = events.generated(20_000, 5)
    ended = subprocess.run(
        [sys.executable, "-m", "planstep.reshard.verify", str(path), describe(source)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"ok": true' in ended.stdout, ended.stdout
