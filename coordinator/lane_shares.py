"""Shares the lanes (partitions) of one consumer among processes, so that each lane has one process.

    join, leave, grow ─▶ plan: who should have which lane ─▶ tell: each party its lanes, with an epoch
                                                                │ a lane that is another's by now is not told
    given ─▶ the lane is free ─▶ tell: its next party has it  ◀─┘ the party ends what it reads there, and gives it

A lane is another's only once its party gave it, or left: a party never has to trust its neighbours. A party is a
process; it has a weight, the number of its readers, and gets lanes in proportion, within one. A plan moves as few
lanes as that allows. Equal choices go to the lower number, so the same events give the same shares.

A party that comes back to another owner brings the lanes that it has. Until `settle` the new owner only confirms
those, so that nobody loses a lane to one who was faster.

What it leaves out: silence; whoever has a clock lets a silent party leave. Next: claims.py.
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heapreplace
from typing import NamedTuple


class Told(NamedTuple):
    """Tells a party which lanes it has from now on."""

    party: int
    epoch: int
    lanes: tuple[int, ...]


class _Lane:
    __slots__ = ("holder", "taken", "wanted")

    def __init__(self) -> None:
        self.holder: int | None = None  # the party that has it, until it gives it or leaves
        self.wanted: int | None = None  # the party that should have it
        self.taken = 0  # the epoch that took it from its holder


class LaneShares:
    """The lanes of one consumer, and its parties.

    Invariant: a party was told a lane only while it is the lane's holder, or has not given it yet.
    """

    def __init__(self, lanes: int, *, epoch: int = 0, settled: bool = True) -> None:
        """`epoch`: greater ones are told. `settled`: False for an owner after another one."""
        self.epoch = epoch
        self.weights: dict[int, int] = {}
        self._settled = settled
        self._lanes = [_Lane() for _ in range(lanes)]
        self._told: dict[int, tuple[int, ...]] = {}

    def join(self, party: int, weight: int, lanes: Iterable[int] = ()) -> list[Told]:
        """Adds a party with the lanes that it has from an owner before, or changes its weight. It is told its
        lanes, and so are the parties whose lanes change."""
        if party not in self.weights:
            known = [lane for lane in sorted(dict.fromkeys(lanes)) if lane < len(self._lanes)]
            mine = [lane for lane in known if self._lanes[lane].holder is None]
            for lane in mine:
                self._lanes[lane].holder = party
            self._told[party] = tuple(mine)
        self.weights[party] = weight
        return self._plan(asked=party)

    def leave(self, party: int) -> list[Told]:
        """Frees all that a party has, at once: it said so, or its link has ended."""
        if self.weights.pop(party, None) is None:
            return []
        del self._told[party]
        for lane in self._lanes:
            if lane.holder == party:
                lane.holder = None
        return self._plan()

    def given(self, party: int, epoch: int, lanes: Iterable[int]) -> list[Told]:
        """Frees lanes that a party gave back when the newest epoch it knew was this one.

        A lane that was told to it again since then stays: the party has it anew as soon as it hears of it.
        """
        for number in lanes:
            lane = self._lanes[number] if number < len(self._lanes) else None
            if lane is not None and lane.holder == party != lane.wanted and lane.taken <= epoch:
                lane.holder = None
        return self._tell()

    def grow(self, lanes: int) -> list[Told]:
        """Adds lanes, up to so many."""
        self._lanes += [_Lane() for _ in range(lanes - len(self._lanes))]
        return self._plan()

    def settle(self) -> list[Told]:
        """Shares what no party brought: all that had lanes from the owner before are back, or late."""
        self._settled = True
        return self._plan()

    def shown(self, party: int) -> Told:
        """Returns what a party was told last; its epoch may be newer, and the lanes are the same."""
        return Told(party, self.epoch, self._told[party])

    def _plan(self, asked: int | None = None) -> list[Told]:
        if not self._settled:
            for lane in self._lanes:
                lane.wanted = lane.holder
            return self._tell(asked)
        room = self._quotas()
        free = []
        # What its holder keeps anyway comes first, so that a lane on its way is not called back for another.
        order = sorted(enumerate(self._lanes), key=lambda known: known[1].wanted != known[1].holder)
        for _, lane in order:
            if lane.holder is not None and room[lane.holder]:
                room[lane.holder] -= 1
                lane.wanted = lane.holder
            else:
                free.append(lane)
        rest = []
        for lane in free:  # on its way to a party that still has room
            if lane.wanted is not None and lane.wanted != lane.holder and room.get(lane.wanted):
                room[lane.wanted] -= 1
            else:
                rest.append(lane)
        most = [(-number, party) for party, number in room.items()]
        heapify(most)
        for lane in rest:  # to the party with the most room
            lane.wanted = None
            if most:
                number, lane.wanted = most[0]
                heapreplace(most, (number + 1, lane.wanted))
        return self._tell(asked)

    def _quotas(self) -> dict[int, int]:
        """Returns how many lanes each party should have, by number; odd ones stay where they are, if they can."""
        parties = sorted(self.weights)
        all_lanes, all_weight = len(self._lanes), sum(self.weights.values())
        shares = {party: divmod(all_lanes * self.weights[party], all_weight) for party in parties}
        quotas = {party: whole for party, (whole, _) in shares.items()}
        held = Counter(lane.holder for lane in self._lanes)
        odd = sorted(
            [party for party in parties if shares[party][1]],
            key=lambda party: (held[party] <= quotas[party], -shares[party][1], party),
        )
        for party in odd[: all_lanes - sum(quotas.values())]:
            quotas[party] += 1
        return quotas

    def _tell(self, asked: int | None = None) -> list[Told]:
        """Gives free lanes to those that should have them; tells parties what changed, and the one that asked."""
        mine: dict[int, list[int]] = {party: [] for party in sorted(self.weights)}
        for number, lane in enumerate(self._lanes):
            if lane.holder is None:
                lane.holder = lane.wanted
            if lane.holder is not None and lane.holder == lane.wanted:
                mine[lane.holder].append(number)
        changed = [
            party for party in mine if party == asked or tuple(mine[party]) != self._told[party]
        ]
        if changed:
            self.epoch += 1
        for party in changed:
            for number in self._told[party]:
                if self._lanes[number].wanted != party:
                    self._lanes[number].taken = self.epoch
            self._told[party] = tuple(mine[party])
        return [Told(party, self.epoch, self._told[party]) for party in changed]
