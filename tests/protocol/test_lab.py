"""Tests failures at chosen moments: a turn that fails, a host that restarts, a vote that is late."""

import msgpack
import pytest
from lab import Lab, shard

from planstep.errors import Corruption, IoError
from planstep.host.links import open_link
from planstep.proto.messages import ADD, PUT, ShardPart

ONE = msgpack.packb(1)


def put(key: bytes) -> ShardPart:
    return ShardPart(writes=((key, PUT, b"v"),))


def add(key: bytes = b"n") -> ShardPart:
    return ShardPart(writes=((key, ADD, ONE),))


def test_a_turn_that_fails_leaves_no_hole_in_a_links_queue() -> None:
    """Acknowledged messages that the failed turn was to delete stay, also in memory."""
    lab = Lab(2)
    one = shard(1)
    keys = iter(range(100))

    def commit() -> None:
        lab.commit({one: put(b"%02d" % next(keys))})

    commit()
    lab.pump()  # taken by the other host, and not yet deleted
    commit()
    lab.deliver()  # the proposal
    lab.fail_next_sync(0, IoError("made to fail"))
    with pytest.raises(IoError):
        lab.deliver()  # prepared: the turn that plans it, and deletes
    lab.settle()
    for _ in range(2):
        commit()
        lab.pump()
    for _ in range(6):
        commit()
        lab.deliver()
        lab.cut.add((0, 1))
        lab.pump()  # planned, and the plan is lost
        lab.cut.clear()
    lab.restart(0)
    lab.settle()
    assert not lab.leftovers()
    assert len(lab.rows(one)) == next(keys) == 10


def test_a_gap_in_a_links_stored_queue_is_corruption() -> None:
    rows = [(b"O\x01" + number.to_bytes(8, "big"), b"m") for number in (1, 3)]
    with pytest.raises(Corruption, match="gap"):
        open_link(0, 1, rows, 3, 0)
    with pytest.raises(Corruption, match="gap"):
        open_link(0, 1, rows[:1], 3, 0)


@pytest.mark.parametrize("queued", [3, 1500])
def test_a_long_queue_behind_a_late_vote_is_ended_and_survives_a_restart(queued: int) -> None:
    """All are on one row, behind a transaction that waits for another host's vote."""
    lab = Lab(3)
    one, two = shard(1), shard(2)
    lab.commit({one: add(), two: add()})
    lab.cut.add((2, 1))  # the vote
    lab.pump()
    for _ in range(3):
        lab.commit(*({one: add()} for _ in range(queued // 3)))
        lab.pump()
    assert not lab.rows(one) and lab.leftovers()
    lab.restart(1)
    lab.cut.clear()
    lab.settle()
    assert lab.rows(one) == {b"n": msgpack.packb(1 + queued)}
    assert not lab.leftovers() and len(lab.results) == 1 + queued


def test_waiting_goes_by_what_meets() -> None:
    """c waits for a and b, which share no key; b ends first, and d, which shares no key with any, ends at once."""
    lab = Lab(4)
    one = shard(1)
    lab.cut |= {(2, 1), (3, 1)}
    (a,) = lab.commit({one: add(b"a"), shard(2): add()})
    lab.pump()
    (b,) = lab.commit({one: add(b"b"), shard(3): add()})
    lab.pump()
    (c,) = lab.commit({one: ShardPart(writes=((b"a", PUT, ONE), (b"b", ADD, ONE)))})
    lab.pump()
    (d,) = lab.commit({one: add(b"d")})
    lab.pump()
    assert list(lab.results) == [d]
    lab.cut.remove((3, 1))
    lab.settle()
    assert list(lab.results) == [d, b]
    lab.cut.clear()
    lab.settle()
    assert list(lab.results) == [d, b, a, c]
    assert lab.rows(one) == {b"a": ONE, b"b": msgpack.packb(2), b"d": ONE}
    assert not lab.leftovers()


def test_a_proposal_is_not_refused_while_its_client_is_at_it() -> None:
    lab = Lab(3)
    lab.cut.add((0, 2))  # one participant does not hear of it for a long time
    (tx,) = lab.commit({shard(1): put(b"k"), shard(2): put(b"k")})
    lab.pump()
    for _ in range(100):
        lab.tick()
        lab.pump()
    assert not lab.results and lab.leftovers()
    sent = sum(host.messages for host in lab.hosts)
    lab.cut.clear()
    for _ in range(40):
        lab.tick()
        lab.pump()
    assert lab.results[tx].reason is None and not lab.leftovers()
    assert sent < 100  # repeats came at growing intervals


def test_a_proposal_whose_client_is_gone_is_ended() -> None:
    lab = Lab(3)
    lab.cut.add((0, 2))
    lab.commit({shard(1): put(b"k"), shard(2): put(b"k")})
    lab.pump()
    assert lab.leftovers()
    lab.restart(0)
    lab.cut.clear()
    lab.settle()
    assert not lab.leftovers() and not lab.rows(shard(1))
