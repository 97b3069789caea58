# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Ask a comparison questions, with Spark
#
# **You will learn** how to analyse the traces that `planstep compare` keeps: of all its workloads, on all
# systems. You load them as tables, and ask: were all records delivered exactly once? How long does a commit take,
# and when can others read it? Who writes what to the disk? Which anomalies are there? What happens at higher
# rates?
#
# **It takes** fifteen minutes to read and about a minute to run. It needs `pip install
# "planstep[notebooks,spark,bench]"`, and Java 17 or newer (or the extra `spark-jre`).
#
# The traces of a small comparison come with the package. Give `FOLDER` your own, and all cells answer for that.

# %%
import json
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from pyspark.sql import functions as F

import pyspark_planstep
from planstep.bench.compare.systems import ENTRIES
from planstep.bench.notebooks.drawing import line_style, set_style, show
from planstep.bench.notebooks.sample import unpack
from planstep.bench.report.text.durable_writes import ROWS

# %% tags=["parameters"]
# FOLDER: of `planstep compare --out FOLDER`, with all workloads; "": the sample of this package.
# MASTER: the URL of a cluster, as in "spark://host:7077"; "": this machine.
FOLDER = ""
MASTER = ""

# %%
set_style()
temporary = tempfile.TemporaryDirectory(prefix="planstep-notebook-")
scratch = Path(temporary.name)
folder = Path(FOLDER).resolve() if FOLDER else unpack(scratch)
many_small_files = {
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.shuffle.partitions": "4",
}
spark = pyspark_planstep.session(
    "planstep notebook", MASTER or "local[*]", many_small_files, folder=scratch, quiet=True
)
print("Spark", spark.version, "at", spark.sparkContext.master)

# %% [markdown]
# ## The tables
#
# A comparison makes a run of each workload on each system, and each run leaves the same Parquet files
# (docs/compare.md lists their columns). All files of one name make one table here. The column `run` is the folder
# of the file, and `nth` is a row's number in its file: lanes are referred to by it.
#
# `runs` says what each run was. It is made of their `run.json`, and joined with the systems' names in words.

# %%
TABLES = ("transactions", "operations", "batches", "records", "inputs", "seen", "lanes")
RUN = "regexp_extract(_metadata.file_path, '^(.*)/', 1) as run"
for table in TABLES:
    frame = spark.read.parquet(f"{folder}/traces/*/{table}.parquet")
    frame.selectExpr("*", RUN, "_metadata.row_index as nth").createOrReplaceTempView(table)

ABOUT = """feeds map<string, string>, steps map<string, double>,
    cell struct<workload: string, system: string, repeat: int,
      options: struct<placement: string, durability: string>>"""
about = spark.read.schema(ABOUT).option("multiLine", True).json(f"{folder}/traces/*/run.json")
names = [(n, name, e.line_style.name, e.headline) for n, (name, e) in enumerate(ENTRIES.items())]
systems = spark.createDataFrame(names, "nth int, system string, label string, meant string")
runs = (
    about.selectExpr("*", "cell.*", "cell.options.*", RUN)
    .drop("cell")
    .join(F.broadcast(systems), "system")
    .cache()
)
runs.createOrReplaceTempView("runs")
# The runs of systems as they are meant to stand: reshard runs them in their other placement, too.
first = runs.filter("repeat = 0 and durability = 'full'")
first.filter("placement = meant").createOrReplaceTempView("base")


def ask(query: str) -> pd.DataFrame:
    return spark.sql(query).toPandas()


