# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # The first transaction
#
# **You will learn** what a store, a topic, a table and a consumer are. You will see one transaction read, count and
# write *exactly once*. You will see two transactions conflict, and a process killed. And you will see that every
# commit returns a place in one order.
#
# **It takes** about ten minutes to read and ten seconds to run. There is no server: planstep is a library, and a
# store is a folder. It needs `pip install "planstep[notebooks,pandas]"`.
#
# You can run it as often as you like. All files are in a temporary folder, which the last cell removes.

# %%
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt

import planstep
from planstep.bench.notebooks.drawing import set_style, show

set_style()
temporary = tempfile.TemporaryDirectory(prefix="planstep-notebook-")
store = Path(temporary.name) / "shop.planstep"

# %% [markdown]
# ## A store, in memory and on disk
#
# `:memory:` opens an engine without files, for trials and tests. Closing it removes all data.

# %%
with planstep.open(":memory:") as trial:
    trial.create_table("greetings")
    trial.table("greetings").put("hello", "world")
    print(trial.table("greetings").get("hello"))

# %% [markdown]
# With a path the store is a folder. Opening it again in the same process gives the same engine, so a cell can be
# run twice.

# %%
db = planstep.open(store)
assert planstep.open(store) is db
db.close()  # one close for each open: this is for the second
print(*sorted(path.name for path in store.rglob("*") if path.is_file()), sep="\n")

# %% [markdown]
# ## A topic and a table
#
# A **topic** is a log of records, in partitions. Records with the same key are in the same partition, in order.
# A **table** has rows: a key and a value.

# %%
clicks = db.create_topic("clicks", partitions=3, format="utf8", exist_ok=True)
by_user = db.create_topic("clicks-by-user", partitions=3, format="utf8", exist_ok=True)
totals = db.create_table("totals", exist_ok=True)

pages = ["/home", "/cart", "/home", "/search", "/pay", "/home", "/cart", "/pay", "/home", "/help"]
users = ["ada", "ada", "bob", "eve", "ada", "joe", "bob", "bob", "eve", "zoe"]
clicks.write_batch(pages, keys=users)

# %% [markdown]
# A topic's `read` changes nothing. Its result is shown as a table, and has columns.

# %%
clicks.read()

# %% [markdown]
# ## One transaction, exactly once
#
# A **consumer** is a name with a position in each partition. This transaction reads records that the consumer
# `counter` has not consumed yet, adds to the totals, and passes the records on. It commits all three together. The
# position, the rows and the records become visible at one moment, or none of them does.


# %%
def count(tx: planstep.Transaction) -> int:
    batch = tx.read("clicks", consumer="counter", max_records=6)
    for user, n in batch.count_by_key().items():
        tx.add("totals", user, n)
    tx.write_batch("clicks-by-user", batch.values, keys=batch.keys)
    return len(batch)


print(db.run(count), "records counted;", clicks.lag("counter"), "are left")

# %% [markdown]
# The drawing fills the records that the consumer has consumed. The next transaction reads from the consumer's
# position in each partition.


# %%
def draw_positions(title: str) -> None:
    batch, position = clicks.read(), clicks.position("counter")
    figure, ax = plt.subplots(figsize=(9, 3.1))
    for record in batch:
        consumed = record.offset < position.get(record.partition, 0)
        fill, text = ("tab:blue", "white") if consumed else ("white", "black")
        where = record.offset + 0.45, record.partition
        ax.barh(where[1], 0.9, left=record.offset, height=0.6, color=fill, edgecolor="tab:blue")
        ax.text(*where, f"{record.key}\n{record.value}", ha="center", va="center", color=text)
    for partition in range(3):
        at = position.get(partition, 0) - 0.05
        ax.plot([at, at], [partition - 0.42, partition + 0.42], color="tab:red", lw=2.5)
    for label, fill in (("consumed", "tab:blue"), ("not consumed yet", "white")):
        ax.add_patch(plt.Rectangle((0, 0), 0, 0, fc=fill, ec="tab:blue", label=label))
    ax.plot([], [], color="tab:red", lw=2.5, label="position of the consumer")
    ax.set(xlabel="offset", ylabel="partition", title=title, yticks=range(3), ylim=(2.6, -0.6))
    figure.legend(loc="upper center", bbox_to_anchor=(0.5, -0.04), ncols=3)
    done = ", ".join(f"{n} of partition {p}" for p, n in sorted(position.items()))
    show(figure, f"The {len(batch)} records of three partitions. Consumed are {done}.")


