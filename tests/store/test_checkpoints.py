"""Tests that a checkpoint holds exactly one turn's state, whatever happens while it is written."""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from storekit import TABLETS, FastFiles, after_close, contents, crash, open_small, write

from planstep.bench.proof.disks.engines import open_engine, stores_of
from planstep.bench.proof.disks.tables import break_tables
from planstep.errors import StoreClosed
from planstep.store.log.segments import segment_files

A, B = TABLETS


def test_a_checkpoint_never_holds_a_turn_without_its_changes(quick_path: Path) -> None:
    """It begins while a turn is durable and not yet shown."""
    for seed in range(5):
        store = open_small(quick_path / str(seed))
        write(store, {A: 0})
        turn = store.begin()
        turn.put(A, 1)
        checkpoint = threading.Thread(target=store.checkpoint)

        def begin(visible: Callable[[], None], checkpoint: threading.Thread = checkpoint) -> None:
            checkpoint.start()
            checkpoint.join(0.02)
            visible()

        store.commit(turn, begin)
        checkpoint.join()
        crash(store)
        store = open_small(quick_path / str(seed))
        assert store.get(A) == 1
        crash(store)


def test_a_torn_commit_of_the_tables_is_not_seen(quick_path: Path) -> None:
    """A power loss within an LMDB commit leaves any of its pages, but not its root, or all of them with the
    root."""
    rng = random.Random(5)
    seen = set()
    for seed in range(40):
        folder = quick_path / str(seed)
        store = open_small(folder)
        for n in range(rng.randrange(1, 5)):
            write(store, {A + bytes([rng.randrange(200)]): n for _ in range(50)})
            store.checkpoint()
        for n in range(5):
            write(store, {}, {B + bytes([n]): bytes([n]) * 900})
        held = contents(store)
        path = folder / "table" / "data.mdb"
        before = path.read_bytes()
        logs = {p.name: p.read_bytes() for p in segment_files(folder)}
        store.checkpoint()
        after = path.read_bytes()
        crash(store)
        for p in segment_files(folder):
            p.unlink()
        for name, data in logs.items():
            (folder / name).write_bytes(data)
        image = bytearray(before.ljust(len(after), b"\0"))
        pages = os.sysconf("SC_PAGE_SIZE")
        whole = seed % 4 == 0
        for at in range(0, len(after), 512):
            if (whole or rng.random() < 0.5) and (at >= 2 * pages or whole):
                image[at : at + 512] = after[at : at + 512]
        path.write_bytes(image)
        store = open_small(folder)
        assert contents(store) == held
        seen.add(store.counters.replayed_turns > 0)
        crash(store)
    assert seen == {True, False}


def test_a_checkpoint_rests_unless_the_next_one_comes_near(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planstep.store.tables.digested_rows._REST_EVERY", 10)
    rests: list[float] = []
    store = open_small(quick_path / "rests")

    def many(begin: int) -> None:
        turn = store.begin()
        for n in range(begin, begin + 100):
            turn.put(A + b"%04d" % n, n)
        store.commit(turn)

    many(0)
    store.checkpoint(rests.append)
    assert len(rests) == 10
    many(100)
    store.checkpoint()  # waits for it
    many(200)
    monkeypatch.setattr("planstep.store.checkpointing.CHECKPOINT_KEYS", 40)

    def one_more(seconds: float) -> None:
        rests.append(seconds)
        many(1000)

    store.checkpoint(one_more)
    assert len(rests) == 11, "behind the first rest more waits than half of the next one"
    store.close()


def test_tables_that_gave_up_close_the_store(quick_path: Path) -> None:
    """After a failed write of its last 120 bytes, LMDB refuses every call until it is reopened."""
    store = open_small(quick_path / "s")
    write(store, {TABLETS[0]: 1})
    broken = break_tables(store, "panic", 0, 1)
    write(store, {TABLETS[0] + b"2": 2})
    with pytest.raises(StoreClosed, match="open it anew"):
        store.checkpoint()
    assert broken.failed and not store.checkpoint_due(1e9)
    with pytest.raises(StoreClosed, match="open it anew"):
        store.get(TABLETS[0] + b"not in memory")
    with pytest.raises(StoreClosed, match="open it anew"):
        write(store, {TABLETS[0]: 3})
    assert after_close(store) == {TABLETS[0]: 1, TABLETS[0] + b"2": 2}


def test_an_engine_whose_tables_gave_up_is_closed_for_good(tmp_path: Path) -> None:
    db = open_engine(tmp_path / "s", FastFiles())
    db.create_table("t")
    db.table("t").put(1, 1)
    (store,) = stores_of(db)
    break_tables(store, "panic", 0, 1)
    with pytest.raises(StoreClosed):
        store.checkpoint()
    for _ in range(2):
        with pytest.raises(StoreClosed):
            db.table("t").put(2, 2)
    db.close()
    db = open_engine(tmp_path / "s", FastFiles())
    assert dict(db.table("t").scan()) == {1: 1}
    db.close()
