"""Row `leak`: soaks the engine with retention, in both modes at once; all samples must stay flat.

    0        0.2 ───── 0.35         0.55              0.75 ───────── 1 of the time
    warm-up   base     │ a reader is │ and killed      end
                       │ stopped     │
    flat: the largest at the end ≤ 1.1 × the largest of the base + a constant (+ what is kept by design)

It compares maxima of windows, not slopes: log and memory go up and down with segments, checkpoints and the
allocator. A stopped reader keeps its pinned state for ever; once it is killed the store must shrink again.

growth.py measures the CPU and memory of a small transaction as a store gets older.

Negative control: snapshots that are never closed; a transaction that does more each time, and keeps it.

Left out: more than one host; growth that only shows in days.

Next: soak.py, the process that is soaked.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...compare.subprocess_runner import end_group, environment
from . import growth
from .registry import Asked, Found
from .soak import SNAPSHOTS, Soak

FULL_SECONDS, QUICK_SECONDS, CONTROL_SECONDS = 600, 20, 8
MODES = ("deterministic", "kafka")
_BASE, _CUT_OFF, _END = (0.2, 0.35), (0.35, 0.55), (0.75, 1.0)
_LEAST = 3
"""Least samples of a window."""
_PATIENCE_S = 120.0
_PAUSE_S = 0.1


class Bound(NamedTuple):
    """Room above 1.1 times the base: a constant, so much for each transaction, each segment."""

    constant: int
    transaction: int = 0
    segments: int = 0


BOUNDS = {
    "descriptors": Bound(12),
    "threads": Bound(3),
    # The list of the newest 10,000 transactions' costs fills up meanwhile.
    "memory_bytes": Bound(24 << 20, 40),
    "log_bytes": Bound(2 << 20, 0, 4),
    # Outcomes of the last million transactions; free pages come in steps.
    "table_bytes": Bound(16 << 20, 400),
    "leases": Bound(2),
    "reader_slots": Bound(4),
    "snapshots": Bound(3),
    "history_bytes": Bound(4 << 20),
    "admission_bytes": Bound(4 << 20),
    "cache_bytes": Bound(8 << 20),  # its own limit; a slow machine has not filled it by the base
    "waiting": Bound(8),
    "groups": Bound(8),
}
_SEGMENT, _SMALL_SEGMENT = 64 << 20, 1 << 20
Sample = dict[str, float]


def run(asked: Asked) -> Found:
    seconds = asked.runs or (QUICK_SECONDS if asked.quick else FULL_SECONDS)
    found = _soaked(asked, MODES, seconds, seconds < 120)
    growth.watch(asked, found, growth.counts(asked))
    return found


def control(asked: Asked) -> Found:
    found = _soaked(asked, MODES[:1], asked.runs or CONTROL_SECONDS, True, SNAPSHOTS)
    growth.watch(asked, found, {"deterministic": growth.CONTROL_COUNT}, planted=True)
    for name in ("snapshots", "cpu_us", "rss"):
        found = found.planted(f"{name} has grown")
    return found


def _soaked(
    asked: Asked, modes: tuple[str, ...], seconds: int, small: bool, planted: str = ""
) -> Found:
    found = Found(runs=seconds)
    soaks = [_Soaking(asked, mode, seconds, small, planted) for mode in modes]
    try:
        while any([soak.step() for soak in soaks]):
            asked.tell(f"{max(soak.passed for soak in soaks):.0f} of {seconds} s")
            time.sleep(_PAUSE_S)
        for soak in soaks:
            soak.judge(found)
    finally:
        for soak in soaks:
            soak.end()
    return found


class _Soaking:
    """Soaks one mode: the process, readers that come and go, one that is cut off. Call `step` as time passes."""

    def __init__(self, asked: Asked, mode: str, seconds: int, small: bool, planted: str) -> None:
        self.mode, self._seconds = mode, seconds
        self._folder = asked.folder / f"soak-{mode}"
        self._folder.mkdir()
        self._store, self._samples = self._folder / "store", self._folder / "samples"
        self._small = small
        soak = Soak(
            os.fspath(self._store),
            os.fspath(self._samples),
            mode,
            seconds,
            max(0.05, seconds / 400),
            small,
            planted,
        )
        spec = self._folder / "soak.json"
        spec.write_text(soak.dump())
        self._children: list[subprocess.Popen[bytes]] = []
        self._said = self._folder / "said"
        self._child = self._start(os.fspath(spec))
        self._began = time.monotonic()
        self._reader: subprocess.Popen[bytes] | None = None
        self._cut_off: subprocess.Popen[bytes] | None = None
        self._stopped = self._killed = False
        self._came = 0

    @property
    def passed(self) -> float:
        return time.monotonic() - self._began

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", f"{__package__}.soak", *arguments]
        with self._said.open("ab") as said:
            child = subprocess.Popen(
                command, env=environment(), stdout=said, stderr=said, process_group=0
            )
        self._children.append(child)
        return child

    def step(self) -> bool:
        """Does what is due; returns False once the soak has ended."""
        if self._child.poll() is not None or self.passed > self._seconds + _PATIENCE_S:
            return False
        share = self.passed / self._seconds
        if share > 0.15 and self._samples.exists():  # it has its topics
            if self._cut_off is None:
                self._cut_off = self._start(os.fspath(self._store), str(10 * self._seconds))
            if self._reader is None or self._reader.poll() is not None:
                if share < _END[0]:
                    stays = max(0.5, self._seconds / 100)
                    self._reader = self._start(os.fspath(self._store), str(stays))
                    self._came += 1
        if self._cut_off is not None and share > _CUT_OFF[0] and not self._stopped:
            self._cut_off.send_signal(signal.SIGSTOP)
            self._stopped = True
        if self._cut_off is not None and share > _CUT_OFF[1] and not self._killed:
            self._cut_off.send_signal(signal.SIGKILL)
            self._killed = self._cut_off.wait() == -signal.SIGKILL
        return True

    def end(self) -> None:
        for child in self._children:
            end_group(child)
        shutil.rmtree(self._folder, ignore_errors=True)

    # the result -------------------------------------------------------------------------------------

    def judge(self, found: Found) -> None:
        status = self._child.poll()
        words = self._said.read_text(errors="replace").replace("looking\n", "").strip()
        found.must(status == 0, f"{self.mode}: the soak ended with {status}: {words[-600:]}")
        found.must(not words or status != 0, f"{self.mode}: somebody complained: {words[-600:]}")
        found.faults["reader came and went"] += self._came
        found.faults["reader stopped"] += self._stopped
        found.faults["reader killed"] += self._killed
        found.must(self._killed, f"{self.mode}: no reader was cut off")
        samples = _read(self._samples)
        found.events += len(samples)
        segment = _SMALL_SEGMENT if self._small else _SEGMENT
        found.violations += [
            f"{self.mode}: {text}" for text in grown(samples, self._seconds, segment)
        ]
        for name in ("transactions", *BOUNDS):
            last = window(samples, self._seconds, _END)
            figure = max((sample[name] for sample in last), default=0)
            found.figures[f"{self.mode} {name}"] = int(figure)
        cut_off = [sample["log_bytes"] for sample in window(samples, self._seconds, _CUT_OFF)]
        found.figures[f"{self.mode} log_bytes while cut off"] = int(max(cut_off, default=0))


def grown(samples: list[Sample], seconds: float, segment: int) -> Iterator[str]:
    """Describes each sample that is larger at the end than it may be."""
    base, end = window(samples, seconds, _BASE), window(samples, seconds, _END)
    if min(len(base), len(end)) < _LEAST:
        yield f"too few samples: {len(base)} in the base, {len(end)} at the end"
        return
    done = end[-1]["transactions"] - base[0]["transactions"]
    if done <= 0:
        yield "nothing was done"
    for name, bound in BOUNDS.items():
        before, after = (max(sample[name] for sample in part) for part in (base, end))
        room = bound.constant + bound.transaction * done + bound.segments * segment
        if after > 1.1 * before + room:
            yield (
                f"{name} has grown from {before:,.0f} to {after:,.0f}, by more than a tenth and "
                f"{room:,.0f}, over {done:,.0f} transactions"
            )


def window(samples: list[Sample], seconds: float, share: tuple[float, float]) -> list[Sample]:
    return [one for one in samples if share[0] * seconds <= one["at"] <= share[1] * seconds]


def _read(path: Path) -> list[Sample]:
    """Reads whole lines: the last one may still be in writing."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]
