# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Three ways to commit
#
# **You will learn** what is on the disk at each moment of a transaction. You will compare this engine's own
# protocol (mode *deterministic*) with Kafka's (mode *kafka*) and Pulsar's (mode *pulsar*). You will see what
# readers of committed records get meanwhile. You will see why an open transaction delays them in two of the modes.
# And you will count the costs of a commit.
#
# **It takes** fifteen minutes to read and half a minute to run. It needs `pip install
# "planstep[notebooks,pandas,cli]"`. Start with `01_first_transaction` if topics, consumers and transactions are
# new to you.
#
# Modes kafka and pulsar follow those protocols *in this engine*. They have clients, coordinators, partitions and
# markers, but no brokers and no replicas. The results are about the protocols, not about Kafka's or Pulsar's speed.

# %%
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

import planstep
from planstep.bench.notebooks.drawing import line_style, set_style, show

set_style()
temporary = tempfile.TemporaryDirectory(prefix="planstep-notebook-")
folder = Path(temporary.name)

# %% [markdown]
# ## One job, three stores
#
# The job reads two clicks, passes one on to each of two partitions, and moves the consumer's position, all or
# nothing. (It uses no tables, since only mode deterministic has them.) A store's mode is chosen when it is created.
# With `placement="separate"` each partition and coordinator of the other two stores acts as a server of its own: it
# receives only messages that are durable at their sender. Partitions and coordinator of the deterministic store
# share a log, the default.


# %%
def prepared(path: Path | str, partitions: int = 2, **settings: Any) -> planstep.Engine:
    db = planstep.open(path, **settings)
    db.create_topic("clicks", partitions=1, format="utf8")
    db.create_topic("out", partitions=partitions, format="utf8")
    db.topic("clicks").write_batch([f"click {n}" for n in range(100)])
    return db


def pass_on(tx: planstep.Transaction, partitions: int = 2) -> None:
    batch = tx.read("clicks", consumer="resharder", max_records=partitions)
    tx.write_batch("out", batch.values, partition=list(range(partitions)))


def settle(db: planstep.Engine, tx: planstep.Transaction) -> None:
    """Waits until others can read it; in mode kafka that is after the reply."""
    while db.phases(tx.id).visible is None:
        time.sleep(0.001)
    while db.mode == "kafka" and db.transactional_ids(only_open=True):
        time.sleep(0.001)


planned = prepared(folder / "planned", mode="deterministic", trace="messages")
marked = prepared(folder / "marked", mode="kafka", placement="separate", trace="messages")
told = prepared(folder / "told", mode="pulsar", placement="separate", trace="messages")
for db in (planned, marked, told):
    with db.transaction(worker="resharder-0") as first:
        pass_on(first)
    settle(db, first)

# %% [markdown]
# The store's log has everything that is durable. A record of it is a **turn**: one append and one sync of the disk.
# `planstep log dump` reads it from another process, which works while the store is open. Each call below waits for
# the sync before the dump, so the dump shows only data on the disk. These are the turns of the preparations:

# %%
Turn = list[str]  # its appends, a line each


