"""Seeds of the simulated world: transfers, consumers, counters under loss, repeats, delays, crashes.

After every run the world heals, everything must end, and what is stored must be what exactly the
committed transactions, in the order of their places, would have made one after the other.
"""

import hashlib
import os
import random
import subprocess
import sys
from typing import Any

import msgpack
import pytest

from planstep.proto.ids import COORDINATOR_ID, PARTITION, SHARD, tablet_id, tablet_prefix
from planstep.proto.messages import ADD, PUT, PartitionPart, ShardPart
from planstep.simulator import World

SEEDS = int(os.environ.get("PLANSTEP_SEEDS", "1"))
"""Times as many seeds."""
SHARDS = 3
CONSUMERS = ("c0", "c1")


def tablets(hosts: int) -> tuple[list[int], list[int]]:
    parts = [tablet_id(PARTITION, i % hosts, 10 + i) for i in range(4)]
    shards = [tablet_id(SHARD, i % hosts, 20 + i) for i in range(SHARDS)]
    return parts, shards


class Workload:
    """Random transactions; remembers what each asked for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random.Random(world.seed + 1)
        self.asked: dict[bytes, dict[int, Any]] = {}
        self.parts, self.shards = tablets(world.hosts)

    def read(self, tablet: int, key: bytes) -> Any:
        store = self.world.stores[tablet >> 20 & 0xFF]
        return store.get(tablet_prefix(tablet) + key)

    def individual(self, tablet: int, part: PartitionPart) -> PartitionPart:
        """Some records of an individual consumer, which the first time is created."""
        row = self.read(tablet, b"cI")
        start, end = (self.read(tablet, b"m") or (0, 0, 0, 0))[2:]
        begin = max(0, self.random.randrange(start - 2, end + 1))
        stop = min(end, begin + self.random.randrange(1, 3))
        if row is None or begin >= stop or self.random.random() < 0.05:
            return part._replace(seeks=(("I", start, True),))
        return part._replace(acks=(("I", begin, stop),))

    def submit(self) -> None:
        draw = self.random
        asked: dict[int, Any] = {}
        for tablet in draw.sample(self.parts, draw.randrange(0, 3)):
            ranges: tuple[Any, ...] = ()
            if draw.random() < 0.6:
                consumer = draw.choice(CONSUMERS)
                meta = self.read(tablet, b"m") or (0, 0, 0, 0)
                row = self.read(tablet, b"c" + consumer.encode())
                begin = row[2] if row else 0
                end = min(meta[3], begin + draw.randrange(1, 4))
                if end > begin:
                    ranges = ((consumer, begin, end),)
            count = draw.randrange(0, 3)
            slices = ((b"payload" * count, count),) if count else ()
            producer = None
            if count and draw.random() < 0.3:
                known = self.read(tablet, b"pP")
                first = (known[0] if known else 0) + draw.randrange(0, 2)
                producer = (b"P", first, first + count)
            asked[tablet] = PartitionPart(ranges, slices, producer)
            kind = draw.random()
            if kind < 0.3:
                asked[tablet] = self.individual(tablet, asked[tablet])
            elif kind < 0.36:
                meta = self.read(tablet, b"m") or (0, 0, 0, 0)
                if draw.random() < 0.5:
                    trim = draw.randrange(meta[2], meta[3] + 1)
                    asked[tablet] = asked[tablet]._replace(trim=trim, ranges=())
                else:
                    to = draw.randrange(meta[2], meta[3] + 1)
                    seeks = ((draw.choice(CONSUMERS), to, False),)
                    asked[tablet] = asked[tablet]._replace(ranges=(), seeks=seeks)
            if asked[tablet] == PartitionPart():
                del asked[tablet]
        for tablet in draw.sample(self.shards, draw.randrange(0, 3)):
            key = b"k%d" % draw.randrange(3)
            row = self.read(tablet, b"r" + key)
            kind = draw.random()
            if kind < 0.4:
                reads = ((key, row[:2] if row else None),)
                writes = ((key, PUT, msgpack.packb(draw.randrange(1000))),)
                asked[tablet] = ShardPart(reads=reads, writes=writes)
            elif kind < 0.8:
                asked[tablet] = ShardPart(writes=((b"n", ADD, msgpack.packb(1)),))
            elif len(asked):
                asked[tablet] = ShardPart(reads=((key, row[:2] if row else None),))
        if not any(p.writes if isinstance(p, ShardPart) else True for p in asked.values()):
            return
        ahead: dict[int, Any] = {}
        parts = dict(asked)
        for tablet, part in asked.items():
            if isinstance(part, PartitionPart) and part.slices and draw.random() < 0.3:
                ahead[tablet] = (0, part.slices)
                rest = ((b"payload", 1),) if draw.random() < 0.5 else ()
                asked[tablet] = part._replace(slices=(*part.slices, *rest))
                parts[tablet] = part._replace(slices=rest, staged=len(part.slices))
        if ahead:
            tx = self.world.commit_ahead(ahead, parts)
            if draw.random() < 0.2:
                self.world.run(draw.randrange(1, 8))
                self.world.rollback(tx)
        else:
            tx = self.world.commit(parts)
        self.asked[tx] = asked


def expected(world: World, work: Workload) -> dict[bytes, Any]:
    """The serial execution of the committed transactions in the order of their places."""
    outcomes = []
    prefix = tablet_prefix(COORDINATOR_ID) + b"o"
    for key, (state, step, n, _, _) in world.stores[0].scan(prefix, prefix + b"\xff" * 13):
        assert state in (2, 3, 4), f"seed {world.seed}: an undecided transaction is left"
        result = world.results.get(key[5:])
        if result is not None and state != 4:
            assert (result.reason is None) == (state == 2), "one outcome for all observers"
            assert (result.step, result.n) == (step, n) or result.reason is not None
        outcomes.append((step, n, key[5:], state))
    model: dict[bytes, Any] = {}
    for step, n, tx, state in sorted(outcomes):
        if state == 4:
            continue
        asked = work.asked[tx]
        holds = all(_holds(model, tablet, part) for tablet, part in asked.items())
        assert holds == (state == 2), (
            f"seed {world.seed}: {tx!r} at {(step, n)} was decided wrongly"
        )
        if holds:
            for tablet, part in asked.items():
                _apply(model, tablet, part, step, n)
    return model


def _holds(model: dict[bytes, Any], tablet: int, part: Any) -> bool:
    at = tablet_prefix(tablet)
    if isinstance(part, ShardPart):
        for key, version in part.reads:
            row = model.get(at + b"r" + key)
            if (row[:2] if row else None) != version:
                return False
        return True
    start, end = model.get(at + b"m", (0, 0, 0, 0))[2:]
    for consumer, begin, stop in part.ranges:
        position = model.get(at + b"c" + consumer.encode(), (0, 0, 0))[2]
        if max(position, start) != begin or stop > end:
            return False
    for _, begin, stop in part.acks:
        row = model.get(at + b"cI")
        if row is None or set(range(begin, stop)) & (row[4] | set(range(start))) or stop > end:
            return False
    if any(not start <= offset <= end for _, offset, _ in part.seeks):
        return False
    if part.trim is not None and part.trim > end:
        return False
    if part.producer is not None:
        known = model.get(at + b"p" + part.producer[0])
        return known is None or part.producer[1] > known
    return True


def _apply(model: dict[bytes, Any], tablet: int, part: Any, step: int, n: int) -> None:
    at = tablet_prefix(tablet)
    if isinstance(part, ShardPart):
        for key, op, value in part.writes:
            old = model.get(at + b"r" + key)
            if op == ADD and old is not None:
                value = msgpack.packb(msgpack.unpackb(old[2]) + msgpack.unpackb(value))
            model[at + b"r" + key] = (step, n, value)
        return
    start, end = model.get(at + b"m", (0, 0, 0, 0))[2:]
    for consumer, begin, stop in part.ranges:
        row = model.get(at + b"c" + consumer.encode())
        missed = 0 if row is None else row[3] + begin - row[2]
        model[at + b"c" + consumer.encode()] = (step, n, stop, missed)
    for _, begin, stop in part.acks:
        row = model[at + b"cI"]
        missed = set(range(start)) - row[4]
        taken = row[4] | missed | set(range(begin, stop))
        model[at + b"cI"] = (step, n, None, row[3] + len(missed), taken)
    for consumer, offset, individual in part.seeks:
        row = model.get(at + b"c" + consumer.encode())
        missed = 0 if row is None else row[3]
        known = (None, missed, set(range(offset))) if individual else (offset, missed)
        model[at + b"c" + consumer.encode()] = (step, n, *known)
    if part.trim is not None and part.trim > start:
        model[at + b"m"] = (step, n, part.trim, end)
        for key in [key for key in model if key[:5] == at + b"b"]:
            if int.from_bytes(key[5:], "big") + model[key][0] <= part.trim:
                del model[key]
    if part.producer is not None:
        model[at + b"p" + part.producer[0]] = part.producer[2]
    for _, count in part.slices:
        start, end = model.get(at + b"m", (0, 0, 0, 0))[2:]
        model[at + b"b" + end.to_bytes(8, "big")] = (count, step, n)
        model[at + b"m"] = (step, n, start, end + count)


def stored(world: World) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for store in world.stores:
        for key, value in store.scan(b"\x30\0\0\0", b"\x50\0\0\0"):
            kind = key[4:5]
            if kind == b"b":
                address, length, count, step, n = value
                assert store.read_payload(address, length) == b"payload" * count
                value = (count, step, n)
            elif kind == b"p":
                value = value[0]
            elif kind == b"c" and len(value) == 5:
                ranges = (range(begin, end) for begin, end in value[4])
                taken = set(range(value[2])).union(*ranges)
                value = (*value[:2], None, value[3], taken)
            found[key] = value
    return found


def run(seed: int, hosts: int, transactions: int = 40, **settings: Any) -> tuple[World, Workload]:
    world = World(seed, hosts, **settings)
    work = Workload(world)
    for _ in range(transactions):
        work.submit()
        world.run(world.random.randrange(1, 12))
    world.settle()
    return world, work


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("seed", range(40 * SEEDS))
def test_a_world_ends_as_its_committed_transactions_one_by_one(seed: int, hosts: int) -> None:
    world, work = run(seed, hosts, merge=seed % 3 != 0, at_once=seed % 3 == 1)
    assert stored(world) == expected(world, work)


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("seed", range(20 * SEEDS))
def test_where_every_tablet_is_a_server_of_its_own(seed: int, hosts: int) -> None:
    rtt_ms = 5.0 * (seed % 2)
    world, work = run(seed, hosts, separate=True, rtt_ms=rtt_ms)
    assert stored(world) == expected(world, work)
    assert world.results


@pytest.mark.parametrize("hosts", [1, 4])
@pytest.mark.parametrize("seed", range(5 * SEEDS))
def test_clients_at_a_distance(seed: int, hosts: int) -> None:
    world, work = run(seed, hosts, rtt_ms=5.0)
    assert stored(world) == expected(world, work)


@pytest.mark.parametrize("seed", range(12))
def test_deciding_at_once_is_what_the_messages_would_have_done(seed: int) -> None:
    """The same inputs through `Host._decide`, and through plans, votes and answers."""
    world, _ = run(seed, 1)
    slow = World(seed, 1, at_once=False)
    results = {}
    for turn in world.recorded:
        while slow.lives[0] < turn.life:
            slow.crash(0)
        released = slow.nodes[0].run(turn.inputs, turn.now_ms)
        results |= {result.tx: result for result in released.results}
    answered = {tx: r for tx, r in world.results.items() if r.reason != (0, "failed")}
    assert {tx: results[tx] for tx in answered} == answered
    assert resolved(slow) == resolved(world)


def resolved(world: World) -> dict[bytes, Any]:
    """Everything that is stored, with payloads in place of their addresses: what an aborted
    transaction had staged takes addresses, if nothing else."""
    (store,) = world.stores
    return {
        key: (store.read_payload(*value[:2]), *value[2:]) if key[4:5] == b"b" else value
        for key, value in store.scan(b"\x10\0\0\0", b"\x70\0\0\0")
    }


def test_the_faults_happened() -> None:
    worlds = [run(seed, 4)[0] for seed in range(10)]
    assert sum(w.sent_ahead for w in worlds) > 20
    assert sum(w.crashes for w in worlds) > 20
    assert sum(w.lost for w in worlds) > 20
    assert sum(w.repeated for w in worlds) > 20
    assert sum(w.failed for w in worlds) > 20
    reasons = {r.reason[1] for w in worlds for r in w.results.values() if r.reason}
    assert {"position", "key"} <= reasons
    assert any(r.reason is None for w in worlds for r in w.results.values())


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("hosts", [1, 4])
def test_recorded_inputs_replay_byte_for_byte(hosts: int, separate: bool) -> None:
    world, _ = run(7, hosts, separate=separate)
    changes = [turn.changes for turn in world.recorded]
    assert any(changes)
    assert world.replay() == changes


_DIGEST = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from test_world import run
world, _ = run(11, 4)
print(hashlib.sha256(b"".join(turn.changes for turn in world.recorded)).hexdigest())
"""


def test_the_changes_do_not_depend_on_the_hash_seed() -> None:
    from pathlib import Path

    here = str(Path(__file__).parent)
    digests = set()
    for seed in ("1", "2"):
        ended = subprocess.run(
            [sys.executable, "-c", _DIGEST, here],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(ended.stdout)
    world, _ = run(11, 4)
    digests.add(hashlib.sha256(b"".join(t.changes for t in world.recorded)).hexdigest() + "\n")
    assert len(digests) == 1
