"""Tests the partition alone: conditions at a place, and the effects of publishing and trimming."""

from typing import Any

import pytest
from dict_space import DictSpace

from planstep.proto.ids import PARTITION, PROXY, tablet_id
from planstep.proto.messages import (
    Clean,
    PartitionPart,
    Prepared,
    Propose,
    Refused,
    Stage,
    Staged,
    Withdraw,
)
from planstep.proto.reasons import NotNext
from planstep.tablets import partition as module
from planstep.tablets.partition import Partition

TABLET, CLIENT = tablet_id(PARTITION, 0, 1), tablet_id(PROXY, 0, 1)


class Log:
    """Runs a partition and collects its messages; each `publish` is one step."""

    def __init__(self) -> None:
        self.space = DictSpace()
        self.sent: list[Any] = []
        self.core = Partition(TABLET, self.space, lambda target, message: self.sent.append(message))
        self.step = 0

    def publish(self, **part: Any) -> Any:
        """Publishes a part; returns the reason if it is refused at its place, else the result."""
        self.step += 1
        body = PartitionPart(**part)
        reason = self.core.vote(b"tx%d" % self.step, body)
        if reason is not None:
            assert reason[0] == TABLET
            return reason[1:]
        return self.core.publish(b"tx%d" % self.step, body, self.step, 0)

    def write(self, *counts: int, **part: Any) -> Any:
        return self.publish(slices=tuple((b"d" * n, n) for n in counts), **part)

    def seek(self, consumer: str, offset: int | None, individual: bool = False) -> Any:
        return self.publish(seeks=((consumer, offset, individual),))


@pytest.fixture
def log() -> Log:
    return Log()


def test_offsets_follow_each_other(log: Log) -> None:
    assert [log.write(3), log.write(2, 5), log.write(1)] == [(0, 3), (3, 10), (10, 11)]


def test_a_consumer_goes_on_where_it_stands_and_not_beyond_the_end(log: Log) -> None:
    log.write(10)
    assert log.publish(ranges=(("c", 0, 4),)) is None
    assert log.publish(ranges=(("c", 0, 4),)) == ("position", "c", 0, 4)
    assert log.publish(ranges=(("c", 6, 7),)) == ("position", "c", 6, 4)
    assert log.publish(ranges=(("c", 4, 11),)) == ("range", "c", 11, 10)


def test_a_range_further_on_may_still_become_the_next_one(log: Log) -> None:
    log.write(10)
    ahead = PartitionPart(ranges=(("c", 6, 7),))
    assert log.core.check(ahead, early=True) is None
    assert log.core.check(ahead, early=False) == NotNext("c", 6, 0)


def test_a_consumer_is_of_one_kind(log: Log) -> None:
    log.write(10)
    log.seek("each", 0, individual=True)
    log.seek("all", 0)
    assert log.publish(ranges=(("each", 0, 1),)) == ("consumer", "each", "cumulative", "individual")
    assert log.publish(acks=(("all", 0, 1),)) == ("consumer", "all", "individual", "cumulative")


def test_one_by_one_each_record_is_consumed_once(log: Log) -> None:
    log.write(10)
    log.seek("each", 0, individual=True)
    sought = (("each", 2),)
    assert log.publish(acks=(("each", 4, 6), ("each", 8, 9)), fences=sought) is None
    assert log.publish(acks=(("each", 5, 7),), fences=sought) == ("position", "each", 5, 6)
    assert log.publish(acks=(("each", 1, 2), ("each", 1, 3)), fences=sought) == (
        "position",
        "each",
        1,
        2,
    )
    assert log.publish(acks=(("each", 9, 12),), fences=sought) == ("range", "each", 12, 10)
    assert log.publish(acks=(("each", 0, 4),), fences=sought) is None
    assert log.space.get(b"ceach")[2:] == (6, 0, ((8, 9),), 2)


