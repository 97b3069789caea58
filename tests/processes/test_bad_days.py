"""An attached process on a bad day: its owner is stopped or killed at a wrong moment, or a signal comes."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kit import until
from process_kit import Other

import planstep
from planstep.proto.frame_checks import MalformedFrame
from planstep.runtime.processes import link as link_module
from planstep.runtime.processes import next_owner
from planstep.runtime.processes.calls import CALLS
from planstep.runtime.processes.ids import BLOCK, Blocks, Ids
from planstep.runtime.processes.nudge import Nudge
from planstep.runtime.processes.peer import Peer
from planstep.runtime.processes.server import Server
from planstep.store.owner_lock import OwnerLock
from planstep.store.process_socket import Listener, connect


class Struck(Exception):
    pass


@contextmanager
def a_signal_that_raises() -> Iterator[signal.Signals]:
    def handler(*_: object) -> None:
        raise Struck

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield signal.SIGUSR1
    finally:
        signal.signal(signal.SIGUSR1, before)


def put_later(db: planstep.Engine, key: str) -> Any:
    tx = db.transaction()
    tx.put("n", key, 1)
    return tx.submit()


def test_a_callback_commits_though_its_owner_is_gone(tmp_path: Path, owner: Other) -> None:
    with planstep.open(tmp_path / "s") as db:
        done = threading.Event()

        def go_on(_: object) -> None:
            owner.kill()
            db.table("n").put("callback", 1)
            done.set()

        put_later(db, "k").add_done_callback(go_on)
        assert done.wait(15)
        assert dict(db.table("n").scan()) == {"callback": 1, "k": 1}


def test_a_callback_commits_beside_one_that_waits(tmp_path: Path, owner: Other) -> None:
    with planstep.open(tmp_path / "s") as db:
        done = threading.Event()

        def go_on(_: object) -> None:
            owner.signal(signal.SIGSTOP)
            threading.Thread(target=db.table("n").put, args=("beside", 1)).start()
            until(lambda: bool(db.context.runtime.replies.waiting))
            threading.Timer(0.2, owner.signal, (signal.SIGCONT,)).start()
            db.table("n").put("callback", 1)
            done.set()

        put_later(db, "k").add_done_callback(go_on)
        assert done.wait(15)
        until(lambda: len(dict(db.table("n").scan())) == 3)


def test_a_conflict_that_nobody_waits_for_any_more(tmp_path: Path, owner: Other) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.table("n").put("k", 1)
        tx = db.transaction()
        tx.put("n", "k", tx.get("n", "k") + 1)
        db.table("n").put("k", 5)
        owner.signal(signal.SIGSTOP)
        with pytest.raises(planstep.Undetermined, match="is stopped"):
            tx.life.commit(0.1)
        owner.signal(signal.SIGCONT)
        until(lambda: not db.context.runtime.replies.waiting)
        db.table("n").put("more", 1)
        assert db.table("n").get("k") == 5
        assert db.outcome(tx.id).state in ("aborted", "refused")


def test_an_idle_process_closes(tmp_path: Path, owner: Other) -> None:
    db = planstep.open(tmp_path / "s")
    following: Any = db.context.runtime.following
    until(lambda: following._resting is not None)  # its thread has nothing to do for an hour
    closing = threading.Thread(target=db.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


@pytest.mark.parametrize("under_way", [False, True])
def test_a_topic_that_the_next_owner_never_knew(
    tmp_path: Path, owner: Other, monkeypatch: pytest.MonkeyPatch, under_way: bool
) -> None:
    """It was dropped before that process looked at the names."""
    with planstep.open(tmp_path / "s") as db:
        tx = db.transaction()
        tx.write("t", b"late")
        db.drop_topic("t")
        with Other(tmp_path / "s") as other:
            monkeypatch.setattr(next_owner, "_AT_ONCE_SECONDS", 1.0)
            monkeypatch.setattr(next_owner.random, "random", lambda: 1.0)
            if under_way:
                owner.signal(signal.SIGSTOP)
                late = tx.submit()
            owner.kill()
            until(lambda: other("db.owner == os.getpid()"))
            with pytest.raises(planstep.Dropped):
                late.result(60) if under_way else tx.commit()
            db.table("n").put("k", 1)
            assert other("db.table('n').get('k')") == 1


def test_a_commit_that_a_signal_breaks_off_before_it_is_sent(
    tmp_path: Path, owner: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planstep.open(tmp_path / "s") as db, a_signal_that_raises() as number:
        tx = db.transaction()
        tx.put("n", "k", 1)
        encode = link_module.encode

        def struck(frame: Any) -> Any:
            monkeypatch.setattr(link_module, "encode", encode)
            signal.raise_signal(number)
            return encode(frame)

        monkeypatch.setattr(link_module, "encode", struck)
        with pytest.raises(Struck):
            tx.commit()
        until(lambda: not db.context.runtime.replies.waiting)
        assert (tx.outcome(30).state == "committed") == (db.table("n").get("k") == 1)


def test_a_commit_that_a_signal_breaks_off_while_it_waits(tmp_path: Path, owner: Other) -> None:
    with planstep.open(tmp_path / "s") as db, a_signal_that_raises() as number:
        tx = db.transaction()
        tx.put("n", "k", 1)
        owner.signal(signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        with pytest.raises(Struck):
            tx.commit()
        assert tx.life.state != "aborted"
        owner.signal(signal.SIGCONT)
        assert tx.outcome(60).state == "committed"
        assert db.table("n").get("k") == 1


def test_a_nudge_is_set_whatever_a_signal_does() -> None:
    nudge = Nudge()

    class Raising:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def send(self, data: bytes) -> None:
            signal.raise_signal(number)
            self.inner.send(data)

        def close(self) -> None:
            self.inner.close()

    nudge._other = Raising(nudge._other)  # type: ignore[assignment]
    with a_signal_that_raises() as number:
        with pytest.raises(Struck):
            nudge.set()
    nudge.socket.settimeout(10)
    assert nudge.socket.recv(1) == b"!"
    nudge.close()


def test_ids_of_long_transactions_stay_those_of_the_owner() -> None:
    blocks = Blocks(7)
    mine, other = (7, 1), (7, 2)
    for number in range(10_000):
        blocks.add(1 + number * 2 * BLOCK, other if number % 2 else mine)

    def tx(number: int, generation: int = 7) -> bytes:
        return generation.to_bytes(4, "big") + number.to_bytes(8, "big")

    assert blocks.has(tx(5), mine)
    assert blocks.has(tx(1 + 9_998 * 2 * BLOCK), mine)
    assert not blocks.has(tx(1 + 9_999 * 2 * BLOCK), mine)
    assert not blocks.has(tx(1 << 40), mine)
    assert not blocks.has(tx(5, generation=8), mine)


def test_ids_are_not_taken_twice() -> None:
    ids = Ids(lambda: None, lambda ids: None)
    ids.add(7, 1, BLOCK)
    tx = next(ids)
    for generation, first in ((7, 1), (7, BLOCK), (6, 5_000)):
        with pytest.raises(MalformedFrame, match="before"):
            ids.add(generation, first, BLOCK)
    ids.forget()
    ids.add(7, 1 + BLOCK, BLOCK)
    assert next(ids) > tx
    ids.add(8, 1, BLOCK)


def test_a_process_closes_while_it_becomes_the_owner(
    tmp_path: Path, owner: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is taken from others then, so that nobody hears that an engine is closed."""
    db = planstep.open(tmp_path / "s")
    owning, closes, told = threading.Event(), threading.Event(), []
    own = next_owner.NextOwner._own

    def slowly(self: next_owner.NextOwner, path: Path, lock: OwnerLock, ended: Any) -> None:
        owning.set()
        assert closes.wait(60)
        own(self, path, lock, ended)

    def take_no_more(self: Server) -> None:
        told.append(db.context.runtime.turns.closed)
        taken(self)

    taken = Server.take_no_more
    monkeypatch.setattr(next_owner.NextOwner, "_own", slowly)
    monkeypatch.setattr(Server, "take_no_more", take_no_more)
    owner.kill()
    assert owning.wait(60)
    threading.Timer(0.2, closes.set).start()
    db.close()
    assert told == [False]
    with planstep.open(tmp_path / "s") as again:
        assert again.owner == os.getpid()


