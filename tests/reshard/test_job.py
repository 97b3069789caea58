"""Tests the job by its verifier, and the verifier by wrong results that it must notice."""

import signal
from pathlib import Path
from typing import Any

import pytest
from kit import lose_markers_until_a_wait, python

import planstep
from planstep.reshard import events, job
from planstep.reshard.verify import verify


@pytest.mark.parametrize("placement", ["shared", "separate"])
@pytest.mark.parametrize("mode", ["deterministic", "kafka", "pulsar"])
@pytest.mark.parametrize("hosts, workers", [(1, 1), (1, 4), (4, 4)])
def test_every_event_arrives_once(
    tmp_path: Path, hosts: int, workers: int, mode: Any, placement: Any
) -> None:
    source = events.generated(3000, seed=hosts)
    path = tmp_path / "s"
    with planstep.open(path, hosts=hosts, mode=mode, placement=placement) as db:
        done = job.run(db, source, workers=workers, batch=200, partitions=8)
    assert done.loaded == done.resharded == done.records == 3000
    verdict = verify(str(path), source)
    assert verdict["ok"] and verdict["records"] == 3000, verdict
    with planstep.open(path) as db:
        again = job.run(db, source, workers=workers, batch=200, partitions=8)
        assert not again.changed
        with pytest.raises(planstep.PlanstepError, match="another resharding"):
            job.run(db, events.generated(3001, seed=hosts), partitions=8)


def test_counting_begins_once_what_was_resharded_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = events.generated(50, seed=1)
    with planstep.open(tmp_path / "s", hosts=2, mode="kafka") as db:

        def of_by_user(tablet: int) -> bool:
            _, topic, _ = db._runtime.names.of_tablet(tablet)
            return topic == "events-by-user"

        lose_markers_until_a_wait(monkeypatch, of_by_user)
        job.run(db, source, partitions=1)
        counts = db.topic("totals").read()
        assert sum(dict(zip(counts.keys, counts.values, strict=True)).values()) == 50
    verdict = verify(str(tmp_path / "s"), source)
    assert verdict["ok"], verdict


KILLED = """
import os, signal, sys, planstep
from planstep.reshard import events, job

def leave(phase, done, total):
    if phase == "reshard":
        tx = db.transaction(worker="resharder-3")
        tx.write("events-by-user", b"left", partition=0)
        tx.flush()
        os.kill(os.getpid(), signal.SIGKILL)

settings = planstep.KafkaSettings(transaction_timeout_ms=900_000)
with planstep.open(sys.argv[1], mode="kafka", kafka=settings) as db:
    job.run(db, events.generated(50, seed=1), batch=10, partitions=1, progress=leave)
"""


def test_fewer_workers_go_on_after_a_kill(tmp_path: Path) -> None:
    python(KILLED, tmp_path / "s", status=-signal.SIGKILL)
    source = events.generated(50, seed=1)
    with planstep.open(tmp_path / "s") as db:
        assert job.run(db, source, partitions=1).resharded == 40
    verdict = verify(str(tmp_path / "s"), source)
    assert verdict["ok"], verdict


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
    verdict = verify(str(tmp_path / "s"), source)
    assert verdict["ok"], verdict


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


def test_a_store_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("events").write(b"mine")
        with pytest.raises(planstep.PlanstepError, match="'events' already"):
            job.run(db, events.generated(10, 1), partitions=2)
        assert list(db.topics()) == ["events"] and not db.tables()
        assert db.topic("events").read().values == [b"mine"]
    with planstep.open(tmp_path / "t") as db:
        db.create_table("job").put("job", "mine")
        with pytest.raises(planstep.PlanstepError, match="'job' already"):
            job.run(db, events.generated(10, 1), partitions=2)
        assert not db.topics() and list(db.tables()) == ["job"]


def test_lines_that_are_all_rejected(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x\n\xff\xfe\n\n")
    source = events.from_files([log])
    with planstep.open(tmp_path / "s") as db:
        done = job.run(db, source, partitions=2, batch=1)
        assert (done.records, done.rejected) == (0, 3)
        assert not job.run(db, source, partitions=2).changed
    verdict = verify(str(tmp_path / "s"), source)
    assert verdict["ok"], verdict


def test_progress_goes_on_where_it_stopped(tmp_path: Path) -> None:
    source = events.generated(1000, 3)
    reports: list[tuple[str, int, int | None]] = []

    def stop(phase: str, done: int, total: int | None) -> None:
        reports.append((phase, done, total))
        if phase == "reshard" and done > 300:
            raise KeyboardInterrupt

    with planstep.open(tmp_path / "s") as db:
        with pytest.raises(KeyboardInterrupt):
            job.run(db, source, partitions=2, batch=100, progress=stop)
        assert reports[0] == ("load", 100, 1000) and ("load", 1000, 1000) in reports
        before, reports[:] = reports[-1][1], []
        job.run(
            db, source, partitions=2, batch=100, progress=lambda *report: reports.append(report)
        )
    assert all(phase == "reshard" for phase, _, _ in reports)
    assert before < reports[0][1] <= before + 100 and reports[-1] == ("reshard", 1000, 1000)
    verdict = verify(str(tmp_path / "s"), source)
    assert verdict["ok"], verdict
