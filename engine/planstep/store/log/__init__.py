"""The log: its records, segments, extents, and its end, where turns are appended. Next: records.py."""
