# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Two ways to commit
#
# **You will learn** what is on the disk at each moment of a transaction, in this engine's own protocol (mode
# *deterministic*) and in Kafka's (mode *kafka*); what readers of committed records see meanwhile; why an open
# transaction delays them in one mode and not in the other; and how to count what a commit costs.
#
# **It takes** fifteen minutes to read and half a minute to run. It needs `pip install "planstep[notebooks,pandas]"`.
# Start with `01_first_transaction` if topics, consumers and transactions are new to you.
#
# Mode kafka follows Kafka's protocol *in this engine*: client, coordinators, partitions and markers, but no brokers
# and no replicas. What is shown here is about the protocol, not about Kafka's speed.

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

plt.rcParams.update({"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False})
temporary = tempfile.TemporaryDirectory(prefix="planstep-notebook-")
folder = Path(temporary.name)

# %% [markdown]
# ## One job, two stores
#
# The job: read two clicks, pass one on to each of two partitions, and move the consumer's position, all or nothing.
# (Tables are left out: mode kafka has none.) A store's mode is chosen when it is made. `placement="separate"` lets
# each partition and coordinator of the kafka store stand for a server of its own: it hears only what is durable
# at its sender. Partitions and coordinator of the deterministic store share a log, as the engine means it.


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
    """Waits until others can read it; mode kafka does that behind the answer."""
    while db.phases(tx.id).visible is None:
        time.sleep(0.001)
    while db.mode == "kafka" and db.transactional_ids(only_open=True):
        time.sleep(0.001)


planned = prepared(folder / "planned", mode="deterministic", trace="messages")
marked = prepared(folder / "marked", mode="kafka", placement="separate", trace="messages")
for db in (planned, marked):
    with db.transaction(worker="resharder-0") as first:
        pass_on(first)
    settle(db, first)

# %% [markdown]
# What is durable, the log of the store tells: a record of it is a **turn**, one append and one sync of the disk.
# `planstep log dump` looks into it from another process, as anybody may while the store is open. It is asked when
# a call has returned that waits for the sync, so what it shows is on the disk. First what the preparations left:

# %%
Turn = list[str]  # what it appended, a line each


def command(*words: str | Path) -> str:
    """What the planstep command prints, in a process of its own."""
    line = [sys.executable, "-m", "planstep", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


class Log:
    """A store's log, read on from where it was last looked at."""

    def __init__(self, name: str) -> None:
        self.path, self.turn = folder / name, 0
        self.new()

    def new(self) -> list[Turn]:
        """The turns since the last look that appended something."""
        told = json.loads(command("log", "dump", self.path, "--json", "--limit", "1000"))
        turns = [record for record in told["records"] if record["turn"] > self.turn]
        self.turn = max((record["turn"] for record in turns), default=self.turn)
        found: list[Turn] = [record["appends"] for record in turns if record["appends"]]
        print(f"new in the log of {self.path.name}:", "" if found else "nothing")
        for number, turn in enumerate(found, 1):
            print(f"  turn {number}", *turn, sep="\n    ")
        return found


logs = {"deterministic": Log("planned"), "kafka": Log("marked")}
way: dict[str, list[tuple[str, list[Turn]]]] = {"deterministic": [], "kafka": []}

# %% [markdown]
# ## Mode deterministic, step by step
#
# **Read and write.** All of it is in your process. The disk has nothing, and nobody knows of the transaction.

# %%
tx = planned.transaction(worker="resharder-0")
pass_on(tx)
assert planned.open_transactions() == []
assert logs["deterministic"].new() == []

# %% [markdown]
# **Flush.** From 8 MiB on records are sent ahead of the commit; `flush` does it at once. They are on the disk now,
# *staged* on the side under the transaction's id. They have no offsets, so they are in nobody's way.

# %%
tx.flush()
way["deterministic"].append(("flush", logs["deterministic"].new()))
staged = [held for one in planned.open_transactions() for held in one.held]
assert {(held.participant, held.records) for held in staged} == {
    ("topic out/0", 1),
    ("topic out/1", 1),
}
assert planned.topic("out").read().values == ["click 0", "click 1"]  # the first transaction's
assert [part.end for part in planned.topic("out").describe().partitions] == [1, 1]

# %% [markdown]
# **Commit.** One turn has everything: the place, the outcome, the consumer's position, and an offset for each of the
# staged records. Their bytes do not move: they get an entry in the partition's index. One sync makes it all durable;
# behind it the commit is answered, and everybody can see it.

# %%
tx.commit()
assert len(planned.topic("out").read()) == 4  # at once
assert planned.topic("clicks").position("resharder") == {0: 4}
way["deterministic"].append(("commit", logs["deterministic"].new()))
assert len(way["deterministic"][1][1]) == 1
phases = planned.phases(tx.id)
assert phases.planned == phases.decided == phases.visible  # one moment: that turn

# %% [markdown]
# With `trace="messages"` the store was told to keep the messages, too:

# %%
print(command("tx", "explain", folder / "planned", tx.id))

# %% [markdown]
# ## Mode kafka, step by step
#
# **Read and write.** The client sends as it writes, and `flush` only waits for the answers. It registers the
# partitions with the transaction coordinator, then appends the records *in place*: they have their offsets before
# anybody knows how the transaction ends.

# %%
tx = marked.transaction(worker="resharder-0")
pass_on(tx)
tx.flush()
way["kafka"].append(("flush", logs["kafka"].new()))

# %% [markdown]
# Readers of committed records must stop before them, at the **last stable offset**, and so would they before
# everything that others write behind them.

# %%
(one,) = marked.transactional_ids(only_open=True)
print(one.name, "is", one.state)
for held in one.waiting:
    print(f"    {held.participant}: readers stop at {held.last_stable}")
assert [(held.participant, held.last_stable) for held in one.waiting] == [
    ("out[0]", 2),
    ("out[1]", 2),
]
raw = command("topic", "read", folder / "marked", "out", "--raw")
print(raw)
assert raw.count("last stable offset 2, end 3") == 2
assert marked.topic("out").read().values == ["click 0", "click 1"]

# %% [markdown]
# **Commit.** Now the position goes to the group's coordinator, still pending. Then the transaction's coordinator
# writes its decision (`PrepareCommit`), and **that is when the commit is answered**. Behind the answer every
# participant gets a marker; only with its marker a partition's records count. The last entry
# (`CompleteCommit`) lets the worker's next transaction begin.

# %%
tx.commit()
settle(marked, tx)
way["kafka"].append(("commit", logs["kafka"].new()))
assert len(marked.topic("out").read()) == 4
assert marked.topic("clicks").position("resharder") == {0: 4}
phases = marked.phases(tx.id)
assert phases.decided is not None and phases.visible is not None
assert phases.planned is None and phases.decided < phases.visible
print(f"visible {(phases.visible - phases.decided) / 1e6:.2f} ms behind the decision")

# %% [markdown]
# ## Both, drawn
#
# A column is a turn: one append to the log and one sync. A box is what a part of the store wrote in it.

# %%
LANES = ["coordinator", "position of\nthe consumer", "out[0]", "out[1]"]
FILL = {
    "bookkeeping": "#d9d9d9",
    "on the disk, does not count yet": "#fdd49e",
    "the decision": "#de5b49",
    "counts from here on": "#4a8fc7",
}


def drawn(line: str) -> tuple[int, str, str] | None:
    """(lane, meaning, label) of what a turn appended; None: it is told by another line."""
    where, what = line.split(" ", 1)
    aside, decision, counts = list(FILL)[1:]
    if "coordinator: step" in line:
        return None
    if where == "coordinator:":
        return 0, decision, "committed"
    if where == "transaction":
        state = what.split()[2]
        return 0, decision if state == "PrepareCommit" else "bookkeeping", state
    lane = 1 if where in ("clicks[0]", "group") else LANES.index(where)
    if "marker" in what:
        return lane, counts, "marker"
    if "staged" in what:
        return lane, aside, "staged"
    if "pending" in what or "transactional" in what:
        return lane, aside, "= 4, pending" if lane == 1 else what.split()[0]
    return lane, counts, "= 4" if lane == 1 else what.split()[0]


def draw_way(ax: Any, mode: str) -> None:
    (_, flushed), (_, committed) = way[mode]
    turns = flushed + committed
    for column, turn in enumerate(turns):
        for lane, meaning, label in filter(None, map(drawn, turn)):
            ax.barh(lane, 0.86, left=column + 0.07, height=0.62, color=FILL[meaning])
            ax.text(column + 0.5, lane, label, ha="center", va="center", fontsize=8)
    decided = 1 + next(
        column for column, turn in enumerate(turns) if any(tells_decision(line) for line in turn)
    )
    visible = 1 + max(
        column
        for column, turn in enumerate(turns)
        if any((told := drawn(line)) and told[1] == list(FILL)[3] for line in turn)
    )
    for at, text in ((len(flushed), "commit is called"), (decided, "commit is answered")):
        ax.axvline(at, color="black", lw=1, ls="--", ymax=0.93)
        ax.text(at, -0.62, text, ha="center", fontsize=8)
    ax.barh(4, visible, height=0.62, color="white", edgecolor="tab:gray")
    ax.barh(4, 9 - visible, left=visible, height=0.62, color=FILL["counts from here on"])
    ax.text(visible / 2, 4, "nothing of it", ha="center", va="center", fontsize=8)
    ax.text((visible + 9) / 2, 4, "all of it", ha="center", va="center", fontsize=8)
    ax.set(yticks=range(5), ylim=(4.5, -0.9), xlim=(0, 9), title=f"mode {mode}")
    ax.set_yticklabels([*LANES, "readers see"])
    ax.set_xticks([column + 0.5 for column in range(len(turns))], range(1, len(turns) + 1))


def tells_decision(line: str) -> bool:
    told = drawn(line)
    return told is not None and told[1] == "the decision"


figure, axes = plt.subplots(2, 1, figsize=(10, 7))
for ax, mode in zip(axes, way, strict=True):
    draw_way(ax, mode)
axes[1].set_xlabel("turns: appends to the log, each with its sync")
handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in FILL.values()]
figure.legend(handles, FILL, loc="lower center", ncols=4, frameon=False)
figure.tight_layout(rect=(0, 0.05, 1, 1))
plt.show()
