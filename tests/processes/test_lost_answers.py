"""An owner in mode "kafka" or "pulsar" dies between a durable end and its answer: the client asks the next one.

Kafka's coordinator answers a repeated EndTxn as the first one. Pulsar's does so where it remembers what has ended.
"""

from pathlib import Path
from typing import Any

import pytest
from kit import until
from process_kit import Code, Other

import planstep

_REMEMBERS = Code("planstep.PulsarSettings(ended_kept=1000)")
_DIE = """
from planstep.runtime.processes.remote_client import RemoteClient
RemoteClient.answered = lambda self, answers: os._exit(9)
"""
"""The owner ends with the next turn that answers another process's client: the turn is durable."""


def answered_by_the_next_owner(path: Path, consumes: bool, **options: Any) -> planstep.Commit:
    """Commits while the owner dies before it answers; checks that all of it is there, once."""
    owner = Other(path, **options)
    owner.run("db.create_topic('t'); db.topic('t').write(b'a'); db.topic('t').create_consumer('c')")
    with Other(path) as other, planstep.open(path) as db:
        tx = db.transaction()
        if consumes:  # then the position is what goes first, and its answer is lost
            assert tx.read("t", "c").values == [b"a"]
        tx.write("t", b"b")
        tx.flush()
        owner.run(_DIE)
        try:
            commit: planstep.Commit = tx.commit()
            assert db.outcome(tx.id).state == "committed"
        finally:
            owner.kill()
            until(lambda: db.topic("t").read().values == [b"a", b"b"])
            assert other("db.topic('t').read().values") == [b"a", b"b"]
        if consumes:
            with db.transaction() as tx:
                assert tx.read("t", "c").values == [b"b"]
    return commit


@pytest.mark.parametrize("consumes", [False, True])
def test_kafka_asks_again(tmp_path: Path, consumes: bool) -> None:
    assert answered_by_the_next_owner(tmp_path / "s", consumes, mode="kafka").place.n is None


def test_pulsar_asks_again_where_coordinators_remember(tmp_path: Path) -> None:
    answered_by_the_next_owner(tmp_path / "s", False, mode="pulsar", pulsar=_REMEMBERS)


def test_pulsar_goes_on_with_a_commit_that_was_not_decided(tmp_path: Path) -> None:
    answered_by_the_next_owner(tmp_path / "s", True, mode="pulsar")


def test_pulsar_forgets_what_has_ended_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(planstep.Undetermined) as doubt:
        answered_by_the_next_owner(tmp_path / "s", False, mode="pulsar")
    assert "was TransactionNotFound. It has ended, and nobody knows how" in str(doubt.value)
    assert "ended_kept" in str(doubt.value) and "30" not in str(doubt.value)
