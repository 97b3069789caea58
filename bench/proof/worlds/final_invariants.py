"""Checks the invariants of a finished run, each under its name (RELIABILITY.md lists them).

    stores ── B11, B20: equal to the serial execution       workloads ── B19, B22, B23: each workload's own rule
    history ── B15: real time                                record ── B30, B31: replayed, byte for byte

Next: seed.py.
"""

import math
from itertools import accumulate
from typing import Any

import msgpack

from ....proto.ids import tx_text
from ....tablets.shard import Row
from ..simulator.hosts import Hosts
from ..simulator.world import World
from .readers import SnapshotRead
from .serial_model import Serial, stored_rows
from .workloads import ACCOUNTS, HOT, RING, START, WORKER, NamedWorkloads


def check_at_end(world: World, work: NamedWorkloads) -> list[str]:
    """Returns all violations in a world that has settled."""
    serial = Serial(world, work.requests, work.readers.reads)
    return [
        *serial.wrong,
        *differences(stored_rows(world), serial.model),
        *real_time(world, serial.order, work.readers.reads),
        *_totals(work),
        *_pairs(work.readers.reads),
        *_used_once(world, work),
        *_lists(world, work, serial),
        *(f"B37: {tx_text(tx)} has no answer" for tx in world.unanswered()),
    ]


def differences(actual: dict[bytes, Any], model: dict[bytes, Any]) -> list[str]:
    wrong = []
    for key in sorted({**actual, **model}):
        if actual.get(key) != model.get(key):
            text = f"B11: {key!r} holds {actual.get(key)}, the committed one by one make"
            wrong.append(f"{text} {model.get(key)}")
    return wrong[:5]


def real_time(
    world: World, order: list[tuple[int, int, bytes]], reads: list[SnapshotRead]
) -> list[str]:
    """B15: finds transactions that began after a later-placed one had ended.

    Goes through the places backwards, and keeps the earliest reply of all later ones.
    """
    events: list[tuple[float, float, float, float, str]] = [
        (step, n, world.asked_at[tx], world.told_at.get(tx, math.inf), tx_text(tx))
        for step, n, tx in order
    ]
    for one in reads:
        events.append((one.step, math.inf, one.invoked, one.completed, f"a {one.workload}"))
    events.sort(key=lambda event: event[:2], reverse=True)
    wrong, earliest, who = [], math.inf, ""
    here, here_who, place = math.inf, "", (math.inf, math.inf)
    for step, n, invoked, completed, name in events:
        if (step, n) != place:  # snapshots at one place have no order among them
            place = (step, n)
            if here < earliest:
                earliest, who = here, here_who
            here = math.inf
        if earliest < invoked:
            wrong.append(f"B15: {name} at {place} began after {who} had ended, which is behind it")
        if completed < here:
            here, here_who = completed, name
    return wrong


def _totals(work: NamedWorkloads) -> list[str]:
    """B19, B17: checks the bank's total and the ring in every snapshot and in the final rows."""
    wrong = []
    samples: list[tuple[str, list[Any], str]] = [
        (kind, [work.read(tablet, b"r" + key) for tablet, key in keys], "the end")
        for kind, keys in (("bank", work.accounts()), ("ring", work.cycle()))
    ]
    for read in work.readers.reads:
        if read.workload in ("bank", "ring"):
            keys = sorted(read.keys, key=lambda key: key.key)
            samples.append((read.workload, [read.values[k] for k in keys], f"step {read.step}"))
    for kind, rows, when in samples:
        if rows == [None] * len(rows):
            continue
        if None in rows:
            wrong.append(f"B17: at {when} a part of the {kind} was there: {rows}")
            continue
        values = [msgpack.unpackb(value) for _, _, value in rows]
        if kind == "bank" and sum(values) != ACCOUNTS * START:
            wrong.append(f"B19: at {when} the accounts held {sum(values)}: {values}")
        if kind == "ring" and not _is_ring(values):
            wrong.append(f"B19: at {when} the ring was {values}")
    return wrong


