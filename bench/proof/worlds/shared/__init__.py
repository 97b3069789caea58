"""Explores machines that share a log: the real ownership over a simulated object store.

Next: objects.py.
"""
