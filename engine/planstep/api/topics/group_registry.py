"""Keeps an engine's consumer groups, by topic and consumer, from their first reader until they are empty.

Next: consumer_group.py.
"""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .consumer_group import Group

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ...runtime.runtime import Runtime
    from .group_state import Member


class GroupRegistry:
    """The groups of one engine. Threads share it."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._groups: dict[tuple[int, str], Group] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def join(
        self,
        info: "TopicInfo",
        consumer: str,
        lease_seconds: float,
        name: str,
        in_flight: int,
        *,
        party: object,
    ) -> "tuple[Group, Member]":
        """Adds a reader to the group of this consumer; the first reader's `lease_seconds` hold for all. PulsarError
        ConsumerBusy for the second reader of an exclusive one, unless both are of one `party`."""
        joined = self._runtime.hooks.join(consumer, name)
        exclusive = consumer in info.exclusive
        if exclusive:
            self.check_free(info, consumer, party)
        with self._lock:
            group = self._groups.get((info.id, consumer))
            if group is None or group.empty:
                if group is not None:
                    group.sharing.close()
                group = Group(self._runtime, info, consumer, lease_seconds)
                self._groups[info.id, consumer] = group
            if exclusive:  # another thread's reader may have come meanwhile
                self._check_party(group, party)
            member = group.join(name, in_flight)
            member.party = party
        if exclusive and not group.sharing.alone:
            try:
                group.sharing.wait(group.waiters, member)
            except BaseException:
                group.leave(member)
                raise
        if joined is not None:
            member.generation, member.id = joined
            group.generation = max(group.generation, member.generation)
            member.producer = self._runtime.hooks.producer(name or member.id)
            member.takes_over = bool(name)
        return group, member

    def check_free(self, info: "TopicInfo", consumer: str, party: object = None) -> None:
        """Raises ConsumerBusy when an exclusive consumer has a reader of another party."""
        group = self._groups.get((info.id, consumer))
        if group is not None:
            group.tidy()  # its reader may have been dropped
            self._check_party(group, party)

    def _check_party(self, group: Group, party: object) -> None:
        if any(member.party is not party for member in list(group.members)):
            where = f"topic {group.info.name!r}, consumer {group.consumer!r}"
            self._runtime.hooks.check_exclusive(busy=where)

    def tidy(self) -> None:
        """Ends leases that ran out, and removes groups without readers and flights."""
        for key, group in list(self._groups.items()):
            group.tidy()
            with self._lock:
                if group.empty and self._groups.get(key) is group:
                    del self._groups[key]
                    group.sharing.close()

    def close(self, error: Exception) -> None:
        """Fails all commits that still wait for their turn with this error."""
        for group in self:
            group.close(error)
