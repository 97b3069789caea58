"""Opens views of all hosts for another process that fit together, at one step that every host has executed.

    marks of all hosts in one moment ─▶ a view of each host at its mark ─▶ settle ─▶ step S everywhere

A host releases nothing before its mark says so. So the marks of one moment are a
consistent cut: no view holds an effect of something that another view lacks. A host may lag in
it, with plans and votes under way. The views have those too, in the senders' durable queues, and their
outcome is decided already: the hosts themselves, in memory over the views, bring them to their end.
The owner will come to the same state; nothing is written here or sent to it.

One moment means: all marks are read twice, until nothing has changed in between.

Next: open_stores.py.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import Corruption, FormatError, IoError
from ..host.host import Host
from ..host.inputs import Arrived, Tick
from ..host.links import check_ends
from ..proto.ids import HOST, tablet_id, tablet_prefix
from ..store import Store
from ..store.files import Files
from ..store.meta import check_belongs, load_meta
from ..store.readers.readonly import ReadOnlyStore, StoreChanged
from ..store.readers.released_mark import Mark, read_mark

_TRIES = 50
_TRIES_OF_DAMAGE = 3
"""Low, because each host's store has tried again already."""
_ROUNDS_MAX = 100_000


def open_views(
    path: Path,
    hosts: int,
    before: Sequence[Any] = (),
    *,
    complete: bool = True,
    ownable: bool = False,
) -> list[Store]:
    """Opens read-only stores of all hosts, at one step. Raises FormatError, Corruption, IoError, TooManyReaders.

    `before`: earlier views to continue from, wherever their folders are by now, or what rests in place of them.
    `complete` False: the views of one moment, with transactions under way left as they are. `ownable`: for
    `DiskStore.take_over`; later views are as the first ones.
    """
    for attempt in range(_TRIES):
        ids = _check_hosts(path, hosts) if hosts > 1 and not before else []
        views: list[ReadOnlyStore] = []
        try:
            for view in _open_each(path, ids, before, ownable):
                views.append(view)  # one by one, to close them when the next one fails
            # With one host, only messages between "separate" tablets can be under way.
            if complete and (hosts > 1 or _leftover(views[0])):
                settle(views)
            return list(views)
        except BaseException as error:
            for view in views:
                view.close()
            # Between marks and views the owner may have checkpointed, or it may be opening.
            tries = _TRIES if isinstance(error, (StoreChanged, FormatError)) else _TRIES_OF_DAMAGE
            known = hosts > 1 and isinstance(error, (StoreChanged, FormatError, Corruption))
            if not known or attempt + 1 >= tries:
                raise
    raise AssertionError("the last attempt returns or raises")


def _leftover(view: ReadOnlyStore) -> bool:
    prefix = tablet_prefix(tablet_id(HOST, 0, 0)) + b"O"  # what is queued on links: host/links.py
    return bool(
        view.scan(prefix, prefix + b"\xff" * 10, limit=1) and Host(0, view).delivery.leftover
    )


@contextmanager
def views_of(path: Path, hint: str, *, complete: bool = True) -> Iterator[list[Any]]:
    """Opens views as `open_views` does, and closes them. FormatError with the hint where there is no store."""
    first = path / "host-0"
    meta = load_meta(first, Files()) if first.is_dir() else None
    if meta is None:
        raise FormatError(f"{path} is not a store; {hint}")
    views = open_views(path, meta.hosts, complete=complete)
    try:
        yield views
    finally:
        for view in views:
            view.close()


def _open_each(
    path: Path, ids: list[bytes], before: Sequence[Any], ownable: bool
) -> Iterator[ReadOnlyStore]:
    """Opens each host's store at the marks of one moment. `ids`: of several hosts that are opened anew."""
    if len(before) == 1:
        yield before[0].newer()
    elif before:
        for view, mark in zip(before, _marks(path, [v.mark for v in before]), strict=True):
            yield view.newer(mark)
    elif not ids:
        yield ReadOnlyStore.open(path / "host-0", ownable=ownable)
    else:
        folders = [(path / f"host-{number}", own) for number, own in enumerate(ids)]
        marks = _marks(path, [partial(read_mark, f / "released", own) for f, own in folders])
        for (folder, own), mark in zip(folders, marks, strict=True):
            view = ReadOnlyStore.open(folder, mark, ownable=ownable)
            yield view
            if view.store_id != own:
                raise StoreChanged(f"{path} was moved or replaced while it was looked at")


def _check_hosts(path: Path, hosts: int) -> list[bytes]:
    """Checks that all hosts are there and belong to one store; returns their ids."""
    first_id = b""
    ids: list[bytes] = []
    for number in range(hosts):
        folder = path / f"host-{number}"
        meta = load_meta(folder, Files())
        if meta is None:
            raise FormatError(
                f"{folder} is missing: the store has {hosts} hosts; restore it from a backup of the "
                "whole store"
            )
        first_id = first_id or meta.store_id
        check_belongs(folder, meta, first_id)
        ids.append(meta.store_id)
    return ids


def _marks(path: Path, reads: Sequence[Callable[[], Mark | None]]) -> list[Mark | None]:
    for _ in range(10_000):
        first = [read() for read in reads]
        if first == [read() for read in reads]:
            return first
    raise IoError(f"{path}: its owner is too busy to be looked at; try again")


def settle(views: list[ReadOnlyStore]) -> None:
    """Delivers messages under way between the hosts until there are none; the views are of one moment."""
    for view in views:
        view.settling = True
    hosts = [Host(number, view, len(views)) for number, view in enumerate(views)]
    check_ends([host.links for host in hosts])
    frames = [frame for host in hosts for frame in host.run([Tick()], 0).frames]
    for _ in range(_ROUNDS_MAX):
        if not frames:
            break
        arriving: dict[int, list[Arrived]] = {}
        for target, data in frames:
            arriving.setdefault(target, []).append(Arrived(data))
        frames = [
            frame
            for number in sorted(arriving)
            for frame in hosts[number].run(arriving[number], 0).frames
        ]
    else:
        raise IoError("the hosts' messages do not come to an end")
    for view in views:
        view.settling = False