def test_gaps_have_an_end(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RANGES_MAX", 3)
    log.write(20)
    log.seek("each", 0, individual=True)
    sought = (("each", 2),)
    assert log.publish(acks=tuple(("each", at, at + 1) for at in (1, 3, 5)), fences=sought) is None
    assert log.publish(acks=(("each", 7, 8),), fences=sought) == ("gaps", "each", 3)
    assert log.publish(acks=(("each", 0, 1), ("each", 7, 8)), fences=sought) is None


def test_who_consumes_says_which_move_he_knows_of(log: Log) -> None:
    log.write(10)
    assert log.publish(ranges=(("c", 0, 4),)) is None
    assert log.space.get(b"cc") == (2, 0, 4, 0)  # the row of a consumer that was never moved
    log.seek("c", 4)
    assert log.publish(ranges=(("c", 4, 5),)) == ("moved", "c", 0, 3)
    assert log.publish(ranges=(("c", 4, 5),), fences=(("c", 3),)) is None
    assert log.space.get(b"cc") == (5, 0, 5, 0, None, 3)
    log.seek("c", 5)
    assert log.publish(ranges=(("c", 5, 6),), fences=(("c", 3),)) == ("moved", "c", 3, 6)


def test_who_was_forgotten_was_moved(log: Log) -> None:
    log.write(10)
    log.seek("c", None)  # there was none
    assert log.publish(ranges=(("c", 0, 4),)) is None
    log.seek("c", None)
    assert log.publish(ranges=(("c", 0, 4),)) == ("moved", "c", 0, 4)
    for begin in (0, 4):  # one read before the other's end
        assert log.publish(ranges=(("c", begin, begin + 4),), fences=(("c", 4),)) is None
    a = PartitionPart(seeks=(("c", None, False),))
    assert log.core.must_wait_for(a, PartitionPart(ranges=(("d", 0, 1),)))


def test_rows_of_before_there_were_moves_go_on(log: Log) -> None:
    log.write(10)
    log.space.put(b"call", (1, 0, 4, 1))
    log.space.put(b"ceach", (1, 0, 4, 1, ((6, 7),)))
    assert log.publish(ranges=(("all", 4, 5),), acks=(("each", 4, 5),)) is None
    assert log.space.get(b"call") == (2, 0, 5, 1)
    assert log.space.get(b"ceach") == (2, 0, 5, 1, ((6, 7),))


def test_a_seek_stays_inside_the_log_and_may_forget(log: Log) -> None:
    log.write(5)
    log.publish(trim=5)
    log.write(5)
    assert log.seek("c", 4) == ("range", "c", 4, 10)
    assert log.seek("c", 11) == ("range", "c", 11, 10)
    assert log.seek("c", None) is None and log.space.get(b"cc") is None
    assert log.seek("c", 7) is None and log.space.get(b"cc")[2] == 7
    assert log.seek("c", None) is None and log.space.get(b"cc") is None


def test_trimming_gives_payload_back_and_counts_what_was_missed(log: Log) -> None:
    log.write(3), log.write(3), log.write(3)
    log.publish(ranges=(("c", 0, 1),))
    assert log.publish(trim=10) == ("range", "trim", 10, 9)
    log.publish(trim=7)
    assert len(log.space.dropped) == 2  # the third slice holds 7 and 8
    log.publish(trim=2)  # before the start already
    assert log.space.get(b"m")[2:] == (7, 9)
    assert log.publish(ranges=(("c", 7, 9),)) is None
    assert log.space.get(b"cc")[2:] == (9, 6)


def test_a_long_trim_goes_in_pieces(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIM_SLICES_MAX", 2)
    for _ in range(5):
        log.write(2)
    starts = []
    for _ in range(3):
        log.publish(trim=9)
        starts.append(log.space.get(b"m")[2])
    assert starts == [4, 8, 9]


def test_a_producers_number_counts_once(log: Log) -> None:
    mine = {"producer": (b"p", 1, 2), "dedupe": True, "session": b"s"}
    assert log.write(2, **mine) == (0, 2)
    assert log.write(2, **mine) is None and len(log.space.payloads) == 1  # a repeat
    foreign = {**mine, "session": b"other"}
    assert log.write(2, **foreign) == ("sequence", b"p", 1, 2, True)
    assert log.write(2, producer=(b"p", 2, 3)) == ("sequence", b"p", 2, 2, False)
    longer = {**mine, "producer": (b"p", 2, 4)}
    assert log.write(3, **longer) == ("sequence", b"p", 2, 2, False)
    assert log.write(1, producer=(b"p", 3, 3), session=b"s") == (2, 3)


def test_what_goes_ahead_is_kept_once_and_joins_its_transaction(log: Log) -> None:
    first, second = ((b"aa", 2),), ((b"bbb", 3),)
    log.core.handle(Stage(b"t1", CLIENT, 0, first))
    log.core.handle(Stage(b"t1", CLIENT, 0, first))  # a repeat
    log.core.handle(Stage(b"t1", CLIENT, 2, second))  # after a gap: no answer
    log.core.handle(Stage(b"t1", CLIENT, 1, second))
    assert log.sent == [Staged(b"t1", TABLET, n) for n in (1, 1, 2)]
    log.core.handle(Propose(b"t1", CLIENT, PartitionPart(staged=2, slices=((b"c", 1),))))
    assert log.sent.pop() == Prepared(b"t1", TABLET)
    log.core.handle(Stage(b"t1", CLIENT, 0, first))  # from before the proposal
    assert len(log.sent) == 3 and sorted(log.space.payloads.values()) == [b"aa", b"bbb", b"c"]
    log.core.handle(Withdraw(b"t1"))
    assert log.space.payloads == {} and log.space.rows == {}


def test_a_proposal_that_lacks_what_went_ahead_is_refused(log: Log) -> None:
    log.core.handle(Stage(b"t1", CLIENT, 0, ((b"aa", 2),)))
    log.core.handle(Propose(b"t1", CLIENT, PartitionPart(staged=2)))
    assert log.sent[-1] == Refused(b"t1", TABLET, (TABLET, "lost", 2, 1))
    assert log.space.payloads == {}
    assert log.core.stage(b"t1", PartitionPart(staged=2)).staged == 2  # not planned


def test_who_waits_for_whom(log: Log) -> None:
    part, must_wait_for = PartitionPart, log.core.must_wait_for
    write, consume = part(slices=((b"d", 1),)), part(ranges=(("c", 0, 1),))
    trim, other = part(trim=1), part(acks=(("other", 0, 1),))
    producing = part(producer=(b"p", 1, 1))
    drop, rival = part(drop=True), part(producer=(b"q", 1, 1))
    for one, two in ((drop, consume), (consume, drop), (write, write), (write, trim)):
        assert must_wait_for(one, two)
    for one, two in ((trim, consume), (other, trim), (consume, consume), (producing, producing)):
        assert must_wait_for(one, two)
    for one, two in ((consume, write), (consume, other), (producing, rival)):
        assert not must_wait_for(one, two)


def test_who_consumes_what_is_not_published_yet_waits_for_that(log: Log) -> None:
    """Another process has read it: it knew all votes, and this partition does not."""
    write, must_wait_for = PartitionPart(slices=((b"d", 1),)), log.core.must_wait_for
    log.write(3)
    for stop, waits in ((3, False), (4, True)):
        for part in (
            PartitionPart(ranges=(("c", 0, stop),)),
            PartitionPart(acks=(("c", 1, stop),)),
            PartitionPart(seeks=(("c", stop, False),)),
        ):
            assert must_wait_for(write, part) is waits
    assert not must_wait_for(write, PartitionPart(seeks=(("c", None, False),)))


def test_a_dropped_log_is_removed_piece_by_piece(log: Log) -> None:
    for _ in range(4):
        log.write(1)
    log.core.handle(Clean(2))
    assert len(log.space.payloads) == 4  # not dropped yet
    log.publish(drop=True)
    pieces = 0
    while log.space.rows:
        log.core.handle(Clean(3))
        pieces += 1
    assert log.space.payloads == {} and pieces > 1
