"""Tests that readers of an individual consumer finish over a log with hidden offsets, in a mode made here."""

import random
from typing import Any

import pytest

import planstep
from planstep.runtime import open_stores
from planstep.runtime.mode_hooks import ModeHooks
from planstep.runtime.snapshot_reads import Segment, Snapshot, Views

SEEDS = range(30)


class HoledViews(Views):
    """Reads as mode "deterministic" does, without the offsets in `hidden`."""

    has_holes = True
    hidden: frozenset[int] = frozenset()

    def visible_from(self, tablet: int, offset: int) -> int:
        while offset in self.hidden:
            offset += 1
        return offset

    def read_segments(
        self,
        snap: Snapshot,
        tablet: int,
        partition: int,
        offset: int,
        max_records: int,
        max_bytes: int,
    ) -> list[Segment]:
        _, end = self.bounds(snap, tablet)
        slices: list[Segment] = []
        size = 0
        while len(slices) < max_records:
            offset = self.visible_from(tablet, offset)
            if offset >= end or (slices and size >= max_bytes):
                break
            (piece,) = super().read_segments(snap, tablet, partition, offset, 1, max_bytes)
            slices.append(piece)
            size += len(piece.batch.data)
            offset += 1
        return slices


class Holed(ModeHooks):
    def views(self) -> Views:
        runtime = self.runtime
        return HoledViews(runtime.nodes, runtime.turns.check_open, runtime.rtt_ms)


@pytest.fixture
def db(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(open_stores.HOOKS, "deterministic", Holed)
    with planstep.open(":memory:") as db:
        yield db


def holed(db: planstep.Engine, draw: random.Random, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes a topic with holes anywhere, mostly at its end; returns the visible offsets."""
    topic = db.create_topic("in", partitions=1)
    written = 0
    for _ in range(draw.randrange(1, 6)):
        many = draw.randrange(1, 9)
        topic.write_batch([b"%d" % n for n in range(written, written + many)])
        written += many
    tail = draw.randrange(written + 1)
    hidden = [n for n in range(written) if n >= tail or draw.random() < 0.4]
    monkeypatch.setattr(HoledViews, "hidden", frozenset(hidden))
    topic.create_consumer("c", kind="individual")
    return [n for n in range(written) if n not in hidden]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_sees_each_record_once_and_comes_to_an_end(
    db: planstep.Engine, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    visible = holed(db, draw, monkeypatch)
    offsets: list[int] = []
    with db.reader("in", consumer="c", max_records=draw.randrange(1, 5), in_flight=3) as reader:
        under_way: list[Any] = []
        for _ in range(1_000):
            leased = reader.read() if len(under_way) < 3 else None
            if leased is not None:
                under_way.append(leased)
                continue
            if not under_way:
                break
            leased = under_way.pop(draw.randrange(len(under_way)))
            if draw.random() < 0.3:
                leased.tx.rollback()
            else:
                leased.tx.commit()
                offsets += [offset for _, offset in leased.batch.offsets]
        assert reader.idle() and reader.read() is None
    assert sorted(offsets) == visible


@pytest.mark.parametrize("seed", SEEDS)
def test_a_transaction_reads_what_is_left_of_the_free_ranges(
    db: planstep.Engine, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(1_000 + seed)
    visible = holed(db, draw, monkeypatch)
    for offset in draw.sample(visible, len(visible) // 3):  # another reader took them
        with db.transaction() as tx:
            tx.consume("in", "c", 0, offset, offset + 1)
        visible.remove(offset)
    offsets: list[int] = []
    for _ in range(1_000):
        with db.transaction() as tx:
            batch = tx.read("in", consumer="c", max_records=draw.randrange(1, 5))
        if not len(batch):
            break
        offsets += [offset for _, offset in batch.offsets]
        assert batch.more == (len(offsets) < len(visible))
    assert offsets == visible
