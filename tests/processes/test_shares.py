"""Tests the shares of processes over lines in memory: random changes, links that end, new owners, silence."""

import itertools
import random

import pytest
from share_kit import KEY, Lines, Log, Reads

from planstep.coordinator.claims import Range
from planstep.proto.frames import Claim, Free, Given, Join, Leave, Shares
from planstep.runtime.claimed_ranges import ClaimedRanges
from planstep.runtime.process_shares import ProcessShares
from planstep.runtime.shares_of_links import SharesOfLinks


class World:
    """The owner's own group, groups of attached processes, and a topic that they consume; drawn from `seed`."""

    def __init__(self, seed: int, individual: bool) -> None:
        self.draw = random.Random(seed)
        self.log = Log(self.draw.randint(1, 6), 30, individual)
        self.lines = Lines(self.log, self.draw)
        self.numbers = itertools.count(1)
        self.own = Reads(self.lines.here, self.log, readers=self.draw.randint(0, 2))
        self.groups: dict[int, Reads] = {}

    def all(self) -> list[Reads]:
        return [self.own, *self.groups.values()]

    def attach(self) -> None:
        number, process = next(self.numbers), ProcessShares()
        self.lines.attach(number, process)
        self.groups[number] = Reads(process, self.log, readers=0)
        self.groups[number].weigh(self.draw.randint(0, 3))

    def again(self, number: int) -> None:
        """A link ends, and its process attaches again."""
        process, group = self.lines.ends[number], self.groups.pop(number)
        self.lines.cut(number)
        number = next(self.numbers)
        self.groups[number] = group
        self.lines.attach(number, process)

    def end(self, number: int) -> None:
        """A process dies."""
        self.lines.cut(number)
        del self.groups[number]

    def new_owner(self) -> None:
        """One of the attached processes is the owner now; the owner before is attached, or dead."""
        if not self.groups:
            return
        lines, before = self.lines, self.own
        chosen = self.draw.choice([*self.groups])
        groups = [(lines.ends[n], group) for n, group in self.groups.items() if n != chosen]
        old_owner = lines.here
        lines.here, self.own = lines.ends[chosen], self.groups[chosen]
        for process in lines.ends.values():
            process.lost()
        lines.ends, lines.up, lines.down, self.groups = {}, {}, {}, {}
        lines.new_owner(settled=False)
        if self.draw.random() < 0.5:
            groups.append((old_owner, before))
        self.draw.shuffle(groups)
        for process, group in groups:
            number = next(self.numbers)
            self.groups[number] = group
            lines.attach(number, process)
        for number in self.groups:
            while lines.carry_up(number):
                pass
        lines.links.settle()

    def step(self) -> None:
        roll = self.draw.random()
        number = self.draw.choice([*self.groups]) if self.groups else None
        if number is None or roll < 0.02:
            self.attach()
        elif roll < 0.03:
            self.end(number)
        elif roll < 0.04:
            self.again(number)
        elif roll < 0.05:
            self.new_owner()
        elif roll < 0.3:
            self.lines.carry_up(number)
        elif roll < 0.55:
            self.lines.carry_down(number)
        else:
            self.work(self.draw.choice(self.all()))

    def work(self, group: Reads) -> None:
        roll = self.draw.random()
        lane = self.draw.randrange(len(self.log.ends))
        if roll < 0.05:
            self.log.ends[lane] += self.draw.randint(1, 20)
        elif roll < 0.15:
            group.weigh(self.draw.randint(0, 3))
        elif roll < 0.6:
            group.look(lane, self.draw.randint(1, 5))
        elif lane in group.flights:
            group.end(lane, self.draw.random() < 0.8)

    def quiesce(self) -> None:
        """Ends what is in flight, and carries what is on its way, until nothing changes any more."""
        for _ in range(60):
            self.lines.carry_all()
            for group in self.all():
                for lane in list(group.flights):
                    group.end(lane, commit=False)
        self.lines.carry_all()

    def check_quiet(self) -> None:
        groups = [group for group in self.all() if group.readers]
        if not self.log.is_individual and groups:
            had = sorted(lane for group in groups for lane in group.own)
            assert had == [*range(len(self.log.ends))]
            weight = sum(group.readers for group in groups)
            for group in groups:
                assert abs(len(group.own) - len(had) * group.readers / weight) < 1
        stats = self.lines.links.stats()
        if all(group.share.alone or not group.readers for group in self.all()):
            assert stats == {"consumers": 0, "parties": 0, "claims": 0}

    def read_all(self) -> None:
        """All that is left is consumed, without a conflict."""
        if not any(group.readers for group in self.all()):
            self.own.weigh(1)
        before = self.log.conflicts
        for _ in range(400):
            self.lines.carry_all()
            for group in self.all():
                for lane in list(group.own):
                    group.look(lane, 5)
            self.lines.carry_all()
            for group in self.all():
                for lane in list(group.flights):
                    group.end(lane, commit=True)
            if self.log.done:
                break
        assert self.log.done
        assert self.log.conflicts == before

    def leave_all(self) -> None:
        """Processes that have gone hold nothing."""
        for group in self.all():
            group.weigh(0)
        self.quiesce()
        assert self.lines.links.stats() == {"consumers": 0, "parties": 0, "claims": 0}
        assert not any(end._leaving for end in self.lines.ends.values())


