"""Changes names from an attached process in modes where a change has several steps: the owner does all of them.

    create, drop, a consumer's ─▶ Call ─▶ the owner's schema ─▶ Return ─▶ look: the names here have it
    alter, seek, trim ─▶ one request each, by this process's own client

Else a process that ends between two steps would leave a name half made. A call is made again at the next owner if
the first one ended without an answer; what that had done already is no error then.

Next: schema_calls.py, the owner's side.
"""

from typing import TYPE_CHECKING, Any

from ...errors import AlreadyExists, UnknownName
from ...proto.ids import PARTITION
from ..catalog import Name, TableInfo, TopicInfo
from ..client_schema import ClientSchema
from ..outcome import Commit
from ..schema import Options, Schema

if TYPE_CHECKING:
    from ..runtime import Runtime
    from .link import Link

_SECONDS = 120.0
"""How long a change may take: it waits for transactions that are under way."""


class OwnersSchema(Schema):
    """Has the owner of the store change names. `own` does what one request does."""

    def __init__(self, runtime: "Runtime", link: "Link", own: ClientSchema) -> None:
        super().__init__(runtime)
        self._link, self._own = link, own
        self.dropped_mark = own.dropped_mark

    def check_tables(self) -> None:
        self._own.check_tables()

    def check_snapshots(self) -> None:
        self._own.check_snapshots()

    def _at_owner(self, call: str, done: type[Exception], name: Name, *arguments: Any) -> None:
        """Calls the owner. `done`: the error of a change that was made before; it is none for a second owner."""
        before = self._link.generation
        decided = False
        try:
            self._link.call(call, *arguments, timeout=_SECONDS)
            decided = True
        except (AlreadyExists, UnknownName) as error:
            decided = True
            if self._link.generation == before or type(error) is not done:
                raise
        finally:
            self._runtime.look()
            self._runtime.names.reload(name, decided)

    def create_topic(
        self, name: str, partitions: int, format: str, options: Options = ()
    ) -> TopicInfo:
        key = Name(PARTITION, name, 0)
        self._at_owner("create_topic", AlreadyExists, key, name, partitions, format, options)
        return self._topic(name)

    def drop(self, info: TopicInfo | TableInfo) -> None:
        self._at_owner("drop_topic", UnknownName, _key(info), info.name, info.id)

    def create_consumer(
        self,
        info: TopicInfo,
        consumer: str,
        individual: bool,
        offsets: dict[int, int],
        exclusive: bool = False,
    ) -> None:
        about = (info.name, info.id, consumer, (individual, exclusive), offsets)
        self._at_owner("create_consumer", AlreadyExists, _key(info), *about)

    def drop_consumer(self, info: TopicInfo, consumer: str) -> None:
        about = (info.name, info.id, consumer)
        self._at_owner("drop_consumer", UnknownName, _key(info), *about)

    def seek(self, info: TopicInfo, consumer: str, offsets: dict[int, int]) -> Commit:
        return self._own.seek(info, consumer, offsets)


def _key(info: TopicInfo | TableInfo) -> Name:
    return Name(PARTITION, info.name, info.id)
