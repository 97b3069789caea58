"""Sums are the same with isal and without: a store written with one opens with the other."""

import subprocess
import sys
import zlib
from random import Random

import pytest

from planstep import crc
from planstep.proto.batch import Batch, encode_batch


def test_isal_gives_the_sums_of_zlib() -> None:
    isal_zlib = pytest.importorskip("isal.isal_zlib", reason="isal is not installed")
    assert crc.crc32 is isal_zlib.crc32
    random = Random(7)
    for size in (*range(300), *(random.randrange(1 << 17) for _ in range(200))):
        data = random.randbytes(size + 8)
        at = random.randrange(8)  # vector instructions read aligned blocks
        view, start = memoryview(data)[at : at + size], random.getrandbits(32)
        assert crc.crc32(view) == zlib.crc32(view)
        assert crc.crc32(view, start) == zlib.crc32(view, start)
        cut = random.randrange(size + 1)
        assert crc.crc32(view[cut:], crc.crc32(view[:cut])) == zlib.crc32(view)


def test_a_batch_of_either_is_read_by_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    isal_zlib = pytest.importorskip("isal.isal_zlib", reason="isal is not installed")
    values = [Random(n).randbytes(n) for n in range(500)]
    made = []
    for crc32 in (isal_zlib.crc32, zlib.crc32):
        monkeypatch.setattr("planstep.proto.batch.crc32", crc32)
        made.append(encode_batch(values, timestamp_ms=5))
        assert Batch.decode(made[0]).values == values
    assert made[0] == made[1]


def test_without_isal_zlib_computes_them() -> None:
    code = (
        "import sys, zlib; sys.modules['isal'] = None; from planstep import crc; "
        "assert crc.crc32 is zlib.crc32"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