def command(*words: str | Path) -> str:
    """Returns the output of a planstep command, which runs in a process of its own."""
    line = [sys.executable, "-m", "planstep", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


class Log:
    """A store's log, read from where the last read ended."""

    def __init__(self, name: str) -> None:
        self.path, self.turn = folder / name, 0
        self.new()

    def new(self) -> list[Turn]:
        """Returns the turns with appends since the last read."""
        log = json.loads(command("log", "dump", self.path, "--json", "--limit", "1000"))
        turns = [record for record in log["records"] if record["turn"] > self.turn]
        self.turn = max((record["turn"] for record in turns), default=self.turn)
        appends: list[Turn] = [record["appends"] for record in turns if record["appends"]]
        print(f"new in the log of {self.path.name}:", "" if appends else "nothing")
        for number, turn in enumerate(appends, 1):
            print(f"  turn {number}", *turn, sep="\n    ")
        return appends


logs = {"deterministic": Log("planned"), "kafka": Log("marked"), "pulsar": Log("told")}
steps: dict[str, list[list[Turn]]] = {mode: [] for mode in logs}  # flush, commit

# %% [markdown]
# ## Mode deterministic, step by step
#
# **Read and write.** The transaction is only in your process. The disk has none of it, and no other part of the
# store knows the transaction.

# %%
tx = planned.transaction(worker="resharder-0")
pass_on(tx)
assert planned.open_transactions() == []
assert logs["deterministic"].new() == []

# %% [markdown]
# **Flush.** From 8 MiB on records are sent before the commit; `flush` sends them at once. They are on the disk now,
# *staged* under the transaction's id. They have no offsets, so no reader waits for them.

# %%
tx.flush()
steps["deterministic"].append(logs["deterministic"].new())
staged = {
    (part.participant, part.records) for one in planned.open_transactions() for part in one.held
}
assert staged == {("topic out/0", 1), ("topic out/1", 1)}
assert planned.topic("out").read().values == ["click 0", "click 1"]  # the first transaction's
assert [part.end for part in planned.topic("out").describe().partitions] == [1, 1]

# %% [markdown]
# **Commit.** One turn has everything: the place, the outcome, the consumer's position, and an offset for each of
# the staged records. Their bytes do not move; they get an entry in the partition's index. One sync makes it all
# durable. Then the commit returns, and all readers can see it.

# %%
tx.commit()
assert len(planned.topic("out").read()) == 4  # at once
assert planned.topic("clicks").position("resharder") == {0: 4}
steps["deterministic"].append(logs["deterministic"].new())
assert len(steps["deterministic"][1]) == 1
phases = planned.phases(tx.id)
assert phases.planned == phases.decided == phases.visible  # one moment: that turn

# %% [markdown]
# With `trace="messages"` the store keeps the messages, too:

# %%
print(command("tx", "explain", folder / "planned", tx.id))

# %% [markdown]
# ## Mode kafka, step by step
#
# **Read and write.** The client sends as it writes, and `flush` only waits for the replies. It registers the
# partitions with the transaction coordinator, then appends the records *in place*: they have their offsets before
# the transaction's outcome is known.

# %%
tx = marked.transaction(worker="resharder-0")
pass_on(tx)
tx.flush()
steps["kafka"].append(logs["kafka"].new())

# %% [markdown]
# Readers of committed records must stop before them, at the **last stable offset**. So they also miss all later
# records of other transactions.

# %%
(one,) = marked.transactional_ids(only_open=True)
print(one.name, "is", one.state)
stops = [(part.participant, part.last_stable) for part in one.waiting]
for participant, offset in stops:
    print(f"    {participant}: readers stop at {offset}")
assert stops == [("out[0]", 2), ("out[1]", 2)]
raw = command("topic", "read", folder / "marked", "out", "--raw")
print(raw)
assert raw.count("last stable offset 2, end 3") == 2
assert marked.topic("out").read().values == ["click 0", "click 1"]

# %% [markdown]
# **Commit.** First the position goes to the group's coordinator, still pending. Then the transaction's coordinator
# writes its decision (`PrepareCommit`), and **the commit returns**. After the reply every participant gets a
# marker. A partition's records become visible only with its marker. The last entry (`CompleteCommit`) lets the
# worker's next transaction begin.

# %%
tx.commit()
settle(marked, tx)
steps["kafka"].append(logs["kafka"].new())
assert len(marked.topic("out").read()) == 4
assert marked.topic("clicks").position("resharder") == {0: 4}
phases = marked.phases(tx.id)
assert phases.decided is not None and phases.visible is not None
assert phases.planned is None and phases.decided < phases.visible
print(f"visible {(phases.visible - phases.decided) / 1e6:.2f} ms after the decision")

# %% [markdown]
# ## Mode pulsar, step by step
#
# **Read and write.** The coordinator gives the transaction an id before anything else. Each partition is registered
# with it, then the records are appended *in place*, under that id.

# %%
tx = told.transaction(worker="resharder-0")
pass_on(tx)
tx.flush()
steps["pulsar"].append(logs["pulsar"].new())

# %% [markdown]
# Readers stop at the **max read position**, which is the first open transaction's first record. Each partition
# knows whose it is. (The command below calls it by its name in Kafka, last stable offset.)

# %%
(under_way,) = told.open_transactions()
print(under_way.tx, "is", under_way.state)
assert under_way.tx == str(tx.txn_id) and under_way.state == "OPEN"
for buffer in told.buffer_stats("out"):
    print(f"    out[{buffer.partition}]: readers stop at {buffer.max_read}, for {buffer.held_by}")
    assert (buffer.max_read, buffer.end, buffer.held_by) == (2, 3, tx.txn_id)
raw = command("topic", "read", folder / "told", "out", "--raw")
print(raw)
assert raw.count("last stable offset 2, end 3") == 2
assert told.topic("out").read().values == ["click 0", "click 1"]

# %% [markdown]
# **Commit.** The acknowledgement is a part of the transaction: it is registered, and goes to the pending-ack log of
# its subscription, in the partition that was read. The coordinator logs its decision (`COMMITTING`), and sends the
# end to all partitions and subscriptions. Records become visible with their partition's marker. **The commit
# returns last**: every participant has the end, and the coordinator has logged that and forgotten the transaction.
# So what was answered can be read, unless an earlier transaction is still open in that partition.

# %%
tx.commit()
assert len(told.topic("out").read()) == 4  # at once
assert told.topic("clicks").position("resharder") == {0: 4}
steps["pulsar"].append(logs["pulsar"].new())
assert "is over" in steps["pulsar"][1][-1][-1]  # before the answer
phases = told.phases(tx.id)
assert phases.decided is not None and phases.visible is not None
assert phases.planned is None and phases.decided < phases.visible
print(f"visible {(phases.visible - phases.decided) / 1e6:.2f} ms after the decision")

# %% [markdown]
# ## All three, drawn
#
# A column is a turn: one append to the log and one sync. A box is an entry of one part of the store in that turn.

# %%
LANES = ["coordinator", "position of\nthe consumer", "out[0]", "out[1]"]
FILL = {
    "bookkeeping": "#d9d9d9",
    "on the disk, not visible": "#fdd49e",
    "the decision": "#de5b49",
    "visible": "#4a8fc7",
}


def box(line: str) -> tuple[int, str, str] | None:
    """Returns (lane, meaning, label) of an append; None if another line shows it."""
    where, what = line.split(" ", 1)
    hidden, decision, visible = list(FILL)[1:]
    if "coordinator: step" in line:
        return None
    if where == "coordinator:":
        return 0, decision, "committed"
    if where == "transaction":
        state = "over" if "is over" in what else what.split()[2].strip(",")
        meaning = decision if state in ("PrepareCommit", "COMMITTING") else "bookkeeping"
        known = {
            "writes": "registered",
            "acknowledges": "registered",
            "COMMITTING": "COM-\nMITTING",
        }
        return 0, meaning, known.get(state, state.replace("Commit", "\nCommit"))
    if what.startswith("for resharder") and "pending" not in what:
        return None  # of the subscription's two rows the other one is drawn
    lane = 1 if where in ("clicks[0]", "group") else LANES.index(where)
    if "marker" in what:
        return lane, visible, "marker"
    if "staged" in what:
        return lane, hidden, "staged"
    if "pending" in what or "transactional" in what:
        return lane, hidden, "= 4, pending" if lane == 1 else what.split()[0]
    return lane, visible, "= 4" if lane == 1 else what.split()[0]


WIDTH = 2 + max(len(flushed) + len(committed) for flushed, committed in steps.values())


def draw_steps(ax: Any, mode: str) -> None:
    flushed, committed = steps[mode]
    turns = flushed + committed
    ends: dict[str, list[int]] = {meaning: [] for meaning in FILL}  # of the turns with such a box
    for column, turn in enumerate(turns):
        for lane, meaning, label in dict.fromkeys(filter(None, map(box, turn))):
            ends[meaning].append(column + 1)
            ax.barh(lane, 0.86, left=column + 0.07, height=0.62, color=FILL[meaning])
            ax.text(column + 0.5, lane, label, ha="center", va="center", fontsize=8)
    decided, visible = min(ends["the decision"]), max(ends["visible"])
    for at, text, side in (
        (len(flushed), "commit called ", "right"),
        (len(turns) if mode == "pulsar" else decided, " commit answered", "left"),
    ):
        ax.axvline(at, color="black", lw=1, ls="--")
        ax.text(at, -0.66, text, ha=side, fontsize=8)
    ax.barh(4, visible, height=0.62, color="white", edgecolor="tab:gray")
    ax.barh(4, WIDTH - visible, left=visible, height=0.62, color=FILL["visible"])
    for x, text, behind in (
        (visible / 2, "nothing of it", "white"),
        ((visible + WIDTH) / 2, "all of it", FILL["visible"]),
    ):
        box_of = {
            "facecolor": behind,
            "edgecolor": "none",
            "pad": 2,
        }  # no line goes through the text
        ax.text(x, 4, text, ha="center", va="center", fontsize=8, bbox=box_of)
    ax.set(yticks=range(5), ylim=(4.5, -0.9), xlim=(0, WIDTH), title=f"mode {mode}")
    ax.set_yticklabels([*LANES, "readers see"])
    ax.set_xticks([column + 0.5 for column in range(len(turns))], range(1, len(turns) + 1))


figure, axes = plt.subplots(len(steps), 1, figsize=(10, 10.5))
for ax, mode in zip(axes, steps, strict=True):
    draw_steps(ax, mode)
axes[-1].set_xlabel("turns: appends to the log, each with its sync")
figure.suptitle("One transaction that moves a position and writes to two partitions")
handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in FILL.values()]
figure.legend(handles, FILL, loc="lower center", ncols=4)
figure.tight_layout(rect=(0, 0.03, 1, 1))
turns = {mode: sum(map(len, both)) for mode, both in steps.items()}
spelled = ", ".join(f"{n} in mode {mode}" for mode, n in turns.items())
show(
    figure,
    f"What each turn of the log holds, in three rows of boxes. A transaction takes {spelled}.",
)
assert turns["deterministic"] < min(turns["kafka"], turns["pulsar"])

