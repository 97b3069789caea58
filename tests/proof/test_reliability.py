"""Tests RELIABILITY.md against the rows: its names exist, and its counts are right."""

import re
from pathlib import Path

import pytest

from planstep.bench.judges.python.plant import KINDS as ANOMALIES
from planstep.bench.proof.disks.sample import KINDS
from planstep.bench.proof.disks.scripts import PLAYS
from planstep.bench.proof.rows import model, reboots
from planstep.bench.proof.rows.killpoints import _TRACED
from planstep.bench.proof.rows.mutants import MUTANTS
from planstep.bench.proof.rows.registry import BY_NAME, ROWS
from planstep.bench.proof.worlds.replicated.planted import PLANTED as PLANTED_IN_WORLDS
from planstep.bench.proof.worlds.scripted.kafka_runner import KAFKA_SCENARIOS
from planstep.bench.proof.worlds.scripted.pulsar_runner import PULSAR_SCENARIOS
from planstep.bench.proof.worlds.scripted.scenarios import SCENARIOS
from planstep.bench.proof.worlds.shared.planted import PLANTED
from planstep.bench.proof.worlds.shared.scenes import SCENES
from planstep.bench.proof.worlds.shared.stories import STORIES
from planstep.bench.proof.worlds.swarm import WORKLOADS
from planstep.store.meta import FORMAT

TEXT = (Path(__file__).parents[2] / "RELIABILITY.md").read_text()
TABLE = TEXT[TEXT.index("<!-- rows -->") : TEXT.index("<!-- end of rows -->")]
WORDS = {
    1: "one",
    2: "two",
    3: "three",
    8: "eight",
    9: "nine",
    10: "ten",
    12: "twelve",
    14: "fourteen",
    16: "sixteen",
    20: "Twenty",
}


def rows_of_the_table() -> dict[str, str]:
    """Returns the cells of each row of the table: the faults, and the promise."""
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", TABLE, re.MULTILINE)
    return {name: rest.rpartition(" | ")[0] for name, rest in rows}


def test_the_table_has_every_row_in_its_order() -> None:
    assert list(rows_of_the_table()) == [row.name for row in ROWS]


def test_commands_that_it_names_are_rows() -> None:
    named = re.findall(r"planstep check ([\w-]+)", TEXT)
    assert named and {*named} <= {*BY_NAME, "all", "list", "ROW"}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("sim", f"{WORDS[len(WORKLOADS)]} workloads"),
        ("mutants", f"{sum(bool(mutant.source) for mutant in MUTANTS)} re-create"),
        (
            "reboots",
            f"{len(SCENARIOS) + len(reboots.IN_PLACE)} scenarios, {len(KAFKA_SCENARIOS)} of",
        ),
        ("reboots", f"kafka, {len(PULSAR_SCENARIOS)} of mode pulsar"),
        ("model", f"{WORDS[len(model.FALSE) + len(model.FALSE_THERE)]} false invariants"),
        ("shared-model", f"{len(SCENES)} small scenes breadth first, {len(STORIES)} stories"),
        ("shared-model", f"{WORDS[len(PLANTED)]} rules"),
        ("shared", f"{WORDS[len(PLANTED_IN_WORLDS)].capitalize()} planted bugs"),
        ("killpoints", f"{len(PLAYS)} plays"),
        ("killpoints", f"in {WORDS[len(_TRACED)]} of them"),
        ("bitflip", f"{len(KINDS)} small stores"),
        ("history", f"{WORDS[len(ANOMALIES)]} planted anomalies"),
        ("format", f"there are {WORDS[FORMAT]} so far"),
    ],
)
def test_what_it_counts_is_so_many(row: str, says: str) -> None:
    assert says in rows_of_the_table()[row]
