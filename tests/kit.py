"""Shares helpers between all tests: waiting, threads, batches, processes, a full disk, and stores to test on."""

import dataclasses
import errno
import importlib.util
import io
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import planstep
from planstep.api.topics.leased_transaction import Leased
from planstep.errors import IoError
from planstep.host.modes import Shell
from planstep.proto.kafka.messages import Marker
from planstep.runtime import client_hooks
from planstep.store.files import Files, io_error

PLANSTEP = "from planstep.cli import main; main()"
"""The command line, as a program for `python` and `Child`."""


def until(condition: Callable[[], Any]) -> Any:
    """Waits until a condition holds, and returns its value; the test fails after a minute."""
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)
    return value


def in_threads(calls: Iterable[Callable[[], object]]) -> None:
    """Runs each call on a thread of its own; returns when all have ended, or raises what one of them raised."""
    started = list(calls)
    with ThreadPoolExecutor(len(started)) as pool:
        for future in [pool.submit(call) for call in started]:
            future.result()


@contextmanager
def background(*calls: Callable[[], Any]) -> Iterator[list[Future[Any]]]:
    """Runs each call on a thread of its own beside the body; then waits for all, and raises what one raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        yield futures
        for future in futures:
            future.result(60)


def open_put(db: planstep.Engine) -> planstep.Transaction:
    """Begins a transaction with one put into table `t`, which it makes if need be."""
    db.create_table("t", exist_ok=True)
    tx = db.transaction()
    tx.put("t", "k", 1)
    return tx


def take_lead(db: planstep.Engine) -> Any:
    """Makes a table `t`, and takes the lead of host 0, as a turn that takes long; returns the host's node."""
    db.create_table("t")
    node = db._runtime.nodes[0]
    assert node.try_lead(None)
    return node


def nested(depth: int) -> list[Any]:
    """Returns an empty list within lists, this many in all."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def fill(db: planstep.Engine, records: int = 1) -> None:
    """Writes so many records to each of the four partitions of topic `in`."""
    for p in range(4):
        db.topic("in").write_batch([b"x"] * records, partition=p)


@contextmanager
def client_settings(db: planstep.Engine, **settings: Any) -> Iterator[None]:
    """Gives the client of mode "kafka" or "pulsar" other settings in the body.

    So only what is tested has short time-outs: on a busy machine everything else would run into them, too.
    """
    core = db._runtime.hooks.client.core  # type: ignore[attr-defined]
    before = core.settings, core.call_timeout_ms
    core.settings = dataclasses.replace(core.settings, **settings)
    core.call_timeout_ms = settings.get("max_block_ms", core.call_timeout_ms)
    try:
        yield
    finally:
        core.settings, core.call_timeout_ms = before


def lose_markers_until_a_wait(
    monkeypatch: pytest.MonkeyPatch, lost: Callable[[int], bool] = lambda tablet: True
) -> None:
    """Loses the markers of mode "kafka" to these tablets until a thread waits for them: a slow host gets them late.

    Their coordinator sends them again, so whoever waits sees them written.
    """
    through = Shell.after_durable
    waited = threading.Event()

    def send(self: Shell, target: int, message: Any) -> None:
        if waited.is_set() or type(message) is not Marker or not lost(target):
            through(self, target, message)

    def sleep(seconds: float) -> None:
        waited.set()
        time.sleep(seconds)

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(Shell, "after_durable", send)
    monkeypatch.setattr(client_hooks, "time", clock)


# batches -----------------------------------------------------------------------------------------


def lease(reader: planstep.Reader, timeout: float = 0.0) -> Leased:
    """Reads a batch, which must be there within the time-out."""
    leased = reader.read(timeout)
    assert leased is not None
    return leased


# pages and programs ------------------------------------------------------------------------------


def module_of(path: Path) -> Any:
    """Runs a program's file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# other processes ---------------------------------------------------------------------------------


