"""Runs one cell in a process of its own, so that its memory, CPU and crashes affect no other run.

    python -m planstep.bench.compare.run_cell SPEC  SPEC: JSON {"cell": …, "folder": …}; "attended": ends with stdin

    open ─ prepare ─ warm up ─▶ sampled: run ─▶ close ─▶ reopen read-only: verify ─▶ folder/result.json, …/trace/
    however it ends: what it has on a kept server is dropped, and its store is removed

Next: plan.py.
"""

import gc
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import planstep

from ..judges.python import Findings, judge
from ..judges.trace import Resources
from .cell import FAILED, IMPOSSIBLE, LATENCIES, OK, Cell, Result
from .machine import facts
from .measure import (
    SUSTAINED_SHARE,
    cpu_seconds,
    peak_bytes,
    sampling,
    without_percentiles,
)
from .pressure import between, load1, moment
from .processes import Usage, usage
from .systems import ENTRIES, open_system
from .systems.base import Counters, Options
from .warm_up import warm_up
from .workloads import workload
from .workloads.base import Run, Verdict, Workload
from .workloads.verifying import keep_inputs

_LAG_LIMIT = 0.1
"""Above this share of the commit interval a generator was too late: the rate was not sustained."""


def run_cell(cell: Cell, folder: Path) -> Result:
    """Runs the cell in `folder`, which is created, or emptied of an earlier run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result = Result(cell)
    machine = facts(folder)
    task = workload(cell.workload)
    read_only = replace(cell.options, rtt=0.0, read_only=True)
    try:
        with _dropping(cell, folder, read_only):
            with closing(open_system(cell.system, folder, cell.options)) as system:
                run = Run(system, cell.options, cell.shape, folder)
                impossible = task.impossible(system)
                if impossible is not None:
                    result.status, result.reason = IMPOSSIBLE, impossible
                    return result
                result.settings = [tuple(setting) for setting in system.settings()]
                task.prepare(run)
                warm_up(system, task.feeds)
                _measure(task, run, result)
            with closing(open_system(cell.system, folder, read_only)) as run.system:
                verdict = task.verify(run)
                findings = _judge_history(task, run, verdict, result)
                if cell.keep_trace:
                    keep_inputs(run, task.feeds)
                _correct_visible(run, findings.readable)
    finally:
        if not cell.keep_store:
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    _fill_in(run, verdict, result)
    if cell.keep_trace:
        run.trace.about = {
            "cell": cell.dump(),
            "seed": cell.shape.seed,
            "settings": result.settings,
            "machine": machine,
            "links": run.state.pop("links", None),
            "steps": result.steps,
            "extra": result.extra,
            "seconds": run.seconds,
            "sustained": result.sustained,
            "history": ENTRIES[cell.system].history,
            "allowed": list(ENTRIES[cell.system].allowed),
            "feeds": dict(task.feeds),
        }
        run.trace.save(folder / "trace")
        result.trace = str(folder / "trace")
    return result


@contextmanager
def _dropping(cell: Cell, folder: Path, read_only: Options) -> Iterator[None]:
    """Drops what the run has on a server that goes on, when the block is left: also if the run failed."""
    try:
        yield
    except Exception:
        with suppress(Exception):  # the error that came first says more
            _drop(cell, folder, read_only)
        raise
    _drop(cell, folder, read_only)


def _drop(cell: Cell, folder: Path, read_only: Options) -> None:
    if cell.options.server:
        with closing(open_system(cell.system, folder, read_only)) as system:
            system.drop()


def _judge_history(task: Workload, run: Run, verdict: Verdict, result: Result) -> Findings:
    """Judges the history: certificates, offsets, readers. It may find the same problems as the verification."""
    entry = ENTRIES[result.cell.system]
    findings = judge(run.trace, mode=entry.history, feeds=task.feeds, allowed=entry.allowed)
    more = Verdict()
    findings.tell(more)
    verdict.missing = max(verdict.missing, more.missing)
    verdict.duplicated = max(verdict.duplicated, more.duplicated)
    verdict.out_of_order = max(verdict.out_of_order, more.out_of_order)
    verdict.violations |= more.violations  # the larger number of each
    verdict.problems += more.problems
    result.judged = findings.looked_at
    result.allowed_by = {n: k for n, k in findings.counts.items() if n in findings.allowed}
    return findings


def _correct_visible(run: Run, moments: dict[int, int]) -> None:
    """Replaces times to visible, in the trace too, by the times at which the records could be read."""
    trace = run.trace
    for n, row in enumerate(trace.transactions):
        if moments.get(row.tx, row.visible) != row.visible:
            trace.transactions[n] = row._replace(visible=moments[row.tx])
    rows = {row.tx: row for row in trace.transactions}
    for n, batch in enumerate(trace.batches):
        if batch.published is not None and batch.tx in moments:
            trace.batches[n] = batch._replace(published=moments[batch.tx])
    for name, numbers in run.visible_of.items():
        latency = run.latency(name)
        for row in map(rows.__getitem__, numbers):
            if row.visible is not None and row.proposed is not None:
                latency.add(row.visible - row.proposed)


def _measure(task: Any, run: Run, result: Result) -> None:
    gc.collect()
    gc.freeze()  # the input stays to the end: the collector need not scan it again
    before, pids = run.system.counters(), run.system.pids()
    run.zero = time.monotonic_ns()
    memory_peak = 0

    def sample(cpu: float, rss: int, servers: Usage) -> None:
        nonlocal memory_peak
        memory_peak = max(memory_peak, servers.memory_bytes)
        total = run.system.sampled().since(before)
        network = total.client_bytes or 0, total.tablet_bytes or 0
        whole = cpu + servers.cpu_s, rss + servers.memory_bytes
        run.trace.resources.append(
            Resources(run.now(), *whole, total.disk_bytes or 0, total.syncs or 0, *network)
        )

    began, cpu = time.monotonic(), time.process_time()
    result.load_before = load1()
    own, machine, servers = cpu_seconds(), moment(), usage(pids).cpu_s
    with sampling(sample, pids):
        task.run(run)
    wall = time.monotonic() - began
    servers = usage(pids).cpu_s - servers
    if not pids or memory_peak:  # else this platform does not tell what servers use
        cpu_s = time.process_time() - cpu + servers
        result.cpu_cores = cpu_s / wall
        if run.transactions:
            of_part = cpu_s if run.cpu_s is None else run.cpu_s
            result.cpu_ms_per_transaction = 1000 * of_part / run.transactions
    used = between(machine, moment())
    if used["busy_cores"] is not None and not (
        pids and task.kills
    ):  # what was killed is not counted
        own_cores = (cpu_seconds() - own + servers) / wall
        result.other_cores = max(0.0, used["busy_cores"] - own_cores)
    result.steal_cores = used["steal"]
    for name, share in used["psi"].items():
        setattr(result, f"pressure_{name}", share)
    peak = max((row.rss_bytes for row in run.trace.resources), default=peak_bytes())
    result.memory_peak_mb = peak / 1e6
    if memory_peak:
        result.server_cpu_cores, result.server_memory_mb = servers / wall, memory_peak / 1e6
    _costs(run, run.measured or run.system.counters().since(before), result)


def _costs(run: Run, total: Counters, result: Result) -> None:
    """Computes costs per transaction, per second and per byte of payload."""
    run.state["links"] = total.links
    for name in ("requests", "messages", "appends", "syncs"):
        setattr(result, f"{name}_per_transaction", total.per(name, run.transactions))
    if total.steps is not None and run.transactions:
        result.steps = {name: n / run.transactions for name, n in total.steps.items() if n}
    hops = sorted(row.hops for row in run.trace.transactions if row.hops)
    if hops:
        result.hops_before_reply = hops[len(hops) // 2]
    moved = {} if total.disk_bytes is None else {"disk": total.disk_bytes}
    if total.client_bytes is not None and total.tablet_bytes is not None:
        moved["network"] = total.client_bytes + total.tablet_bytes
    for name, count in moved.items():
        if run.payload:
            setattr(result, f"{name}_bytes_per_payload_byte", count / run.payload)
        if run.seconds > 0:
            setattr(result, f"{name}_mb_s", count / 1e6 / run.seconds)


def _fill_in(run: Run, verdict: Verdict, result: Result) -> None:
    """Fills in the result: figures only if the run verified, latencies only if it was sustained."""
    result.status = OK
    for name in ("verified", "problems", "records", "missing", "duplicated", "out_of_order"):
        setattr(result, name, getattr(verdict, name))
    result.violations_by = {name: n for name, n in verdict.violations.items() if n}
    result.violations = sum(result.violations_by.values())
    result.transactions, result.cancelled = run.transactions, run.cancelled
    result.offered_mb_s = run.offered
    result.seconds = run.seconds
    if not result.verified:
        return
    if run.payload and run.seconds > 0:
        result.throughput_mb_s = run.payload / 1e6 / run.seconds
    result.extra = run.extra
    result.generator_lag_ms = run.latency("generator_lag_ms").summary()
    result.sustained = _is_sustained(run, result)
    if result.sustained is False:
        result.extra = without_percentiles(run.extra)
        return
    for name in LATENCIES:
        setattr(result, name, run.latency(name).summary())


def _is_sustained(run: Run, result: Result) -> bool | None:
    """Returns True if the run sustained the offered rate; None where no rate was offered."""
    if run.offered is None:
        return None
    if run.unread or (result.throughput_mb_s or 0) < SUSTAINED_SHARE * run.offered:
        return False
    lag = result.generator_lag_ms
    return lag is None or lag["p99"] <= _LAG_LIMIT * 1000 * run.shape.commit_interval


_REMOVED_WITHIN_S = 10.0
"""Seconds that the other thread may take to meet the missing folder and stop; it opens a store perhaps."""
_orphaned = threading.Event()


def _end_with_parent(folder: Path) -> None:
    """Ends this process when its parent has ended, since nobody would read its result or remove its folder."""
    while os.read(0, 1 << 10):  # sys.stdin has a lock that Python's end would wait for, and abort
        pass
    _orphaned.set()
    deadline = time.monotonic() + _REMOVED_WITHIN_S
    while folder.exists() and time.monotonic() < deadline:  # the other thread may still write to it
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)
    os._exit(1)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    cell, folder = Cell.load(spec["cell"]), Path(spec["folder"])
    if spec.get("attended"):
        threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    try:
        result = run_cell(cell, folder)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (planstep.PlanstepError, OSError, ValueError) as error:
        if os.environ.get("PLANSTEP_DEBUG"):
            raise
        result = Result(cell, FAILED, f"{type(error).__name__}: {error}")
    if _orphaned.is_set():
        threading.Event().wait()  # the other thread removes the folder and ends this process
    temporary = folder / "result.json.new"
    folder.mkdir(parents=True, exist_ok=True)
    temporary.write_text(json.dumps(result.dump(), indent=1) + "\n")
    temporary.rename(folder / "result.json")


if __name__ == "__main__":
    main()
