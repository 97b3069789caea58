"""Tests writers of mode "pulsar" through the public face: their numbers. Scenarios 40 and 43 in part."""

from pathlib import Path

import pytest
from engine_kit import opened

import planstep


def test_a_named_writer_goes_on_behind_what_was_published(tmp_path: Path) -> None:
    for _ in range(2):
        with opened(tmp_path / "s", deduplication=True, batch_bytes=64) as db:
            topic = db.create_topic("t", partitions=2, format="utf8", exist_ok=True)
            with topic.writer(producer="file", linger_records=4) as writer:
                for n in range(10):
                    writer.write(f"{n} is a message of some length", partition=n % 2, sequence=n)
    with opened(tmp_path / "s", deduplication=True) as db:
        shown = db.topic("t").read().values
        assert sorted(shown) == [f"{n} is a message of some length" for n in range(10)]


def test_numbers_below_the_last_one_are_a_conflict_without_dedupe() -> None:
    with opened(deduplication=True) as db:
        topic = db.create_topic("t", partitions=1, format="utf8")
        with topic.writer(producer="p") as writer:
            writer.write("a", sequence=5)
        with pytest.raises(planstep.Conflict):
            with topic.writer(producer="p", dedupe=False) as writer:
                writer.write("b", sequence=4)
        assert topic.read().values == ["a"]


def test_named_writers_need_deduplication() -> None:
    with opened() as db:
        topic = db.create_topic("t", partitions=1, format="utf8")
        with pytest.raises(planstep.NotSupported, match="deduplication=True"):
            with topic.writer(producer="p") as writer:
                writer.write("a")
        assert topic.read().values == []


@pytest.mark.parametrize("deduplication", (False, True))
def test_a_writer_without_a_name_needs_nothing(deduplication: bool) -> None:
    with opened(deduplication=deduplication) as db:
        topic = db.create_topic("t", partitions=1, format="utf8")
        for n in range(3):
            with topic.writer(linger_records=2) as writer:
                for m in range(5):
                    writer.write(f"{n} {m}")
        assert topic.read().values == [f"{n} {m}" for n in range(3) for m in range(5)]


def test_a_write_whose_answer_was_lost_is_sent_again_and_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(deduplication=True) as db:
        topic = db.create_topic("t", partitions=1, format="utf8")
        client = db.context.runtime.hooks.client  # type: ignore[attr-defined]
        answered, lost = client.answered, []

        def lose_one(answers: list[object]) -> None:
            if lost:
                answered(answers)
            else:
                lost.append(answers)
                client.lost()

        monkeypatch.setattr(client, "answered", lose_one)
        done = topic.write("a")
        assert lost and (done.partition, done.offset) == (0, -1)
        assert topic.write("b").offset == 1
        assert topic.read().values == ["a", "b"]
