"""Tests takeovers by time: beats, silence, and two machines that end one another's work.

The numbers are those of the scenarios that replication is accepted by.
"""

import json
import signal
import sys
import threading
import time
from typing import Any

import pytest
import replica_kit
from kit import PLANSTEP, Child, background, until
from replica_kit import Machines, rows

import planstep
from planstep.runtime.follower import Tail
from planstep.store.replicated import BEAT_KEY

machines = replica_kit.machines

OWNER = """
import os, sys
import planstep

db = planstep.open(sys.argv[1], replicate=planstep.Replicate(sys.argv[2], beat=0.1))
table = db.create_table("t")
for i in range(1_000_000):
    table.put(i, i)
    os.write(1, f"{i}\\n".encode())
    if i == 50:
        sys.stdin.readline()
"""

PROGRAM = """
import sys
import planstep

with planstep.open(sys.argv[1], replicate=sys.argv[2]) as db:
    print("leads", len(list(db.table("t").scan())), flush=True)
"""


def follow(machines: Machines, name: str = "f") -> planstep.Follower:
    return planstep.follow(machines.folder(name), machines.url)


def beating(machines: Machines, name: str = "a", beat: float = 0.05) -> planstep.Engine:
    return planstep.open(machines.folder(name), replicate=machines.replicate(beat=beat))


def test_27_a_dead_owner_is_taken_over_by_itself(machines: Machines) -> None:
    with Child(OWNER, machines.folder("a"), machines.url) as owner:
        done = [int(owner.line()) for _ in range(20)]
        with follow(machines) as me:
            owner.kill()
            with me.lead(after=1) as db:
                assert set(done) <= rows(db).keys()
                db.table("t").put("new", 1)
    with machines.open("f") as db:
        assert rows(db)["new"] == 1


def test_27_beats_of_an_idle_owner_are_heard(machines: Machines) -> None:
    with beating(machines), follow(machines) as me:
        stop = threading.Event()
        with background(lambda: ended_by(me, 1000, stop)) as (waiting,):
            for _ in range(3):
                until(lambda: me._tail.silence < 100)
                me._tail.heard_at -= 500  # a beat may come at once
                until(lambda: me._tail.silence < 100)
            assert not waiting.done()
            stop.set()
            assert waiting.result(60) is InterruptedError


def test_an_owner_that_was_fenced_beats_no_more(machines: Machines) -> None:
    old = beating(machines, beat=0.01)
    with machines.take_over("b"):
        until(lambda: old._runtime.turns.stopped is not None)
        node = old._runtime.nodes[0]
        time.sleep(0.2)
        assert len(node.inbox) <= 1, "a beat may have been on its way"
    old.close()


def ended_by(me: planstep.Follower, after: float, stop: threading.Event) -> type[BaseException]:
    with pytest.raises(BaseException) as ended:
        me.lead(after=after, stop=stop)
    return ended.type


def test_an_owner_that_is_busy_writes_no_beats(machines: Machines) -> None:
    with beating(machines, beat=1000) as db:
        table = db.create_table("t")
        before = db.turn
        for n in range(10):
            table.put(n, n)
        assert db.turn == before + 10
        assert db._runtime.nodes[0].host.store.get(BEAT_KEY) == (1_000_000, 0)
    with beating(machines, beat=0.01) as db:
        until(lambda: db.turn > before + 20)
        assert rows(db).keys() == set(range(10))


def test_a_fenced_owner_beats_no_more(machines: Machines) -> None:
    old = beating(machines, beat=0.01)
    with machines.take_over("b") as db:
        until(lambda: old._runtime.turns.stopped)
        with pytest.raises(planstep.Fenced):
            old.create_table("t")
        turn = db.turn
        assert all(entry.turn <= turn for entry in machines.entries())
    old.close()


def test_without_beats_nobody_can_tell(machines: Machines) -> None:
    with machines.open("a"), follow(machines) as me:
        with pytest.raises(planstep.NotSupported, match="beats"):
            me.lead(after=10)
        assert me.lag().turns == 0
    with follow(machines) as me:  # it was closed, so it has no owner
        me.lead(after=0.1).close()
    with beating(machines, "f", beat=10) as db, follow(machines, "g") as me:
        with pytest.raises(ValueError, match="twice the owner's beat of 10 s"):
            me.lead(after=19)
        with pytest.raises((ValueError, TypeError)):
            me.lead(after="soon")  # type: ignore[arg-type]
        assert db.turn == me.db.turn


