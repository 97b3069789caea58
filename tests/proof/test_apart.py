"""Tests running work in a forked child: its result, its error or its crash is reported."""

import os
import signal
import time

from planstep.bench.proof.disks.forked import apart


def test_what_it_gives() -> None:
    ended = apart(lambda n: n * b"x", 3 << 20)
    assert len(ended.value) == 3 << 20 and ended.why == ""


def test_what_hangs_says_where() -> None:
    def standing_still(seconds: float) -> None:
        time.sleep(seconds)

    ended = apart(standing_still, 600.0, 0.5)
    assert ended.why.startswith("hung: no end after") and "standing_still" in ended.why


def test_what_kills_it() -> None:
    assert apart(lambda n: os.kill(os.getpid(), n), int(signal.SIGKILL)).why == "died: SIGKILL"
    assert apart(os._exit, 3).why == "died: exit code 3"


def test_what_it_raises() -> None:
    assert apart(lambda n: n[1], [1]).why == "raised: IndexError: list index out of range"
