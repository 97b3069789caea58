# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Prove a history
#
# **You will learn** how to prove from its trace that a run was *strictly serializable* and *exactly once*. The
# engine is not asked. You will see why the places that commits return make the proof one walk instead of a
# search. You will see each kind of damage planted and found, and judge a run of your own.
#
# **It takes** about fifteen minutes to read and ten seconds to run. It needs `pip install
# "planstep[notebooks,bench]"`. The engine of the last part is in a temporary folder.

# %%
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

import planstep
from planstep.bench.judges.python import PLANNED, judge
from planstep.bench.judges.python.generate import FEEDS, Mix, generate
from planstep.bench.judges.python.plant import KINDS, plant
from planstep.bench.judges.trace import (
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
    Records,
    Trace,
    Transaction,
    identity,
)
from planstep.bench.notebooks.drawing import set_style, show

set_style()

# %% [markdown]
# ## A history that fits on a page
#
# A `Trace` is the record of a run. It has each transaction's begin, the time of its reply, its outcome, its place
# and its operations. A read names the transaction whose value it saw (-1: none). This one is made by hand. It has
# two rows, an input topic `orders` that the consumer `clerk` reads, and an output topic `receipts`.

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
add(6, "C", (2, None), begin=62, reply=100)  # only reads: its place is after all of step 2
small.operations += [
    Operation(0, WRITE, ada),
    Operation(1, CONSUME, clerk, begin=0, end=2),
    Operation(1, READ, ada, version=0),
    Operation(1, WRITE, ada),
    Operation(1, PRODUCE, receipts, begin=0, end=2, records=2),
    Operation(2, READ, ada, version=0),  # 1 has overwritten it: a conflict, so 2 is aborted
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
for receipt, owner in enumerate((1, 1, 4, 4, 4, 5)):  # the stored records' transactions
    small.records.add(receipts, [receipt], [identity(0, receipt, owner)])

# %% [markdown]
# ## The one order and real time
#
# The claim has two parts. *Running the transactions one by one, in the order of their places, gives the same
# reads.* And *a transaction that had its reply before another began comes first.*
#
# The drawing has the order from top to bottom and time from left to right. A bar is a transaction from its begin
# to its reply; a grey one only reads. An arrow leads from a write to its reader. In each row, the red line is
# **the earliest reply of all rows below**. The last row has none below, so it has no line. The order agrees with
# real time if no bar begins to the right of that line.

# %%
Drawn = list[Transaction]


def in_order(trace: Trace) -> Drawn:
    """Returns the committed transactions by their places; read-only ones are after all others of their step."""
    committed = [row for row in trace.transactions if row.outcome == COMMITTED]
    return sorted(committed, key=lambda t: (t.step or 0, float("inf") if t.n is None else t.n))


def place_of(row: Transaction) -> str:
    return f"({row.step}, {'∞' if row.n is None else row.n})"


def draw_order(
    ax: Axes, trace: Trace, first: int, last: int, unit: float = 1, marked: int = -1
) -> None:
    """Draws those from `first` up to `last` in the order; times in `unit` nanoseconds since the first of them."""
    order = in_order(trace)
    rows = order[first:last]
    zero = min(row.begin or 0 for row in rows)
    for y, row in enumerate(rows):
        begin, reply = ((row.begin or 0) - zero) / unit, ((row.reply or 0) - zero) / unit
        color = "tab:red" if row.tx == marked else "tab:gray" if row.n is None else "tab:blue"
        ax.barh(y, reply - begin, left=begin, height=0.62, color=color, alpha=0.45)
    edge = min((row.reply for row in order[last:] if row.reply), default=float("inf"))
    behind = []
    for row in reversed(rows):
        behind.append((edge - zero) / unit)
        edge = min(edge, row.reply or edge)
    behind = [x for x in reversed(behind) if x < float("inf")]
    edges = [y - 0.5 for y in range(len(behind) + 1)]
    red: dict[str, Any] = {
        "color": "tab:red",
        "lw": 1.5,
        "label": "earliest reply of all rows below",
    }
    ax.stairs(behind, edges, orientation="horizontal", baseline=None, **red)
    ax.set(yticks=range(len(rows)), ylim=(len(rows) - 0.4, -0.6), ylabel="place (step, n)")
    ax.set_yticklabels([place_of(row) for row in rows])


def did(trace: Trace, tx: int) -> str:
    """Returns a transaction's operations, in short."""
    words = []
    for _, op, lane, begin, end, *_ in (o for o in trace.operations if o.tx == tx):
        name = trace.lanes[lane].key or trace.lanes[lane].name
        words.append(f"{op} {name}" + (f" [{begin}, {end})" if begin >= 0 else ""))
    return ", ".join(words)


figure, ax = plt.subplots(figsize=(11, 4.4))
order = in_order(small)
draw_order(ax, small, 0, len(order))
rows_of = {row.tx: (row.begin or 0, y) for y, row in enumerate(order)}
for tx, (x, y) in rows_of.items():
    white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1}
    ax.text(x + 1, y, f"{tx}: {did(small, tx)}", va="center", fontsize=8, bbox=white, zorder=5)