def test_silence_counts_only_while_the_log_answers(machines: Machines) -> None:
    with beating(machines) as db, follow(machines) as me:
        log, cut = me._tail._followed.log, threading.Event()
        until(lambda: me._tail.silence < 1)
        really = log.read

        def read(*_: Any) -> Any:
            cut.set()
            raise planstep.LogUnreachable("cut off")

        vars(log)["read"] = read
        assert cut.wait(60)
        silence = me._tail.silence
        until(lambda: me.lag().seconds > silence + 1)
        assert me._tail.silence == silence
        vars(log)["read"] = really
        me.snapshot(at_least=db.turn).close()


def test_27_it_stops_taking_over_when_owners_live(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with beating(machines) as db:
        db.create_table("t").put("k", 0)
    monkeypatch.setattr(Tail, "silence", float("inf"))
    owners = []
    for number in range(3):
        with follow(machines) as me:
            owners.append(me.lead(after=1000))
        owners[-1].table("t").put("k", number)
        owners.append(machines.take_over("slow"))  # it lived
        with pytest.raises(planstep.Fenced):
            owners[-2].table("t").put("k", "lost")
        for owner in owners:
            owner.close()
    with follow(machines) as me:
        with pytest.raises(planstep.TooManyTakeovers, match="3 times by itself"):
            me.lead(after=1000)
        assert rows(me.db) == {"k": 2}
        with me.lead() as led:  # a person may
            assert rows(led) == {"k": 2}


# the command ------------------------------------------------------------------------------------


def events(child: Child, event: str) -> dict[str, Any]:
    """Returns the next line of that event."""
    while True:
        line = child.line()
        assert line, "it has ended"
        told = json.loads(line)
        if told["event"] == event:
            return dict(told)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_follows_until_a_signal(machines: Machines, number: signal.Signals) -> None:
    with machines.open("a") as db:
        db.create_table("t").put("k", 1)
        words = ("follow", machines.url, machines.folder("f"))
        with Child(PLANSTEP, *words, "--json") as child:
            assert events(child, "following") == {
                "event": "following",
                "turn": db.turn,
                "lag_turns": 0,
                "lag_seconds": pytest.approx(0, abs=60),
            }
            with planstep.open(machines.folder("f"), read_only=True) as look:
                assert rows(look) == {"k": 1}
            child.process.send_signal(number)
            assert events(child, "stopped")["turn"] == db.turn
            assert child.process.wait(60) == 0
        with Child(PLANSTEP, *words) as child:
            assert child.line().startswith(f"following: turn {db.turn}, 0 turns behind")
            child.process.send_signal(number)
            assert child.line() == f"stopped: turn {db.turn}"
            assert child.process.wait(60) == 0


def test_the_command_takes_over_is_fenced_and_follows(machines: Machines) -> None:
    with Child(OWNER, machines.folder("a"), machines.url) as owner:
        while owner.line() != "50":
            pass
        words = (machines.url, machines.folder("f"), "--take-over-after", "1s", "--json")
        with Child(PLANSTEP, "follow", *words) as child:
            events(child, "following")
            owner.kill()
            events(child, "owner")
            with machines.take_over("b") as db:
                assert len(rows(db)) == 51
                events(child, "fenced")
                assert events(child, "following")["turn"] >= db.turn - 1
                child.process.terminate()
                events(child, "stopped")
                assert child.process.wait(60) == 0


def test_the_command_becomes_the_program(machines: Machines) -> None:
    with Child(OWNER, machines.folder("a"), machines.url) as owner:
        while owner.line() != "50":
            pass
        program = (sys.executable, "-c", PROGRAM, machines.folder("f"), machines.url)
        words = (machines.url, machines.folder("f"), "--take-over-after", "1s", "--", *program)
        with Child(PLANSTEP, "follow", *words) as child:
            assert child.line().startswith("following: turn")
            owner.kill()
            while (line := child.line()).startswith("following"):
                pass
            assert line.startswith("owner: turn")
            assert child.line() == "leads 51"
            assert child.process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (["--take-over-after", "soon"], 2, "no time"),
        (["--", "true"], 2, "--take-over-after"),
        (["--take-over-after", "1s", "--", "no-such-program"], 2, "no program"),
        ([], 1, "is not there: mount its disk"),
    ],
)
def test_words_that_do_not_fit(machines: Machines, words: Any, status: int, error: str) -> None:
    with Child(PLANSTEP, "follow", machines.url, machines.folder("f"), *words, stderr=-1) as child:
        _, said = child.process.communicate(timeout=60)
        assert (child.process.returncode, error in said) == (status, True), said
    assert not (machines.folder("f") / "host-0").exists()
