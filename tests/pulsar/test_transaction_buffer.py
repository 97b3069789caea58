"""Tests the transaction buffer of a partition: scenarios 14-18, 20-22 and the tablet's half of 43."""

from typing import Any

import pytest
from buffer_kit import CLIENT, COORDINATOR, TABLET, Topic

from planstep.proto.messages import Clean
from planstep.proto.pulsar.messages import (
    ABORT,
    COMMIT,
    Ack,
    DropPartition,
    DropSubscription,
    Ended,
    EndTxnOnPartition,
    EndTxnOnSubscription,
    Seek,
    SwitchLog,
    TrimTo,
)
from planstep.proto.shell import Answer, Wake
from planstep.tablets.pulsar import snapshots, transaction_buffer
from planstep.tablets.pulsar.describe import entry_fields, entry_text
from planstep.tablets.pulsar.snapshots import WAYS

A, B, C = (0, 1), (0, 2), (1, 1)
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.mark.parametrize("commit", [True, False])
def test_plain_messages_behind_an_open_one_wait_in_their_order(topic: Topic, commit: bool) -> None:
    """Scenario 14, A3."""
    topic.send("p1")
    topic.send("a", A)
    topic.send("p2")
    assert topic.read() == ["p1"]
    assert topic.end(A, commit) == ""
    assert topic.read() == (["p1", "a", "p2"] if commit else ["p1", "p2"])


def test_max_read_through_every_state(topic: Topic) -> None:
    """Scenario 15: positions are exact."""
    assert (topic.state, topic.bounds) == ("None", (0, 0, 0))
    assert topic.send("p p") == 0
    assert (topic.state, topic.bounds) == ("NoSnapshot", (0, 2, 2))
    assert topic.send("a a a", A) == 2
    assert (topic.state, topic.bounds) == ("Ready", (0, 5, 2))
    topic.send("p")
    topic.send("b", B)
    assert topic.bounds == (0, 7, 2)
    topic.commit(A)
    assert topic.bounds == (0, 8, 6), "the next ongoing one's first message"
    topic.restart()
    assert (topic.state, topic.bounds) == ("None", (0, 8, 6))
    topic.abort(B)
    assert (topic.state, topic.bounds) == ("Ready", (0, 9, 9))
    assert [entry.kind for _, entry in topic.entries()[-2:]] == [COMMIT, ABORT]
    topic.restart()
    topic.send("p")
    assert (topic.state, topic.bounds) == ("Ready", (0, 10, 10))
    assert topic.read() == ["p", "p", "a", "a", "a", "p", "p"]


@ways
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_interleaved_ones_end_before_and_behind_a_restart(
    way: str, first: bool, second: bool
) -> None:
    """Scenario 16."""
    topic = Topic(snapshots=way)
    for text, txn in (("a1", A), ("b1", B), ("a2", A), ("b2", B)):
        topic.send(text, txn)
    topic.end(A, first)
    topic.restart()
    topic.end(B, second)
    shown = {"a1": first, "b1": second, "a2": first, "b2": second}
    assert topic.read() == [text for text, is_shown in shown.items() if is_shown]


@ways
def test_ten_first_publishes_take_one_first_snapshot(way: str) -> None:
    """Scenario 17 (#21406, #24945): producers that send no transaction take none."""
    topic = Topic(snapshots=way)
    for _ in range(3):
        topic.send("p")
    assert not snapshots.is_stored(topic.space)
    for number in range(10):
        assert isinstance(topic.send("a", (0, number)), int)
    assert topic.tablet.buffer.snapshots.taken == 1
    topic.restart()
    topic.send("a", (0, 10))
    assert topic.tablet.buffer.snapshots.taken == 0


@ways
def test_no_reader_passes_max_read(way: str) -> None:
    """Scenario 18 at the tablet: ten rounds of plain, committed, aborted and open messages."""
    topic, wanted = Topic(snapshots=way, snapshot_transactions=3), []
    for n in range(10):
        topic.send(f"p{n}")
        topic.send(f"c{n}", (0, 3 * n))
        topic.send(f"x{n}", (0, 3 * n + 1))
        topic.commit((0, 3 * n))
        topic.abort((0, 3 * n + 1))
        wanted += [f"p{n}", f"c{n}"]
        assert topic.read() == wanted
        topic.send(f"o{n}", (0, 3 * n + 2))
        topic.send(f"q{n}")
        assert topic.read() == wanted
        topic.restart()
        assert topic.read() == wanted
        topic.commit((0, 3 * n + 2))
        wanted += [f"o{n}", f"q{n}"]
        assert topic.read() == wanted