arrow = {"arrowstyle": "->", "color": "tab:green", "lw": 1.2}
for o in small.operations:
    if o.op == READ and o.tx in rows_of:
        (x, y), (to, below) = rows_of[o.version], rows_of[o.tx]
        start, end = (min(to, x + 6), y + 0.31), (to + 4, below - 0.31)  # from bar to bar
        ax.annotate("", end, start, arrowprops=arrow)
ax.plot([], [], color="tab:green", lw=1.2, label="from a write to its reader")
ax.set(xlabel="time, ns", title="Seven transactions: 2 was aborted and is in no order")
ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
places = ", ".join(f"{row.tx} at {place_of(row)}" for row in order)
show(
    figure,
    f"Bars from begin to reply, in the order of the places: {places}. All begin left of the red line.",
)

# %% [markdown]
# ## The certificate, step by step
#
# One walk along the order checks each claim. **Rows:** the walk keeps the last writer of each row, and a read
# must name that transaction. **Positions:** a consumer's next range must begin where the one before it ended.
# **Real time:** a walk from the bottom keeps the earliest reply, and no transaction may begin after it.

# %%
last_writer: dict[int, int] = {}
position: dict[int, int] = {}
for row in in_order(small):
    mine = [o for o in small.operations if o.tx == row.tx]
    for o in mine:  # reads come before its own writes
        if o.op == READ:
            assert o.version == last_writer.get(o.lane, -1)
        elif o.op == CONSUME:
            assert o.begin == position.get(o.lane, 0)
            position[o.lane] = o.end
    last_writer |= {o.lane: row.tx for o in mine if o.op == WRITE}
    print(f"{place_of(row):7} {row.tx}: {did(small, row.tx)}")

earliest = float("inf")
for row in reversed(in_order(small)):
    assert (row.begin or 0) <= earliest
    earliest = min(earliest, row.reply or earliest)
print("every read saw the last write before its place; ranges have no gap; real time agrees")

# %% [markdown]
# No more is needed. All dependencies (write after write, read of a write, overwrite of a read value) point down
# the order. So they cannot form a cycle, and the history equals the one in that order. Without places a checker
# would have to find such an order, which is NP-complete in general.
#
# The library's checker does the same. It also compares the store's records with the consumed ones, and looks at
# the reads of transactions that did not commit: these have no place, but may not have seen what never was.

# %%
findings = judge(small, mode=PLANNED)
assert findings.clean
print(findings.looked_at)


# %% [markdown]
# ## Three lies
#
# A checker that never finds an error proves nothing. Each lie changes one thing.


# %%
def changed(at: int, **how: Any) -> Trace:
    operations = small.operations.copy()
    operations[at] = operations[at]._replace(**how)
    return replace(small, operations=operations)


late = small.transactions.copy()
late[3] = late[3]._replace(begin=112, reply=120)  # after the reply to 5, which has a later place
lies = {
    "3 reads ada as 0 left it": changed(7, version=0),
    "4 consumes from 3 on": changed(9, begin=3),
    "3 begins later": replace(small, transactions=late),
}
for name, lie in lies.items():
    print(f"{name}:", *judge(lie, mode=PLANNED).problems(), sep="\n    ")
    assert not judge(lie, mode=PLANNED).clean

# %%
figure, ax = plt.subplots(figsize=(11, 3.4))
draw_order(ax, lies["3 begins later"], 0, len(order), marked=3)
title = "Transaction 3 begins to the right of the red line: the order contradicts real time"
ax.set(xlabel="time, ns", title=title)
ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))
show(figure, title + ". Its bar is red, the third of six.")

# %% [markdown]
# ## A history of ten thousand
#
# This history is generated from a seed, as of a correct system. Sixteen workers run transactions. Some abort,
# some only read, and the outcome of some is unknown. Then the cell plants each kind of damage at a random place.

# %%
clean = generate(10_000, seed=7, mix=Mix(undetermined=0.01))
assert judge(clean, mode=PLANNED, feeds=FEEDS).clean
seconds: dict[str, float] = {}
for kind in KINDS:
    damaged = plant(clean, kind, seed=7)
    began = time.perf_counter()
    findings = judge(damaged, mode=PLANNED, feeds=FEEDS)
    seconds[kind] = time.perf_counter() - began
    assert kind in findings.forbidden
    print(next(text for text in findings.problems() if text.startswith(kind)))
print(f"all of {len(KINDS)} kinds were found")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), width_ratios=[2, 1])
draw_order(left, clean, 4_990, 5_010, unit=1e6)
left.tick_params(axis="y", labelsize=8)
left.set(xlabel="time, ms", title="Twenty transactions, in the middle of the order")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))
sizes = [1_000, 3_000, 10_000, 30_000]
took = []
for size in sizes:
    history = generate(size, seed=1)
    began = time.process_time()
    judge(history, mode=PLANNED, feeds=FEEDS)
    took.append(time.process_time() - began)
