"""Runs each loop over batches in the documentation over at least 100 batches, and checks that it sees each record
once.

A page's code runs unchanged, except that readers get ten records a batch, and each topic that a block reads in a
loop gets more records first. Each consumer's commits must cover its topic without gaps or repeats. A loop of a
page with fewer than 100 batches fails; so does a new kind of loop, until this file knows how to feed it.
"""

import ast
import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit import background, lease, module_of, until
from test_guide import OPEN_TO_THE_END, PAGES, ROOT, blocks, close_stores, open_stores

import planstep
from planstep.api.topics.consumer_group import Group
from planstep.api.topics.reader import Reader

BATCHES = 100
RECORDS = 10  # records of a batch, at most
FED = 1_250
READS = ("reader", "process", "iter_arrow", "iter_batches")
"""Calls that return a topic batch by batch."""

LONGER = {  # replaces a page's own data, so that its loop gets enough batches
    "writers.md": ('data = ["a", "b", "c"]', f"data = [str(n) for n in range(2 * {BATCHES})]")
}
NOT_ITS_END = "ProcessingError"
"""Marks a block that shows process stopping before the end."""


def called(node: ast.AST) -> set[str]:
    return {
        call.func.attr
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    }


def loops(code: str) -> list[str]:
    """Names the loops over batches in a block: over a reader or an iterator, `while`, and process."""
    tree = ast.parse(code)
    readers = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, (ast.With, ast.AsyncWith))
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and "reader" in called(item.context_expr)
    }
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.While):
            names.append(f"while {ast.unparse(node.test)}")
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            over = node.iter
            if isinstance(over, ast.Name) and over.id in readers:
                names.append(f"for … in {over.id}")
            elif isinstance(over, ast.Call) and called(over) & set(READS):
                names.append(f"for … in {ast.unparse(over)}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "process":
                names.append(ast.unparse(node))
    return names


class BatchLog:
    """Records the batches of one block's loops."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.committed: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
        self.sizes: dict[str, list[int]] = defaultdict(list)  # records of each iterator, by call
        self.runs = 0
        self._count_commits(monkeypatch)
        for name in ("iter_arrow", "iter_batches"):
            if hasattr(planstep.Topic, name):
                self._count_sizes(monkeypatch, name)
        run = planstep.Engine.run

        def counted(engine: planstep.Engine, *args: Any, **settings: Any) -> Any:
            self.runs += 1
            return run(engine, *args, **settings)

        monkeypatch.setattr(planstep.Engine, "run", counted)

    def _count_commits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ended, init = Group.ended, Reader.__init__

        def end(group: Group, flight: Any, step: int | None, *back: float | None) -> None:
            if step is not None:
                where = group.info.name, group.consumer
                self.committed[where].append((flight.lane.number, flight.begin, flight.end))
            ended(group, flight, step, *back)

        def small(reader: Reader, *args: Any, **settings: Any) -> None:
            init(reader, *args, **settings)
            reader.max_records = min(reader.max_records, RECORDS)

        monkeypatch.setattr(Group, "ended", end)
        monkeypatch.setattr(Reader, "__init__", small)

    def _count_sizes(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        gives = getattr(planstep.Topic, name)

        def counted(topic: planstep.Topic, *args: Any, **settings: Any) -> Iterator[Any]:
            call = f"{topic.name}.{name} {len(self.sizes)}"
            for batch in gives(topic, *args, **settings):
                self.sizes[call].append(len(batch))
                yield batch
            assert sum(self.sizes[call]) == topic.describe().records

        monkeypatch.setattr(planstep.Topic, name, counted)

    def check(self, to_the_end: bool) -> int:
        """Checks that each consumer got many batches without gaps; returns the number of loops."""
        for (topic, consumer), ranges in self.committed.items():
            assert len(ranges) >= BATCHES, (topic, consumer, len(ranges))
            at: dict[int, int] = {}
            for partition, begin, end in sorted(ranges):
                assert at.get(partition, begin) == begin < end, (topic, consumer, partition, begin)
                at[partition] = end
            if to_the_end:
                for partition, end in ends(topic).items():
                    assert at.get(partition, end) == end, (topic, consumer, partition)
        for call, counts in self.sizes.items():
            assert len(counts) >= BATCHES, call
        ran = len(self.committed) + len(self.sizes) + (self.runs >= BATCHES)
        self.committed.clear()
        self.sizes.clear()
        self.runs = 0
        return ran


@contextlib.contextmanager
def store_with(topic: str) -> Iterator[planstep.Engine | None]:
    for path in sorted(Path().glob("*.planstep")):
        with planstep.open(path) as db:
            if topic in db.topics():
                yield db
                return
    yield None


def ends(topic: str) -> dict[int, int]:
    with store_with(topic) as db:
        assert db is not None, topic
        return {part.partition: part.end for part in db.topic(topic).describe().partitions}


def topics_read(code: str, names: dict[str, Any]) -> set[str]:
    topics = set()
    for call in ast.walk(ast.parse(code)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            keywords = {word.arg: word.value for word in call.keywords}
            over = keywords.get("topic") or (call.args[0] if call.args else None)
            if call.func.attr in ("reader", "process"):
                if call.func.attr == "process" and "topic" not in keywords:
                    over = call.args[1]
                assert isinstance(over, ast.Constant), ast.unparse(call)
                topics.add(over.value)
            elif call.func.attr in READS and isinstance(call.func.value, ast.Name):
                topics.add(names[call.func.value.id].name)
    return topics


def feed(topic: str) -> None:
    """Writes more records like the topic's first ones; none into one that the block itself makes and fills."""
    with store_with(topic) as db:
        if db is None:
            return
        like = db.topic(topic).read(max_records=40)
        again = -(-FED // len(like))
        values, keys, headers = (
            [*column] * again for column in (like.values, like.keys, like.headers)
        )
        db.topic(topic).write_batch(values, keys=keys, headers=headers)


LOOPING = [
    page for page in PAGES if any(loops(b.text) for b in blocks(page) if b.language == "python")
]


@pytest.mark.parametrize("page", LOOPING, ids=[str(p.relative_to(ROOT)) for p in LOOPING])
def test_each_loop_of_a_page_sees_all(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name == "columns.md":
        pytest.importorskip("pyarrow")
        pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    log = BatchLog(monkeypatch)
    names: dict[str, Any] = {"__name__": "page"}
    old, new = LONGER.get(page.name, ("", ""))
    assert not old or sum(b.text.count(old) for b in blocks(page)) == 1
    try:
        for block in blocks(page):
            if block.language != "python":
                continue
            text = block.text.replace(old, new) if old else block.text
            expected = loops(text)
            for topic in sorted(topics_read(text, names)) if expected else ():
                feed(topic)
            exec(compile("\n" * block.line + text, str(page), "exec"), names)
            if expected:
                ran = log.check(NOT_ITS_END not in text)
                assert ran == len(expected), (
                    f"{page.name}:{block.line}: {expected}, {ran} of them ran"
                )
        assert not open_stores() or page.name in OPEN_TO_THE_END
    finally:
        close_stores()


# programs and notebooks --------------------------------------------------------------------

ELSEWHERE = {
    "outbox.py": "for … in reader",
    "enrich.py": "process",
    "01_first_transaction.py": "while db.run(count)",
    "02_three_ways_to_commit.py": "while True",
    "04_prove_a_history.py": "while True",
    "workers.py": "process",
}
"""The loops of programs and notebooks: the tests below run these; 04 judges its own 160 transactions, and
test_processes.py what workers.py bills."""
WAITS = ("db.phases", "db.transactional_ids", "time", "closed", "now()")
"""Parts of `while` conditions that do not loop over batches."""


def test_all_loops_of_programs_and_notebooks_are_known() -> None:
    """README.md and docs/spark.md have no loops."""
    programs = [
        *(ROOT / "docs" / "examples").glob("*.py"),
        *(ROOT / "bench/notebooks").glob("0*.py"),
    ]
    for program in programs:
        names = [
            loop
            for loop in loops(program.read_text())
            if not (loop.startswith("while ") and any(word in loop for word in WAITS))
        ]
        known = ELSEWHERE.get(program.name)
        assert len(names) == (known is not None), (program.name, names)
        assert known is None or known in names[0]
    for page in (ROOT / "README.md", ROOT / "docs" / "guide" / "spark.md"):
        assert not any(loops(b.text) for b in blocks(page) if b.language == "python")


def test_the_relay_of_the_outbox_delivers_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = BatchLog(monkeypatch)
    outbox, delivered = module_of(ROOT / "docs/examples/outbox.py"), list[str]()
    inbox = SimpleNamespace(deliver=lambda event_id, event: delivered.append(event_id))
    with planstep.open("outbox.planstep") as db:
        outbox.setup(db)
        db.topic("outbox").write_batch(
            [{"event": n} for n in range(FED)], keys=[str(n % 7) for n in range(FED)]
        )
        assert outbox.relay(db, inbox) == FED == len(set(delivered)) == len(delivered)
        assert log.check(True) == 1


def test_the_enrichment_enriches_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = BatchLog(monkeypatch)
    module_of(ROOT / "docs/examples/enrich.py").main("shop.planstep", FED)
    assert log.check(True) == 1
    with planstep.open("shop.planstep") as db:
        values = db.topic("enriched").read(max_records=2 * FED).values
        assert sorted(value["order"] for value in values) == list(range(FED))


def extract(notebook: str, *names: str) -> str:
    """Extracts these functions of a notebook, at any depth, and its `while` loops outside functions."""
    source = (ROOT / "bench" / "notebooks" / notebook).read_text()
    tree = ast.parse(source)
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    assert len(functions) == len(names)
    outside = [node for node in tree.body if isinstance(node, ast.While)]
    return "\n\n".join(ast.unparse(node) for node in [*functions, *outside])


def test_the_first_notebook_counts_until_nothing_is_left() -> None:
    code = extract("01_first_transaction.py", "count")
    with planstep.open(":memory:") as db:
        clicks = db.create_topic("clicks", partitions=3)
        out = db.create_topic("clicks-by-user", partitions=3)
        totals = db.create_table("totals")
        users = [f"u{n % 9}" for n in range(6 * BATCHES + 5)]
        clicks.write_batch([b"%d" % n for n in range(len(users))], keys=users)
        before = db._runtime.turns.committed
        exec(code, {"planstep": planstep, "db": db})
        assert db._runtime.turns.committed - before > BATCHES
        assert clicks.lag("counter") == 0 and sum(n for _, n in totals.scan()) == len(users)
        values = out.read(max_records=2 * len(users)).values
        assert sorted(map(int, values)) == list(range(len(users)))


def test_the_second_notebook_follows_a_topic() -> None:
    code = extract("02_three_ways_to_commit.py", "follow").partition("\n\nwhile")[0]
    with planstep.open(":memory:") as db:
        out = db.create_topic("out", format="utf8")
        read: dict[str, float] = {}
        done = threading.Event()
        names: dict[str, Any] = {"out": out, "read": read, "finished": done, "now": time.monotonic}
        exec(code, names)
        with background(names["follow"]):
            for n in range(BATCHES + 5):
                out.write(str(n))
                until(lambda n=n: str(n) in read)
            done.set()
        assert list(read) == [str(n) for n in range(BATCHES + 5)]


def test_a_reader_that_stops_early_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It detects too few batches, skipped records, and records seen twice."""
    monkeypatch.chdir(tmp_path)
    log = BatchLog(monkeypatch)
    with planstep.open("s.planstep") as db:
        db.create_topic("in").write_batch([b"x"] * FED)
        with db.reader("in", "c") as reader:
            for _ in range(5):
                lease(reader).tx.commit()
        with pytest.raises(AssertionError, match="5"):
            log.check(True)
        log.committed["in", "c"] = [(0, n, n + 1) for n in range(FED)]
        assert log.check(True) == 1
        for wrong in ([*range(20), *range(30, FED)], [*range(FED), 40], range(FED - 1)):
            log.committed["in", "c"] = [(0, n, n + 1) for n in wrong]
            with pytest.raises(AssertionError):
                log.check(True)
