"""Checks invariants after every turn of every host, in the changes that the turn made.

    World.watch(host, turn) ─▶ Watch: coordinator's rows, then participants', then links' ─▶ violations, by name

It builds its own picture of the durable state from the changes alone, and uses no core. It also counts
transitions of state tables, over every value that a row had within the turn, not only the last.

Next: final_invariants.py.
"""

from collections import Counter
from typing import Any

from ....coordinator.plan import STATES, OutcomeRow
from ....proto.ids import COORDINATOR, HOST, PARTITION, SHARD, tablet_id, tablet_text, tx_text
from ....proto.messages import Body, PartitionPart
from ....proto.reasons import cause_of
from ....proxy.deterministic import Result
from ....store import Turn
from ....store.layers import GONE
from ....tablets.participant import TxRecord
from ....tablets.partition import EMPTY, Bounds, Entry, standing
from ....tablets.shard import Row
from ..simulator.world import World

TABLES = {
    "coordinator": (
        "none -> planned",
        "none -> committed",
        "none -> aborted",
        "none -> refused",
        "none -> refused, behind a drop",
        "planned -> committed",
        "planned -> aborted",
    ),
    "participant": (
        "none -> prepared",
        "none -> planned",
        "prepared -> prepared",
        "prepared -> planned",
        "prepared -> decided",
        "prepared -> given up",
        "planned -> planned",
        "planned -> decided",
    ),
    "sent ahead": ("none -> staged", "staged -> staged", "staged -> gone"),
}
"""Transitions of coordinator/plan.py, tablets/participant.py, tablets/partition.py. "none -> committed": decided
inline; "prepared -> prepared": a vote before the plan; "planned -> planned": a vote, or a wait."""

_AHEAD = {None: ("planned", "committed", "aborted", "refused"), "planned": ("committed", "aborted")}
_BOUND = 10_000
_TX_KEY = 17
"""The length of a key that ends with a transaction's id."""


