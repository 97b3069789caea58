"""Carries a store's turns to other machines.

Next: entry.py.
"""
