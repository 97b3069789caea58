"""Kills a process in mode "kafka" again and again, then compares its logs with its journals.

    life 1 ─ kill -9 ─▶ life 2 ─ kill -9 ─▶ … ─▶ the last one: uses all inputs ─▶ journals, logs ─▶ RowResult

Each life ends the transactions that the previous one left open, and goes on; a reader resumes its position.
The simulated worlds' finder judges, by its list of what Kafka allows (bench/proof/worlds/kafka/anomalies.py).

Next: kafka.py.
"""

import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import planstep

from ...children import Children, call, json_lines
from ..worlds.kafka.anomalies import ALLOWED, History, Logs, Poll, Tx, exactly_once, find
from ..worlds.kafka.reads import entries
from .kafka_child import PARTITIONS, TOPICS, main
from .registry import RowResult

LIFE_SECONDS_MAX = 120
"""A life that has not done its share by then hangs."""


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


def kind_of(version: int, late: str) -> str:
    """Returns the name of the worlds that allow the same anomalies."""
    return f"version {version}, requests late" if late else f"version {version}"


def kill_lives(lives: Lives) -> RowResult:
    """Lives them all and judges; `figures`: counters of sends, transactions, allowed anomalies that happened."""
    folder = Path(lives.folder)
    folder.mkdir(parents=True)
    draw = random.Random(f"{lives.seed}/kills")
    result = RowResult(runs=lives.kills)
    journals: list[Path] = []
    stands: dict[str, int] = {}
    for life in range(lives.kills + 1):
        last = life == lives.kills
        journals.append(folder / f"journal-{life}")
        config = asdict(lives) | {
            "store": os.fspath(folder / "store"),
            "journal": os.fspath(journals[-1]),
            "life": life,
            "last": last,
            "stands": stands,
        }
        early = life and life % 5 == 4  # it may be opening the store
        least = 0 if early else round(lives.sends * draw.uniform(0.8, 1.6))
        delay = draw.uniform(0.05, 0.6) if early else draw.uniform(0, 0.02)
        if wrong := _live(config, None if last else least, delay):
            result.violations.append(f"seed {lives.seed}, life {life}: {wrong}")
            return result
        result.faults["kill -9"] += not last
        for line in json_lines(journals[-1]):
            if line[0] == "poll":
                stands[f"{line[1]}/{line[2]}"] = line[4]
            result.faults["zombie"] += line[0] == "zombie"
    _judge(lives, journals, stands, result)
    return result


def _live(config: dict[str, Any], least: int | None, delay: float) -> str:
    """Lives one life: until it has sent so much, and a moment more; None: until its end."""
    output = Path(config["journal"]).with_suffix(".said")
    began = time.monotonic()
    with Children() as children, output.open("wb") as stream:
        words = call(main, json.dumps(config))
        child = children.start(words, stdout=subprocess.PIPE, stderr=stream)
        assert child.stdout is not None
        hangs = threading.Timer(LIFE_SECONDS_MAX, child.kill)
        hangs.start()
        try:
            for line in child.stdout if least != 0 else ():
                if least is not None and int(line) >= least:
                    break
            if least is not None:
                time.sleep(delay)
                if child.poll() is None and time.monotonic() - began < LIFE_SECONDS_MAX:
                    child.kill()
                    return ""
            code = child.wait()
        finally:
            hangs.cancel()
    why = output.read_text(errors="replace")[-2000:]
    if time.monotonic() - began >= LIFE_SECONDS_MAX:
        return f"B37: it hangs: {why}"
    return "" if code == 0 and least is None else f"it ended by itself, with {code}: {why}"


def _judge(lives: Lives, journals: list[Path], stands: dict[str, int], result: RowResult) -> None:
    with planstep.open(Path(lives.folder) / "store") as db:
        tablets, logs = _logs(db)
        history = History()
        for journal in journals:
            _remember(history, tablets, json_lines(journal))
        for (topic, partition), tablet in tablets.items():
            begin = stands.get(f"{topic}/{partition}", 0)
            batch = db.topic(topic).read(begin, partition, max_records=1 << 30)
            offsets = (offset for _, offset in batch.offsets)
            records = list(zip(offsets, batch.values, strict=True))
            end = logs[tablet][-1].offset + logs[tablet][-1].records if logs[tablet] else 0
            history.polls.append(Poll("rc", True, tablet, begin, end, records, time.monotonic()))
    anomalies = find(history, logs)
    allowed = Counter({name: len(anomalies.pop(name)) for name in ALLOWED if name in anomalies})
    inputs, outputs = ([tablets[topic, n] for n in range(PARTITIONS)] for topic in TOPICS)
    result.violations += [
        f"seed {lives.seed}, real: {name}, {len(examples)} times: {examples[0][:500]}"
        for wrong in (anomalies, exactly_once(logs, inputs, outputs))
        for name, examples in wrong.items()
    ]
    result.events += sum(len(log) for log in logs.values())
    result.figures = {
        "sends": Counter(real=sum(len(tx.sends) for tx in history.txs)),
        "transactions": Counter(tx.end for tx in history.txs),
        kind_of(lives.version, ""): allowed,
    }


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
            topic, partition, begin, end, records, at = rest
            rows = [(offset, value.encode()) for offset, value in records]
            history.polls.append(Poll("rc", True, tablets[topic, partition], begin, end, rows, at))
