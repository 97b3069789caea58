"""What a mode does its own way: the runtime has one of these; here as mode "deterministic" has it.

    face, cli, reshard, spark ─ has_tables? join, fence … ─▶ runtime.hooks ─┬ ModeHooks: writers have no identities
                                                                            └ kafka/hooks.py: producers, groups

Nobody asks which mode it is. A mode also says what its runtime is made of: views, schema, transactions, outcomes.

Next: transactions.py.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import NotSupported
from ..proto.messages import Parts
from .identity import ByName, Identity
from .outcomes import Outcomes
from .schema import Schema
from .snapshot_reads import Views
from .transactions import Transactions

if TYPE_CHECKING:
    from .runtime import Runtime


class ModeHooks:
    """Each may be answered otherwise by a mode."""

    mode = "deterministic"
    sends_at_once = False
    """What a transaction writes leaves as it is written."""
    reads_may_wait = False
    """Also on one host, for other transactions' ends or for their own producer."""
    one_at_a_time = False
    """Who commits waits for the end before the next transaction."""
    has_tables = True
    """There are tables, beside topics, in the same transactions."""
    has_places = True
    """A commit has a place in one order of all, and what is read is as of a step of it."""
    by_name: ByName | None = None
    """How who looks for open transactions finds them, where they are known by their writers' names, not by their
    own ids; who ends one says so with `ready`."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime

    # what the runtime is made of, in this mode ----------------------------------------------

    def views(self) -> Views:
        runtime = self.runtime
        return Views(runtime.nodes, runtime.turns.check_open, runtime.rtt_ms)

    def schema(self) -> Schema:
        return Schema(self.runtime)

    def transactions(self) -> Transactions:
        made = self.runtime
        return Transactions(made.nodes, made.turns, made.threads, made.replies, made.views)

    def outcomes(self) -> Outcomes:
        return Outcomes(self.runtime)

    def begin(self) -> None:
        """The runtime is there, but for its threads."""

    def close(self) -> None:
        """The engine closes: what a mode ends before its hosts take no turn any more."""

    def stats(self) -> dict[str, Any]:
        """What a mode counts beside statistics.py."""
        return {}

    # what the face asks ---------------------------------------------------------------------

    @property
    def protocol_version(self) -> int | None:
        """Of a protocol that has several."""
        return None

    def assign(self, tx: bytes, worker: Any) -> None:
        """Whose transaction it is: something to modes whose writers have identities."""

    def forget(self, tx: bytes) -> None:
        """A transaction has ended that never asked for anything."""

    def may_send(self, tx: bytes, waiting_bytes: int, outboxes: Mapping[str, Any]) -> bool:
        """Whether what a transaction has gathered leaves now: so many bytes, by topic with a column a partition."""
        return False

    def statement(self, parts: Parts) -> Parts:
        """The parts of a statement of its own, which is more than one write of a transaction here."""
        return parts

    def fence(self, tx: bytes, consumer: str, generation: int, member: str) -> None:
        """Group metadata that go with a transaction's positions."""

    def join(self, consumer: str, name: str) -> tuple[int, str] | None:
        """(generation, member) of a group that has them."""
        return None

    def rejoin(self, consumer: str, member: str) -> int:
        raise AssertionError("no groups here")

    def leave(self, consumer: str, member: str) -> None:
        """A member leaves its group."""

    def producer(self, name: str) -> Any:
        """Who writes under a name, where writers have identities."""
        return None

    def ready(self, worker: str, alone: bool = False) -> None:
        """What another one left under this name is ended, where writers have identities; `alone`: also what this
        engine has open under it."""

    def wait_stable(self, tablet: int) -> None:
        """All that is committed in a partition can be read, where that may take a while."""

    def check_exact(self) -> None:
        """NotSupported where the end of a log cannot be a condition."""

    def tidy(self, now_ms: int) -> None:
        """About every second: what a mode forgets with time."""

    def switch_log_batching(self, on: bool) -> None:
        raise NotSupported(f'mode "{self.mode}" has no logs of coordinators: "kafka" has them')

    def transactional_ids(self, only_open: bool) -> list[Identity]:
        raise NotSupported(f'mode "{self.mode}" has no transactional ids: "kafka" has them')

    def retire(self, producer: Any) -> None:
        """Who wrote under a name begins nothing more."""

    def flush(self, tx: bytes) -> None:
        """Waits until what was sent ahead is durable, where sending does not wait for that itself."""
