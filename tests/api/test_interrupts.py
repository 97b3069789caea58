"""Tests interrupts at any point: signal handlers that raise, stack overflows, and turns of unknown outcome."""

import _thread
import gc
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import kit
import pytest
from kit import background, open_put, struck_at, take_lead, until

import planstep
from planstep.host.versions import History
from planstep.runtime import deferred_signals
from planstep.runtime.deferred_signals import Uninterrupted, room_for_a_turn
from planstep.runtime.turn_loop import TurnLoop
from planstep.store.disk_store import DiskStore

failing_disk = kit.failing_disk


class Late(TimeoutError):
    """A time-out handler's error, without a message."""


@pytest.fixture
def late() -> Iterator[Callable[[], None]]:
    """Installs raising handlers for two signals; the fixture's value sends one of them."""

    def raises(number: int, frame: FrameType | None) -> None:
        raise Late

    before = [(n, signal.signal(n, raises)) for n in (signal.SIGALRM, signal.SIGUSR2)]
    yield lambda: os.kill(os.getpid(), signal.SIGALRM)
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.parametrize("hosts", [1, 2])
def test_two_writes_that_fail_leave_a_commit_undetermined(
    tmp_path: Path, failing_disk: Any, hosts: int
) -> None:
    db = planstep.open(tmp_path / "s", hosts=hosts)
    table = db.create_table("t")
    table.put("k", 1)
    tx = db.transaction()
    tx.put("t", "k", 2)
    failing_disk.failures = math.inf
    with pytest.raises(planstep.Undetermined, match=r"made to fail.*ask its outcome"):
        tx.commit()
    with pytest.raises(planstep.StoreClosed, match="made to fail"):
        table.put("k", 3)  # this commit was not sent
    failing_disk.failures = 0
    db.close()
    with planstep.open(tmp_path / "s") as db:
        state = db.outcome(tx.id).state
        assert state in ("committed", "unknown")
        assert db.table("t").get("k") == (2 if state == "committed" else 1)


def test_what_frees_space_and_fails_twice_stops_the_engine_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn that uses the reserve stops the engine too, like any other."""
    with planstep.open(tmp_path / "s") as db:
        table = db.create_table("t")
        table.put("k", 1)
        closed = planstep.StoreClosed("made to fail")
        closed.in_doubt = True
        with monkeypatch.context() as patch:
            patch.setattr(DiskStore, "begin", Mock(side_effect=[planstep.NoSpace("full"), closed]))
            with pytest.raises(planstep.Undetermined, match="made to fail"):
                table.delete("k")
        with pytest.raises(planstep.StoreClosed, match="made to fail"):
            table.put("k", 2)


@pytest.mark.parametrize("where", [(DiskStore, "_append"), (TurnLoop, "_release")])
def test_a_handler_that_raises_waits_until_the_turn_is_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    late: Callable[[], None],
    where: tuple[type, str],
) -> None:
    with planstep.open(tmp_path / "s") as db:
        table = db.create_table("t")
        whole = getattr(*where)

        def strikes(*args: Any) -> Any:
            result = whole(*args)
            late()  # after the sync
            return result

        tx = db.transaction()
        tx.put("t", "k", 1)
        with monkeypatch.context() as patch:
            patch.setattr(*where, strikes)
            with pytest.raises(Late):
                tx.commit()
        assert tx.outcome().state == "committed"
        assert table.get("k") == 1
        table.put("k", 2)
    with planstep.open(tmp_path / "s") as db:
        assert db.table("t").get("k") == 2


def test_an_exception_from_another_thread_behind_the_sync_stops_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an exception cannot be deferred, so no caller gets an uncertain outcome, and nothing runs twice."""
    with planstep.open(tmp_path / "s") as db:
        db.create_table("t")
        tx = db.transaction()
        tx.add("t", "k", 1)

        with monkeypatch.context() as patch:
            patch.setattr(History, "release", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt), background(tx.commit):
                pass
        with pytest.raises(planstep.HostStopped, match="KeyboardInterrupt"):
            db.table("t").add("k", 1)
    with planstep.open(tmp_path / "s") as db:
        assert db.outcome(tx.id).state == "committed"
        assert db.table("t").get("k") == 1


