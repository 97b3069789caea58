"""Tests snapshots of aborted ids against a set, in each way, with a crash at each write (scenarios 23-27)."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshot_kit import FIVE_IDS, Log

from planstep.tablets.pulsar.aborted import Aborted
from planstep.tablets.pulsar.snapshots import END, WAYS, load, read_markers, recover

ways = pytest.mark.parametrize("way", WAYS)


def aborts(log: Log, number: int, begin: int = 0) -> None:
    for least in range(begin, begin + number):
        log.end_txn(0, least, gap=1)
    log.max_read = log.end


@ways
def test_fourteen_aborts_at_five_a_segment(way: str) -> None:
    """Scenario 23."""
    log = Log(way)
    aborts(log, 14)
    log.take_whole()
    log.check()
    rows = log.space.rows
    if way == "segmented":
        assert sum(key[:1] == b"g" for key in rows) == 2
        *_, segments, tail = rows[b"i"]
        assert len(segments) == 2
        assert len(tail) == FIVE_IDS - 8, "four ids are not sealed"
    elif way == "parts":
        assert sorted(key for key in rows if key[:1] == b"q") == [
            b"q\0\0\0\1",
            b"q\0\0\0\2",
            END,
        ]
    log.restart()
    log.check()
    log.trim(20)  # beyond the tenth marker
    assert [least for *_, least in log.aborted.ids()] == [10, 11, 12, 13]
    assert not any(key[:1] == b"g" for key in rows)
    log.restart()
    log.check()
    assert len(log.aborted) == 4


@ways
@pytest.mark.parametrize("after", WAYS)
def test_the_setting_may_change(way: str, after: str) -> None:
    """Scenario 24: the old snapshot's ids become the new way's first ones (#20235)."""
    log = Log(way)
    aborts(log, 14)
    log.take_whole()
    aborts(log, 3, 14)
    log.restart(after)
    log.check()
    log.end_txn(1, 0)
    log.take_whole()
    letters = {key[:1] for key in log.space.rows} - {b"b"}
    assert letters == {"single": {b"s"}, "parts": {b"q"}, "segmented": {b"g", b"i"}}[after]
    log.restart(way)
    log.check()
    log.take_whole()
    log.restart()
    log.check()


@ways
def test_a_power_loss_at_every_write_of_a_snapshot(way: str) -> None:
    """Scenario 25: sealing, indexing, collecting; parts are turns of their own, so whole parts stay behind."""
    lost = 1
    for fails_at in range(40):
        log = Log("single")
        aborts(log, 9)
        log.take_whole()
        log.restart(way)
        whole = True
        for begin in (9, 16, 30):
            aborts(log, 7, begin)
            whole = whole and log.turn(log.take, fails_at)
            log.check()
            while whole and log.snapshots.unfinished:
                whole = log.turn(log.go_on, fails_at)
            if not whole:
                break
            log.trim(2 * begin)
        lost += not whole
        log.check()
        log.restart()
        log.check()
        for _ in range(2):  # a snapshot after the crash mends what it left
            log.take_whole()
            log.restart()
            log.check()
    assert lost > 1


@ways
def test_a_power_loss_while_segments_are_collected(way: str) -> None:
    for fails_at in range(30):
        log = Log(way)
        aborts(log, 23)
        log.take_whole()
        done = log.turn(lambda log=log: log.trim(31), fails_at)  # type: ignore[misc]
        log.check()
        log.restart()
        log.check()
        assert log.start == (31 if done else 0)
    assert done


def crash_behind_each_part(make: Callable[[str], Log]) -> None:
    for trimmed in (0, 9, 21, 35, 45):
        for written in range(1, 9):
            log = make("parts")
            aborts(log, 23)
            log.take_whole()
            aborts(log, 9, 23)
            log.trim(trimmed)
            log.take()
            for _ in range(1, written):
                log.trim(log.start + 2)
                aborts(log, 1, 100 + log.end)
                log.go_on()
            log.restart()
            log.check()
            log.take_whole()
            log.restart()
            log.check()


def test_parts_are_whole_after_a_crash_behind_each() -> None:
    """Issue #16042: a mixture of new and old parts hides enough, also if ids were trimmed between them."""
    crash_behind_each_part(Log)


class Counted(Log):
    """Planted: part 1 says how many parts there are, as an alternative that the issue rejected has it."""

    def take(self) -> None:
        if not self.snapshots.unfinished:
            capacity = self.aborted.capacity(self.settings.segment_bytes)
            self.space.put(b"#", max(0, len(self.aborted) - 1) // capacity)
        super().take()

    def recover(self) -> Aborted | None:
        parts = self.space.scan(b"q", b"r")
        if not parts or parts[-1][0] != END:
            return None
        aborted = Aborted()
        for _, (_, data, *_) in (*parts[: self.space.get(b"#")], parts[-1]):
            aborted.load(data)
        read_markers(self.space, aborted, max(self.start, parts[-1][1][2]), self.end)
        aborted.trim(self.start)
        return aborted


class Begun(Log):
    """Planted: a row begins a snapshot, and what was written before it is gone: the other rejected one."""

    def take(self) -> None:
        if not self.snapshots.unfinished:
            self.space.put(b"#", 0)
        super().take()

    def recover(self) -> Aborted | None:
        rows = list(self.space.rows)
        begun = rows.index(b"#") if b"#" in rows else 0
        parts = {key: self.space.rows[key] for key in rows[begun:] if key[:1] == b"q"}
        if END not in parts:
            return None  # it has only begun
        aborted = Aborted()
        for _, (_, data, *_) in sorted(parts.items()):
            aborted.load(data)
        read_markers(self.space, aborted, max(self.start, parts[END][2]), self.end)
        aborted.trim(self.start)
        return aborted


@pytest.mark.parametrize("planted", [Counted, Begun])
def test_the_ways_that_the_issue_rejected_are_noticed(planted: type[Log]) -> None:
    with pytest.raises(AssertionError):
        crash_behind_each_part(planted)


def test_parts_after_their_size_was_lowered_leave_no_gap() -> None:
    """Short new parts end before the old ones they replace; recovery reads the log from there."""
    for written in range(1, 6):
        log = Log("parts", 14 + 8 * 8)
        aborts(log, 30)
        log.take_whole()
        log.restart(bytes_max=14 + 3 * 8)
        log.take()
        for _ in range(1, written):
            log.go_on()
        log.restart()
        log.check()


@ways
def test_the_first_snapshot_may_come_before_the_first_message(way: str) -> None:
    log = Log(way)
    assert recover(log.space, 0, 0) is None
    log.take_whole()
    assert recover(log.space, 0, 0) is not None
    aborts(log, 7)
    log.restart()
    log.check()
    assert len(log.aborted) == 7


def test_a_single_snapshot_beyond_the_limit_is_refused() -> None:
    """Scenario 26: it is counted, the last good one stays, recovery reads more; other ways have no limit."""
    log = Log("single")
    log.snapshots._settings = log.settings._replace(message_bytes_max=FIVE_IDS)
    aborts(log, 5)
    log.take()
    good = log.space.rows[b"s"]
    read = []
    for begin in range(5, 50, 5):
        aborts(log, 5, begin)
        log.take()
        assert log.space.rows[b"s"] == good
        loaded = load(log.space)
        assert loaded is not None
        aborted, position = loaded
        assert read_markers(log.space, aborted, position, log.end) == log.end
        read.append((log.end - position) // 2)
        assert aborted.ids() == log.model
    assert log.snapshots.refused == 9
    assert read == [5 * n for n in range(1, 10)], "it grows without bound"
    for way in ("parts", "segmented"):
        other = Log(way)
        aborts(other, 500)
        other.take_whole()
        assert other.snapshots.refused == 0
        largest = max(
            len(data) for row in other.space.rows.values() for data in row if type(data) is bytes
        )
        assert largest <= FIVE_IDS
        other.restart()
        other.check()


def test_a_reader_keeps_its_own_copy_by_the_same_way() -> None:
    """It loads the snapshot once and then reads on; it equals the tablet's after each turn."""
    log = Log("segmented")
    copy, at = Aborted(), 0
    log.take_whole()
    for begin in range(0, 60, 3):
        aborts(log, 3, begin)
        if begin % 9 == 0:
            log.take_whole()
        if begin % 21 == 0:
            log.trim(begin)
        if begin % 30 == 0:  # a reader that comes later
            recovered = recover(log.space, log.start, log.end)
            assert recovered is not None
            copy, at = recovered, log.end
        read_markers(log.space, copy, at, log.end)
        copy.trim(log.start)
        at = log.end
        assert copy.ids() == log.aborted.ids() == log.model


def test_a_longer_snapshot_leaves_no_parts_behind() -> None:
    log = Log("parts")
    aborts(log, 23)
    log.take_whole()
    log.trim(41)
    log.take_whole()
    assert [key for key in log.space.rows if key[:1] == b"q"] == [END]
    log.check()


def test_parts_without_an_end_are_no_snapshot() -> None:
    log = Log("parts")
    aborts(log, 23)
    log.take()
    assert log.snapshots.unfinished
    assert load(log.space) is None


@ways
def test_a_whole_snapshot_needs_the_log_only_behind_it(way: str) -> None:
    log = Log(way)
    aborts(log, 23)
    log.take_whole()
    loaded = load(log.space)
    assert loaded is not None
    aborted, position = loaded
    assert (aborted.ids(), position) == (log.model, log.max_read)


def test_a_segment_stays_while_the_log_holds_its_last_marker() -> None:
    log = Log("segmented")
    aborts(log, 14)
    log.take_whole()
    log.trim(9)  # the fifth marker
    log.restart()
    log.check()
    assert not log.aborted.contains(0, 3, 0)
    assert sum(key[:1] == b"g" for key in log.space.rows) == 2
    log.trim(10)
    assert sum(key[:1] == b"g" for key in log.space.rows) == 1


def test_markers_are_read_in_steps() -> None:
    log = Log()
    aborts(log, 2_500)
    aborted, at, steps = Aborted(), 0, 0
    while at < log.end:
        at = read_markers(log.space, aborted, at, log.end, most=1_000)
        steps += 1
    assert steps == 3
    assert aborted.ids() == log.model


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("abort"), st.integers(0, 2), st.integers(1, 6)),
        st.tuples(st.just("commit"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("take")),
        st.tuples(st.just("part")),
        st.tuples(st.just("trim"), st.integers(0, 12)),
        st.tuples(st.just("max read"), st.integers(0, 5)),
        st.tuples(st.just("crash"), st.sampled_from((*WAYS, None)), st.sampled_from((22, 54, 90))),
    ),
    max_size=40,
)


@settings(max_examples=400)
@given(st.sampled_from(WAYS), STEPS, st.integers(0, 3), st.data())
def test_ids_equal_a_set_whatever_write_fails(
    way: str, steps: list[Any], patience: int, data: st.DataObject
) -> None:
    log, least = Log(way), 0
    log.take_whole()
    for what, *rest in steps:

        def work(what: str = what, rest: list[Any] = rest) -> None:
            nonlocal least
            if what in ("abort", "commit"):
                most, number = rest
                for _ in range(number):
                    least += 1
                    log.end_txn(most, least ^ 1, commit=what == "commit", gap=least % 2)
            elif what == "take":
                log.take()
            elif what == "part":
                log.go_on()
            elif what == "max read":
                log.max_read = max(log.max_read, log.end - rest[0])
            else:
                log.trim(min(log.start + rest[0], log.max_read))

        if what == "crash":
            log.restart(*rest)
        else:
            fails_at = data.draw(st.one_of(st.none(), st.integers(0, patience)))
            if not log.turn(work, fails_at) and data.draw(st.booleans()):
                log.restart()
        log.check()


@ways
def test_a_million_ids_are_recovered(way: str) -> None:
    """Scenario 27; no test asserts a time."""
    log = Log(way, 262_144)
    for least in range(1_000_000):
        log.aborted.add(least % 4, least // 4, least)
    log.end = log.max_read = 1_000_000
    began = perf_counter()
    log.take_whole()
    taken = perf_counter()
    loaded = load(log.space)
    print(f"{way}: taken in {taken - began:.3f} s, loaded in {perf_counter() - taken:.3f} s")
    assert loaded is not None
    aborted, at = loaded
    assert (len(aborted), at) == (1_000_000, 1_000_000)
    assert aborted.contains(3, 249_999, 999_998)
    assert aborted.pack() == log.aborted.pack()
