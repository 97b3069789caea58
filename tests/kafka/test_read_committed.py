"""Tests the records that a reader sees: Kafka's consumer over stored entries, and over a partition."""

from itertools import pairwise

import pytest
from partition_kit import Log

from planstep.proto.kafka.messages import ABORT, COMMIT, PLAIN, TRANSACTIONAL
from planstep.proxy.read_filter import Entry, aborted_between, visible
from planstep.runtime.kafka.views import KINDS


def entries(script: str) -> list[Entry]:
    """Builds entries from a script: "1:2" is a batch of two records in producer 1's transaction, "1" of one.

    "p1" is a batch outside any transaction, "c1" and "a1" are producer 1's markers; "_3" skips offsets.
    """
    result: list[Entry] = []
    offset = 0
    for word in script.split():
        if word[0] == "_":
            offset += int(word[1:])
            continue
        kind = {"p": PLAIN, "c": COMMIT, "a": ABORT}.get(word[0], TRANSACTIONAL)
        producer, _, records = word.lstrip("pca").partition(":")
        result.append((offset, (0, 0, int(records or 1), int(producer), 0, 0, kind)))
        offset += int(records or 1)
    return result


def visible_offsets(script: str, *aborted: tuple[int, int, int]) -> list[int]:
    return [offset for offset, _ in visible(entries(script), aborted, KINDS)]


@pytest.mark.parametrize(
    ("script", "aborted", "expected"),
    [
        ("", [], []),
        ("p1 p2:3 p1", [], [0, 1, 4]),
        # control records are never shown
        ("1 c1 p2 a3", [], [0, 2]),
        # aborted ones are skipped
        ("1:2 a1 p2", [(1, 0, 2)], [3]),
        ("1:2 c1 1 a1 1 c1", [(1, 3, 4)], [0, 5]),
        # interleaved
        ("1 2 1 2 c1 2 a2 1 c1", [(2, 1, 6)], [0, 2, 7]),
        ("1 2 3 c2 a1 c3", [(1, 0, 4)], [1, 2]),
        ("1 2 a1 1 c2 c1", [(1, 0, 2)], [1, 3]),
        # several abort markers
        ("1 a1 1 a1 1 c1", [(1, 0, 1), (1, 2, 3)], [4]),
        ("1 2 a1 1 a2 2 a1 c2", [(1, 0, 2), (2, 1, 4), (1, 3, 6)], [5]),
        ("1 2 3 a3 a2 a1 p3", [(3, 2, 3), (2, 1, 4), (1, 0, 5)], [6]),
        # an abort marker with no data
        ("a1 1 c1", [], [1]),
        ("1 c1 a1 1 c1", [], [0, 3]),
        ("1 a1 a1 1 c1", [(1, 0, 1)], [3]),
        # data outside transactions stays, of any producer
        ("1 p2 a1", [(1, 0, 2)], [1]),
        ("1 p1 a1", [(1, 0, 2)], [1]),
        # read from within an aborted transaction
        ("_5 1 1 p2 a1 1", [(1, 2, 8)], [7, 9]),
        # missing offsets: the first batch of an aborted transaction, and all of it
        ("_2 p3 _1 1 a1 1", [(1, 1, 5)], [2, 6]),
        ("_4 a1 1 c1", [(1, 1, 4)], [5]),
        # a transaction's outcome applies to a batch from that batch's last offset on
        ("1:3 a1", [(1, 1, 3)], []),
        ("p3:4 1 a1", [(1, 4, 5)], [0]),
    ],
)
def test_what_is_shown(
    script: str, aborted: list[tuple[int, int, int]], expected: list[int]
) -> None:
    assert visible_offsets(script, *aborted) == expected
    assert visible_offsets(script, *reversed(aborted)) == expected, (
        "in whatever order the broker lists them"
    )


def test_aborted_ones_are_shown_to_read_uncommitted_and_markers_are_not() -> None:
    assert visible_offsets("1:2 a1 p2 1 c1") == [0, 3, 4]


