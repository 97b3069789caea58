"""Tests row oom: a few allocations that fail, and a turn without memory that is taken for durable."""

import faulthandler
import shutil
import threading
from pathlib import Path

import pytest

from planstep.bench.proof.disks.contents import Contents
from planstep.bench.proof.disks.forked import apart
from planstep.bench.proof.disks.memory import (
    ACTIONS,
    Lived,
    Position,
    _Action,
    allocations,
    check_reopened,
    hooks,
    hung_in,
    is_start,
    live,
    stage_of,
)
from planstep.bench.proof.disks.sample import KINDS, Sample, make
from planstep.bench.proof.disks.verdict import look
from planstep.bench.proof.rows import oom
from planstep.store.files import Files
from planstep.store.meta import load_meta

pytestmark = pytest.mark.skipif(hooks() is None, reason="no allocation can be made to fail")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sample, Contents]:
    folder = tmp_path_factory.mktemp("oom")
    store = make(KINDS[0], folder)
    store.planted(folder / "whole")
    return store, apart(look, folder / "whole").value.shown["reader"]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_allocation_that_fails(
    sample: tuple[Sample, Contents], action: str, tmp_path: Path
) -> None:
    failed = 0
    for n, count in ((40, 1), (400, 1), (300, 100_000)):
        position = Position(action, n, count)
        first = apart(live, (*sample, position, tmp_path / "s", False))
        assert not first.why and not first.value.wrong, (str(position), first)
        failed += bool(first.value.raised)
        second = apart(check_reopened, (*sample, position, tmp_path / "s", first.value))
        assert (second.why, second.value) == ("", ""), str(position)
    assert failed


def test_the_allocations_of_an_action_are_counted(
    sample: tuple[Sample, Contents], tmp_path: Path
) -> None:
    counted = apart(allocations, (sample[0], "commit", tmp_path / "s"))
    assert not counted.why and counted.value > 500
    last = Position("commit", counted.value * 2)
    lived = apart(live, (*sample, last, tmp_path / "s", False)).value
    assert lived.acknowledged and not lived.raised


def test_a_wrong_acknowledgement_is_caught(sample: tuple[Sample, Contents], tmp_path: Path) -> None:
    count = apart(allocations, (sample[0], "commit", tmp_path / "s")).value
    for n in range(count * 3 // 4, count, 12):
        position = Position("commit", n)
        first = apart(live, (*sample, position, tmp_path / "s", True)).value
        problem = apart(check_reopened, (*sample, position, tmp_path / "s", first)).value
        if problem == "an acknowledged commit is gone":
            return
    raise AssertionError("nobody noticed")


def test_where_it_failed_is_named() -> None:
    def write_close() -> None:
        raise MemoryError

    def closing() -> None:
        try:
            write_close()
        except MemoryError as error:
            raise ValueError from error

    with pytest.raises(ValueError) as raised:
        closing()
    assert stage_of("close", raised.value) == "closing record"
    assert stage_of("read", raised.value) == "begin"


def test_a_thread_that_never_says_that_it_began_is_told_by_the_stacks() -> None:
    inner = 'Thread 0x01 (most recent call first):\n  File "a/threading.py", line 1 in start\n'
    main = 'Thread 0x02 (most recent call first):\n  File "a/engine.py", line 1 in close\n'
    assert is_start(main + inner) and not is_start(inner + main)


def test_what_a_store_says_of_itself_is_read_without_memory_or_not_at_all(
    sample: tuple[Sample, Contents], tmp_path: Path
) -> None:
    """protobuf ends the process if it finds no memory for a message; and a lack of memory is no damage."""
    sample[0].planted(tmp_path / "s")

    def loads(n: int) -> str:
        module = hooks()
        assert module is not None
        files = Files()
        load_meta(tmp_path / "s" / "host-0", files)
        module.set_nomemory(n, n + 1)
        try:
            load_meta(tmp_path / "s" / "host-0", files)
        except BaseException as error:
            return type(error).__name__
        finally:
            module.remove_mem_hooks()
        return ""

    results = [apart(loads, n) for n in range(300)]
    assert [one.why for one in results if one.why] == []
    ends = {one.value for one in results}
    assert {"", "MemoryError"} <= ends and "FormatError" not in ends


@pytest.mark.parametrize("loses", [False, True])
def test_what_a_start_that_hangs_leaves_is_looked_at(
    sample: tuple[Sample, Contents], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loses: bool
) -> None:
    """Its store must hold everything acknowledged before, and a loss is noticed."""

    def hangs(task: tuple[Sample, Contents, Position, Path, bool]) -> None:
        store, _, position, folder, _ = task
        _Action(store, position.action, folder)
        if loses:
            shutil.rmtree(folder)
            store.planted(folder)
        faulthandler.dump_traceback_later(0.5, file=hung_in(folder).open("w"))
        vars(threading)["_start_new_thread"] = lambda *args: None  # it never reports that it began
        threading.Thread(target=print).start()

    monkeypatch.setattr(oom, "live", hangs)
    monkeypatch.setattr(oom, "HANG_SECONDS", 1.5)
    positions = [Position("close", 1)]
    result = oom._piece(oom._Task(tmp_path / "s", *sample, positions, False))
    assert result.figures["ends"] == {"Thread.start hung": 1}
    assert [text.rpartition(": ")[2] for text in result.violations] == (
        ["an acknowledged commit is gone"] if loses else []
    )


def test_what_is_acknowledged_must_be_there(
    sample: tuple[Sample, Contents], tmp_path: Path
) -> None:
    sample[0].planted(tmp_path / "s")
    for lived, problem in (
        (Lived(acknowledged=True), "an acknowledged commit is gone"),
        (Lived(effects=[True] * 5), "the engine showed"),
        (Lived(probe=True), "after the failure is gone"),
    ):
        ended = apart(check_reopened, (*sample, Position("commit", 1), tmp_path / "s", lived))
        assert problem in ended.value


def test_what_was_refused_must_not_be_there(
    sample: tuple[Sample, Contents], tmp_path: Path
) -> None:
    position = Position("commit", 1_000_000)
    assert apart(live, (*sample, position, tmp_path / "s", False)).value.acknowledged
    ended = apart(check_reopened, (*sample, position, tmp_path / "s", Lived(refused=True)))
    assert ended.value == "a refused commit is there"