def test_an_owner_without_descriptors_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not look for the same connection again and again; who connects waits."""
    tries = 0
    accept = Listener.accept

    def full(self: Listener) -> Any:
        nonlocal tries
        tries += 1
        if held.is_set():
            return accept(self)
        raise planstep.IoError("Too many open files")

    held = threading.Event()
    monkeypatch.setattr(Listener, "accept", full)
    with planstep.open(tmp_path / "s") as db:
        db.create_table("n")
        threading.Timer(1.0, held.set).start()
        with Other(tmp_path / "s") as other:
            other.run("db.table('n').put('k', 1)")
        assert db.table("n").get("k") == 1
    assert tries < 100


def test_a_call_that_fails_oddly_ends_no_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        db.create_table("n")
        monkeypatch.setitem(CALLS, "stats", lambda runtime: {1, 2})
        with pytest.raises(planstep.PlanstepError, match="set"):
            other("db.context.runtime.link.call('stats')")
        other.run("db.table('n').put('k', 1)")

        def no_threads(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(db.context.runtime.server, "call", no_threads)
        with pytest.raises(planstep.StoreClosed, match="new thread"):
            other("db.context.runtime.link.call('stats')")
        db.table("n").put("k", 2)


def test_a_process_without_descriptors_goes_on_once_it_has_some(tmp_path: Path) -> None:
    owner = Other(tmp_path / "s")
    owner.run("db.create_table('n')")
    with Other(tmp_path / "s") as other:
        other.run(
            "import resource\n"
            "limits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))\n"
            "tx = db.transaction()\n"
            "tx.put('n', 'k', 1)\n"
            "future = tx.submit()\n"
            "first = future.result(60)"
        )
        owner.kill()
        other.run("tx = db.transaction()\ntx.put('n', 'k', 2)\nfuture = tx.submit()")
        assert not other("time.sleep(0.5) or future.done()")
        other.run("resource.setrlimit(resource.RLIMIT_NOFILE, limits)")
        other.run("second = future.result(60)")
        assert other("db.table('n').get('k')") == 2


def test_who_connects_and_says_nothing_holds_no_link(tmp_path: Path) -> None:
    with planstep.open(tmp_path / "s") as db:
        link, _ = connect(tmp_path / "s" / "host-0")
        with link:
            link.settimeout(60)
            until(lambda: db.stats()["processes"]["attached"])
            assert link.recv(1) == b""
        assert db.stats()["processes"]["attached"] == 0


def test_readers_close_after_their_engine(tmp_path: Path, owner: Other) -> None:
    """A worker of `process` may come to its end that late. The owner has dropped what they had."""
    owner.run("db.topic('t').write(b'x'); other = db.reader('t', 'c')")
    db = planstep.open(tmp_path / "s")
    readers = [db.reader("t", "c") for _ in range(2)]
    assert [leased.batch.values for leased in (readers[0].read(),) if leased] == [[b"x"]]
    db.close()
    for reader in readers:
        reader.close()


@pytest.mark.parametrize("hosts", [1, 4])
def test_a_commit_comes_while_the_answer_to_what_was_sent_ahead_is_still_given(
    tmp_path: Path, hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have one id. The owner took the second for one that is sent twice, and ended the link for ever."""
    take = Peer.take

    def slow(peer: Peer, tx: bytes, answer: Any) -> None:
        take(peer, tx, answer)
        time.sleep(0.02)

    with planstep.open(tmp_path / "s", hosts=hosts) as db, Other(tmp_path / "s") as other:
        db.create_topic("t", partitions=4)
        monkeypatch.setattr(Peer, "take", slow)
        other.run(
            "for n in range(10):\n"
            "    with db.transaction() as tx:\n"
            "        for partition in range(4): tx.write('t', bytes(3 << 20), partition=partition)\n"
        )
        assert [bounds.end for bounds in db.topic("t").describe().partitions] == [10] * 4


