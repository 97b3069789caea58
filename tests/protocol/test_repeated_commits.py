"""Tests commits that are handed in once more, to owners that are killed at any moment, or never had them."""

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import msgpack
import pytest
from lab import Lab, shard

from planstep.coordinator import plan
from planstep.coordinator.plan import ABORTED, COMMITTED, PLANNED, OutcomeRow
from planstep.errors import IoError
from planstep.host.host import Host
from planstep.host.inputs import Commit, CommitAgain, Deliver, Input, StageInput
from planstep.host.log_entries import published_at
from planstep.host.repeated_commits import RepeatedCommits, detail_of
from planstep.proto.ids import (
    COORDINATOR_ID,
    PARTITION,
    PROXY,
    host_of,
    tablet_id,
    tablet_prefix,
    tx_id,
)
from planstep.proto.messages import (
    ADD,
    PUT,
    Clean,
    PartitionPart,
    Parts,
    Resolve,
    ShardPart,
    Withdraw,
)
from planstep.proto.reasons import (
    DiskFull,
    OwnerEnded,
    RecordForgotten,
    RowChanged,
    StagedLost,
    read_reason,
)
from planstep.proxy.deterministic import Result
from planstep.tablets.partition import Entry

ONE = msgpack.packb(1)
SUM = b"sum"


