"""Completes commits that were handed in once more: host 0 has found the place, other hosts know their offsets.

    committed, handed in again ─▶ place, details of host 0 ─▶ each other host: has it executed the commit?
                                        ▲                           │ yes: its detail
                                        └── no: asked again later ──┴─▶ all details ─▶ the answer

Next: turn_loop.py.
"""

from collections import deque
from collections.abc import Iterator

from ..host.repeated_commits import detail_of
from ..proto.ids import host_of, tablet_prefix
from ..proto.messages import Part, Parts
from ..proxy.deterministic import Result, role
from .group_commit import Node


class PartialCommits:
    """Invariant: each one that waits is yielded once, with all details."""

    def __init__(self, nodes: list[Node]) -> None:
        self.waiting: deque[tuple[Result, Parts]] = deque()
        self._nodes = nodes

    def completed(self) -> Iterator[Result]:
        """Yields those whose details are all there by now; the others wait on. One thread calls it."""
        for _ in range(len(self.waiting)):
            result, parts = self.waiting[0]
            if all([self._add_detail(result, tablet, part) for tablet, part in parts.items()]):
                yield result
                self.waiting.popleft()
            else:
                self.waiting.rotate(-1)

    def _add_detail(self, result: Result, tablet: int, part: Part) -> bool:
        """Adds a participant's detail of a commit; returns False while its host has not executed it."""
        node = self._nodes[host_of(tablet)]
        if tablet in result.details or not role(part)[1]:
            return True
        if node.down:
            return False
        store = node.host.store
        if store.get(tablet_prefix(tablet) + b"t" + result.tx) is not None:
            return False
        result.details[tablet] = detail_of(part, tablet, store, result.step, result.n)
        return True
