"""Checks the rows of a simulated world of mode "pulsar" after every turn, and counts anomalies that rows show.

    partition     aborted ids: the tablet's == the snapshot's, recovered == a reader's == the log's markers
                  what is ongoing, or pending at a subscription, is live at its coordinator
                  a snapshot is not older than some ends
    subscription  its log, replayed == what is pending; its position never falls
    coordinator   its log, replayed == its rows; what is over is never there again

Next: workload.py.
"""

from collections import Counter
from typing import Any

from .....coordinator.pulsar import invariants
from .....coordinator.pulsar.states import CAME_FROM, STATE_NAMES
from .....proto.ids import host_of
from .....proto.pulsar.coordinators import coordinator_tablet
from .....tablets.pulsar import rows
from .....tablets.pulsar.invariants import violations as subscription_violations
from .....tablets.pulsar.snapshots import END, INDEX, SINGLE, recover
from ...simulator.client_world import ClientWorld
from ..in_place.anomalies import ABORT, COMMIT
from ..in_place.reads import Broken
from .coverage import HALF_SEEN
from .reads import PulsarReads

OLD_SNAPSHOT = 10
"""A snapshot is too old after so many times `snapshot_transactions` moves of max read, in one life of its host."""


class TurnChecks(PulsarReads):
    """`allowed` counts the allowed anomalies that it has met, by name."""

    def __init__(self, world: ClientWorld, settings: Any) -> None:
        super().__init__(world, settings)
        self.allowed: Counter[str] = Counter()
        self._positions: Counter[int] = Counter()
        self._aborts: dict[int, list[tuple[int, int, int]]] = {t: [] for t in self.tablets}
        self._looked_at: Counter[int] = Counter()
        self._states: dict[int, dict[int, int]] = {}
        self._given: dict[int, int] = {}
        self._snapshots: dict[int, tuple[Any, int]] = {}
        """By partition: its newest snapshot, with its host's life and max read; the moves of max read since."""

    def check_host(self, host: int) -> None:
        world: Any = self.world
        for tablet in world.coordinators:
            if host_of(tablet) == host:
                for text in invariants.violations(self.space(tablet)):
                    raise Broken(f"B24: coordinator {tablet:#x}: {text}")
                self._check_states(tablet)
        for tablet in self.tablets:
            if host_of(tablet) == host:
                self._look_at_markers(tablet)
                self._check_ids(tablet)
                self._check_snapshot(tablet)
                self._check_live(tablet)
                self._check_subscription(tablet)

    # coordinators ----------------------------------------------------------------------------

    def _check_states(self, tablet: int) -> None:
        """Checks that transactions take allowed ways only, and that none comes back."""
        live = {n: row.state for n, row in invariants.live_rows(self.space(tablet)).items()}
        before, given = self._states.get(tablet, {}), self._given.get(tablet, -1)
        for least, state in live.items():
            old = before.get(least)
            name = f"({tablet:#x}, {least}) is {STATE_NAMES[state]}"
            if old is None and least <= given:
                raise Broken(f"B24: {name}, and was over")
            if old not in (None, state) and old not in CAME_FROM[state]:
                raise Broken(f"B24: {name}, and was {STATE_NAMES[old or 0]}")
        self._states[tablet] = live
        self._given[tablet] = max([given, *live])

    def _check_live(self, tablet: int) -> None:
        """Checks that a coordinator knows what a partition takes for open: else it hangs for ever."""
        keys = [*self.rows(tablet, b"n"), *self.rows(tablet, b"y")]
        for most, least in {(key[1:9], key[9:17]): None for key in keys}:
            coordinator = coordinator_tablet(int.from_bytes(most, "big"), self.world.hosts)
            if self.world.read(coordinator, b"t" + least) is None:
                number = int.from_bytes(least, "big")
                raise Broken(f"B24: ({coordinator:#x}, {number}) is over, and open in {tablet:#x}")

    # partitions ------------------------------------------------------------------------------

    def _look_at_markers(self, tablet: int) -> None:
        log = self.logs[tablet]
        for entry in log[self._looked_at[tablet] :]:
            txn = entry.txn or 0
            most, least = txn >> 64, txn & (1 << 64) - 1
            if entry.kind == ABORT:
                self._aborts[tablet].append((entry.offset, most, least))
            elif entry.kind == COMMIT:
                key = rows.of_txn(b"n", most, least)
                others = (self.world.read(other, key) for other in self.tablets)
                self.allowed[HALF_SEEN] += any(row is not None for row in others)
        self._looked_at[tablet] = len(log)

    def _check_ids(self, tablet: int) -> None:
        """Checks the aborted ids in each of their places against the abort markers of the log."""
        start, end, _ = self.meta(tablet)
        aborts = self._aborts[tablet] = [one for one in self._aborts[tablet] if one[0] >= start]
        space = self.space(tablet)
        recovered = recover(space, start, end)
        reader = self.views[True]._aborted._upto(tablet, space, self.meta(tablet))  # noqa: SLF001
        places = {"stores": recovered.ids() if recovered else [], "shows a reader": reader.ids()}
        registry: Any = self.world.nodes[host_of(tablet)]._registry  # noqa: SLF001
        running = dict.get(registry, tablet)
        if running is not None and running.buffer.state == "Ready":
            places["keeps"] = running.buffer.aborted.ids()
        for how, ids in places.items():
            if ids != aborts:
                raise Broken(f"B24: {tablet:#x} {how} aborted ids {ids}, its markers are {aborts}")

    def _check_snapshot(self, tablet: int) -> None:
        """Checks that snapshots go on being taken, as long as the host lives."""
        space, _, max_read = self.space(tablet), *self.meta(tablet)[1:]
        now = [space.get(key) for key in (SINGLE, END, INDEX)], self.world.lives[host_of(tablet)]
        before, moves = self._snapshots.get(tablet, (None, 0))
        if before is None or before[:2] != now:
            moves = 0
        elif before[2] != max_read:
            moves += 1
        if moves > OLD_SNAPSHOT * self.world.settings.snapshot_transactions and any(now[0]):
            raise Broken(f"B37: {moves} moves of max read in {tablet:#x} took no snapshot")
        self._snapshots[tablet] = (*now, max_read), moves

    # subscriptions ---------------------------------------------------------------------------

    def _check_subscription(self, tablet: int) -> None:
        cursor = self.cursor(tablet)
        if cursor is None:
            return
        if cursor.position < self._positions[tablet]:
            raise Broken(f"B24: the position in {tablet:#x} falls to {cursor.position}")
        self._positions[tablet] = cursor.position
        for text in subscription_violations(self.space(tablet)):
            raise Broken(f"B24: in {tablet:#x} {text}")

    def check_acknowledged(
        self, tablet: int, ranges: tuple[tuple[int, int], ...], position: int | None
    ) -> None:
        """Checks that a subscription has what a transaction has acknowledged whose client is told so."""
        cursor = self.cursor(tablet)
        assert cursor is not None
        wanted = [at for low, high in ranges for at in range(low, high) if at >= cursor.position]
        missing = [at for at in wanted if not any(low <= at < high for low, high in cursor.ranges)]
        if missing or (position or 0) > cursor.position:
            raise Broken(
                f"B25: {ranges} and {position} in {tablet:#x} are committed, there is {cursor}"
            )
