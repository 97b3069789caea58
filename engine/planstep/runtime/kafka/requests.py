"""Sends requests of group members and administrators, for hooks.py: position commits, joins and leaves.

Next: ../client_requests.py, which sends the rest.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...proto.kafka.coordinators import group_of
from ...proto.kafka.messages import Join, Leave, OffsetCommit, TrimTo
from ..client_requests import ClientRequests
from .producers import check_identity

if TYPE_CHECKING:
    from .hooks import KafkaHooks


class Requests(ClientRequests):
    """Sends a group's requests beside those of every client."""

    _mode: "KafkaHooks"

    def __init__(self, mode: "KafkaHooks") -> None:
        super().__init__(mode, TrimTo)
        self._members = 0

    def commit_positions(self, consumer: str, offsets: Mapping[int, int | None]) -> None:
        """Moves or forgets positions outside of transactions, as an administrator does."""
        moved = tuple(offsets.items())

        def make(client: int, request: int) -> OffsetCommit:
            return OffsetCommit(client, request, consumer, -1, "", moved)

        self.request(group_of(consumer, self._runtime.hosts), make)
        for producer in list(self._mode.writing.producers.values()):
            for tablet in offsets:
                producer.positions.pop((consumer, tablet), None)

    def join(self, consumer: str, name: str) -> tuple[int, str]:
        """Makes a member join a group; returns (generation, member)."""
        check_identity(name)
        with self._client.locked():
            self._members += 1
            member = f"{name or 'reader'}-{self._runtime.incarnation}-{self._members}"
        return self.rejoin(consumer, member), member

    def rejoin(self, consumer: str, member: str) -> int:
        """Returns the generation that a member belongs to now."""
        group = group_of(consumer, self._runtime.hosts)
        joined = self.request(group, lambda client, req: Join(client, req, consumer, member))
        generation: int = joined[0]
        return generation

    def leave_all(self, incarnation: str) -> None:
        """Takes all members of a process that is gone out of their groups; does not wait for it."""
        views = self._mode.in_place_views
        for tablet in self._mode.coordinators():
            for key, (_, members) in views.rows(tablet).scan(b"g", b"h"):
                for member in members:
                    if member.rsplit("-", 2)[1:-1] == [incarnation]:
                        self.leave(key[1:].decode(), member)

    def leave(self, consumer: str, member: str) -> None:
        """Takes a member out of its group; does not wait for it."""
        if self._runtime.turns.closed:
            return
        group = group_of(consumer, self._runtime.hosts)
        with self._client.locked():
            call = self._client.call(lambda *_: None)
            self._core.ask(call, group, lambda client, req: Leave(client, req, consumer, member))
        self._client.deliver()
