"""Tests numbers of writers in mode "kafka": lost answers, rivals, kills. See test_guide_promises.py too."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from face_kit import QUICK, open_store, sees, until
from kit import client_settings, in_threads, python

import planstep
from planstep.proto.kafka.messages import AddPartitions, EndTxn, Produce


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("lost", [AddPartitions, Produce, EndTxn])
def test_a_flush_whose_answers_are_lost_is_flushed_again(lost: type, version: int) -> None:
    with open_store(protocol_version=version) as db:
        topic = db.create_topic("t", partitions=2, format="utf8")
        with topic.writer(producer="p") as writer:
            writer.write("before", partition=0)
        core: Any = db._runtime.hooks.client.core
        unanswered: dict[int, None] = {}
        handle, take = core.handle, core.take

        def watch() -> Any:
            out, timers, ended = take()
            unanswered.update((m.request, None) for _, m, _ in out if type(m) is lost)
            return out, timers, ended

        core.take = watch
        core.handle = lambda answer: None if answer.request in unanswered else handle(answer)
        writer = topic.writer(producer="p")
        assert [writer.write("x", partition=p) for p in (0, 1)] == [1, 0]
        if version == 1 or lost is not AddPartitions:
            with (
                client_settings(db, max_block_ms=300, request_timeout_ms=60),
                pytest.raises(planstep.Undetermined),
            ):
                writer.flush()
            assert writer.buffered == 2
        core.handle, core.take = handle, take
        until(lambda: _flushed(writer))
        writer.close()
        sees(db, "t", "before", "x", "x")


def _flushed(writer: planstep.Writer) -> Any:
    """Flushes; returns None if it failed, since the previous transaction may still be ending."""
    try:
        return writer.flush() or True
    except (planstep.Undetermined, planstep.KafkaError):
        return None


def test_rivals_with_the_same_source_publish_it_once() -> None:
    with open_store(protocol_version=2, hosts=2) as db:
        topic = db.create_topic("t", partitions=3, format="utf8")

        def copy(linger: int) -> None:
            with topic.writer(producer="file", linger_records=linger) as writer:
                for n in range(40):
                    writer.write(str(n), sequence=n)

        in_threads(partial(copy, linger) for linger in (1, 3, 40, 7))
        until(lambda: len(topic.read()) >= 40)
        assert sorted(map(int, topic.read().values)) == list(range(40))


KILLED = """
import os, signal, sys, planstep
db = planstep.open(sys.argv[1], mode="kafka", protocol_version=int(sys.argv[2]))
topic = db.create_topic("t", partitions=2, format="utf8", exist_ok=True)
with topic.writer(producer="file", linger_records=3) as writer:
    for n in range(10):
        if n == 7:
            print("go", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        writer.write(str(n), sequence=n)
"""


@pytest.mark.parametrize("version", [1, 2])
def test_killed_and_begun_again(tmp_path: Path, version: int) -> None:
    for _ in range(2):
        python(KILLED, tmp_path / "s", version, status=-signal.SIGKILL)
    with planstep.open(tmp_path / "s", kafka=QUICK) as db:
        with db.topic("t").writer(producer="file") as writer:
            for n in range(10):
                writer.write(str(n), sequence=n)
        until(lambda: len(db.topic("t").read()) >= 10)
        assert sorted(db.topic("t").read().values) == [str(n) for n in range(10)]


def test_names_of_writers_are_nobodys_consumers_or_workers() -> None:
    with open_store() as db:
        topic = db.create_topic("t")
        for producer in (b"p", b"=x", b"\xff" * 200, "\u00fc\n"):
            with topic.writer(producer=producer) as writer:
                assert writer.write(b"x") == 0
            with topic.writer(producer=producer) as writer:
                assert writer.write(b"x") == 1
        until(lambda: len(topic.read()) == 8)
        assert not topic.consumers()
        assert "writer:p" in [one.name for one in db.transactional_ids()]
        with pytest.raises(ValueError, match="of writers"):
            db.transaction(worker="writer:p")