class Watch:
    """Watches a world's turns and answers. `requests`: the parts of each transaction, by tablet."""

    def __init__(self, world: World, requests: dict[bytes, dict[int, Any]]) -> None:
        self.world = world
        self.requests = requests
        self.violations: list[str] = []
        self.reached: Counter[str] = Counter()
        self.step = 0
        self.places: dict[bytes, tuple[int, int]] = {}
        self.state: dict[bytes, str] = {}
        self._tx_at: dict[tuple[int, int], bytes] = {}
        self._effects: dict[tuple[int, int], None] = {}
        self._known: dict[bytes, Any] = {}
        self._ends: dict[bytes, int] = {}
        self._roles: dict[bytes, Any] = {}
        self._of_value = {b"b": self._entry, b"c": self._position, b"r": self._row}
        """The checks of a row's last value."""
        self._of_course = {b"t": self._record, b"s": self._staged}
        """The checks of all values that a row had in the turn."""
        world.watch = self.turn
        world.answered = self.answered
        world.echoed = self.echoed

    def wrong(self, text: str) -> None:
        self.violations.append(f"{text} (at {self.world.now:.1f} ms)")

    # after a turn --------------------------------------------------------------------------

    def turn(self, number: int, turn: Turn) -> None:
        overlay = turn.overlay
        if not overlay:
            return
        courses = turn.courses()
        if number == 0:
            self._check_places(overlay, courses)
        self._rows(number, overlay, courses)
        for link in self.world.nodes[number].links.values():
            if len(link.queue) > _BOUND:
                self.wrong(f"B38: {len(link.queue)} messages wait on a link of host {number}")

    def _check_places(self, overlay: dict[bytes, Any], courses: dict[bytes, list[Any]]) -> None:
        """Checks the coordinator's outcomes, and the last step in which it has given places."""
        for key, course in courses.items():
            if key[0] >> 4 == COORDINATOR and key[4:5] == b"o":
                self._outcome(key[5:], course)
        step = overlay.get(b"\x10\0\0\0l")
        if step is not None:
            if step <= self.step:
                self.wrong(f"B1: step {step} was given out behind step {self.step}")
            self.step = step

    def _rows(
        self, number: int, overlay: dict[bytes, Any], courses: dict[bytes, list[Any]]
    ) -> None:
        """Checks rows of partitions and shards, and deleted messages of links."""
        for key, value in overlay.items():
            kind, row = key[0] >> 4, key[4:5]
            if kind == HOST and value is GONE and row == b"O":
                self._deleted_message(number, key)
            elif kind not in (PARTITION, SHARD):
                continue
            elif row in self._of_value:
                self._of_value[row](key, value)
            elif row in self._of_course and len(key) == _TX_KEY:
                self._of_course[row](key, courses[key])
        for key, value in overlay.items():  # after the entries that they sum up
            if key[0] >> 4 == PARTITION and key[4:5] == b"m" and value is not GONE:
                self._bounds(key, value)

    def _count_transition(self, table: str, before: str, after: str) -> None:
        self.reached[f"{table}: {before} -> {after}"] += 1

    def _outcome(self, tx: bytes, course: list[Any]) -> None:
        before = self.state.get(tx)
        for value in course:
            if value is GONE:
                self.wrong(f"B12: the outcome of {tx_text(tx)} was forgotten")
                return
            row = OutcomeRow._make(value)
            state = STATES[row.state]
            if state not in _AHEAD.get(before, ()):
                self.wrong(f"B7: {tx_text(tx)} went from {before} to {state}")
            self._count_transition("coordinator", before or "none", state)
            before = state
            if state == "refused":
                continue
            place = (row.step, row.n)
            if self.places.setdefault(tx, place) != place or (
                self._tx_at.setdefault(place, tx) != tx
            ):
                self.wrong(f"B2: {tx_text(tx)} has place {place}, and not alone or not only")
            if tx not in self.state and row.step <= self.step:
                self.wrong(f"B1: {tx_text(tx)} got a place in step {row.step}, which was over")
            if state == "aborted" and place in self._effects:
                self.wrong(f"B11: {tx_text(tx)} was aborted and has effects")
        if before is not None:
            self.state[tx] = before

    def _record(self, key: bytes, course: list[Any]) -> None:
        tx, old = key[5:], self._known.get(key)
        before = "none" if old is None else "planned" if old.step else "prepared"
        place = self.places.get(tx)
        for value in course:
            if value is GONE:
                decided = before == "planned" or place is not None
                after = "decided" if decided else "given up"
                if before != "none":
                    self._count_transition("participant", before, after)
                before = "none"
                continue
            record: TxRecord[Body] = TxRecord._make(value)
            after = "planned" if record.step else "prepared"
            self._count_transition("participant", before, after)
            before = after
            if record.step:
                if (record.step, record.n) != place:
                    self.wrong(f"B2: {tx_text(tx)} is planned where the coordinator has {place}")
                roles = (record.voters, record.receivers)
                if self._roles.setdefault(tx, roles) != roles:
                    self.wrong(f"B3: participants of {tx_text(tx)} do not agree who they are")
        self._keep(key, course[-1] if course[-1] is GONE else record)

    def _staged(self, key: bytes, course: list[Any]) -> None:
        before = "staged" if key in self._known else "none"
        for value in course:
            after = "gone" if value is GONE else "staged"
            if before != "none" or after != "gone":
                self._count_transition("sent ahead", before, after)
            before = "staged" if after == "staged" else "none"
        self._keep(key, course[-1])

    def _keep(self, key: bytes, value: Any) -> None:
        if value is GONE:
            self._known.pop(key, None)
        else:
            self._known[key] = value

    def _effect(self, key: bytes, place: tuple[int, int], old: tuple[int, int] | None) -> None:
        """Checks an effect that has `place` and replaces one that had `old`."""
        tx = self._tx_at.get(place)
        where = tablet_text(int.from_bytes(key[:4], "big"))
        if tx is None:
            self.wrong(f"B2: {where} has an effect of {place}, where the coordinator has nobody")
        elif self.state[tx] == "aborted":
            self.wrong(f"B7: {where} has an effect of {tx_text(tx)}, which was aborted")
        self._effects[place] = None
        if old is not None and place < old:
            self.wrong(f"B5: {where}: an effect of {place} came behind one of {old}")

    def _row(self, key: bytes, value: Any) -> None:
        old = self._known.get(key)
        if value is not GONE:
            value = Row._make(value).version
            self._effect(key, value, old)
        self._keep(key, value)

    def _entry(self, key: bytes, value: Any) -> None:
        tablet, offset = key[:4], int.from_bytes(key[5:], "big")
        if value is GONE:
            self._known.pop(key, None)
            return
        end = self._ends.get(tablet, 0)
        if offset != end or key in self._known:
            where = tablet_text(int.from_bytes(tablet, "big"))
            self.wrong(f"B20: {where}: a slice came to offset {offset}, its log ended at {end}")
        entry = Entry._make(value)
        place = (entry.step, entry.n)
        self._ends[tablet] = max(end, offset + entry.records)
        self._known[key] = True
        self._effect(key, place, self._known.get(tablet))
        self._known[tablet] = place

    def _bounds(self, key: bytes, value: Any) -> None:
        where = tablet_text(int.from_bytes(key[:4], "big"))
        now, old = Bounds._make(value), self._known.get(key, EMPTY)
        if now.end != self._ends.get(key[:4], 0):
            self.wrong(
                f"B20: {where}: its log ends at {now.end}, its slices at {self._ends[key[:4]]}"
            )
        if now.start < old.start:
            self.wrong(f"B26: {where}: its log begins at {now.start}, and began at {old.start}")
        self._effect(key, (now.step, now.n), (old.step, old.n))
        self._known[key] = now

    def _position(self, key: bytes, value: Any) -> None:
        old = self._known.get(key)
        now = GONE if value is GONE else standing(value, None)
        self._keep(key, now)
        if now is GONE:
            return
        place = (now.step, now.n)
        # Several transactions may have moved it in one turn: the last one's range begins where the others
        # left it, and one of those may have been a seek.
        before = (old.step, old.n) if old is not None else (0, 0)
        self._effect(key, place, before if old is not None else None)
        if now.ranges is not None:
            return
        tx, consumer = self._tx_at.get(place), key[5:].decode()
        part = self.requests.get(tx, {}).get(int.from_bytes(key[:4], "big")) if tx else None
        if not isinstance(part, PartitionPart) or any(c == consumer for c, _, _ in part.seeks):
            return
        position = old.position if old is not None else 0
        mine = [(begin, end) for c, begin, end in part.ranges if c == consumer]
        falls = now.position < position and not self._has_sought(key, consumer, before, place)
        _, reached = mine[-1] if mine else (0, -1)
        if reached != now.position or falls:
            self.wrong(
                f"B21: {tablet_text(int.from_bytes(key[:4], 'big'))}: {consumer} went from "
                f"{position} to {now.position} by {tx_text(tx or bytes(12))}, which consumed {mine}"
            )

    def _has_sought(self, key: bytes, consumer: str, begin: Any, end: tuple[int, int]) -> bool:
        """Returns whether a transaction between two places moved a consumer by a seek."""
        tablet = int.from_bytes(key[:4], "big")
        return any(
            any(c == consumer for c, _, _ in part.seeks)
            for at, tx in self._tx_at.items()
            if begin < at < end
            and isinstance(part := self.requests.get(tx, {}).get(tablet), PartitionPart)
        )

    def _deleted_message(self, number: int, key: bytes) -> None:
        target, sent = key[5], int.from_bytes(key[6:], "big")
        own = tablet_id(HOST, target, 0).to_bytes(4, "big")
        known = self.world.stores[target].get(own + b"I" + bytes([number])) or 0
        if known < sent:
            self.wrong(f"B10: host {number} forgot message {sent} to {target}, which has {known}")

    # answers, repeated frames --------------------------------------------------------------

    def answered(self, result: Result) -> None:
        """B8: checks that a commit is durable at all its tablets when its client is told."""
        if result.reason is not None and cause_of(result.reason) == "dropped":
            self._count_transition("coordinator", "none", "refused, behind a drop")
        if result.reason is not None or not result.step:
            return
        tx = result.tx
        if self.places.get(tx) != (result.step, result.n) or self.state[tx] == "aborted":
            self.wrong(f"B8: {tx_text(tx)} was told committed, and is {self.state.get(tx)}")
        for tablet in self.requests.get(tx, ()):
            key = tablet.to_bytes(4, "big") + b"t" + tx
            # A record without a place is a late repeat, which will be ended.
            if key in self._known and self._known[key].step:
                self.wrong(f"B8: {tx_text(tx)} was told committed before {tablet_text(tablet)} was")

    def echoed(self, number: int, turn: Turn) -> None:
        """B9: checks that a frame repeated immediately changes nothing."""
        changes = turn.net()
        if changes:
            self.wrong(f"B9: a repeated frame changed {list(changes)[:3]} on host {number}")