def play(seed: int, individual: bool) -> None:
    world = World(seed, individual)
    for _ in range(4):
        for _ in range(world.draw.randint(1, 120)):
            world.step()
        world.quiesce()
        world.check_quiet()
        world.read_all()
    world.leave_all()


@pytest.mark.parametrize("individual", [False, True])
def test_processes_share_and_consume_everything(individual: bool) -> None:
    for seed in range(300):
        play(seed, individual)


@pytest.mark.parametrize("individual", [False, True])
def test_no_two_processes_read_one_record_while_links_live(individual: bool) -> None:
    """Only ends of links may make two processes read the same: their frames are lost."""
    for seed in range(200):
        world = World(seed, individual)
        world.again = world.end = lambda number: None  # type: ignore[method-assign,assignment]
        for _ in range(400):
            world.step()
            if not individual:
                had = [lane for group in world.all() for lane in group.has]
                assert len(had) == len({*had})
        assert world.log.conflicts == 0


def confirm_nothing(claims: ClaimedRanges) -> list[Range]:
    return claims.all


def keep_all(links: SharesOfLinks, link: int) -> None: ...


@pytest.mark.parametrize(
    ("where", "name", "bug"),
    [
        (ProcessShares, "is_stale", lambda process, frame: False),
        (ClaimedRanges, "bring", confirm_nothing),
        (SharesOfLinks, "drop", keep_all),
    ],
)
def test_the_worlds_find_planted_bugs(
    where: type, name: str, bug: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, bug)
    with pytest.raises(AssertionError):
        for seed in range(300):
            play(seed, individual=False)
            play(seed, individual=True)


def lines(lanes: int = 4, records: int = 0, individual: bool = False) -> Lines:
    return Lines(Log(lanes, records, individual))


def test_an_owner_that_is_alone_tells_nobody_anything() -> None:
    world = lines()
    own = Reads(world.here, world.log)
    assert own.share.alone and own.has == [0, 1, 2, 3] and not world.links.busy
    process = ProcessShares()
    world.attach(7, process)
    group = Reads(process, world.log)
    group.weigh(1)
    assert own.has == [0, 1, 2, 3] and group.has == [] and group.share.waits
    world.carry_all()
    assert not own.share.alone and not group.share.waits and world.links.busy
    assert sorted(own.own) == [0, 1] and sorted(group.own) == [2, 3]
    world.cut(7)
    assert sorted(own.own) == [0, 1, 2, 3] and sorted(group.own) == [2, 3]


def test_a_lane_moves_once_its_flight_has_ended() -> None:
    world = lines(lanes=2, records=10)
    own = Reads(world.here, world.log)
    own.look(1, 5)
    process = ProcessShares()
    world.attach(1, process)
    group = Reads(process, world.log)
    group.weigh(1)
    world.carry_all()
    assert [*own.own] == [0] and own.has == [0, 1] and group.own == {}
    own.look(1, 5)
    own.end(1, commit=True)
    world.carry_all()
    assert own.has == [0] and [*group.own] == [1] and 1 not in own.flights


def test_a_silent_process_loses_its_lanes_until_it_is_heard_again() -> None:
    world = lines()
    processes = [ProcessShares(), ProcessShares()]
    for number, process in enumerate(processes, 1):
        world.attach(number, process)
    one, two = (Reads(process, world.log) for process in processes)
    one.weigh(1)
    two.weigh(1)
    world.carry_all()
    for _ in range(40):  # one is stopped: nothing reaches it, or comes from it
        world.now += 1.0
        world.links.tick()
        while world.carry_down(2) or world.carry_up(2):
            pass
        assert len(two.own) == 2 or world.now > 30.0
    assert sorted(two.own) == [0, 1, 2, 3] and len(one.own) == 2
    world.carry_all()
    assert sorted([*one.own, *two.own]) == [0, 1, 2, 3] and len(one.own) == 2
    world.now += 100.0
    two.weigh(0)
    world.carry_all()
    world.now += 100.0
    world.links.tick()
    assert sorted(one.own) == [0, 1, 2, 3]  # alone, it is asked for nothing


