"""Tests that a peer's server is started once, serves all cells, and outlives nothing: with a real small server."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from kit import until
from toy_peer import WARMING, ask, keeper_words, toy

from planstep.bench import children
from planstep.bench.compare.capacity import check_room
from planstep.bench.compare.cell import FAILED, Cell, Result
from planstep.bench.compare.harness import Outcome, Step, carry_out
from planstep.bench.compare.kept_servers import KeptServers
from planstep.bench.compare.machine import memory_bytes
from planstep.bench.compare.plan import Block, LeftOut, Plan
from planstep.bench.compare.systems import ENTRIES
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.systems.entry import ServerRoom
from planstep.bench.compare.time_plans import START_S


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers the toy, and another of the same server."""
    for name in ("toy", "toy-tuned"):
        monkeypatch.setitem(ENTRIES, name, replace(toy(), name=name))


CELLS = [
    Cell("plain", "toy", Options("full")),
    Cell("plain", "sqlite", Options("full")),
    Cell("plain", "toy-tuned", Options("full")),
    Cell("plain", "toy", Options("os")),
    Cell("faults", "toy", Options("full")),
    Cell("plain", "toy", Options("full"), repeat=1),
]


def carried(
    cells: list[Cell], folder: Path, run: Callable[[Cell, Path], Result], steps: Any = None
) -> Outcome:
    tell = (lambda step: None) if steps is None else steps.append
    return carry_out(Plan([Block(cells)]), run, folder, tell, keeper=keeper_words)


def gone(pid: int) -> bool:
    """Waits until a process has ended; a zombie that nobody waits for has."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # the latter where it ends amid the read
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc tells who runs")


@needs_proc
def test_a_server_is_started_once_and_serves_all_cells(tmp_path: Path) -> None:
    addresses: list[str] = []
    pids: dict[str, int] = {}
    steps: list[Step] = []

    def run(cell: Cell, folder: Path) -> Result:
        address = cell.options.server
        addresses.append(address)
        if address:
            pids[address] = ask(address)
        return Result(cell, verified=True)

    outcome = carried(CELLS, tmp_path, run, steps)
    first, none, tuned, os_, faults, again = addresses
    assert none == ""
    assert first == tuned == faults == again != os_
    assert len(set(pids.values())) == 2
    assert all(map(gone, pids.values()))
    assert list(tmp_path.iterdir()) == []
    assert [result.cell for result in outcome.results] == CELLS, (
        "a cell is named without its server"
    )
    full, os_facts = outcome.servers
    assert (full["name"], full["durability"], full["version"]) == ("toy", "full", "1.0 full")
    assert os_facts["durability"] == "os"
    assert full["start_s"] > 0 and full["warm_s"] >= 0 and full["memory_mb"] > 1
    assert (full["warm_transactions"], full["failed"]) == (WARMING, "")
    labels = [step.label for step in steps]
    assert labels.count("warming the server of toy, durability full") == 1


def test_the_estimate_has_the_servers_that_are_still_to_start(tmp_path: Path) -> None:
    steps: list[Step] = []

    def run(cell: Cell, folder: Path) -> Result:
        return Result(cell, verified=True)

    assert Plan([Block(CELLS)]).server_seconds == 2 * 2.0
    carried(CELLS[:1], tmp_path, run, steps)
    before, *_, stopping = steps
    assert before.remaining_s >= Plan([Block(CELLS[:1])]).server_seconds
    assert stopping.label == "stopping the servers" and stopping.remaining_s == 0


def test_spare_runs_that_need_a_server_count_its_start(tmp_path: Path) -> None:
    """With a second more than a run takes there is no time for the run's server."""

    def run(cell: Cell, folder: Path) -> Result:
        return Result(cell, verified=True)

    spare = LeftOut("spare runs", "there is no time")
    blocks = [Block(CELLS[1:2]), Block(CELLS[:1], spare, late=True, spare=True)]
    enough = START_S + CELLS[0].shape.duration + 1.0  # the runs before took no time
    for limit, ran in ((enough, {"sqlite"}), (enough + 60.0, {"sqlite", "toy"})):
        outcome = carry_out(Plan(list(blocks), limit=limit), run, tmp_path, keeper=keeper_words)
        assert {result.cell.system for result in outcome.results} == ran
        assert outcome.plan.left_out == [spare] * ("toy" not in ran)


@needs_proc
def test_a_server_stops_after_the_last_run_that_needs_it(tmp_path: Path) -> None:
    first: list[int] = []

    def run(cell: Cell, folder: Path) -> Result:
        if cell.options.durability == "os":
            first.append(ask(cell.options.server))
        else:
            assert Path(f"/proc/{first[0]}").exists() == (not cell.repeat)
            assert not cell.options.server or ask(cell.options.server)
        return Result(cell, verified=True)

    full, os_ = CELLS[0], CELLS[3]
    late = Block([replace(full, repeat=2)], LeftOut("more", "no time"), late=True)
    plan = Plan([Block([os_, full, replace(os_, repeat=1), replace(full, repeat=1)]), late])
    outcome = carry_out(plan, run, tmp_path, keeper=keeper_words)
    assert [one["memory_mb"] > 1 for one in outcome.servers] == [True, True]
    assert len(outcome.results) == 5 and list(tmp_path.iterdir()) == []


