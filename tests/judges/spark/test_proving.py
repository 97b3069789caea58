"""Tests Spark against the checker: good and bad histories, all in one folder, so that each check runs once."""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from histories import add_consume, add_produce, add_transaction, of_an_aborted_one, put, show
from test_check_model import bridged, committed, random_trace, read_of, seen_then, small
from test_check_readers import (
    ORDERS,
    POLLS,
    A,
    B,
    C,
    circle,
    followed,
    interleaved,
    mixed_circle,
    passed_on,
    sent_by_one,
    with_room,
)
from test_check_records import random_records, spoiled

from planstep.bench.judges.python import IN_PLACE, NONE, PLANNED, judge
from planstep.bench.judges.python.generate import FEEDS, Mix, generate
from planstep.bench.judges.python.plant import IN_STORES, KINDS, WITHOUT_PLACES, plant
from planstep.bench.judges.spark import certificate, loading
from planstep.bench.judges.spark.folders import BadTrace
from planstep.bench.judges.spark.loading import Traces
from planstep.bench.judges.spark.logs import components
from planstep.bench.judges.spark.prove import Proof, prove
from planstep.bench.judges.trace import (
    ABORTED,
    COMMITTED,
    UNDETERMINED,
    Trace,
    Transaction,
)

PASSED_ON = ("lost", "repeated", "reordered")


class Case(NamedTuple):
    name: str
    trace: Trace
    mode: str
    feeds: dict[str, str]


def planted() -> Iterator[Case]:
    for seed in range(2):
        clean = generate(300, seed, Mix(inputs=2, outputs=3, rows=20, undetermined=0.02))
        yield Case(f"clean-{seed}", clean, PLANNED, FEEDS)
        for kind in KINDS:
            yield Case(f"{kind}-{seed}", plant(clean, kind, seed), PLANNED, FEEDS if seed else {})
    for kind in (*IN_STORES, *WITHOUT_PLACES):
        yield Case(f"kafka {kind}", plant(clean, kind, 5), IN_PLACE, FEEDS)
    for kind in WITHOUT_PLACES:
        yield Case(f"none {kind}", plant(clean, kind, 6), NONE, FEEDS)
    clean = generate(300, 4, Mix(passed_on=True, undetermined=0.02))
    yield Case("clean, passed on", clean, PLANNED, FEEDS)
    for kind in PASSED_ON:
        yield Case(f"{kind}, passed on", plant(clean, kind, 6), PLANNED, FEEDS)


def readers() -> Iterator[Case]:
    for n, (polls, _) in enumerate(POLLS):
        yield Case(f"polls-{n}", followed(*polls), IN_PLACE, {})
    yield Case("early", followed(A | B | C, proposed=101), IN_PLACE, {})
    yield Case("not early", followed(A | B | C, proposed=100), IN_PLACE, {})
    yield Case("aborted", followed(A | B | C, outcome=ABORTED), IN_PLACE, {})
    for n, at in enumerate((300, 150)):
        yield Case(f"passed on, shown {n}", passed_on(at, IN_PLACE), IN_PLACE, {"out": "in/c"})


def logs() -> Iterator[Case]:
    for n, (order, _) in enumerate(ORDERS):
        for mode in (IN_PLACE, NONE):
            yield Case(f"{mode} log-{n}", interleaved(order), mode, {})
    yield Case("circle", circle(), IN_PLACE, {})
    yield Case("mixed circle", mixed_circle(), IN_PLACE, {})
    for replied in (10, 30):
        yield Case(f"sends-{replied}", sent_by_one(replied), IN_PLACE, {})
    draw = random.Random(3)
    for n in range(6):
        order = [[draw.randrange(9) for _ in range(12)] for _ in range(2)]
        yield Case(f"drawn log-{n}", interleaved(order), IN_PLACE, {})


