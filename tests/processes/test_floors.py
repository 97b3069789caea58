"""Tests that retention leaves what transactions of other processes are about to consume."""

import time
from datetime import timedelta

from attached_kit import Store
from kit import lease

import planstep
from planstep.proto.frames import Floor
from planstep.runtime.floors import FloorReport, Floors


def test_the_lowest_floor_of_all_links_counts() -> None:
    floors = Floors()
    assert floors.lowest(7) is None
    floors.take(1, ((7, 50), (8, 3)))
    floors.take(2, ((7, 40),))
    assert (floors.lowest(7), floors.lowest(8), floors.lowest(9)) == (40, 3, None)
    floors.take(2, ((8, 9),))  # in place of the one before
    assert (floors.lowest(7), floors.lowest(8)) == (50, 3)
    floors.take(2, ())
    floors.drop(1)
    floors.drop(1)
    assert floors.lowest(7) is None and not floors.links


def test_floors_are_told_when_they_change() -> None:
    sent: list[Floor] = []
    report = FloorReport()
    for told in ({}, {8: 1, 7: 2}, {7: 2, 8: 1}, {7: 3}, {}, {}):
        report.tell(told, sent.append)
    assert sent == [Floor(((7, 2), (8, 1))), Floor(((7, 3),)), Floor(())]
    report.tell({7: 3}, sent.append)
    report.again()
    report.tell({7: 3}, sent.append)
    assert len(sent) == 5


def test_retention_leaves_what_an_attached_process_is_about_to_consume() -> None:
    with planstep.open(":memory:") as db:
        topic = db.create_topic("in", retention=timedelta(hours=1))
        topic.create_consumer("each", kind="individual")
        topic.write_batch([b"x"] * 30)
        db.create_topic("kept").write(b"x")
        later = time.time_ns() // 1_000_000 + 3_700_000
        maintenance, store = db._runtime.maintenance, Store(db)
        [tablet] = db.context.topic("in").partitions
        try:
            other, report = store.attach(), FloorReport()

            def tell() -> None:
                floors = other._runtime.maintenance.open_floors()
                report.tell(floors, lambda frame: maintenance.floors.take(1, frame.floors))

            with other.reader("in", "c", max_records=10) as reader:
                lease(reader, 30).tx.commit()
                held = lease(reader, 30)
                with other.reader("in", "each", max_records=25) as individual:
                    both = lease(individual, 30)
                    unlimited = other.transaction()
                    assert unlimited.read("kept", consumer="c")
                    assert other._runtime.maintenance.open_floors() == {tablet: 0}
                    both.tx.rollback()
                tell()
                maintenance.run(later)
                assert topic.describe().partitions[0] == (0, 10, 30)
                held.tx.commit()
                maintenance.run(later)
                assert topic.describe().partitions[0] == (0, 10, 30)  # nothing was told since
                tell()
                maintenance.run(later)
                assert topic.describe().records == 0
                unlimited.rollback()
        finally:
            store.end()
