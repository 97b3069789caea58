"""Disks that fail: files that remember, lose, tear and refuse; stores in processes that are killed.

Next: the row that uses them, ../rows/powerloss.py say.
"""