def certificates() -> Iterator[Case]:
    for version in (1, -1, 3, 4, 9):
        yield Case(f"version {version}", read_of(version), PLANNED, {})
    for version in (3, 1, 0):
        yield Case(f"seen, then {version}", seen_then(version), PLANNED, {})
    for n, tries in enumerate((((2, 5),), ((2, 4), (4, 5), (2, 6)), ((2, 4),), ((2, 6),))):
        yield Case(f"bridge-{n}", bridged(*tries), PLANNED, {})
    aborted = Transaction(1, "1", "w", ABORTED)
    for n, row in enumerate(
        ((committed(0, 1), committed(1, 1)), (committed(0, None),), (aborted._replace(step=1),))
    ):
        yield Case(f"places-{n}", small(*row), PLANNED, {})
    for n, between in enumerate(([(3, 0, -1)], [], [(3, 0, 0)])):
        yield Case(f"room-{n}", with_room(between), PLANNED, {})
    draw = random.Random(1)
    for n in range(40):
        yield Case(f"drawn-{n}", random_trace(draw), PLANNED, {})


def delivered(draw: random.Random, fed: bool) -> Trace:
    """Makes some transactions with correct records, and then damages something."""
    outcomes = ABORTED, COMMITTED, COMMITTED, UNDETERMINED
    trace, lanes, aborted = random_records(draw, outcomes, fed)
    spoiled(draw, lanes, [] if fed else aborted)
    for partition, lane in enumerate(lanes):
        put(trace, partition, lane)
    return trace


def deliveries() -> Iterator[Case]:
    draw = random.Random(2)
    for n in range(40):
        fed = n % 2 == 0
        yield Case(f"delivered-{n}", delivered(draw, fed), IN_PLACE, {"out": "in/c"} if fed else {})
    skipped = Trace()
    for tx, (begin, end) in enumerate(((0, 2), (3, 4))):
        add_transaction(skipped, tx)
        add_consume(skipped, tx, begin, end)
    put(skipped, 0, [(0, 0, -1), (0, 1, -1), (0, 3, -1)])
    yield Case("skipped", skipped, NONE, {"out": "in/c"})
    given_up = Trace()
    add_transaction(given_up, 0, ABORTED)
    add_consume(given_up, 0, 0, 1)
    put(given_up, 0, [(0, 0, -1), (0, 5, -1)])
    yield Case("given up", given_up, NONE, {"out": "in/c"})
    for stored in range(3):
        yield Case(
            f"given up, {stored} there", of_an_aborted_one(stored), IN_PLACE, {"out": "in/c"}
        )
    chain = Trace()
    for tx, name in enumerate(("a/c", "b/c")):
        add_transaction(chain, tx)
        add_consume(chain, tx, 0, 2, name)
    for topic, records in (("a", [4, 9]), ("b", [4, 9]), ("d", [4])):
        put(chain, 0, [(7, ordinal, -1) for ordinal in records], topic)
    yield Case("chain", chain, NONE, {"b": "a/c", "d": "b/c"})


def saved(folder: Path, cases: list[Case]) -> Path:
    for number, (name, trace, mode, feeds) in enumerate(cases):
        trace.about = {**trace.about, "history": mode, "feeds": feeds}
        trace.save(folder / "traces" / f"{number:03d}-{name.replace(' ', '-')}")
    return folder


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*planted(), *readers(), *logs(), *certificates(), *deliveries()]


NEVER = {
    "a cartesian product": "CartesianProduct",
    "a nested loop": "BroadcastNestedLoopJoin",
    "a window over all rows": r"windowspecdefinition\([^,(]* (ASC|DESC) NULLS",
}


def plans(spark: Any) -> list[str]:
    """Returns the physical plans of all queries that ran in the session."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # plans come by events
    ran = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [ran.apply(n).physicalPlanDescription() for n in range(ran.size())]


def test_each_history_is_judged_as_the_checker_does(
    spark: Any, tmp_path: Path, cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows count as hot from few operations on, and buckets are small, so code for large histories runs too.

    No plan of all that ran has a step that one task does for all rows.
    """
    monkeypatch.setattr(loading, "HOT", 5)
    monkeypatch.setattr(certificate, "BUCKETS", 4)
    traces = Traces.of(spark, saved(tmp_path, cases))
    proof = Proof(traces, None, lambda line: None)
    proof.read()
    proof.check()
    by_run = proof.by_run()
    assert proof.rows_read > 10_000 and traces.hot
    wrong = set()
    for case, run in zip(cases, traces.runs, strict=True):
        wanted = judge(case.trace, mode=case.mode, feeds=case.feeds).counts
        assert by_run.get(run.name, {}) == wanted, run.name
        wrong |= set(wanted)
    assert wrong >= {*KINDS, *WITHOUT_PLACES} and len(wrong) > 24, wrong
    ran = plans(spark)
    assert sum("Window" in plan for plan in ran) > 10
    for what, shape in NEVER.items():
        assert [plan for plan in ran if re.search(shape, plan)] == [], what


