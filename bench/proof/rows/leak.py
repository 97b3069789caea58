"""Row `leak`: soaks the engine with retention, in all modes at once; all samples must stay flat.

    0        0.2 ───── 0.35         0.55              0.75 ───────── 1 of the time
    warm-up   base     │ a reader is │ and killed      end
                       │ stopped     │
    flat: the largest at the end ≤ MOST × the largest of the base + a constant (+ what is kept by design)

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
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import NamedTuple

from ...children import Child, Children, call, json_lines
from . import growth
from .registry import RowOptions, RowResult
from .soak import SNAPSHOTS, Soak, main, read

FULL_SECONDS, QUICK_SECONDS, CONTROL_SECONDS = 600, 20, 8
MODES = ("deterministic", "kafka", "pulsar")
_BASE, _CUT_OFF, _END = (0.2, 0.35), (0.35, 0.55), (0.75, 1.0)
MOST = 1.05
_LEAST = 3
"""Least samples of a window."""
_PATIENCE_S = 120.0
_PAUSE_S = 0.1


class Bound(NamedTuple):
    """Room above MOST times the base: a constant, so much for each transaction, each segment."""

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
    # What a turn adds before another one takes it away again.
    "transaction_rows": Bound(50),
    "log_entries": Bound(200),
    "aborted_ids": Bound(200),
}
_SEGMENT, _SMALL_SEGMENT = 64 << 20, 1 << 20
Sample = dict[str, float]


def run(options: RowOptions) -> RowResult:
    seconds = options.runs or (QUICK_SECONDS if options.quick else FULL_SECONDS)
    result = _soaked(options, MODES, seconds, seconds < 120)
    growth.watch(options, result, growth.counts(options))
    return result


def control(options: RowOptions) -> RowResult:
    result = _soaked(options, MODES[:1], options.runs or CONTROL_SECONDS, True, SNAPSHOTS)
    growth.watch(options, result, {"deterministic": growth.CONTROL_COUNT}, planted=True)
    for name in ("snapshots", "cpu_us", "own"):
        result = result.planted(f"{name} has grown")
    return result


def _soaked(
    options: RowOptions, modes: tuple[str, ...], seconds: int, small: bool, planted: str = ""
) -> RowResult:
    result = RowResult(runs=seconds)
    with Children() as children:
        soaks = [
            _Soaking(children, Soak(os.fspath(options.folder), mode, seconds, small, planted))
            for mode in modes
        ]
        while any([soak.step() for soak in soaks]):
            options.tell(f"{max(soak.passed for soak in soaks):.0f} of {seconds} s")
            time.sleep(_PAUSE_S)
        for soak in soaks:
            soak.judge(result)
    for soak in soaks:
        shutil.rmtree(soak.folder)
    return result


class _Soaking:
    """Soaks one mode: the process, readers that come and go, one that is cut off. Call `step` as time passes."""

    def __init__(self, children: Children, soak: Soak) -> None:
        self._children, self._soak = children, soak
        self.folder = soak.store.parent
        self.folder.mkdir()
        self._output = self.folder / "output"
        self._child = self._start(call(main, json.dumps(asdict(soak))))
        self._began = time.monotonic()
        self._reader: Child | None = None
        self._cut_off: Child | None = None
        self._stopped = self._killed = False
        self._came = 0

    @property
    def passed(self) -> float:
        return time.monotonic() - self._began

    def _start(self, words: list[str]) -> Child:
        with self._output.open("ab") as output:
            return self._children.start(words, stdout=output, stderr=output)

    def step(self) -> bool:
        """Does what is due; returns False once the soak has ended."""
        store, seconds = self._soak.store, self._soak.seconds
        if self._child.poll() is not None or self.passed > seconds + _PATIENCE_S:
            return False
        share = self.passed / seconds
        if share > 0.15 and self._soak.samples.exists():  # it has its topics
            if self._cut_off is None:
                self._cut_off = self._start(call(read, store, 10 * seconds))
            if share < _END[0] and (self._reader is None or self._reader.poll() is not None):
                self._reader = self._start(call(read, store, max(0.5, seconds / 100)))
                self._came += 1
        if self._cut_off is not None and share > _CUT_OFF[0] and not self._stopped:
            self._cut_off.send_signal(signal.SIGSTOP)
            self._stopped = True
        if self._cut_off is not None and share > _CUT_OFF[1] and not self._killed:
            self._cut_off.send_signal(signal.SIGKILL)
            self._killed = self._cut_off.wait() == -signal.SIGKILL
        return True

    # the result -------------------------------------------------------------------------------------

    def judge(self, result: RowResult) -> None:
        mode, seconds = self._soak.mode, self._soak.seconds
        status = self._child.poll()
        words = self._output.read_text(errors="replace").replace("looking\n", "").strip()[-600:]
        result.must(status == 0, f"{mode}: the soak ended with {status}: {words}")
        result.must(not words or status != 0, f"{mode}: somebody complained: {words}")
        result.faults["reader came and went"] += self._came
        result.faults["reader stopped"] += self._stopped
        result.faults["reader killed"] += self._killed
        result.must(self._killed, f"{mode}: no reader was cut off")
        samples: list[Sample] = json_lines(self._soak.samples)
        result.events += len(samples)
        segment = _SMALL_SEGMENT if self._soak.small else _SEGMENT
        result.violations += [f"{mode}: {text}" for text in grown(samples, seconds, segment)]
        last = window(samples, seconds, _END)
        for name in ("transactions", *BOUNDS):
            figure = max((sample[name] for sample in last), default=0)
            result.figures[f"{mode} {name}"] = int(figure)
        cut_off = [sample["log_bytes"] for sample in window(samples, seconds, _CUT_OFF)]
        result.figures[f"{mode} log_bytes while cut off"] = int(max(cut_off, default=0))


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
        if after > MOST * before + room:
            yield (
                f"{name} has grown from {before:,.0f} to {after:,.0f}, by more than a twentieth and "
                f"{room:,.0f}, over {done:,.0f} transactions"
            )


def window(samples: list[Sample], seconds: float, share: tuple[float, float]) -> list[Sample]:
    return [one for one in samples if share[0] * seconds <= one["at"] <= share[1] * seconds]
