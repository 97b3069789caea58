"""Tests the promises of the guide, sentence by sentence, in every mode that does not refuse them.

A promise is a sentence of a page and a function that tests a store for it. Where mode "kafka" differs, the promise
quotes the words of docs/kafka.md that say so, or the call raises NotSupported. The promises here are those that a
mode could break; tests/docs runs the pages' code.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from face_kit import PLACES, QUICK, until

import planstep
from planstep.runtime.kafka.numbers import Numbers

ROOT = Path(__file__).parents[2]
MODES: dict[str, dict[str, Any]] = {
    "deterministic": {"mode": "deterministic"},
    "deterministic-3": {"mode": "deterministic", "hosts": 3},
    **{
        "-".join(map(str, ("kafka", *place))): dict(
            zip(("hosts", "placement", "protocol_version"), place, strict=True),
            mode="kafka",
            kafka=QUICK,
        )
        for place in PLACES
    },
}


class Store:
    """Holds a store that may be reopened."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.settings = folder, settings
        self.kafka = settings["mode"] == "kafka"
        self.db = planstep.open(folder, **settings)

    def reopen(self) -> planstep.Engine:
        self.db.close()
        self.db = planstep.open(self.folder, **self.settings)
        return self.db

    def shows(self, topic: str, *wanted: Any) -> None:
        """Waits until a topic holds exactly these records, in any order."""
        records: list[Any] = []

        def are_there() -> bool:
            records[:] = self.db.topic(topic).read(max_records=10_000).values
            return len(records) >= len(wanted)

        until(are_there)
        assert sorted(records) == sorted(wanted)


class Promise(NamedTuple):
    page: str
    words: str
    held: Callable[[Store], None]
    refused: bool
    otherwise: str


PROMISES: list[Promise] = []


def promise(page: str, words: str, refused: bool = False, otherwise: str = "") -> Any:
    def listed(held: Callable[[Store], None]) -> Callable[[Store], None]:
        PROMISES.append(Promise(page, words, held, refused, otherwise))
        return held

    return listed


def lines(store: Store, partitions: int = 2) -> planstep.Topic:
    return store.db.create_topic("lines", partitions=partitions, format="utf8", exist_ok=True)


# writers.md --------------------------------------------------------------------------------------


@promise("writers.md", "It publishes 1000 records (or 1 MiB) at a time, in one transaction")
def in_one_transaction(store: Store) -> None:
    writer = lines(store).writer(linger_records=5)
    for n in range(4):
        writer.write(str(n), partition=n % 2)
    assert writer.buffered == 4 and not lines(store).read()
    done = writer.flush()
    assert done is not None and set(done.published) == {("lines", 0), ("lines", 1)}
    assert (done.epoch is not None) == store.kafka, "under a producer's epoch: no plain writes"
    writer.close()
    store.shows("lines", "0", "1", "2", "3")


@promise("writers.md", "With `linger=SECONDS` a thread of the engine also publishes")
def lingers(store: Store) -> None:
    with lines(store).writer(linger=0.01) as writer:
        writer.write("a")
        store.shows("lines", "a")


@promise("writers.md", "When an error leaves the `with`, records that are not flushed are dropped.")
def drops(store: Store) -> None:
    with pytest.raises(KeyError), lines(store).writer() as writer:
        writer.write("lost")
        raise KeyError
    lines(store).write("kept")
    store.shows("lines", "kept")


def cut(commit: Any, late: bool, error: BaseException, *args: Any) -> Any:
    if late:
        commit(*args)
    raise error


@promise(
    "writers.md", "After a `flush` that ended `Undetermined` or was interrupted, simply flush again"
)
def flushed_again(store: Store) -> None:
    runtime: Any = store.db._runtime
    for name in (None, "named"):
        for error in (KeyboardInterrupt(), planstep.Undetermined("lost sight of")):
            for late in (False, True):
                writer = lines(store).writer(producer=name)
                writer.write(f"{name} {error!r} {late}", partition=0)
                runtime.transactions.commit = partial(cut, runtime.transactions.commit, late, error)
                with pytest.raises(type(error)):
                    writer.flush()
                del runtime.transactions.commit
                writer.write(f"{name} {error!r} {late} again", partition=0)
                writer.close()
    until(lambda: len(lines(store).read()) >= 16)
    values = lines(store).read().values
    assert len(values) == len(set(values)) == 16


@promise("writers.md", "It skips records that were published before.")
def repeated_input(store: Store) -> None:
    source = [(n, f"line {n}") for n in range(10, 22)]

    def copy(upto: int, linger: int) -> None:
        with lines(store).writer(producer="file-1", linger_records=linger) as writer:
            for number, text in source[:upto]:
                writer.write(text, sequence=number)

    copy(4, 100)
    copy(7, 2)
    copy(7, 100)
    store.reopen()
    copy(9, 100)
    store.reopen()
    copy(12, 5)
    copy(12, 100)
    store.shows("lines", *(text for _, text in source))
    with lines(store).writer(producer="file-2") as writer:  # another writer's numbers are separate
        writer.write("other", partition=0, sequence=10)
    store.shows("lines", "other", *(text for _, text in source))


