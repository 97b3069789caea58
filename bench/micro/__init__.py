"""Benchmarks of single operations, and counts of what one commit costs.

Next: instructions.py.
"""
