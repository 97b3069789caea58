"""Tests the search for the highest rate against a model of a system, and the curves that its runs become."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from comparisons import MACHINE

from planstep.bench.compare.cell import Cell, Result
from planstep.bench.compare.curves import curves
from planstep.bench.compare.harness import Outcome, carry_out
from planstep.bench.compare.options import ComparisonOptions
from planstep.bench.compare.plan import Block, Plan
from planstep.bench.compare.rate_search import (
    CLOSE,
    FIGURES,
    NEAR,
    SHARES,
    THOROUGH,
    USUAL,
    Budget,
    Search,
)
from planstep.bench.compare.run_cell import run_cell
from planstep.bench.compare.summary import summarize
from planstep.bench.compare.systems.base import Options
from planstep.bench.compare.workloads import reshard
from planstep.bench.compare.workloads.base import Shape

# the search ---------------------------------------------------------------------------------------


class Model(NamedTuple):
    """A system that sustains `limit` MB/s, more or less by `noise`, and as fast as it goes reaches `unpaced` of it.

    `stalls` is the share of runs that fail at any rate.
    """

    limit: float
    unpaced: float = 1.1
    noise: float = 0.0
    stalls: float = 0.0

    def run(self, rate: float, draw: random.Random) -> tuple[bool | None, float]:
        """Returns (sustained, MB/s that got through)."""
        if math.isinf(rate):
            return None, self.limit * self.unpaced
        limit = self.limit * (1 + draw.gauss(0, self.noise))
        if rate <= limit:
            return draw.random() >= self.stalls, rate
        return False, limit


def searched(model: Model, budget: Budget, begin: float = 5.0, seed: int = 1) -> Search:
    """Runs a whole search, after a first run at `begin`; checks `low` and `high` by brute force after each."""
    draw = random.Random(seed)
    sustained, _ = model.run(begin, draw)
    search, told = Search(begin, sustained, budget), [(begin, bool(sustained))]
    top: float = math.inf
    while (rate := search.next()) is not None:
        if math.isinf(rate):
            search.tell(rate, True, None, throughput := model.run(rate, draw)[1])
            if throughput > (search.low or 0.0):
                told.append((top := float(f"{throughput:.4g}"), False))
        else:
            sustained, throughput = model.run(rate, draw)
            search.tell(rate, True, sustained, throughput)
            told.append((rate, bool(sustained)))
            assert rate <= max(top, begin) or top <= search.low, "a rate above full speed is tried"
        low = max((rate for rate, sustained in told if sustained), default=None)
        assert search.low == low
        failed = [rate for rate, sustained in told if not sustained and rate > (low or 0.0)]
        assert search.high == min(failed, default=None)
    assert len(search.runs) <= budget.runs
    return search


@pytest.mark.parametrize("budget", [USUAL, THOROUGH])
@pytest.mark.parametrize("limit", [0.3, 4.0, 5.0, 6.6, 21.0, 60.0, 290.0, 1500.0])
@pytest.mark.parametrize("unpaced", [1.0, 1.1, 1.4, 3.0])
def test_the_search_finds_the_rate_in_a_few_runs(
    limit: float, unpaced: float, budget: Budget
) -> None:
    search = searched(Model(limit, unpaced), budget)
    assert search.low is not None and search.low <= limit
    if budget is THOROUGH:
        assert search.low >= limit / CLOSE
    elif limit >= 5.0:
        assert search.low >= limit / 1.5


def test_a_search_without_noise_never_learns_what_it_knew() -> None:
    search = searched(Model(70.0), THOROUGH)
    for n, run in enumerate(search.runs[1:], 1):
        rate, before = run["rate_mb_s"], search.runs[1:n]
        sustained = [one["rate_mb_s"] for one in before if one["sustained"]]
        failed = [one["rate_mb_s"] for one in before if not one["sustained"]]
        retried = failed.count(rate) == 1 and rate == min(failed)
        filled = any(
            math.isclose(rate, share * (search.low or 0), rel_tol=1e-3) for share in SHARES
        )
        within = max(sustained, default=5.0) < rate < min(failed, default=math.inf)
        assert within or retried or filled


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("stalls", [0.0, 0.1])
def test_noise_neither_confuses_the_search_nor_empties_the_curve(seed: int, stalls: float) -> None:
    draw = random.Random(f"model {seed}")
    limit, unpaced = 10 ** draw.uniform(1, 2.5), draw.uniform(0.95, 1.5)
    model = Model(limit, unpaced, 0.05, stalls)
    search = searched(model, THOROUGH, seed=seed)
    assert search.low is not None
    assert stalls or limit / 1.35 < search.low < limit * 1.25
    rates = [5.0, *(run["rate_mb_s"] for run in search.runs if run["rate_mb_s"])]
    for share in SHARES:
        nearest = min(abs(rate - share * search.low) for rate in rates)
        assert nearest <= NEAR * search.low * 1.001 or len(search.runs) == THOROUGH.runs


@pytest.mark.parametrize("limit", [9.0, 40.0, 200.0])
def test_the_usual_budget_has_five_points_up_to_the_highest_rate(limit: float) -> None:
    search = searched(Model(limit, 1.2), USUAL)
    assert search.low is not None
    points = sorted({5.0, *(run["rate_mb_s"] for run in search.runs if run["sustained"])})
    assert 4 <= len(points) <= 7 and points[-1] == search.low
    gaps = [b - a for a, b in zip([0.0, *points], points, strict=False)]
    assert max(gaps) <= 0.55 * search.low


def test_a_stall_at_the_first_rate_does_not_hide_those_above_it() -> None:
    search = Search(5.0, False, USUAL)
    search.tell(math.inf, True, None, 100.0)
    assert search.next() == 5.0, "once more"
    search.tell(5.0, True, True, 5.0)
    assert (search.low, search.high) == (5.0, 100.0)
    assert search.next() == pytest.approx(70.71)


def test_an_overloaded_run_says_what_to_try_next() -> None:
    search = Search(5.0, True, USUAL)
    search.tell(math.inf, True, None, 100.0)
    search.tell(70.71, True, False, 20.0)
    assert search.next() == 19.0


def test_what_other_runs_reached_spares_a_run() -> None:
    search = Search(5.0, True, Budget(3, 2, 1.0))
    search.know_reached(100.0)
    assert search.next() == pytest.approx(70.71) and search.left == 3
    assert [(run["rate_mb_s"], run["throughput_mb_s"]) for run in search.runs] == [(None, 100.0)]
    while (rate := search.next()) is not None:
        assert not math.isinf(rate)
        search.tell(rate, True, True, rate)
    assert search.left == 0 and len(search.runs) == 4
    other = Search(5.0, True, Budget(3, 2, 1.0))
    other.know_reached(None)
    assert other.next() == math.inf and other.left == 3


def test_a_run_that_did_not_verify_sustained_nothing() -> None:
    search = Search(20.0, None)
    while (rate := search.next()) is not None:
        search.tell(rate, False, True, 100.0)
    assert search.low is None
    assert not any(run["sustained"] for run in search.runs)


# curves -------------------------------------------------------------------------------------------


def small(per_second: float, **more: Any) -> Result:
    """Makes a result of the workload small, with 1 and 4 threads."""
    one = {
        "threads": 1,
        "transactions_per_second": per_second,
        "commit_ms": {"p50": 1000 / per_second, "p99": 9.0, "max": 12.0},
        "done_ms": None,
        "cpu_ms": 0.4,
        "disk_bytes": 400.0,
        "syncs": None,
    }
    four = {**one, "threads": 4, "transactions_per_second": 3 * per_second}
    extra = {"concurrency": {"1": one, "4": four}}
    return Result(Cell("small", "sqlite"), verified=True, extra=extra, **more)


def test_threads_have_the_median_of_their_repeats_and_its_range() -> None:
    repeats = [small(100.0), small(300.0), small(250.0)]
    (curve,) = curves({}, [], repeats)["concurrency"]
    assert {name: curve[name] for name in ("system", "placement", "durability")} == {
        "system": "sqlite",
        "placement": "shared",
        "durability": "full",
    }
    first, second = curve["points"]
    assert first["transactions_per_second"] == {"median": 250.0, "low": 100.0, "high": 300.0}
    assert first["commit_ms"] == {"p50": 4.0, "p99": 9.0} and first["done_ms"] is None
    assert (first["cpu_ms"], first["disk_bytes"], first["syncs"]) == (0.4, 400.0, None)
    assert (second["threads"], second["transactions_per_second"]["median"]) == (4, 750.0)
    wrong = Result(Cell("small", "sqlite"), missing=1)
    assert curves({}, [], [*repeats, wrong])["concurrency"] == []
    assert curves({}, [], [Result(Cell("plain", "sqlite"), verified=True)])["concurrency"] == []


def test_a_rate_has_one_point_and_the_first_rate_is_the_cells_own() -> None:
    cell = Cell("reshard", "sqlite")
    entry = {"verified": True, "sustained": True, "throughput_mb_s": 5.0, "commit_ms": {"p50": 2.0}}
    entry |= dict.fromkeys(FIGURES[2:], 1.0)
    systems = {"sqlite": {"reshard": {"full": {"shared": entry}}}}
    search = Search(5.0, True)
    search.tell(math.inf, True, None, 90.0)
    search.tell(60.0, True, False, 55.0, cpu_cores=1.5)
    search.tell(60.0, True, True, 60.0, commit_ms={"p50": 3.0})
    search.tell(30.0, True, False, 30.0)
    (curve,) = curves(systems, [(cell, search)], [])["rate"]
    assert curve["highest_mb_s"] == 60.0
    points = {point["rate_mb_s"]: point for point in curve["points"]}
    assert list(points) == [5.0, 30.0, 60.0]
    assert points[60.0]["sustained"] and points[60.0]["commit_ms"] == {"p50": 3.0}
    assert not points[30.0]["sustained"] and points[5.0]["commit_ms"] == {"p50": 2.0}
    assert set(points[5.0]) == set(points[60.0])


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Runs a short comparison of two systems, with a search; of one it is known how fast it goes."""
    shape = Shape(
        rate=0.4, record_size=200, partitions=3, commit_interval=0.05, duration=0.3, workers=2
    )
    first, other = (Cell("reshard", name, Options(), shape) for name in ("sqlite", "deterministic"))
    cells = [first, other, replace(first, workload="move", shape=replace(shape, rate=None))]
    plan = Plan([Block(cells)], search=[first, other], budget=Budget(3, 2, 0.3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reshard, "INPUT_BYTES_MAX", 1_000_000)
        return carry_out(plan, run_cell, tmp_path_factory.mktemp("curves"))


def test_a_real_search_makes_a_curve(outcome: Outcome) -> None:
    options = ComparisonOptions(workloads=("reshard", "move"), rate=0.4)
    summary = json.loads(json.dumps(summarize(options, outcome, MACHINE)))
    known = summary["systems"]["sqlite"]["move"]["full"]["shared"]["throughput_mb_s"]
    for curve, runs in zip(summary["curves"]["rate"], (4, 3), strict=True):
        entry = summary["systems"][curve["system"]]["reshard"]["full"]["shared"]
        assert curve["highest_mb_s"] == entry["highest_sustained_mb_s"]
        unpaced, *paced = entry["rate_search"]
        assert len(entry["rate_search"]) == runs and unpaced["rate_mb_s"] is None
        reached = unpaced["throughput_mb_s"]
        assert (reached == pytest.approx(known, abs=1e-4)) == (curve["system"] == "sqlite")
        rates = {run["rate_mb_s"] for run in paced} | {0.4}
        assert [point["rate_mb_s"] for point in curve["points"]] == sorted(rates)
        for point in curve["points"]:
            assert point["verified"]
            assert (point["end_to_end_ms"] is not None) == point["sustained"]
            assert (point["commit_ms"] is not None) == point["sustained"]
            assert point["cpu_cores"] > 0 and point["cpu_ms_per_transaction"] > 0
            assert point["disk_bytes_per_payload_byte"] > 0 and point["syncs_per_transaction"] > 0


@pytest.mark.parametrize("late", [1, 2])
def test_the_first_rate_is_sustained_as_its_entry_says(tmp_path: Path, late: int) -> None:
    first = Cell("reshard", "sqlite", Options(), Shape(rate=4.0))
    # Only the first repeat keeps its store, for Spark.
    cells = [replace(first, repeat=n, keep_store=not n) for n in range(3)]
    plan = Plan([Block(cells)], search=[cells[0]])
    tried: list[float | None] = []

    def run(cell: Cell, folder: Path) -> Result:
        searching = cell.repeat >= len(cells)
        if searching:
            tried.append(cell.shape.rate)
        sustained = searching or cell.repeat >= late
        return Result(cell, verified=True, sustained=sustained, throughput_mb_s=90.0)

    outcome = carry_out(plan, run, tmp_path)
    ((_, search),) = outcome.searches
    options = ComparisonOptions(workloads=("reshard",), systems=("sqlite",))
    entry = summarize(options, outcome, MACHINE)["systems"]["sqlite"]["reshard"]["full"]["shared"]
    assert search.sustained == entry["sustained"] == (late == 1)
    assert tried[0] is None and (tried[1] == 4.0) == (late == 2), "once more if most were late"


def test_every_field_of_a_curve_is_explained(outcome: Outcome) -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    both = curves(
        summarize(ComparisonOptions(), outcome, MACHINE)["systems"],
        outcome.searches,
        [*outcome.results, small(9.0)],
    )
    for kind, of_kind in both.items():
        for curve in of_kind:
            for name in (kind, *curve, *curve["points"][0]):
                assert f"`{name}`" in page, name
