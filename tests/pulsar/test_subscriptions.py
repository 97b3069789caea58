"""Tests subscriptions and pending acknowledgements of a partition of mode "pulsar".

After each message the rows are compared with a replay of the subscription's log, and with themselves.
"""

from itertools import pairwise
from typing import Any

import pytest
from buffer_kit import CLIENT, COORDINATOR, TABLET, Topic

from planstep.proto.pulsar.messages import (
    NO_TXN,
    Ack,
    DropSubscription,
    Ended,
    EndTxnOnSubscription,
    Seek,
    SwitchLog,
)
from planstep.proto.shell import Answer
from planstep.tablets.pulsar.ack_log import replayed
from planstep.tablets.pulsar.rows import Cursor, of_name
from planstep.tablets.pulsar.subscriptions import usable

OK, CONFLICT, REFUSED = "", "TransactionConflict", "NotAllowedError"
T, U = (0, 1), (0, 2)


class Shared(Topic):
    """A partition with subscriptions."""

    names: tuple[str, ...] = ()

    def subscribe(self, name: str = "s", individual: bool = True, position: int = 0) -> str:
        return self.ask(Seek(CLIENT, 0, name, position, individual), name)

    def ask(self, message: Any, name: str) -> Any:
        """Returns the error of the answer, None while there is none."""
        self.names = (*dict.fromkeys((*self.names, name)),)
        self.requests += 1
        message.request = self.requests
        return self.answered(self.tell(message))

    def answered(self, sent: list[Any]) -> Any:
        answers = [m.error for m in sent if type(m) is Answer and m.request == self.requests]
        return answers[0] if answers else None

    def ack(self, *ranges: tuple[int, int], txn: tuple[int, int] = NO_TXN, name: str = "s") -> Any:
        return self.ask(Ack(CLIENT, 0, *txn, name, ranges), name)

    def ack_to(self, position: int, txn: tuple[int, int] = NO_TXN, name: str = "s") -> Any:
        return self.ask(Ack(CLIENT, 0, *txn, name, (), position), name)

    def finish(
        self, txn: tuple[int, int], commit: bool = True, mark: int = -1, name: str = "s"
    ) -> int:
        """Ends a transaction on the subscription; returns how often that was acknowledged."""
        sent = self.tell(EndTxnOnSubscription(COORDINATOR, *txn, commit, mark, name))
        return sent.count(Ended(TABLET, *txn, name, ""))

    def cursor(self, name: str = "s") -> Cursor:
        cursor = self.tablet.subscriptions.cursor(name)
        assert cursor is not None
        return cursor

    def acknowledged(self, name: str = "s") -> set[int]:
        position, ranges = self.cursor(name)[1], self.cursor(name).ranges
        return {*range(position), *(at for low, high in ranges for at in range(low, high))}

    def pending(self, name: str = "s") -> dict[int, tuple[int, int]]:
        prefix = of_name(b"j", name)
        rows = self.space.scan(prefix, prefix + b"\xff" * 9)
        return {
            at: (most, least)
            for key, (end, most, least) in rows
            for at in range(int.from_bytes(key[-8:], "big"), end)
        }

    def of(self, letter: bytes, name: str) -> list[bytes]:
        return [key for key in self.space.rows if key.startswith(of_name(letter, name))]

    def check(self) -> None:
        super().check()
        for name in filter(usable, self.names):
            if self.space.get(of_name(b"c", name)) is None:
                assert not any(self.of(letter, name) for letter in (b"j", b"k", b"l", b"h"))
                continue
            cursor = self.cursor(name)
            assert all(a[1] < b[0] for a, b in pairwise(((0, cursor.position), *cursor.ranges)))
            pending, cumulative = replayed(self.space, name, cursor)
            assert pending == self.pending(name), name
            assert cumulative == self.space.get(of_name(b"k", name))
            assert not {*pending} & self.acknowledged(name)
        by_txn = [key for key in self.space.rows if key[:1] == b"y"]
        singles = [key for key in self.space.rows if key[:1] in (b"j", b"k")]
        assert len(by_txn) == len(singles)


@pytest.fixture
def log() -> Shared:
    """Twenty messages, one subscription that acknowledges one by one and one that does so cumulatively."""
    return filled()


def filled(**settings: Any) -> Shared:
    log = Shared(**settings)
    log.send(" ".join(["m"] * 10))
    for _ in range(10):
        log.send("m")
    assert log.subscribe() == OK and log.subscribe("c", individual=False) == OK
    return log


# outside of transactions -------------------------------------------------------------------