# %% [markdown]
# Mode deterministic writes twice, and both times for the transaction as a whole. The other two write many small
# entries in sequence: the log of decisions, each partition, each marker; mode pulsar logs the acknowledgement twice
# as well, pending and over. Servers that share nothing need each of these entries: every server must be informed,
# and must remember. This engine saves them by sharing a log. Compare *when the commit is answered*: mode kafka
# answers with the decision, before its records can be read; the other two answer behind it.
#
# ## An open transaction, and the others
#
# Users feel this difference. One worker writes a record and keeps its transaction open. Meanwhile another writes a
# record to the same partition each 20 ms, in transactions of its own that commit at once. A reader waits for
# visible records. The cell measures the delay of each record.

# %%
HELD_S, EVERY_S = 0.6, 0.02
Times = list[tuple[float, float]]  # ms since the start: written, and read


def held_open(mode: str) -> tuple[Times, tuple[float, float]]:
    """Returns when each record was written and read, and the span in which the slow transaction was open."""
    db = prepared(folder / f"held-{mode}", partitions=1, mode=mode)
    out, zero = db.topic("out"), time.monotonic()
    read: dict[str, float] = {}
    finished = threading.Event()

    def now() -> float:
        return 1000 * (time.monotonic() - zero)

    def follow() -> None:
        ends: dict[int, int] = {0: 0}
        while True:
            last = finished.is_set()
            batch = out.read(ends, timeout=0.05)
            read.update((value, now()) for value in batch.values)
            ends = batch.ends or ends
            if last and not batch:
                return

    reader = threading.Thread(target=follow)
    reader.start()
    written: dict[str, float] = {}

    def quick(number: int) -> None:
        with db.transaction(worker="quick") as tx:
            tx.write("out", f"quick {number}")
        written[f"quick {number}"] = now()
        time.sleep(EVERY_S)

    for number in range(5):
        quick(number)
    slow = db.transaction(worker="slow")
    slow.write("out", "slow")
    slow.flush()
    opened, number = now(), 5
    while now() < opened + 1000 * HELD_S:
        quick(number)
        number += 1
    slow.commit()
    closed = now()
    for later in range(5):
        quick(number + later)
    finished.set()
    reader.join()
    db.close()
    assert set(read) == {*written, "slow"}  # no record is lost, in any mode
    return [(at, read[value]) for value, at in written.items()], (opened, closed)


