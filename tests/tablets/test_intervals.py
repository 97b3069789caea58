"""Tests intervals against a set of numbers."""

import random

import pytest

from planstep.tablets.intervals import Ranges, consumed, free, overlap_end, raised


def model_of(position: int, ranges: Ranges) -> set[int]:
    assert all(b < e for b, e in ranges)
    edges = [position, *(edge for pair in ranges for edge in pair)]
    assert edges == sorted(set(edges)), "ascending, apart from each other and from the position"
    return set(range(position)).union(*(range(b, e) for b, e in ranges))


@pytest.mark.parametrize("seed", range(40))
def test_against_a_set(seed: int) -> None:
    draw = random.Random(seed)
    position, ranges = 0, ()
    model: set[int] = set()
    for _ in range(120):
        begin = draw.randrange(60)
        end = begin + draw.randrange(1, 6)
        hit = sorted(model & set(range(begin, end)))
        blocked = overlap_end(position, ranges, begin, end)
        assert (blocked is None) == (not hit)
        if blocked is None:
            position, ranges = consumed(position, ranges, begin, end)
            model |= set(range(begin, end))
        else:
            assert blocked > hit[0] and blocked not in model
        if draw.random() < 0.05:
            floor = draw.randrange(50)
            position, ranges, missed = raised(position, ranges, floor)
            assert missed == len(set(range(floor)) - model)
            model |= set(range(floor))
        assert model_of(position, ranges) == model
        end = draw.randrange(70)
        assert {n for b, e in free(position, ranges, end) for n in range(b, e)} == (
            set(range(end)) - model
        )