def wide(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Returns a column with a row for each workload, and a column for each system."""
    pivot = frame.pivot_table(column, "workload", "label", sort=False)
    return pivot.map(
        lambda value: "" if pd.isna(value) else f"{round(value, 2):,}".removesuffix(".0")
    )


committed = ask("""
    select workload, label, count_if(outcome = 'committed') as committed
    from base b left join transactions using (run) group by workload, label, b.nth order by workload, b.nth""")
wide(committed, "committed")

# %% [markdown]
# Each cell is the number of committed transactions. `plain` writes without any. Some systems run only in the
# workload that they were made for: batched logs in log-batching, snapshots in aborts, 64 transactions a COMMIT in
# small.
#
# ## Exactly once, as a join
#
# A record begins with its identity: the partition and the number of the input record that it was made of. `feeds`
# says which topic is made of what: a consumer of a topic. So a join of consumed and stored records proves exactly
# once. A record is consumed if a *committed* transaction moved a position over it.

# %%
delivery = ask("""
    with feeds as (select run, explode(feeds) as (topic, consumer) from runs),
    stored as (
      select r.run, l.name as topic, l.partition, offset, source, ordinal
      from (select run, lane, offset, source, ordinal from records union all
            select run, lane, offset, source, ordinal from inputs) r
      join lanes l on l.run = r.run and l.nth = r.lane),
    moved as (  -- committed transactions moved the consumer of `topic`'s input over these
      select o.run, f.topic, substring_index(l.name, '/', 1) as input, l.partition,
        explode(sequence(o.begin, o.end - 1)) as offset
      from operations o
      join transactions t on t.run = o.run and t.tx = o.tx and t.outcome = 'committed'
      join lanes l on l.run = o.run and l.nth = o.lane and l.kind = 'consumer'
      join feeds f on f.run = o.run and f.consumer = l.name
      where o.op = 'consume'),
    consumed as (
      select m.run, m.topic, s.source, s.ordinal
      from moved m join stored s
        on s.run = m.run and s.topic = m.input and s.partition = m.partition and s.offset = m.offset),
    made as (
      select run, topic, source, ordinal, count(*) as times
      from stored join feeds using (run, topic) group by all)
    select workload, label, count(c.ordinal) as consumed, count_if(m.times is null) as missing,
      count_if(m.times > 1) as repeated, count_if(c.ordinal is null) as from_nowhere
    from consumed c full join made m using (run, topic, source, ordinal)
    join runs using (run) group by workload, label""")
wrong = delivery[["missing", "repeated", "from_nowhere"]]
print(f"{delivery['consumed'].sum():,} records consumed:", wrong.sum().to_dict())
assert (wrong == 0).all(axis=None) and (delivery["consumed"] > 0).all()
wide(delivery, "consumed")

# %% [markdown]
# ## How long a commit takes
#
# From the call of commit to its answer. A line leads from the median to the 99th percentile (nearest-rank).

# %%
transactions = spark.table("transactions").filter("outcome = 'committed' and proposed is not null")
base = spark.table("base").select("run", "workload", "system", "label", "nth")
waits = (
    transactions.drop("nth")
    .join(F.broadcast(base), "run")
    .withColumn("commit_ms", F.expr("(reply - proposed) / 1e6"))
    .withColumn("visible_ms", F.expr("(visible - proposed) / 1e6"))
    .cache()
)
waits.createOrReplaceTempView("waits")


def percentiles(column: str) -> pd.DataFrame:
    shares = (
        F.expr(f"percentile_disc({share}) within group (order by {column})").alias(name)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    )
    by = waits.groupBy("workload", "system", "label", "nth")
    return by.agg(*shares).orderBy("workload", "nth").toPandas()


def listed(values: Any) -> str:
    return "; ".join(f"{name}: {value:,.4g}" for name, value in values.items())


def legend_below(figure: Any, ax: Any, columns: int = 4) -> None:
    lines = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))  # each name once
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.01), "ncols": columns}
    figure.tight_layout()
    figure.legend(lines.values(), lines.keys(), **place)


commits = percentiles("commit_ms")
figure, ax = plt.subplots(figsize=(10, 8))
workloads = list(dict.fromkeys(commits["workload"]))
for y, workload in enumerate(workloads):
    for place, row in enumerate(commits[commits["workload"] == workload].itertuples()):
        style = line_style(row.system)
        at = y - 0.36 + 0.1 * place
        ax.plot([row.p50, row.p99], [at, at], color=style["color"], lw=1)
        ax.plot(row.p50, at, color=style["color"], marker=style["marker"], ls="", label=row.label)
    ax.axhline(y + 0.5, color="#e0e0e0", lw=0.8)
ax.set(
    xscale="log", xlabel="commit, ms: median to 99th percentile", ylim=(len(workloads) - 0.5, -0.5)
)
ax.set_yticks(range(len(workloads)), workloads)
ax.set_title("How long a commit takes, by workload and system")
ax.xaxis.set_major_formatter("{x:g}")
legend_below(figure, ax)
fastest = commits.loc[commits.groupby("workload")["p50"].idxmin()]
won = fastest.groupby("label")["workload"].agg(", ".join)
spelled = "; ".join(f"{label}: {where}" for label, where in won.items())
show(figure, f"Dots and lines of the commits' durations. The lowest median is that of {spelled}.")
print("lowest median commit:", *won.items(), sep="\n    ")

# %% [markdown]
# A commit means different things. SQLite and mode deterministic answer when the transaction is durable and
# visible. The Kafka-style mode answers with the decision. The Pulsar-style one answers when all participants have
# the end of the transaction. So the next question is when *others* can read it.
#
# ## When others can read it
#
# From the call of commit until all of the transaction can be read. In `reshard` four workers write to all
# partitions, and commit every 200 ms. In `held-open` one transaction stays open while others commit beside it.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True)
for ax, workload in zip(axes, ("reshard", "held-open"), strict=True):
    curves = ask(f"""
        select system, label, visible_ms, 100 * cume_dist() over (partition by system order by visible_ms) as share
        from waits where workload = '{workload}' and visible_ms is not null order by nth, visible_ms""")
    by_system = curves.groupby(["system", "label"], sort=False)
    for number, ((system, label), curve) in enumerate(by_system):
        width = max(1.0, 3.2 - 0.6 * number)  # so that no line hides another
        style = line_style(str(system)) | {"marker": "", "lw": width}
        ax.step(curve["visible_ms"], curve["share"], where="post", label=label, **style)
    ax.set(xscale="log", xlabel="from commit to visible, ms", title=f"workload {workload}")
    ax.xaxis.set_major_formatter("{x:g}")
axes[0].set_ylabel("transactions that took no longer, %")
legend_below(figure, axes[0])
visible = percentiles("visible_ms")
middle = visible.pivot_table("p50", "workload", "label", sort=False)
held = listed(middle.loc["held-open"].dropna())
show(figure, f"Distributions of the time from commit to visible. Medians in held-open, ms: {held}.")
if {"deterministic", "kafka-style", "pulsar-style"} <= set(middle.columns):
    for workload in ("reshard", "held-open"):
        own, *others = middle.loc[workload, ["deterministic", "kafka-style", "pulsar-style"]]
        assert own < min(others)
wide(visible, "p50")

# %% [markdown]
# Kafka-style and Pulsar-style readers stop at the first record of an open transaction (the last stable offset,
# the max read position). So a commit waits there for those that began before it, and for the held one as long as
# that is open. In mode deterministic and SQLite no reader waits.
#
# ## Who persists what
#
# A run's `steps` counts its durable changes for each transaction, by component and message. The join sums them up
# in the rows of the talk's table, which all three protocols share.

# %%
meanings = spark.createDataFrame(
    [(cause, n, meaning) for n, (meaning, causes) in enumerate(ROWS) for cause in causes],
    "cause string, nth int, meaning string",
)
steps = first.filter("workload = 'reshard'").select(
    F.concat_ws(", ", "label", "placement").alias("who"), F.explode("steps").alias("cause", "times")
)
written = (
    steps.join(F.broadcast(meanings), "cause", "left")
    .fillna({"meaning": "others", "nth": len(ROWS)})
    .groupBy("who", "nth", "meaning")
    .agg(F.sum("times").alias("changes"))
    .orderBy("nth", "who")
    .toPandas()
)
changes = written.pivot_table("changes", "who", "meaning", sort=False).fillna(0).sort_index()
totals = changes.sum(axis=1)
figure, ax = plt.subplots(figsize=(10, 3.6))
changes.plot.barh(stacked=True, ax=ax, colormap="cividis", width=0.7)
for y, total in enumerate(totals):
    ax.text(total, y, f" {total:.0f}", va="center")
ax.get_legend().remove()
ax.invert_yaxis()
title = "Who persists what in workload reshard (SQLite's are not counted)"
ax.set(xlabel="durable changes of a transaction", ylabel="", title=title)
legend_below(figure, ax, columns=3)
show(figure, f"Durable changes by purpose, stacked; in all: {listed(totals.round(0))}.")
ask("""
    select label, round(avg(participants), 1) as participants, round(avg(appends), 1) as appends,
      round(avg(syncs), 2) as syncs, round(avg(messages), 1) as messages,
      round(avg(client_bytes) / 1e3, 1) as kb_from_client, round(avg(tablet_bytes) / 1e3, 2) as kb_between_servers
    from waits where workload = 'reshard' group by label, nth order by nth""")

# %% [markdown]
# Placement *separate* stands for servers of their own, *shared* for one process with one log. Records and
# positions that are set aside are the largest part, but for mode deterministic in placement separate: there
# publication is, for participants write the votes that they exchange. Shared, they are in one turn, and no vote
# is written. The other two modes write the same in either placement.
#
# ## Transactions that failed, and why

# %%
ask("""
    select workload, label, cause, count(*) as transactions, round(avg((reply - begin) / 1e6), 1) as ms_until_then
    from transactions join runs using (run) where outcome != 'committed'
    group by workload, label, cause, runs.nth order by workload, runs.nth, cause""")

# %% [markdown]
# `Conflict`: another transaction wrote a row or moved a position first. `PRODUCER_FENCED`: another worker of the
# same name took over. `TransactionConflict`: another transaction acknowledges the same records. `rollback` was
# asked for.
#
# ## Anomalies: transactions seen in pieces
#
# A follower polls all partitions of the output during the run. Did it ever get a part of a transaction in one
# poll, and the rest in a later one? No record is lost by that. But a reader who acts on what it sees acts on half
# a transaction.

# %%
ask("""
    with polls as (
      select run, tx, count(distinct poll) as polls, (max(at) - min(at)) / 1e6 as ms
      from seen where tx >= 0 group by run, tx)
    select label, count(*) as transactions, count_if(polls > 1) as in_pieces, round(max(ms), 1) as ms_apart_at_most
    from polls join runs using (run) group by label, runs.nth order by runs.nth""")

# %% [markdown]
# ## All anomalies, by the judge
#
# The comparison's own judge looked at every run: the certificate of each transaction (reads, real time,
# positions, offsets), delivery, the follower's records, Kafka's list of anomalies. Its findings are in
# `results.json`. Violations must be none; some anomalies a mode's protocol allows. (`python -m
# planstep.bench.judges.spark FOLDER` judges the traces once more, on Spark, with code of its own.)

# %%
cells = [
    cell
    for by_workload in json.loads((folder / "results.json").read_text())["systems"].values()
    for by_durability in by_workload.values()
    for by_placement in by_durability.values()
    for cell in by_placement.values()
]
assert not any(cell.get("violations_by") for cell in cells)
allowed = [
    (f"{folder.name}/{trace}", anomaly, times)
    for cell in cells
    for anomaly, times in cell.get("allowed_by", {}).items()
    for trace in cell["traces"]
]
looked = sum((cell.get("judged") or {}).get("transactions", 0) for cell in cells)
print(f"{len(cells)} runs, {looked:,} transactions: no violation. Anomalies that are allowed:")
found = spark.createDataFrame(allowed, "trace string, anomaly string, times long")
found.createOrReplaceTempView("allowed")
ask("""
    select label, placement, workload, anomaly, sum(times) as times
    from allowed join runs on run like concat('%/', trace)
    group by label, placement, workload, anomaly, nth order by anomaly, nth, placement, workload""")

# %% [markdown]
# *G0*: two transactions' records stand in opposite orders in two partitions. *Internal send skip*: between two
# records of a transaction, one of another stands in the same partition. Both come from appending records in
# place, before the outcome is known. Mode deterministic and SQLite order transactions as a whole, and have none.
#
# ## At higher rates
#
# `log-batching` offers small transactions at rising rates: consume one record, write one, commit. Batched logs of
# coordinators were made for that, and so were turns that serve several inputs at once. A dot is a window of 0.2 s
# of a run: what was committed in it, and how long the commits took, by their median.

# %%
windows = ask("""
    select system, label, int(reply / 0.2e9) as window, 5 * count(*) as rate, avg(syncs) as syncs,
      percentile_disc(0.5) within group (order by commit_ms) as p50
    from waits where workload = 'log-batching' group by nth, system, label, window order by nth, rate""")
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharex=True)
columns = (("p50", "duration of a commit, ms"), ("syncs", "syncs for each transaction"))
for ax, (column, what) in zip(axes, columns, strict=True):
    for (system, label), dots in windows.groupby(["system", "label"], sort=False):
        style = line_style(str(system)) | {"ls": "", "ms": 5, "alpha": 0.8}
        ax.plot(dots["rate"], dots[column], label=label, **style)
    ax.set(xscale="log", yscale="log", xlabel="transactions committed, a second", ylabel=what)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    ax.set_xticks([20, 50, 100, 200, 500])
figure.suptitle("Rate against the duration of a commit, and against its share of syncs")
legend_below(figure, axes[0])
by_system = windows.groupby("label", sort=False)
best = by_system["rate"].max()
show(figure, f"Windows of {len(best)} systems. The most transactions a second: {listed(best)}.")
pd.DataFrame({"at most a second": best, "syncs at least": by_system["syncs"].min().round(2)})

# %% [markdown]
# At these rates batched logs do not pay: they save appends, but a commit waits for its entry to be full or due. A
# turn that serves several inputs saves more. Without it (*ungrouped*) every input has a sync of its own, eight a
# transaction.
#
# ## On a cluster
#
# The code above runs on any Spark. `FOLDER` is then a place that all executors see, and `MASTER` is
# `spark://host:7077`, `yarn` or `k8s://…`. Executors need no Python packages, and no stores. Where there are
# stores, `spark.read.format("planstep")` reads them (docs/guide/spark.md).

# %%
spark.stop()
temporary.cleanup()

# %% [markdown]
# **Next:** `04_prove_a_history` explains what the checks rely on. `planstep compare --out DIR` writes a whole
# report.
