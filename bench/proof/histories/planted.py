"""Plants bugs in the engine of a writing process, for the row's negative controls.

    blind   a vote ignores the rows that the transaction read
    ahead   an outcome and other processes show a commit before the owner's next transaction sees it

Next: writer.py.
"""

import time
from typing import Any

from ....coordinator.plan import OutcomeRow
from ....host.versions import History
from ....proto.ids import COORDINATOR_ID, tablet_prefix, tx_parse
from ....proto.messages import ShardPart
from ....runtime.outcome import Outcome
from ....runtime.outcomes import Outcomes, outcome_of
from ....tablets.shard import Shard
from ..patching import exchange

_AHEAD_SECONDS = 0.002


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


PLANTS = {"blind": _blind, "ahead": _ahead}
