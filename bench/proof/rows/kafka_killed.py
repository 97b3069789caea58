"""Kills a process in mode "kafka" again and again, then compares its logs with its journals.

    life 1 ─ kill -9 ─▶ life 2 ─ kill -9 ─▶ … ─▶ the last one: uses all inputs, and ends ─▶ journals, logs ─▶ Found

Each life ends the transactions that the previous one left open, and goes on; a reader resumes its position.
The simulated worlds' finder judges, by its list of what Kafka allows (bench/proof/worlds/kafka/anomalies.py).

Next: kafka.py.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import planstep

from ..worlds.kafka.anomalies import ALLOWED, History, Logs, Poll, Tx, exactly_once, find
from ..worlds.kafka.reads import entries
from .kafka_child import PARTITIONS, TOPICS
from .registry import Found

LIFE_SECONDS_MAX = 120
"""A life that has not done its share by then hangs."""
_PROGRAM = "from planstep.bench.proof.rows.kafka_child import main; main()"


@dataclass(frozen=True)
class Lives:
    """The lives of one store: so many kills, each after so many sends."""

    folder: str
    seed: int
    kills: int
    sends: int
    hosts: int
    placement: str
    version: int


def killed(lives: Lives) -> Found:
    """Lives them all and judges; `figures`: sends, transactions, the allowed anomalies that happened."""
    folder = Path(lives.folder)
    folder.mkdir(parents=True)
    draw = random.Random(f"{lives.seed}/kills")
    found = Found(runs=lives.kills)
    journals: list[Path] = []
    stands: dict[str, int] = {}
    for life in range(lives.kills + 1):
        journals.append(folder / f"journal-{life}")
        config = {
            "store": os.fspath(folder / "store"),
            "journal": os.fspath(journals[-1]),
            "life": life,
            "last": life == lives.kills,
            "stands": stands,
            "seed": lives.seed,
            "hosts": lives.hosts,
            "placement": lives.placement,
            "version": lives.version,
        }
        early = life and life % 5 == 4  # it may be opening the store
        least = 0 if early else round(lives.sends * draw.uniform(0.8, 1.6))
        delay = draw.uniform(0.05, 0.6) if early else draw.uniform(0, 0.02)
        wrong = _live(config, least, delay)
        if wrong:
            found.violations.append(f"seed {lives.seed}, life {life}: {wrong}")
            return found
        if not config["last"]:
            found.faults["kill -9"] += 1
        for line in _lines(journals[-1]):
            if line[0] == "poll":
                stands[f"{line[1]}/{line[2]}"] = line[4]
            found.faults["zombie"] += line[0] == "zombie"
    _judge(lives, journals, stands, found)
    return found


def _live(config: dict[str, Any], least: int, delay: float) -> str:
    """Lives one life: until it has sent so much, and a moment more; the last one until its end."""
    command = [sys.executable, "-c", _PROGRAM, json.dumps(config)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    hangs = threading.Timer(LIFE_SECONDS_MAX, child.kill)
    hangs.start()
    try:
        began = time.monotonic()
        if least or config["last"]:
            for line in child.stdout:
                if not config["last"] and int(line) >= least:
                    break
        if not config["last"]:
            time.sleep(delay)
            if child.poll() is None and time.monotonic() - began < LIFE_SECONDS_MAX:
                child.kill()
                child.wait()
                return ""
        said = child.stderr.read().decode()
        if time.monotonic() - began >= LIFE_SECONDS_MAX:
            return f"B37: it hangs: {said[-2000:]}"
        code = child.wait()
        ended = code == 0 and config["last"]
        return "" if ended else f"it ended by itself, with {code}: {said[-2000:]}"
    finally:
        hangs.cancel()
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def _lines(journal: Path) -> list[Any]:
    """Reads a journal's whole lines; a line cut off by the kill describes nothing that was done."""
    if not journal.exists():
        return []
    lines = journal.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def _judge(lives: Lives, journals: list[Path], stands: dict[str, int], found: Found) -> None:
    with planstep.open(Path(lives.folder) / "store") as db:
        tablets, logs = _logs(db)
        history = History()
        for journal in journals:
            _remember(history, tablets, _lines(journal))
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                tablet = tablets[topic, partition]
                begin = stands.get(f"{topic}/{partition}", 0)
                batch = db.topic(topic).read(begin, partition, max_records=1 << 30)
                shown = [
                    (offset, value)
                    for (_, offset), value in zip(batch.offsets, batch.values, strict=True)
                ]
                end = logs[tablet][-1].offset + logs[tablet][-1].records if logs[tablet] else 0
                history.polls.append(Poll("rc", True, tablet, begin, end, shown, time.monotonic()))
    counted: Counter[str] = Counter()
    for name, examples in find(history, logs).items():
        if name in ALLOWED:
            counted[name] = len(examples)
        else:
            told = f"{name}, {len(examples)} times: {examples[0][:500]}"
            found.violations.append(f"seed {lives.seed}, real: {told}")
    inputs, outputs = ([tablets[topic, n] for n in range(PARTITIONS)] for topic in TOPICS)
    for name, examples in exactly_once(logs, inputs, outputs).items():
        told = f"{name}, {len(examples)} times: {examples[0][:500]}"
        found.violations.append(f"seed {lives.seed}, real: {told}")
    found.events += sum(len(log) for log in logs.values())
    ends = Counter(tx.end for tx in history.txs)
    found.figures = {end: ends[end] for end in ("committed", "aborted", "unknown")}
    found.figures["sends"] = sum(len(tx.sends) for tx in history.txs)
    found.figures["allowed"] = counted


def _logs(db: planstep.Engine) -> tuple[dict[tuple[str, int], int], Logs]:
    """Reads the logs from the stores' rows, without any of the engine's readers."""
    runtime: Any = db.context.runtime
    tablets = {
        (topic, partition): tablet
        for topic in TOPICS
        for partition, tablet in enumerate(runtime.names.topics[topic].partitions)
    }
    for tablet in tablets.values():
        runtime.hooks.wait_stable(tablet)
    stores = [node.host.store for node in runtime.nodes]
    return tablets, {tablet: list(entries(stores, tablet)) for tablet in tablets.values()}


def _remember(history: History, tablets: dict[tuple[str, int], int], lines: list[Any]) -> None:
    txs: dict[int, Tx] = {}
    for kind, *rest in lines:
        if kind == "tx":
            number, who, transactional = rest
            txs[number] = Tx(who, transactional, number)
            history.txs.append(txs[number])
        elif kind == "reads":
            txs[rest[0]].reads += [value.encode() for value in rest[1]]
        elif kind == "send":
            number, topic, partition, values = rest
            sent = tuple(value.encode() for value in values)
            txs[number].sends.append((tablets[topic, partition], sent))
        elif kind == "ask":
            txs[rest[0]].asked_at, txs[rest[0]].commits = rest[1], rest[2]
        elif kind == "end":
            txs[rest[0]].end = rest[1]
        elif kind == "poll":
            topic, partition, begin, end, shown, at = rest
            rows = [(offset, value.encode()) for offset, value in shown]
            history.polls.append(Poll("rc", True, tablets[topic, partition], begin, end, rows, at))
