"""Tests the way from options to cells: the runs, their order and their length."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from toy_peer import ToyServer, toy

from planstep.bench.compare.cell import Cell
from planstep.bench.compare.options import SPREAD, ComparisonOptions
from planstep.bench.compare.plan import Plan, plan
from planstep.bench.compare.systems import _MODES, DEFAULT, ENTRIES, PLACEMENTS, headline, mode_of
from planstep.bench.compare.time_plans import BY_NAME, SLACK
from planstep.bench.compare.workloads import NAMES as ALL

Key = tuple[str, str, str, str]
NAMES = [name for name in ALL if name not in BY_NAME]


def key(cell: Cell) -> Key:
    options = cell.options
    return cell.workload, cell.system, options.durability, options.placement


def keys(planned: Plan, workload: str) -> dict[Key, int]:
    """Counts the runs of each cell of a workload."""
    return Counter(key(cell) for cell in planned.cells if cell.workload == workload)


# what the plan takes ------------------------------------------------------------------------------


@pytest.mark.parametrize("spark", [False, True])
@pytest.mark.parametrize("peers", [False, True])
@pytest.mark.parametrize(
    "words, promises", [("", (480, 1800)), ("quick", (120, 600)), ("thorough", (3600, 3600))]
)
def test_a_plan_keeps_its_promise(
    monkeypatch: pytest.MonkeyPatch, words: str, promises: tuple[int, int], peers: bool, spark: bool
) -> None:
    """It does so with slack by its own estimate, with Spark's part and with the starts of two peers' servers."""
    for name, warm_s in (("a", 20.0), ("b", 1.0)):
        server = partial(ToyServer)
        toy_entry = replace(toy(), name=name, peer=True, server=server, warm_s=warm_s)
        monkeypatch.setitem(ENTRIES, name, toy_entry)
        monkeypatch.setitem(PLACEMENTS, name, toy_entry.placements)
    systems = (*DEFAULT, "a", "b") if peers else DEFAULT
    options = ComparisonOptions(systems=systems, spark=spark, **({words: True} if words else {}))
    planned = plan(options)
    promise = promises[peers] + 60 * (words == "quick" and spark)
    assert planned.limit == promise
    assert promise / 3 < planned.seconds <= (1 - SLACK) * promise
    assert len({cell.name for block in planned.blocks for cell in block.cells}) == sum(
        len(block.cells) for block in planned.blocks
    )


def test_the_default_repeats_what_answers_questions() -> None:
    planned = plan(ComparisonOptions(spark=True))
    rows = Counter((cell.workload, cell.system) for cell in planned.cells)
    for system in DEFAULT:
        assert (rows["small", system], rows["move", system], rows["faults", system]) == (5, 3, 3)
    assert keys(planned, "reshard") == {
        ("reshard", "deterministic", "full", "shared"): 5,
        ("reshard", "kafka", "full", "separate"): 5,
        ("reshard", "pulsar", "full", "separate"): 5,
        ("reshard", "sqlite", "full", "shared"): 5,
        ("reshard", "deterministic", "full", "separate"): 1,
        ("reshard", "kafka", "full", "shared"): 1,
        ("reshard", "pulsar", "full", "shared"): 1,
    }
    assert len(planned.search) == len(DEFAULT)
    assert {cell.shape.rate for cell in planned.cells if cell.workload == "move"} == {None}


def test_quick_repeats_the_headlines_three_times() -> None:
    planned = plan(ComparisonOptions(quick=True))
    assert keys(planned, "small")["small", "sqlite", "full", "shared"] == 3
    assert keys(planned, "reshard")["reshard", "sqlite", "full", "shared"] == 3
    assert planned.search == []


def test_thorough_leaves_nothing_out() -> None:
    planned = plan(ComparisonOptions(thorough=True, spark=True))
    assert not any(block.spare for block in planned.blocks) and planned.left_out == []
    assert {cell.workload for cell in planned.cells} == set(NAMES)
    assert {c.options.durability for c in planned.cells if c.workload == "plain"} == {"full", "os"}
    assert keys(planned, "small")["small", "sqlite", "full", "shared"] == 9
    assert plan(ComparisonOptions()).cells[0].shape.duration < planned.cells[0].shape.duration


def test_what_the_promise_has_no_room_for_runs_if_time_is_left() -> None:
    planned = plan(ComparisonOptions(quick=True))
    spare = [block for block in planned.blocks if block.spare]
    assert not {cell.name for cell in planned.cells} & {c.name for b in spare for c in b.cells}
    said = {f"{block.omission.what}; {block.omission.why}" for block in spare if block.omission}
    assert "chain at durability os; it takes more than 2 minutes; --durability os runs it" in said
    assert "move at durability full; it takes more than 2 minutes; --workload move runs it" in said
    assert not any(what.startswith("faults at durability os") for what in said), (
        "never meant for it"
    )
    assert {cell.workload for block in planned.blocks for cell in block.cells} == set(NAMES)


def test_only_what_the_plan_made_up_is_limited() -> None:
    for options in (
        ComparisonOptions(duration=60.0),
        ComparisonOptions(repeat=5),
        ComparisonOptions(workloads=("reshard",)),
    ):
        planned = plan(options)
        assert planned.limit is None
        assert not any(block.spare for block in planned.blocks)


def test_how_to_run_what_was_left_out() -> None:
    def way(**options: Any) -> set[str]:
        return {
            f"{omission.what}: {omission.why.split('; ')[1]}"
            for omission in plan(ComparisonOptions(**options)).left_out
        }

    ways = way(workloads=("interval",), duration=60.0)
    assert ways == {"interval at durability os: --durability os runs it"}
    assert way(quick=True, duration=10.0) >= {
        "reshard at durability full in the other placement: --placement both runs it",
        "reshard at durability os in the other placement: --placement both --durability os runs it",
    }


def test_systems_join_the_first_of_their_mode_in_some_workloads() -> None:
    planned = plan(ComparisonOptions(thorough=True))
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


def orders(seed: int, workload: str = "reshard") -> list[list[str]]:
    """Returns the order of the systems in each round of a row."""
    planned = plan(ComparisonOptions(workloads=(workload,), durability="full", seed=seed, repeat=9))
    rows: dict[int, list[str]] = {}
    for cell in planned.cells:
        if cell.options.placement == headline(cell.system):
            rows.setdefault(cell.repeat, []).append(cell.system)
    return list(rows.values())


def test_the_order_of_a_row_is_drawn_from_the_seed_in_each_round() -> None:
    drawn = orders(1)
    assert all(sorted(order) == sorted(DEFAULT) for order in drawn)
    assert len({order[0] for order in drawn}) > 2 and len({tuple(order) for order in drawn}) > 4
    assert drawn == orders(1) != orders(2) != orders(1, "plain")


def test_a_round_has_each_row_once() -> None:
    planned = plan(ComparisonOptions())
    blocks = [block for block in planned.blocks if not block.late]
    told = [
        ({cell.repeat for cell in block.cells}, {cell.workload for cell in block.cells})
        for block in blocks
    ]
    headlines, others = {"reshard", "small"}, {"move", "faults"}
    three = [({number}, rows) for number in range(3) for rows in (headlines, others)]
    assert told == [*three, ({3}, headlines), ({4}, headlines)]
    always = [told[n] for n, block in enumerate(blocks) if block.omission is None]
    assert always == [({number}, headlines) for number in range(3)]


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
        ({"workloads": ("reshrad",)}, "--workload: no 'reshrad'; there are reshard, move"),
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


def test_the_rate_is_searched_with_reshard() -> None:
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


def test_faults_do_not_wait_for_kafkas_minute() -> None:
    time_outs = {
        c.workload: c.options.transaction_timeout_ms for c in plan(ComparisonOptions()).cells
    }
    assert time_outs["faults"] == 1000 and time_outs["reshard"] == 60_000


def test_cells_travel_as_json() -> None:
    import json

    for cell in plan(ComparisonOptions(quick=True)).cells:
        assert Cell.load(json.loads(json.dumps(cell.dump()))) == cell
        assert replace(cell, repeat=99).name != cell.name


# peers --------------------------------------------------------------------------------------------


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers two peers of one product, of which the second cannot run here."""
    mode = mode_of("sqlite")
    for name, lacking in (("toy", ""), ("toy-tuned", "there is no toy; apt install toys has one")):
        entry = replace(toy(), name=name, peer=True, unavailable=lambda lacking=lacking: lacking)
        monkeypatch.setitem(ENTRIES, name, entry)
        monkeypatch.setitem(PLACEMENTS, name, entry.placements)
        monkeypatch.setitem(_MODES, name, mode)


