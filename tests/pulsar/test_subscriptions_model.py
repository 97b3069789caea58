"""Tests a subscription against a map of offsets, and what a cursor passes over against the offsets that are shown.

`Shared.check` replays the subscription's log after each message.
"""

from itertools import groupby
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from test_subscriptions import CONFLICT, OK, REFUSED, Shared

from planstep.proto.pulsar.messages import NO_TXN
from planstep.tablets.pulsar.cursors import applied, raised_to
from planstep.tablets.pulsar.rows import Cursor, of_name

END = 12
TXNS = st.tuples(st.integers(0, 1), st.integers(0, 4))
SPANS = st.tuples(st.integers(0, END - 1), st.integers(1, 4)).map(
    lambda span: (span[0], min(END, sum(span)))
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), st.one_of(TXNS, st.just(NO_TXN)), SPANS),
        st.tuples(st.just("ack"), TXNS, SPANS),
        st.tuples(st.just("ack to"), st.one_of(TXNS, st.just(NO_TXN)), st.integers(0, END)),
        st.tuples(st.just("end"), TXNS, st.booleans()),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


class Model:
    """The offsets that are acknowledged, those that are pending, and the pending cumulative acknowledgement."""

    def __init__(self, individual: bool) -> None:
        self.individual = individual
        self.done: set[int] = set()
        self.pending: dict[int, Any] = {}
        self.cumulative: tuple[Any, int] | None = None
        self.ended: set[Any] = set()

    @property
    def position(self) -> int:
        return next(at for at in range(END + 1) if at not in self.done)

    def ack(self, txn: Any, low: int, high: int) -> str:
        span = range(low, high)
        if txn == NO_TXN:
            self._pass({*span})
        elif txn in self.ended:
            return REFUSED
        elif any(at in self.done or at in self.pending for at in span):
            return CONFLICT
        else:
            self.pending.update(dict.fromkeys(span, txn))
        return OK

    def ack_to(self, txn: Any, position: int) -> str:
        if self.individual or txn in self.ended:
            return REFUSED
        if txn == NO_TXN:
            self._pass({*range(position)})
            return OK
        who, upto = self.cumulative or (txn, -1)
        if position <= self.position or who != txn or position <= upto:
            return CONFLICT
        self.cumulative = txn, position
        return OK

    def end(self, txn: Any, commit: bool) -> None:
        own = {at for at, who in self.pending.items() if who == txn}
        self.pending = {at: who for at, who in self.pending.items() if who != txn}
        if self.cumulative is not None and self.cumulative[0] == txn:
            own |= {*range(self.cumulative[1])}
            self.cumulative = None
        self._pass(own if commit else set())
        self.ended.add(txn)

    def _pass(self, done: set[int]) -> None:
        self.done |= done
        self.pending = {at: who for at, who in self.pending.items() if at not in self.done}
        if self.cumulative is not None and self.cumulative[1] <= self.position:
            self.cumulative = None


@settings(max_examples=300)
@given(st.booleans(), st.sampled_from((1, 3, 500)), STEPS)
def test_any_course_agrees_with_a_map_of_offsets(
    individual: bool, lag: int, steps: list[Any]
) -> None:
    """Each cell of the table of conflicts, both ways: an answer is the one that the map gives."""
    log, model = Shared(ack_log_index_min_lag=lag), Model(individual)
    log.send(" ".join(["m"] * END))
    log.subscribe(individual=individual)
    for what, *rest in steps:
        if what == "ack":
            txn, span = rest
            assert log.ack(span, txn=txn) == model.ack(txn, *span)
        elif what == "ack to":
            txn, position = rest
            assert log.ack_to(position, txn) == model.ack_to(txn, position)
        elif what == "end":
            assert log.finish(*rest) == 1
            model.end(*rest)
        else:
            log.restart()
        assert log.acknowledged() == model.done
        assert log.pending() == model.pending
        row = log.space.get(of_name(b"k", "s"))
        assert (None if row is None else (row[:2], row[2])) == model.cumulative


@settings(max_examples=300)
@given(st.sets(st.integers(0, 40), min_size=1), st.lists(st.tuples(*[st.integers(0, 40)] * 3)))
def test_what_is_not_shown_makes_no_ranges(
    shown_ever: set[int], acks: list[tuple[int, int, int]]
) -> None:
    """A cursor has what was acknowledged, and no more ranges than there are without the gaps of the log."""
    cursor, done, max_read = Cursor(True, 0, 0, (), 0), set[int](), 0
    for first, count, more in acks:
        max_read = min(50, max_read + more)
        shown = sorted(at for at in shown_ever if at < max_read)
        if not shown:
            continue

        def next_shown(at: int, shown: list[int] = shown, end: int = max_read) -> int:
            return next((one for one in shown if one >= at), max(at, end))

        some = shown[first % len(shown) :][: count + 1]
        cursor = applied(cursor, some[0], some[-1] + 1, next_shown)
        cursor = raised_to(cursor, next_shown(cursor.position))  # as it is stored
        done |= {*some}
        inside = [at < cursor.position or _is_in(cursor, at) for at in shown]
        assert inside == [at in done for at in shown]
        runs = [taken for taken, _ in groupby(inside)]
        assert len(cursor.ranges) == runs.count(True) - (cursor.position > shown[0])


def _is_in(cursor: Cursor, at: int) -> bool:
    return any(low <= at < high for low, high in cursor.ranges)
