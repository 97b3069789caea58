# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Compare with Spark
#
# **You will learn** how to ask a comparison questions of your own. You will see the content of its traces, read
# them with Spark SQL, and compute the report's main tables, also on a cluster.
#
# **It takes** fifteen minutes to read and about a minute and a half to run. The comparison itself takes half of
# that. It needs `pip install "planstep[notebooks,spark,bench]"`, and Java 17 or newer (or the extra `spark-jre`).

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from planstep.bench.compare.systems import headline
from planstep.bench.judges.spark.prove import prove
from planstep.bench.judges.spark.session import java_of, start

# %% tags=["parameters"]
FOLDER = (
    ""  # the folder of `planstep compare --out FOLDER`; "": this notebook runs a small comparison
)
MASTER = ""  # the URL of a cluster, as in "spark://host:7077"; "": this machine, local[*]

# %%
plt.rcParams.update({"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False})
temporary = tempfile.TemporaryDirectory(prefix="planstep-notebook-")
scratch = Path(temporary.name)

# %% [markdown]
# ## A comparison
#
# This is the talk's model task on a small scale. Four workers reshard records partitioned by writer to partitions
# by user, exactly once, and commit every 200 ms. Four systems run it, and this engine's three modes run it in both
# placements. `--no-spark` leaves Spark's part to this notebook.

# %%
folder = Path(FOLDER) if FOLDER else scratch / "results"
if not FOLDER:
    words = "--workload reshard --rate 1 --partitions 20 --commit-interval 0.2 --duration 3"
    words += " --repeat 1 --durability full --no-find-rate --no-spark"
    command = [sys.executable, "-m", "planstep", "compare", *words.split(), "--out", str(folder)]
    comparison = subprocess.run(command, capture_output=True, text=True, check=False)
    assert comparison.returncode == 0, comparison.stderr
summary = json.loads((folder / "results.json").read_text())
print(*sorted(path.name for path in folder.iterdir()), sep="\n")
print("\ntraces:", *sorted(path.name for path in (folder / "traces").iterdir()), sep="\n    ")

# %% [markdown]
# ## Spark, and the traces as tables
#
# `start` finds a Java, keeps Spark quiet, and lets it write into one folder only. With `MASTER` it starts a
# session of a cluster. The workers must then see `folder` under the same name, on a shared file system for
# example. They need nothing else from this machine: traces are Parquet.

# %%
spark = start("planstep notebook", scratch, MASTER or None)
print("Spark", spark.version, "on Java", java_of(spark), "at", spark.sparkContext.master)

TABLES = ("transactions", "operations", "batches", "records", "inputs", "seen", "lanes")
for table in TABLES:
    frame = spark.read.parquet(str(folder.resolve() / "traces" / "*" / f"{table}.parquet"))
    frame.selectExpr(
        "*",
        "element_at(split(_metadata.file_path, '/'), -2) as run",
        "_metadata.row_index as nth",  # its row in the file: a lane's number
    ).createOrReplaceTempView(table)


def ask(query: str) -> pd.DataFrame:
    return spark.sql(query).toPandas()


ask(
    "select run, outcome, count(*) as transactions from transactions group by run, outcome order by run, outcome"
)

# %% [markdown]
# Each run has the same tables; docs/compare.md lists their columns. A record begins with its identity: the
# partition and the offset of the input record that it was made of. So a join proves exactly once.
#
# ## Exactly once, as a join
#
# The query joins consumed records with stored records. Records are consumed if a committed transaction moved a
# position over them.

# %%
consumed = """
    select o.run, l.partition as source, explode(sequence(o.begin, o.end - 1)) as ordinal
    from operations o
    join transactions t on t.run = o.run and t.tx = o.tx and t.outcome = 'committed'
    join lanes l on l.run = o.run and l.nth = o.lane
    where o.op = 'consume'"""
verified = ask(f"""
    with consumed as ({consumed}), there as (
      select run, source, ordinal, count(*) as times from records group by run, source, ordinal)
    select run,
      count(c.ordinal) as consumed,
      count_if(there.times is null) as missing,
      count_if(there.times > 1) as repeated,
      count_if(c.ordinal is null) as from_nowhere
    from consumed c full join there using (run, source, ordinal)
    group by run order by run""")
assert (verified[["missing", "repeated", "from_nowhere"]] == 0).all(axis=None)
assert (verified["consumed"] > 0).all()
verified

# %% [markdown]
# Records also keep their order: within each output partition the records of one source have ascending numbers.

# %%
order = ask("""
    select run, count_if(ordinal < before) as out_of_order from (
      select run, ordinal, lag(ordinal) over (partition by run, lane, source order by offset) as before
      from records) group by run order by run""")
assert (order["out_of_order"] == 0).all()
order

# %% [markdown]
# ## Latency, as the report has it
#
# Write and end to end count from when work was *due*, by a schedule that was fixed before the run. Write ends when
# the work is durable, end to end when the follower has the record. Commit counts from the call to the reply.
# Visible counts from that call until all of it can be read. Percentiles are nearest-rank.

# %%
MS = {
    "write_ms": "select run, (written - intended) / 1e6 as ms from batches where written is not null",
    "commit_ms": "select run, (reply - proposed) / 1e6 as ms from transactions where outcome = 'committed'",
    "visible_ms": """select run, (visible - proposed) / 1e6 as ms from transactions
        where outcome = 'committed' and visible is not null""",
    "end_to_end_ms": """select s.run, (s.at - b.intended) / 1e6 as ms from seen s
        join (select b.*, l.partition from batches b
              join lanes l on l.run = b.run and l.nth = b.lane) b
        on s.run = b.run and s.source = b.partition
          and s.ordinal >= b.begin and s.ordinal < b.begin + b.records""",
}
latency = pd.concat(
    ask(f"""
        select '{name}' as figure, run, count(*) as n,
          percentile_disc(0.5) within group (order by ms) as p50,
          percentile_disc(0.95) within group (order by ms) as p95,
          percentile_disc(0.99) within group (order by ms) as p99
        from ({query}) group by run order by run""")
    for name, query in MS.items()
)
latency.pivot(index="run", columns="figure", values=["p50", "p99"]).round(1)

# %% [markdown]
# The harness computed the same in Python, from the workers' own records. Its latencies must be the same as those of
# Spark. (No latency is reported where the rate was not sustained.)


# %%
def entry(run: str) -> dict[str, Any]:
    """Returns the summary's entry of a run such as reshard-deterministic-full-shared-0."""
    workload, system, durability, placement, _ = run.rsplit("-", 4)
    return dict(summary["systems"][system][workload][durability][placement])


compared = 0
for row in latency.itertuples():
    printed = entry(row.run)[row.figure]
    if printed is not None and entry(row.run)["repeats"] == 1:
        for percentile in ("p50", "p95", "p99"):
            assert abs(getattr(row, percentile) - printed[percentile]) < 0.002, (row, printed)
            compared += 1
print(compared, "percentiles are the same")
single = [run for run in latency["run"] if entry(run)["repeats"] == 1]
assert compared > 0 or not any(entry(run)["sustained"] for run in single)

# %%
STYLES = {
    **{"deterministic": ("#0072b2", "-"), "kafka": ("#d55e00", "--")},
    **{"pulsar": ("#6a3d9a", "-."), "sqlite": ("#009e73", ":")},
}
figure, axes = plt.subplots(2, 2, figsize=(11, 6.5), sharey=True)
for ax, (name, query) in zip(axes.flat, MS.items(), strict=True):
    curves = ask(f"""
        select run, share, max(ms) as ms from (
          select run, ms, ceil(100 * cume_dist() over (partition by run order by ms)) as share
          from ({query}))
        group by run, share order by run, share""")
    for run, curve in curves.groupby("run"):
        if entry(str(run))[name] is not None:
            _, system, _, placement, _ = str(run).rsplit("-", 4)
            color, line = STYLES.get(system, ("gray", "-"))
            style = {"color": color, "ls": line, "lw": 1 + (placement == headline(system))}
            ax.plot(curve["ms"], curve["share"], label=f"{system}, {placement}", **style)
    ax.set(xscale="log", title=name.replace("_", " "), xlabel="ms")
for ax in axes[:, 0]:
    ax.set_ylabel("% of them took no longer")
axes[0, 0].legend(frameon=False, fontsize=8)
figure.tight_layout()
plt.show()

# %% [markdown]
# In the Kafka-style mode a commit returns fast. But *visible* takes much of a commit interval here, since four
# workers write to all partitions. The records wait until every earlier transaction in the same partitions has ended
# (the last stable offset). In the Pulsar-style mode they wait for the same (the max read position), and a commit
# returns once all partitions have its end.
#
# ## Who persists what
#
# These are the durable changes of logs for each transaction, by the component that makes them. The report has both
# tables.

# %%
steps = pd.DataFrame(
    {
        f"{system}, {placement}": by_placement["steps"]
        for system in summary["systems"]
        for placement, by_placement in summary["systems"][system]["reshard"]["full"].items()
        if by_placement["steps"]
    }
)
costs = ask("""
    select run, round(avg(participants), 1) as participants, round(avg(messages), 1) as messages,
      round(avg(appends), 1) as appends, round(avg(syncs), 2) as syncs,
      percentile(hops_visible, 0.5) as hops_visible
    from transactions where outcome = 'committed' group by run order by run""")
print(costs.to_string(index=False))
steps.round(1)

# %%
figure, ax = plt.subplots(figsize=(11, 3))
writing = costs[costs["appends"] > 0]
ax.barh(writing["run"], writing["appends"], color="#4a8fc7")
title = f"of {costs['participants'].max():.0f} participants at most"
ax.set(xlabel="durable changes of a transaction", title=title)
ax.invert_yaxis()
figure.tight_layout()
plt.show()

# %% [markdown]
# ## All checks at once
#
# The checks above are the simple ones. `prove` runs all checks on Spark: the certificate of every transaction
# (reads, real time, positions, offsets), delivery, the follower's records, Kafka's list of anomalies. It also
# compares percentiles and who wins. Each check is one job over all runs. `python -m planstep.bench.judges.spark
# FOLDER [--master URL]` does the same from a shell.

# %%
proof = prove(spark, folder, print)["spark"]
assert proof["agrees_with_python"], proof["disagreements"]
checks = pd.DataFrame(
    {
        "check": check["name"],
        "rows": check["rows"],
        "found": sum(check["found"].values()),
        "allowed, as Kafka or Pulsar allow it": ", ".join(
            f"{k} {n:,}" for k, n in check["allowed"].items()
        ),
    }
    for check in proof["checks"]
)
assert (checks["found"] == 0).all()
checks

# %% [markdown]
# ## On a cluster
#
# The code above runs on any Spark. Set the two parameters of the first cell:
#
# - `FOLDER` is a place that all executors see: a shared file system or a mounted bucket. `planstep compare --out`
#   can write there, or you copy `results.json` and `traces/`. No executor needs the store.
# - `MASTER` is `spark://host:7077`, `yarn`, `k8s://…`. Executors need Python with `planstep` and pyarrow for the
#   last section, and no Python packages for the SQL.
#
# Spark reads topics and tables with `spark.read.format("planstep")` if it sees the store's folder. Otherwise use
# `planstep export STORE --topic NAME --to FILE.parquet` (docs/guide/spark.md).

# %%
spark.stop()
temporary.cleanup()

# %% [markdown]
# **Next:** `04_prove_a_history` explains what the checks rely on. `planstep compare --out DIR` writes the whole
# report.
