"""Changes names for attached processes, at the store's owner: calls of calls.py, in modes with several steps.

A topic is meant by its name and id: one of the same name that was made meanwhile is another one.

Next: owners_schema.py, which calls these.
"""

from typing import TYPE_CHECKING, Any

from ...errors import AlreadyExists, NotSupported, UnknownName
from ...proto.keys import check_name
from ..catalog import TopicInfo

if TYPE_CHECKING:
    from ..runtime import Runtime

_PARTITIONS_MAX = 10_000


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise NotSupported(f"{value!r:.100} in place of a value of type {kind.__name__}")
    return value


def _name(value: Any) -> str:
    check_name(_checked(value, str))
    return str(value)


def _topic(runtime: "Runtime", name: Any, id: Any) -> TopicInfo:
    info = runtime.names.topics.get(_name(name))
    if info is None or info.id != _checked(id, int):
        raise UnknownName("topic", name)
    return info


def create_topic(runtime: "Runtime", name: Any, partitions: Any, format: Any, options: Any) -> None:
    if not 1 <= _checked(partitions, int) <= _PARTITIONS_MAX:
        raise NotSupported(f"a topic of {partitions} partitions")
    given = tuple(
        (_checked(key, str), value if value is None else _checked(value, int))
        for key, value in _checked(options, tuple)
    )
    runtime.schema.create_topic(_name(name), partitions, _checked(format, str), given)


def drop_topic(runtime: "Runtime", name: Any, id: Any) -> None:
    runtime.schema.drop(_topic(runtime, name, id))


def create_consumer(
    runtime: "Runtime", name: Any, id: Any, consumer: Any, kinds: Any, offsets: Any
) -> None:
    """`kinds`: (individual, exclusive)."""
    info = _topic(runtime, name, id)
    individual, exclusive = (_checked(kind, bool) for kind in _checked(kinds, tuple))
    begin = {
        _checked(partition, int): _checked(offset, int)
        for partition, offset in _checked(offsets, dict).items()
    }
    if not all(0 <= partition < len(info.partitions) for partition in begin):
        raise NotSupported("a partition that the topic does not have")
    with runtime.schema.creating:
        if _has(runtime, info, _name(consumer)):
            raise AlreadyExists(f"topic {info.name!r} has a consumer {consumer!r} already")
        runtime.schema.create_consumer(info, consumer, individual, begin, exclusive)


def drop_consumer(runtime: "Runtime", name: Any, id: Any, consumer: Any) -> None:
    info = _topic(runtime, name, id)
    if not _has(runtime, info, _name(consumer)):
        raise UnknownName("consumer", consumer)
    runtime.schema.drop_consumer(info, consumer)


def _has(runtime: "Runtime", info: TopicInfo, consumer: str) -> bool:
    """Returns whether a topic's consumer was created, or has committed a position."""
    if consumer in runtime.names.consumers.get(info.id, ()):
        return True
    return any(consumer in runtime.views.consumers(tablet) for tablet in info.partitions)
