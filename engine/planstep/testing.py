"""Gives tests of programs that use planstep an engine in memory, with faults drawn from a seed.

    def test_transfer():
        with planstep.testing.engine(conflicts=0.3, seed=7) as db:
            ...                                             db.run must come through

The pytest fixture `planstep_db` needs no import; `@pytest.mark.planstep(conflicts=0.3)` sets its options. The
seed is the test's name, and is shown when the test fails.

    conflicts      this share of the commits that read or consumed something is refused with Conflict
    lost_answers   this share of the commits raises Undetermined: done or not, outcome() tells
    crash(db)      the engine as another process finds it after kill -9; `db` itself is dead

A program that is correct under these faults is correct under real ones. Next: runtime/runtime.py.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .api.engine import Engine
from .api.open_engine import Settings
from .api.slots import MEMORY, Slot
from .errors import Conflict, NotSupported, PlanstepError, Undetermined
from .host.inputs import Commit as CommitInput
from .host.inputs import StageInput
from .proto.ids import tx_text
from .proto.messages import PartitionPart, ShardPart
from .proxy.deterministic import role
from .runtime.group_commit import ReplySink, Sink, Waiter
from .runtime.replies import ReplyBook
from .runtime.runtime import Runtime
from .runtime.turn_loop import TurnLoop
from .store.memory_store import MemoryStore


class _Faults:
    def __init__(self, conflicts: float, lost_answers: float, seed: int) -> None:
        for name, share in (("conflicts", conflicts), ("lost_answers", lost_answers)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is a share from 0 to 1, not {share!r}")
        self.conflicts = conflicts
        self.lost_answers = lost_answers
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def draw(self) -> float:
        with self._lock:
            return self._random.random()


class _FaultyReplies(ReplyBook):
    """Loses some answers."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lost: dict[bytes, None] = {}

    def hand_out(self) -> None:
        for tx in list(self.lost):
            if tx in self.answers:
                self.lost.pop(tx, None)
                self.answers[tx] = _lost(tx)
        super().hand_out()


class _FaultyTurns(TurnLoop):
    """Refuses some commits before they are sent."""

    faults: _Faults | None = None
    _replies: _FaultyReplies

    def enqueue(
        self, item: CommitInput | StageInput, future: ReplySink | Sink | None, wait: float | None
    ) -> Waiter:
        faults = self.faults
        if faults is None or isinstance(item, StageInput) or not self._of_a_user(item):
            return super().enqueue(item, future, wait)
        draw = faults.draw()
        conditional = [tablet for tablet, part in item.parts.items() if role(part)[0]]
        if conditional and draw < faults.conflicts:
            kind, name, part = self.names.of_tablet(conditional[0])
            conflict = Conflict(
                kind=kind, name=name, part=part, expected="", actual="a seeded fault"
            )
            return self._answered_with(item, future, conflict)
        if draw > 1 - faults.lost_answers:
            if faults.draw() < 0.5:
                self._replies.lost[item.tx] = None
            else:
                return self._answered_with(item, future, _lost(item.tx))
        return super().enqueue(item, future, wait)

    def _of_a_user(self, item: CommitInput) -> bool:
        """Returns whether a commit is the caller's, not the engine's own nor a change of names or positions."""
        return all(
            isinstance(part, ShardPart)
            or (isinstance(part, PartitionPart) and not part.seeks and part.trim is None)
            for part in item.parts.values()
        )

    def _answered_with(
        self, item: CommitInput, future: ReplySink | Sink | None, error: Exception
    ) -> Waiter:
        waiter = self._replies.waiting[item.tx] = Waiter(item.tx, 0, future)
        self._replies.note_refused(item.tx, error)
        self._replies.answers[item.tx] = error
        self._replies.answer()
        return waiter


class _FaultyRuntime(Runtime):
    """Refuses some commits before they are sent, and loses some answers."""

    reply_book = _FaultyReplies
    turn_loop = _FaultyTurns
    turns: _FaultyTurns
    reopened: Engine | None = None  # the engine that `crash` returned


def _lost(tx: bytes) -> Undetermined:
    return Undetermined(
        f"transaction {tx_text(tx)}: a seeded fault took the answer; "
        f"outcome({tx_text(tx)!r}) tells how it ended"
    )


def _open(stores: list[MemoryStore], settings: Settings, faults: _Faults) -> Engine:
    runtime = _FaultyRuntime(list(stores), trace=settings.trace)
    slot = Slot()
    slot.engine = db = Engine(MEMORY, runtime, settings, slot)
    runtime.turns.faults = faults
    return db


@contextmanager
def engine(
    conflicts: float = 0.0,
    lost_answers: float = 0.0,
    seed: int = 0,
    hosts: int = 1,
) -> Iterator[Engine]:
    """Opens an engine in memory with faults drawn from a seed (see the module); the `with` closes it."""
    settings = Settings(hosts=hosts)
    settings.check()
    stores = [MemoryStore(bytes([number]) * 16) for number in range(hosts)]
    db = _open(stores, settings, _Faults(conflicts, lost_answers, seed))
    try:
        yield db
    finally:
        _close(db)


def crash(db: Engine) -> Engine:
    """Kills an engine of this module and returns one that has exactly what was committed.

    Close that one, or kill it too.
    """
    runtime = db.context.runtime
    if not isinstance(runtime, _FaultyRuntime) or runtime.turns.faults is None:
        raise NotSupported("crash() is for engines of planstep.testing; kill a process for others")
    stores: list[Any] = [node.host.store for node in runtime.nodes]
    for node in runtime.nodes:  # from here on nothing more becomes durable
        with node.lock:
            node.down = True
            node.inbox.clear()
    runtime.turns.stop_everything(
        Undetermined("the engine was killed; outcome() of the next one tells")
    )
    runtime.replies.answer()
    try:
        db.close()
    except PlanstepError:
        pass  # from a writer with buffered records, which are lost
    runtime.reopened = _open(
        [store.crash() for store in stores], db.context.settings, runtime.turns.faults
    )
    return runtime.reopened


def _close(db: Engine | None) -> None:
    while db is not None:
        db.close()
        assert isinstance(db.context.runtime, _FaultyRuntime)
        db = db.context.runtime.reopened