def test_entries_are_taken_one_by_one() -> None:
    """A reader that has enough stops early."""
    rest = iter(entries("p1 p1 p1"))
    assert next(visible(rest, (), KINDS))[0] == 0
    assert len(list(rest)) == 2


# the index ---------------------------------------------------------------------------------

INDEX = [(1, 0, 10, 3), (2, 3, 20, 15), (3, 15, 25, 16), (1, 16, 28, 29), (2, 30, 33, 34)]


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (0, 100, [0, 1, 2, 3, 4]),
        (0, 1, [0]),
        (0, 0, []),
        (10, 11, [0, 1]),
        (11, 15, [1]),
        (11, 16, [1, 2]),
        (21, 26, [2, 3]),
        (26, 29, [3]),
        (29, 30, []),
        (29, 31, [4]),
        (34, 90, []),
    ],
)
def test_which_aborted_transactions_overlap(begin: int, end: int, expected: list[int]) -> None:
    assert aborted_between(INDEX, begin, end) == [INDEX[i][:3] for i in expected]


@pytest.mark.parametrize(("end", "count"), [(1, 1), (3, 1), (4, 2), (15, 2), (16, 3), (29, 4)])
def test_the_search_stops_where_the_last_stable_offset_was_beyond(end: int, count: int) -> None:
    rest = iter(INDEX)
    aborted_between(rest, 0, end)
    assert len(INDEX) - len(list(rest)) == count


# over a partition --------------------------------------------------------------------------


@pytest.fixture
def log() -> Log:
    log = Log()
    log.plain(9, 0)
    log.produce(1, 0, 2)
    log.produce(2, 0)
    log.plain(9, 1)
    log.abort(1)
    log.produce(1, 2)
    log.produce(2, 1, 3)
    log.commit(2)
    log.abort(1)
    log.produce(1, 3)
    log.produce(2, 4)
    log.commit(1)
    log.plain(9, 2)
    log.abort(2)
    return log


def test_a_partition_is_read_with_and_without_isolation(log: Log) -> None:
    committed = ["9/0/0", "2/0/0", "9/0/1", "2/0/1", "2/0/2", "2/0/3", "1/0/3", "9/0/2"]
    assert log.values() == committed
    everything = log.values(committed=False)
    assert sorted(set(everything) - set(committed)) == ["1/0/0", "1/0/1", "1/0/2", "2/0/4"]
    assert [value for value in everything if value in committed] == committed


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_read_in_pieces_it_is_the_same(log: Log, most: int) -> None:
    records, at = [], 0
    while at < log.stable:
        piece, behind = log.read(at, most=most)
        assert behind > at
        records += piece
        at = behind
    assert records == log.read()[0]


def test_from_every_offset_the_same_is_shown(log: Log) -> None:
    whole = log.read()[0]
    for begin in range(log.bounds[1]):
        assert log.read(begin)[0] == [item for item in whole if item[0] >= begin]


def test_an_open_transaction_stops_readers_of_committed_data_only() -> None:
    log = Log()
    log.plain(9, 0)
    log.produce(1, 0)
    log.plain(9, 1)
    assert log.values() == ["9/0/0"]
    assert log.values(committed=False) == ["9/0/0", "1/0/0", "9/0/1"]
    log.commit(1)
    assert log.values() == ["9/0/0", "1/0/0", "9/0/1"]


def test_a_trimmed_log_shows_the_same_of_what_is_left(log: Log) -> None:
    whole = log.read()[0]
    for start in range(log.stable + 1):
        log.trim(start)
        assert log.read()[0] == [item for item in whole if item[0] >= start]


def test_markers_make_holes_in_the_offsets() -> None:
    log = Log()
    for n in range(4):
        log.produce(1, n)
        log.commit(1)
    offsets = [offset for offset, _ in log.read()[0]]
    assert [b - a for a, b in pairwise(offsets)] == [2, 2, 2]
