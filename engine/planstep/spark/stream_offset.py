"""Describes how far a stream has read: what Spark keeps as JSON in the checkpoint, and shows in its progress.

    {"store": "5f…", "step": 57, "topics": {"clicks": {"id": 3, "ends": {"0": 100, "1": 90}, "lost": {"1": 7}}},
     "began": {"clicks": {"0": 0, "1": 0}}}

    ends    the next offset of each partition; a batch reads from the last batch's ends to its own
    step    the step that all ends are of, where the mode has steps: a batch has whole transactions
    lost    records that were trimmed before the stream read them, with failOnDataLoss=false
    began   where partitions begin that the last batch's offset did not have
    first   a position without a batch: Spark does not keep it

Spark asks for the first position again where the first batch fails, and by then it may be another one. So the first
batch's end has `began`. By `store` and `id` a stream refuses another store, or another topic of the same name.

Next: stream_look.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Ends = dict[int, int]


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """A topic's id, the next offset by partition, and how many records of each were lost."""

    id: int
    ends: Ends
    lost: Ends = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position of a stream. `step` is None where the mode has no steps, or none fits all ends."""

    store: str
    step: int | None
    topics: dict[str, TopicEnds]
    began: dict[str, Ends] = field(default_factory=dict)
    first: bool = False

    def begin(self, topic: str, partition: int, before: "StreamOffset") -> int:
        """Returns where the batch from `before` to here begins in a partition."""
        began = self.began.get(topic, {}).get(partition)
        return before.topics[topic].ends[partition] if began is None else began

    def to_json(self) -> dict[str, Any]:
        """Returns what Spark keeps; equal offsets have equal texts."""
        topics = {}
        for name, topic in sorted(self.topics.items()):
            lost = {"lost": _texts(topic.lost)} if topic.lost else {}
            topics[name] = {"id": topic.id, "ends": _texts(topic.ends), **lost}
        parsed: dict[str, Any] = {"store": self.store, "topics": topics}
        if self.step is not None:
            parsed["step"] = self.step
        if self.began:
            parsed["began"] = {name: _texts(ends) for name, ends in sorted(self.began.items())}
        if self.first:
            parsed["first"] = True
        return parsed


def offset_of(parsed: Mapping[str, Any]) -> StreamOffset:
    """Reads what `to_json` returned. ValueError for an offset of another source."""
    try:
        topics = {
            name: TopicEnds(topic["id"], _numbers(topic["ends"]), _numbers(topic.get("lost", {})))
            for name, topic in parsed["topics"].items()
        }
        began = {name: _numbers(ends) for name, ends in parsed.get("began", {}).items()}
        return StreamOffset(
            parsed["store"], parsed.get("step"), topics, began, parsed.get("first", False)
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            "the checkpoint is not one of a planstep stream: give this query a checkpointLocation of its own"
        ) from error


def _texts(ends: Ends) -> dict[str, int]:
    return {str(partition): end for partition, end in sorted(ends.items())}


def _numbers(parsed: Mapping[str, int]) -> Ends:
    return {int(partition): end for partition, end in parsed.items()}
