"""Tests processes that append to one folder at once, and processes that are killed while they do."""

import signal
from contextlib import ExitStack

import pytest
from kit import Child
from shared_kit import InFolder, begin_behind, nonce, read_all

from planstep.shared.entry import Owner

RACER = """
import sys
from planstep.errors import Fenced
from planstep.shared.entry import BEGIN, NO_CHAIN, Owner, seal
from planstep.shared.registry import open_shared_log

url, name = sys.argv[1:]
log, root = open_shared_log(url, None)
chain, turn, owner = NO_CHAIN, 0, Owner(1, name.encode().ljust(16, b"-"))

def race():
    global chain, turn
    turn += 1
    payload = name.encode() * 1_000
    entry = seal(BEGIN, root.store_id, owner._replace(term=turn), turn, chain, 0, payloads=[payload])
    try:
        log.append(entry)
        won = entry
    except Fenced:
        (won,) = log.read(1, 0)
    chain = won.chain
    return f"{int(won is entry)} {won.owner.nonce.decode().strip('-')}"

print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        print(race(), flush=True)
"""

OWNER = """
import sys
from planstep.shared.entry import BEGIN, TURN, NO_CHAIN, Owner, seal
from planstep.shared.registry import open_shared_log
from planstep.shared.shared_log import Position

url, name = sys.argv[1:]
log, root = open_shared_log(url, None)
log.open(Position())
turn, chain, term = 0, NO_CHAIN, 0
while entries := log.read(1 << 20, 0):
    turn, chain, term = entries[-1].turn, entries[-1].chain, entries[-1].owner.term
owner, kind = Owner(term + 1, name.encode().ljust(16, b"-")), BEGIN
while True:
    entry = seal(kind, root.store_id, owner, turn + 1, chain, 0, payloads=[bytes(50_000)])
    log.append(entry)
    turn, chain, kind = entry.turn, entry.chain, TURN
    print(turn, chain.hex(), flush=True)
"""

STRUCK = """
import os, signal, sys
from planstep.shared import files_log
from planstep.shared.entry import BEGIN, NO_CHAIN, Owner, seal
from planstep.shared.shared_log import Root

class Struck(files_log.LinkedFiles):
    def link(self, source, target):
        if sys.argv[2] == "after":
            super().link(source, target)
        os.kill(os.getpid(), signal.SIGKILL)

log, root = files_log.open_files_log(sys.argv[1], None, 0, Struck())
log.append(seal(BEGIN, root.store_id, Owner(1, bytes(16)), 1, NO_CHAIN, 0))
"""


def test_each_slot_has_one_winner_of_five_processes(folder: InFolder) -> None:
    names = "abcde"
    won: list[list[str]] = []
    with ExitStack() as stack:
        url = folder.path.as_uri()
        racers = [stack.enter_context(Child(RACER, url, name)) for name in names]
        for racer in racers:
            assert racer.line() == "ready"
        for rounds in [1] * 200 + [100]:  # in step, and then each as fast as it can
            for racer in racers:
                racer.tell(rounds)
            for _ in range(rounds):
                won.append([racer.line() for racer in racers])
    assert len(won) == 300
    for answers in won:
        assert sorted(answer[0] for answer in answers) == ["0", "0", "0", "0", "1"]
        winner = names[next(n for n, answer in enumerate(answers) if answer[0] == "1")]
        assert {answer[2:] for answer in answers} == {winner}
    entries = read_all(folder.open())
    winners = [entry.owner.nonce.decode().strip("-") for entry in entries]
    assert winners == [answers[0][2:] for answers in won]
    assert len(set(winners)) > 1
    assert list((folder.path / "new").iterdir()) == []


def test_what_a_killed_owner_had_acknowledged_is_there(folder: InFolder) -> None:
    acknowledged: list[str] = []
    for n in range(12):
        with Child(OWNER, folder.path.as_uri(), f"owner {n}") as owner:
            for _ in range(1 + 3 * n):
                acknowledged.append(owner.line())
            owner.process.kill()
            acknowledged += owner.process.stdout.read().splitlines()
    said = {int(line.split()[0]): line.split()[1] for line in acknowledged if line.count(" ")}
    chains = {entry.turn: entry.chain.hex() for entry in read_all(folder.open())}
    assert len(said) >= 12 + 3 * 66
    assert said.items() <= chains.items()
    assert len(chains) <= len(said) + 12  # each may have one turn of which nobody heard


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_next_owner_removes_what_a_killed_one_left(folder: InFolder, moment: str) -> None:
    with Child(STRUCK, folder.path.as_uri(), moment) as struck:
        struck.process.wait(60)
        assert struck.process.returncode == -signal.SIGKILL
    (left,) = (folder.path / "new").iterdir()
    log = folder.open()
    entries = read_all(log)
    assert len(entries) == (moment == "after")
    log.append(begin_behind(entries[0] if entries else None, Owner(2, nonce("next"))))
    assert not left.exists()
    assert len(read_all(folder.open())) == len(entries) + 1