class Clients(Lab):
    """Clients that hand in again what they were not told of, and a host 0 that dies before it tells.

    `known`: their commits; `told`: their answers, which never change.
    """

    def __init__(self, hosts: int, separate: bool = False, seed: int = 0) -> None:
        self.separate = separate
        self.failing = False  # the next turn of host 0
        self.random = Random(seed)
        self.known: dict[bytes, Parts] = {}
        self.told: dict[bytes, Result] = {}
        self.again: list[CommitAgain] = []  # to be taken by a turn that is not undone
        self.partial: list[tuple[Result, Parts]] = []
        self.later: list[tuple[int, Deliver]] = []
        super().__init__(hosts)

    def _host(self, number: int) -> Host:
        store = self.stores[number]
        proxy = tablet_id(PROXY, 0, store.generation) if number == 0 else None
        return Host(number, store, len(self.stores), proxy=proxy, separate=self.separate)

    def turn(self, number: int, *inputs: Input, heard: bool = True) -> None:
        if number == 0:
            inputs, self.again = (*inputs, *self.again), []
            if self.failing:
                self.fail_next_sync(0, IoError("made to fail"))
                self.failing = False
        try:
            released = self.hosts[number].run(inputs, self.now_ms)
        except IoError:
            self._undone(number, inputs, heard)
            return
        assert not released.failures
        if number == 0 and not heard:
            return
        self.later += [(number, delayed.deliver) for delayed in released.delayed]
        self.partial += released.repeated
        for result in released.results:
            self._tell(result)
        lost = [target for source, target in self.cut if source == number]
        self.wire += [(target, data) for target, data in released.frames if target not in lost]

    def _undone(self, number: int, inputs: tuple[Input, ...], heard: bool) -> None:
        """Tells clients that nothing of their commits was done; all else is for another turn."""
        for item in inputs:
            if type(item) is CommitAgain:
                self.again.append(item)
            elif type(item) is Commit and heard:
                self._tell(Result(item.tx, reason=(0, "undone")))
            elif type(item) is Deliver:
                self.later.append((number, item))

    def _tell(self, result: Result) -> None:
        """Takes an answer; one that was handed in twice at one owner may get two, which say the same."""
        before = self.told.setdefault(result.tx, result)
        assert result.tx in self.known and result == before

    def pass_on(self) -> None:
        """Delivers what is under way now, and completes answers as the runtime does."""
        later, self.later = self.later, []
        for number, item in later:
            self.turn(number, item)
        self.deliver()
        partial, self.partial = self.partial, []
        for result, parts in partial:
            missing = {t: p for t, p in parts.items() if t not in result.details}
            stores = {tablet: self.stores[host_of(tablet)] for tablet in missing}
            if any(stores[t].get(tablet_prefix(t) + b"t" + result.tx) is not None for t in missing):
                self.partial.append((result, parts))
                continue
            for tablet, part in missing.items():
                result.details[tablet] = detail_of(
                    part, tablet, stores[tablet], result.step, result.n
                )
            self._tell(result)

    # what happens --------------------------------------------------------------------------

    def begin(self, parts: Parts) -> Commit:
        self._count += 1
        tx = tx_id(self.stores[0].generation, self._count)
        self.known[tx] = parts
        return Commit(tx, parts)

    def kill(self) -> None:
        """Ends host 0, and all that its clients are not told; they hand in again at the next one."""
        self.later = [(number, item) for number, item in self.later if number]
        self.partial = []
        self.restart(0)
        self.hand_in_again()

    def hand_in_again(self) -> None:
        self.again = [
            CommitAgain(tx, parts) for tx, parts in self.known.items() if tx not in self.told
        ]

    def end(self) -> None:
        """Goes on until each commit is answered."""
        for _ in range(200):
            if len(self.told) == len(self.known) and not self.later:
                return
            self.tick(500)
            self.pass_on()
        raise AssertionError(f"{len(self.known) - len(self.told)} commits are never answered")

    # what there is -------------------------------------------------------------------------

    def outcome(self, tx: bytes) -> OutcomeRow | None:
        row = self.stores[0].get(tablet_prefix(COORDINATOR_ID) + b"o" + tx)
        return None if row is None else OutcomeRow._make(row)

    def published(self) -> dict[tuple[int, int], bytes]:
        """Returns the record at each (partition, offset); each slice has one."""
        found = {}
        for number, store in enumerate(self.stores):
            for tablet in partitions(len(self.stores)):
                if host_of(tablet) == number:
                    prefix = tablet_prefix(tablet) + b"b"
                    for key, row in store.scan(prefix, prefix + b"\xff" * 9):
                        entry = Entry._make(row)
                        data = store.read_payload(entry.address, entry.length)
                        found[tablet, int.from_bytes(key[5:], "big")] = data
        return found

    def check(self) -> None:
        """Each transaction has had its effect once, or none, as its client was told, and as is recorded."""
        published = self.published()
        copies = Counter(published.values())
        committed = 0
        for tx, result in self.told.items():
            done = result.reason is None
            committed += done
            row = self.outcome(tx)
            if done:
                assert row is not None and row[:3] == (COMMITTED, result.step, result.n)
            else:
                assert row is None or row.state != COMMITTED
            for tablet, part in self.known[tx].items():
                if type(part) is not PartitionPart:
                    continue
                for n, (data, _) in enumerate(part.slices):
                    assert copies[data] == done, (
                        "an effect that is there twice, or not as it was told"
                    )
                    if done:
                        begin, end = result.details[tablet]  # type: ignore[misc]
                        assert end - begin == len(part.slices)
                        assert published[tablet, begin + n] == data
        assert self.sum() == committed

    def sum(self) -> int:
        return int(msgpack.unpackb(self.rows(shard(0)).get(SUM, msgpack.packb(0))))


def partitions(hosts: int) -> list[int]:
    return [tablet_id(PARTITION, n % hosts, 20 + n) for n in range(3)]


def drawn(lab: Clients, random: Random) -> Parts:
    """Draws the parts of a transaction: a sum, records of its own, perhaps a condition that is soon untrue."""
    hosts = len(lab.stores)
    parts: Parts = {shard(0): ShardPart(writes=((SUM, ADD, ONE),))}
    for tablet in random.sample(partitions(hosts), random.randint(0, 3)):
        names = [b"%d-%d-%d" % (lab._count, tablet, n) for n in range(random.randint(1, 3))]
        parts[tablet] = PartitionPart(slices=tuple((name, 1) for name in names))
    if random.random() < 0.3:
        key = b"k%d" % random.randrange(3)
        read: Any = ((key, None),) if random.random() < 0.5 else ()
        at = shard(random.randrange(hosts), 8)
        parts[at] = ShardPart(reads=read, writes=((key, PUT, b"v"),))
    return dict(sorted(parts.items()))


