"""Tests creating stores: several makers at the same time, folders of others, and paths that are no plain files."""

import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kit import Child, python
from storekit import TABLETS, FastFiles, contents, open_files, write

import planstep
from planstep.errors import FormatError
from planstep.runtime.open_runtime import open_runtime
from planstep.runtime.open_stores import OpenOptions
from planstep.store import DiskStore
from planstep.store.files import Files
from planstep.store.meta import load_meta
from planstep.store.owner_lock import no_other_makes

A, B = TABLETS


# several makers at the same time ------------------------------------------------------------------


class Late(Files):
    """Runs `act` right after a check that found no meta.pb."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.acts = [act]

    def size_of(self, path: Path) -> int:
        size = super().size_of(path)
        if size < 0 and path.name == "meta.pb" and self.acts:
            self.acts.pop()()
        return size


def test_a_store_that_is_made_between_two_looks_is_not_a_damaged_one(quick_path: Path) -> None:
    folder = quick_path / "s"
    meta = load_meta(folder, Late(lambda: DiskStore.open(folder, files=FastFiles()).close()))
    assert meta is not None and meta.hosts == 1
    (folder / "meta.pb").unlink()
    with pytest.raises(FormatError, match="is missing"):
        load_meta(folder, Files())


LOOK = """
import sys, planstep
with planstep.open(sys.argv[1], read_only=True) as db:
    print(db.stats()["hosts"], db.mode)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at what a process has open")
@pytest.mark.parametrize("how", ["as its owner", "without making it", "to look"])
def test_a_store_that_is_being_made_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """One of three hosts exists: an opener sees all of them once the maker is done."""
    path = tmp_path / "s"
    go_on, waited = threading.Event(), threading.Event()
    open_ = DiskStore.open

    def slowly(folder: Path, **more: Any) -> DiskStore:
        if threading.current_thread() is maker and folder.name == "host-1":
            waited.set()
            assert go_on.wait(60)
        return open_(folder, **more)

    monkeypatch.setattr("planstep.runtime.open_stores.DiskStore.open", slowly)
    maker = threading.Thread(target=make, args=(path,))
    maker.start()
    assert waited.wait(60)
    if how == "to look":
        with Child(LOOK, path) as child:
            while path not in open_files(child.process.pid):
                assert child.process.poll() is None
            go_on.set()
            assert child.end() == "3 kafka\n"
    else:
        flock = fcntl.flock

        def told(fd: int, operation: int) -> None:
            try:
                flock(fd, operation)
            except BlockingIOError:
                go_on.set()
                raise

        monkeypatch.setattr(fcntl, "flock", told)
        runtime = open_runtime(path, OpenOptions(wait=60, create=how == "as its owner"))
        assert runtime.hosts == 3 and runtime.mode == "kafka"
        runtime.close()
    maker.join()


def make(path: Path) -> None:
    open_runtime(path, OpenOptions(hosts=3, mode="kafka")).close()


def test_who_makes_for_ever_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.store.owner_lock.MAKING_SECONDS", 0.05)
    (tmp_path / "s").mkdir()
    with no_other_makes(tmp_path / "s"):
        with pytest.raises(FormatError, match="there is no store"):
            planstep.open(tmp_path / "s", read_only=True)
        planstep.open(tmp_path / "s").close()


def test_a_store_that_was_replaced_while_it_was_waited_for_counts_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new store has other hosts and another mode: settings that were not given are taken from it."""
    path = tmp_path / "s"
    planstep.open(path, hosts=1).close()
    flock, left = fcntl.flock, [1]

    def late(fd: int, operation: int) -> None:
        if left:
            left.pop()
            path.rename(tmp_path / "old")
            make(path)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with planstep.open(path) as db:
        assert db.stats()["hosts"] == 3 and db.mode == "kafka"


RACE = """
import sys, planstep
print("ready", flush=True)
for line in sys.stdin:
    path, read_only = line.split()
    try:
        planstep.open(path, read_only=read_only == "r", hosts=None if read_only == "r" else 2).close()
        print("opened", flush=True)
    except planstep.StoreInUse:
        print("in use", flush=True)
    except planstep.FormatError as error:
        print("none" if "there is no store" in str(error) else repr(error), flush=True)
    except Exception as error:
        print(repr(error), flush=True)
