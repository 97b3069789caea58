"""Keeps retention from trimming what transactions of other processes are about to consume.

    attached   open transactions ─▶ lowest offset of each partition ─ changed ─▶ Floor, at most once a second
    owner      Floor of each link ─▶ Floors.lowest ─▶ maintenance trims no further
                                  └ a link's end forgets its floors

A floor that is not told yet costs the transaction a conflict, never a record: its condition fails once the records
are trimmed. What it leaves out: the owner's own transactions, which maintenance asks the face for.

Next: maintenance.py.
"""

from collections.abc import Callable, Iterable, Mapping

from ..proto.frames import Floor

_TABLETS_MAX = 10_000


class Floors:
    """The floors of links, at the owner. The server's thread changes them, and maintenance reads them."""

    def __init__(self) -> None:
        self.links: dict[int, dict[int, int]] = {}

    def take(self, link: int, floors: Iterable[tuple[int, int]]) -> None:
        """Takes all floors of a link, in place of those that it told before."""
        told = dict(floors)
        if told:
            self.links[link] = told
        else:
            self.drop(link)

    def drop(self, link: int) -> None:
        self.links.pop(link, None)

    def lowest(self, tablet: int) -> int | None:
        """Returns the lowest offset of a partition that a transaction of another process is about to consume."""
        known = [floors[tablet] for floors in list(self.links.values()) if tablet in floors]
        return min(known, default=None)


class FloorReport:
    """Tells the floors of an attached process's own transactions."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}

    def again(self) -> None:
        """Forgets what was told: there is another owner."""
        self._told = {}

    def tell(self, floors: Mapping[int, int], send: Callable[[Floor], None]) -> None:
        """Sends the floors if they have changed. Call it about once a second."""
        now = dict(sorted(floors.items())[:_TABLETS_MAX])
        if now != self._told:
            self._told = now
            send(Floor(tuple(now.items())))