def python(
    program: str, *words: object, status: int = 0, **settings: Any
) -> "subprocess.CompletedProcess[str]":
    """Runs a program in another interpreter; it must end with this exit status."""
    command = [sys.executable, "-c", program, *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    assert ended.returncode == status, ended.stderr
    return ended


class Child:
    """A program that runs in another interpreter, and speaks and hears in lines; the end of a `with` kills it."""

    def __init__(self, program: str, *words: object, **settings: Any) -> None:
        command = [sys.executable, "-c", program, *map(str, words)]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **settings}
        self.process: Any = subprocess.Popen(command, text=True, **pipes)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def line(self) -> str:
        """Returns its next line, without the line's end; "" if it has ended."""
        return str(self.process.stdout.readline()).rstrip("\n")

    def tell(self, line: object = "") -> None:
        print(line, file=self.process.stdin, flush=True)

    def end(self) -> str:
        """Closes its stdin, waits for its end, and returns the rest of its output."""
        return str(self.process.communicate(timeout=60)[0])

    def kill(self) -> int:
        """Kills it, unless it has ended; returns its exit status."""
        self.process.kill()
        self.process.communicate()
        return int(self.process.returncode)


# the command line in this process ------------------------------------------------------------------


@pytest.fixture
def call(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs `planstep WORDS`; returns (exit status, stdout, stderr)."""
    from planstep.cli import main

    def call(*words: object, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["planstep", *map(str, words)])
        capfd.readouterr()
        with tempfile.TemporaryFile() as file, pytest.raises(SystemExit) as ended:
            file.write(stdin)
            file.seek(0)
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return call


# interrupts and faults ---------------------------------------------------------------------------


class Struck(Exception):
    """The error that `struck_at` raises."""


def struck_at(step: int, watched: Callable[[FrameType], bool], call: Callable[[], object]) -> bool:
    """Raises Struck in a call, at the given line of all that it runs in watched frames; returns whether it did."""
    remaining = step

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal remaining
        if not watched(frame):
            return trace if event == "call" else None
        if event == "line":
            remaining -= 1
            if remaining == 0:
                raise Struck
        return trace

    before = sys.gettrace()  # for the coverage tracer
    sys.settrace(trace)
    try:
        call()
    except Struck:
        return True
    finally:
        sys.settrace(before)
    return False


class FailingDisk(Files):
    """Writes data, and fails the next `failures` syncs of it."""

    failures: float = 0

    def write(self, fd: int, buffers: Any, offset: int, sync: bool) -> None:
        super().write(fd, buffers, offset, sync)
        if sync and FailingDisk.failures:
            FailingDisk.failures -= 1
            raise IoError("made to fail")


@pytest.fixture
def failing_disk(monkeypatch: pytest.MonkeyPatch) -> type[FailingDisk]:
    """Gives a FailingDisk to every store that the test opens."""
    monkeypatch.setattr("planstep.runtime.open_stores.Files", FailingDisk)
    monkeypatch.setattr(FailingDisk, "failures", 0)
    return FailingDisk


class FullDisk(Files):
    """Keeps existing files, but has no space for a new one while `full`."""

    full = False

    def allocate(self, path: Path, size: int) -> None:
        if self.full:
            raise io_error(OSError(errno.ENOSPC, "No space left on device"), path)
        super().allocate(path, size)


# stores: `db = kit.NAME` in a module makes one the fixture `db` of its tests ---------------------


@pytest.fixture
def in_memory() -> Iterator[planstep.Engine]:
    """An engine of one host, in memory."""
    with planstep.open(":memory:") as db:
        yield db


@pytest.fixture(params=[1, 3], ids=["one host", "three hosts"])
def in_out_n(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    """An engine with topics `in` of 4 partitions and `out` of 2, and a table `n`; of one host, and of three."""
    with planstep.open(":memory:", hosts=request.param) as db:
        db.create_topic("in", partitions=4)
        db.create_topic("out", partitions=2)
        db.create_table("n")
        yield db


@pytest.fixture(params=[{}, {"hosts": 3}, {"mode": "kafka"}, {"mode": "pulsar"}], ids=str)
def each_mode(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    """An engine in memory of one host, one of three, and one of each other mode."""
    with planstep.open(":memory:", **request.param) as db:
        yield db


@pytest.fixture(params=["memory", "disk", "two hosts"])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[planstep.Engine]:
    """An engine in memory, one on disk, and one of two hosts."""
    path = str(tmp_path / "shop.planstep") if request.param == "disk" else ":memory:"
    with planstep.open(path, hosts=2 if request.param == "two hosts" else None) as db:
        yield db