def test_a_tail_of_aborted_messages_and_markers_is_behind_max_read(topic: Topic) -> None:
    """Scenario 20 at the tablet: nothing holds a reader there."""
    topic.send("p")
    for number in range(5):
        topic.send("x", (0, number))
        topic.abort((0, number))
    topic.commit((0, 9))
    assert topic.bounds.max_read == topic.bounds.end
    assert topic.read() == ["p"]


def test_a_late_send_is_refused_and_what_was_committed_stays(topic: Topic) -> None:
    """Scenario 21, hazard A9: also behind a restart, and once the low water mark has passed."""
    topic.send("a", A)
    topic.commit(A)
    assert topic.send("late", A) == "NotAllowedError"
    topic.restart()
    assert topic.send("late", A) == "NotAllowedError"
    topic.abort(B, mark=1)
    assert topic.count(b"z") == 1
    assert topic.send("late", A) == "NotAllowedError"
    topic.abort(A)
    assert topic.read() == ["a"], "an abort that comes late finds it committed"
    assert topic.bounds.max_read == topic.bounds.end


def test_a_transaction_that_wrote_nothing_here_is_refused_too(topic: Topic) -> None:
    topic.abort(A)
    assert topic.send("late", A) == "NotAllowedError"
    assert topic.bounds == (0, 0, 0), "an abort in NoSnapshot leaves no marker"
    topic.commit(B)
    assert topic.bounds == (0, 1, 1), "a commit leaves one"
    assert topic.send("late", B) == "NotAllowedError"
    assert topic.state == "NoSnapshot"
    topic.send("c", C)
    topic.abort((0, 3))
    assert topic.bounds == (0, 3, 1)


def test_a_repeated_end_writes_no_second_marker(topic: Topic) -> None:
    topic.send("a", A)
    for _ in range(3):
        assert topic.abort(A) == ""
    assert topic.bounds == (0, 2, 2)
    topic.abort(B, mark=1)
    topic.abort(A)
    assert topic.bounds == (0, 3, 3)


def test_low_water_marks_are_per_coordinator(topic: Topic) -> None:
    """Scenario 22: what nobody knows any more is aborted, any of them, and stays so after a replay."""
    topic.send("lost", (0, 1))
    topic.send("other", (1, 1))
    topic.send("lost", (0, 3))
    topic.send("live", (0, 5))
    topic.send("p")
    topic.commit((0, 7), mark=4)
    assert topic.bounds.max_read == 1, "the other coordinator's is open"
    topic.commit((1, 1))
    assert topic.read() == ["other"]
    assert topic.bounds.max_read == 3
    topic.restart()
    assert topic.send("late", (0, 3)) == "NotAllowedError"
    assert topic.send("more", (0, 6)) == 9
    topic.commit((0, 5), mark=2)
    assert topic.read() == ["other", "live", "p"]
    topic.commit((0, 6), mark=5)
    assert topic.read() == ["other", "live", "p", "more"]
    (mark,) = topic.rows(b"w").values()
    assert mark == 5


def test_resent_batches_count_once() -> None:
    """Scenario 43 at the tablet, over restarts; names have numbers of their own."""
    topic = Topic(deduplication=True)
    assert topic.send("1 2", producer="p", sequence=2) == 0
    topic.restart()
    assert topic.send("1 2", producer="p", sequence=2) == -1
    assert topic.send("3", A, producer="p", sequence=3) == 2
    assert topic.send("3", A, producer="p", sequence=3) == -1
    assert topic.send("3", producer="q", sequence=3) == 3
    assert topic.send("x") == 4
    assert topic.send("x") == 5, "without a name nothing is compared"
    topic.commit(A)
    assert topic.read() == ["1", "2", "3", "3", "x", "x"]


def test_a_number_counts_whatever_became_of_its_transaction() -> None:
    """A8: messages that are sent again under the same numbers after an abort are lost, as in Pulsar."""
    topic = Topic(deduplication=True)
    topic.send("1", A, producer="p", sequence=1)
    topic.abort(A)
    assert topic.send("1", B, producer="p", sequence=1) == -1
    topic.commit(B)
    assert topic.read() == []


def test_without_deduplication_a_resent_batch_counts_twice(topic: Topic) -> None:
    """A14."""
    for _ in range(2):
        topic.send("1", A, producer="p", sequence=1)
    topic.commit(A)
    assert topic.read() == ["1", "1"]
    assert topic.count(b"p") == 0


# snapshots ---------------------------------------------------------------------------------


