"""Tests the checker of anomalies: a small history is right, and each damage to it is found by its name."""

from collections.abc import Callable

import pytest

from planstep.bench.proof.worlds.in_place.anomalies import (
    ABORT,
    COMMIT,
    PLAIN,
    TRANSACTIONAL,
    Entry,
    History,
    Logs,
    Poll,
    Tx,
    exactly_once,
    find,
    visible,
)

A, B = 1, 2


class Small:
    """one: 1 in a, 2 in b, committed; two: 3 in a, aborted; plain: 4 in a. There is a reader of each isolation."""

    def __init__(self) -> None:
        self.one = Tx("one", sends=[(A, (b"1",)), (B, (b"2",))], end="committed")
        self.two = Tx("two", sends=[(A, (b"3",))], end="aborted")
        self.plain = Tx("plain", False, sends=[(A, (b"4",))], end="committed")
        self.one.asked_at, self.one.commits, self.two.asked_at = 10.0, True, 10.0
        self.logs: Logs = {
            A: [
                Entry(0, 1, 7, TRANSACTIONAL, [b"1"]),
                Entry(1, 1, 8, TRANSACTIONAL, [b"3"]),
                Entry(2, 1, 8, ABORT, []),
                Entry(3, 1, 7, COMMIT, []),
                Entry(4, 1, 9, PLAIN, [b"4"]),
            ],
            B: [Entry(0, 1, 7, TRANSACTIONAL, [b"2"]), Entry(1, 1, 7, COMMIT, [])],
        }
        self.polls = [
            Poll("rc", True, A, 0, 3, [(0, b"1")], 20.0),
            Poll("rc", True, A, 3, 5, [(4, b"4")], 21.0),
            Poll("rc", True, B, 0, 2, [(0, b"2")], 22.0),
            Poll("ru", False, A, 0, 5, [(0, b"1"), (1, b"3"), (4, b"4")], 5.0),
        ]

    def anomalies(self) -> list[str]:
        history = History([self.one, self.two, self.plain], self.polls)
        return sorted(find(history, self.logs))


def test_nothing_is_wrong() -> None:
    small = Small()
    assert visible(small.logs[A]) == [(0, b"1"), (4, b"4")]
    assert small.anomalies() == []


def check(small: Small, *names: str) -> None:
    """Checks that these anomalies are found; their damage may also leave gaps, or records that nobody saw."""
    assert set(names) <= set(small.anomalies()) <= {*names, "unseen", "gap"}


@pytest.mark.parametrize(
    ("number", "poll", "name"),
    [
        (0, Poll("rc", True, A, 0, 3, [(0, b"1"), (1, b"3")], 20.0), "aborted read"),
        (0, Poll("rc", True, A, 0, 3, [(0, b"1")], 5.0), "precommitted read"),
        (0, Poll("rc", True, A, 0, 3, [(0, b"4")], 20.0), "inconsistent offset"),
        (0, Poll("rc", True, A, 0, 3, [], 20.0), "internal poll skip"),
        (
            3,
            Poll("ru", False, A, 0, 5, [(1, b"3"), (0, b"1"), (4, b"4")], 5.0),
            "internal non-monotonic poll",
        ),
        (1, Poll("rc", True, A, 4, 5, [(4, b"4")], 21.0), "poll skip"),
        (1, Poll("rc", True, A, 2, 5, [(4, b"4")], 21.0), "non-monotonic poll"),
    ],
)
def test_a_wrong_poll_is_found(number: int, poll: Poll, name: str) -> None:
    small = Small()
    small.polls[number] = poll
    check(small, name)


def unseen(small: Small) -> None:
    del small.polls[1]


def gap(small: Small) -> None:
    small.logs[B][1] = Entry(2, 1, 7, COMMIT, [])


def duplicate(small: Small) -> None:
    small.logs[B].append(Entry(2, 1, 9, PLAIN, [b"4"]))
    small.polls[2] = Poll("rc", True, B, 0, 3, [(0, b"2"), (2, b"4")], 22.0)


def lost_write(small: Small) -> None:
    small.plain.sends.append((A, (b"5",)))


def torn_transaction(small: Small) -> None:
    small.one.end = "unknown"
    small.one.sends.append((B, (b"5",)))


def aborted_write_counts(small: Small) -> None:
    small.one.commits = False


def non_monotonic_send(small: Small) -> None:
    small.logs[A].append(Entry(5, 1, 9, PLAIN, [b"5"]))
    small.plain.sends = [(A, (b"5",)), (A, (b"4",))]


def g0(small: Small) -> None:
    small.logs[B] += [Entry(2, 1, 9, TRANSACTIONAL, [b"5"]), Entry(3, 1, 9, COMMIT, [])]
    small.logs[B] += [Entry(4, 1, 7, TRANSACTIONAL, [b"6"]), Entry(5, 1, 7, COMMIT, [])]
    small.plain.sends.append((B, (b"5",)))
    small.one.sends.append((B, (b"6",)))
    small.polls[2] = Poll("rc", True, B, 0, 6, [(0, b"2"), (2, b"5"), (4, b"6")], 22.0)


def g1c_with_ww(small: Small) -> None:
    small.one.reads.append(b"4")


def g1c(small: Small) -> None:
    small.one.reads.append(b"4")
    small.plain.reads.append(b"2")


@pytest.mark.parametrize(
    ("do", "names"),
    [
        (unseen, ["unseen"]),
        (gap, ["gap"]),
        (duplicate, ["duplicate"]),
        (lost_write, ["lost write"]),
        (torn_transaction, ["torn transaction"]),
        (aborted_write_counts, ["aborted write counts"]),
        (non_monotonic_send, ["non-monotonic send"]),
        (g0, ["G0", "internal send skip"]),
        (g1c_with_ww, ["G1c with ww"]),
        (g1c, ["G1c", "G1c with ww"]),
    ],
)
def test_what_is_wrong_is_found(do: Callable[[Small], None], names: list[str]) -> None:
    small = Small()
    do(small)
    check(small, *names)


def test_what_comes_late_of_a_former_producer_id_is_of_another_producer() -> None:
    small = Small()
    small.logs[A].append(Entry(5, 1, 10, PLAIN, [b"5"]))
    small.plain.sends = [(A, (b"5",)), (A, (b"4",))]
    assert small.anomalies() == ["unseen"]


def test_inputs_and_outputs() -> None:
    def logs(*outputs: bytes) -> Logs:
        return {
            A: [Entry(0, 2, 7, PLAIN, [b"1", b"2"])],
            B: [Entry(0, len(outputs), 7, PLAIN, list(outputs))],
        }

    def anomalies(*outputs: bytes) -> list[str]:
        return list(exactly_once(logs(*outputs), [A], [B]))

    assert anomalies(b"o1/1", b"o2/2") == []
    assert anomalies(b"o1/1") == ["input lost"]
    assert anomalies(b"o1/1", b"o2/2", b"o1/3") == ["input used twice"]
    assert anomalies(b"o1/1", b"o2/2", b"o3/3") == ["output of nothing"]
