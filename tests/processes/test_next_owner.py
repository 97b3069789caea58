"""The owner of a store ends, and the attached go on: one of them owns it then."""

import os
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kit import until
from process_kit import Other

import planstep
from planstep.errors import IoError, Overloaded
from planstep.runtime.thread_pool import ThreadPool


@pytest.mark.parametrize(
    "options", [{}, {"hosts": 3}, {"placement": "separate"}, {"replicate": True}]
)
def test_an_owner_is_killed_and_the_attached_own_the_store(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    if "replicate" in options:
        options = {"replicate": f"file://{tmp_path}/log"}
    owner = Other(tmp_path / "s", **options)
    owner.run("db.create_topic('t'); db.topic('t').write(b'a')")
    with planstep.open(tmp_path / "s", **options) as db:
        view = db.snapshot()
        tx = db.transaction()
        assert tx.read("t", "c").values == [b"a"]
        owner.kill()
        db.topic("t").write(b"b")
        assert db.owner == os.getpid()
        tx.write("t", b"c")
        tx.commit()
        assert db.topic("t").read().values == [b"a", b"b", b"c"]
        assert view.read("t").values == [b"a"]
        view.close()
        with Other(tmp_path / "s", **options) as other:
            other.run("db.topic('t').write(b'd')")
        assert db.topic("t").read().values == [b"a", b"b", b"c", b"d"]
        assert db.topic("t").position("c") == {0: 1}


def test_an_owner_closes_and_two_go_on(tmp_path: Path) -> None:
    owner = Other(tmp_path / "s")
    owner.run("db.create_table('n')")
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        for round in range(50):
            db.table("n").put("k", round)
            if round == 10:
                owner.close()
            assert other("db.table('n').get('k')") == round
        assert db.table("n").get("k") == 49


def test_commits_under_way_are_resolved_once(tmp_path: Path) -> None:
    """Threads count up in a table while one owner after the other is killed."""
    path = tmp_path / "s"
    with planstep.open(path) as db:
        db.create_table("n")
    owner, second, third = Other(path), Other(path), Other(path)
    count = (
        "def count(who):\n"
        "    for _ in range(300):\n"
        "        db.run(lambda tx: tx.put('n', who, (tx.get('n', who) or 0) + 1))\n"
        "def all(who):\n"
        "    threads = [threading.Thread(target=count, args=(f'{who}{n}',)) for n in range(4)]\n"
        "    [thread.start() for thread in threads]\n"
        "    [thread.join() for thread in threads]\n"
        "    return True\n"
    )
    for other in second, third:
        other.run(count)
    ends = [second.begin("all('second')"), third.begin("all('third')")]
    with planstep.open(path) as db:
        until(lambda: (db.table("n").get("second0") or 0) > 20)
        owner.kill()
        until(lambda: (db.table("n").get("third3") or 0) > 150)
        assert [end() for end in ends] == [True, True]
        assert dict(db.table("n").scan()) == {
            f"{who}{n}": 300 for who in ("second", "third") for n in range(4)
        }
        second.kill()
        third.run("db.table('n').put('last', 1)")
        assert db.table("n").get("last") == 1
    third.close()


def test_the_end_of_what_a_killed_process_sent_is_known(tmp_path: Path) -> None:
    """Its commits wait at the owner, which is stopped: nobody may say that nothing was done."""
    with (
        Other(tmp_path / "s") as owner,
        planstep.open(tmp_path / "s") as db,
        Other(tmp_path / "s") as killed,
    ):
        owner.run("db.create_topic('t')")
        killed.run("tx = db.transaction(); tx.write('t', b'a'); tx.id")
        tx = killed("tx.id")
        owner.signal(signal.SIGSTOP)
        killed.run("future = tx.submit()")
        killed.kill()
        threading.Timer(0.2, owner.signal, (signal.SIGCONT,)).start()
        state = db.outcome(tx).state
        assert state in ("open", "planned", "committed")
        until(lambda: db.outcome(tx).state == "committed")
        assert owner("db.topic('t').read().values") == [b"a"]


def test_a_process_waits_where_the_owner_has_all_the_links_it_may_have(tmp_path: Path) -> None:
    with Other(tmp_path / "s") as owner, planstep.open(tmp_path / "s") as db:
        owner.run("db.create_topic('t'); from planstep.runtime.processes import server")
        third = Other(tmp_path / "s")
        owner.run("server.LINKS_MAX = 1")
        with pytest.raises(Overloaded, match="1 processes are attached"):
            Other(tmp_path / "s")
        link: Any = db.context.runtime.link
        link._socket.shutdown(socket.SHUT_RDWR)
        until(lambda: "1 processes are attached" in link.doubt())
        third.close()
        db.topic("t").write(b"a")
        assert owner("db.topic('t').read().values") == [b"a"]


def test_an_owner_closes_though_no_thread_serves_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = ThreadPool.begin_thread

    def fails(pool: ThreadPool, name: str, *args: Any, **options: Any) -> threading.Thread:
        if name == "processes":
            raise IoError("threads could not be started")
        return begin(pool, name, *args, **options)

    monkeypatch.setattr(ThreadPool, "begin_thread", fails)
    with suppress(IoError):
        planstep.open(tmp_path / "s").close()
    monkeypatch.undo()
    planstep.open(tmp_path / "s").close()


def test_a_process_that_is_not_let_in_goes_on_once_it_is(tmp_path: Path) -> None:
    """Its user may not open the store's files for a while, after it has attached."""
    owner, folder = Other(tmp_path / "s"), tmp_path / "s" / "host-0"
    is_root = os.geteuid() == 0
    with Other(tmp_path / "s") as other:
        owner.run("db.create_table('n')")
        assert other("db.table('n').get('k')") is None
        if is_root:
            other.run("os.seteuid(65534)")
        else:
            folder.chmod(0)
        owner.kill()
        other.run("tx = db.transaction(); tx.put('n', 'k', 1); future = tx.submit()")
        until(lambda: "Permission denied" in other("db.context.runtime.link.doubt()"))
        assert not other("future.done()")
        if is_root:
            other.run("os.seteuid(0)")
        else:
            folder.chmod(0o700)
        other.run("future.result(60)")
        assert other("db.table('n').get('k')") == 1


def test_data_sent_ahead_to_an_owner_that_closes_is_sent_again(tmp_path: Path) -> None:
    """It withdraws what was sent ahead and is not committed: `run` does the transaction once more."""
    owner = Other(tmp_path / "s", hosts=2)
    owner.run("db.create_topic('t', partitions=4); db._runtime.stop_host(1)")
    with Other(tmp_path / "s") as writer:
        writer.run(
            "def work(tx):\n"
            "    for p in range(4): tx.write('t', b'x', partition=p)\n"
            "    tx.flush()\n"
        )
        answer = writer.begin("db.run(work)")
        until(lambda: owner("len(db._runtime.nodes[0].host.proxy.staging)"))
        owner.close()
        answer()
        assert writer("[b.end for b in db.topic('t').describe().partitions]") == [1] * 4