@ways
def test_snapshots_come_after_a_number_of_moves(way: str) -> None:
    topic = Topic(snapshots=way, snapshot_transactions=4)
    topic.send("a", (0, 0))
    taken = topic.tablet.buffer.snapshots
    assert taken.taken == 1
    for number in range(9):
        topic.abort((0, number))
    assert taken.taken == 3
    topic.send("a", (0, 99))
    for number in range(10, 20):
        topic.send("b", (0, number))
        topic.abort((0, number))
    assert taken.taken == 3, "max read does not move"
    topic.restart()
    topic.commit((0, 99))
    assert topic.read() == ["a"]


@ways
def test_snapshots_come_some_time_after_the_first_move(way: str) -> None:
    topic = Topic(snapshots=way, snapshot_interval_ms=5_000)
    topic.send("a", A)
    taken = topic.tablet.buffer.snapshots
    assert topic.pass_time(60_000) == []
    assert taken.taken == 1, "no timer wakes an idle partition"
    topic.abort(A)
    topic.pass_time(4_999)
    topic.abort(B)
    assert taken.taken == 1
    topic.pass_time(1)
    assert taken.taken == 2
    assert topic.shell.timers == []
    topic.abort((0, 3))
    topic.pass_time(5_000)
    assert taken.taken == 3


def test_a_timer_of_an_earlier_snapshot_takes_none() -> None:
    topic = Topic(snapshot_transactions=2, snapshot_interval_ms=100)
    topic.send("a", A)
    topic.abort(A)
    topic.pass_time(90)
    topic.abort((0, 5))  # the second move takes one
    topic.abort((0, 6))  # the first one of the next interval
    topic.pass_time(20)
    assert topic.tablet.buffer.snapshots.taken == 2
    topic.pass_time(80)
    assert topic.tablet.buffer.snapshots.taken == 3


def test_parts_are_written_in_turns_of_their_own() -> None:
    topic = Topic(snapshots="parts", snapshot_segment_bytes=64, snapshot_transactions=20)
    topic.send("a", (0, 0))
    for number in range(20):
        topic.abort((0, number))
    taken = topic.tablet.buffer.snapshots
    assert taken.unfinished
    assert taken.taken == 1
    topic.abort((0, 20))
    topic.trim(5)
    topic.pass_time(1)
    assert (taken.unfinished, taken.taken) == (False, 2)
    assert topic.count(b"q") == 4
    topic.restart()
    topic.send("p")
    assert topic.read() == ["p"]


def test_a_part_whose_turn_was_undone_is_written_with_the_next_snapshot() -> None:
    """No snapshot stays under way for ever because one wake-up was lost."""
    topic = Topic(snapshots="parts", snapshot_segment_bytes=64, snapshot_transactions=20)
    topic.send("a", (0, 0))
    for number in range(20):
        topic.abort((0, number))
    assert topic.tablet.buffer.snapshots.unfinished
    topic.shell.timers.clear()
    for number in range(20, 40):
        topic.abort((0, number))
    topic.pass_time(1)
    assert not topic.tablet.buffer.snapshots.unfinished


