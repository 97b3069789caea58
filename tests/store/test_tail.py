"""Tests views that follow the log: each equals a look at the whole store, and stays as it is."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit import Child
from ownerkit import KEYS, Owner
from storekit import TABLETS, Contents, contents, open_files

from planstep.errors import Corruption, EngineClosed, IoError
from planstep.runtime.consistent_cut import open_views, settle
from planstep.store.files import Files
from planstep.store.layers import Layer
from planstep.store.readers import readonly
from planstep.store.readers.reader_lease import readers
from planstep.store.readers.readonly import ReadOnlyStore, StoreChanged
from planstep.store.readers.released_mark import Mark

A, B = TABLETS


def whole(view: ReadOnlyStore) -> ReadOnlyStore:
    """Looks at the whole log, as of now."""
    tail, view._tail = view._tail, None
    try:
        return view.newer()
    finally:
        view._tail = tail


def flip(path: Path, at: int, bits: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ bits]))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Notes the looks at a whole log."""
    seen: list[Any] = []
    look = readonly.look

    def noted(*args: Any) -> Any:
        seen.append(args)
        return look(*args)

    monkeypatch.setattr(readonly, "look", noted)
    yield seen


@pytest.mark.parametrize("durability", ["full", "os"])
@pytest.mark.parametrize("seed", range(6))
def test_each_view_is_a_look_at_the_whole_store(
    quick_path: Path, seed: int, durability: str, looks: list[Any]
) -> None:
    """Random turns, checkpoints, failed writes and openings; views of several turns and epochs stay open."""
    random = Random(seed)
    owner = Owner(quick_path / "s", random, durability)
    newest = ReadOnlyStore.open(quick_path / "s")
    views = [(newest, owner.held)]
    followed = epochs = 0
    generations = set()
    try:
        for _ in range(120):
            for _ in range(random.choice((0, 1, 1, 2, 10))):
                owner.act()
            before, epoch = len(looks), newest._epoch
            newest = newest.newer()
            views.append((newest, owner.held))
            followed += len(looks) == before
            generations.add(newest.generation)
            epochs += len(looks) == before and newest._epoch is not epoch
            again = whole(newest)
            assert newest.last_turn == again.last_turn == owner.turn
            assert newest.generation == again.generation
            assert contents(newest) == contents(again) == owner.held
            again.close()
            view, held = random.choice(views)
            assert contents(view) == held
            backwards = view.scan(A, B + b"\xff", reverse=True, limit=3)
            assert [key for key, _ in backwards] == sorted(held, reverse=True)[:3]
            assert {key: view.get(key) is not None for key in KEYS} == {k: k in held for k in KEYS}
            while len(views) > random.randint(1, 6):
                views.pop(random.randrange(len(views) - 1))[0].close()
        assert followed > 70 and epochs > 5 and len(generations) > 1
        assert len(readers(quick_path / "s")) == len({id(view._epoch) for view, _ in views})
    finally:
        for view, _ in views:
            view.close()
        owner.kill()
    assert not readers(quick_path / "s")
    assert not [path for path in open_files(os.getpid()) if quick_path in path.parents]


def test_a_view_is_of_the_mark_that_it_is_asked_for(quick_path: Path) -> None:
    owner = Owner(quick_path / "s", Random(1), "full")
    first = ReadOnlyStore.open(quick_path / "s")
    owner.write({A: 1})
    mark = first.mark()
    owner.write({A: 2})
    second = first.newer(mark)
    owner.ask("checkpoint")
    third = second.newer(mark)
    assert [view.get(A) for view in (first, second, third)] == [0, 1, 1]
    last = third.newer()
    assert last.get(A) == 2
    earlier = last.newer(mark) if last._epoch.base <= second.last_turn else None
    assert earlier is None or earlier.get(A) == 1
    for view in (first, second, third, last):
        view.close()
    owner.kill()


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_turn_is_never_shown(quick_path: Path, seed: int) -> None:
    """The mark proves that the turn was acknowledged. Once it is whole again, the view goes on."""
    random = Random(seed)
    owner = Owner(quick_path / "s", random, "full")
    view = ReadOnlyStore.open(quick_path / "s")
    for _ in range(40):
        segment, begin = owner.segment, owner.offset
        owner.write({random.choice(KEYS): random.randint(0, 9)}, {A: random.randint(1, 900)})
        at = random.randrange(begin if owner.segment == segment else 0, owner.offset)
        flip(quick_path / "s" / owner.segment, at, bit := 1 << random.randrange(8))
        with pytest.raises((Corruption, IoError)):
            view.newer()
        flip(quick_path / "s" / owner.segment, at, bit)
        later = view.newer()
        assert contents(later) == owner.held
        view.close()
        view = later
        if random.random() < 0.2:
            owner.ask("checkpoint")
    view.close()
    owner.kill()


