"""Tells the owner of a store what it must know to share consumers among processes.

Next: ../../runtime/shares_of_links.py.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...coordinator.claims import Range
from ...errors import PlanstepError
from ..transaction.snapshot_reader import Reading

if TYPE_CHECKING:
    from ...runtime.catalog import TopicInfo
    from ...runtime.process_shares import Key
    from ...runtime.runtime import Runtime


class StoredConsumers:
    """The consumers of a store as it is now; see Consumers."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._known: dict[int, str] = {}  # topic id → name, as it was found last

    def lanes(self, topic: int) -> int:
        info = self._info(topic)
        return 0 if info is None else len(info.partitions)

    def individual(self, topic: int, consumer: str) -> bool:
        info = self._info(topic)
        return info is not None and consumer in info.individual

    def free(self, key: "Key", lane: int) -> Iterable[Range]:
        topic, consumer = key
        info = self._info(topic)
        if info is None:
            return []
        tablet, views = info.partitions[lane], self._runtime.views
        try:
            with self._runtime.snapshot() as snap:
                pending = views.pending_ranges(tablet, consumer)
                return Reading(self._runtime, snap).free(tablet, consumer, pending)
        except PlanstepError:  # its host is stopped, or the log is damaged: readers say so
            return []

    def _info(self, topic: int) -> "TopicInfo | None":
        topics = self._runtime.names.topics
        info = topics.get(self._known.get(topic, ""))
        if info is None or info.id != topic:
            info = next((info for info in list(topics.values()) if info.id == topic), None)
            if info is None:
                self._known.pop(topic, None)
            else:
                self._known[topic] = info.name
        return info