def test_recovery_of_many_markers_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages wait meanwhile, in their order; a wake-up that is lost is made up by the next message."""
    monkeypatch.setattr(snapshots, "_SCANNED_MAX", 5)
    monkeypatch.setattr(transaction_buffer, "RECOVERED_MAX", 5)
    topic = Topic()
    topic.send("x", (0, 0))
    for number in range(20):
        topic.abort((0, number))
    topic.restart()
    assert topic.send("p") is None
    assert topic.state == "Initializing"
    assert topic.abort((0, 20)) is None
    topic.shell.timers.clear()
    assert topic.send("q", A) is None
    sent = topic.pass_time(1)
    assert [type(message) for message in sent] == [Answer, Ended, Answer]
    assert [m.error for m in sent] == ["", "", "NotAllowedError"]
    assert topic.state == "Ready"
    assert topic.read() == ["p"]


def test_messages_that_wait_are_kept_if_a_turn_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_SCANNED_MAX", 5)
    monkeypatch.setattr(transaction_buffer, "RECOVERED_MAX", 5)
    topic = Topic()
    topic.send("x", (0, 0))
    for number in range(7):
        topic.abort((0, number))
    topic.restart()
    assert topic.send("p") is None
    assert topic.send("q", fails_at=0) == "lost"
    assert topic.state == "Initializing"
    topic.pass_time(1)
    assert topic.read() == ["p"], "the sender repeats what was lost"


class Recorded:
    """Stands for the subscriptions of a partition: notes what reaches them."""

    def __init__(self) -> None:
        self.calls: tuple[Any, ...] = ()

    def mark(self) -> Any:
        return self.calls

    def undo(self, mark: Any) -> None:
        self.calls = mark

    def handle(self, message: Any) -> None:
        self.calls = (*self.calls, message)

    def trimmed(self, start: int) -> None:
        self.calls = (*self.calls, start)

    def end_to(self, most: int, begin: int, end: int) -> None:
        self.calls = (*self.calls, (most, begin, end))


def test_what_is_for_subscriptions_reaches_them_once_the_ids_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "_SCANNED_MAX", 5)
    monkeypatch.setattr(transaction_buffer, "RECOVERED_MAX", 5)
    topic = Topic()
    topic.send("x", (0, 0))
    for number in range(7):
        topic.abort((0, number))
    topic.restart()
    recorded: Any = Recorded()
    topic.tablet.subscriptions = recorded
    messages = [
        Ack(CLIENT, 1, *A, "s", ((0, 1),)),
        Seek(CLIENT, 2, "s", 0),
        EndTxnOnSubscription(COORDINATOR, *A, True, -1, "s"),
        DropSubscription(CLIENT, 3, "s"),
    ]
    topic.tell(messages[0])
    assert recorded.calls == ()
    topic.pass_time(1)
    for message in messages[1:]:
        topic.tell(message)
    assert recorded.calls == tuple(messages)
    others = [Wake("flush", "s"), SwitchLog(True)]
    for other in others:
        topic.tell(other)
    topic.commit(A, mark=0)
    topic.trim(3)
    assert recorded.calls[4:] == (*others, (0, 0, 1), 3)
    mark = topic.tablet.mark()
    topic.tell(messages[1])
    topic.tablet.undo(mark)
    assert len(recorded.calls) == 8
    topic.tell(DropPartition())
    (answer,) = topic.tell(messages[0])
    assert answer == Answer(1, TABLET, "TopicNotFound")
    assert topic.tell(messages[2]) == [Ended(TABLET, *A, "s", "TopicNotFound")]
    assert len(recorded.calls) == 8


# trimming, dropping ------------------------------------------------------------------------


@ways
def test_trimming_stops_at_max_read(way: str) -> None:
    topic = Topic(snapshots=way, snapshot_segment_bytes=64, snapshot_transactions=2)
    for number in range(20):
        topic.send("x", (0, number))
        topic.abort((0, number))
    topic.send("a a", (0, 20))
    topic.send("p")
    assert topic.trim(99) == 40
    assert topic.tablet.buffer.aborted.ids() == []
    assert topic.count(b"g") == 0
    topic.commit((0, 20))
    topic.restart()
    assert topic.read() == ["a", "a", "p"]
    assert topic.trim(41) == 41
    assert topic.read() == ["a", "p"]


def test_trimming_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planstep.tablets.pulsar.partition.TRIM_SLICES_MAX", 3)
    topic = Topic()
    for _ in range(8):
        topic.send("p p")
    assert [topic.trim(13) for _ in range(3)] == [6, 12, 13]


def test_a_dropped_topic_refuses_messages_and_acknowledges_ends(topic: Topic) -> None:
    topic.send("a", A)
    topic.tell(DropPartition())
    assert topic.send("p") == "TopicNotFound"
    assert topic.send("late", A) == "TopicNotFound"
    assert topic.commit(A) == "TopicNotFound"
    assert topic.tell(TrimTo(CLIENT, 1, 0)) == [Answer(1, TABLET, "TopicNotFound")]
    for _ in range(9):
        topic.tablet.handle(Clean(1))
    assert list(topic.space.rows) == [b"x"]
    assert topic.space.payloads == {}
    topic.restart()
    assert topic.tell(EndTxnOnPartition(COORDINATOR, *B, True, 0))[0].error == "TopicNotFound"


def test_cleaning_waits_for_the_drop(topic: Topic) -> None:
    topic.send("a", A)
    topic.tell(Clean(100))
    assert topic.read() == []
    topic.commit(A)
    assert topic.read() == ["a"]


def test_entries_in_words(topic: Topic) -> None:
    topic.send("p", producer="clicks", sequence=12)
    topic.send("a", (0, 5))
    topic.abort((0, 5))
    texts = [entry_text(entry_fields(*entry[3:])) for _, entry in topic.entries()]
    assert texts == ["plain producer clicks seq 12", "transactional (0,5)", "abort marker (0,5)"]