def test_ranges_and_positions(log: Shared) -> None:
    assert log.ack((3, 5), (7, 8)) == OK and log.cursor().ranges == ((3, 5), (7, 8))
    assert log.ack((4, 6)) == OK and log.ack((4, 6)) == OK
    assert log.ack((0, 3)) == OK and log.cursor()[1:] == (6, 0, ((7, 8),), 0)
    assert log.ack_to(12, name="c") == OK and log.ack_to(4, name="c") == OK
    assert log.ack((14, 15), name="c") == OK and log.cursor("c")[1:4] == (12, 0, ((14, 15),))
    assert log.ack_to(14, name="c") == OK and log.cursor("c")[1:4] == (15, 0, ())


@pytest.mark.parametrize(
    "ranges, position",
    [
        ((), None),
        (((3, 3),), None),
        (((4, 3),), None),
        (((0, 2), (1, 3)), None),
        (((-1, 2),), None),
        (((19, 21),), None),
        ((), 5),
        ((), -1),
        (((0, 1),), 3),
    ],
)
def test_what_cannot_be_acknowledged(log: Shared, ranges: Any, position: int | None) -> None:
    rows = dict(log.space.rows)
    for txn in (NO_TXN, T):
        assert log.ask(Ack(CLIENT, 0, *txn, "s", ranges, position), "s") == REFUSED
    assert log.space.rows == rows


@pytest.mark.parametrize("name", ["unknown", "", "a\0b", "n" * 401])
def test_a_subscription_that_is_not_there(log: Shared, name: str) -> None:
    assert log.ack((0, 1), name=name) == "SubscriptionNotFound"
    assert log.ask(DropSubscription(CLIENT, 0, name), "s") == OK
    if name != "unknown":
        assert log.ask(Seek(CLIENT, 0, name, 0), "s") == REFUSED


def test_a_seek_beyond_the_log(log: Shared) -> None:
    assert log.subscribe(position=21) == REFUSED and log.subscribe(position=-1) == REFUSED


# scenario 29 -------------------------------------------------------------------------------


def act(log: Shared, what: str, txn: tuple[int, int]) -> Any:
    """Acknowledges for the cumulative subscription: a range around 10, or all up to 12, 11 or 13."""
    if what == "range":
        return log.ack((10, 12), txn=txn, name="c")
    return log.ack_to(int(what), txn=txn, name="c")


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize(
    "first, whose, then, result",
    [
        ("range", T, "range", CONFLICT),
        ("range", U, "range", CONFLICT),
        ("range", NO_TXN, "range", CONFLICT),
        ("range", T, "12", OK),
        ("range", U, "12", OK),
        ("12", T, "range", OK),
        ("12", U, "range", OK),
        ("12", NO_TXN, "range", CONFLICT),
        ("12", T, "13", OK),
        ("12", T, "12", CONFLICT),
        ("12", T, "11", CONFLICT),
        ("12", U, "13", CONFLICT),
        ("12", U, "11", CONFLICT),
        ("12", NO_TXN, "12", CONFLICT),
        ("12", NO_TXN, "13", OK),
    ],
)
def test_scenario_29_each_cell_of_the_table(
    first: str, whose: tuple[int, int], then: str, result: str, restart: bool
) -> None:
    log = filled()
    assert act(log, first, whose) == OK
    if restart:
        log.restart()
    assert act(log, then, T) == result


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("pending", ["range", "12"])
def test_scenario_29_an_acknowledgement_outside_of_transactions_wins(
    pending: str, restart: bool
) -> None:
    log = filled()
    assert act(log, pending, T) == OK
    if restart:
        log.restart()
    assert act(log, pending, NO_TXN) == OK
    assert not log.pending("c") and log.space.get(of_name(b"k", "c")) is None
    assert log.finish(T, commit=False, name="c") == 1
    assert log.acknowledged("c") >= {10, 11}


def test_a_part_of_a_pending_range_is_acknowledged_outside(log: Shared) -> None:
    assert log.ack((4, 10), txn=T) == OK and log.ack((6, 7)) == OK
    assert set(log.pending()) == {4, 5, 7, 8, 9}
    log.restart()
    log.finish(T)
    assert log.cursor().ranges == ((4, 10),)


def test_all_of_a_request_or_nothing(log: Shared) -> None:
    assert log.ack((3, 4), txn=U) == OK
    assert log.ack((1, 2), (3, 4), (5, 6), txn=T) == CONFLICT
    assert log.pending() == {3: U}


def test_the_kinds_are_separate_when_they_end(log: Shared) -> None:
    assert log.ack((10, 12), txn=T, name="c") == OK and log.ack_to(14, txn=U, name="c") == OK
    assert log.finish(T, name="c") == 1  # is applied, though another one's cumulative is pending
    assert log.cursor("c").ranges == ((10, 12),)
    log.finish(U, name="c")
    assert log.cursor("c")[1:4] == (14, 0, ())


# ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batching", [False, True], ids=["plain", "batched"])
def test_scenario_28_pending_stays_so_over_restarts_and_ends_hold(batching: bool) -> None:
    log = Shared(ack_log_batching=batching)
    log.send(" ".join(["m"] * 1_000))
    log.subscribe()
    for parity, txn in ((1, T), (0, U)):
        for at in range(parity, 1_000, 2):
            log.tell(Ack(CLIENT, 9, *txn, "s", ((at, at + 1),)))
    log.pass_time(2)
    log.restart()
    assert len(log.pending()) == 1_000
    assert log.ack((7, 8), txn=(0, 9)) == CONFLICT
    log.finish(T)
    log.finish(U, commit=False)
    log.pass_time(2)
    log.restart()
    assert log.pending() == {} and log.acknowledged() == set(range(1, 1_000, 2))
    assert log.ack((7, 8), txn=(0, 9)) == CONFLICT


def test_scenario_28_cumulatively(log: Shared) -> None:
    assert log.ack_to(9, txn=T, name="c") == OK
    log.restart()
    assert log.ack_to(12, txn=U, name="c") == CONFLICT
    assert log.finish(T, commit=False, name="c") == 1 and log.cursor("c").position == 0
    assert log.ack_to(12, txn=U, name="c") == OK
    log.restart()
    assert log.finish(U, name="c") == 1 and log.finish(U, name="c") == 1
    assert log.cursor("c").position == 12


def test_scenario_30_halves_of_a_batch(log: Shared) -> None:
    assert log.ack((0, 5), txn=T) == OK and log.ack((5, 10), txn=U) == OK
    log.finish(T)
    log.finish(U, commit=False)
    assert log.cursor()[1:4] == (5, 0, ())
    assert log.ack((5, 10), txn=(0, 3)) == OK
    log.finish((0, 3))
    assert log.cursor().position == 10


def test_an_acknowledgement_behind_its_transactions_end_is_refused(log: Shared) -> None:
    log.ack((0, 1), txn=T)
    log.finish(T, commit=False)
    assert log.ack((0, 1), txn=T) == REFUSED
    log.finish(U, mark=1)
    assert not log.rows(b"u") or all(key[16:17] == b"\x02" for key in log.rows(b"u"))
    assert log.ack((0, 1), txn=T) == REFUSED and log.ack((0, 1), txn=U) == REFUSED
    log.finish((0, 3), mark=2)
    assert log.ack((0, 1), txn=U) == REFUSED


def test_scenario_22_what_nobody_knows_is_aborted_when_the_mark_passes_it(log: Shared) -> None:
    log.ack((0, 1), txn=T)
    log.ack_to(5, txn=T, name="c")
    log.ack((2, 3), txn=(1, 1))
    log.finish((0, 5), mark=4)
    assert log.pending() == {2: (1, 1)} and log.space.get(of_name(b"k", "c")) is None
    log.restart()
    assert log.ack((0, 1), txn=(0, 6)) == OK
    log.commit((0, 7), mark=6)  # by a marker of the partition as well
    assert log.pending() == {2: (1, 1)}


def test_an_end_is_acknowledged_whoever_is_gone(log: Shared) -> None:
    assert log.finish(T) == 1
    assert log.finish(T, name="never there") == 1
    log.ack((0, 1), txn=U)
    assert log.ask(DropSubscription(CLIENT, 0, "s"), "s") == OK
    assert log.finish(U) == 1


def test_scenario_36_names_do_not_mix_and_a_drop_removes_all_rows(log: Shared) -> None:
    for name in ("a", "a/b", "a" * 400, "ä"):
        assert log.subscribe(name) == OK
        assert log.ack((1, 3), txn=T, name=name) == OK and log.ack((4, 5), name=name) == OK
    assert log.ask(DropSubscription(CLIENT, 0, "a"), "a") == OK
    assert log.pending("a/b") == log.pending("a" * 400) == {1: T, 2: T}
    for name in ("a/b", "a" * 400, "ä", "s", "c"):
        assert log.ask(DropSubscription(CLIENT, 0, name), name) == OK
    assert not [key for key in log.space.rows if key[:1] in b"cjkylhu"]


def test_a_seek_drops_what_is_pending_and_begins_the_log_anew(log: Shared) -> None:
    log.ack((3, 5), txn=T)
    assert log.ask(Seek(CLIENT, 0, "s", 2), "s") == OK
    assert log.cursor() == Cursor(True, 2, 0, (), 1) and log.pending() == {}
    assert log.ack((3, 5), txn=U) == OK
    log.finish(T)
    assert log.pending() == {3: U, 4: U}


# the log -----------------------------------------------------------------------------------