@promise("writers.md", "Each partition remembers the last number of each producer")
def numbers_go_on(store: Store) -> None:
    with lines(store).writer(producer="loader") as writer:
        assert [writer.write("a", partition=p) for p in (0, 0, 1)] == [0, 1, 0]
    store.reopen()
    with lines(store).writer(producer="loader") as writer:
        assert [writer.write("b", partition=p) for p in (0, 1)] == [2, 1]
    store.shows("lines", *"aaabb")


@promise("writers.md", "`dedupe=False` makes a repeated number a `Conflict` instead of a skip.")
def without_dedupe(store: Store) -> None:
    for _ in range(2):
        writer = lines(store).writer(producer="p", dedupe=False)
        writer.write("1", partition=0, sequence=1)
        writer.flush()
        writer.write("0", partition=1, sequence=1)
        writer.write("1", partition=1, sequence=2)
        writer.flush()
        again = lines(store).writer(producer="p", dedupe=False)
        again.write("0", partition=1, sequence=2)
        with pytest.raises(planstep.Conflict) as caught:
            again.flush()
        assert caught.value.producer == b"p" and again.buffered == 1
        assert "published before" in str(caught.value) and not caught.value.retryable
        store.shows("lines", "1", "0", "1")
        store.reopen()
        store.db.drop_topic("lines")


@promise("writers.md", "Two that number by themselves under one name are a `Conflict`.")
def two_of_one_name(store: Store) -> None:
    one, two = (lines(store).writer(producer="p") for _ in range(2))
    for partition in range(2):
        one.write("one", partition=partition)
        two.write("two", partition=partition)
    one.flush()
    with pytest.raises(planstep.Conflict, match="another writer uses this producer") as caught:
        two.flush()
    assert caught.value.foreign and not caught.value.retryable and two.buffered == 2
    one.write("again", partition=0)
    one.close()
    with lines(store).writer(producer="p") as three:
        assert three.write("three", partition=0) == 2
    store.shows("lines", "again", "one", "one", "three")


# transactions.md ---------------------------------------------------------------------------------


@promise("transactions.md", "together, or there are none.")
def all_or_nothing(store: Store) -> None:
    with pytest.raises(KeyError), store.db.transaction() as tx:
        for partition in range(2):
            tx.write("lines", "none", partition=partition)
        tx.flush()
        raise KeyError
    with store.db.transaction() as tx:
        tx.write("lines", "a", partition=0)
        tx.write("lines", "b", partition=1)
    store.reopen()
    store.shows("lines", "a", "b")


@promise(
    "transactions.md",
    "All its effects become visible and durable together",
    otherwise="one may be seen before the other; no snapshots",
)
def together(store: Store) -> None:
    with store.db.transaction() as tx:
        tx.write("lines", "a", partition=0)
        tx.write("lines", "b", partition=1)
    with store.db.snapshot() as view:
        assert sorted(view.read("lines").values) == ["a", "b"]


@promise("transactions.md", "commits without waiting and gives a `concurrent.futures.Future`")
def submits(store: Store) -> None:
    futures = []
    for n in range(20):
        tx = store.db.transaction()
        tx.write("lines", str(n))
        futures.append(tx.submit())
    for future in futures:
        future.result(60)
    store.shows("lines", *map(str, range(20)))


@promise("transactions.md", "where nobody sees them before the commit")
def flushes(store: Store) -> None:
    with store.db.transaction() as tx:
        tx.write("lines", "a")
        tx.flush()
        assert not lines(store).read()
    store.shows("lines", "a")


@promise(
    "transactions.md",
    "a transaction that consumed any of these records for the same consumer; a `seek`; a trim of them",
    otherwise="positions are not conditions",
)
def consumed_by_another(store: Store) -> None:
    lines(store).write("a", partition=0)
    one, two = store.db.transaction(), store.db.transaction()
    assert one.read("lines", "c").values == two.read("lines", "c").values == ["a"]
    one.commit()
    with pytest.raises(planstep.Conflict):
        two.commit()
    three = store.db.transaction()
    lines(store).seek("c", "earliest")
    three.read("lines", "c")
    lines(store).seek("c", "latest")
    with pytest.raises(planstep.Conflict):
        three.commit()


@promise("transactions.md", "db.table", refused=True)
def tables(store: Store) -> None:
    store.db.create_table("t")


# topics.md ---------------------------------------------------------------------------------------


@promise("topics.md", "`topic.read` only looks: it moves no consumer.")
def looks(store: Store) -> None:
    lines(store).write_batch(["a", "b"], partition=0)
    for _ in range(2):
        assert lines(store).read().values == ["a", "b"]
    assert lines(store).lag("c") == 2


