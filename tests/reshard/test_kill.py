"""Kills the job anywhere with kill -9 and restarts it: the verifier finds every event exactly once.

PLANSTEP_KILLS=30 kills the job on the demo's 336,776 events thirty times; the default is less of both, and of the
ways. The engine alone is killed a thousand times by `planstep check kill9`, and before each file operation by
`planstep check killpoints`.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from planstep.reshard import events
from planstep.reshard.verify import describe

DRIVER = Path(__file__).parent / "driver.py"
KILLS = int(os.environ.get("PLANSTEP_KILLS", "10"))
EVENTS = 0 if KILLS >= 30 else 40_000
BESIDE = ("checkpoint", "rewriting")


def kill_at(command: list[str], phase: str, nth: int, moment: float) -> bool:
    """Kills it `moment` seconds after it printed `phase` for the n-th time; returns False if it never did."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if line == f"{phase}\n":
                nth -= 1
                if nth <= 0:
                    time.sleep(moment)
                    child.send_signal(signal.SIGKILL)
                    return child.wait() == -signal.SIGKILL
        assert child.wait() == 0
        return False
    finally:
        child.kill()
        child.stdout.close()
        child.wait()


WAYS = [
    (4, "deterministic", "shared"),
    (1, "deterministic", "separate"),
    (4, "kafka", "separate"),
    (2, "pulsar", "shared"),
]
if KILLS >= 30:
    WAYS += [(1, "deterministic", "shared"), (1, "kafka", "shared"), (4, "pulsar", "separate")]


@pytest.mark.parametrize("hosts, mode, placement", WAYS)
def test_killed_wherever_it_is(tmp_path: Path, hosts: int, mode: str, placement: str) -> None:
    """A restarted run ends what the killed one left open: under its ids, in mode pulsar as an operator."""
    draw = random.Random(hosts)
    store = tmp_path / "s"
    has_tables = mode == "deterministic"
    count = (
        EVENTS if has_tables else EVENTS // 2
    )  # without tables a second stage counts, and it waits more
    command = [sys.executable, str(DRIVER), str(store), str(hosts), str(count), mode, placement]
    killed: Counter[str] = Counter()
    verifying = max(2, KILLS // 6)
    half = (KILLS - verifying) // 2
    plan = [*(("load", *BESIDE) * half)[:half], *(("reshard", *BESIDE) * half)[:half]]
    if not has_tables:
        plan.append("count")
    for phase in plan:
        if kill_at(command, phase, draw.randrange(1, 3), draw.choice([0.0, 0.001, 0.01])):
            killed[phase] += 1
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.endswith("done\n")

    source = events.demo() if count == 0 else events.generated(count, 5)
    verifier = [sys.executable, "-m", "planstep.reshard.verify", str(store), describe(source)]
    for _ in range(verifying):
        child = subprocess.Popen(verifier, stdout=subprocess.DEVNULL)
        time.sleep(0.1 + draw.random() * 0.2)
        child.kill()
        killed["verifying"] += child.wait() == -signal.SIGKILL
    checked = subprocess.run(verifier, capture_output=True, text=True, check=True)
    verdict = json.loads(checked.stdout)
    assert verdict["ok"] and verdict["records"] == (count or 336_776), verdict
    # No leftovers of killed runs remain, and running it again changes nothing.
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"load", "reshard", "count"} & set(again.stdout.split("\n"))
    assert not [lease for host in store.glob("host-*") for lease in (host / "leases").glob("*")]
    assert json.loads(subprocess.check_output(verifier)) == verdict
    phases = {*plan, *BESIDE}
    assert set(killed) == {*phases, "verifying"}, killed
    assert killed.total() >= KILLS - 1, killed