def test_servers_need_room_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of each durability counts once, whichever systems share it."""
    free = shutil.disk_usage(tmp_path).free / 1e6
    plan = Plan([Block(CELLS)])
    for room, what in (
        (ServerRoom(disk=0.6 * free), "GB of them for servers, but only .* are free on the disk"),
        (ServerRoom(memory=0.6e-6 * memory_bytes()), "GB of them for servers, but .* of memory"),
    ):
        for name in ("toy", "toy-tuned"):
            monkeypatch.setitem(ENTRIES, name, replace(ENTRIES[name], server_mb=room))
        check_room(Plan([Block([*CELLS[:3], *CELLS[4:]])]), tmp_path)
        with pytest.raises(ValueError, match=what):
            check_room(plan, tmp_path)


@needs_proc
def test_an_interruption_ends_the_server(tmp_path: Path) -> None:
    pids: list[int] = []

    def run(cell: Cell, folder: Path) -> Result:
        pids.append(ask(cell.options.server))
        raise KeyboardInterrupt

    outcome = carried(CELLS, tmp_path, run)
    assert outcome.interrupted
    assert gone(*pids) and list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_start_fails_its_cells_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_SERVER", "broken")
    ran: list[str] = []

    def run(cell: Cell, folder: Path) -> Result:
        ran.append(cell.system)
        return Result(cell, verified=True)

    outcome = carried(CELLS[:3], tmp_path, run)
    assert ran == ["sqlite"]
    failed = [result.reason for result in outcome.results if result.status == "failed"]
    assert failed == ["its server did not start: OSError: this toy is broken"] * 2
    assert len(outcome.servers) == 1, "it is not tried again"
    assert list(tmp_path.iterdir()) == []


@needs_proc
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which signal ended a child")
def test_a_server_that_ends_by_itself_is_started_anew_once(tmp_path: Path) -> None:
    """Its end is the reason of the run amid which it ended, and of those after the second end."""
    pids: list[int] = []

    def run(cell: Cell, folder: Path) -> Result:
        pids.append(ask(cell.options.server))
        if cell.repeat:
            return Result(cell, verified=True)
        os.kill(pids[-1], signal.SIGKILL)
        # Its keeper says what happened, then reaps it.
        until(lambda: not Path(f"/proc/{pids[-1]}").exists())
        return Result(cell, FAILED, "nobody answers")

    cells = [replace(CELLS[0], repeat=n) for n in (0, 1, 0, 1, 0)]
    outcome = carried(cells, tmp_path, run)
    first, again = dict.fromkeys(pids)
    why = "ended by itself, by SIGKILL"
    assert [result.reason or "" for result in outcome.results] == [
        f"its server ended: process {first} {why}; nobody answers",
        "",
        f"its server ended: process {again} {why}; nobody answers",
        *[f"its server ended: process {again} {why}"] * 2,
    ]
    assert [one["failed"] for one in outcome.servers] == [
        f"process {pid} {why}" for pid in pids[::2]
    ]
    assert list(tmp_path.iterdir()) == []


@needs_proc
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which signal ended a child")
def test_a_server_that_ends_as_soon_as_it_is_warm_is_noticed(tmp_path: Path) -> None:
    spec = {"system": "toy", "durability": "full", "folder": str(tmp_path / "server")}
    (tmp_path / "spec").write_text(json.dumps(spec))
    words, pipe = keeper_words(tmp_path / "spec"), subprocess.PIPE
    environment = {**os.environ, "TOY_SERVER": "dies once it is warm"}
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env=environment) as keeper:
        assert keeper.stdout is not None
        late = Timer(120, keeper.kill)
        late.start()
        said = [json.loads(line) for line in keeper.stdout]
        late.cancel()
    assert [*said[-1]] == ["failed"] and said[-1]["failed"].endswith("by SIGKILL")
    assert not (tmp_path / "server").exists()


_KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from threading import Timer
from toy_peer import ask, keeper_words, toy
from planstep.bench.compare.cell import Cell
from planstep.bench.compare.kept_servers import KeptServers
from planstep.bench.compare.systems import ENTRIES
ENTRIES["toy"] = toy()
servers = KeptServers(Path(sys.argv[1]), words=keeper_words)
print(ask(servers.placed(Cell("plain", "toy")).options.server), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_proc
def test_a_killed_comparison_leaves_no_server_and_no_data(tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(folder)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -9
    assert gone(int(killed.stdout))
    until = time.monotonic() + 120
    while (folder / "toy-full").exists():
        assert time.monotonic() < until


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[KeptServers]:
    with KeptServers(tmp_path / "servers", words=keeper_words) as servers:
        yield servers


@needs_proc
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a dead parent's children")
def test_a_killed_keeper_takes_the_server_along(servers: KeptServers) -> None:
    address = servers.placed(CELLS[0]).options.server
    pid = ask(address)
    keeper = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(keeper), 9)
    assert gone(pid)


def test_a_full_disk_is_named_where_a_child_could_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "words.txt"
    output.touch()
    assert children.last_words(output) == "it said nothing"
    monkeypatch.setattr(children, "_ROOM_FOR_WORDS", 1 << 62)
    assert children.last_words(output) == "it said nothing: the disk is full"
    output.write_text("no such file\n")
    assert children.last_words(output) == "no such file"
