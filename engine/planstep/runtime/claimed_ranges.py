"""Keeps the ranges that this process has claimed of one lane of an individual consumer.

    ask ─▶ take: claimed ─▶ begin: in hand ─▶ end: committed ─▶ consumed ─▶ freed with the next question
                    └───────────────◀─────────────┘ not committed: read again here

It asks for several batches at once, before it has read the last ones. Next: process_shares.py.
"""

from collections.abc import Sequence

from ..coordinator.claims import Range, counted, merged, without

_BATCHES = 8
"""The batches that one question asks for: a message each eighth batch."""
_AGAIN_SECONDS = 1.0
"""A lane that had nothing to claim is asked for again after this long: a consumer may have been moved back."""


class ClaimedRanges:
    """Invariant: `claimed` and `in_hand` are disjoint and ascending; at the owner both are this process's."""

    def __init__(self) -> None:
        self.claimed: list[Range] = []
        self.in_hand: list[Range] = []
        self.ended: list[Range] = []
        """Ranges to be freed: they are consumed, or have no record."""
        self.asked = False
        """A question is on its way."""
        self._brought = False
        self._nothing_below = 0
        self._again_at = 0.0

    @property
    def all(self) -> list[Range]:
        return merged([*self.claimed, *self.in_hand])

    def others(self, end: int) -> list[Range]:
        """Returns the ranges below `end` that this process may not read now."""
        return without([(0, end)], self.claimed)

    def begin(self, begin: int, end: int) -> bool:
        """Takes a claimed range in hand; False if it is not claimed, or in hand already."""
        if without([(begin, end)], self.claimed):
            return False
        self.claimed = without(self.claimed, [(begin, end)])
        self.in_hand = merged([*self.in_hand, (begin, end)])
        return True

    def end(self, begin: int, end: int, committed: bool) -> None:
        before, self.in_hand = self.in_hand, without(self.in_hand, [(begin, end)])
        if committed:
            self.ended.append((begin, end))
        elif self.in_hand != before:  # else the owner has given it to another process
            self.claimed = merged([*self.claimed, (begin, end)])

    def prune(self, end: int, back: Sequence[Range]) -> None:
        """Gives up what was looked through up to `end` and has no record, except for what is held `back`."""
        kept = without(self.claimed, without([(0, end)], merged(back)))
        self.ended += without(self.claimed, kept)
        self.claimed = kept

    def wanted(self, empty: bool, end: int, most: int, now: float) -> int:
        """Returns how many records to ask for, 0 for not now. `end`: the log's, as it was looked at; `empty`: no
        claimed range has a record below it. `most`: the records of a batch."""
        if self.asked or not (empty or counted(self.claimed) < _BATCHES // 2 * most):
            return 0
        if end <= self._nothing_below and now < self._again_at:
            return 0
        self.asked = True
        self._nothing_below, self._again_at = end, now + _AGAIN_SECONDS
        return _BATCHES * most

    def lose(self) -> None:
        """Notes that a question will have no answer."""
        self.asked = self._brought = False
        self._nothing_below = 0

    def bring(self) -> list[Range]:
        """Returns what this process has, for an owner to confirm."""
        self._brought = True
        return self.all

    def take(self, ranges: Sequence[Range]) -> None:
        """Takes what the owner has confirmed, then the answer to a question, or what became free since."""
        if self._brought:
            self._brought = False
            others = without([(0, 1 << 63)], merged(ranges))
            self.claimed = without(self.claimed, others)
            self.in_hand = without(self.in_hand, others)
            return
        self.asked = False
        if ranges:
            self._nothing_below = 0
            self.claimed = merged([*self.claimed, *without(merged(ranges), self.all)])

    def to_free(self) -> list[Range]:
        """Returns the ranges to be freed now, once."""
        ended, self.ended = merged(self.ended), []
        return ended