draw_positions(
    "Topic clicks after the first transaction: each box is a record, its key and its value"
)

# %% [markdown]
# The loop repeats it until no record is left. Each click counts once, however often the function runs.

# %%
while db.run(count):
    pass
assert db.run(count) == 0
assert clicks.lag("counter") == 0
assert sum(n for _, n in totals.scan()) == len(clicks.read()) == len(by_user.read())
totals.scan()

# %% [markdown]
# ## When it fails inside
#
# An exception rolls back everything, the position too. The next attempt reads the same records.

# %%
clicks.write("/pay", key="ada")
before = totals.get("ada")
try:
    with db.transaction() as tx:
        tx.read("clicks", consumer="counter")
        tx.add("totals", "ada", 1_000_000)
        raise RuntimeError("the card was refused")
except RuntimeError as error:
    print("rolled back:", error)
assert totals.get("ada") == before
assert clicks.lag("counter") == 1

# %% [markdown]
# ## A conflict
#
# There are no locks, and an open transaction blocks no other. The commit checks that the values that the
# transaction read are still current. Here they are not: another transaction writes the row that it has read.

# %%
tx = db.transaction()
total = tx.get("totals", "ada", 0)
totals.add("ada", 5)  # another transaction comes first
tx.put("totals", "ada", total + 1)
try:
    tx.commit()
except planstep.Conflict as conflict:
    print(conflict)
else:
    raise AssertionError("the commit would have lost five")
assert totals.get("ada") == total + 5

# %% [markdown]
# `db.run` handles conflicts: it runs the function again, in a new transaction. (For a counter prefer `tx.add`, as
# above: it reads nothing, so it never conflicts.)

# %%
attempts: list[int] = []  # the value that each has read


def one_more(tx: planstep.Transaction) -> int:
    total = tx.get("totals", "ada", 0)
    attempts.append(total)
    if len(attempts) == 1:
        totals.add("ada", 5)  # another transaction comes first, only this time
    tx.put("totals", "ada", total + 1)
    return total + 1


print("ada has", db.run(one_more), "after", len(attempts), "attempts, which read", attempts)
assert len(attempts) == 2
assert totals.get("ada") == attempts[0] + 5 + 1

# %% [markdown]
# ## A crash
#
# The same work runs in a process of its own. `SIGKILL` ends it, so it cannot clean up. The first time it dies
# before the commit, when its records are on the disk already (`tx.flush()`). The second time it dies right after
# the commit.

# %%
CHILD = """
import sys, planstep
db = planstep.open(sys.argv[1])
tx = db.transaction()
batch = tx.read("clicks", consumer="counter")
for user, n in batch.count_by_key().items():
    tx.add("totals", user, n)
tx.write_batch("clicks-by-user", batch.values, keys=batch.keys)
tx.flush()                                  # durable, but invisible
if sys.argv[2] == "after the commit":
    tx.commit()
print("ready", flush=True)
sys.stdin.read()                            # until it is killed
"""


def killed(moment: str) -> tuple[int, int, int]:
    """Returns the store after a process was killed at that moment: (lag, ada's total, records passed on)."""
    global db, clicks, by_user, totals
    db.close()  # a store has one owner, which is now the child
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(store), moment],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    child.kill()
    child.communicate()
    db = planstep.open(store)
    clicks, by_user, totals = db.topic("clicks"), db.topic("clicks-by-user"), db.table("totals")
    return clicks.lag("counter"), totals.get("ada", 0), len(by_user.read())


clicks.write_batch(pages, keys=users)
lag, ada, passed_on = clicks.lag("counter"), totals.get("ada", 0), len(by_user.read())
new_of_ada = 1 + users.count("ada")  # with the payment that was rolled back
print("to count:", lag, "of which ada's:", new_of_ada)

# %%
state = killed("before the commit")
print("killed before the commit: lag, total, passed on =", state)
assert state == (lag, ada, passed_on)  # as if the transaction had never begun

# %%
state = killed("after the commit")
print("killed after the commit: lag, total, passed on =", state)
assert state == (0, ada + new_of_ada, passed_on + lag)  # all of it

