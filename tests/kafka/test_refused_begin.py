"""Tests a transaction that its producer cannot begin, because the previous one is still being aborted."""

import pytest
from face_kit import until

import planstep


def test_what_it_writes_goes_nowhere_and_its_commit_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planstep.open(":memory:", mode="kafka") as db:
        topic = db.create_topic("a", partitions=2)
        core = db._runtime.hooks.client.core
        with db.transaction(worker="w") as before:
            before.write("a", b"w", partition=0)
        with monkeypatch.context() as patched:
            patched.setattr(core, "begin", lambda handle, tx: "CONCURRENT_TRANSACTIONS")
            tx = db.transaction(worker="w")
            for partition in (0, 1, 0, 1):
                tx.write("a", b"x" * 100_000, partition=partition)
            with pytest.raises(planstep.KafkaError):
                tx.commit()
        with db.transaction(worker="w") as after:
            after.write("a", b"z", partition=0)
        assert until(lambda: sorted(topic.read().values) == [b"w", b"z"])
