"""Describes mode deterministic, this engine's own protocol, as a system of the comparison, with its wording.

Next: kafka_entry.py.
"""

from ...judges.python import PLANNED
from .engine import EngineMode, opens
from .entry import (
    COORDINATOR,
    LANES,
    PARTITION,
    WORKER,
    DurableChanges,
    LineStyle,
    Mode,
    Promises,
    Protocol,
    Step,
    SystemEntry,
)

MODE = Mode(
    name="deterministic",
    systems=(
        SystemEntry(
            name="deterministic",
            open=opens("deterministic", EngineMode("deterministic")),
            history=PLANNED,
            label="deterministic",
            line_style=LineStyle("#0072b2", "solid", "o", "deterministic"),
            about="this engine's own protocol, in the style of YDB: every transaction gets a place in one order",
            column="det.",
            narrow="det.",
        ),
    ),
    style="deterministic",
    title="Deterministic",
    short="det.",
    in_full="det(erministic)",
    commits="Deterministic: records wait on the side; a coordinator gives the transaction a place in one order, "
    "and each partition publishes at that place. Readers need no filter, and an open transaction delays no other.",
    protocol=Protocol(
        "agree on a place, then publish",
        LANES,
        (
            Step("records", WORKER, PARTITION),
            Step("on the side, hidden", PARTITION),
            Step("commit", WORKER, COORDINATOR),
            Step("its place in the plan", COORDINATOR),
            Step("plan", COORDINATOR, PARTITION),
            Step("published", PARTITION),
            Step("committed", PARTITION, WORKER),
        ),
        5,
        "nothing",
        "all at once",
    ),
    terms=(
        (
            "plan step",
            "deterministic mode: a tick of virtual time, given by the coordinator. A transaction's place is its "
            "step and its number there: the order in which everybody executes.",
        ),
        (
            "staged",
            "deterministic mode: durable on the side, under the transaction's id, in no log yet.",
        ),
    ),
    durable="set aside",
    promises=Promises(
        durable={
            "full": "its place and all its records are on the disk",
            "os": "the operating system has its place and all its records; a power loss may take them",
        },
        tables="yes: records and rows change at one place of one order",
        readers="for nobody: an open transaction delays no reader",
        zombie="its commit is refused as a conflict, if another one consumed what it had read",
    ),
    changes=DurableChanges(
        sets_aside=("partition: Stage",),
        fixes=("partition: Propose", "shard: Propose"),
        intends=("coordinator: PlanRequest",),
        publishes=(
            "partition: Plan",
            "shard: Plan",
            "partition: ReadSet",
            "shard: ReadSet",
            "coordinator: Executed",
        ),
    ),
)
