"""A name is known to the owner though the process that makes it is gone, or has another link, by the end."""

import socket
from pathlib import Path
from typing import Any

import pytest
from kit import take_lead, until
from process_kit import Other

import planstep

_CREATE = "db.create_topic('made', partitions=2).name"
_DROP = "db.drop_topic('old')"


def held_up(db: planstep.Engine, other: Other, change: str) -> tuple[Any, Any]:
    """Begins a change of a name in another process; it is in the owner's inbox, and no turn takes it."""
    db.create_topic("old")
    node = take_lead(db)
    answer = other.begin(change)
    until(lambda: node.inbox)
    return node, answer


def go_on(db: planstep.Engine, node: Any) -> None:
    node.hand_over()
    db._runtime.turns.submitted.set()


@pytest.mark.parametrize("change", [_CREATE, _DROP])
def test_whose_maker_was_killed(tmp_path: Path, change: str) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as second:
        other = Other(tmp_path / "s")
        node, _ = held_up(db, other, change)
        other.kill()
        until(lambda: db.stats()["processes"]["attached"] == 1)
        go_on(db, node)
        names = ["made", "old"] if change is _CREATE else []
        until(lambda: second("list(db.topics())") == names)
        until(lambda: list(db.topics()) == names)
        for name in names:
            second.run(f"db.topic({name!r}).write(b'x')")
            assert db.topic(name).read().values == [b"x"]


@pytest.mark.parametrize("change", [_CREATE, _DROP])
def test_whose_maker_has_another_link(tmp_path: Path, change: str) -> None:
    with planstep.open(tmp_path / "s") as db, Other(tmp_path / "s") as other:
        node, answer = held_up(db, other, change)
        server = db._runtime.server
        assert server is not None
        (peer,) = server.peers.values()
        peer.socket.shutdown(socket.SHUT_RDWR)
        until(lambda: db.stats()["processes"]["served"] == 2)
        go_on(db, node)
        assert answer() == ("made" if change is _CREATE else None)
        assert list(db.topics()) == (["made", "old"] if change is _CREATE else [])
        assert other("list(db.topics())") == list(db.topics())