FEW = """
import resource
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
held = []
try:
    while True: held.append(open(os.devnull))
except OSError: pass
for _ in range({}): held.pop().close()
"""


@pytest.mark.parametrize("few", [2, 5, 6, 12])
def test_a_process_with_few_descriptors_leaves_the_store_to_others(
    tmp_path: Path, few: int
) -> None:
    """It took the store over, failed halfway, kept its lock, and never closed."""
    owner = Other(tmp_path / "s")
    owner.run("db.create_table('n')")
    with Other(tmp_path / "s") as poor, Other(tmp_path / "s") as other:
        for process in (poor, other):
            process.run("db.table('n').get('k')")
        poor.run(FEW.format(few))
        other.signal(signal.SIGSTOP)
        owner.kill()
        answer = poor.begin("db.table('n').put('k', 1)")
        time.sleep(0.3)
        other.signal(signal.SIGCONT)
        other.run("db.table('n').put('k2', 1)")
        answer()
        poor.run("[file.close() for file in held]")
        assert poor("sorted(db.table('n').scan())") == [("k", 1), ("k2", 1)]


@pytest.mark.parametrize("few", [8, 12, 14, 16, 17, 20])
def test_who_opens_a_store_with_few_descriptors_is_told(tmp_path: Path, few: int) -> None:
    with Other(tmp_path / "s") as process:
        process.run("db.create_table('n'); db.close(); import gc; gc.collect()")
        process.run(FEW.format(few) + "import gc; gc.disable()")
        count = "len(os.listdir('/proc/self/fd'))"
        before = process(count)
        for _ in range(3):
            try:
                process.run(f"db = planstep.open({process.path!r})")
            except planstep.IoError as error:
                assert type(error) is planstep.TooManyOpen
            else:
                process.run("db.close()")
            assert process(count) == before
        process.run(f"[file.close() for file in held]; db = planstep.open({process.path!r})")