def played(lab: Clients, steps: int) -> None:
    random = lab.random
    for _ in range(steps):
        what = random.random()
        if what < 0.4:
            many = [lab.begin(drawn(lab, random)) for _ in range(random.randint(1, 4))]
            told_of = random.random() < 0.6
            lab.turn(0, *many, heard=told_of)
            if not told_of:
                lab.kill()
        elif what < 0.5:
            lab.kill()
        elif what < 0.55:
            lab.hand_in_again()  # a link was lost, the owner was not
        elif what < 0.6:
            lab.failing = True
        elif what < 0.65 and len(lab.stores) > 1:
            lab.restart(random.randrange(1, len(lab.stores)))
        elif what < 0.8:
            lab.tick(random.choice((10, 3000)))
        else:
            lab.pass_on()


SETUPS = [
    pytest.param(1, False, id="one host"),
    pytest.param(3, False, id="three hosts"),
    pytest.param(1, True, id="separate"),
    pytest.param(2, True, id="separate, two hosts"),
]


@pytest.mark.parametrize(("hosts", "separate"), SETUPS)
@pytest.mark.parametrize("seed", range(25))
def test_each_commit_has_its_effect_once(hosts: int, separate: bool, seed: int) -> None:
    lab = Clients(hosts, separate, seed)
    played(lab, 60)
    lab.end()
    lab.check()
    results = lab.told.values()
    assert any(result.reason is None for result in results) and not lab.leftovers()


def test_what_was_committed_is_answered_from_its_record() -> None:
    lab = Clients(1)
    log = partitions(1)[0]
    for n in range(300):
        slices = tuple((b"%d-%d" % (n, i), 1) for i in range(1 + n % 3))
        parts: Parts = {log: PartitionPart(slices=slices), shard(0): put(n)}
        lab.turn(0, lab.begin(parts), heard=n % 50 > 0)
        if n % 50 == 0:
            lab.kill()
            turns = lab.stores[0].last_turn
            lab.turn(0)
            assert lab.stores[0].last_turn == turns, "nothing is written for it"
    lab.check()
    offsets = [result.details[log] for result in lab.told.values()]
    ends = [0, *sorted(end for _, end in offsets)]  # type: ignore[misc]
    assert sorted(offsets) == list(pairwise(ends))  # type: ignore[type-var]
    assert all(result.details[shard(0)] is None for result in lab.told.values())


def put(n: int) -> ShardPart:
    return ShardPart(writes=((b"%d" % n, PUT, b"v"), (SUM, ADD, ONE)))


def test_what_was_aborted_is_so_for_ever() -> None:
    """The reason is found again where it still holds."""
    lab = Clients(1)
    mine: Parts = {shard(0): ShardPart(reads=((b"0", None),), writes=((b"0", PUT, b"x"),))}
    lab.turn(0, lab.begin({shard(0): put(0)}))
    late, later = lab.begin(mine), lab.begin(mine)
    lab.turn(0, late, later, heard=False)
    lab.restart(0)
    lab.turn(0, CommitAgain(late.tx, mine))
    assert isinstance(read_reason(lab.told[late.tx].reason)[1], RowChanged)  # type: ignore[arg-type]
    lab.turn(0, lab.begin({shard(0): ShardPart(writes=((b"0", 1, b""), (SUM, ADD, ONE)))}))
    lab.turn(0, CommitAgain(later.tx, mine))
    assert lab.told[later.tx].reason == (COORDINATOR_ID, "owner")
    assert isinstance(read_reason(lab.told[later.tx].reason)[1], OwnerEnded)  # type: ignore[arg-type]
    for tx in (late.tx, later.tx):
        row = lab.outcome(tx)
        assert row is not None and row[:3] == (ABORTED, *place(lab.told[tx]))
    assert b"0" not in lab.rows(shard(0))


def place(result: Result) -> tuple[int, int]:
    return result.step, result.n


def test_what_was_refused_is_not_done() -> None:
    lab = Clients(1)
    item = lab.begin({shard(0): put(0)})
    lab.restart(0)
    lab.turn(0, Deliver(COORDINATOR_ID, Resolve(item.tx)), CommitAgain(item.tx, item.parts))
    assert lab.told[item.tx].reason == (COORDINATOR_ID, "owner")
    lab.check()


