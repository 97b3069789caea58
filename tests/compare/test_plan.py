"""Tests the way from options to cells: the runs, their order and their length."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from planstep.bench.compare.cell import Cell
from planstep.bench.compare.plan import BY_NAME, SPREAD, ComparisonOptions, Plan, plan
from planstep.bench.compare.systems import DEFAULT, ENTRIES
from planstep.bench.compare.workloads import NAMES as ALL

Key = tuple[str, str, str, str]
NAMES = [name for name in ALL if name not in BY_NAME]


def key(cell: Cell) -> Key:
    options = cell.options
    return cell.workload, cell.system, options.durability, options.placement


def keys(planned: Plan, workload: str) -> dict[Key, int]:
    """Counts the runs of each cell of a workload."""
    return Counter(key(cell) for cell in planned.cells if cell.workload == workload)


# the default --------------------------------------------------------------------------------------


def test_the_default_takes_six_minutes_and_has_every_workload() -> None:
    planned = plan(ComparisonOptions())
    assert 320 < planned.seconds < 346
    assert {cell.workload for cell in planned.cells} == set(NAMES)
    assert planned.search == []
    assert len({cell.name for cell in planned.cells}) == len(planned.cells)


def test_the_headline_is_long_and_repeated_the_rest_of_reshard_is_short() -> None:
    planned = plan(ComparisonOptions())
    headline = {
        ("reshard", "deterministic", "full", "shared"): 3,
        ("reshard", "kafka", "full", "separate"): 3,
        ("reshard", "pulsar", "full", "separate"): 3,
        ("reshard", "sqlite", "full", "shared"): 3,
    }
    rest = {
        ("reshard", "deterministic", "full", "separate"): 1,
        ("reshard", "kafka", "full", "shared"): 1,
        ("reshard", "deterministic", "os", "shared"): 1,
        ("reshard", "deterministic", "os", "separate"): 1,
        ("reshard", "kafka", "os", "separate"): 1,
        ("reshard", "kafka", "os", "shared"): 1,
        ("reshard", "pulsar", "full", "shared"): 1,
        ("reshard", "pulsar", "os", "separate"): 1,
        ("reshard", "pulsar", "os", "shared"): 1,
        ("reshard", "sqlite", "os", "shared"): 1,
    }
    assert keys(planned, "reshard") == {**headline, **rest}
    for cell in planned.cells:
        if cell.workload == "reshard":
            assert cell.shape.duration == (7 if key(cell) in headline else 2.5)


def test_quick_takes_less_than_90_seconds() -> None:
    planned = plan(ComparisonOptions(quick=True))
    assert planned.seconds < 85
    assert {cell.workload for cell in planned.cells} == {"reshard", "small"}
    counts = keys(planned, "reshard")
    assert set(counts.values()) == {1}
    assert {k[1:] for k in counts if k[2] == "full"} == {
        ("deterministic", "full", "shared"),
        ("deterministic", "full", "separate"),
        ("kafka", "full", "shared"),
        ("kafka", "full", "separate"),
        ("pulsar", "full", "shared"),
        ("pulsar", "full", "separate"),
        ("sqlite", "full", "shared"),
    }
    durations = {cell.workload: cell.shape.duration for cell in reversed(planned.cells)}
    assert durations == {"reshard": 5, "small": 2}


def test_what_the_budget_has_no_room_for_is_said() -> None:
    omissions = {omission.what for omission in plan(ComparisonOptions()).left_out}
    assert "small at durability os" in omissions
    assert not any(what.startswith("faults") for what in omissions), "os was never meant for it"


def test_how_to_run_what_was_left_out() -> None:
    def way(**options: Any) -> set[str]:
        return {
            f"{omission.what}: {omission.why.split('; ')[1]}"
            for omission in plan(ComparisonOptions(**options)).left_out
        }

    assert "small at durability os: --workload small runs it" in way()
    ways = way(workloads=("interval",), duration=60.0)
    assert ways == {"interval at durability os: --durability os runs it"}
    assert way(quick=True, duration=10.0) >= {
        "reshard at durability full in the other placement: --placement both runs it",
        "reshard at durability os in the other placement: --placement both --durability os runs it",
    }


def test_systems_join_the_first_of_their_mode_in_some_workloads() -> None:
    planned = plan(ComparisonOptions())
    assert {cell.workload for cell in planned.cells if cell.system == "sqlite-64"} == {"small"}
    joined = {(cell.workload, cell.system) for cell in planned.cells} - {
        (workload, system) for workload in NAMES for system in DEFAULT
    }
    assert joined == {
        (workload, name)
        for name, entry in ENTRIES.items()
        for workload in entry.joins
        if not entry.peer
    }
    planned = plan(ComparisonOptions(systems=("deterministic", "kafka")))
    assert not any(cell.system.startswith("sqlite") for cell in planned.cells)


# order --------------------------------------------------------------------------------------------


def test_systems_alternate_and_each_is_first_once() -> None:
    planned = plan(ComparisonOptions(workloads=("reshard",), durability="full"))
    rows: dict[int, list[str]] = {}
    for cell in planned.cells:
        if cell.shape.duration == 7:
            rows.setdefault(cell.repeat, []).append(cell.system)
    assert rows == {
        0: ["deterministic", "kafka", "pulsar", "sqlite"],
        1: ["kafka", "pulsar", "sqlite", "deterministic"],
        2: ["pulsar", "sqlite", "deterministic", "kafka"],
    }


def test_the_first_round_has_everything_once() -> None:
    planned = plan(ComparisonOptions())
    first = [cell.repeat for cell in planned.cells]
    assert first == sorted(first)


# explicit options ---------------------------------------------------------------------------------


def test_explicit_options_hold_for_every_cell() -> None:
    options = ComparisonOptions(
        workloads=("reshard", "chain"),
        duration=1.5,
        repeat=2,
        placement="separate",
        durability="os",
        commit_interval=0.1,
        partitions=7,
        workers=3,
        seed=9,
        rtt=0.002,
    )
    planned = plan(options)
    assert set(keys(planned, "reshard").values()) == set(keys(planned, "chain").values()) == {2}
    for cell in planned.cells:
        assert cell.shape.duration == 1.5
        assert cell.options.durability == "os"
        assert cell.options.placement == ("shared" if cell.system == "sqlite" else "separate")
        assert (cell.shape.commit_interval, cell.shape.partitions) == (0.1, 7)
        assert (cell.shape.workers, cell.shape.seed, cell.options.rtt) == (3, 9, 0.002)


def test_both_means_both_whatever_it_takes() -> None:
    planned = plan(
        ComparisonOptions(workloads=("small",), durability="both", placement="both", duration=60)
    )
    assert len(keys(planned, "small")) == 2 * (2 + 2 + 2 + 2)
    assert planned.left_out == []


def test_record_sizes() -> None:
    def sizes(options: ComparisonOptions) -> set[int | None]:
        return {cell.shape.record_size for cell in plan(options).cells}

    assert sizes(ComparisonOptions()) == {1024}
    assert sizes(ComparisonOptions(demo=True)) == {None}
    assert sizes(ComparisonOptions(demo=True, record_size=200)) == {200}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"workloads": ("reshrad",)}, "--workload: no 'reshrad'; there are reshard, plain"),
        ({"systems": ("oracle",)}, "--systems: no 'oracle'; there are deterministic"),
        ({"systems": ()}, "--systems names none"),
        ({"placement": "apart"}, "--placement: no 'apart'; there are shared, separate, both"),
        ({"durability": "none"}, "--durability: no 'none'"),
        ({"rate": 0.0}, "--rate is at least"),
        ({"rate": float("nan")}, "--rate is at least"),
        ({"rate": float("inf")}, "--rate is at most"),
        ({"duration": 0.0}, "--duration is at least"),
        ({"commit_interval": -1.0}, "--commit-interval is at least"),
        ({"rate": None, "find_rate": True}, "--find-rate begins at a rate"),
        ({"workloads": ("chain",), "find_rate": True}, "--find-rate needs the workload reshard"),
        ({"hosts": SPREAD, "placement": "shared"}, "--hosts spread"),
        ({"hosts": 3, "durability": "os", "systems": ("kafka",)}, "nothing is left to run"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        plan(ComparisonOptions(**options))
    assert str(error.value).startswith(message)


# hosts --------------------------------------------------------------------------------------------


def test_several_hosts_have_no_durability_os() -> None:
    planned = plan(ComparisonOptions(workloads=("reshard",), hosts=3))
    assert {cell.options.durability for cell in planned.cells} == {"full"}
    assert {(c.system, c.options.hosts) for c in planned.cells} == {
        ("deterministic", 3),
        ("kafka", 3),
        ("pulsar", 3),
        ("sqlite", 1),
    }
    assert [omission.what for omission in planned.left_out] == ["durability os with several hosts"]
    explicit = plan(ComparisonOptions(workloads=("reshard",), hosts=3, durability="both"))
    assert {key(cell)[1:3] for cell in explicit.cells if cell.options.durability == "os"} == {
        ("sqlite", "os")
    }


def test_spread_counts_with_a_host_for_each_tablet() -> None:
    planned = plan(ComparisonOptions(hosts=SPREAD))
    assert {cell.workload for cell in planned.cells} == {"reshard"}
    engines = [cell for cell in planned.cells if cell.system != "sqlite"]
    assert {cell.options.placement for cell in engines} == {"separate"}
    assert {cell.options.hosts for cell in engines} == {1 + 2 * 4}
    assert {cell.shape.partitions for cell in planned.cells} == {4}
    assert any("4 partitions instead of 100" in note for note in planned.notes)
    assert {
        cell.options.hosts for cell in plan(ComparisonOptions(hosts=SPREAD, partitions=2)).cells
    } == {1, 5}


def test_who_has_no_network_to_wait_for_is_named() -> None:
    (note,) = plan(ComparisonOptions(rtt=0.005)).notes
    assert "SQLite (1 per COMMIT)" in note and "kafka" not in note
    assert plan(ComparisonOptions(rtt=0.005, systems=("deterministic", "kafka"))).notes == []
    assert plan(ComparisonOptions()).notes == []


# the search ---------------------------------------------------------------------------------------


def test_the_rate_is_searched_when_reshard_was_asked_for_by_name() -> None:
    planned = plan(ComparisonOptions(workloads=("reshard",)))
    assert [key(cell) for cell in planned.search] == [
        ("reshard", "deterministic", "full", "shared"),
        ("reshard", "kafka", "full", "separate"),
        ("reshard", "pulsar", "full", "separate"),
        ("reshard", "sqlite", "full", "shared"),
    ]
    assert plan(ComparisonOptions(workloads=("reshard",), rate=None)).search == []
    assert plan(ComparisonOptions(workloads=("reshard",), find_rate=False)).search == []
    assert len(plan(ComparisonOptions(find_rate=True)).search) == 4
    assert plan(ComparisonOptions(workloads=("reshard",), quick=True)).search == [], (
        "it would take minutes"
    )
    assert plan(ComparisonOptions(workloads=("reshard",), quick=True, find_rate=True)).search != []


def test_only_what_the_plan_made_up_is_limited() -> None:
    assert (
        plan(ComparisonOptions()).limit == 357 and plan(ComparisonOptions(quick=True)).limit == 88
    )
    for options in (
        ComparisonOptions(duration=60.0),
        ComparisonOptions(repeat=5),
        ComparisonOptions(workloads=("reshard",)),
    ):
        assert plan(options).limit is None


def test_faults_do_not_wait_for_kafkas_minute() -> None:
    time_outs = {
        c.workload: c.options.transaction_timeout_ms for c in plan(ComparisonOptions()).cells
    }
    assert time_outs["faults"] == 1000 and time_outs["reshard"] == 60_000


def test_cells_travel_as_json() -> None:
    import json

    for cell in plan(ComparisonOptions(quick=True)).cells:
        assert Cell.load(json.loads(json.dumps(cell.dump()))) == cell
        assert replace(cell, repeat=1).name != cell.name
