"""Lists the steps of short plays, for a kill at any moment, and draws those of long stories from a seed.

    PLAYS            one subject each: partitions, hosts, segments, rewriting, a backup, a mode …
    story(seed, …)   create ─▶ transactions │ trims │ checkpoints │ closing, reopening │ kills

Each transaction of a story writes values of its own, so a store's content shows which of them it holds.
Where data lies in place a story has no rows and no trims: offsets are of markers too, and their number is not
promised. Some of its transactions are rolled back.

Next: ../rows/killpoints.py and ../rows/powerloss.py; strace.py, in a process of its own, with LMDB's own writes.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ....api.open_engine import Mode
from ....runtime.mode_hooks import INDIVIDUAL
from ....runtime.open_stores import HOOKS
from .engines import Content, positions
from .modes import MODES, settings_of
from .steps import (
    ROWS,
    BackUp,
    Checkpoint,
    CreateConsumer,
    CreateTable,
    CreateTopic,
    DropTopic,
    Read,
    Reopen,
    Restore,
    Seek,
    Step,
    Transact,
    Trim,
    TrimUnseen,
    plan_step,
)

PARTITIONS = 2
STEPS = 24
_ROLLED_BACK = 0.25
"""The share of transactions where data lies in place."""
_Draw = Callable[[random.Random, Content, int], Step]


class Play(NamedTuple):
    name: str
    settings: dict[str, Any]
    steps: tuple[Step, ...]


def _play(name: str, *steps: Step, **settings: Any) -> Play:
    return Play(name, settings, steps)


def _write(*partitions: int, size: int = 100, times: int = 1, ahead: int = 0) -> Transact:
    """Writes to these partitions in one transaction; with `ahead` one record more behind them."""
    writes = [("t", p, f"{p}.{i} " + "x" * size) for p in partitions for i in range(times)]
    writes += [("t", partitions[0], "behind")] if ahead else []
    return Transact(tuple(writes), ahead=ahead)


_ROLL = 40_000
"""Three of these fill a segment."""
_CREATE, _TABLE, _CHECKPOINT, _REOPEN = CreateTopic("t", 3), CreateTable(3), Checkpoint(), Reopen()
_INDIVIDUAL = CreateConsumer("t")
_FORWARD = Transact((("t", 1, "made of one"),), Read("t", 0, 1))
_COUNT = _FORWARD._replace(adds=(("n", 1),), puts=((("of", 0), 0),))
_COUNT_AGAIN = _FORWARD._replace(adds=(("n", 1),), puts=((("of", 1), 1),))
_DELETE = Transact(puts=(("k", "v"),), deletes=(("of", 0),))
_CONFLICT = Transact((("t", 2, "never"),), adds=(("n", 1),), ends="refused")
_ROLL_BACK = Transact((("t", 1, "never"), ("t", 2, "never")), ahead=2, ends="rolled back")
_RESTORE = BackUp(), _write(1), Restore((("t", 1),))
_TWO_ROUNDS = _write(0, 1, 2), _COUNT, _CHECKPOINT, _write(0, 1, 2), _CONFLICT
_FILLED: tuple[Step, ...] = (_CREATE, *[_write(0, size=_ROLL)] * 6)
_FILLED_TWO: tuple[Step, ...] = (_CREATE, *[_write(0, 1, size=_ROLL // 2)] * 6)
_IN_PLACE = _write(0, 1, 2), _FORWARD, _ROLL_BACK, _CHECKPOINT, _write(1, 2)
_SEALED: tuple[Step, ...] = _CREATE, *[_ROLL_BACK] * 7, TrimUnseen("t", 1, 12)
"""A segment of six ids is written, and goes as the log is trimmed up to its last marker."""
_SINGLE, _PARTS, _SEGMENTED = (
    {"mode": "pulsar", **settings_of("pulsar", variant)} for variant in MODES["pulsar"].variants
)

PLAYS = (
    _play("one partition", _CREATE, *[_write(0)] * 3),
    _play("several partitions", _CREATE, *[_write(0, 1, 2)] * 2, _CHECKPOINT),
    _play(
        "consume, produce, table",
        *(_CREATE, _TABLE, _write(0, times=3), _COUNT, _CHECKPOINT, _COUNT_AGAIN, _CONFLICT),
    ),
    _play("three hosts", _CREATE, _TABLE, *_TWO_ROUNDS, hosts=3),
    _play("sent ahead", _CREATE, _write(0, 1, ahead=2), _ROLL_BACK, _write(1), hosts=3),
    _play("rows", _CREATE, _TABLE, _write(0, times=2), _COUNT, _DELETE, _CHECKPOINT),
    _play(
        "create and drop", _CREATE, _write(0, 1), DropTopic("t"), _CREATE, _write(2), _CHECKPOINT
    ),
    _play("segments", *_FILLED, _write(0, size=_ROLL), _CHECKPOINT, _write(1, size=_ROLL)),
    _play(
        "trim, seek, segments go",
        *(*_FILLED, Trim("t", 0, 5), _CHECKPOINT, Seek("t", 0, 5), _write(0), _CHECKPOINT),
    ),
    _play(
        "rewriting",
        *(*_FILLED_TWO, _CHECKPOINT, Trim("t", 0, 3), Checkpoint(rewrites=True), _write(1)),
    ),
    _play("closed and opened", _CREATE, _write(0), _REOPEN, _write(0, 1), _REOPEN),
    _play("restored", _CREATE, _TABLE, _write(0, times=2), _COUNT, *_RESTORE, _write(0)),
    _play("restored, two hosts", _CREATE, _write(0, 1, 2), *_RESTORE, _write(0), hosts=2),
    _play(
        "tablets apart",
        *(_CREATE, _TABLE, _write(0, 1), _COUNT, _CONFLICT, _CHECKPOINT, _REOPEN),
        placement="separate",
    ),
    _play("kafka", _CREATE, *_IN_PLACE, _REOPEN, mode="kafka"),
    _play("kafka, three hosts", _CREATE, *_IN_PLACE, mode="kafka", hosts=3),
    _play("pulsar", _CREATE, *_IN_PLACE, _REOPEN, **_SINGLE),
    _play("pulsar, parts", _CREATE, _INDIVIDUAL, *_IN_PLACE, *[_ROLL_BACK] * 7, **_PARTS),
    _play("pulsar, segments", *_SEALED, *_IN_PLACE, **_SEGMENTED),
    _play("pulsar, three hosts", _CREATE, _INDIVIDUAL, *_IN_PLACE, **_SINGLE, hosts=3),
)


def story(seed: int, mode: Mode) -> Iterator[Step]:
    """Draws transactions and other user actions; the last step is a kill or a close."""
    rng, hooks = random.Random(f"story {seed}"), HOOKS[mode]
    rows = hooks.has_tables
    held: Content = {}
    ends = [_always(Reopen()), _always(Reopen(killed=True))]
    plan = [*[_transaction] * STEPS, *[_always(Checkpoint())] * 3, *ends, *[_trim] * 3 * rows]
    rng.shuffle(plan)
    topics = [CreateTopic("in", PARTITIONS), CreateTopic("out", PARTITIONS)]
    first: list[Step] = [*topics, *[CreateTable(2)] * rows]
    if not rows and INDIVIDUAL in hooks.acks and rng.random() < 0.5:
        first.append(CreateConsumer("in"))
    for number, draw in enumerate([*map(_always, first), *plan, rng.choice(ends)]):
        step = draw(rng, held, number)
        held, _ = plan_step(step, held)
        yield step


def _always(step: Step) -> _Draw:
    return lambda rng, held, number: step


def _transaction(rng: random.Random, held: Content, number: int) -> Step:
    """Consumes records, copies them to another topic, and writes new records and rows."""
    read = Read("in", rng.randrange(PARTITIONS), rng.randrange(4))
    writes: list[tuple[str, int, str]] = []
    for n in range(rng.randrange(1, 3)):
        value = f"{number}.{n}:" + "x" * rng.choice([0, 3, 200, 200, 1500, 6000])
        writes.append(("in", rng.randrange(PARTITIONS), value))
    writes += [("out", rng.randrange(PARTITIONS), value) for value in read.values(held)]
    ahead = len(writes) if rng.random() < 0.2 else 0
    undone = ROWS not in held and rng.random() < _ROLLED_BACK
    keys = [f"k{rng.randrange(8)}" for _ in range(rng.randrange(1, 3))] if ROWS in held else []
    drops_row = held.get(ROWS) and rng.random() < 0.2
    return Transact(
        tuple(writes),
        read if read.many else None,
        len(writes) if undone else ahead,
        ends="rolled back" if undone else "committed",
        puts=tuple((key, number) for key in keys),
        deletes=(rng.choice(sorted(held[ROWS])),) if drops_row else (),
    )


def _trim(rng: random.Random, held: Content, number: int) -> Step:
    """Trims records that may go; if there are none, draws a transaction instead."""
    topic, partition = rng.choice(["in", "out"]), rng.randrange(PARTITIONS)
    start, values = held[topic][partition]
    end = held[positions(topic)][partition] if topic == "in" else start + len(values)
    if end <= start:
        return _transaction(rng, held, number)
    return Trim(topic, partition, rng.randint(start + 1, end))
