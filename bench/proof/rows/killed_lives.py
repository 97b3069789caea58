"""Kills a process in mode "kafka" or "pulsar" again and again, then compares its logs with its journals.

    life 1 ─ kill -9 ─▶ life 2 ─ kill -9 ─▶ … ─▶ the last one: uses all inputs ─▶ journals, logs ─▶ RowResult
                                                              └ closes ─▶ a reader sees its last commit

A reader resumes its position; what a life leaves open ends as the mode ends it. The simulated worlds' finder
judges (bench/proof/worlds/in_place/anomalies.py), by the list of what is allowed there.

Next: kafka.py, pulsar.py.
"""

import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import planstep

from ...children import Children, call, json_lines
from ..worlds.in_place.anomalies import (
    ALLOWED,
    NOT_TOLD,
    TWO_HANDS,
    WAITS,
    Entry,
    History,
    Logs,
    Poll,
    Tx,
    exactly_once,
    find,
    not_told,
)
from ..worlds.kafka.reads import entries
from .killed_life import LAST, LIFE_SECONDS_MAX, PARTITIONS, TOPICS, main
from .registry import RowResult


@dataclass(frozen=True)
class Lives:
    """The lives of one store: so many kills, each after so many sends and acknowledgements.

    `kind`: of the consumer, which is made at once; "" for one that is made as it is read for. `rivals`: how often
    a second one of the same name does the same work. `allowed`: anomalies that are counted under `worlds`, others
    are wrong.
    """

    folder: str
    seed: int
    kills: int
    sends: int
    hosts: int
    placement: str
    worlds: str
    mode: str
    settings: dict[str, Any] = field(default_factory=dict)
    kind: str = ""
    rivals: float = 0.05
    allowed: tuple[str, ...] = ALLOWED


@dataclass(frozen=True)
class Way:
    """Judges a mode's stores: (stores, tablet) → entries; engine → what the ends have left wrong."""

    entries: Callable[[Any, int], Iterator[Entry]] = entries
    left: Callable[[planstep.Engine], Iterable[str]] = lambda db: ()


def kill_lives(lives: Lives, way: Way) -> RowResult:
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
            result.faults["rival"] += line[0] == "rival"
            result.faults["twins"] += line[0] == "twins"
    result.violations += [f"seed {lives.seed}, real: {text}" for text in unread(folder / "store")]
    _judge(lives, way, journals, stands, result)
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


def unread(store: Path) -> list[str]:
    """Says what a process that only reads does not see of the commit just before a close."""
    with planstep.open(store, read_only=True) as db:
        records = len(db.topic(LAST).read())
    if records == PARTITIONS:
        return []
    return [f"B24: once closed, {records} of the last {PARTITIONS} records are read"]


def _judge(
    lives: Lives, way: Way, journals: list[Path], stands: dict[str, int], result: RowResult
) -> None:
    counted = Counter[str]()
    with planstep.open(Path(lives.folder) / "store") as db:
        tablets, logs = _logs(db, way)
        result.violations += [f"seed {lives.seed}, real: {text}" for text in way.left(db)]
        history = History()
        for journal in journals:
            counted.update(_remember(history, tablets, json_lines(journal)))
        for (topic, partition), tablet in tablets.items():
            begin = stands.get(f"{topic}/{partition}", 0)
            batch = db.topic(topic).read(begin, partition, max_records=1 << 30)
            offsets = (offset for _, offset in batch.offsets)
            records = list(zip(offsets, batch.values, strict=True))
            end = logs[tablet][-1].offset + logs[tablet][-1].records if logs[tablet] else 0
            history.polls.append(Poll("rc", True, tablet, begin, end, records, time.monotonic()))
    inputs, outputs = ([tablets[topic, n] for n in range(PARTITIONS)] for topic in TOPICS)
    anomalies = find(history, logs) | exactly_once(logs, inputs, outputs)
    counted.update({name: len(examples) for name, examples in anomalies.items()})
    counted[NOT_TOLD] = not_told(history, logs)
    result.violations += [
        f"seed {lives.seed}, real: {name}, {len(examples)} times: {examples[0][:500]}"
        f"{_readers(history, logs, examples[0])}"
        for name, examples in anomalies.items()
        if name not in lives.allowed
    ]
    result.events += sum(len(log) for log in logs.values())
    result.figures = {
        "sends": Counter(real=sum(len(tx.sends) for tx in history.txs)),
        "acks": Counter(real=counted["acks"]),
        "transactions": Counter(tx.end for tx in history.txs),
        lives.worlds: Counter({name: counted[name] for name in lives.allowed if counted[name]}),
    }


def _readers(history: History, logs: Logs, example: str) -> str:
    """Says who has read an input that was used wrongly, with outputs and their places; "" of other examples."""
    places = {
        value: (hex(tablet), entry.offset)
        for tablet, log in logs.items()
        for entry in log
        for value in entry.values
    }
    said = [
        f"{tx.who}, {tx.end}, {'asked' if tx.asked_at else 'not asked'} to "
        f"{'commit' if tx.commits else 'abort'}: {[(v, places.get(v)) for v in tx.values()]}"
        for tx in history.txs
        if any(str(b"o" + value) == example for value in tx.reads)
    ]
    return f"; read by {'; '.join(said)}"[:1500] if said else ""


def _logs(db: planstep.Engine, way: Way) -> tuple[dict[tuple[str, int], int], Logs]:
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
    return tablets, {tablet: list(way.entries(stores, tablet)) for tablet in tablets.values()}


def _remember(
    history: History, tablets: dict[tuple[str, int], int], lines: list[Any]
) -> Counter[str]:
    """Adds a life's journal; returns how often what its lines count happened."""
    txs: dict[int, Tx] = {}
    counted = Counter[str]()
    hands = Counter[bytes]()
    for kind, *rest in lines:
        if kind == "tx":
            number, who, transactional = rest
            txs[number] = Tx(who, transactional, number)
            history.txs.append(txs[number])
        elif kind == "reads":
            values = [value.encode() for value in rest[1]]
            txs[rest[0]].reads += values
            counted[TWO_HANDS] += sum(hands[value] > 0 for value in values)
            hands.update(values)
        elif kind == "send":
            number, topic, partition, texts = rest
            sent = tuple(text.encode() for text in texts)
            txs[number].sends.append((tablets[topic, partition], sent))
        elif kind == "ask":
            txs[rest[0]].asked_at, txs[rest[0]].commits = rest[1], rest[2]
        elif kind == "end":
            txs[rest[0]].end = rest[1]
            hands.subtract(txs[rest[0]].reads)
        elif kind == "acks":
            counted["acks"] += 1
        elif kind == "waits":
            counted[WAITS] += 1
        elif kind == "poll":
            topic, partition, begin, end, records, at = rest
            rows = [(offset, value.encode()) for offset, value in records]
            history.polls.append(Poll("rc", True, tablets[topic, partition], begin, end, rows, at))
    return counted
