"""Each public method answers in an attached process what it answers at the owner, or the page says how it differs.

LOOKS    asked of one store by its owner and by an attached process: the answers are the same
CHANGES  made by the owner of one store, and by an attached process of another one: the answers are the same

A method that is in neither list fails the last test.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import until
from process_kit import Other

import planstep
from planstep.api.snapshot import SnapshotView
from planstep.api.tables.table import Table
from planstep.api.topics.topic import Topic

MODES = ("deterministic", "kafka", "pulsar")
OF_CLIENTS = ("kafka", "pulsar")

LOOKS = """
db.mode
db.closed
db.owner
db.turn
repr(db), db._repr_html_()
sorted(db.topics()), sorted(db.tables())
db.topic("t").describe()
db.topic("t").consumers()
db.topic("t").consumer("c")
db.topic("t").lag("c"), db.topic("t").lag("nobody")
db.topic("t").position("c")
db.topic("t").partitions, db.topic("t").format
db.topic("t").read().values
db.topic("t").to_arrow().num_rows
db.topic("t").to_pandas().shape
[batch.values for batch in db.topic("t").iter_batches()]
[batch.num_rows for batch in db.topic("t").iter_arrow()]
db.topic("missing")
db.table("n").describe(), db.table("n").format
db.table("n").count()
db.table("n").get("k")
db.table("n").scan()
db.table("n").to_pandas().shape
[batch.num_rows for batch in db.table("n").scan_arrow()]
db.table("missing")
db.snapshot().get("n", "k")
db.snapshot().bounds("t")
db.snapshot().consumer("t", "c")
db.snapshot().position("t", "c")
db.snapshot().count("n")
db.snapshot().scan("n")
db.snapshot().read("t").values
db.snapshot().to_arrow("t").num_rows
db.snapshot().to_pandas("t").shape
[batch.values for batch in db.snapshot().iter_batches("t")]
[batch.num_rows for batch in db.snapshot().iter_arrow("t")]
[batch.num_rows for batch in db.snapshot().scan_arrow("n")]
db.snapshot().close()
db.outcome("9-9")
db.resolve("9-9")
db.costs(OURS), db.phases(OURS), db.recorded(OURS)
db.costs("9-9")
db.phases("9-9")
db.recorded(THEIRS)
db.transactions()
db.open_transactions()
[one.state for one in db.slow_transactions(0)]
db.slow_transactions(3600)
db.transactional_ids()
db.transactional_ids(only_open=True)
db.coordinator_stats()
db.buffer_stats("t")
db.pending_acks("t", "c")
db.position_state("t", "c", 0, 0)
db.position_state("t", "c", 1, 0)
db.position_state("t", "c", 0, 1)
db.log_batches()
db.abort_transaction("(0,999)")
db.abort_left_open()
sorted(set(db.stats()) - {"link", "owner", "processes"})
"""

CHANGES = """
db.create_topic("t", partitions=2).describe()
db.create_topic("t")
db.create_topic("log", format="json").describe()
db.create_table("n", shards=2).describe()
db.topic("t").create_consumer("c")
db.topic("t").create_consumer("i", kind="individual")
db.topic("t").create_consumer("x", start="latest", exclusive=True)
db.write("t", b"a", partition=0)
db.topic("t").write(b"b", key="k", headers={"h": b"1"}, partition=1)
db.topic("t").write_batch([b"c", b"d"], keys=["x", "y"])
db.topic("t").write("text")
db.topic("t").write(b"x" * (9 << 20), partition=0)
db.table("n").put("k", 1)
db.table("n").put_if_absent("k", 2)
db.table("n").add("k", 2)
db.table("n").max("k", 9)
db.table("n").min("k", 3)
db.table("n").delete("k")
db.table("n").load([(1, 2), (3, 4)])
db.table("n").scan()
db.run(lambda tx: tx.write("t", b"run", partition=0))
db.run(lambda tx: tx.write("t", b"worker", partition=1), worker="w1")
db.transaction(worker="")
write_all(None)
write_all("named")
flushed()
submitted()
rolled_back()
replaced()
read_all("c")
read_all("i")
processed("i")
db.topic("t").lag("c")
db.topic("t").seek("c", "earliest")
db.topic("t").seek("i", 2, partition=0)
processed("c", dead_letter="dead")
db.topic("dead").read().headers
consumed_twice()
db.topic("t").trim(2, partition=0)
db.topic("t").drop_consumer("i")
sorted(db.topic("t").consumers())
db.topic("t").alter(retention_bytes=1 << 30)
db.switch_log_batching(True)
type(db.backup(db.path + ".copy")).__name__
db.backup(db.path + ".copy")
[db.outcome(tx).state for tx in done]
aborted_by_operator()
db.drop_table("n")
db.drop_table("n", missing_ok=True)
db.drop_topic("t")
db.topic("t").read()
"""

PROGRAM = """
done = []