def test_payloads_staged_at_an_owner_that_is_gone_are_lost() -> None:
    lab = Clients(1)
    log = partitions(1)[0]
    item = lab.begin({log: PartitionPart(staged=1), shard(0): put(0)})
    lab.turn(0, StageInput(item.tx, {log: (0, ((b"ahead", 1),))}), heard=False)
    lab.restart(0)
    left = lab.hosts[0].staged_before(lab.stores[0].generation)
    assert left == [(log, item.tx)]
    withdrawn = [Deliver(tablet, Withdraw(tx)) for tablet, tx in left]
    lab.turn(0, *withdrawn, CommitAgain(item.tx, item.parts))
    assert isinstance(read_reason(lab.told[item.tx].reason)[1], StagedLost)  # type: ignore[arg-type]
    lab.check()


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator remembers two outcomes."""
    monkeypatch.setattr(plan, "_PRUNE_EVERY", 1)
    monkeypatch.setattr(plan, "OUTCOMES_KEPT", 2)
    monkeypatch.setattr(plan, "OUTCOME_MS_KEPT", -1)


def forgotten(lab: Clients) -> Commit:
    """Commits, is not told, and is forgotten."""
    item = lab.begin({shard(0): put(0)})
    lab.turn(0, item, heard=False)
    for n in range(1, 6):
        lab.turn(0, lab.begin({shard(0): put(n)}))
    assert lab.outcome(item.tx) is None and lab.sum() == 6
    lab.restart(0)
    lab.turn(0, CommitAgain(item.tx, item.parts))
    return item


@pytest.mark.usefixtures("forgetful")
def test_nobody_can_tell_how_one_ended_whose_record_is_forgotten() -> None:
    lab = Clients(1)
    item = forgotten(lab)
    assert lab.sum() == 6, "it is done twice"
    assert isinstance(read_reason(lab.told[item.tx].reason)[1], RecordForgotten)  # type: ignore[arg-type]


@pytest.mark.usefixtures("forgetful")
def test_without_a_look_it_would_be_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RepeatedCommits, "is_new", lambda *_: True)
    lab = Clients(1)
    forgotten(lab)
    assert lab.sum() == 7


@pytest.mark.parametrize(("hosts", "separate"), SETUPS)
def test_the_check_finds_commits_that_are_done_without_a_look(
    monkeypatch: pytest.MonkeyPatch, hosts: int, separate: bool
) -> None:
    """They run under another id, so the coordinator does not know them either."""

    def blind(self: RepeatedCommits, item: CommitAgain, turn: Any) -> bool:
        self._proxy.commit(bytes([255]) + item.tx[1:], item.parts)
        return False

    monkeypatch.setattr(RepeatedCommits, "is_new", blind)
    monkeypatch.setattr(
        Clients, "_tell", lambda self, result: self.told.setdefault(true(result), result)
    )

    def true(result: Result) -> bytes:
        return bytes([0]) + result.tx[1:]

    caught = 0
    for seed in range(5):
        lab = Clients(hosts, separate, seed)
        played(lab, 60)
        for _ in range(20):
            lab.tick(500)
            lab.pass_on()
        try:
            lab.check()
        except (AssertionError, KeyError):
            caught += 1
    assert caught >= 4


def test_on_a_full_disk_only_the_look_is_done() -> None:
    lab = Clients(1)
    log = partitions(1)[0]
    done = lab.begin({log: PartitionPart(slices=((b"x", 1),)), shard(0): put(0)})
    lab.turn(0, done, heard=False)
    new = lab.begin({shard(0): put(1)})
    lab.restart(0)
    again = [CommitAgain(item.tx, item.parts) for item in (done, new)]
    released = lab.hosts[0].run(again, 0, reserve=True)
    one, other = released.results
    assert (one.tx, one.reason, one.details[log]) == (done.tx, None, (0, 1))
    assert other.tx == new.tx
    assert isinstance(read_reason(other.reason)[1], DiskFull)  # type: ignore[arg-type]
    assert lab.outcome(new.tx) is None


def test_one_that_is_planned_waits_for_its_end() -> None:
    """Also where the turn that brings it is not durable at first."""
    lab = Clients(2)
    elsewhere = tablet_id(PARTITION, 1, 21)
    item = lab.begin({elsewhere: PartitionPart(slices=((b"x", 1),)), shard(0): put(0)})
    lab.turn(0, item)
    while (row := lab.outcome(item.tx)) is None:
        lab.pass_on()
    assert row.state == PLANNED
    lab.kill()
    lab.turn(0)
    repeated = lab.hosts[0]._repeated
    assert repeated is not None and list(repeated.waiting) == [item.tx]
    failed = 0
    while repeated.waiting:
        assert failed < 50 and not lab.told
        lab.failing = True
        lab.tick()
        lab.failing = True
        lab.pass_on()
        lab.failing = False
        failed += 1
        row = lab.outcome(item.tx)
        assert row is not None and (row.state == PLANNED) == bool(repeated.waiting)
        if failed % 3 == 0:
            lab.tick()
            lab.pass_on()
    lab.end()
    lab.check()


def test_a_turn_that_is_not_durable_answers_none() -> None:
    lab = Clients(2)
    elsewhere = tablet_id(PARTITION, 1, 21)
    item = lab.begin({elsewhere: PartitionPart(slices=((b"x", 1),)), shard(0): put(0)})
    lab.turn(0, item, heard=False)
    host = lab.hosts[0]
    for frames in range(4):  # up to its plan
        lab.settle() if frames == 3 else lab.pass_on()
    del lab.told[item.tx]
    lab.fail_next_sync(0, IoError("made to fail"))
    with pytest.raises(IoError):
        host.run([CommitAgain(item.tx, item.parts), Commit(tx_id(9, 9), {shard(0): put(1)})], 0)
    released = host.run([], 0)
    assert not released.repeated and not released.results
    released = host.run([CommitAgain(item.tx, item.parts)], 0)
    assert [(result.tx, parts) for result, parts in released.repeated] == [(item.tx, item.parts)]


@pytest.mark.parametrize("seed", range(10))
def test_offsets_are_found_by_place(seed: int) -> None:
    """By a search that reads few entries; also behind a trim."""
    random = Random(seed)
    lab = Clients(1)
    log = partitions(1)[0]
    for _ in range(200):
        many = []
        for _ in range(random.randint(1, 4)):
            slices = tuple((b"x", random.randint(1, 5)) for _ in range(random.randint(0, 3)))
            many.append(lab.begin({log: PartitionPart(slices=slices), shard(0): put(0)}))
        lab.turn(0, *many)
        if random.random() < 0.05:
            prefix = tablet_prefix(log)
            _, _, start, end = lab.stores[0].get(prefix + b"m") or (0, 0, 0, 0)
            lab.turn(
                0,
                lab.begin({log: PartitionPart(trim=random.randint(start, end)), shard(0): put(0)}),
            )
    reads = 0
    scan = lab.stores[0].scan

    def counted(*args: Any, **settings: Any) -> Any:
        nonlocal reads
        reads += 1
        return scan(*args, **settings)

    lab.stores[0].scan = counted  # type: ignore[method-assign]
    _, _, start, _ = lab.stores[0].get(tablet_prefix(log) + b"m")
    for result in lab.told.values():
        expected = result.details.get(log)
        if expected is not None and expected[0] <= start and start:
            expected = None  # the first ones may be trimmed: better no offsets than wrong ones
        assert published_at(lab.stores[0], log, result.step, result.n) == expected
    assert reads / len(lab.told) < 25


def test_offsets_in_a_partition_that_was_dropped_are_gone() -> None:
    """Its entries are deleted piece by piece, and what is left of them tells no offsets."""
    lab = Clients(1)
    log = partitions(1)[0]
    many = [
        lab.begin({log: PartitionPart(slices=((b"x", 1),)), shard(0): put(0)}) for _ in range(9)
    ]
    lab.turn(0, *many)
    lab.turn(0, lab.begin({log: PartitionPart(drop=True), shard(0): put(0)}))
    for _ in range(12):
        lab.turn(0, Deliver(log, Clean(2)))
        for item in many:
            released = lab.hosts[0].run([CommitAgain(item.tx, item.parts)], 0)
            assert not released.failures
            (result,) = released.results
            told = lab.told[item.tx]
            assert (result.step, result.n, result.reason) == (told.step, told.n, None)
            assert result.details[log] is None
