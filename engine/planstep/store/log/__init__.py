"""The log: records, segments, extents, and its end, which is appended to. Next: records.py."""
