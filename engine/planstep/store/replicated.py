"""Defines what a replicated store has of its shared log: rows of host 0, which its owner's turns write.

    R   term, nonce, chain of the entry before, its mark     each turn: the folder's place in the shared log
    W   who, since, closed, folder id                        each BEGIN, and the last turn before a close
    M   count                                                a turn as of which tables are digested: digests.py
    D   turn with row M, digests of its tables               the next turn after these are known
    S   term, place before a turn that the log has       each turn of mode "async": runtime/shipping.py
    B   milliseconds between two beats, 0: none; a count     each BEGIN, and a turn of its own where none came

Being rows, they are recovered, checkpointed and verified as all others are. A turn's way:

    commit ─▶ R into the turn ─▶ room in the local log ─▶ shared log ─▶ local log, not synced ─▶ shown
                                 └ NoSpace: no effect     ├ Fenced: no effect, the store closes
                                                          ├ NoSpace, Refused: no effect
                                                          └ any other error: in doubt, the store closes

From the first byte that is sent until the local log has the turn, no error takes the turn back.

Next: disk_store.py.
"""

from threading import Lock
from typing import Protocol

from ..errors import StoreClosed
from ..proto.ids import HOST, tablet_id, tablet_prefix
from ..proto.stored import Stored
from .digests import Digests
from .layers import Changes
from .log.log_writer import LogEnd

_HOST = tablet_prefix(tablet_id(HOST, 0, 0))
OWNER_KEY = _HOST + b"R"
OPENED_KEY = _HOST + b"W"
BEAT_KEY = _HOST + b"B"
MARK_KEY = _HOST + b"M"
DIGESTS_KEY = _HOST + b"D"
SHIPPED_KEY = _HOST + b"S"
OWN_KEYS = frozenset((OWNER_KEY, OPENED_KEY, BEAT_KEY, MARK_KEY, DIGESTS_KEY, SHIPPED_KEY))


class SharedTurns(Protocol):
    """A store's shared log, for the owner. The store releases it when it is closed."""

    @property
    def term(self) -> int: ...

    def join(self, end: LogEnd) -> None:
        """Gets each turn of the store from now on."""

    def flush(self) -> None:
        """Returns once the shared log has all turns. LogUnreachable, Fenced."""

    def rows(self, busy: bool, digests: Digests | None) -> Changes:
        """Returns rows that the next turn has besides; it comes for them alone, too, if it is not `busy`.

        `digests`: of the tables as of the last turn that had row M.
        """

    def owner_row(self) -> Stored:
        """Returns row R of the next turn."""

    def closed_row(self) -> Stored:
        """Returns row W of the last turn."""

    def confirm(self, appending: Lock) -> None:
        """Returns once no other machine had begun a term at some moment since the call. It takes `appending`, which
        is held during an append. Fenced, LogUnreachable.
        """

    def close(self) -> None: ...


def stop_sending(log: LogEnd, error: BaseException) -> None:
    """Closes the store behind a turn that may be in the shared log and is not written: nothing may follow it.

    The caller raises `error`, unless this raises a clearer one.
    """
    log.broken = error
    if isinstance(error, StoreClosed):
        error.in_doubt = True
        return
    closed = StoreClosed(
        f"the turn may be in the shared log, and is not in the folder ({error!r}): reopen the store"
    )
    closed.in_doubt = True
    raise closed from error
