"""Tests `planstep topic read`, above all --follow, with an owner and without one."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kit import PLANSTEP, Child

import planstep


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t", partitions=2, format="json").write_batch([1, 2, 3], partition=0)
    return tmp_path / "s"


class Follower(Child):
    def __init__(self, store: Path, *words: str) -> None:
        follow = "topic", "read", store, "t", "--follow", *words
        super().__init__(PLANSTEP, *follow, stderr=subprocess.PIPE)

    def ended(self) -> tuple[int, str]:
        status = self.process.wait()
        return status, self.process.stderr.read()


@pytest.fixture
def follow(store: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda *words: stack.enter_context(Follower(store, *words))


def test_what_a_live_owner_commits_is_shown(store: Path, follow: Any) -> None:
    with planstep.open(store) as db:
        following = follow("--from", "2", "--partition", "0", "--json")
        assert json.loads(following.line())["value"] == 3
        db.topic("t").write({"n": 1}, key="k", headers={"h": "x"}, partition=0)
        record = json.loads(following.line())
        assert record.pop("timestamp_ms") > 0
        assert record == {
            "partition": 0, "offset": 3, "key": "k", "value": {"n": 1}, "headers": {"h": "x"}
        }  # fmt: skip
        with db.transaction() as tx:
            tx.write("t", 5, partition=0)
            tx.rollback()
        db.topic("t").write(6, partition=1)
        db.topic("t").write(7, partition=0)
        assert json.loads(following.line())["value"] == 7
    with planstep.open(store) as db:  # the next owner
        db.topic("t").write(8, partition=0)
        assert json.loads(following.line())["value"] == 8
    following.process.send_signal(signal.SIGINT)
    assert following.ended() == (0, "")


def test_a_store_that_nobody_has_open_can_still_be_written(store: Path, follow: Any) -> None:
    following = follow("--from", "earliest", "--limit", "4")
    assert [following.line() for _ in range(3)] == ["0\t0\t\t1", "0\t1\t\t2", "0\t2\t\t3"]
    with planstep.open(store) as db:
        db.topic("t").write_batch(["four", "five"], partition=1)
    assert following.line() == "1\t0\t\tfour"
    assert following.ended() == (0, "")


def test_several_hosts_are_followed_at_one_step(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", hosts=2) as db:
        db.create_topic("t", partitions=2, format="json").write(0, partition=1)
        with Follower(tmp_path / "s", "--from", "earliest", "--limit", "3") as child:
            assert child.line() == "1\t0\t\t0"
            with db.transaction() as tx:
                tx.write("t", 1, partition=0)
                tx.write("t", 2, partition=1)
            assert [child.line(), child.line()] == ["0\t0\t\t1", "1\t1\t\t2"]
            assert child.ended() == (0, "")


def test_a_reader_that_leaves_ends_it_in_silence(follow: Any) -> None:
    following = follow("--from", "earliest")
    following.line()
    following.process.stdout.close()  # nothing is written any more, so it could not notice
    assert following.ended() == (0, "")


def test_what_was_trimmed_is_said_and_a_drop_ends_it(store: Path, follow: Any) -> None:
    with planstep.open(store) as db:
        following = follow("--from", "earliest", "--json")
        for _ in range(3):
            following.line()
        following.process.send_signal(signal.SIGSTOP)
        db.topic("t").write_batch([4, 5, 6], partition=0)
        db.topic("t").trim(5, partition=0)
        following.process.send_signal(signal.SIGCONT)
        values = [json.loads(following.line())["value"]]
        while values[-1] != 6:
            values.append(json.loads(following.line())["value"])
        db.drop_topic("t")
        db.create_topic("t", format="json")
        status, err = following.ended()
    assert status == 1 and "Traceback" not in err
    assert "dropped" in err or "no topic" in err
    if values == [6]:
        assert "2 records were trimmed" in err


def test_a_part_of_what_is_there(store: Path, done: Any, fields: Any, call: Any) -> None:
    assert done("topic", "read", store, "t", "--from", "latest") == ""
    assert done("topic", "read", store, "t", "--from", "2999-01-01") == ""
    assert len(done("topic", "read", store, "t", "--from", "2000-01-01").splitlines()) == 3
    records = fields("topic", "read", store, "t", "--from", "1", "--partition", "0", "--limit", "1")
    assert [record["value"] for record in records["records"]] == [2]
    lines = done("topic", "read", store, "t", "--jsonl").splitlines()
    assert [json.loads(line)["value"] for line in lines] == [1, 2, 3]
    status, _, err = call("topic", "read", store, "t", "--from", "yesterday")
    assert status == 2 and "neither earliest" in err


def test_a_pipe_that_closes_is_no_error(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t", format="utf8").write_batch(["x" * 100] * 20_000)
    script = ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", sys.executable, "-c"]
    words = ["topic", "read", str(tmp_path / "s"), "t", "--limit", "20000"]
    ended = subprocess.run([*script, PLANSTEP, *words], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
