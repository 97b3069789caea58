"""Opens a replicated store: takes what its shared log has, and begins a term in which each turn goes there first.

    root of the log: the folder's store? ─▶ the folder's last turn is in the log ─▶ turns behind it are taken
                                                                                           ▼
         owner ◀─ BEGIN, in the log first, then taken ◀─ closed, or of this folder, or to be taken over
                    └ Fenced: the last owner has gone on ─▶ once more

The folder is a cache of the shared log. It may be empty, or old: whatever it lacks is taken from
the log. A folder that has what the log has not is Diverged, and nothing is changed.

Left out: hosts beyond the first, stores in memory. snapshotting.py has snapshots, follower.py followers.

Next: snapshotting.py; the rules of ownership are in shared/owner.py.
"""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from ..errors import (
    Corruption,
    EngineClosed,
    Fenced,
    FormatError,
    LogUnreachable,
    NoSpace,
    OwnedElsewhere,
    Refused,
    StoreClosed,
    WrongMode,
    reason,
)
from ..histogram import SECONDS, Histogram, merged
from ..host.modes import MODES
from ..proto.stored import Stored
from ..shared.entry import Entry, Owner
from ..shared.owner import OwnerRow, Ownership
from ..shared.registry import open_shared_log
from ..shared.root import FORMAT
from ..shared.settings import Replicate
from ..shared.shared_log import Root, SharedLog
from ..store import DiskStore
from ..store.digests import Digests
from ..store.layers import Changes
from ..store.log.log_writer import LogEnd
from ..store.log.records import decode_pairs
from ..store.meta import Meta, check_shared
from ..store.replicated import BEAT_KEY, DIGESTS_KEY, MARK_KEY, OPENED_KEY, OWNER_KEY
from ..store.turn import Turn, decode_changes, encode_changes
from .deferred_signals import Uninterrupted
from .replies import own
from .unshipped import ship_rest

Told: TypeAlias = Callable[[int], object]
"""Called with the number of each turn that an opening takes."""
DIGEST_SECONDS = 60.0
"""How often an owner that writes tells followers the digests of its tables, in seconds."""
_LOOK_SECONDS = 0.005
_TRIES = 100
"""How often an owner that goes on writing is taken over, one turn too late each time."""


class Opened(NamedTuple):
    """Row W of a store: who began the term, when, whether it was closed since, and from which folder."""

    who: str
    since_ms: int
    closed: bool
    folder_id: bytes

    @property
    def owner(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since_ms / 1000))
        return f"{self.who}, since {since}"