@promise("topics.md", "`batch.ends` is where to read on")
def reads_on(store: Store) -> None:
    lines(store).write_batch(["a", "b"], partition=0)
    with store.db.transaction() as tx:
        tx.write("lines", "c", partition=0)
    store.shows("lines", "a", "b", "c")
    with store.db.transaction() as tx:
        tx.write("lines", "d", partition=0)
    store.shows("lines", "a", "b", "c", "d")
    values, ends = [], {0: 0}
    while batch := lines(store).read(ends, max_records=1):
        values += batch.values
        ends = {**ends, **batch.ends}
    assert values == ["a", "b", "c", "d"]


@promise("topics.md", "order holds within a partition")
def in_order(store: Store) -> None:
    with lines(store).writer(linger_records=7) as writer:
        for n in range(50):
            writer.write(str(n), key="k")
    until(lambda: len(lines(store).read()) == 50)
    assert lines(store).read().values == [str(n) for n in range(50)]


@promise("topics.md", "`missed` counts records that were removed before the consumer had them")
def missed(store: Store) -> None:
    lines(store).write_batch(["a", "b"], partition=0)
    lines(store).create_consumer("c")
    lines(store).trim(before=1, partition=0)
    assert lines(store).lag("c") == 1
    if not store.kafka:  # a position of Kafka's counts nothing
        assert lines(store).consumer("c").missed == 1
    with store.db.transaction() as tx:
        assert tx.read("lines", "c").values == ["b"]


@promise("topics.md", "An **individual** consumer", refused=True)
def individual(store: Store) -> None:
    lines(store).create_consumer("c", kind="individual")


# readers.md --------------------------------------------------------------------------------------


@promise("readers.md", "Each record counts exactly once, whatever is killed")
def exactly_once(store: Store) -> None:
    store.db.create_topic("out", partitions=3, format="utf8")
    lines(store, 4).write_batch([str(n) for n in range(60)], partition=[n % 4 for n in range(60)])
    failures = [ValueError("once"), ValueError("twice")]

    def copy(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.write_batch("out", batch.values)
        if failures and len(batch) > 1:
            raise failures.pop()

    done = store.db.process(
        copy, topic="lines", consumer="c", workers=2, max_records=5, until_idle=True
    )
    assert done.records == 60
    store.shows("out", *map(str, range(60)))
    until(lambda: store.db.topic("lines").lag("c") == 0)


@promise("readers.md", "in the transaction that consumes it")
def dead_letters(store: Store) -> None:
    store.db.create_topic("out", format="utf8")
    lines(store).write_batch(["1", "two", "3"], partition=0)

    def copy(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.write_batch("out", [str(int(value)) for value in batch.values])

    done = store.db.process(
        copy, topic="lines", consumer="c", until_idle=True, dead_letter="letters"
    )
    assert done.dead_lettered == 1
    store.shows("out", "1", "3")
    store.shows("letters", "two")


@promise("readers.md", "A batch that is rolled back, or conflicts, is read again")
def read_again(store: Store) -> None:
    lines(store).write_batch(["a", "b", "c"], partition=0)
    with store.db.reader("lines", consumer="c", max_records=1) as reader:
        tx, batch = reader.read(timeout=20) or (None, None)
        assert tx is not None and batch is not None and batch.values == ["a"]
        tx.rollback()
        values: list[str] = []
        while len(values) < 3:
            tx, batch = reader.read(timeout=20) or (None, None)
            assert tx is not None and batch is not None
            values += batch.values
            tx.commit()
    assert values == ["a", "b", "c"]


# all promises ------------------------------------------------------------------------------------


def says(page: Path, words: str) -> bool:
    return " ".join(words.split()) in " ".join(page.read_text().split())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("promised", PROMISES, ids=[p.held.__name__ for p in PROMISES])
def test_the_guide_keeps_its_word(promised: Promise, mode: str, tmp_path: Path) -> None:
    assert says(ROOT / "docs" / "guide" / promised.page, promised.words)
    store = Store(tmp_path / "s", MODES[mode])
    try:
        lines(store, 4 if promised.held is exactly_once else 2)
        if store.kafka and promised.refused:
            with pytest.raises(planstep.NotSupported, match='mode "kafka"'):
                promised.held(store)
        elif store.kafka and promised.otherwise:
            assert says(ROOT / "docs" / "kafka.md", promised.otherwise)
        else:
            promised.held(store)
    finally:
        store.db.close()


def test_each_page_for_writers_and_readers_is_here() -> None:
    pages = {promised.page for promised in PROMISES}
    assert pages == {"writers.md", "transactions.md", "topics.md", "readers.md"}
    bullets = re.findall(r"^- ", (ROOT / "docs/guide/writers.md").read_text(), re.MULTILINE)
    assert len(bullets) == 3, "a promise more: hold the modes to it here"


@pytest.mark.parametrize("held", [repeated_input, flushed_again, two_of_one_name])
def test_numbers_that_are_dropped_on_the_way_are_noticed(
    held: Callable[[Store], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plants a bug: the negative control."""
    monkeypatch.setattr(Numbers, "_new", lambda *_: True)
    store = Store(tmp_path / "s", MODES["kafka-1-separate-2"])
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            held(store)
    finally:
        store.db.close()