def end(tx):
    done.append(tx.id)
    return tx.commit()

def show(code):
    try:
        return repr(eval(code))
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def write_all(name):
    with db.topic("t").writer(name) as writer:
        for n in range(6):
            writer.write(b"w%d" % n, partition=n % 2)

def flushed():
    tx = db.transaction()
    tx.write("t", b"f", partition=0)
    tx.flush()
    tx.write("t", b"g", partition=0)
    pending = [record.value for record in tx.pending("t")]
    return pending, end(tx).published, tx.outcome().state

def submitted():
    tx = db.transaction()
    tx.write("t", b"s", partition=0)
    return tx.submit().result(60).published

def rolled_back():
    tx = db.transaction()
    tx.write("t", b"r", partition=0)
    tx.flush()
    tx.rollback()
    return tx.outcome().state, tx.txn_id is None

def replaced():
    with db.transaction() as tx:
        changes = db.changelog("log")
        changes.restore()
        changes.put(tx, "k", 5)
    again = db.changelog("log")
    again.restore()
    return dict(again.items())

def read_all(consumer):
    sizes = []  # which partition comes first is left to chance
    with db.reader("t", consumer, max_records=3, until_idle=True) as reader:
        for tx, batch in reader:
            sizes.append(len(batch))
            end(tx)
    return sorted(sizes)

def processed(consumer, **options):
    def work(tx, batch):
        if options and any(value == b"w3" for value in batch.values):
            raise ValueError("this one")
    return db.process(work, "t", consumer, until_idle=True, max_records=4, **options).records

def consumed_twice():
    db.create_topic("z").write_batch([b"1", b"2", b"3"])
    db.topic("z").create_consumer("c")
    for _ in range(2):
        tx = db.transaction()
        tx.consume("z", "c", 0, 0, 2)
        end(tx)

def aborted_by_operator():
    tx = db.transaction()
    tx.write("t", b"f", partition=0)
    tx.flush()
    db.abort_transaction(tx.id)
    end(tx)
