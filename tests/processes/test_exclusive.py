"""An exclusive consumer of mode "pulsar" has one reader, or one `process`, in all processes together.

A transaction's own read is refused in the process of that reader, and not in others: they do not ask.
"""

from pathlib import Path

import pytest
from kit import until
from process_kit import Other

import planstep

_READ = "db.reader('t', 'x').__enter__()"
_PROCESS = "db.process(lambda tx, batch: None, 't', 'x', until_idle=True).records"


def is_free(other: Other) -> bool:
    try:
        other.run(f"reader = {_READ}")
    except planstep.PulsarError:
        return False
    return True


def test_one_reader_or_process_in_all_processes(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", mode="pulsar") as db, Other(tmp_path / "s") as other:
        db.create_topic("t").create_consumer("x", exclusive=True)
        db.topic("t").write_batch([b"a", b"b"])
        with db.reader("t", "x") as reader:
            for code in (_READ, _PROCESS):
                with pytest.raises(planstep.PulsarError, match="ConsumerBusy"):
                    other(code)
            leased = reader.read(timeout=60)
            assert leased is not None
            leased.tx.commit()
        until(lambda: is_free(other))
        for run in (
            lambda: db.reader("t", "x"),
            lambda: db.process(lambda tx, batch: None, "t", "x", until_idle=True),
        ):
            with pytest.raises(planstep.PulsarError, match="ConsumerBusy"):
                run()
        other.kill()  # it held the consumer: so it is free
        until(lambda: db.stats()["processes"]["attached"] == 0)
        db.topic("t").write(b"c")
        with db.reader("t", "x") as reader:
            leased = reader.read(timeout=60)
            assert leased is not None and leased.batch.values == [b"c"]
            leased.tx.commit()


def test_a_transactions_own_read_is_refused_where_the_reader_is(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s", mode="pulsar") as db, Other(tmp_path / "s") as other:
        db.create_topic("t").create_consumer("x", exclusive=True)
        db.topic("t").write_batch([b"a", b"b"])
        other.run("tx = db.transaction()")
        with db.reader("t", "x"), db.transaction() as tx:
            for read in (
                lambda: tx.read("t", "x"),
                lambda: tx.consume("t", "x", 0, 0, 1),
            ):
                with pytest.raises(planstep.PulsarError, match="ConsumerBusy"):
                    read()
            assert other("tx.read('t', 'x').values") == [b"a", b"b"]
            other.run("tx.rollback()")