def test_a_process_that_answers_keeps_its_lanes_however_long_its_flights_take() -> None:
    world = lines(records=10)
    own = Reads(world.here, world.log)
    process = ProcessShares()
    world.attach(1, process)
    group = Reads(process, world.log)
    world.carry_all()
    both = list(group.own)
    for lane in both:
        group.look(lane, 5)
    own.weigh(9)
    for _ in range(300):
        world.now += 1.0
        world.links.tick()
        world.carry_all()
    assert sorted(group.has) == both and len(group.own) == 1
    for lane in both:
        group.end(lane, commit=True)
    world.carry_all()
    assert len(own.own) == 3 and len(group.has) == 1


def test_an_exclusive_consumer_is_of_one_process() -> None:
    world = lines()
    told: dict[int, list[object]] = {1: [], 2: []}
    links = SharesOfLinks(ProcessShares(), world.log, lambda link, frame: told[link].append(frame))
    links.take(1, Join(*KEY, 1, (), ""))
    links.take(2, Join(*KEY, 1, (), ""))
    assert told == {1: [Shares(*KEY, 1, (0, 1, 2, 3))], 2: [Shares(*KEY, 0, ())]}
    links.take(1, Join(*KEY, 2, (), ""))
    links.drop(1)
    links.take(2, Join(*KEY, 1, (), ""))
    assert told[2][1:] == [Shares(*KEY, 3, (0, 1, 2, 3))]
    links.take(2, Leave(*KEY))
    assert told[2][2:] == [Shares(*KEY, 0, ())]
    assert links.stats() == {"consumers": 0, "parties": 0, "claims": 0}


def test_frames_about_what_is_not_there_do_no_harm() -> None:
    world = lines(individual=True, records=10)
    told: list[object] = []
    links = SharesOfLinks(ProcessShares(), world.log, lambda link, frame: told.append(frame))
    gone = (5, "c")
    for frame in (
        Given(*gone, 9, (0, 77)),
        Free(*gone, 3, ((0, 9),)),
        Leave(*gone),
        Join(*gone, 3),
    ):
        links.take(1, frame)
    links.take(1, Claim(*gone, 0, 5))
    links.take(1, Claim(*KEY, 0, 5))  # before it has joined
    assert all(frame[-1] == () for frame in told) and links.stats()["consumers"] == 0  # type: ignore[index]
    links.take(1, Join(*KEY, 1))
    links.take(1, Claim(*KEY, 77, 5))
    links.take(1, Claim(*KEY, 0, 1 << 40, ((9, 3), (4, 6), (4, 8))))
    links.take(1, Free(*KEY, 0, ((7, 2), (0, 1 << 60))))
    links.take(1, Given(*KEY, 1 << 60, (0, 9_999)))
    links.drop(1)
    links.drop(1)
    assert links.stats() == {"consumers": 0, "parties": 0, "claims": 0}


def test_a_process_reads_for_a_limited_number_of_consumers() -> None:
    world = lines()
    told: list[Shares] = []
    links = SharesOfLinks(ProcessShares(), world.log, lambda link, frame: told.append(frame))  # type: ignore[arg-type]
    for number in range(1_010):
        links.take(1, Join(KEY[0], f"c{number}", 1))
    assert [frame.epoch > 0 for frame in told] == [True] * 1_000 + [False] * 10
    links.take(1, Join(KEY[0], "c5", 2))  # its number of readers
    assert told[-1].epoch and links.stats()["consumers"] == 1_000
    links.drop(1)
    assert links.stats()["consumers"] == 0


def test_older_shares_and_the_same_again_change_nothing() -> None:
    world = lines()
    process = ProcessShares()
    world.attach(1, process)
    group = Reads(process, world.log)
    world.carry_all()
    newer = Shares(*KEY, 40, (1, 2))
    for frame in (newer, newer, Shares(*KEY, 39, (0, 3)), newer):
        process.arrived(frame)
        assert sorted(group.own) == [1, 2]
    given = [frame for frame in world.up[1] if isinstance(frame, Given)]
    assert given[0] == Given(*KEY, 40, (0, 3)) and {frame.lanes for frame in given[1:]} == {()}


def test_what_has_no_record_is_freed_and_what_is_held_back_is_not() -> None:
    claims = ClaimedRanges()
    claims.take([(0, 10), (20, 40), (50, 60)])
    claims.begin(20, 25)
    claims.prune(55, [(30, 32)])
    assert claims.claimed == [(30, 32), (55, 60)] and claims.in_hand == [(20, 25)]
    claims.end(20, 25, committed=True)
    assert claims.to_free() == [(0, 10), (20, 30), (32, 40), (50, 55)]
    assert claims.to_free() == [] and claims.all == [(30, 32), (55, 60)]
