# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Prove a history
#
# **You will learn** how it is shown that a run was *strictly serializable* and *exactly once*, from a record of what
# happened and without asking the engine; why the places that commits return make that one walk through the history
# instead of a search; what ten kinds of damage look like; and how to judge a run of your own.
#
# **It takes** about fifteen minutes to read and ten seconds to run. It needs
# `pip install "planstep[notebooks,bench]"`. The engine of the last part is in a temporary folder.

# %%
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

import planstep
from planstep.bench.check import PLACES, judge
from planstep.bench.check.generate import FEEDS, Mix, generate
from planstep.bench.check.plant import KINDS, plant
from planstep.bench.trace import (
    ABORTED,
    COMMITTED,
    CONSUME,
    CONSUMER,
    PRODUCE,
    READ,
    ROW,
    TOPIC,
    WRITE,
    Operation,
    Trace,
    Transaction,
    identity,
)

plt.rcParams.update({"figure.dpi": 110, "axes.spines.top": False, "axes.spines.right": False})

# %% [markdown]
# ## A history that fits on a page
#
# A `Trace` is what a run leaves behind: for each transaction when it began and when its owner had the reply, how it
# ended, and its place; and what it did where. A read names the transaction whose value it saw (-1: nobody's). Here
# is one by hand: two rows, an input topic `orders` that the consumer `clerk` reads, an output topic `receipts`.

# %%
small = Trace()
ada, bob = small.lane(ROW, "accounts", key="ada"), small.lane(ROW, "accounts", key="bob")
clerk, receipts = small.lane(CONSUMER, "orders/clerk", 0), small.lane(TOPIC, "receipts", 0)


def add(tx: int, worker: str, place: tuple[int, int | None] | None, begin: int, reply: int) -> None:
    step, n = place or (None, None)
    outcome = COMMITTED if place else ABORTED
    row = Transaction(tx, f"1-{tx}", worker, outcome, step, n, begin=begin, reply=reply)
    small.transactions.append(row)


add(0, "A", (1, 0), begin=0, reply=30)
add(1, "B", (1, 1), begin=5, reply=40)
add(2, "C", None, begin=20, reply=55)
add(3, "A", (2, 0), begin=42, reply=70)
add(4, "B", (2, 1), begin=45, reply=85)
add(5, "D", (3, 0), begin=50, reply=110)
add(6, "C", (2, None), begin=62, reply=100)  # only reads: it stands behind all of step 2
small.operations += [
    Operation(0, WRITE, ada),
    Operation(1, CONSUME, clerk, begin=0, end=2),
    Operation(1, READ, ada, version=0),
    Operation(1, WRITE, ada),
    Operation(1, PRODUCE, receipts, begin=0, end=2, records=2),
    Operation(2, READ, ada, version=0),  # 1 has overwritten that: a conflict, so 2 is aborted
    Operation(2, WRITE, ada),
    Operation(3, READ, ada, version=1),
    Operation(3, WRITE, bob),
    Operation(4, CONSUME, clerk, begin=2, end=5),
    Operation(4, WRITE, ada),
    Operation(4, PRODUCE, receipts, begin=2, end=5, records=3),
    Operation(5, CONSUME, clerk, begin=5, end=6),
    Operation(5, READ, bob, version=3),
    Operation(5, PRODUCE, receipts, begin=5, end=6, records=1),
    Operation(6, READ, ada, version=4),
    Operation(6, READ, bob, version=3),
]
for receipt, owner in enumerate((1, 1, 4, 4, 4, 5)):  # what the store holds in the end, and whose
    small.records.add(receipts, [receipt], [identity(0, receipt, owner)])

# %% [markdown]
# ## The one order and real time
#
# The claim is: *running the transactions one by one, in the order of their places, gives what everybody saw, and
# whoever had a reply before another began comes first.*
#
# The drawing has the order from top to bottom and time from left to right: a bar is a transaction from its begin to
# its reply, an arrow leads from a write to who read it. The red line is, in each row, **the earliest reply of all
# that stand below**. The order agrees with real time if no bar begins to the right of it.

# %%
Drawn = list[Transaction]


def in_order(trace: Trace) -> Drawn:
    """The committed ones by their places; who only read is behind all of its step."""
    done = [row for row in trace.transactions if row.outcome == COMMITTED]
    return sorted(done, key=lambda t: (t.step or 0, float("inf") if t.n is None else t.n))


def place_of(row: Transaction) -> str:
    return f"({row.step}, {'∞' if row.n is None else row.n})"


def draw_order(
    ax: Axes, trace: Trace, first: int, last: int, unit: float = 1, marked: int = -1
) -> None:
    """Those from `first` up to `last` in the order; times in `unit` nanoseconds since the first of them."""
    order = in_order(trace)
    shown = order[first:last]
    zero = min(row.begin or 0 for row in shown)
    for y, row in enumerate(shown):
        begin, reply = ((row.begin or 0) - zero) / unit, ((row.reply or 0) - zero) / unit
        color = "tab:red" if row.tx == marked else "tab:gray" if row.n is None else "tab:blue"
        ax.barh(y, reply - begin, left=begin, height=0.62, color=color, alpha=0.45)
    behind, edge = [], min(row.reply or 0 for row in order[last - 1 :])
    for row in reversed(shown):
        behind.append((edge - zero) / unit)
        edge = min(edge, row.reply or edge)
    behind.reverse()
    for y, at in enumerate(behind):
        ax.plot([at, at], [y - 0.5, y + 0.5], color="tab:red", lw=1.5)
    for y, (here, there) in enumerate(zip(behind, behind[1:], strict=False)):
        ax.plot([here, there], [y + 0.5, y + 0.5], color="tab:red", lw=1.5)
    ax.plot([], [], color="tab:red", lw=1.5, label="earliest reply of all below")
    ax.set(yticks=range(len(shown)), ylim=(len(shown) - 0.4, -0.6), ylabel="place (step, n)")
    ax.set_yticklabels([place_of(row) for row in shown])


def did(trace: Trace, tx: int) -> str:
    """What a transaction did, in short."""
    words = []
    for _, op, lane, begin, end, _, version in (o for o in trace.operations if o.tx == tx):
        name = trace.lanes[lane].key or trace.lanes[lane].name
        words.append(f"{op} {name}" + (f" [{begin}, {end})" if begin >= 0 else ""))
    return ", ".join(words)


figure, ax = plt.subplots(figsize=(11, 4))
order = in_order(small)
draw_order(ax, small, 0, len(order))
rank = {row.tx: y for y, row in enumerate(order)}
for y, row in enumerate(order):
    ax.text((row.begin or 0) + 1, y, f"{row.tx}: {did(small, row.tx)}", va="center", fontsize=8)
for o in small.operations:
    if o.op == READ and o.tx in rank:
        where = (order[rank[o.tx]].begin or 0, rank[o.tx])
        ax.annotate(
            "",
            where,
            ((order[rank[o.version]].begin or 0), rank[o.version]),
            arrowprops={"arrowstyle": "->", "color": "tab:green", "lw": 1.2},
        )
ax.set(xlabel="time", title="seven transactions; 2 was aborted and is in no order")
ax.legend(loc="upper right", frameon=False)
plt.show()
