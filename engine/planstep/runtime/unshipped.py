"""Brings what only a folder has into its shared log at the next opening, or sets the folder aside.

    row S of this folder's last term ─▶ the log from there ─┬─ ends ──▶ the rest is appended, as it was, in its term
                                                            ├─ BEGIN of another owner ─▶ Overtaken
                                                            └─ has it all
    Overtaken ─▶ NAME becomes NAME.term-N, with a note ─▶ an empty folder NAME begins from the log

A folder that is set aside is never merged: `planstep replicate lost` lists its turns, for a person to redo.

Next: replication.py.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import Corruption, Diverged, FormatError, PlanstepError, Trimmed
from ..host.describe import appends
from ..logs import folder_set_aside
from ..proto.ids import COORDINATOR, PARTITION, SHARD, kind_of, tx_text
from ..shared.entry import Owner
from ..shared.owner import LocalStore, OwnerRow, Ownership
from ..shared.shared_log import Position, SharedLog
from ..store import DiskStore
from ..store.files import Files, typed_errors
from ..store.layers import GONE
from ..store.meta import load_meta, make_folder
from ..store.owner_lock import OwnerLock
from ..store.replicated import OPENED_KEY, OWNER_KEY, SHIPPED_KEY
from ..store.turn import decode_changes
from ..store.turns_behind import LoggedTurn, turns_behind
from .replace_store import refuse_readers

NOTE = "lost.json"


class Overtaken(PlanstepError):
    """Another machine went on behind turn `common`, the last one that the log and the folder share.

    The folder, of `term`, has turns up to `end`. Unless `is_certain` the log may have some more of these.
    """

    def __init__(self, term: int, common: int, end: int, is_certain: bool = True) -> None:
        self.term, self.common, self.end, self.is_certain = term, common, end, is_certain
        super().__init__(f"another machine went on behind turn {common}; this folder has {end}")


def ship_rest(log: SharedLog, store_id: bytes, store: DiskStore, folder: LocalStore) -> None:
    """Appends what this folder's last term has beyond the log. Overtaken; errors of Ownership.append_rest."""
    row: Any = store.get(SHIPPED_KEY)
    opened: Any = store.get(OPENED_KEY)
    mine: Any = store.get(OWNER_KEY)
    if row is None or row[0] != mine[0] or opened[-1] != store.meta.folder_id:
        store.backlog.end()  # the last turns went to the log first
        return
    term, *at = row
    owner, end = Owner(*mine[:2]), store.last_turn

    def rest(turn: int) -> Iterator[tuple[bytes, int, int, bytes, bytes, bytes]]:
        for one in store.backlog.behind(turn):
            own: Any = decode_changes(one.changes)[OWNER_KEY]
            yield OwnerRow._make(own).before, *one

    ownership = Ownership(log, store_id, owner.nonce)
    try:
        follows = ownership.append_rest(owner, Position(*at), end, rest)
    except Trimmed:
        _check_trimmed(log, store_id, folder, owner, at[0] + 1)
        store.backlog.end()
        return
    if follows != owner and ownership.last.turn < end:
        raise Overtaken(term, ownership.last.turn, end)
    store.backlog.end()


def _check_trimmed(
    log: SharedLog, store_id: bytes, folder: LocalStore, owner: Owner, known: int
) -> None:
    """Returns if the log has the folder's last turn, or had it; turn `known` is trimmed by now. Overtaken.

    An owner trims no turn above row S of its folder. So another machine did, unless the folder is an old copy.
    """
    end = folder.last_turn
    keeps = not log.wrote(Owner(0, b""), end)  # BEGINs, which tell
    try:
        Ownership(log, store_id, bytes(16)).find(folder)
        return
    except Trimmed:
        if keeps:
            return  # it is this owner's, says find
    except (Diverged, Corruption):
        pass
    common = known
    if keeps:
        low, high = known, min(end, log.floor() - 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if log.wrote(owner, middle) else (low, middle - 1)
        common = low
    raise Overtaken(owner.term, common, end, is_certain=keeps)


def set_aside(path: Path, lost: Overtaken) -> Path:
    """Renames the store's folder, which nobody owns; returns its new path. StoreInUse while others read it."""
    to = Path(os.path.realpath(path))
    files = Files()
    note = {"term": lost.term, "common": lost.common, "end": lost.end, "certain": lost.is_certain}
    with ExitStack() as stack, typed_errors(to):
        for host in sorted(to.glob("host-*")):
            stack.callback(OwnerLock(host / "lock").close)
        refuse_readers(to, to)
        with (to / NOTE).open("w") as file:
            file.write(json.dumps(note))
            file.flush()
            os.fsync(file.fileno())
        aside, number = to.with_name(f"{to.name}.term-{lost.term}"), 1
        while os.path.lexists(aside):
            number += 1
            aside = to.with_name(f"{to.name}.term-{lost.term}-{number}")
        files.rename(to, aside)
        files.sync_folder(to.parent)
        make_folder(to, files)
    folder_set_aside(to, aside, lost.end - lost.common)
    return aside


# what is lost ------------------------------------------------------------------------------


class LostTurn(NamedTuple):
    """A turn that a folder alone has: ids of its transactions, and what it changed, in words.

    `records` by topic, `rows` by table: how many it added, and wrote or deleted. `bytes`: of all that it logged.
    """

    turn: int
    bytes: int
    transactions: list[str]
    changes: list[str]
    records: dict[str, int]
    rows: dict[str, int]


class Lost(NamedTuple):
    """Lists what only a folder has that was set aside; the log may have some of it, unless `certain`."""

    term: int
    certain: bool
    turns: list[LostTurn]


def lost_turns(path: Path, names: Any, mode: str) -> Lost:
    """Lists the turns of a folder that was set aside; `names`: those of its store. FormatError, Corruption."""
    try:
        note = json.loads((path / NOTE).read_text())
        term, common, end, certain = (note[key] for key in ("term", "common", "end", "certain"))
    except FileNotFoundError:
        raise FormatError(
            f"{path} was not set aside: that is done when it is opened, or followed, with replicate="
        ) from None
    except (ValueError, LookupError, TypeError) as error:
        raise Corruption(f"{path / NOTE} is damaged: {error!r}") from error
    folder, files = path / "host-0", Files()
    meta = load_meta(folder, files)
    assert meta is not None  # it was opened
    turns = [
        _lost_turn(one, names, mode)
        for one in turns_behind(folder, files, meta.store_id, common, end)
    ]
    return Lost(term, certain, turns)


def _lost_turn(one: LoggedTurn, names: Any, mode: str) -> LostTurn:
    changes: dict[bytes, Any] = decode_changes(one.changes)
    size = len(one.changes) + len(one.dropped) + len(one.payload)
    transactions: list[str] = []
    records: dict[str, int] = {}
    rows: dict[str, int] = {}
    for key, value in changes.items():
        tablet, letter = int.from_bytes(key[:4], "big"), key[4:5]
        match kind_of(tablet), letter:
            case (kind, b"o") if kind == COORDINATOR and value is not GONE:
                transactions.append(tx_text(key[5:]))
            case (kind, b"b") if kind == PARTITION and value is not GONE:
                name = names.of_tablet(tablet)[1]
                records[name] = records.get(name, 0) + value[2]
            case (kind, b"r") if kind == SHARD:
                name = names.of_tablet(tablet)[1]
                rows[name] = rows.get(name, 0) + 1
    words = appends(mode, names, changes)
    return LostTurn(one.turn, size, transactions, words, records, rows)
