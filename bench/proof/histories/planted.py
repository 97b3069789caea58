"""Plants bugs in the engine of a writing process, for the row's negative controls.

    blind   a vote ignores the rows that the transaction read
    ahead   an outcome and other processes show a commit before the owner's next transaction sees it
    old mark   an attached process asks for the owner's mark every 50 ms, not at each call
    again   an owner does what is handed in once more, without a look for its record
    two hands   an owner gives each partition of a consumer to all processes that read for it

Next: writer.py.
"""

import time
from typing import Any

from ....coordinator.lane_shares import LaneShares, Told
from ....coordinator.plan import OutcomeRow
from ....host.inputs import CommitAgain
from ....host.repeated_commits import RepeatedCommits
from ....host.versions import History
from ....proto.ids import COORDINATOR_ID, tablet_prefix, tx_parse
from ....proto.messages import ShardPart
from ....runtime.following import Following
from ....runtime.outcome import Outcome
from ....runtime.outcomes import Outcomes, outcome_of
from ....tablets.shard import Shard
from ..patching import exchange

_AHEAD_SECONDS = 0.002
_OLD_SECONDS = 0.05


def _blind() -> None:
    honest = Shard.check

    def blind(self: Shard, body: Any, early: bool) -> Any:
        return honest(self, ShardPart(*body)._replace(reads=(), ranges=()), early)

    exchange(Shard, "check", blind)


def _ahead() -> None:
    release, outcome = History.release, Outcomes.of

    def late(self: History, step: int, *rest: Any) -> None:
        release(self, self.released, *rest[:3])  # with all old versions: snapshots are too old
        if rest:
            time.sleep(_AHEAD_SECONDS)
        release(self, step)

    def early(self: Outcomes, tx: bytes | str) -> Outcome:
        tx = tx_parse(tx) if isinstance(tx, str) else tx
        row = self._runtime.nodes[0].host.store.get(tablet_prefix(COORDINATOR_ID) + b"o" + tx)
        return outcome(self, tx) if row is None else outcome_of(tx, OutcomeRow._make(row))

    exchange(History, "release", late)
    exchange(Outcomes, "of", early)


def _old_mark() -> None:
    honest = Following.look
    asked = 0.0

    def seldom(self: Following) -> None:
        nonlocal asked
        if time.monotonic() - asked > _OLD_SECONDS:
            honest(self)
            asked = time.monotonic()

    exchange(Following, "look", seldom)


def _again() -> None:
    def blind(self: RepeatedCommits, item: CommitAgain, turn: Any) -> bool:
        self._coordinator.space.delete(b"o" + item.tx)
        return item.tx not in self._proxy.open

    exchange(RepeatedCommits, "is_new", blind)


def _two_hands() -> None:
    honest = LaneShares._tell  # noqa: SLF001

    def to_all(self: LaneShares, asked: int | None = None) -> list[Told]:
        told = honest(self, asked)
        return [one._replace(lanes=tuple(range(len(self._lanes)))) for one in told]

    exchange(LaneShares, "_tell", to_all)


PLANTS = {
    "blind": _blind,
    "ahead": _ahead,
    "old mark": _old_mark,
    "again": _again,
    "two hands": _two_hands,
}
