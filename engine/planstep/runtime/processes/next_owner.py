"""Finds a store's next owner once the last one is gone: this process, if it gets the lock, or the one that did.

    the lock ─ taken ─▶ this process opens the store, on what it has open, and listens
             └ held by another ─▶ connect; not listening yet? again a little later

Next: ../change_of_owner.py.
"""

import errno
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import IoError, NoSpace, Overloaded, OwnerSilent, StoreInUse
from ...logs import not_shared, owner_found, tried_again
from ...store.files import check_room_for
from ...store.owner_lock import OwnerLock
from ...store.process_socket import NobodyListens
from ..change_of_owner import become_owner
from ..open_stores import OpenOptions
from .attached import Accepted, OwnerGone, attach

if TYPE_CHECKING:
    from ..runtime import Runtime

_AT_ONCE_SECONDS = 0.003
"""Those that have lost an owner try for its lock within so long, at random: else all try at once."""
_PAUSE_SECONDS, _PAUSE_MAX_SECONDS = 0.002, 0.05
_AGAIN_SECONDS = 1.0
_FOR_NOW = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO),
)
_DESCRIPTORS = 16
"""An owner needs some eight more than who is attached."""
OWNED: Final = object()


class NextOwner:
    """Looks for the owner of one store, for one runtime."""

    def __init__(self, runtime: "Runtime", given: Mapping[str, Any], options: OpenOptions) -> None:
        self.state = "one is looked for"
        self._runtime = runtime
        self._given = given
        self._options = options
        self._store_id: bytes = runtime.nodes[0].host.store.store_id

    def find(self, ended: Callable[[], bool]) -> "Accepted | object | None":
        """Returns a link to the owner, OWNED once this process is the owner, None when `ended`.

        PlanstepError: neither can be, as the folder is gone, or the store is damaged.
        """
        pause = random.random() * _AT_ONCE_SECONDS
        while not ended():
            time.sleep(pause)
            pause = min(max(2 * pause, _PAUSE_SECONDS), _PAUSE_MAX_SECONDS)
            try:
                # By the folder that is open: at its path may be a copy by now, which has the same id.
                folder = self._view().folder_by_now()
                if self._owned(folder, ended):
                    return OWNED
                return attach(
                    folder,
                    self._store_id,
                    self._given,
                    self._runtime.hosts,
                    self._runtime.linked,
                    ended,
                )
            except (NobodyListens, OwnerGone):
                pass
            except OwnerSilent as error:
                self.state = str(error)
            except Overloaded as error:  # it has all the links that it may have
                self.state = str(error)
                _rest(ended)
            except IoError as error:
                if not _is_for_now(error):
                    raise
                self.state = str(error)
                _rest(ended)
        return None

    def _view(self) -> Any:
        """Returns the view of host 0's store that this process has open."""
        return self._runtime.nodes[0].host.store

    def _owned(self, folder: Path, ended: Callable[[], bool]) -> bool:
        """Owns the store if nobody does; False where another process has the lock, or this one cannot now."""
        try:
            lock = OwnerLock(folder / "lock", 0, share=True)
        except StoreInUse:
            return False
        try:
            try:
                check_room_for(_DESCRIPTORS, folder)  # one that runs out halfway could serve nobody
            except BaseException:
                lock.close()
                raise
            self._own(folder.parent, lock, ended)
            return True
        except (StoreInUse, NoSpace, IoError) as error:
            self.state = f"this process cannot own it: {error}"
            tried_again("owning the store", error)
            _rest(ended)
            return False

    def _own(self, path: Path, lock: OwnerLock, ended: Callable[[], bool]) -> None:
        runtime, began = self._runtime, time.monotonic()
        link = runtime.link
        assert link is not None
        become_owner(runtime, path, lock, self._options, ended)
        runtime.link = None
        owner_found(runtime, time.monotonic() - began)
        try:
            runtime.share(link.said, follows=True)
        except Exception as error:  # the store is this process's own all the same
            not_shared(str(path), error)


def _rest(ended: Callable[[], bool]) -> None:
    """Waits for a while before another try; not once nobody waits for it."""
    until = time.monotonic() + _AGAIN_SECONDS
    while time.monotonic() < until and not ended():
        time.sleep(_PAUSE_MAX_SECONDS)


def _is_for_now(error: IoError) -> bool:
    """Returns whether the system does not let this process in now: it lacks something, or forbids it."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _FOR_NOW