right.plot([size / 1000 for size in sizes], took, "o-", color="tab:blue")
right.set(xlabel="thousands of transactions", ylabel="CPU time to judge them, s", ylim=(0, None))
title = f"{sizes[-1]:,} transactions: {took[-1]:.2f} s"
right.set_title(title)
figure.tight_layout()
show(
    figure,
    f"Left, twenty transactions begin left of the red line. Right, the CPU time of judging, {title}.",
)

# %% [markdown]
# ## A run of the real engine
#
# Four threads consume from one topic, count in rows by read-modify-write, and write the records to another topic.
# Each record begins with its identity, 24 bytes, which names its origin. The threads add their operations to the
# trace. At the end the store is reopened, and its records go into the trace, too.

# %%
PARTITIONS, RECORDS, WORKERS = 4, 400, 4
temporary = tempfile.TemporaryDirectory(prefix="planstep-notebook-")
store = Path(temporary.name) / "run"
trace = Trace()

with planstep.open(store) as db:
    db.create_topic("in", partitions=PARTITIONS)
    db.create_topic("out", partitions=PARTITIONS)
    db.create_table("counts")
    for partition in range(PARTITIONS):
        values = [identity(partition, ordinal) for ordinal in range(RECORDS)]
        db.topic("in").write_batch(values, partition=partition)
    zero = time.monotonic_ns()

    def work(worker: int) -> None:
        partition = worker % PARTITIONS
        while True:
            number, begin = trace.next_tx(), time.monotonic_ns() - zero
            tx = db.transaction()
            batch = tx.read("in", consumer="c", partition=partition, max_records=10)
            if not batch:
                tx.rollback()
                return
            row = f"row {number % 3}"  # three rows for four workers, so they conflict
            version = tx.get("counts", row, -1)
            tx.put("counts", row, number)
            tx.write_batch("out", batch.values, partition=partition)
            end = batch.ends[partition]
            positions, lane = (
                trace.lane(CONSUMER, "in/c", partition),
                trace.lane(ROW, "counts", key=row),
            )
            operations = [
                Operation(number, CONSUME, positions, end - len(batch), end),
                Operation(number, READ, lane, version=version),
                Operation(number, WRITE, lane),
            ]
            try:
                commit = tx.commit()
                outcome, step, n = COMMITTED, commit.place.step, commit.place.n
                lane = trace.lane(TOPIC, "out", partition)
                operations.append(Operation(number, PRODUCE, lane, records=len(batch)))
            except planstep.Conflict:
                outcome, step, n = ABORTED, None, None
            reply = time.monotonic_ns() - zero
            trace.operations.extend(operations)
            trace.transactions.append(
                Transaction(number, tx.id, f"w{worker}", outcome, step, n, begin=begin, reply=reply)
            )

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))

with planstep.open(store, read_only=True) as db:
    for partition in range(PARTITIONS):
        batch = db.topic("out").read(partition=partition, max_records=10 * RECORDS)
        offsets = range(batch.ends.get(partition, 0) - len(batch), batch.ends.get(partition, 0))
        trace.records.add(trace.lane(TOPIC, "out", partition), offsets, batch.values)

verdict = judge(trace, mode=PLANNED, feeds={"out": "in/c"})
print(verdict.problems() or "nothing is wrong", verdict.looked_at)
assert verdict.clean
assert verdict.looked_at["transactions"] > PARTITIONS * RECORDS // 10 - 1
assert len(trace.records) == PARTITIONS * RECORDS

# %%
outcomes = [row.outcome for row in trace.transactions]
aborted = outcomes.count(ABORTED)
print(f"{outcomes.count(COMMITTED)} committed, {aborted} lost a conflict and were tried again")
figure, ax = plt.subplots(figsize=(11, 4.4))
middle = len(in_order(trace)) // 2
draw_order(ax, trace, middle - 12, middle + 12, unit=1e6)
ax.tick_params(axis="y", labelsize=8)
title = "24 transactions of a real run: each began before the earliest reply below it"
ax.set(xlabel="time, ms", title=title)
ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12))
show(figure, title + ". No bar begins to the right of the red line.")

# %% [markdown]
# The checker also finds a lost record. This cell removes one of the stored records, and judges again.

# %%
without_one = replace(trace, records=Records())
for column in ("lane", "offset", "source", "ordinal", "tx"):
    values = getattr(trace.records, column)
    getattr(without_one.records, column).extend([*values[:123], *values[124:]])
findings = judge(without_one, mode=PLANNED, feeds={"out": "in/c"})
print(*findings.problems(), sep="\n")
assert "lost" in findings.forbidden

# %% [markdown]
# ## Clean up

# %%
temporary.cleanup()

# %% [markdown]
# **Next:** `planstep compare --out DIR` records such traces of real work, and judges each. Spark judges them once
# more, with code of its own (`03_compare_with_spark`). docs/compare.md has the format.