# %% [markdown]
# ## The place: a commit's certificate
#
# All transactions of a store are in one order, and `commit` returns the **place** in it: (step, n). Running them
# one by one in the order of their places gives the same reads and the same result. The next cells check that. Four
# threads compete for three rows, and each records its reads.

# %%
accounts = db.create_table("accounts", exist_ok=True)
accounts.load({"ada": 100, "bob": 100, "eve": 100})
names = ["ada", "bob", "eve"]
Amounts = dict[str, int]
Done = tuple[planstep.Transaction, Amounts, Amounts]  # with its reads and its writes
history: list[Done] = []


def transfer(source: str, target: str, tx: planstep.Transaction) -> Done:
    reads = {name: tx.get("accounts", name, 0) for name in {source, target}}
    writes = dict(reads)
    writes[source] -= 1
    writes[target] += 1
    for name, amount in writes.items():
        tx.put("accounts", name, amount)
    return tx, reads, writes


def transfers(worker: int) -> None:
    for number in range(20):
        source, target = names[(worker + number) % 3], names[(worker + 2 * number + 1) % 3]
        history.append(db.run(partial(transfer, source, target)))


def in_threads(work: Callable[[int], None], threads: int) -> None:
    """Runs `work` in threads, each with its number, until all have ended."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


in_threads(transfers, 4)
print(len(history), "transfers committed; the sum is", sum(n for _, n in accounts.scan()))

# %% [markdown]
# This cell replays them one by one, in the order of the places, on a plain dict:

# %%
history.sort(key=lambda entry: entry[0].commit.place or (0, 0))
replayed = {"ada": 100, "bob": 100, "eve": 100}
for _, reads, writes in history:
    assert reads == {name: replayed[name] for name in reads}
    replayed.update(writes)
assert replayed == dict(accounts.scan())
print("every read and the final state agree with the order:", replayed)

# %% [markdown]
# ## Columns
#
# Topics and tables become pandas data frames (`to_pandas`) and Arrow tables (`to_arrow`).

# %%
clicks.to_pandas().groupby("key").agg(clicks=("value", "size"), last=("value", "last"))

# %% [markdown]
# ## How long a commit takes
#
# A commit returns when it is on the disk. One thread waits for the disk each time. Many threads share the wait:
# commits that arrive during a sync become durable together with the next one. Each dot is a commit, in order of
# time. (If the temporary folder is in memory, a sync takes no time.)


# %%
def commits(threads: int, each: int) -> tuple[list[tuple[float, float]], float]:
    """Returns ((ms since the start, ms it took) of each commit, syncs of the disk for each)."""
    took: list[tuple[float, float]] = []
    syncs, start = db.costs().syncs, time.perf_counter()

    def work(worker: int) -> None:
        for _ in range(each):
            began = time.perf_counter()
            clicks.write("/home", key="ada")
            ended = time.perf_counter()
            took.append((1000 * (ended - start), 1000 * (ended - began)))

    in_threads(work, threads)
    return took, (db.costs().syncs - syncs) / len(took)


alone, alone_syncs = commits(threads=1, each=320)
many, many_syncs = commits(threads=16, each=20)
assert len(alone) == len(many) == 320
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), sharex=True, sharey=True)
runs = ((alone, alone_syncs, "1 thread"), (many, many_syncs, "16 threads"))
said = []
for ax, (took, syncs, who) in zip(axes, runs, strict=True):
    ax.plot(*zip(*took, strict=True), ".", ms=4, alpha=0.6)
    rate = 1000 * len(took) / max(at for at, _ in took)
    said.append(f"{who}: {rate:,.0f} commits a second, {syncs:.2f} syncs a commit")
    ax.set(xlabel="time since the start, ms", yscale="log", title=said[-1].replace(", ", ",\n"))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")
axes[0].set_ylabel("duration of a commit, ms")
figure.tight_layout()
show(figure, "The duration of each of 320 commits over time. " + "; ".join(said) + ".")
print(*said, sep="\n")
assert many_syncs <= alone_syncs

# %% [markdown]
# One thread needs a sync for each commit; sixteen share them. That a single commit then takes longer is the price:
# it waits for the sync that is under way, and for the other threads of this Python process.
#
# ## Clean up

# %%
db.close()
temporary.cleanup()

# %% [markdown]
# **Next:** `02_three_ways_to_commit` shows the disk at each moment of a transaction, here and in the protocols
# of Kafka and Pulsar.
# The guide covers the whole library: docs/guide/first.md.