def systems_of(planned: Plan) -> set[str]:
    return {cell.system for cell in planned.cells}


@pytest.mark.usefixtures("peers")
def test_the_first_of_each_peer_is_added_and_those_that_lack_something_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = plan(ComparisonOptions(peers=True))
    added = systems_of(planned) - systems_of(plan(ComparisonOptions()))
    assert "toy" in added and "toy-tuned" not in added
    assert not [note for note in planned.notes if "Toy" in note], "nobody asked for the second"
    assert "toy" not in systems_of(plan(ComparisonOptions()))
    lacking = replace(ENTRIES["toy"], unavailable=ENTRIES["toy-tuned"].unavailable)
    monkeypatch.setitem(ENTRIES, "toy", lacking)
    planned = plan(ComparisonOptions(peers=True))
    named = "Toy 1.0 does not run: there is no toy; apt install toys has one"
    assert [note for note in planned.notes if "Toy" in note] == [named]
    assert "toy" not in systems_of(planned)


@pytest.mark.usefixtures("peers")
def test_named_systems_that_lack_something_are_skipped_unless_nothing_is_left() -> None:
    planned = plan(ComparisonOptions(systems=("toy-tuned", "deterministic")))
    assert systems_of(planned) == {"deterministic"} and len(planned.notes) == 1
    with pytest.raises(
        ValueError, match=r"nothing is left to run: Toy 1.0 does not run: there is no"
    ):
        plan(ComparisonOptions(systems=("toy-tuned",)))
