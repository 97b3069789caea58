"""An engine that only looks goes on while somebody waits for records; snapshots stay at their step."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import planstep

OWNER = """
import sys
import planstep

path, mode, hosts = sys.argv[1:]
with planstep.open(path, mode=mode, hosts=int(hosts)) as db:
    topic = db.create_topic("t", partitions=2, format="utf8")
    topic.write("first", partition=0)
    print("ready", flush=True)
    for line in sys.stdin:
        word, *what = line.split()
        if word == "write":
            topic.write(what[0], partition=1)
        elif word == "create":
            db.create_topic(what[0])
        print("done", flush=True)
"""
WAIT = 60.0


@pytest.fixture(params=["deterministic 1", "deterministic 2", "kafka 1"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Path, Callable[[str], None]]]:
    path = tmp_path / "s"
    child = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path), *request.param.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    stdin, stdout = child.stdin, child.stdout
    assert stdout.readline() == "ready\n"

    def tell(line: str) -> None:
        print(line, file=stdin, flush=True)
        assert stdout.readline() == "done\n"

    with child:  # at the end its input is closed, and it is waited for
        yield path, tell


def test_a_read_that_waits_is_woken(store: tuple[Path, Callable[[str], None]]) -> None:
    path, tell = store
    with planstep.open(path, read_only=True) as db:
        topic = db.topic("t")
        ends = topic.read().ends
        assert ends[1] == 0 and not topic.read(ends, timeout=0.05)
        tell("write one")
        assert not topic.read(ends)  # it stands still
        for word in ("one", "two", "three"):
            if word != "one":
                tell(f"write {word}")
            batch = topic.read(ends, timeout=WAIT)
            assert batch.values == [word]
            ends = batch.ends
        tell("create more")
        tell("write four")
        tx = db.transaction()
        assert "first" in tx.read("t", "c", timeout=WAIT).values
        tx.rollback()
        assert topic.read(ends, timeout=WAIT).values == ["four"]
        assert "more" in db.topics()


def test_a_task_that_waits_is_woken(store: tuple[Path, Callable[[str], None]]) -> None:
    path, tell = store

    async def follow() -> list[str]:
        async with planstep.open_async(path, read_only=True) as db:
            topic = db.topic("t")
            ends = (await topic.read()).ends
            waiting = asyncio.create_task(topic.read(ends, timeout=WAIT))
            await asyncio.sleep(0)
            await asyncio.to_thread(tell, "write one")
            values: list[str] = (await waiting).values
            return values

    assert asyncio.run(follow()) == ["one"]


def test_a_snapshot_stays_at_its_step(store: tuple[Path, Callable[[str], None]]) -> None:
    path, tell = store
    with planstep.open(path, read_only=True) as db:
        topic = db.topic("t")
        ends = topic.read().ends
        if db.mode == "kafka":
            return  # it has none
        with db.snapshot() as view:
            tell("write one")
            assert not topic.read(ends, timeout=0.1)
            assert view.read("t").values == ["first"]
        assert topic.read(ends, timeout=WAIT).values == ["one"]


def test_views_behind_are_closed(
    store: tuple[Path, Callable[[str], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tell = store
    monkeypatch.setattr("planstep.runtime._BEHIND_SECONDS", 0.0)

    def leases() -> int:
        return sum(len(list(host.glob("leases/*"))) for host in path.glob("host-*"))

    with planstep.open(path, read_only=True) as db:
        ends = db.topic("t").read().ends
        for n in range(4):
            tell(f"write w{n}")
            ends = db.topic("t").read(ends, timeout=WAIT).ends
        assert leases() <= 2 * db._runtime.hosts
    assert leases() == 0
