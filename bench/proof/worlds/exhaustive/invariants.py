"""Judges a state of the small world against a serial execution of its transactions.

    places at the coordinator ─▶ serial execution, here ─▶ decisions ─▶ the same at every tablet?
                                                        └▶ content of each tablet, from its own decisions

This serial execution is independent of serial_model.py: it uses plain dictionaries, and of the engine only parts.

Next: search.py.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack

from .....coordinator.plan import ABORTED, COMMITTED, PLANNED, REFUSED, OutcomeRow
from .....proto.ids import COORDINATOR_ID, PARTITION, host_of, kind_of, tablet_prefix, tx_text
from .....proto.messages import ADD
from .....tablets.partition import Bounds, Entry, standing
from .....tablets.shard import Row
from .scene import Scene, parts_of
from .snapshot import Frozen
from .world import Decision, State

_ENTRIES = 2
"""Records in the partition before the first transaction."""
Place = tuple[int, int]


class Outcome(NamedTuple):
    state: int
    place: Place


Outcomes = dict[bytes, Outcome]
Verdicts = dict[bytes, bool]
"""By transaction with a place: whether it must commit there."""


def outcomes(state: State) -> Outcomes:
    """Returns the coordinator's outcomes of the submitted transactions."""
    values = state.hosts[0].values
    prefix = tablet_prefix(COORDINATOR_ID) + b"o"
    by_tx = {}
    for tx, _ in state.submitted:
        row = values.get(prefix + tx)
        if row is not None:
            outcome = OutcomeRow._make(row)
            by_tx[tx] = Outcome(outcome.state, (outcome.step, outcome.n))
    return by_tx


class Model:
    """Models two tablets without a protocol: rows as (place, number), records and positions as (place, …)."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[Place, int]] = {}
        self.positions: dict[str, tuple[Place, int]] = {}
        self.records: list[Place] = []

    def holds(self, parts: dict[int, Any]) -> bool:
        for tablet, part in parts.items():
            if kind_of(tablet) == PARTITION:
                for consumer, begin, end in part.ranges:
                    _, position = self.positions.get(consumer, ((0, 0), 0))
                    if position != begin or end > _ENTRIES + len(self.records):
                        return False
            else:
                for key, version in part.reads:
                    last, _ = self.rows.get(key, (None, 0))
                    if last != version:
                        return False
        return True

    def apply(self, tablet: int, part: Any, place: Place) -> None:
        if kind_of(tablet) == PARTITION:
            for consumer, _, end in part.ranges:
                self.positions[consumer] = (place, end)
            for _, count in part.slices:
                self.records += [place] * count
            return
        for key, op, value in part.writes:
            number = msgpack.unpackb(value)
            _, old = self.rows.get(key, (None, 0))
            self.rows[key] = (place, number + old if op == ADD else number)


def content(host: Frozen, tablet: int) -> Model:
    """Reads a tablet's rows, positions and records from its host."""
    model = Model()
    for key, value in _rows(host, tablet):
        kind, rest = key[4:5], key[5:]
        if kind == b"r":
            row = Row._make(value)
            model.rows[rest] = (row.version, msgpack.unpackb(row.value))
        elif kind == b"c":
            at = standing(value, None)
            model.positions[rest.decode()] = ((at.step, at.n), at.position)
        elif kind == b"b":
            offset = int.from_bytes(rest, "big")
            if offset >= _ENTRIES:
                assert offset == _ENTRIES + len(model.records), "B20: offsets have a gap"
                entry = Entry._make(value)
                model.records += [(entry.step, entry.n)] * entry.records
    meta = host.values.get(tablet_prefix(tablet) + b"m")
    if meta is not None:
        end = Bounds._make(meta).end
        assert end == _ENTRIES + len(model.records), "B20: the log ends elsewhere"
    return model


def _rows(host: Frozen, tablet: int) -> list[tuple[bytes, Any]]:
    prefix = tablet_prefix(tablet)
    return sorted(item for item in host.values.items() if item[0][:4] == prefix)


def serial(scene: Scene, state: State, known: Outcomes) -> Verdicts:
    """Executes the transactions with a place in order, and returns whether each must commit."""
    model = Model()
    kinds = dict(state.submitted)
    verdicts: Verdicts = {}
    for tx, outcome in sorted(known.items(), key=lambda item: item[1].place):
        if outcome.state == REFUSED:
            continue
        parts = parts_of(scene, kinds[tx])
        verdicts[tx] = model.holds(parts)
        if verdicts[tx]:
            for tablet, part in parts.items():
                model.apply(tablet, part, outcome.place)
    return verdicts


def judge(scene: Scene, state: State, before: State | None = None) -> list[str]:
    """Returns the violations in a state, and in the change from the state `before`."""
    known = outcomes(state)
    verdicts = serial(scene, state, known)
    wrong = [
        *_check_executions(state, known, verdicts),
        *_check_ends(known, verdicts),
        *_check_answers(scene, state, known, verdicts),
        *_check_contents(scene, state),
    ]
    if before is not None:
        wrong += _check_changes(scene, before, state, known)
    return wrong