waits = {mode: held_open(mode) for mode in steps}

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharex=True, sharey=True)
for ax, (mode, (times, (opened, closed))) in zip(axes, waits.items(), strict=True):
    ax.axvspan(opened, closed, color="#fdd49e", alpha=0.6, label="the slow transaction is open")
    for written, read in times:
        ax.plot([written, written], [0, read - written], "o-", ms=3, color="#4a8fc7", lw=2)
    ax.plot([], [], "o-", ms=3, color="#4a8fc7", label="a record of the other worker")
    ax.set(title=f"mode {mode}", xlabel="when a record was committed, ms")
axes[0].set_ylabel("… and read so much later, ms")
figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=2)
figure.tight_layout(rect=(0, 0.08, 1, 1))


def inside(mode: str) -> list[float]:
    """Returns the waits for records that were committed while the slow transaction was open."""
    times, (opened, closed) = waits[mode]
    return sorted(read - written for written, read in times if opened < written < closed)


middle = {mode: inside(mode)[len(inside(mode)) // 2] for mode in waits}
spelled = ", ".join(f"{ms:.1f} ms in mode {mode}" for mode, ms in middle.items())
show(
    figure,
    f"How long records wait for their reader while a transaction is open: {spelled} (medians).",
)
print("the median record waited", spelled)
for mode in ("kafka", "pulsar"):
    times, (opened, closed) = waits[mode]
    assert not any(opened + 100 < read < closed for _, read in times)  # none while it is open
    assert middle["deterministic"] < middle[mode]

# %% [markdown]
# In modes kafka and pulsar all records after the open one wait for it, so each blue line ends when the slow
# transaction ends. Readers stop at the last stable offset, the max read position. In mode deterministic the open
# transaction's record is staged, without an offset, so no reader waits for it.
#
# Who ends a transaction whose process has died? In mode kafka the next worker of its name does. In mode pulsar only
# its time-out does, or an operator: `db.abort_left_open()`.
#
# ## Costs
#
# All modes count the costs of every transaction. This transaction consumes a range and writes records to each of
# 1 to 8 partitions.


# %%
def costs_of(mode: str, placement: str, partitions: int) -> dict[str, Any]:
    path = folder / f"count-{mode}-{placement}-{partitions}"
    db = prepared(path, partitions, mode=mode, placement=placement)
    for _ in range(2):  # the first one also pays once for the worker's name
        with db.transaction(worker="resharder-0") as tx:
            pass_on(tx, partitions)
        settle(db, tx)
    costs = db.costs(tx.id)
    db.close()
    return {
        **{"mode": mode, "placement": placement, "partitions": partitions},
        **{"appends": costs.appends, "syncs": costs.syncs},
        **{"steps before the answer": costs.hops, "steps until visible": costs.hops_visible},
    }


rows = [
    costs_of(mode, placement, partitions)
    for mode in steps
    for placement in ("shared", "separate")
    for partitions in (1, 2, 4, 8)
]
table = pd.DataFrame(rows)
table

# %%
COLUMNS = ("appends", "syncs", "steps until visible")
figure, axes = plt.subplots(1, len(COLUMNS), figsize=(11, 4.2))
for number, ((mode, placement), one) in enumerate(table.groupby(["mode", "placement"])):
    beside = one["partitions"] + 0.1 * (number - 2.5)  # equal values stand side by side
    style = line_style(mode, placement) | {"label": f"{mode}, {placement}"}
    for ax, column in zip(axes, COLUMNS, strict=True):
        ax.plot(beside, one[column], **style)
        ax.set(
            title=f"{column} of one transaction", xlabel="partitions written", xticks=[1, 2, 4, 8]
        )
for ax in axes:
    ax.set_ylim(bottom=0)
figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=3)
figure.tight_layout(rect=(0, 0.13, 1, 1))
most = table[table["partitions"] == 8]
spelled = "; ".join(
    f"{row.mode}, {row.placement}: {row.appends:.0f} and {row.syncs:.0f}"
    for row in most.itertuples()
)
show(figure, f"What a transaction costs. With eight partitions, appends and syncs are {spelled}.")

for _, one in table.iterrows():
    k = one["partitions"]
    if one["mode"] == "kafka":
        assert one["appends"] == 2 * k + 6
    elif one["mode"] == "pulsar":
        assert one["appends"] == 3 * (k + 2)
        assert one["steps until visible"] <= one["steps before the answer"]
    elif one["placement"] == "shared":
        assert one["appends"] == k + 2 and one["syncs"] == 1
    else:
        assert one["appends"] == 3 * k + 4
appends = table.pivot(index=["mode", "partitions"], columns="placement", values="appends")
for mode in ("kafka", "pulsar"):
    assert (appends.loc[mode, "shared"] == appends.loc[mode, "separate"]).all()

# %% [markdown]
# **Appends** are durable changes of logs, in all parts of the store. In mode kafka each partition costs its
# records and its marker: 2k + 6 for k partitions. In mode pulsar each costs a registration in the coordinator's
# log as well, and the acknowledgement at one partition as much as a partition: 3(k + 2). Both append the same in
# either placement; mode deterministic appends k + 2 shared, and 3k + 4 separate, where partitions exchange their
# votes. **Steps** are durable changes *in series*. They make up the latency where each step is a server's disk
# and network. Placement *shared* puts all tablets of a host into one turn, so a step has no sync of its own.
#
# ## Clean up

# %%
planned.close()
marked.close()
told.close()
temporary.cleanup()

# %% [markdown]
# **Next:** `03_compare_with_spark` measures them at real work; `04_prove_a_history` shows how to prove that they
# worked correctly.