class ReplicatedFolder:
    """A store's folder, as its shared log sees it (owner.LocalStore)."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store

    @property
    def last_turn(self) -> int:
        return self._store.last_turn

    def owner_row(self) -> OwnerRow | None:
        row: tuple[int, bytes, bytes, bytes] | None = self._store.get(OWNER_KEY)
        return None if row is None else OwnerRow._make(row)

    def opened(self) -> Opened | None:
        row: tuple[str, int, bool, bytes] | None = self._store.get(OPENED_KEY)
        return None if row is None else Opened._make(row)

    def take(self, entry: Entry) -> None:
        """Takes over the turn behind the last one, as its owner wrote it. Corruption if it does not fit."""
        store = self._store
        changes = decode_changes(entry.changes)
        row = changes.get(OWNER_KEY)
        if (entry.turn, entry.address) != (store.last_turn + 1, store.next_address):
            raise Corruption(
                f"{store.folder}: turn {entry.turn} of the shared log, at address {entry.address}, does not follow "
                f"turn {store.last_turn}, which ends at {store.next_address}"
            )
        if not isinstance(row, tuple) or row[:3] != (*entry.owner, entry.before):
            raise Corruption(
                f"turn {entry.turn} of the shared log: its rows name another owner than its entry"
            )
        turn = store.begin()
        turn.overlay.update(changes)
        if entry.payload:
            turn.append_payload(entry.payload)
        turn.dropped.extend(decode_pairs(entry.dropped))
        self._commit(turn)

    def _commit(self, turn: Turn) -> None:
        self._store.commit(turn)
        if self._store.checkpoint_due(time.monotonic()):
            self._store.checkpoint()


class ToldFolder(ReplicatedFolder):
    """A folder that tells of each turn that it takes."""

    def __init__(self, store: DiskStore, told: Told) -> None:
        super().__init__(store)
        self._told = told

    def take(self, entry: Entry) -> None:
        super().take(entry)
        self._told(entry.turn)


class Replication:
    """The shared log of a store that this machine owns (store.replicated.SharedTurns)."""

    def __init__(
        self, log: SharedLog, ownership: Ownership, opened: Opened, beat: float = 0.0
    ) -> None:
        """`beat` as in Replicate."""
        self._log = log
        self.beat = beat
        self._beats = self._marks = self._digested = 0
        self._mark_at = time.monotonic() + DIGEST_SECONDS
        self._appended_at = time.monotonic()
        self._ownership = ownership
        self._opened = opened
        self._begun = self._proved = 0
        """Numbers of the last append or barrier that began, and of the last that ended well."""
        self._failure: BaseException | None = None
        self._closed = False
        self._append_seconds = Histogram(SECONDS)
        self._waits_since: float | None = None
        self.owner_row = ownership.row
        self.failed: Callable[[], object] = lambda: None
        """Called once after an error that no turn met."""

    @property
    def term(self) -> int:
        return self._ownership.term

    def join(self, end: LogEnd) -> None:
        end.ship = self.append

    def flush(self) -> None:
        pass

    def wait_less(self, timeout: float) -> None:
        self._log.wait_less(timeout)

    def await_decided(self, turn: int, check: Callable[[], object]) -> None:
        """Returns once the shared log has a turn of the folder; `check` raises to end that."""

    @property
    def floor_max(self) -> float:
        """The highest floor that the shared log may get: a turn that it surely has, as the folder knows."""
        return math.inf

    def beat_is_due(self) -> bool:
        return bool(self.beat) and time.monotonic() - self._appended_at >= self.beat

    def rows(self, busy: bool, digests: Digests | None) -> Changes:
        rows: Changes = {}
        if self.beat_is_due():
            self._beats += 1
            rows[BEAT_KEY] = _ms(self.beat), self._beats
        if not (rows or busy):
            return rows
        if digests is not None and digests.turn > self._digested:
            self._digested = digests.turn
            rows[DIGESTS_KEY] = digests
        if time.monotonic() >= self._mark_at:
            self._mark_at = time.monotonic() + DIGEST_SECONDS
            self._marks += 1
            rows[MARK_KEY] = self._marks
        return rows

    def closed_row(self) -> Stored:
        return self._opened._replace(closed=True)

    def append(
        self, turn: int, address: int, changes: bytes, dropped: bytes, payloads: list[bytes]
    ) -> Entry:
        self._begun += 1
        began = self._waits_since = time.monotonic()
        try:
            entry = self._ownership.append(turn, address, changes, dropped, payloads)
        except (NoSpace, Refused):
            raise
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._waits_since = None
        self._proved = self._begun
        self._appended_at = time.monotonic()
        self._append_seconds.add(self._appended_at - began)
        return entry

    def stats(self) -> dict[str, Any]:
        """Returns what statistics.py says of it."""
        since = self._waits_since
        return {
            "role": "owner",
            "term": self.term,
            **shared_stats(self._log),
            "append_seconds": merged([self._append_seconds]),
            "waiting_seconds": 0.0 if since is None else time.monotonic() - since,
            "fences": int(isinstance(self._failure, Fenced)),
        }

    def confirm(self, appending: Lock) -> None:
        """An append that begins after the call proves as much as a barrier, and one barrier serves all who wait.

        Behind an append that failed the next slot proves nothing: its turn may have come there, and be trimmed.
        """
        asked = self._begun
        while self._proved <= asked:
            with Uninterrupted():
                if not appending.acquire(timeout=_LOOK_SECONDS):
                    continue
                try:
                    if self._proved <= asked:
                        if self._closed:
                            raise EngineClosed(
                                "the engine was closed before the read was confirmed"
                            )
                        if self._failure is not None:
                            raise _closed_by(self._failure)
                        self._begun += 1
                        self._barrier()
                        self._proved = self._begun
                finally:
                    appending.release()

    def _barrier(self) -> None:
        try:
            self._log.barrier()
        except LogUnreachable as error:
            raise LogUnreachable(
                "the shared log does not answer, so nobody knows whether this machine still owns "
                "the store; read again, or open it with reads='local'"
            ) from error

    def close(self) -> None:
        self._closed = True
        self._log.close()


def shared_stats(log: SharedLog) -> dict[str, Any]:
    """Returns the counters of a shared log, for an owner and a follower."""
    counts = log.counts
    return {
        "floor": counts.floor,
        "requests": dict(counts.requests),
        "sent_bytes": counts.sent_bytes,
        "received_bytes": counts.received_bytes,
        "mine_after_doubt": counts.mine_after_doubt,
        "void_records": counts.void_records,
    }


def _closed_by(failure: BaseException) -> BaseException:
    """Returns the error of a store that closed when an append failed."""
    if isinstance(failure, StoreClosed):
        return own(failure)
    return StoreClosed(f"the store is closed: {reason(failure)}")


def _ms(seconds: float) -> int:
    return math.ceil(1000 * seconds)


class Connection:
    """A shared log, for a folder that is being opened. Whoever has it closes it, unless it leads a store."""

    def __init__(
        self,
        log: SharedLog,
        root: Root,
        takeover: bool,
        local_sync: bool | None = None,
        beat: float = 0.0,
    ) -> None:
        """`local_sync`, `beat` as in Replicate."""
        self.log = log
        self._beat = beat
        self.root = root
        self.followed: Ownership | None = None
        self.leading: Replication | None = None
        self.told: Told | None = None
        """Set if the store is to be followed."""
        self.lead_by: Callable[[SharedLog, Ownership, Opened, DiskStore], Replication] | None = None
        """Makes what leads the store in place of a Replication."""
        self._takeover = takeover
        self._sync = log.local_sync if local_sync is None else local_sync

    def enter(self, store: DiskStore) -> None:
        """Makes the store's folder equal to the shared log, and begins a term unless it is to be followed.

        Overtaken, and errors of `lead`.
        """
        ship_rest(self.log, self.root.store_id, store, ReplicatedFolder(store))
        if self.told is None:
            self.lead(store)
        else:
            self._follow(store, self.told)

    def _follow(self, store: DiskStore, told: Told) -> None:
        """Makes the store's folder equal to the shared log; `followed` reads on in it. Errors as `lead`."""
        self.followed = Ownership(self.log, self.root.store_id, bytes(16))
        self.followed.catch_up(ToldFolder(store, told))
        store.clean = True  # what its owner left under way is the next owner's concern

    def lead(self, store: DiskStore) -> None:
        """Makes the store's folder equal to the shared log, and begins a term. OwnedElsewhere, Fenced, Diverged,
        Trimmed, Corruption, LogUnreachable, NoSpace.
        """
        folder = ReplicatedFolder(store)
        mine = store.meta.folder_id
        before: Owner | None = None
        is_seed = store.last_turn > 0 and folder.owner_row() is None
        ownership: Ownership | None = None
        for _ in range(_TRIES):
            # Each try is an opening of its own, with a nonce of its own: a BEGIN may still be on its way.
            nonce = os.urandom(16)
            if ownership is None:
                ownership = Ownership(self.log, self.root.store_id, nonce)
                ownership.catch_up(folder)
            else:
                ownership = ownership.once_more(nonce, folder)
            opened, owner = folder.opened(), ownership.last_owner
            if opened is not None and not opened.closed and opened.folder_id != mine:
                if not self._takeover:
                    raise OwnedElsewhere(opened.owner)
                if before not in (None, owner):  # it took the store over at the same moment
                    raise Fenced(owner.term, opened.owner)
            before = owner
            try:
                now_ms = time.time_ns() // 1_000_000
                begun = Opened(f"{os.uname().nodename}, process {os.getpid()}", now_ms, False, mine)
                # A seed has given ids of its generations. The term of an empty folder is 1.
                ownership.begin(above=store.generation if is_seed else 0)
                folder.take(_begin(ownership, store, begun, self._beat))
            except Fenced:
                continue
            store.clean = not is_seed if opened is None else opened.closed
            self.leading = (
                Replication(self.log, ownership, begun, self._beat)
                if self.lead_by is None
                else self.lead_by(self.log, ownership, begun, store)
            )
            store.lead(self.leading, self._sync)
            return
        assert opened is not None  # the log was not empty
        busy = OwnedElsewhere(opened.owner)
        busy.args = (f"{busy.owner} writes too fast to be taken over: stop it, or try again",)
        raise busy