def test_scenario_34_entries_go_as_the_position_moves() -> None:
    log = Shared(ack_log_index_min_lag=5)
    log.send(" ".join(["m"] * 400))
    log.subscribe("c", individual=False)
    most = 0
    for least in range(200):
        assert log.ack_to(2 * least + 2, txn=(0, least), name="c") == OK
        log.finish((0, least), name="c")
        if least % 50 == 0:
            log.restart()
        most = max(most, log.count(b"l"))
    assert most < 30 and log.cursor("c").position == 400


def test_an_open_one_keeps_its_entry() -> None:
    log = Shared(ack_log_index_min_lag=5)
    log.send(" ".join(["m"] * 400))
    log.subscribe()
    log.ack((0, 1), txn=(9, 9))
    for least in range(100):
        log.ack((least + 1, least + 2), txn=(0, least))
        log.finish((0, least))
    log.restart()
    assert log.pending() == {0: (9, 9)} and log.count(b"l") > 200
    log.finish((9, 9))
    log.ack((101, 102))
    assert log.count(b"l") < 40


def test_batched_acknowledgements_conflict_before_they_are_written() -> None:
    log = filled(ack_log_batching=True)
    assert log.ack((3, 5), txn=T) is None
    assert log.ack((4, 6), txn=U) == CONFLICT and log.ack((3, 4), txn=T) == CONFLICT
    assert log.ack_to(9, txn=T, name="c") is None
    assert log.ack_to(12, txn=U, name="c") == CONFLICT
    assert log.finish(T) == 0  # waits behind it
    assert log.ack((4, 5)) == OK  # from outside, in between
    sent = log.pass_time(1)
    assert [type(m) for m in sent].count(Answer) == 2
    assert sent.count(Ended(TABLET, *T, "s", "")) == 1
    assert log.cursor().ranges == ((3, 5),) and log.pending() == {}


def test_the_switch_of_batching_outlives_a_restart(log: Shared) -> None:
    log.ack((0, 1), txn=T)
    log.tell(SwitchLog(True))
    assert log.ack((1, 2), txn=T) is None
    log.restart()
    assert log.ack((1, 2), txn=T) is None
    log.tell(SwitchLog(False))
    assert log.ack((2, 3), txn=T) == OK and log.pending() == {0: T, 1: T, 2: T}


def test_an_undone_turn_leaves_no_trace() -> None:
    log = filled(ack_log_batching=True)
    log.ack((0, 1), txn=T)
    rows, mark = dict(log.space.rows), log.tablet.mark()
    for message in (
        Ack(CLIENT, 91, *U, "s", ((1, 2),)),
        EndTxnOnSubscription(COORDINATOR, *T, True, -1, "s"),
        Seek(CLIENT, 92, "new", 0, True),
        Ack(CLIENT, 93, *U, "new", ((1, 2),)),
    ):
        log.tablet.handle(message)
    log.space.rows = rows
    log.tablet.undo(mark)
    assert log.ack((1, 2), txn=U) is None
    log.shell.timers = [t for t in log.shell.timers if t[1].detail[1] == 0]
    log.pass_time(1)
    assert log.pending() == {0: T, 1: U}


# holes -------------------------------------------------------------------------------------


def test_scenario_35_what_is_not_shown_makes_no_gaps() -> None:
    log = Shared()
    log.subscribe()
    shown = []
    for least in range(300):
        at = log.send("m")
        shown.append(at)
        if least % 3 == 0:
            log.send("x", txn=(0, least))
        log.end((0, least), commit=False)
    order = shown[::2] + shown[1::2]
    for at in order[:150]:
        log.ack((at, at + 1))
    ranges = len(log.cursor().ranges)
    for at in order[150:]:
        log.ack((at, at + 1))
        assert len(log.cursor().ranges) <= ranges
    assert log.cursor()[1:4] == (log.bounds.end, 0, ())


def test_a_position_passes_the_tail_that_is_not_shown() -> None:
    log = Shared()
    log.subscribe("c", individual=False)
    log.send("m")
    log.send("x", txn=T)
    log.abort(T)
    assert log.ack_to(1, name="c") == OK and log.cursor("c").position == 3


def test_what_is_trimmed_is_missed_and_no_longer_pending(log: Shared) -> None:
    log.ack((2, 4), txn=T)
    log.ack((8, 12), txn=U)
    log.ack((0, 1))
    log.trim(10)
    assert log.cursor()[1:4] == (10, 9, ())
    assert log.ack((10, 11), txn=(0, 3)) == CONFLICT and log.ack((12, 13), txn=(0, 3)) == OK
    assert set(log.pending()) == {10, 11, 12}
    log.finish(U)
    log.finish(T)
    assert log.cursor()[1:4] == (12, 9, ())
