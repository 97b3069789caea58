"""Computes CRC-32 of batches, log records and rows: by isal where that package is installed, else by zlib.

Both give the same sums, so a store does not depend on which of them is there (tests/proto/test_crc.py). Isal is
2.5 times as fast for 100 bytes, 8 times for 20 KB: `pip install ".[fast]"`.

Next: proto/batch.py.
"""

import zlib

try:
    from isal import isal_zlib
except ImportError:
    crc32 = zlib.crc32
else:
    crc32 = isal_zlib.crc32