"""
_AGE = re.compile(r"(?<=seconds=)[\d.]+|(?<=seconds_ago=)[\d.]+")
_OWN = re.compile(r"\b1-\d+\b|/ours\b|/theirs\b")
"""Ids of transactions and paths, in two stores."""


def shower(db: planstep.Engine, **names: Any) -> Callable[[str], str]:
    """Returns a function that shows the value or error of an expression in this process."""
    scope = {"planstep": planstep, "db": db, **names}
    exec(PROGRAM, scope)
    show: Callable[[str], str] = scope["show"]
    return show


def compare(
    ours: Callable[[str], str], other: Other, lines: str, plain: Callable[[str], str]
) -> None:
    differ = [
        f"{line}\n  owner    {mine}\n  attached {theirs}"
        for line in lines.strip().splitlines()
        for mine, theirs in [(plain(ours(line)), plain(other(f"show({line!r})")))]
        if mine != theirs
    ]
    assert not differ, "\n".join(differ)


@pytest.mark.parametrize("mode", MODES)
def test_an_attached_process_sees_what_the_owner_sees(tmp_path: Path, mode: str) -> None:
    with planstep.open(tmp_path / "s", mode=mode, trace="messages") as db:
        topic = db.create_topic("t", partitions=2)
        topic.create_consumer("c")
        if mode == "deterministic":
            db.create_table("n").put("k", 1)
        topic.write_batch([b"%d" % n for n in range(6)], keys=["a", "b"] * 3)
        with Other(tmp_path / "s") as other:
            other.run("tx = db.transaction(); tx.write('t', b'theirs', partition=0); tx.commit()")
            with db.transaction() as tx:
                tx.read("t", "c", partition=1, max_records=1)
                tx.write("t", b"ours", partition=0)
            open_here = db.transaction()
            open_here.read("t", "c", partition=0, max_records=1)
            open_here.write("t", b"open", partition=0)
            open_here.flush()
            other.run(
                "open = db.transaction(); open.write('t', b'open', partition=1)\nopen.flush()"
            )
            names = {"OURS": tx.id, "THEIRS": other("tx.id")}
            other.run(PROGRAM + "".join(f"{name} = {id!r}\n" for name, id in names.items()))
            until(lambda: len(topic.read().values) == 8)
            compare(shower(db, **names), other, LOOKS, lambda text: _AGE.sub("…", text))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hosts", [1, 2])
def test_an_attached_process_changes_what_the_owner_changes(
    tmp_path: Path, mode: str, hosts: int
) -> None:
    with (
        planstep.open(tmp_path / "ours", mode=mode, hosts=hosts) as db,
        planstep.open(tmp_path / "theirs", mode=mode, hosts=hosts),
        Other(tmp_path / "theirs") as other,
    ):
        other.run(PROGRAM)
        compare(shower(db), other, CHANGES, lambda text: _OWN.sub("…", text))


def test_all_costs_are_those_of_all_processes(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        db.create_table("n").put("k", 1)
        other.run("db.table('n').put('k', 2)")
        assert other("db.costs()") == db.costs()
        assert db.costs().requests == 3


@pytest.mark.parametrize("mode", OF_CLIENTS)
def test_a_client_adds_what_it_has_counted_itself(tmp_path: Path, mode: str) -> None:
    with planstep.open(tmp_path / "s", mode=mode) as db, Other(tmp_path / "s") as other:
        db.create_topic("t")
        other.run("tx = db.transaction(); tx.write('t', b'x'); tx.commit()")
        tx = other("tx.id")
        theirs, ours = other("db.costs(tx.id)"), db.costs(tx)
        assert theirs.requests > 0 == ours.requests and theirs.appends == ours.appends > 0
        assert other("db.costs()").requests > db.costs().requests
        assert other("db.costs()").appends == db.costs().appends
        phases = other("db.phases(tx.id)")
        assert phases.decided is not None and phases.visible is not None
        assert db.phases(tx).visible == phases.visible
        states = other("db.outcome(tx.id).state"), db.outcome(tx).state
        assert states == ("committed", "unknown"), "each client knows what it was told itself"


@pytest.mark.parametrize("mode", MODES)
def test_what_was_aborted_was_never_visible(tmp_path: Path, mode: str) -> None:
    with planstep.open(tmp_path / "s", mode=mode) as db, Other(tmp_path / "s") as other:
        db.create_topic("t")
        tx = db.transaction()
        tx.write("t", b"x")
        tx.flush()
        tx.rollback()
        other.run("tx = db.transaction(); tx.write('t', b'x'); tx.flush(); tx.rollback()")
        assert other("tx.outcome().state") == tx.outcome().state == "aborted"
        db.topic("t").write(b"behind")
        until(lambda: db.topic("t").read().values == [b"behind"])
        assert db.phases(tx.id).visible is None, "the owner's"
        assert other("db.phases(tx.id)").visible is None, "the other one's"


def test_no_public_method_is_left_out() -> None:
    asked = set(re.findall(r"\.(\w+)", LOOKS + CHANGES + PROGRAM)) | {"context", "path", "lifetime"}
    for face in (planstep.Engine, Topic, Table, SnapshotView, planstep.Transaction):
        public = {name for name in dir(face) if name[0] != "_"}
        assert public <= asked, f"{face.__name__}: {sorted(public - asked)}"