def _begin(ownership: Ownership, store: DiskStore, opened: Opened, beat: float) -> Entry:
    """Appends the first turn of a term to the shared log alone."""
    beats = _ms(beat), 0
    rows: Changes = {OWNER_KEY: ownership.row(), OPENED_KEY: opened, BEAT_KEY: beats}
    changes = encode_changes(rows)
    return ownership.append(store.last_turn + 1, store.next_address, changes, b"", [])


def connect(
    settings: Replicate,
    folder: Path,
    meta: Meta | None,
    mode: str | None,
    takeover: bool,
    create: bool,
) -> Connection:
    """Connects a folder to its shared log, which the first machine to open it makes.

    `meta`: the folder's, None for an empty one. Only an empty folder makes a log, if it may `create` one.
    NotSupported, Diverged, WrongMode, FormatError, IoError.
    """
    root = None
    if meta is None and create:
        root = Root(os.urandom(16), mode or "deterministic", FORMAT)
    elif meta is not None:
        check_shared(folder, meta, meta.shared_id)
    log, root = open_shared_log(settings.url, root, settings.log_timeout)
    try:
        if meta is not None:
            check_shared(folder, meta, root.store_id)
        if root.mode not in MODES:
            raise FormatError(
                f"the store of this shared log has mode {root.mode!r}, which this version does not know: "
                "use a newer one"
            )
        if mode not in (None, root.mode):
            raise WrongMode("mode", root.mode, mode)
    except BaseException:
        log.close()
        raise
    return Connection(log, root, takeover, settings.syncs_folder, settings.beat)
