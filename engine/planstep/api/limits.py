"""Sets the face's limits, all checked before a transaction has any effect.

Next: columns/codecs.py.
"""

RECORD_BYTES_MAX = 16 << 20
"""Bytes of one topic record (key, value and headers) or one table row's value."""
TRANSACTION_BYTES_MAX = 1 << 30
"""Bytes that one transaction writes."""
INDEX_ENTRIES_MAX = 10_000
"""Batches that one transaction writes, over all partitions."""
BATCH_BYTES = 1 << 20
"""Records of one partition are cut into batches of about this size: readers read whole batches."""
AHEAD_BYTES = 8 << 20
"""Topic writes of this many bytes are staged before the commit, so that they take no more memory."""
READ_BYTES = 16 << 20
"""Bytes that one read of a consumer returns at most by default; the batch that crosses it is not begun."""
LOOK_BYTES = 64 << 20
"""Bytes that one look at a topic returns at most by default."""
PARTITIONS_MAX = 10_000
"""Partitions of a topic, and shards of a table."""
CREATE_TRIES = 100
"""Tries to create what others create and drop all the time."""