def test_a_handler_that_raises_before_anything_was_sent(
    monkeypatch: pytest.MonkeyPatch, late: Callable[[], None]
) -> None:
    with planstep.open(":memory:") as db:
        tx = open_put(db)
        with monkeypatch.context() as patch:
            patch.setattr("planstep.runtime.turn_loop.bytes_of", lambda item: late())
            with pytest.raises(Late):
                tx.commit()
        assert tx.outcome().state == "aborted"
        assert db.table("t").get("k") is None


def test_who_waits_for_another_s_turn_hears_the_handler_at_once(late: Callable[[], None]) -> None:
    with planstep.open(":memory:") as db:
        node = take_lead(db)
        tx = open_put(db)

        def strikes() -> None:
            until(lambda: node._followers)
            late()

        with background(strikes), pytest.raises(Late):
            tx.commit()
        assert node.hand_over()
        db._runtime.turns.submitted.set()
        assert tx.outcome(30).state == "committed"


def test_a_handler_that_does_not_raise_ends_no_waiting() -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: called.append(number))
    try:
        with planstep.open(":memory:") as db:
            node, table = take_lead(db), db.table("t")

            def strikes() -> None:
                until(lambda: node._followers)
                for count in range(3):
                    os.kill(os.getpid(), signal.SIGUSR2)
                    until(lambda count=count: len(called) > count)
                until(lambda: not node._followers[0].stopped)  # waits again
                node.hand_over()

            with background(strikes):
                table.put("k", 1)
            assert table.get("k") == 1 and len(called) == 3
            assert not node._followers
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_all_that_was_put_off_is_called_and_all_handlers_are_back(late: Callable[[], None]) -> None:
    called: list[int] = []

    def raises(number: int, frame: FrameType | None) -> None:
        called.append(number)
        raise Late

    both = (signal.SIGALRM, signal.SIGUSR2)
    for number in both:
        signal.signal(number, raises)
    with pytest.raises(Late), Uninterrupted():
        for number in both:
            signal.raise_signal(number)
        with Uninterrupted():
            signal.raise_signal(signal.SIGALRM)
        assert not called
    assert sorted(called) == sorted(both)
    assert [signal.getsignal(number) for number in both] == [raises, raises]
    assert deferred_signals._held is None


@pytest.mark.parametrize("nth", range(4))
def test_one_that_comes_while_they_are_put_aside_or_back(
    monkeypatch: pytest.MonkeyPatch, late: Callable[[], None], nth: int
) -> None:
    """The signals arrive between two replacements, when one handler is replaced and the other is not."""
    both = (signal.SIGALRM, signal.SIGUSR2)
    before = [signal.getsignal(number) for number in both]
    whole, calls = deferred_signals._set, 0

    def sets(number: int, handler: Any) -> None:
        nonlocal calls
        whole(number, handler)
        if number in both:
            calls += 1
            if calls == nth + 1:
                for one in both:
                    signal.raise_signal(one)

    monkeypatch.setattr(deferred_signals, "_set", sets)
    with pytest.raises(Late), Uninterrupted():
        pass
    assert [signal.getsignal(number) for number in both] == before
    assert deferred_signals._held is None


