"""Compares a replicated folder with another one, or with its shared log, as of one turn, row by row.

    STORE, as of turn T ──────────────────────────────┐
    another folder, at turn T                         ├─▶ by key: the first one that differs, and how many do
    or the log, restored as of T in a temporary folder┘

It tells where two folders differ whose digests do (../store/digests.py). Left out are a folder's place in the log,
and records themselves, which `planstep verify` checks.

Next: ../cli/seeds.py.
"""

from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ..errors import Diverged, NotSupported
from ..proto.ids import SHARD, kind_of
from ..proto.keys import decode_key
from ..shared.registry import open_shared_log
from ..shared.settings import Replicate
from ..store.meta import check_shared
from ..store.replicated import OWN_KEYS
from .catalog import Names
from .consistent_cut import views_of
from .open_transactions import tablet_name
from .seeding import restore_from

_LAST = b"\xff" * 9
_NO_STORE = "give the folder of a replicated store"


class Comparison(NamedTuple):
    """`rows` differ as of `turn`; the first one is of `tablet`, has `key`, and is here, there or in both."""

    turn: int
    rows: int
    tablet: str | None = None
    key: Any = None
    where: str | None = None


def compare(folder: Path, other: Path | Replicate) -> Comparison:
    """Compares `folder` with another one, or with the shared log. Diverged: they are of two stores, or not at one
    turn; NotSupported: it is not replicated; Trimmed, FormatError, Corruption, LogUnreachable, IoError, NoSpace.
    """
    with ExitStack() as stack:
        here = stack.enter_context(views_of(folder, _NO_STORE))[0]
        if not here.meta.replicated:
            raise NotSupported(f"{folder} is not replicated")
        if isinstance(other, Replicate):
            log, root = open_shared_log(other.url, None, other.log_timeout)
            log.close()
            check_shared(folder, here.meta, root.store_id)
            restored = Path(stack.enter_context(TemporaryDirectory(prefix="planstep-"))) / "store"
            restore_from(other, restored, here.last_turn)
            there = stack.enter_context(views_of(restored, _NO_STORE))[0]
        else:
            there = stack.enter_context(views_of(other, _NO_STORE))[0]
            check_shared(other, there.meta, here.meta.shared_id)
            if here.last_turn != there.last_turn:
                raise Diverged(
                    f"{folder} is at turn {here.last_turn}, {other} at turn {there.last_turn}: let the later one "
                    "rest and the other one follow, or compare with the URL"
                )
        found = Comparison(here.last_turn, 0)
        names = Names(here), Names(there)
        for key, is_here, is_there in _differing(here, there):
            if not found.rows:
                tablet = int.from_bytes(key[:4], "big")
                where = (
                    "differs" if is_here and is_there else "only here" if is_here else "only there"
                )
                found = found._replace(
                    tablet=tablet_name(names[not is_here], tablet), key=_key(key), where=where
                )
            found = found._replace(rows=found.rows + 1)
        return found


def _key(key: bytes) -> Any:
    """Returns the key of a table's row as users have it, and of another row its bytes."""
    if kind_of(int.from_bytes(key[:4], "big")) == SHARD and key[4:5] == b"r":
        return decode_key(key[5:])
    return key[4:]


def _differing(here: Any, there: Any) -> Generator[tuple[bytes, bool, bool], None, None]:
    """Yields (key, whether it is here, whether it is there) of each row that differs, in order of keys."""
    with closing(_rows(here)) as ours, closing(_rows(there)) as theirs:
        mine, other = next(ours, None), next(theirs, None)
        while mine is not None or other is not None:
            key = min(row[0] for row in (mine, other) if row is not None)
            is_here, is_there = (row is not None and row[0] == key for row in (mine, other))
            if mine != other:
                yield key, is_here, is_there
            mine = next(ours, None) if is_here else mine
            other = next(theirs, None) if is_there else other


def _rows(view: Any) -> Generator[tuple[bytes, Any], None, None]:
    for key, row in view.scan(b"", _LAST):
        if key not in OWN_KEYS:
            yield bytes(key), row