def test_what_was_read_is_not_read_again(quick_path: Path, looks: list[Any]) -> None:
    """Damage to a turn that was taken keeps no view from going on; a look at the whole log finds it."""
    owner = Owner(quick_path / "s", Random(1), "full")
    owner.write({A: 1})
    view = ReadOnlyStore.open(quick_path / "s")
    flip(quick_path / "s" / owner.segment, owner.offset - 6, 1)
    owner.write({A: 2})
    later = view.newer()
    assert later.get(A) == 2 and not looks[1:]
    with pytest.raises(Corruption):
        whole(later)
    view.close()
    later.close()
    owner.kill()


def test_a_later_view_reads_only_what_was_added(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(quick_path / "s", Random(1), "full")
    view = ReadOnlyStore.open(quick_path / "s")
    read: list[int] = []
    read_file = Files.read

    def noted(files: Files, fd: int, offset: int, length: int) -> bytes:
        data = read_file(files, fd, offset, length)
        read.append(len(data))
        return data

    monkeypatch.setattr(Files, "read", noted)
    counts = []
    for n in range(200):
        owner.write({A: n, B: n}, {KEYS[n % 20]: 500})
        read.clear()
        later = view.newer()
        counts.append(sum(read))
        view.close()
        view = later
    assert max(counts) < 64 << 10
    assert sum(counts[100:]) < 1.2 * sum(counts[:100]), "they grow with the log"
    assert later.last_turn == 201
    view.close()
    owner.kill()


WRITER = """
import pathlib, sys
sys.path.insert(0, sys.argv[2])
from storekit import TABLETS, open_small, write

A, B = TABLETS
store = open_small(pathlib.Path(sys.argv[1]), durability=sys.argv[3])
n = store.get(A) or 0
while True:
    n += 1
    write(store, {A: n, B: n}, {A + b"payload": n.to_bytes(8, "big") * 40})
    print(n, flush=True)
    if n % 37 == 0:
        store.checkpoint()
"""


@pytest.mark.parametrize("durability", ["full", "os"])
def test_views_follow_over_kills_of_the_owner(quick_path: Path, durability: str) -> None:
    """None goes back, mixes two turns, or lacks what was acknowledged before it was asked for."""
    random, path = Random(1), quick_path / "s"
    view: ReadOnlyStore | None = None
    seen = looked = 0
    for _ in range(12):
        with Child(WRITER, path, Path(__file__).parent, durability) as child:
            acknowledged = int(child.line())
            view = view or ReadOnlyStore.open(path)
            for _ in range(random.randint(1, 40)):
                for _ in range(random.randint(0, 30)):
                    acknowledged = int(child.line() or acknowledged)
                if random.random() < 0.1:
                    child.process.kill()  # while it is looked at
                later = view.newer()
                found = later.get(A)
                assert found == later.get(B) and found >= max(seen, acknowledged)
                assert contents(later)[A + b"payload"] == found.to_bytes(8, "big") * 40
                view.close()
                view, seen, looked = later, found, looked + 1
    assert view is not None and looked > 100
    view.close()


@pytest.mark.parametrize("where", ["update", "between two turns", "view"])
def test_a_later_view_that_is_interrupted_changes_no_earlier_one(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, looks: list[Any], where: str
) -> None:
    owner = Owner(quick_path / "s", Random(1), "full")
    view = ReadOnlyStore.open(quick_path / "s")
    held = owner.held
    owner.write({A: 1, B: 1})
    owner.write({A: 2, A + b"new": 2})
    update = Layer.update

    def interrupted(layer: Layer, changes: Any) -> None:
        if where == "update" or (len(changes) == 2 and A + b"new" in changes):
            update(layer, dict(list(changes.items())[:1]))
            raise KeyboardInterrupt
        update(layer, changes)

    with monkeypatch.context() as patched:
        if where == "view":
            patched.setattr(readonly, "ReadOnlyStore", None)
        else:
            patched.setattr(Layer, "update", interrupted)
        with pytest.raises(TypeError if where == "view" else KeyboardInterrupt):
            view.newer()
    assert contents(view) == held
    assert {key: view.get(key) for key in (A, B, A + b"new")} == {A: 0, B: None, A + b"new": None}
    later = view.newer()
    assert len(looks) == 2, "it lost its way"
    assert contents(later) == owner.held and contents(view) == held
    later.close()
    assert contents(view) == held
    view.close()
    owner.kill()
    assert not readers(quick_path / "s")
    assert not [path for path in open_files(os.getpid()) if quick_path in path.parents]


HOSTS = """
import sys
import planstep

with planstep.open(sys.argv[1], hosts=2, placement=sys.argv[2]) as db:
    db.create_topic("t", partitions=4, format="json")
    db.create_table("r", shards=4)
    for n, line in enumerate(sys.stdin):
        for k in range(int(line)):
            tx = db.transaction()
            for part in range(4):
                tx.write("t", n, partition=part)
                tx.put("r", (part, k), n)
            tx.submit()
        print(flush=True)
"""


@pytest.mark.parametrize("placement", ["shared", "separate"])
def test_views_of_several_hosts_fit_together(
    tmp_path: Path, placement: str, looks: list[Any]
) -> None:
    """Each host's tail stops at the mark of one moment; what is under way is finished in the view's own memory."""
    path = tmp_path / "s"
    with Child(HOSTS, path, placement) as child:
        child.tell(0)
        child.line()
        views: Any = open_views(path, 2)
        followed = 0
        for n in range(40):
            child.tell(n % 5)
            before = len(looks)
            later: Any = open_views(path, 2, views)
            followed += len(looks) == before
            for view in views:
                view.close()
            views = later
            tails = [view._tail for view in views]
            marks = [Mark(view.generation, view.last_turn, True, 0) for view in views]
            again: Any = []
            for view, mark, tail in zip(views, marks, tails, strict=True):
                view._tail = None
                try:
                    again.append(view.newer(mark))
                except StoreChanged:  # a checkpoint came
                    break
                finally:
                    view._tail = tail
            else:
                settle(again)
                for view, other in zip(views, again, strict=True):
                    assert view.scan(b"", b"\xff" * 8) == other.scan(b"", b"\xff" * 8)
            for view in again:
                view.close()
            child.line()
        assert followed > 20
        for view in views:
            view.close()


def test_a_long_scan_delays_no_later_view(quick_path: Path) -> None:
    owner = Owner(quick_path / "s", Random(1), "full")
    owner.ask("checkpoint")
    view = ReadOnlyStore.open(quick_path / "s")
    held = owner.held
    begun, go_on = threading.Event(), threading.Event()
    table_scan = view._epoch.table.scan

    def scan(*args: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return table_scan(*args)

    view._epoch.table.scan = scan
    with ThreadPoolExecutor(1) as pool:
        scanned = pool.submit(contents, view)
        assert begun.wait(60)
        owner.write({A: 1, B: 1})
        later = view.newer()
        view._epoch.table.scan = table_scan
        assert later.get(A) == 1
        go_on.set()
        assert scanned.result() == held
    assert contents(later) == owner.held
    view.close()
    later.close()
    owner.kill()


def test_threads_read_older_views_while_newer_ones_are_opened(quick_path: Path) -> None:
    random = Random(5)
    owner = Owner(quick_path / "s", random, "full")
    for _ in range(20):
        owner.act()
    first, held = ReadOnlyStore.open(quick_path / "s"), owner.held
    wrong: list[Contents] = []
    stopping = threading.Event()

    def read() -> None:
        while not stopping.is_set():
            found = contents(first)
            gotten = {key: first.get(key) for key in KEYS}
            if found != held or any(
                (key in held) != (row is not None) for key, row in gotten.items()
            ):
                wrong.append(found)
                return

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    view = first.newer()
    for _ in range(150):
        owner.act()
        later = view.newer()
        view.close()
        view = later
    stopping.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert contents(view) == owner.held
    first.close()
    view.close()
    with pytest.raises(EngineClosed):
        view.newer()
    owner.kill()
