"""Tests a partition against a plain list of what was written, with lost turns, restarts and changes of the way.

`Topic.check` compares max read and all rows with a scan of the log after each message.
"""

from typing import Any

from buffer_kit import LOST, Topic
from hypothesis import given, settings
from hypothesis import strategies as st

from planstep.proto.pulsar.messages import NO_TXN
from planstep.tablets.pulsar.snapshots import WAYS

TXNS = st.tuples(st.integers(0, 1), st.integers(0, 7))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.one_of(TXNS, st.just(NO_TXN)), st.integers(1, 3)),
        st.tuples(st.just("send"), TXNS, st.integers(1, 3)),
        st.tuples(st.just("end"), TXNS, st.booleans(), st.integers(0, 3)),
        st.tuples(st.just("trim"), st.integers(0, 30)),
        st.tuples(st.just("time"), st.sampled_from((0, 1, 5_000))),
        st.tuples(st.just("restart"), st.sampled_from(WAYS)),
    ),
    max_size=50,
)


class Model:
    """The words that were written, each with its transaction, and how each transaction ended."""

    def __init__(self) -> None:
        self.written: list[tuple[int, str, tuple[int, int]]] = []
        self.outcomes: dict[tuple[int, int], bool] = {}
        self.marks = {0: -1, 1: -1}
        self.start = 0

    def has_ended(self, txn: tuple[int, int]) -> bool:
        return txn in self.outcomes or (txn != NO_TXN and txn[1] <= self.marks[txn[0]])

    def end(self, txn: tuple[int, int], commit: bool, mark: int) -> None:
        if not self.has_ended(txn):
            self.outcomes[txn] = commit
        most = txn[0]
        self.marks[most] = max(self.marks[most], mark)
        for _, _, other in self.written:
            if other[0] == most and other[1] <= self.marks[most]:
                self.outcomes.setdefault(other, False)

    def shown(self) -> list[str]:
        words = []
        for offset, word, txn in self.written:
            if txn != NO_TXN and txn not in self.outcomes:
                break
            if offset >= self.start and (txn == NO_TXN or self.outcomes[txn]):
                words.append(word)
        return words


def send(
    topic: Topic, model: Model, txn: tuple[int, int], words: list[str], fails_at: int | None
) -> None:
    result = topic.send(" ".join(words), txn, fails_at=fails_at)
    if result == "NotAllowedError":
        assert model.has_ended(txn)
    elif result != LOST:
        assert not model.has_ended(txn)
        model.written += [(result + i, word, txn) for i, word in enumerate(words)]


@settings(max_examples=300)
@given(st.sampled_from(WAYS), STEPS, st.integers(0, 6), st.data())
def test_readers_see_what_the_list_says(
    way: str, steps: list[Any], patience: int, data: st.DataObject
) -> None:
    def options(way: str) -> dict[str, Any]:
        return {"snapshots": way, "snapshot_segment_bytes": 64, "snapshot_transactions": 3}

    topic, model = Topic(**options(way)), Model()
    for number, (what, *rest) in enumerate(steps):
        fails_at = data.draw(st.one_of(st.none(), st.none(), st.integers(0, patience)))
        if what == "send":
            txn, count = rest
            send(topic, model, txn, [f"{number}.{i}" for i in range(count)], fails_at)
        elif what == "end":
            txn, commit, lag = rest
            mark = txn[1] - 1 - lag
            if topic.end(txn, commit, mark, fails_at) != LOST:
                model.end(txn, commit, mark)
        elif what == "trim":
            result = topic.trim(*rest, fails_at=fails_at)
            if result != LOST:
                model.start = result
        elif what == "time":
            topic.pass_time(*rest)
        else:
            topic.restart(**options(*rest))
        assert topic.read() == model.shown()
        topic.check()
