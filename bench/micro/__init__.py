"""Benchmarks single operations, and counts the costs of one commit.

Next: instructions.py.
"""
