"""Tests event sources: the same lines every time, from any line on; an invalid event is named, not skipped."""

from pathlib import Path

import pytest

from planstep.errors import PlanstepError
from planstep.reshard import events

LOG = b"""\
10.0.0.1 - ada [01/Jan/2024:00:00:00 +0000] "GET /shop/cart HTTP/1.1" 200 12
10.0.0.2 - - [01/Jan/2024:00:00:01 +0000] "GET / HTTP/1.1" 304 -
what is this

10.0.0.2 - - [01/Jan/2024:00:00:02 +0000] "POST /shop?x=1 HTTP/1.1" 200 5
"""


def test_an_access_log_gives_writer_and_user(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(LOG)
    (chunk,) = events.from_files([path]).chunks(str(path), 0, 100)
    assert chunk.writers == ["shop", "/", "shop"]
    assert chunk.users == ["ada", "10.0.0.2", "10.0.0.2"]
    assert chunk.ordinals == [0, 1, 4]
    assert [(number, reason) for number, _, reason in chunk.rejected] == [
        (2, "not in Common Log Format"),
        (3, "empty line"),
    ]


def test_a_load_can_go_on_from_any_line() -> None:
    source = events.generated(100, seed=3)
    whole = [v for chunk in source.chunks("generated", 0, 7) for v in chunk.values]
    assert len(whole) == 100
    for begin in (0, 1, 50, 99):
        rest = [v for chunk in source.chunks("generated", begin, 7) for v in chunk.values]
        assert rest == whole[begin:]


def test_seeds_differ() -> None:
    assert (
        list(events.generate(50, 1)) == list(events.generate(50, 1)) != list(events.generate(50, 2))
    )


def test_the_demo_is_what_the_package_ships() -> None:
    source = events.demo()
    chunk = next(source.chunks("flights.csv", 0, 5))
    assert chunk.writers == ["IAH", "IAH", "MIA", "BQN", "ATL"]
    assert chunk.users[:2] == ["N14228", "N24211"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanstepError, match=r"nothing\.log"):
        events.from_files([tmp_path / "nothing.log"])
