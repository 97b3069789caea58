"""Models the lines between clients and hosts: messages may be lost, repeated, delayed or reordered.

    send ─▶ cut? lost? ─▶ one copy, or two ─▶ slow? clogged? ─▶ its time in the queue of events ─▶ arrive
                                                └ behind one that was sent later: reordered

An end of a line is a number: a host's from 0 on, a client's below 0. A clog holds messages until it opens; a cut
loses them. Each fault is counted by its class.

Next: clients.py.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

Link = tuple[int, int]
After = Callable[[float, Callable[[], None]], None]


class Lines:
    """Carries messages between ends. Invariant: draws depend only on the seed and on the messages sent."""

    def __init__(self, seed: str, after: After, faults: Counter[str], slow_ms: float) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.lose = self.repeat = self.slow = 0.0
        self._slow_ms = slow_ms
        self._after = after
        self._clogged: dict[Link, list[Callable[[], None]]] = {}
        self._cut: dict[Link, int] = {}  # the number of cuts in force
        self._sent: dict[Link, int] = {}
        self._arrived: dict[Link, int] = {}
        self._healed = 0

    def send(
        self,
        what: str,
        link: Link,
        arrive: Callable[[], None],
        held_ms: float = 0.0,
        once: bool = False,
    ) -> None:
        """Sends a message. `held_ms`: extra delay; a delayed one is not lost by chance. `once`: never repeated."""
        draw = self.random
        if link in self._cut:
            self.faults[f"{what} cut off"] += 1
            return
        if draw.random() < self.lose and not held_ms:
            self.faults[f"{what} lost"] += 1
            return
        copies = 1
        if draw.random() < self.repeat and not once:
            self.faults[f"{what} repeated"] += 1
            copies = 2
        number = self._sent[link] = self._sent.get(link, 0) + 1
        for _ in range(copies):
            delay_ms = held_ms + draw.uniform(0.2, 2.0)
            if draw.random() < self.slow:
                self.faults[f"{what} delayed"] += 1
                delay_ms += draw.uniform(5, self._slow_ms)
            self._after(delay_ms, partial(self._arrive, what, link, number, arrive))

    def _arrive(self, what: str, link: Link, number: int, arrive: Callable[[], None]) -> None:
        held = self._clogged.get(link)
        if held is not None:
            self.faults[f"{what} held by a clog"] += 1
            held.append(partial(self._arrive, what, link, number, arrive))
            return
        newest = self._arrived.get(link, 0)
        if number < newest:
            self.faults[f"{what} reordered"] += 1
        self._arrived[link] = max(number, newest)
        arrive()

    # links that stop ------------------------------------------------------------------------

    def clog(self, links: Iterable[Link], ms: float) -> None:
        for link in links:
            if link not in self._clogged:
                self._clogged[link] = []
                self._after(ms, partial(self._unclog, link, self._healed))

    def _unclog(self, link: Link, healed: int) -> None:
        if healed == self._healed:  # otherwise healing opened it, and it may be clogged again
            for arrive in self._clogged.pop(link):
                arrive()

    def cut(self, links: Iterable[Link], ms: float) -> None:
        cut = tuple(links)
        for link in cut:
            self._cut[link] = self._cut.get(link, 0) + 1
        self._after(ms, partial(self._join, cut, self._healed))

    def _join(self, links: tuple[Link, ...], healed: int) -> None:
        if healed == self._healed:
            for link in links:
                self._cut[link] -= 1
                if not self._cut[link]:
                    del self._cut[link]

    def heal(self) -> None:
        self.lose = self.repeat = self.slow = 0.0
        self._healed += 1
        self._cut.clear()
        clogged, self._clogged = self._clogged, {}
        for held in clogged.values():
            for arrive in held:
                arrive()
