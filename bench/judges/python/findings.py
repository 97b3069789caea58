"""What was found wrong with a history, by name: how often, and the first few in words.

    of places      place missing · place repeated · place of an aborted one · real-time violation
    of rows        dirty read · stale read · future read · foreign read
    of positions   position gap · position overlap
    of offsets     offset gap · offset overlap · inconsistent offset
    of records     lost · repeated · reordered · torn · aborted data visible · foreign
    of a reader    aborted read · precommitted read · poll skip · non-monotonic poll, and internal ones · unseen
    of a log       internal send skip · non-monotonic send · G0 · G1c · G1c with ww

Next: history.py.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...compare.workloads.base import Verdict

PLACE_MISSING, PLACE_REPEATED = "place missing", "place repeated"
PLACE_OF_ABORTED, REAL_TIME = "place of an aborted one", "real-time violation"
DIRTY_READ, STALE_READ = "dirty read", "stale read"
FUTURE_READ, FOREIGN_READ = "future read", "foreign read"
POSITION_GAP, POSITION_OVERLAP = "position gap", "position overlap"
OFFSET_GAP, OFFSET_OVERLAP = "offset gap", "offset overlap"
INCONSISTENT_OFFSET = "inconsistent offset"
LOST, REPEATED, REORDERED, TORN = "lost", "repeated", "reordered", "torn"
ABORTED_VISIBLE, FOREIGN = "aborted data visible", "foreign"
ABORTED_READ, PRECOMMITTED_READ = "aborted read", "precommitted read"
POLL_SKIP, INTERNAL_POLL_SKIP = "poll skip", "internal poll skip"
NON_MONOTONIC_POLL = "non-monotonic poll"
INTERNAL_NON_MONOTONIC_POLL = "internal non-monotonic poll"
UNSEEN = "unseen"
INTERNAL_SEND_SKIP, NON_MONOTONIC_SEND = "internal send skip", "non-monotonic send"
G0, G1C, G1C_WW = "G0", "G1c", "G1c with ww"

KEPT = 5
"""Of each name, in words."""


@dataclass
class Findings:
    """`counts` by name, allowed ones too; names without one are left out. `looked_at`: how much was checked, so
    that a clean result of nothing is seen to be one."""

    allowed: Collection[str] = ()
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    looked_at: dict[str, int] = field(default_factory=dict)
    readable: dict[int, int] = field(default_factory=dict)
    """When transactions could be read, by number, where that is not when they were marked: see stable.py."""

    def note(self, name: str, text: str, *what: object) -> None:
        """One more; `text` is filled with `what` only if it is kept."""
        count = self.counts[name] = self.counts.get(name, 0) + 1
        if count <= KEPT:
            self.examples.setdefault(name, []).append(text.format(*what))

    def add(self, name: str, count: int, text: str, *what: object) -> None:
        """`count` more, of one kind and cause."""
        if count:
            self.note(name, text, *what)
            self.counts[name] += count - 1

    @property
    def forbidden(self) -> dict[str, int]:
        return {name: n for name, n in self.counts.items() if name not in self.allowed}

    @property
    def clean(self) -> bool:
        return not self.forbidden

    def problems(self) -> list[str]:
        """What is forbidden, in words."""
        return [f"{name}: {text}" for name in self.forbidden for text in self.examples[name]]

    def tell(self, verdict: "Verdict") -> None:
        """Adds what is forbidden to a workload's verdict."""
        for name, count in self.forbidden.items():
            if name == LOST:
                verdict.missing += count
            elif name == REPEATED:
                verdict.duplicated += count
            elif name == REORDERED:
                verdict.out_of_order += count
            else:
                verdict.violations[name] = verdict.violations.get(name, 0) + count
        verdict.problems += self.problems()
