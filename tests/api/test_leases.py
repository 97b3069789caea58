"""Readers, writers and process where something else goes wrong: silence, drops, closing, refusals."""

import asyncio
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import planstep
from planstep import testing
from planstep.proto.ids import host_of, tablet_prefix


@pytest.fixture(params=[1, 3], ids=["one host", "three hosts"])
def db(request: pytest.FixtureRequest) -> Iterator[planstep.Engine]:
    with planstep.open(":memory:", hosts=request.param) as made:
        made.create_topic("in", partitions=4)
        made.create_topic("out")
        made.create_table("n")
        yield made


def fill(db: planstep.Engine, records: int = 1) -> None:
    for p in range(4):
        db.topic("in").write_batch([b"x"] * records, partition=p)


def nothing(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
    """Consumes."""


def test_a_reader_that_does_not_read_has_no_share(db: planstep.Engine) -> None:
    fill(db)
    silent = db.reader("in", consumer="c")
    done = db.process(nothing, topic="in", consumer="c", until_idle=True)
    assert done.records == 4 and silent.partitions == []
    fill(db)
    leased = silent.read()
    assert leased is not None
    leased.tx.commit()
    silent.close()


def test_a_reader_that_fell_silent_has_no_share_any_more(db: planstep.Engine) -> None:
    fill(db, 2)
    one, two = (db.reader("in", consumer="c", max_records=1) for _ in range(2))
    group = one._group
    now = 0.0
    group._clock = lambda: now
    for reader in (one, two, one, two):
        leased = reader.read()
        assert leased is not None
        leased.tx.commit()
    assert len(one.partitions) == 2 and two.partitions
    now = 31.0
    read = 0
    while leased := one.read():
        leased.tx.commit()
        read += 1
    assert read == 4 and two.partitions == [] and one.idle()
    one.close()
    two.close()


def test_a_thousand_batches_behind_one_that_is_rolled_back(db: planstep.Engine) -> None:
    db.topic("out").write_batch([b"x"] * 1100)
    reader = db.reader("out", consumer="c", max_records=1, in_flight=2000)
    first = reader.read()
    assert first is not None
    futures = [leased.tx.submit() for _ in range(1099) if (leased := reader.read())]
    assert len(futures) == 1099
    first.tx.rollback()
    for future in futures:
        with pytest.raises(planstep.Conflict):
            future.result(30)
    assert reader.in_flight == 0
    reader.close()


def test_what_went_ahead_of_a_refused_batch_is_taken_back(db: planstep.Engine) -> None:
    fill(db, 2)
    with db.reader("in", consumer="c", max_records=1, in_flight=8) as reader:
        leased = [item for _ in range(8) if (item := reader.read())]
        one, two = (item for item in leased if item.batch.offsets[0][0] == 0)
        two.tx.write_batch("out", [bytes(1 << 20)] * 9)
        (tablet,) = db._topic("out").partitions
        store = db._runtime.nodes[host_of(tablet)].host.store
        staged = tablet_prefix(tablet) + b"s" + two.tx._tx
        assert store.get(staged)
        future = two.tx.submit()
        one.tx.rollback()
        with pytest.raises(planstep.Conflict):
            future.result(30)
        deadline = threading.Event()
        while store.get(staged) is not None:
            deadline.wait(0.001)


def test_a_new_reader_knows_what_the_last_one_left_in_flight(db: planstep.Engine) -> None:
    fill(db, 100)
    futures = []
    while True:
        with db.reader("in", consumer="c", max_records=5, in_flight=3) as reader:
            leased = [item for _ in range(3) if (item := reader.read(timeout=0.2))]
            futures += [item.tx.submit() for item in leased]
        if not leased:
            break
    assert all(future.result(30).place for future in futures) and len(futures) == 80


def test_closing_a_reader_ends_its_loop(db: planstep.Engine) -> None:
    fill(db)
    reader = db.reader("in", consumer="c")
    seen = 0
    for tx, _ in reader:
        tx.commit()
        seen += 1
        if seen == 4:
            threading.Timer(0.01, reader.close).start()
    assert seen == 4


def test_a_topic_that_was_dropped_and_made_anew_is_another(db: planstep.Engine) -> None:
    with db.reader("in", consumer="c") as reader:
        db.drop_topic("in")
        db.create_topic("in")
        with pytest.raises(planstep.Dropped, match="open another reader"):
            reader.read()


def test_trimming_where_a_reader_reads_is_no_error(db: planstep.Engine) -> None:
    stop = threading.Event()

    def meddle() -> None:
        while not stop.is_set():
            fill(db, 5)
            db.topic("in").trim("latest")

    meddler = threading.Thread(target=meddle)
    meddler.start()
    try:
        with db.reader("in", consumer="c") as reader:
            for _ in range(300):
                leased = reader.read()
                if leased is not None:
                    leased.tx.rollback()
    finally:
        stop.set()
        meddler.join()


def test_dead_letters_that_cannot_be_written_end_the_process(db: planstep.Engine) -> None:
    fill(db)

    def drop(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        db.drop_topic("dead", missing_ok=True)
        raise ValueError

    with pytest.raises(planstep.UnknownName, match="dead"):
        db.process(drop, topic="in", consumer="c", dead_letter="dead", until_idle=True)


def test_a_function_may_submit_or_commit_itself(db: planstep.Engine) -> None:
    fill(db, 3)
    db.table("n").put("text", "text")

    def submit(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.add("n", "k", len(batch))
        if batch.offsets[0] == (0, 1) and len(batch) == 1:
            tx.add("n", "text", 1)
        elif (0, 1) in batch.offsets:
            raise ValueError
        tx.submit()

    done = db.process(submit, topic="in", consumer="c", until_idle=True, on_error="skip")
    assert (done.records, done.skipped, db.table("n").get("k")) == (12, 1, 11)


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_function_of_asyncio_may_submit_itself(hosts: int) -> None:
    async def main() -> None:
        async with planstep.open_async(":memory:", hosts=hosts) as db:
            topic = await db.create_topic("in")
            table = await db.create_table("n")
            await table.put("text", "text")
            await topic.write_batch([b"x"] * 6)

            async def submit(tx: planstep.AsyncTransaction, batch: planstep.ReadBatch) -> None:
                if len(batch) > 1:
                    raise ValueError
                await tx.add("n", "text" if batch.offsets[0] == (0, 3) else "k", 1)
                if batch.offsets[0] == (0, 4):
                    await tx.commit()
                else:
                    tx.submit()

            done = await db.process(submit, "in", "c", until_idle=True, on_error="skip")
            assert (done.records, done.skipped, await table.get("k")) == (6, 1, 5)
            calls = 0

            async def conflicting(tx: planstep.AsyncTransaction) -> None:
                nonlocal calls
                calls += 1
                n = await tx.get("n", "k")
                if calls == 1:
                    await table.add("k", 1)
                await tx.put("n", "k", n + 1)
                tx.submit()

            await db.run(conflicting)
            assert calls == 2 and await table.get("k") == 7

            def fail(progress: planstep.Progress) -> None:
                raise KeyError

            tasks = len(asyncio.all_tasks())
            monkeypatch = pytest.MonkeyPatch()
            monkeypatch.setattr("planstep.aio.process.report", lambda *args: fail(args[1]))
            with pytest.raises(KeyError):
                await db.process(submit, "in", "c", until_idle=True, progress=fail)
            monkeypatch.undo()
            assert len(asyncio.all_tasks()) == tasks

    asyncio.run(main())


def test_another_loop_may_not_close_and_the_right_one_still_can(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:

        async def opened() -> planstep.AsyncEngine:
            return await planstep.open_async(tmp_path / "s")

        db = runner.run(opened())
        failed: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(db.close())
            except RuntimeError as error:
                failed.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert failed and not db.closed
        runner.run(db.close())
        assert db.closed and db._sync.closed


def test_a_record_that_write_refused_is_not_in_the_buffer(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = db._runtime.commit
    errors: list[Exception] = [planstep.NoSpace("full"), planstep.Undetermined("lost")]

    def fail(*args: Any) -> Any:
        if errors:
            if isinstance(errors[0], planstep.Undetermined):
                commit(*args)
            raise errors.pop(0)
        return commit(*args)

    monkeypatch.setattr(db._runtime, "commit", fail)
    topic = db.topic("out")
    writer = topic.writer(linger_records=1)
    with pytest.raises(planstep.NoSpace):
        writer.write(b"a")
    assert writer.buffered == 0
    assert writer.write(b"a") == 0  # published, but nobody knows
    with pytest.raises(planstep.Undetermined) as caught:
        writer.write(b"b")
    assert "keeps the records" in caught.value.__notes__[0]
    writer.flush()
    assert writer.write(b"b") == 1
    writer.close()
    assert topic.read().values == [b"a", b"b"]


def test_what_lingers_and_cannot_be_published_is_told_when_closing(tmp_path: Path) -> None:
    db = planstep.open(tmp_path / "s")
    writer = db.create_topic("t").writer(linger=3600)
    writer.write(b"x")

    def fail(*args: Any) -> Any:
        raise planstep.NoSpace("full")

    db._runtime.commit = fail  # type: ignore[method-assign]
    with pytest.raises(planstep.NoSpace) as caught:
        db.close()
    assert "was not published" in caught.value.__notes__[0]
    assert db.closed
    planstep.open(tmp_path / "s").close()


def test_what_goes_ahead_and_its_commit_have_answers_of_their_own(
    db: planstep.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait under one transaction's id, one after the other."""
    monkeypatch.setattr("planstep.api.transaction.AHEAD_BYTES", 200)
    wrong: list[str] = []

    def work() -> None:
        for _ in range(60):
            tx = db.transaction()
            tx.get("n", "k")
            for p in range(4):
                tx.write("in", bytes(300), partition=p)
            db.table("n").put("k", 1)
            try:
                tx.put("n", "k", 2)
                tx.commit()
                wrong.append(tx.id)
            except planstep.Conflict:
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong and not db._runtime._waiting and not db._runtime.admission.bytes


def test_an_idle_reader_sleeps(db: planstep.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with db.reader("in", consumer="c") as reader:
        looks = 0
        look = reader._look

        def counted(*args: Any) -> Any:
            nonlocal looks
            looks += 1
            return look(*args)

        monkeypatch.setattr(reader, "_look", counted)
        assert reader.read(timeout=0.3) is None
        assert looks < 6


def test_a_read_under_way_ends_with_the_engine() -> None:
    with testing.engine(hosts=3) as db:
        table = db.create_table("n", shards=3)
        table.put("k", 1)
        view = db.snapshot()
        node = db._runtime.nodes[1]
        view._reading.snap.marks[1] += 10  # type: ignore[union-attr]
        failed: list[BaseException] = []

        def read() -> None:
            try:
                list(view.scan("n"))
            except planstep.EngineClosed as error:
                failed.append(error)

        reading = threading.Thread(target=read)
        reading.start()
        while not node.changed._listening:
            pass
        db.close()
        reading.join(20)
        assert failed


def test_a_callback_on_any_thread_may_close_the_engine(tmp_path: Path) -> None:
    db = planstep.open(tmp_path / "s")
    topic = db.create_topic("t")
    topic.write_batch([b"x"] * 4)
    reader = db.reader("t", "c", max_records=1)
    now = 0.0
    reader._group._clock = lambda: now
    one, two = reader.read(), reader.read()
    assert one is not None and two is not None
    closed = threading.Event()

    def close(future: object) -> None:
        db.close()
        closed.set()

    future = two.tx.submit()
    now = 31.0
    future.add_done_callback(close)
    assert closed.wait(20)
    planstep.open(tmp_path / "s").close()


def test_groups_that_nobody_is_in_are_forgotten(db: planstep.Engine) -> None:
    for i in range(20):
        db.reader("in", consumer=f"c{i}").close()
    db._end_leases()
    assert not db._groups


def test_an_event_loop_goes_on_while_a_flush_has_the_writer() -> None:
    async def main() -> None:
        async with planstep.open_async(":memory:") as db:
            writer = (await db.create_topic("t")).writer()
            with writer._sync._lock:  # this thread's: the loop is another's
                pass
            held, release = threading.Event(), threading.Event()

            def hold() -> None:
                with writer._sync._lock:
                    held.set()
                    release.wait(20)

            thread = threading.Thread(target=hold)
            thread.start()
            held.wait(20)
            writing = asyncio.create_task(writer.write(b"x"))
            for _ in range(5):
                await asyncio.sleep(0.001)
            assert not writing.done()
            release.set()
            assert await writing == 0
            thread.join()
            await writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("hosts", [1, 3])
def test_readers_under_lost_answers_and_a_crash_with_a_lingering_writer(hosts: int) -> None:
    with testing.engine(lost_answers=0.3, seed=1, hosts=hosts) as db:
        topic = db.create_topic("t", partitions=2)
        written = 0
        while topic.describe().records < 100:
            try:
                topic.write(b"x", partition=written % 2)
            except planstep.Undetermined:
                written += 1
        with db.reader("t", "c", max_records=1, in_flight=8) as reader:
            while not reader.idle():
                leased = reader.read(timeout=0.5)
                if leased is not None:
                    leased.tx.submit()
        topic.writer(linger=60).write(b"gone")
        again = testing.crash(db)
        assert again.topic("t").lag("c") == 0


@pytest.mark.parametrize("hosts", [1, 3])
def test_callbacks_come_on_a_thread_of_the_engine(hosts: int) -> None:
    """Never on a committing thread: that may hold what the callback wants, or be deep in callbacks."""
    with planstep.open(":memory:", hosts=hosts) as db:
        table = db.create_table("t")
        lock = threading.Lock()
        ended: list[str] = []

        def count(future: object) -> None:
            with lock:
                ended.append(threading.current_thread().name)

        def submit() -> None:
            tx = db.transaction()
            tx.add("t", "n", 1)
            tx.submit().add_done_callback(count)

        for _ in range(50):
            submit()
            with lock:
                table.add("m", 1)
        deadline = threading.Event()
        while len(ended) < 50:
            deadline.wait(0.001)
        here = threading.current_thread().name
        # A callback that is added to a finished future runs where it is added.
        assert sum(name != here for name in ended) > 0
        assert {name for name in ended if name != here} == {
            "planstep-service" if hosts == 1 else "planstep-answers"
        }


@pytest.mark.parametrize("hosts", [1, 3])
def test_callbacks_that_commit_do_not_nest(hosts: int) -> None:
    with planstep.open(":memory:", hosts=hosts) as db:
        table = db.create_table("t")
        done = threading.Event()
        left = 3000

        def again(future: object) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                done.set()
                return
            table.add("n", 1)
            submit()

        def submit() -> None:
            tx = db.transaction()
            tx.add("t", "n", 1)
            tx.submit().add_done_callback(again)

        for _ in range(5):
            submit()
        assert done.wait(60)
        assert table.get("n", 0) > 3000


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
def test_what_a_callback_raises_ends_no_thread(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    for hosts in (1, 3):
        with planstep.open(":memory:", hosts=hosts) as db:
            db.create_table("t")

            def fail(future: object) -> None:
                raise error("made to fail")

            tx = db.transaction()
            tx.add("t", "n", 1)
            future = tx.submit()
            future.add_done_callback(fail)
            future.result(20)
            tx = db.transaction()
            tx.add("t", "n", 1)
            assert tx.submit().result(20).place


@pytest.mark.parametrize("hosts", [1, 3])
def test_an_interrupt_while_closing_is_raised_when_it_is_closed(
    tmp_path: Path, hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = planstep.open(tmp_path / "s", hosts=hosts)
    db.create_table("t").put("k", 1)
    interrupts = 1

    def interrupted(*args: Any) -> None:
        nonlocal interrupts
        if interrupts:
            interrupts -= 1
            raise KeyboardInterrupt
        stop(*args)

    stop = db._runtime._stop_everything
    monkeypatch.setattr(db._runtime, "_stop_everything", interrupted)
    with pytest.raises(KeyboardInterrupt):
        db.close()
    assert db.closed
    db = planstep.open(tmp_path / "s")
    stop = db._runtime._stop_everything
    monkeypatch.setattr(db._runtime, "_stop_everything", interrupted)
    interrupts = 2
    with pytest.raises(KeyboardInterrupt):
        db.close()
    db.close()  # once more, and it is
    with planstep.open(tmp_path / "s") as db:
        assert db.table("t").get("k") == 1


def test_a_scan_while_the_engine_is_closed_says_so(tmp_path: Path) -> None:
    for _ in range(10):
        db = planstep.open(tmp_path / "s")
        table = db.create_table("t", exist_ok=True)
        table.load([(i, i) for i in range(2000)])
        db._runtime.nodes[0].host.store.checkpoint()
        failed: list[BaseException] = []

        def scan(table: planstep.Table = table, failed: list[BaseException] = failed) -> None:
            try:
                while True:
                    table.scan()
            except BaseException as error:
                failed.append(error)

        scanning = threading.Thread(target=scan)
        scanning.start()
        db.close()
        scanning.join(20)
        assert isinstance(failed[0], planstep.EngineClosed), failed


def test_what_was_interrupted_going_ahead_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rollback comes while it is under way."""
    with planstep.open(":memory:", hosts=3) as db:
        db.create_topic("t", partitions=3)
        runtime = db._runtime
        wait = runtime._wait_for

        def interrupted(*args: Any) -> None:
            raise KeyboardInterrupt

        for _ in range(5):
            with pytest.raises(KeyboardInterrupt), db.transaction() as tx:
                with monkeypatch.context() as patch:
                    patch.setattr(runtime, "_wait_for", interrupted)
                    for p in range(3):
                        tx.write_batch("t", [bytes(1 << 20)] * 4, partition=p)
        assert runtime._wait_for == wait
        deadline = threading.Event()
        while runtime._waiting or runtime.admission._held:
            deadline.wait(0.001)
        assert runtime.admission.bytes == 0


@pytest.mark.filterwarnings("default:.* was dropped without:ResourceWarning")
def test_what_is_dropped_unsaid_is_warned_of(db: planstep.Engine) -> None:
    with pytest.warns(ResourceWarning, match="was dropped without commit or rollback"):
        tx = db.transaction()
        tx.put("n", "k", 1)
        del tx
    with pytest.warns(ResourceWarning, match="1 record buffered> was dropped without close"):
        writer = db.topic("out").writer()
        writer.write(b"x")
        del writer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tx = db.transaction()
        tx.get("n", "k")
        del tx


@pytest.mark.parametrize("wrong", ["async", "generator", "rolls back", "reads", "arity"])
def test_a_function_that_is_wrong_loses_nothing(db: planstep.Engine, wrong: str) -> None:
    fill(db)

    async def asynchronous(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        raise AssertionError("never run")

    def generator(tx: planstep.Transaction, batch: planstep.ReadBatch) -> Iterator[int]:
        yield 1

    def rolls_back(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.rollback()

    def reads(tx: planstep.Transaction, batch: planstep.ReadBatch) -> None:
        tx.read("in", "c")

    functions: dict[str, Any] = {
        "async": asynchronous,
        "generator": generator,
        "rolls back": rolls_back,
        "reads": reads,
        "arity": lambda batch: None,
    }
    with pytest.raises((TypeError, planstep.ProcessingError)) as caught:
        db.process(functions[wrong], topic="in", consumer="c", until_idle=True)
    assert isinstance(caught.value, TypeError) or isinstance(caught.value.__cause__, TypeError)
    assert db.topic("in").lag("c") == 4
    if wrong in ("async", "generator"):
        with pytest.raises(TypeError, match="plain function"):
            db.run(lambda tx: functions[wrong](tx, None))


def test_a_commit_says_where_its_records_are(db: planstep.Engine) -> None:
    with db.transaction() as tx:
        tx.write_batch("in", [b"a", b"b", b"c"], partition=[1, 3, 1])
        tx.put("n", "k", 1)
        commit = tx.commit()
    assert commit.id == tx.id and commit.published == {("in", 1): (0, 2), ("in", 3): (0, 1)}
    assert repr(commit) == f"<Commit {tx.id} at ({commit.place.step}, {commit.place.n})>"