def deeper(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames <= 0 else deeper(frames - 1, call)


def used() -> int:
    frames, frame = 0, sys._getframe()
    while frame.f_back is not None:
        frames, frame = frames + 1, frame.f_back
    return frames


@pytest.mark.parametrize("settings", [{}, {"mode": "kafka"}, {"hosts": 2}], ids=str)
def test_a_deep_stack_fails_its_own_call_and_stops_nobody(settings: dict[str, Any]) -> None:
    with planstep.open(":memory:", **settings) as db:
        topic = db.create_topic("t", format="msgpack")
        there, failed = [], 0
        for room in range(0, 130, 3):
            tx = db.transaction(worker="w")
            try:
                tx.write("t", room)
                deeper(sys.getrecursionlimit() - used() - room, tx.commit)
                there.append(room)
            except RecursionError:
                failed += 1
            else:
                continue
            if tx.life.state == "open":
                tx.rollback()
            else:
                assert tx.outcome(30).state == "aborted"
        assert failed > 10 and len(there) > 10
        with background(lambda: db.write("t", -1)):
            pass
        until(
            lambda: len(topic.read().values) > len(there)
        )  # mode kafka answers before it is visible
        assert topic.read().values == [*there, -1]


def test_opening_and_closing_want_room_too(tmp_path: Path) -> None:
    deep = sys.getrecursionlimit() - used() - 40
    with pytest.raises(RecursionError, match="nothing was done"):
        deeper(deep, lambda: planstep.open(tmp_path / "s"))
    with planstep.open(tmp_path / "s") as db:
        with pytest.raises(RecursionError, match="less deep"):
            deeper(deep, db.close)
        db.create_topic("t")


def test_who_has_room_is_let_through() -> None:
    room_for_a_turn()
    deeper(sys.getrecursionlimit() - used() - 90, room_for_a_turn)


def test_an_interrupt_of_the_main_thread_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """_thread.interrupt_main is Ctrl-C without a signal."""
    with planstep.open(tmp_path / "s") as db:
        tx = open_put(db)
        whole = db._runtime.turns._release

        def strikes(*args: Any) -> None:
            _thread.interrupt_main()
            whole(*args)

        monkeypatch.setattr(db._runtime.turns, "_release", strikes)
        with pytest.raises(KeyboardInterrupt):
            tx.commit()
        assert tx.outcome().state == "committed"


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_commit_within_a_callback_waits_to_its_end(tmp_path: Path, hosts: int) -> None:
    """The callback runs where signals are deferred already, so one that arrives ends nothing there."""
    with planstep.open(tmp_path / "s", hosts=hosts) as db:
        db.create_topic("t").write_batch([b"x"] * 4)
        db.create_topic("u")
        hits: list[int] = []
        before = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
        try:
            reader = db.reader("t", consumer="c", max_records=1, in_flight=4)
            first, second = reader.read(), reader.read()
            assert first is not None and second is not None
            ended: list[Any] = []

            def commits(_: Any) -> None:
                signal.raise_signal(signal.SIGALRM)
                try:
                    with db.transaction() as tx:
                        tx.write("u", b"y")
                    ended.append(tx.outcome().state)
                except BaseException as error:
                    ended.append(error)

            second.tx.submit().add_done_callback(commits)  # waits for the first, which is not sent
            first.tx.rollback()
            assert ended == ["committed"] and hits == [1]
            assert db.topic("u").read().values == [b"y"]
        finally:
            signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_writer_that_is_struck_anywhere_goes_on(numbered: bool) -> None:
    """Interrupted at each line of write and flush, it publishes accepted records once, and the next flush works."""
    from planstep.api.topics import writer as module

    with planstep.open(":memory:") as db:
        topic = db.create_topic("t", format="utf8")
        writer = topic.writer(producer="p", linger_records=1000)
        step, struck = 0, True

        def write_and_flush() -> None:
            writer.write(f"r{step}", sequence=step if numbered else None)
            writer.flush()

        while struck:
            step += 1
            struck = struck_at(
                step, lambda frame: frame.f_code.co_filename == module.__file__, write_and_flush
            )
            writer.flush()
            assert writer.buffered == 0
        writer.close()
        values = topic.read().values
        assert len(values) == len(set(values)) and values == sorted(
            values, key=lambda v: int(v[1:])
        )
        assert values[-1] == f"r{step}" and step > 20


def test_a_transaction_that_is_struck_while_it_is_made_leaves_no_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from planstep.api.transaction import lifecycle as lifecycle
    from planstep.api.transaction import transaction as module

    noise: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", noise.append)
    files = {lifecycle.__file__, module.__file__}
    with planstep.open(":memory:") as db:

        def watched(frame: FrameType) -> bool:
            return frame.f_code.co_filename in files and frame.f_code.co_name == "__init__"

        step = 1
        while struck_at(step, watched, db.transaction):
            step += 1
            gc.collect()
        assert step > 10 and noise == []


def test_handlers_are_put_back_whatever_strikes_or_left_to_hand_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Restoring handlers is tried a few times only: without a limit it overflowed the stack."""
    hits: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    real, calls, fails = deferred_signals._set, 0, 0

    def struck(number: int, handler: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= fails:
            raise KeyboardInterrupt
        return real(number, handler)

    try:
        for fail in (1, 3, 1_000_000):
            fails, calls = fail, 0
            with pytest.raises(KeyboardInterrupt), Uninterrupted():
                monkeypatch.setattr(deferred_signals, "_set", struck)
            monkeypatch.undo()
            assert calls < 1_000, "it came to an end"
            signal.raise_signal(signal.SIGALRM)  # put back, or handed on
            assert len(hits) == 1
            hits.clear()
            with Uninterrupted():
                signal.raise_signal(signal.SIGALRM)
                assert not hits
            assert hits == [1]
            hits.clear()
            signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    finally:
        signal.signal(signal.SIGALRM, before)
