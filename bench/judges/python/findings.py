"""Collects the anomalies of a history by name: their number, and the first few in words.

    of places      place missing · place repeated · place of an aborted one · real-time violation
    of rows        dirty read · stale read · future read · foreign read
                   dirty or foreign read by an uncommitted one
    of positions   position gap · position overlap
    of offsets     offset gap · offset overlap · inconsistent offset
    of records     lost · repeated · reordered · torn · aborted data visible · foreign
    of a reader    aborted read · precommitted read · poll skip · non-monotonic poll, both also internal · unseen
    of inputs      input used twice · acknowledged twice
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
UNCOMMITTED_DIRTY_READ = "dirty read by an uncommitted one"
UNCOMMITTED_FOREIGN_READ = "foreign read by an uncommitted one"
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
USED_TWICE, ACKNOWLEDGED_TWICE = "input used twice", "acknowledged twice"
G0, G1C, G1C_WW = "G0", "G1c", "G1c with ww"

EXAMPLES_MAX = 5
"""Examples in words for each name."""


@dataclass
class Findings:
    """The anomalies of a history. `counts` by name has allowed ones too, and no zeros.

    `looked_at` says how much was checked, so that a clean result of an empty check shows as one.
    """

    allowed: Collection[str] = ()
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    looked_at: dict[str, int] = field(default_factory=dict)
    readable: dict[int, int] = field(default_factory=dict)
    """By number, when transactions could be read, if that was later than their markers: see logs.readable."""

    def note(self, name: str, text: str, *what: object) -> None:
        """Counts one more; formats `text` with `what` only if it is kept."""
        count = self.counts[name] = self.counts.get(name, 0) + 1
        if count <= EXAMPLES_MAX:
            self.examples.setdefault(name, []).append(text.format(*what))

    def add(self, name: str, count: int, text: str, *what: object) -> None:
        """Counts `count` more, of one kind and cause."""
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
        """Returns the forbidden anomalies, in words."""
        return [f"{name}: {text}" for name in self.forbidden for text in self.examples[name]]

    def tell(self, verdict: "Verdict") -> None:
        """Adds forbidden anomalies to a workload's verdict."""
        counts = self.forbidden
        verdict.missing += counts.pop(LOST, 0)
        verdict.duplicated += counts.pop(REPEATED, 0)
        verdict.out_of_order += counts.pop(REORDERED, 0)
        for name, count in counts.items():
            verdict.violations[name] = verdict.violations.get(name, 0) + count
        verdict.problems += self.problems()
