"""Tests the ranges that processes claim of an individual consumer's lane: against sets of offsets."""

import itertools
import random

import pytest

from planstep.coordinator.claims import LaneClaims, Range, counted, merged, without


def offsets(ranges: list[Range]) -> set[int]:
    return {offset for begin, end in ranges for offset in range(begin, end)}


def drawn(draw: random.Random, number: int, most: int = 40) -> list[Range]:
    pairs = [
        sorted(draw.randint(0, most) for _ in range(2)) for _ in range(draw.randint(0, number))
    ]
    return [(begin, end) for begin, end in pairs]


def test_ranges_are_those_of_sets() -> None:
    draw = random.Random(1)
    for _ in range(3_000):
        one, other = drawn(draw, 6), drawn(draw, 6)
        whole = merged(one)
        assert offsets(whole) == offsets(one)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(whole))
        assert all(begin < end for begin, end in whole)
        assert counted(whole) == len(offsets(one))
        rest = without(whole, merged(other))
        assert offsets(rest) == offsets(one) - offsets(other)
        assert rest == sorted(rest) and all(begin < end for begin, end in rest)


def play(kind: type[LaneClaims], seed: int) -> None:
    """Parties claim, consume and free; no two have one record, and all records are consumed in the end."""
    draw = random.Random(seed)
    claims, log_end = kind(), 100
    consumed: set[int] = set()
    had: dict[int, set[int]] = {party: set() for party in range(1, 4)}
    weights = {party: draw.randint(1, 3) for party in had}

    def free() -> list[Range]:
        return merged((n, n + 1) for n in range(log_end) if n not in consumed)

    def claim(party: int) -> None:
        part = weights[party], sum(weights.values())
        asked = draw.randint(1, 30)
        left = len({*range(log_end)} - consumed - set().union(*had.values()))
        got = offsets(claims.claim(party, asked, part, free()))
        assert not got & consumed and not any(got & others for others in had.values())
        assert len(got) <= asked and bool(got) == bool(left)
        assert (party in claims.waiting) == (not got)
        had[party] |= got

    for _ in range(300):
        party = draw.choice([*had])
        roll = draw.random()
        mine = sorted(had[party])
        if roll < 0.5:
            claim(party)
        elif roll < 0.95 and mine:
            ended = draw.sample(mine, draw.randint(1, len(mine)))
            if draw.random() < 0.8:
                consumed |= {*ended}
            had[party] -= {*ended}
            claims.free(party, [(n, n + 1) for n in ended])
        elif roll < 0.97:
            had[party] = set()
            claims.leave(party)
        else:
            log_end += 10
    while len(consumed) < log_end:
        for party in had:
            claim(party)
            consumed |= had[party]
            claims.free(party, merged((n, n + 1) for n in sorted(had[party])))
            had[party] = set()
    assert not claims.claims


def test_no_two_parties_have_one_record() -> None:
    for seed in range(200):
        play(LaneClaims, seed)


class Forgetful(LaneClaims):
    """The planted bug: others' claims are not left out."""

    @property
    def taken(self) -> list[Range]:
        return []


def test_the_model_finds_a_planted_bug() -> None:
    with pytest.raises(AssertionError):
        for seed in range(200):
            play(Forgetful, seed)


def test_what_a_party_brings_is_its_own_unless_another_has_it() -> None:
    claims = LaneClaims()
    claims.bring(1, [(0, 10), (20, 30)])
    claims.bring(2, [(5, 25)])
    assert claims.claims == {1: [(0, 10), (20, 30)], 2: [(10, 20)]}
    claims.free(2, [(0, 15)])
    assert claims.claims[2] == [(15, 20)]
    assert claims.leave(1) and not claims.leave(1)
    assert claims.claim(2, 100, (1, 1), [(0, 40)]) == [(0, 15), (20, 40)]


def test_a_short_backlog_is_not_all_of_one_party() -> None:
    claims = LaneClaims()
    given = [claims.claim(party, 1_000, (1, 4), [(0, 80)]) for party in (1, 2, 3, 4)]
    assert given == [[(0, 10)], [(10, 18)], [(18, 25)], [(25, 31)]]