def _is_ring(following: list[int]) -> bool:
    """Returns whether the path from key 0 comes back after passing all keys, and not before."""
    first, *path, last = accumulate(range(RING), lambda at, _: following[at], initial=0)
    return first == last and first not in path


def _pairs(reads: list[SnapshotRead]) -> list[str]:
    """B16: each transaction writes its number to x and y; a read of y after one of x must not see an older one."""
    wrong = []
    timeline: dict[bytes, list[tuple[float, float, int]]] = {b"x": [], b"y": []}
    for one in reads:
        if one.workload == "pair":
            ((key, row),) = one.values.items()
            step, n, _ = row or (0, 0, None)
            place = (step << 20) + n
            timeline[key.key].append((one.invoked, one.completed, place))
    for began, _, y in timeline[b"y"]:
        for _, ended, x in timeline[b"x"]:
            if ended <= began and x > y:
                wrong.append(f"B16: y was read at {began:.1f} ms from place {y}, behind x from {x}")
    return wrong


def _used_once(world: World, work: NamedWorkloads) -> list[str]:
    """B22, B23: checks that each input was used once, and that outputs, position and counter agree."""
    wrong = []
    ranges: dict[int, list[tuple[int, int]]] = {tablet: [] for tablet in work.at.inputs}
    for tablet in work.at.outputs:
        for payload in world.payloads(tablet):
            words = payload.split()
            if len(words) == 3:
                source, first, stop = map(int, words)
                ranges[source].append((first, stop))
    for tablet, several in ranges.items():
        at = 0
        for begin, end in sorted(several):
            if begin != at:
                name = "twice" if begin < at else "by nobody"
                wrong.append(f"B22: input {min(at, begin)} of {tablet:#x} was used {name}")
            at = end
        counter = work.row(work.at.shards[tablet % 3], b"u%d" % tablet)
        used = msgpack.unpackb(counter.value) if counter else 0
        actual = (work.consumer(tablet, WORKER).position, used)
        if actual != (at, at):
            wrong.append(f"B23: of {tablet:#x} {at} have outputs; position and counter: {actual}")
    hot = work.consumer(work.at.hot, HOT)
    counter = work.row(work.at.shards[0], b"hot")
    if hot.position != (msgpack.unpackb(counter.value) if counter else 0):
        wrong.append(f"B22: the contended position is {hot}, its counter {counter}")
    return wrong


def _lists(world: World, work: NamedWorkloads, serial: Serial) -> list[str]:
    """B14, B20: checks that rows and partition hold an element for each commit, in the order of places."""
    wrong = []
    by_tablet: dict[int, list[int]] = {}
    all_of_them: list[int] = []
    for _, _, tx in serial.order:
        if work.workload_of.get(tx) == "lists":
            (tablet, _), (_, published) = work.requests[tx].items()
            element = int(published.slices[0][0].removeprefix(b"list "))
            all_of_them.append(element)
            by_tablet.setdefault(tablet, []).append(element)
    for tablet, elements in by_tablet.items():
        content = msgpack.unpackb(Row._make(work.read(tablet, b"rlist")).value)
        if content != elements[-len(content) :]:
            wrong.append(f"B14: a list holds {content}, its appends were {elements}")
    _, tablet = work.at.outputs
    lines = [payload.split() for payload in world.payloads(tablet)]
    content = [int(words[-1]) for words in lines if words[:1] == [b"list"]]
    if content != all_of_them:
        wrong.append(f"B20: a partition holds {content} in this order, places say {all_of_them}")
    return wrong


def replayed(world: Hosts) -> list[str]:
    """Replays a run: fresh cores must make the same changes (B30) and the same rows (B31)."""
    rows = [store.scan(b"", b"\xff" * 16) for store in world.stores]
    wrong = [
        f"B30: replayed, host {turn.host} changes something else at {turn.now_ms} ms"
        for turn, changes in zip(world.recorded, world.replay(), strict=True)
        if turn.changes != changes
    ][:1]
    if rows != [store.scan(b"", b"\xff" * 16) for store in world.stores]:
        wrong.append("B31: replayed stores hold other rows")
    return wrong
