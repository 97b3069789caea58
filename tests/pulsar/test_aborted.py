"""Tests the aborted ids of a partition against a plain list, and their memory at a million ids."""

import sys
from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planstep.tablets.pulsar import aborted as module
from planstep.tablets.pulsar.aborted import CHUNK_IDS, Aborted

LEASTS = st.one_of(st.integers(0, 9), st.integers(1 << 32, (1 << 32) + 3))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), LEASTS, st.integers(1, 3)),
        st.tuples(st.just("trim"), st.integers(0, 60)),
        st.tuples(st.just("mark")),
        st.tuples(st.just("undo")),
        st.tuples(st.just("pack"), st.integers(-1, 40), st.integers(0, 40)),
    ),
    max_size=60,
)


def hidden(model: list[tuple[int, int, int]], most: int, least: int, offset: int) -> bool:
    """An id that has several markers (no partition writes that) counts with its last one."""
    markers = [m for m, *own in model if own == [most, least]]
    return bool(markers) and markers[-1] > offset


def check(ids: Aborted, model: list[tuple[int, int, int]], last: int) -> None:
    assert ids.ids() == model
    assert len(ids) == len(model)
    assert ids.last == last
    offsets = (0, last - 1, last, *(marker for marker, *_ in model))
    for most in range(3):
        for least in {least for _, _, least in model} | {0, 10}:
            for offset in offsets:
                wanted = hidden(model, most, least, offset)
                assert offset < 0 or ids.contains(most, least, offset) == wanted


@settings(max_examples=300)
@given(STEPS)
def test_it_equals_a_list_over_adds_trims_and_undone_turns(steps: list[Any]) -> None:
    """Scenario 23's order: first in, first out; chunks of three ids show their borders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_IDS", 3)
        ids, model, last = Aborted(), [], -1  # type: tuple[Aborted, list[tuple[int, int, int]], int]
        marks = [(ids.mark(), list(model), last)]
        for what, *rest in steps:
            if what == "add":
                most, least, gap = rest
                last += gap
                assert ids.add(most, least, last)
                assert not ids.add(most, least, last), "a marker counts once"
                model.append((last, most, least))
            elif what == "trim":
                start = min(rest[0], last + 1)
                ids.trim(start)
                model = [entry for entry in model if entry[0] >= start]
            elif what == "mark":
                marks.append((ids.mark(), list(model), last))
            elif what == "undo":
                mark, model, last = marks[-1]
                model = list(model)
                if len(marks) > 1:
                    marks.pop()
                ids.undo(mark)
            else:
                after, upto = rest
                other = Aborted()
                other.load(ids.pack(after, upto))
                assert other.ids() == [entry for entry in model if after < entry[0] <= upto]
            check(ids, model, last)


@given(st.lists(st.tuples(st.integers(0, 2), LEASTS), max_size=30), st.integers(0, 30), st.data())
def test_what_is_loaded_twice_counts_once(
    added: list[tuple[int, int]], split: int, data: st.DataObject
) -> None:
    ids = Aborted()
    for marker, (most, least) in enumerate(added):
        ids.add(most, least, marker)
    other = Aborted()
    repeat = data.draw(st.integers(-1, split))
    other.load(ids.pack(-1, split))
    other.load(ids.pack(repeat))
    assert other.ids() == ids.ids()
    assert other.last == ids.last
    for n in range(1, len(added) + 1):
        assert ids.nth_marker(-1, n) == n - 1


def test_a_million_ids_are_small_and_quickly_looked_up() -> None:
    """Scenario 27: bounded memory; of four coordinators, ids that end nearly in their order."""
    ids = Aborted()
    for number in range(1_000_000):
        ids.add(number & 3, (number >> 2) ^ 1, 3 * number)
    chunks = [chunk for of in ids._chunks.values() for chunk in of]
    used = sum(getsizeof(a) for chunk in chunks for a in (chunk.leasts, chunk.markers, chunk.order))
    assert 18_000_000 < used < 25_000_000
    data = ids.pack()
    assert len(data) < 8_000_100, "eight bytes an id: the single snapshot's limit is at 655,000"
    other = Aborted()
    other.load(data)
    assert len(other) == 1_000_000
    assert other.contains(3, 249_999, 2_999_000)
    assert not other.contains(3, 250_000, 0)
    ids.trim(3 * 999_990)
    assert len(ids) == 10
    held = sum(len(chunk.markers) for of in ids._chunks.values() for chunk in of)
    assert held < 4 * CHUNK_IDS, "what was trimmed is freed by chunks"


def test_what_was_trimmed_is_hidden_by_nothing() -> None:
    ids = Aborted()
    for least in range(4):
        ids.add(0, least, 10 * least)
    ids.trim(11)
    assert [ids.contains(0, least, 0) for least in range(4)] == [False, False, True, True]


def test_numbers_are_packed_little_endian_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = Aborted()
    ids.add(1, 2, 3)
    assert ids.pack() == bytes.fromhex("0100000000000000 01000000 04 04 02000000 03000000")
    assert sys.byteorder == "little", "the bytes above are what the other order must give too"
