"""Tests that MemoryStore and DiskStore hold the same after the same steps: closed, crashed, checkpointed."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storekit import FIRST, LAST, TABLETS, FastFiles, contents, crash, write

from planstep.errors import TransactionTooLarge
from planstep.store import DiskStore, MemoryStore
from planstep.store.tables.pages import PAGED, PAGED_END

OUTCOMES = [PAGED + bytes(10) + bytes(name) for name in (b"\0\0", b"\0\7", b"\0\xff", b"\1\0")]
ROWS = [tablet + bytes(name) for tablet in TABLETS for name in (b"", b"a", b"ab", b"b", b"\xff")]
KEYS = [PAGED[:-1] + b"l", *OUTCOMES, PAGED_END, *ROWS]
keys = st.sampled_from(KEYS)
values = st.one_of(st.integers(-5, 1 << 40), st.binary(max_size=40), st.just((1, "x", b"y")))
steps = st.one_of(
    st.tuples(st.just("put"), keys, values),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("payload"), keys, st.binary(min_size=1, max_size=3000)),
    st.tuples(st.just("drop"), keys),
    st.tuples(st.just("savepoint")),
    st.tuples(st.just("rollback")),
    st.tuples(st.just("scan"), keys, keys, st.booleans(), st.sampled_from([None, 0, 1, 2, 5])),
)
actions = st.one_of(
    st.tuples(st.just("turn"), st.lists(steps, max_size=10)),
    st.tuples(st.just("turn"), st.lists(steps, max_size=10)),
    st.tuples(st.just("turn"), st.lists(steps, max_size=10)),
    st.tuples(st.just("scan"), keys, keys, st.booleans(), st.sampled_from([None, 0, 1, 2, 5])),
    st.sampled_from([("checkpoint",), ("reopen",), ("crash",), ("abandon",)]),
)


def payload_of(value: Any) -> tuple[int, int] | None:
    return value[1:] if isinstance(value, tuple) and value[0] == "P" else None


def change(turns: list[Any], kind: str, key: bytes, value: Any = None) -> None:
    held = [turn.get(key) for turn in turns]
    assert held[0] == held[1]
    old = payload_of(held[0])
    for turn in turns:
        # Overwritten payloads are dropped, as the cores do: they are never read again.
        if old is not None:
            turn.drop_payload(*old)
        if kind == "put":
            turn.put(key, value)
        elif kind == "payload":
            turn.put(key, ("P", turn.append_payload(value), len(value)))
        elif kind == "delete" or old is not None:
            turn.delete(key)


def play(stores: list[Any], script: list[Any]) -> None:
    """Runs one turn of the same steps on both stores; each step must answer the same."""
    turns = [store.begin() for store in stores]
    tokens: list[list[Any]] = []
    for step in script:
        kind, *rest = step
        if kind == "savepoint":
            tokens.append([turn.savepoint() for turn in turns])
        elif kind == "rollback":
            if tokens:
                for turn, token in zip(turns, tokens.pop(), strict=True):
                    turn.rollback(token)
        elif kind == "scan":
            begin, end, reverse, limit = rest
            rows = [turn.scan(begin, end, reverse=reverse, limit=limit) for turn in turns]
            assert rows[0] == rows[1]
        else:
            change(turns, kind, *rest)
    for store, turn in zip(stores, turns, strict=True):
        store.commit(turn)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(actions, max_size=25), st.sampled_from(["full", "os"]))
def test_both_stores_hold_the_same(script: list[Any], durability: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "s"

        def opened() -> DiskStore:
            return DiskStore.open(folder, segment_bytes=8 << 10, durability=durability)

        memory, disk = MemoryStore(), opened()
        try:
            for kind, *rest in script:
                if kind == "turn":
                    play([memory, disk], rest[0])
                elif kind == "scan":
                    begin, end, reverse, limit = rest
                    rows = memory.scan(begin, end, reverse=reverse, limit=limit)
                    assert disk.scan(begin, end, reverse=reverse, limit=limit) == rows
                elif kind == "checkpoint":
                    disk.checkpoint()
                elif kind == "abandon":
                    for store in (memory, disk):
                        turn = store.begin()
                        turn.put(KEYS[0], "never")
                        turn.append_payload(b"never")
                        store.abandon(turn)
                else:
                    generation = disk.generation
                    if kind == "reopen":
                        disk.close()
                    else:
                        crash(disk)
                    memory, disk = memory.crash(), opened()
                    assert disk.generation > generation
                assert memory.last_turn == disk.last_turn
                assert contents(memory) == contents(disk)
                assert memory.scan(PAGED[:4], FIRST) == disk.scan(PAGED[:4], FIRST)
                for key in KEYS:
                    assert memory.get(key) == disk.get(key)
                rows = memory.scan(FIRST, LAST, reverse=True)
                assert disk.scan(FIRST, LAST, reverse=True) == rows
            disk.close()
            disk = opened()
            assert contents(memory) == contents(disk)
            assert memory.scan(PAGED[:4], FIRST) == disk.scan(PAGED[:4], FIRST)
        finally:
            crash(disk)


@pytest.mark.parametrize("length", [510, 511])
def test_a_key_that_the_tables_cannot_hold_is_refused(tmp_path: Path, length: int) -> None:
    disk = DiskStore.open(tmp_path / "s", files=FastFiles())
    key = TABLETS[0] + bytes(length - len(TABLETS[0]))
    for store in (MemoryStore(), disk):
        if length > 510:
            with pytest.raises(TransactionTooLarge, match="510"):
                write(store, {key: 1})
        else:
            write(store, {key: 1})
        write(store, {TABLETS[0]: 1})
        assert len(contents(store)) == (2 if length <= 510 else 1)
    disk.checkpoint()
    assert disk.get(TABLETS[0]) == 1
    disk.close()
