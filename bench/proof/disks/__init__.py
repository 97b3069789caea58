"""Simulates disks that fail and processes that are killed: files that record, lose, tear and refuse operations.

Next: a row that uses them, such as ../rows/powerloss.py.
"""