def _check_executions(state: State, known: Outcomes, verdicts: Verdicts) -> Iterator[str]:
    """Checks that tablets decide each transaction at its place, and as the serial execution does."""
    for tx, tablet, committed, *place in state.decided:
        name = f"{tx_text(tx)} at tablet {tablet:#x}"
        outcome = known.get(tx)
        if outcome is None or outcome.state == REFUSED:
            yield f"B2: {name} was executed without a place"
        elif outcome.place != tuple(place):
            yield f"B3: {name} was executed at {place}, its place is {outcome.place}"
        elif committed != verdicts[tx]:
            yield f"B5, B7: {name} was decided {committed}, its place says otherwise"


def _check_ends(known: Outcomes, verdicts: Verdicts) -> Iterator[str]:
    for tx, outcome in known.items():
        if outcome.state in (COMMITTED, ABORTED):
            if verdicts[tx] != (outcome.state == COMMITTED):
                yield f"B12: the coordinator has {tx_text(tx)} otherwise than its place"


def _check_answers(
    scene: Scene, state: State, known: Outcomes, verdicts: Verdicts
) -> Iterator[str]:
    """Checks that a client is told once, correctly, and of a commit only when all tablets have it."""
    heard: dict[bytes, None] = {}
    for tx, committed, step, n in state.answers:
        outcome = known.get(tx)
        planned = outcome is not None and outcome.state != REFUSED
        if tx in heard:
            yield f"B13: the client of {tx_text(tx)} was told twice"
        heard[tx] = None
        if not planned and committed:
            yield f"B12: the client of {tx_text(tx)} was told of a commit without a place"
        if planned and (committed != verdicts[tx] or not step):
            yield f"B12: the client of {tx_text(tx)} was told otherwise than its place says"
        if committed and outcome is not None and outcome.place != (step, n):
            yield f"B12: the client of {tx_text(tx)} was told another place"
        lacking = _missing_tablets(scene, state, tx) if committed else set()
        if lacking:
            yield f"B8: {tx_text(tx)} was answered before tablet {min(lacking):#x} had it"


def _missing_tablets(scene: Scene, state: State, tx: bytes) -> set[int]:
    """Returns the tablets that a transaction changes and that have not committed it."""
    here = {t for other, t, yes, *_ in state.decided if other == tx and yes}
    parts = parts_of(scene, dict(state.submitted)[tx])
    return {t for t, part in parts.items() if _effect(part)} - here


def _effect(part: Any) -> bool:
    return bool(part.writes) if hasattr(part, "writes") else bool(part.ranges or part.slices)


def _check_contents(scene: Scene, state: State) -> Iterator[str]:
    """Checks that each tablet holds exactly the effects that it committed, in the order of places."""
    for tablet in scene.tablets:
        decided = tuple(decision for decision in state.decided if decision[1] == tablet)
        yield from _content_wrong(
            scene, state.hosts[host_of(tablet)], tablet, decided, state.submitted
        )


@lru_cache(50_000)  # most events leave a tablet unchanged
def _content_wrong(
    scene: Scene,
    host: Frozen,
    tablet: int,
    decided: tuple[Decision, ...],
    submitted: tuple[tuple[bytes, str], ...],
) -> list[str]:
    model, kinds = Model(), dict(submitted)
    for tx, _, committed, step, n in sorted(decided, key=lambda decision: decision[3:]):
        if committed:
            model.apply(tablet, parts_of(scene, kinds[tx])[tablet], (step, n))
    try:
        actual = content(host, tablet)
    except AssertionError as error:
        return [f"{error} at tablet {tablet:#x}"]
    if vars(actual) == vars(model):
        return []
    return [
        f"B11, B14: tablet {tablet:#x} holds {vars(actual)}, what was committed there is {vars(model)}"
    ]


def _check_changes(scene: Scene, before: State, state: State, known: Outcomes) -> list[str]:
    wrong = []
    last = tablet_prefix(COORDINATOR_ID) + b"l"
    if state.hosts[0].values.get(last, 0) < before.hosts[0].values.get(last, 0):
        wrong.append("B1: the step has fallen")
    for tx, outcome in outcomes(before).items():
        if tx not in known or known[tx].place != outcome.place:
            wrong.append(f"B2: {tx_text(tx)} has lost its place {outcome.place}")
    prefix = tablet_prefix(scene.tablets[0]) + b"c"
    now, then = (s.hosts[scene.partition].values for s in (state, before))
    if now is not then:
        for key, row in then.items():
            if key[:5] == prefix and (
                key not in now or standing(now[key], None).position < standing(row, None).position
            ):
                wrong.append(f"B21: the position of {key[5:].decode()} has fallen")
    return wrong


def unresolved(scene: Scene, state: State) -> list[str]:
    """Lists transactions still under way at tablets, coordinator and proxy."""
    names = []
    for tablet in scene.tablets:
        for key, _ in _rows(state.hosts[host_of(tablet)], tablet):
            if key[4:5] in (b"t", b"s") and len(key) == 17:
                names.append(f"{tx_text(key[5:])} at tablet {tablet:#x}")
            elif key[4:] == b"q":
                names.append(f"the queue of tablet {tablet:#x}")
    for tx, outcome in outcomes(state).items():
        if outcome.state == PLANNED:
            names.append(f"{tx_text(tx)} at the coordinator")
    names += [f"{tx_text(tx)} at the proxy" for tx in state.hosts[0].open]
    return names
