"""Tests machines that die, freeze and race: real processes, each with a folder, and one shared log.

The numbers are those of the scenarios that replication is accepted by.
"""

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import replica_kit
from kit import Child, python
from replica_kit import ZOMBIE, Machines, rows

import planstep
from planstep.bench.proof.disks.no_sockets import NO_SOCKETS
from planstep.shared.entry import BEGIN

machines = replica_kit.machines

WRITERS = """
import os, sys, threading
import planstep

db = planstep.open(sys.argv[1], replicate=sys.argv[2])
db.create_table("t")

def write(n):
    for i in range(1_000_000):
        tx = db.transaction()
        tx.put("t", f"{n}-{i}", i)
        os.write(1, f"sent {tx.id} {n}-{i}\\n".encode())
        tx.commit()
        os.write(1, f"done {tx.id} {n}-{i}\\n".encode())

for n in range(64):
    threading.Thread(target=write, args=(n,), daemon=True).start()
threading.Event().wait()
"""

TAKER = """
import sys
import planstep

path, url, me = sys.argv[1:]
for line in sys.stdin:
    try:
        with planstep.open(path, replicate=url, takeover=True) as db:
            db.create_table("t", exist_ok=True).put((int(line), me), "won")
            print("won", db.stats()["generation"], flush=True)
    except planstep.Fenced as error:
        print("Fenced", error.term, flush=True)
"""

KILLED = """
import os, signal, sys
import planstep
from planstep.runtime import replication

really, when = replication.open_shared_log, sys.argv[3]

class Killing:
    def __init__(self, log):
        self.log = log

    def __getattr__(self, name):
        return getattr(self.log, name)

    def append(self, entry):
        last = b"the last" in entry.changes
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        mark = self.log.append(entry)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return mark

def opened(*args):
    log, root = really(*args)
    return Killing(log), root

replication.open_shared_log = opened
db = planstep.open(sys.argv[1], replicate=sys.argv[2])
db.create_table("t").put("k", "the first")
tx = db.transaction()
tx.put("t", "k", "the last")
print(tx.id, flush=True)
tx.commit()
"""


def lines_of(child: Child) -> Iterator[list[str]]:
    while line := child.line():
        yield line.split()


def test_1_a_machine_is_lost_under_64_writers(machines: Machines) -> None:
    sent: dict[str, str] = {}
    done: set[str] = set()
    with Child(WRITERS, machines.folder("a"), machines.url) as child:
        for word, tx, key in lines_of(child):
            if word == "sent":
                sent[tx] = key
            else:
                done.add(key)
            if len(done) == 500:
                child.process.kill()  # and the rest of what it said
    shutil.rmtree(machines.folder("a"))
    with pytest.raises(planstep.OwnedElsewhere):
        machines.open("b")
    with machines.take_over("b") as db:
        held = rows(db)
        assert done <= held.keys() and len(done) >= 500
        for tx, key in sent.items():
            assert (db.outcome(tx).state == "committed") == (key in held)
        db.table("t").put("goes on", 1)


def test_2_a_frozen_owner_that_was_taken_over_acknowledges_nothing_more(machines: Machines) -> None:
    done: list[int] = []
    with Child(ZOMBIE, machines.folder("a"), machines.url) as zombie:
        done += [int(zombie.line()) for _ in range(20)]
        zombie.process.send_signal(signal.SIGSTOP)
        with machines.take_over("b") as db:
            db.table("t").put("new", "owner")
            held = rows(db)
            zombie.process.send_signal(signal.SIGCONT)
            *more, errors = lines_of(zombie)
            assert errors == ["Fenced"] * 3
            done += [int(i) for (i,) in more]
            assert held.keys() == {*range(len(held) - 1), "new"}
            assert set(done) <= held.keys()
            assert rows(db) == held
            db.table("t").put("newer", "owner")
        assert zombie.process.wait(60) == 0
    with machines.open("a") as db:
        assert rows(db) == {**held, "newer": "owner"}


def test_7_five_takers_at_once(machines: Machines) -> None:
    machines.open("first").close()
    won: dict[int, tuple[int, str]] = {}
    rounds = 20
    with ExitStack() as stack:
        takers = {
            name: stack.enter_context(Child(TAKER, machines.folder(name), machines.url, name))
            for name in "abcde"
        }
        for number in range(rounds):
            for taker in takers.values():
                taker.tell(number)
            for name, taker in takers.items():
                word, term = taker.line().split()
                assert word in ("won", "Fenced")
                if word == "won":
                    assert int(term) not in won, "one owner a term"
                    won[int(term)] = number, name
        for taker in takers.values():
            taker.end()
    begun = [entry.owner for entry in machines.entries() if entry.kind == BEGIN]
    assert [owner.term for owner in begun] == list(range(1, len(begun) + 1))
    assert len({owner.nonce for owner in begun}) == len(begun)
    assert len(won) >= rounds, "in each round somebody gets in"
    with machines.take_over("last") as db:
        held = rows(db)
        assert set(won.values()) <= held.keys()


@pytest.mark.parametrize("when", ["before", "after"])
def test_13_killed_between_the_append_and_the_local_write(machines: Machines, when: str) -> None:
    out = python(KILLED, machines.folder("a"), machines.url, when, status=-9).stdout
    shutil.copytree(machines.folder("a"), machines.folder("copy"), ignore=NO_SOCKETS)
    counts = when == "after"
    with planstep.open(machines.folder("a"), read_only=True) as view:
        with pytest.raises(planstep.Undetermined, match="open it with replicate="):
            view.outcome(out.strip())
        assert rows(view) == {"k": "the first"}
    with machines.open("a") as db:
        assert rows(db) == {"k": "the last" if counts else "the first"}
        assert db.outcome(out.strip()).state == ("committed" if counts else "unknown")
    with machines.open("b") as db:
        assert rows(db) == {"k": "the last" if counts else "the first"}
