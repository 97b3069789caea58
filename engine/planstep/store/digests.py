"""Compares the tables of two folders of one store, as of one turn, by the digests that checkpoints keep.

    owner      a turn with row M ─▶ frozen behind it ─▶ checkpoint ─▶ digests ─▶ row D of a later turn
    follower   takes it ─▶ checkpoint, before the next ─▶ digests ───────▶ equal? ◀──┘

A tablet's digest is a sum over its rows, so it does not depend on when checkpoints were made. It
does on how rows are packed into pages, which zlib may do otherwise in another version: that tablet is left out.

Next: tables/digested_rows.py.
"""

from typing import NamedTuple

from ..errors import Diverged
from ..proto.ids import tablet_text
from .tables.pages import PAGED


class Digests(NamedTuple):
    """The digests as of a turn: (its prefix, digest, entries) for each tablet, in order."""

    turn: int
    tablets: tuple[tuple[bytes, int, int], ...]

    def compare(self, theirs: "Digests") -> None:
        """Raises Diverged, which names the first tablet that differs."""
        here, there = _by_tablet(self), _by_tablet(theirs)
        for prefix in sorted(here.keys() | there.keys()):
            (_, rows), (_, others) = mine, other = (
                here.get(prefix, _EMPTY),
                there.get(prefix, _EMPTY),
            )
            if mine != other:
                tablet = tablet_text(int.from_bytes(prefix, "big"))
                raise Diverged(
                    f"as of turn {self.turn} {tablet} has {rows} rows here, and {others} rows at the owner, with "
                    "other digests: `planstep replicate diff` names a row, and `planstep verify` tells whose "
                    "folder is damaged; begin that one anew"
                )


_EMPTY = 0, 0


def _by_tablet(digests: Digests) -> dict[bytes, tuple[int, int]]:
    return {
        bytes(prefix): (digest, rows)
        for prefix, digest, rows in digests.tablets
        if rows and prefix != PAGED[:4]
    }