"""


def test_many_make_one_store_at_the_same_time(quick_path: Path) -> None:
    """Each becomes the owner, or learns that another one is, or that there is no store yet; nothing else
    happens."""
    with ExitStack() as stack:
        children = [stack.enter_context(Child(RACE)) for _ in range(4)]
        said: list[str] = []
        for child in children:
            assert child.line() == "ready"
        for round_ in range(6):
            path = quick_path / f"s{round_}"
            for n, child in enumerate(children):
                child.tell(f"{path} {'r' if n == 3 else 'w'}")
            answers = [child.line() for child in children]
            said += answers
            assert "opened" in answers[:3]
            planstep.open(path, create=False, hosts=2).close()
        for child in children:
            child.end()
    assert set(said) <= {"opened", "in use", "none"}


# owners of folders --------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_store_is_its_users_own(tmp_path: Path, hosts: int) -> None:
    before = os.umask(0o022)
    try:
        with planstep.open(tmp_path / "above" / "s", hosts=hosts) as db:
            db.create_table("t").put(1, 1)
            with planstep.open(tmp_path / "above" / "s"):
                pass
    finally:
        os.umask(before)
    store = tmp_path / "above" / "s"
    open_to_others = [
        path
        for path in (store, *store.rglob("*"))
        if stat.S_IMODE(path.stat().st_mode) & 0o077 and path.parent.name != "leases"
    ]
    assert open_to_others == []
    assert stat.S_IMODE((tmp_path / "above").stat().st_mode) == 0o755
    (tmp_path / "given").mkdir(mode=0o755)
    planstep.open(tmp_path / "given").close()
    assert stat.S_IMODE((tmp_path / "given").stat().st_mode) == 0o755, "as its user made it"


# pipes, devices, links ----------------------------------------------------------------------------

NO_FILES = """
import pathlib, sys
import planstep
from planstep.cli.reading import _marks
from planstep.store.verify import verify

for store in map(pathlib.Path, sys.argv[1:]):
    for settings in ({"read_only": True}, {}):
        try:
            planstep.open(store, **settings).close()
            print("opened", flush=True)
        except planstep.PlanstepError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
    verify(store / "host-0")
    _marks(store)
"""


def place(path: Path, what: str, beside: Path) -> None:
    """Replaces a file by something else; a link leads to the file's new place."""
    shutil.copy(path, beside)
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/null")
    elif what == "link":
        path.symlink_to(beside)
    else:
        path.symlink_to(beside.with_name("nothing"))


@pytest.mark.parametrize("what", ["pipe", "link", "device", "link to nothing"])
def test_what_is_no_file_is_refused_and_nothing_behind_it_is_changed(
    tmp_path: Path, what: str
) -> None:
    """It does not wait for a pipe's writer, and cuts off or creates nothing at a link's target."""
    template = tmp_path / "t"
    with planstep.open(template) as db:
        db.create_table("t").put(1, 1)
        db._runtime.nodes[0].host.store.checkpoint()
    host = template / "host-0"
    names = [os.fspath(p.relative_to(host)) for p in sorted(host.rglob("*")) if p.is_file()]
    segment = next(name for name in names if name.startswith("log-"))
    needed = {"lock", "meta.pb", "released", "table/data.mdb", "table/lock.mdb", segment}
    assert needed <= set(names)
    stores, besides = [tmp_path / f"s{n}" for n in range(len(names))], []
    for name, store in zip(names, stores, strict=True):
        shutil.copytree(template, store)
        besides.append(tmp_path / f"beside-{store.name}")
        place(store / "host-0" / name, what, besides[-1])
    before = [beside.read_bytes() for beside in besides]
    done = python(NO_FILES, *stores, timeout=60)
    assert done.stderr == ""
    said = iter(done.stdout.splitlines())
    for name in names:
        looked, owned = next(said), next(said)
        if name in needed:
            assert "in place of a file" in owned and os.path.basename(name) in owned, (name, owned)
            assert "in place of a file" in looked or name == "lock", (name, looked)
        else:
            assert (looked, owned) == ("opened", "opened"), name  # created again
    assert [beside.read_bytes() for beside in besides] == before
    assert not (tmp_path / "nothing").exists()


def test_a_lease_that_is_no_file_holds_nobody_up(quick_path: Path) -> None:
    store = DiskStore.open(quick_path / "s", files=FastFiles())
    os.mkfifo(quick_path / "s" / "leases" / "1-pipe")
    write(store, {A: 1})
    store.checkpoint()
    assert contents(store) == {A: 1}
    store.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_in_place_of_a_segment_is_refused(tmp_path: Path, read_only: bool) -> None:
    with planstep.open(tmp_path / "s") as db:
        db.create_topic("t").write(b"x" * 100_000)
    (segment,) = (tmp_path / "s" / "host-0").glob("log-*")
    segment.rename(tmp_path / "segment")
    segment.mkdir()
    with pytest.raises(planstep.PlanstepError, match=segment.name):
        planstep.open(tmp_path / "s", read_only=read_only).topic("t").read()