def test_bad_plans_are_recognised(spark: Any) -> None:
    for what, query in (
        (
            "a cartesian product",
            "select /*+ shuffle_replicate_nl(b) */ a.id from range(9) a join range(9) b",
        ),
        ("a nested loop", "select count(*) from range(9) a left join range(9) b on a.id < b.id"),
        (
            "a window over all rows",
            "select max(at) from (select row_number() over (order by id) as at from range(9))",
        ),
    ):
        spark.sql(query).collect()
        assert re.search(NEVER[what], plans(spark)[-1]), what


@pytest.mark.parametrize("written", ["by nobody", "by transactions that consume nothing"])
def test_a_folder_may_have_runs_of_one_kind_only(spark: Any, tmp_path: Path, written: str) -> None:
    """No topic is fed, no row is hot, nothing is committed: a single run of one workload may look like this."""
    if written == "by nobody":
        trace = Trace()
        put(trace, 0, [(0, n, -1) for n in range(5)])
        show(trace, 0, {n: (0, n, -1) for n in range(5)})
    else:
        trace = generate(30, 1)
    proof = Proof(Traces.of(spark, saved(tmp_path, [Case("one", trace, PLANNED, {})])), None, print)
    proof.read()
    proof.check()
    assert proof.by_run() == {} and judge(trace, mode=PLANNED).counts == {}


def test_a_store_that_holds_nothing_at_all_is_judged(spark: Any, tmp_path: Path) -> None:
    trace = Trace()
    add_transaction(trace, 0)
    add_produce(trace, 0, 2)
    proof = Proof(
        Traces.of(spark, saved(tmp_path, [Case("one", trace, IN_PLACE, {})])), None, print
    )
    proof.read()
    proof.check()
    assert (
        proof.by_run()
        == {"000-one": {"lost": 2}}
        == {"000-one": judge(trace, mode=IN_PLACE).counts}
    )


def test_a_trace_that_cannot_be_judged_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="no traces"):
        prove(spark, tmp_path)
    run = tmp_path / "traces" / "one"
    for name, spoil in (
        ("seen.parquet", lambda path: path.unlink()),
        ("records.parquet", lambda path: path.write_bytes(b"PAR1 and nothing behind it")),
        ("run.json", lambda path: path.write_text('{"schema": 2}')),
    ):
        generate(5, 1).save(run)
        spoil(run / name)
        with pytest.raises(BadTrace, match=name):
            prove(spark, tmp_path)


def test_a_transaction_that_is_there_twice_cannot_be_judged(spark: Any, tmp_path: Path) -> None:
    trace = small(committed(0, 1), committed(0, 2))
    with pytest.raises(BadTrace, match="000-twice has transaction 0 twice"):
        prove(spark, saved(tmp_path, [Case("twice", trace, PLANNED, {})]))


def test_components_are_those_that_reach_each_other() -> None:
    draw = random.Random(2)
    for _ in range(200):
        edges = [(a, b) for a in range(7) for b in range(7) if a != b and draw.random() < 0.2]
        reach = {(a, b) for a, b in edges}
        for middle in range(7):
            reach |= {(a, b) for a, m in reach if m == middle for n, b in reach if n == middle}
        wanted = {
            frozenset(b for b in range(7) if (a, b) in reach and (b, a) in reach)
            for a in range(7)
            if (a, a) in reach
        }
        assert {frozenset(component) for component in components(edges)} == wanted
